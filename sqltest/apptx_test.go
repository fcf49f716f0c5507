package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// withOrders opens a database of the kind with a table "orders" in it. A lock is waited for
// for a second, since InnoDB counts in seconds.
func withOrders(t *testing.T, d database) (*sql.DB, *sqlstore.Store) {
	t.Helper()
	dsn := d.fresh(t)
	if d.name == "MySQL" {
		c, err := mysql.ParseDSN(dsn)
		must(t, err)
		c.Params = map[string]string{"innodb_lock_wait_timeout": "1"}
		dsn = c.FormatDSN()
	}
	dsn = strings.Replace(dsn, "busy_timeout%285000%29", "busy_timeout%28500%29", 1) // that of SQLite
	db, s := d.open(t, dsn, &sqlstore.Options{LockWait: 500 * time.Millisecond})
	must(t, run(db, `CREATE TABLE orders (id VARCHAR(40) PRIMARY KEY)`))
	return db, s
}

// eachTransaction runs f on each kind of database and for each way to hold a transaction.
func eachTransaction(t *testing.T, all []database, f func(t *testing.T, d database, begin beginner)) {
	t.Helper()
	onEach(t, all, func(t *testing.T, d database) {
		for how, begin := range transactions {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				f(t, d, begin)
			})
		}
	})
}

// till is an engine with charges on a store, and the provider that they go to.
type till struct {
	*settle.Executor[providertest.Payment, providertest.Receipt]
	engine   *settle.Engine
	provider *providertest.Provider
}

func newTill(t *testing.T, s settle.Store, p *providertest.Provider, hook func(context.Context, settle.Tx) error) till {
	t.Helper()
	po := &providertest.Options{KeyWindow: 24 * time.Hour}
	if p == nil {
		p = providertest.New(po)
	}
	e, err := settle.Open(s, &settle.Options{StoreTimeout: 1500 * time.Millisecond}) // which is what a caller waits for a lock
	must(t, err)
	o := &settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{}
	if hook != nil {
		o.OnSuccess = func(ctx context.Context, tx settle.Tx, _ settle.Outcome[providertest.Receipt]) error {
			return hook(ctx, tx)
		}
	}
	x, err := settle.New(e, "charge", providertest.ChargeAdapter(p, providertest.Promise(po)), o)
	must(t, err)
	return till{x, e, p}
}

// appTransaction is a transaction of the application, however it holds it.
type appTransaction struct {
	tx               settle.Tx
	exec             func(q string) error
	commit, rollback func() error
}

type beginner func(t *testing.T, db *sql.DB, s *sqlstore.Store) appTransaction

// transactions are the ways to hold one.
var transactions = map[string]beginner{
	"Tx": func(t *testing.T, db *sql.DB, s *sqlstore.Store) appTransaction {
		tx, err := db.BeginTx(context.Background(), nil)
		must(t, err)
		return appTransaction{s.In(tx), func(q string) error {
			_, err := tx.ExecContext(t.Context(), q)
			return err
		}, tx.Commit, tx.Rollback}
	},
	"Conn": func(t *testing.T, db *sql.DB, s *sqlstore.Store) appTransaction {
		conn, err := db.Conn(t.Context())
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		exec := func(q string) error {
			_, err := conn.ExecContext(t.Context(), q)
			return err
		}
		must(t, exec(`BEGIN`))
		return appTransaction{s.InConn(conn), exec, func() error { return exec(`COMMIT`) }, func() error { return exec(`ROLLBACK`) }}
	},
}

// TestT30 (I1, I10): an operation is registered in a transaction that is still open, and the same
// goroutine executes it. It is told so after a short wait, and nothing is sent; after COMMIT it
// runs, and after ROLLBACK nothing is left.
func TestT30(t *testing.T) {
	eachTransaction(t, databases(), func(t *testing.T, d database, begin beginner) {
		db, s := withOrders(t, d)
		x := newTill(t, s, nil, nil)
		intent := settle.Intent{Scope: "shop", Subject: "order-1", Purpose: "purchase"}

		for _, end := range []string{"rollback", "commit"} {
			tx := begin(t, db, s)
			must(t, tx.exec(`INSERT INTO orders VALUES ('order-1')`))
			rec, err := x.RegisterTx(t.Context(), tx.tx, order(""))
			must(t, err)
			again, err := x.RegisterTx(t.Context(), tx.tx, order(""))
			must(t, err)
			assert.Equal(t, rec.ID, again.ID)

			_, err = x.Find(t.Context(), intent)
			require.ErrorIs(t, err, settle.ErrNotFound)
			if end == "rollback" {
				must(t, tx.rollback())
				_, err = x.Find(t.Context(), intent)
				require.ErrorIs(t, err, settle.ErrNotFound)
				assert.Zero(t, count(t, db, `SELECT count(*) FROM orders`))
				continue
			}
			_, err = x.Execute(t.Context(), order(""))
			require.ErrorIs(t, err, settle.ErrUncommitted)
			assert.Zero(t, x.provider.Calls(providertest.OpCreate))

			must(t, tx.commit())
			out, err := x.Execute(t.Context(), order(""))
			must(t, err)
			assert.Equal(t, rec.ID, out.ID)
		}
		assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM orders`))
		assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM settle_operation`))
		assert.Equal(t, 1, x.provider.Calls(providertest.OpCreate))
	})
}

// TestInConn: a refused change is undone as a whole and the transaction goes on; without a
// transaction nothing is stored.
func TestInConn(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		db, s := withOrders(t, d)
		tx := transactions["Conn"](t, db, s)
		assert.IsType(t, (*sql.Conn)(nil), tx.tx.Unwrap())
		_, err := tx.tx.Commit(t.Context(), create("1"))
		must(t, err)
		bad := settle.Change{ID: "bad", Writes: []settle.Write{{Record: created("2")}, {Record: created("1")}}}
		_, err = tx.tx.Commit(t.Context(), bad)
		_ = conflictOf(t, err)
		must(t, tx.exec(`INSERT INTO orders VALUES ('o')`))
		must(t, tx.commit())
		assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM orders`))
		assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM settle_operation`))

		_, err = tx.tx.Commit(t.Context(), create("3")) // it has ended
		require.Error(t, err)
		assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM settle_operation`))

		tx = transactions["Conn"](t, db, s)
		_, err = tx.tx.Commit(t.Context(), create("4"))
		must(t, err)
		r, err := tx.tx.Get(t.Context(), settle.ByID(created("4").ID))
		must(t, err)
		assert.EqualValues(t, 1, r.Version)
		must(t, tx.rollback())
		_, err = s.Get(t.Context(), settle.ByID(created("4").ID))
		require.ErrorIs(t, err, settle.ErrNotFound)
	})
}

// TestT30Contention: what contention does to the application's transaction is one error, whatever the
// database calls it: 40001, 40P01, 1213, 1205, or a snapshot that is too old.
func TestT30Contention(t *testing.T) {
	eachTransaction(t, databases(), func(t *testing.T, d database, begin beginner) {
		db, s := withOrders(t, d)
		x := newTill(t, s, nil, nil)
		if d.name == "SQLite" {
			db, s = d.open(t, plain(t), nil) // its transactions do not take the lock at their start
			must(t, run(db, `CREATE TABLE orders (id VARCHAR(40) PRIMARY KEY)`))
			x = newTill(t, s, nil, nil)
		}
		tx := begin(t, db, s)
		switch d.name {
		case "SQLite": // the snapshot is old
			must(t, tx.exec(`SELECT count(*) FROM orders`))
			must(t, run(db, `INSERT INTO orders VALUES ('a')`))
		case "PostgreSQL": // 40001
			must(t, tx.exec(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`))
			must(t, tx.exec(`SELECT count(*) FROM orders`))
			_, err := x.Register(t.Context(), order(""))
			must(t, err)
		case "MySQL": // another transaction has registered it and is open (1205)
			other := begin(t, db, s)
			_, err := x.RegisterTx(t.Context(), other.tx, order(""))
			must(t, err)
			defer func() { must(t, other.rollback()) }()
		}
		_, err := x.RegisterTx(t.Context(), tx.tx, order(""))
		require.ErrorIs(t, err, settle.ErrRetryTx)
		must(t, tx.rollback())
	})
}

// TestT30Deadlock (40P01, 1213): two transactions wait for each other, and the database has the one in
// RegisterTx start again.
func TestT30Deadlock(t *testing.T) {
	eachTransaction(t, servers(), func(t *testing.T, d database, begin beginner) { // SQLite has one lock, and no circle
		db, s := withOrders(t, d)
		x := newTill(t, s, nil, nil)
		a, b := begin(t, db, s), begin(t, db, s)
		if d.name == "PostgreSQL" { // who notices first gives way
			must(t, a.exec(`SET LOCAL deadlock_timeout = '50ms'`))
			must(t, b.exec(`SET LOCAL deadlock_timeout = '1h'`))
		}
		for i := range 100 { // InnoDB has the one give way that has written less
			must(t, b.exec(fmt.Sprintf(`INSERT INTO orders VALUES ('b%d')`, i)))
		}
		must(t, a.exec(`INSERT INTO orders VALUES ('a')`))
		_, err := x.RegisterTx(t.Context(), b.tx, order(""))
		must(t, err)
		blocked := make(chan error, 1)
		go func() { blocked <- b.exec(`INSERT INTO orders VALUES ('a')`) }() // waits for a
		_, err = x.RegisterTx(t.Context(), a.tx, order(""))                  // waits for b
		require.ErrorIs(t, err, settle.ErrRetryTx)
		must(t, a.rollback())
		must(t, <-blocked)
		must(t, b.commit())
		assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM settle_operation`))
	})
}

var errHook = errors.New("the hook fails")

// TestHookCommitsWithTheTransition (I11): what OnSuccess writes through sqlstore.Tx is there with
// the transition or not at all, and a failing hook loses no evidence.
func TestHookCommitsWithTheTransition(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		db, s := withOrders(t, d)
		fail := true
		x := newTill(t, s, nil, func(ctx context.Context, tx settle.Tx) error {
			if _, err := sqlstore.Tx(tx).ExecContext(ctx, `INSERT INTO orders VALUES ('shipped')`); err != nil {
				return err
			}
			if fail {
				return errHook
			}
			return nil
		})
		out, err := x.Execute(t.Context(), order(""))
		require.ErrorIs(t, err, settle.ErrConsequence)
		assert.Equal(t, settle.StateSucceeded, out.State)
		assert.Zero(t, count(t, db, `SELECT count(*) FROM orders`))
		fail = false
		other := order("")
		other.Subject = "order-2"
		_, err = x.Execute(t.Context(), other)
		must(t, err)
		assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM orders`))
		assert.Equal(t, 2, x.provider.Calls(providertest.OpCreate))
	})
}
