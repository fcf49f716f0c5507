package pgxsettle_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/pgxsettle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type payments = settle.Executor[providertest.Payment, providertest.Receipt]

// app is an application on native pgx, with a table of orders and charges.
type app struct {
	pool     *pgxpool.Pool
	store    *sqlstore.Store
	charges  *payments
	provider *providertest.Provider
}

func newApp(t *testing.T) app {
	t.Helper()
	base := os.Getenv("SETTLE_POSTGRES")
	if base == "" {
		base = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	}
	admin, err := sql.Open("pgx", base)
	must(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	schema := fmt.Sprintf("settle_pgx_%d_%d", os.Getpid(), time.Now().UnixNano())
	_, err = admin.ExecContext(t.Context(), `CREATE SCHEMA `+schema)
	must(t, err)
	t.Cleanup(func() {
		if _, err := admin.ExecContext(context.Background(), `DROP SCHEMA `+schema+` CASCADE`); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(base)
	must(t, err)
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()

	var a app
	a.pool, err = pgxpool.New(t.Context(), u.String())
	must(t, err)
	t.Cleanup(a.pool.Close)
	db := stdlib.OpenDBFromPool(a.pool)
	t.Cleanup(func() { _ = db.Close() })
	must(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.PostgreSQL()))
	a.store, err = sqlstore.New(db, sqlstore.PostgreSQL(), nil)
	must(t, err)
	t.Cleanup(func() { _ = a.store.Close() })
	_, err = a.pool.Exec(t.Context(), `CREATE TABLE orders (id text PRIMARY KEY)`)
	must(t, err)

	po := &providertest.Options{KeyWindow: 24 * time.Hour}
	a.provider = providertest.New(po)
	e, err := settle.Open(a.store, nil)
	must(t, err)
	a.charges, err = settle.New(e, "charge", providertest.ChargeAdapter(a.provider, providertest.Promise(po)), nil)
	must(t, err)
	return a
}

func (a app) count(t *testing.T, table string) (n int) {
	t.Helper()
	must(t, a.pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

func (a app) begin(t *testing.T, o pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := a.pool.BeginTx(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // nothing if it has ended
	return tx
}

func order(n string) settle.Operation[providertest.Payment] {
	return settle.Operation[providertest.Payment]{
		Scope: "shop", Subject: n, Purpose: "purchase", Request: providertest.Payment{Amount: 1999, Currency: "EUR"},
	}
}

// An operation commits with the order, or neither is there.
func TestRegisterTx(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	for _, commit := range []bool{false, true} {
		tx := a.begin(t, pgx.TxOptions{})
		_, err := tx.Exec(t.Context(), `INSERT INTO orders VALUES ('order-1')`)
		must(t, err)
		in := pgxsettle.In(a.store, tx)
		if in.Unwrap() != any(tx) {
			t.Error("Unwrap is not the transaction")
		}
		rec, err := a.charges.RegisterTx(t.Context(), in, order("order-1"))
		must(t, err)
		seen, err := in.Get(t.Context(), settle.ByID(rec.ID))
		must(t, err)
		again, err := a.charges.RegisterTx(t.Context(), in, order("order-1"))
		must(t, err)
		if seen.ID != rec.ID || again.ID != rec.ID || seen.Version != 1 {
			t.Errorf("registered %v, seen %v, again %v", rec, seen, again)
		}
		if n := a.count(t, "settle_operation"); n != 0 {
			t.Errorf("%d operations are visible before COMMIT", n)
		}
		want := 0
		if commit {
			want = 1
			must(t, tx.Commit(t.Context()))
		} else {
			must(t, tx.Rollback(t.Context()))
		}
		for _, table := range []string{"orders", "settle_operation", "settle_due"} {
			if n := a.count(t, table); n != want {
				t.Errorf("commit %v: %d rows of %s, want %d", commit, n, table, want)
			}
		}
	}
	if _, err := a.charges.Execute(t.Context(), order("order-1")); err != nil {
		t.Error(err)
	}
	if n := a.provider.Calls(providertest.OpCreate); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// A refused change is undone as a whole, and the transaction goes on (I3).
func TestRefused(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	tx := a.begin(t, pgx.TxOptions{})
	in := pgxsettle.In(a.store, tx)
	_, err := a.charges.RegisterTx(t.Context(), in, order("order-1"))
	must(t, err)
	other := order("order-1")
	other.Request.Amount = 1
	if _, err := a.charges.RegisterTx(t.Context(), in, other); !errors.Is(err, settle.ErrMismatch) {
		t.Errorf("another request under the same identity: %v", err)
	}
	rec, err := in.Get(t.Context(), settle.ByIntent("shop", "charge", "order-1", "purchase"))
	must(t, err)
	if _, err := in.Commit(t.Context(), settle.Change{ID: "again", Writes: []settle.Write{{Record: rec}}}); !errors.Is(err, settle.ErrConflict) {
		t.Errorf("a second record with the same names: %v", err)
	}
	if _, err := in.Commit(t.Context(), settle.Change{ID: "h", Hook: func(context.Context, settle.Tx) error { return nil }}); !errors.Is(err, settle.ErrInvalid) {
		t.Errorf("a hook: %v", err)
	}
	_, err = tx.Exec(t.Context(), `INSERT INTO orders VALUES ('order-1')`)
	must(t, err)
	must(t, tx.Commit(t.Context()))
	if a.count(t, "settle_operation") != 1 || a.count(t, "orders") != 1 {
		t.Error("the transaction did not go on")
	}
}

// Contention is one error, whatever PostgreSQL calls it (T-30).
func TestRetryTx(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	tx := a.begin(t, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	_, err := tx.Exec(t.Context(), `SELECT count(*) FROM orders`)
	must(t, err)
	_, err = a.charges.Register(t.Context(), order("order-1"))
	must(t, err)
	if _, err := a.charges.RegisterTx(t.Context(), pgxsettle.In(a.store, tx), order("order-1")); !errors.Is(err, settle.ErrRetryTx) {
		t.Errorf("a snapshot that is too old: %v", err)
	}
	must(t, tx.Rollback(t.Context()))

	done := a.begin(t, pgx.TxOptions{})
	must(t, done.Commit(t.Context()))
	if _, err := a.charges.RegisterTx(t.Context(), pgxsettle.In(a.store, done), order("order-2")); err == nil {
		t.Error("registered in a transaction that has ended")
	}
	if n := a.count(t, "settle_operation"); n != 1 {
		t.Errorf("%d operations", n)
	}
}
