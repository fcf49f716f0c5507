package sqltest

import (
	"context"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// RegisterTx in a transaction that SQLite has rolled back by itself commits at once.
func TestRegress_RegisterTxAfterAutomaticRollback(t *testing.T) {
	db, s := openBoth(t, sqlstore.DSN(file(t)), nil)
	must(t, run(db, `CREATE TABLE seen (id TEXT PRIMARY KEY)`))
	must(t, run(db, `CREATE TABLE orders (id TEXT)`))
	must(t, run(db, `INSERT INTO seen VALUES ('o')`))
	e, err := settle.Open(s, nil)
	must(t, err)
	x := aex(t, e, settle.Observation[ares]{Fact: settle.Applied, Ref: "ch_1"}, nil)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO orders VALUES ('o')`)
	must(t, err)
	_, serr := tx.ExecContext(t.Context(), `INSERT OR ROLLBACK INTO seen VALUES ('o')`)
	_, rerr := x.RegisterTx(t.Context(), s.In(tx), aop())
	cerr := tx.Commit()
	var orders int
	must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&orders))
	r, ferr := x.Find(t.Context(), settle.Intent{Scope: "s", Subject: "o", Purpose: "p"})
	t.Log(serr, rerr, cerr, ferr)
	if ferr == nil && orders == 0 {
		t.Errorf("the caller's transaction did not commit (%v), its order is gone, and the operation is stored: %v", cerr, r)
	}
}

// A hook that ends the transaction itself.
func TestRegress_HookRollsBack(t *testing.T) {
	_, s := openBoth(t, sqlstore.DSN(file(t)), nil)
	e, err := settle.Open(s, &settle.Options{Lease: time.Second, StoreTimeout: time.Second})
	must(t, err)
	runs := 0
	x := aex(t, e, settle.Observation[ares]{Fact: settle.Applied, Ref: "ch_1"}, &settle.ExecutorOptions[areq, ares]{
		OnSuccess: func(ctx context.Context, tx settle.Tx, out settle.Outcome[ares]) error {
			runs++
			return sqlstore.Tx(tx).Rollback() // "there is nothing to do"
		},
	})
	_, err = x.Execute(t.Context(), aop())
	for r, lerr := range e.List(t.Context(), settle.Query{}) {
		must(t, lerr)
		if len(r.References) == 0 {
			t.Errorf("%v after %d runs of the hook: the confirmation is not recorded: %v", r, runs, err)
		}
	}
}
