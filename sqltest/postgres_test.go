package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
	"github.com/settle-go/settle/storetest"
)

// postgresURL is where the tests find a server; a schema of each test's own keeps them apart.
func postgresURL() string {
	if u := os.Getenv("SETTLE_POSTGRES"); u != "" {
		return u
	}
	return "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
}

var schemaNumber atomic.Int64

// pgSchema makes an empty schema and returns the URL of it. What it is called is new to
// the server, so that many test processes can share one.
func pgSchema(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("settle_test_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), schemaNumber.Add(1))
	db, err := sql.Open("pgx", postgresURL())
	must(tb, err)
	defer db.Close()
	must(tb, run(db, `CREATE SCHEMA `+name))
	tb.Cleanup(func() {
		db, err := sql.Open("pgx", postgresURL())
		must(tb, err)
		defer db.Close()
		must(tb, run(db, `DROP SCHEMA `+name+` CASCADE`))
	})
	u, err := url.Parse(postgresURL())
	must(tb, err)
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// openPG opens a handle with the driver.
func openPG(tb testing.TB, driver, dsn string, opts *sqlstore.Options) (*sql.DB, *sqlstore.Store) {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	must(tb, sqlstore.EnsureSchema(tb.Context(), db, sqlstore.PostgreSQL()))
	s, err := sqlstore.New(db, sqlstore.PostgreSQL(), opts)
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return db, s
}

// conformance runs the suite on two handles, since opening one is a matter of many
// round trips, and empties the tables for every case.
func conformance(t *testing.T, open func(testing.TB) (*sql.DB, *sqlstore.Store), empty string) {
	db, first := open(t)
	_, second := open(t)
	storetest.Run(t, storetest.Harness{
		Open:   func(tb testing.TB) settle.Store { must(tb, run(db, empty)); return first },
		Reopen: func(testing.TB, settle.Store) settle.Store { return second },
		Begin: func(tb testing.TB, s settle.Store) (settle.Tx, func() error, func() error) {
			tx, err := db.BeginTx(context.Background(), nil)
			must(tb, err)
			return s.(*sqlstore.Store).In(tx), tx.Commit, tx.Rollback
		},
	})
}

const pgClear = `DELETE FROM settle_operation; DELETE FROM settle_due; DELETE FROM settle_reference; DELETE FROM settle_history`

func TestPostgresConformance(t *testing.T) {
	for name, c := range map[string]struct {
		driver, params string
		opts           *sqlstore.Options
	}{
		"pgx":              {"pgx", "", nil},
		"pq":               {"postgres", "", nil},
		"pgx serializable": {"pgx", "&default_transaction_isolation=serializable", nil},
		"pgx exec":         {"pgx", "&default_query_exec_mode=exec", &sqlstore.Options{Unprepared: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgSchema(t) + c.params
			conformance(t, func(tb testing.TB) (*sql.DB, *sqlstore.Store) { return openPG(tb, c.driver, dsn, c.opts) }, pgClear)
		})
	}
}
