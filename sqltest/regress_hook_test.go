package sqltest

import (
	"context"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

type (
	areq struct{ N int64 }
	ares struct{ OK bool }
)

func acontract() settle.Contract {
	return settle.Contract{
		Account: settle.AccountFacts{Provider: "p"}, Deadline: 5 * time.Second, SettleDelay: 10 * time.Second,
		Keys: settle.Keys{Window: 24 * time.Hour},
	}
}

func aex(t *testing.T, e *settle.Engine, o settle.Observation[ares], opts *settle.ExecutorOptions[areq, ares]) *settle.Executor[areq, ares] {
	x, err := settle.New(e, "pay", settle.Adapter[areq, ares]{
		Promise: acontract(),
		TermsFunc: func(op settle.Operation[areq]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.N, "EUR")}
		},
		SubmitFunc: func(_ context.Context, c *settle.Call[areq]) (settle.Observation[ares], error) {
			_ = c.Key()
			out := o
			if out.Fact == settle.Applied {
				out.Terms = c.Terms
			}
			return out, nil
		},
	}, opts)
	must(t, err)
	return x
}

func aop() settle.Operation[areq] {
	return settle.Operation[areq]{Scope: "s", Subject: "o", Purpose: "p", Request: areq{5}}
}

// Must not happen: the row is neither settled, nor due, nor in review.
func TestRegress_RetryAfterOverflowSQLite(t *testing.T) {
	_, s := openBoth(t, sqlstore.DSN(file(t)), nil)
	e, err := settle.Open(s, nil)
	must(t, err)
	x := aex(t, e, settle.Observation[ares]{Fact: settle.NotApplied, Code: "429", RetryAfter: 1<<63 - 1}, nil)
	out, err := x.Execute(t.Context(), aop())
	r, err2 := e.Get(t.Context(), out.ID)
	must(t, err2)
	if r.Due.IsZero() && !r.State.Settled() {
		t.Errorf("%v: %v: unsettled and never due (retry at %v)", r, err, r.RetryAt)
	}
}

// A hook whose statement makes SQLite roll back the transaction, and who goes on.
func TestRegress_HookAfterAutomaticRollback(t *testing.T) {
	db, s := openBoth(t, sqlstore.DSN(file(t)), nil)
	must(t, run(db, `CREATE TABLE seen (id TEXT PRIMARY KEY)`))
	must(t, run(db, `CREATE TABLE shipped (id TEXT)`))
	must(t, run(db, `INSERT INTO seen VALUES ('o')`))
	e, err := settle.Open(s, &settle.Options{Lease: time.Second, StoreTimeout: time.Second})
	must(t, err)
	runs := 0
	x := aex(t, e, settle.Observation[ares]{Fact: settle.Applied, Ref: "ch_1"}, &settle.ExecutorOptions[areq, ares]{
		OnSuccess: func(ctx context.Context, tx settle.Tx, out settle.Outcome[ares]) error {
			runs++
			q := sqlstore.Tx(tx)
			_, _ = q.ExecContext(ctx, `INSERT OR ROLLBACK INTO seen VALUES (?)`, out.Subject) // seen already: never mind
			_, err := q.ExecContext(ctx, `INSERT INTO shipped VALUES (?)`, out.Subject)
			return err
		},
	})
	out, err := x.Execute(t.Context(), aop())
	var n int
	must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM shipped`).Scan(&n))
	var r settle.Record
	for rec, err := range e.List(t.Context(), settle.Query{}) {
		must(t, err)
		r = rec
	}
	if n > 1 || len(r.References) == 0 {
		t.Errorf("shipped %d times in %d runs; recorded: %v %+v; verdict %v %v", n, runs, r, r.References, out.Record, err)
	}
}

// The same by a deadline of the hook's own: the interrupted statement takes the transaction with it.
func TestRegress_HookStatementInterrupted(t *testing.T) {
	db, s := openBoth(t, sqlstore.DSN(file(t)), nil)
	must(t, run(db, `CREATE TABLE big (a, b)`))
	must(t, run(db, `CREATE TABLE shipped (id TEXT)`))
	e, err := settle.Open(s, &settle.Options{Lease: time.Second, StoreTimeout: time.Second})
	must(t, err)
	runs := 0
	x := aex(t, e, settle.Observation[ares]{Fact: settle.Applied, Ref: "ch_1"}, &settle.ExecutorOptions[areq, ares]{
		OnSuccess: func(ctx context.Context, tx settle.Tx, out settle.Outcome[ares]) error {
			runs++
			q := sqlstore.Tx(tx)
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, serr := q.ExecContext(short, `INSERT INTO big WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x < 100000000) SELECT x, x FROM c`)
			_, err := q.ExecContext(ctx, `INSERT INTO shipped VALUES (?)`, out.Subject)
			t.Log(serr, err)
			return err
		},
	})
	out, err := x.Execute(t.Context(), aop())
	var n int
	must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM shipped`).Scan(&n))
	var r settle.Record
	for rec, err := range e.List(t.Context(), settle.Query{}) {
		must(t, err)
		r = rec
	}
	if n > 1 || len(r.References) == 0 {
		t.Errorf("shipped %d times in %d runs; recorded: %v %+v; verdict %v %v", n, runs, r, r.References, out.Record, err)
	}
}
