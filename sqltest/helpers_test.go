package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func run(db *sql.DB, q string, args ...any) error {
	_, err := db.ExecContext(context.Background(), q, args...)
	return err
}

func file(tb testing.TB) string { return filepath.Join(tb.TempDir(), "settle.db") }

func openDB(dsn string) (*sql.DB, error) { return sql.Open("sqlite", dsn) }

func open(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := openDB(dsn)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func openStore(tb testing.TB, dsn string, opts *sqlstore.Options) *sqlstore.Store {
	tb.Helper()
	_, s := openBoth(tb, dsn, opts)
	return s
}

func openBoth(tb testing.TB, dsn string, opts *sqlstore.Options) (*sql.DB, *sqlstore.Store) {
	tb.Helper()
	db := open(tb, dsn)
	must(tb, sqlstore.EnsureSchema(tb.Context(), db, sqlstore.SQLite()))
	s, err := sqlstore.New(db, sqlstore.SQLite(), opts)
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return db, s
}

// created is a charge that is about to be sent; id, key, token and subject end in n.
func created(n string) settle.Record {
	return settle.Record{
		ID: fmt.Sprintf("0192b8f4-7a6c-7000-8000-%012s", n), Scope: "tenant-1", Kind: "charge", Key: "key-" + n, Subject: "order-" + n,
		Purpose: "purchase", ProviderKey: "s1_tenant-1_charge_order-" + n, Account: "stripe/acct_1/eu/test",
		Fingerprint: settle.Fingerprint{Rule: "1", Sum: "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"},
		Request:     request, Terms: settle.Terms{Account: "acct_1", Amount: settle.Minor(1990, "eur")}, KeyWindow: 24 * time.Hour,
		Attempts: []settle.Attempt{{N: 1, Start: time.UnixMicro(1_700_000_000_000_000).UTC(), Grace: 90 * time.Second}},
		State:    settle.StateSubmitting, Token: "t" + n,
	}
}

func succeeded(r settle.Record) settle.Record {
	r = r.Clone()
	r.Attempts[0].End, r.Attempts[0].Fate = r.Attempts[0].Start.Add(time.Second), settle.FateApplied
	r.References = []settle.Reference{{Ref: "pi_" + r.Key, Rank: settle.RankSucceeded, Terms: settle.Terms{Amount: r.Terms.Amount}}}
	r.State, r.Token, r.Result = settle.StateSucceeded, "", result
	return r
}

// renew renews one claim.
func renew(ctx context.Context, s settle.Store, id, token string, lease time.Duration) error {
	said, err := s.Renew(ctx, []settle.Held{{ID: id, Token: token}}, lease)
	if err != nil {
		return err
	}
	return said[0]
}
