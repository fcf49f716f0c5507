package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// hold takes the write lock of the file as another process would, until the
// returned function is called.
func hold(t *testing.T, dsn string) (release func()) {
	t.Helper()
	db := open(t, dsn)
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = c.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	require.NoError(t, err)
	return func() {
		_, err := c.ExecContext(context.Background(), `COMMIT`)
		assert.NoError(t, err)
		_ = c.Close()
		_ = db.Close()
	}
}

func dsns(t *testing.T) map[string]string {
	return map[string]string{
		"plain": plain(t), "helper": sqlstore.DSN(file(t)),
		"patient": "file:" + file(t) + "?_pragma=busy_timeout(10000)",
	}
}

func TestLocked(t *testing.T) {
	t.Parallel()
	for name, dsn := range dsns(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := openBoth(t, dsn, &sqlstore.Options{LockWait: 300 * time.Millisecond})
			out, err := s.Commit(t.Context(), create("1"))
			require.NoError(t, err)
			release := hold(t, dsn)

			quick := func(limit time.Duration, f func() error) error {
				t.Helper()
				start := time.Now()
				err := f()
				assert.Less(t, time.Since(start), limit)
				return err
			}
			// Reading goes on.
			_, err = s.Get(t.Context(), settle.ByID(out[0].ID))
			require.NoError(t, err)
			// A creation that lost needs no lock (and one that was applied before neither).
			known := create("1")
			known.ID = "another"
			err = quick(250*time.Millisecond, func() error { _, err := s.Commit(t.Context(), known); return err })
			assert.Equal(t, settle.IndexID, conflictOf(t, err).Index.Name)
			require.NoError(t, quick(250*time.Millisecond, func() error { _, err := s.Commit(t.Context(), create("1")); return err }))
			// The rest waits as long as it was told, not as long as the driver would.
			for what, f := range map[string]func(ctx context.Context) error{
				"create": func(ctx context.Context) error { _, err := s.Commit(ctx, create("2")); return err },
				"update": func(ctx context.Context) error { _, err := s.Commit(ctx, outcome(out[0])); return err },
				"renew":  func(ctx context.Context) error { return renew(ctx, s, out[0].ID, "t1", time.Minute) },
			} {
				err := quick(2*time.Second, func() error { return f(t.Context()) })
				require.ErrorIs(t, err, settle.ErrUncommitted, what)
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				err = quick(250*time.Millisecond, func() error { return f(ctx) })
				require.ErrorIs(t, err, context.DeadlineExceeded, what)
				cancel()
			}
			// And gets the lock when it is free.
			done := make(chan error)
			go func() { _, err := s.Commit(t.Context(), create("3")); done <- err }()
			time.Sleep(50 * time.Millisecond)
			release()
			require.NoError(t, <-done)
			assert.Equal(t, 2, count(t, db, `SELECT count(*) FROM settle_operation`))
			noneOpen(t, db)
		})
	}
}

// TestOwnTransactionHoldsTheLock: a caller that waits for itself is told.
func TestOwnTransactionHoldsTheLock(t *testing.T) {
	t.Parallel()
	for _, pool := range []int{1, 4} {
		t.Run(fmt.Sprint(pool), func(t *testing.T) {
			t.Parallel()
			db, s := openBoth(t, sqlstore.DSN(file(t)), &sqlstore.Options{LockWait: 200 * time.Millisecond})
			db.SetMaxOpenConns(pool)
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = s.In(tx).Commit(t.Context(), create("1"))
			require.NoError(t, err)
			_, err = s.Commit(t.Context(), create("1"))
			require.ErrorIs(t, err, settle.ErrUncommitted)
			require.NoError(t, tx.Commit())
			_, err = s.Commit(t.Context(), create("2"))
			require.NoError(t, err)
		})
	}
}

// TestOneConnection: everything works in a pool of one.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	for name, dsn := range dsns(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, dsn)
			db.SetMaxOpenConns(1)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			require.NoError(t, sqlstore.EnsureSchema(ctx, db, sqlstore.SQLite()))
			s, err := sqlstore.New(db, sqlstore.SQLite(), nil)
			require.NoError(t, err)
			c := create("1")
			c.Hook = func(ctx context.Context, tx settle.Tx) error {
				_, err := tx.Get(ctx, settle.ByID(created("1").ID))
				return err
			}
			out, err := s.Commit(ctx, c)
			require.NoError(t, err)
			o := outcome(out[0])
			o.Writes[0].DueIn = 0
			_, err = s.Commit(ctx, o)
			require.NoError(t, err)
			got, err := s.Claim(ctx, settle.Claim{Kinds: []string{"a", "charge"}, Token: "x", Lease: time.Minute, Limit: 10})
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.NoError(t, renew(ctx, s, got[0].ID, "x", time.Hour))
			_, err = s.List(ctx, settle.Query{})
			require.NoError(t, err)
			c.ID = "again"
			_, err = s.Commit(ctx, c)
			_ = conflictOf(t, err)
			require.NoError(t, s.Close())
		})
	}
}

func TestApplicationTransaction(t *testing.T) {
	t.Parallel()
	dsn := plain(t)
	db, s := openBoth(t, dsn, &sqlstore.Options{LockWait: 300 * time.Millisecond})
	require.NoError(t, run(db, `CREATE TABLE orders (id TEXT PRIMARY KEY)`))
	begin := func() *sql.Tx {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		return tx
	}

	tx := begin()
	_, err := tx.ExecContext(t.Context(), `INSERT INTO orders VALUES ('rolled back')`)
	require.NoError(t, err)
	_, err = s.In(tx).Commit(t.Context(), create("1"))
	require.NoError(t, err)
	r, err := s.In(tx).Get(t.Context(), settle.ByID(created("1").ID))
	require.NoError(t, err)
	assert.EqualValues(t, 1, r.Version)
	_, err = s.Get(t.Context(), settle.ByID(created("1").ID))
	require.ErrorIs(t, err, settle.ErrNotFound)
	require.NoError(t, tx.Rollback())
	_, err = s.Get(t.Context(), settle.ByID(created("1").ID))
	require.ErrorIs(t, err, settle.ErrNotFound)

	tx = begin()
	assert.Same(t, tx, sqlstore.Tx(s.In(tx)))
	_, err = s.In(tx).Commit(t.Context(), create("1"))
	require.NoError(t, err)
	// A refused change is undone as a whole, and the transaction goes on.
	bad := settle.Change{ID: "bad", Writes: []settle.Write{{Record: created("2")}, {Record: created("1")}}}
	_, err = s.In(tx).Commit(t.Context(), bad)
	_ = conflictOf(t, err)
	// A hook is refused.
	hooked := create("3")
	hooked.Hook = func(context.Context, settle.Tx) error { return nil }
	_, err = s.In(tx).Commit(t.Context(), hooked)
	require.ErrorIs(t, err, settle.ErrInvalid)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO orders VALUES ('committed')`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM orders`))
	assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM settle_operation`))
	_, err = s.In(tx).Commit(t.Context(), create("4"))
	require.Error(t, err)
	assert.NotErrorIs(t, err, sql.ErrTxDone)

	// A transaction that read before somebody else wrote can never write.
	tx = begin()
	assert.Equal(t, 1, countTx(t, tx, `SELECT count(*) FROM orders`))
	_, err = s.Commit(t.Context(), create("5"))
	require.NoError(t, err)
	_, err = s.In(tx).Commit(t.Context(), create("6"))
	require.ErrorIs(t, err, settle.ErrRetryTx)
	require.NoError(t, tx.Rollback())

	// Nor can one while somebody else writes; one that read nothing waits.
	release := hold(t, dsn)
	tx = begin()
	_, err = s.In(tx).Commit(t.Context(), create("6"))
	require.ErrorIs(t, err, settle.ErrRetryTx)
	go func() { time.Sleep(50 * time.Millisecond); release() }()
	_, err = s.In(tx).Commit(t.Context(), create("6"))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	_, err = s.Get(t.Context(), settle.ByID(created("6").ID))
	require.NoError(t, err)

	// A connection that may lose commits is refused (I1).
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = c.ExecContext(t.Context(), `PRAGMA synchronous = OFF`)
	require.NoError(t, err)
	tx, err = c.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.In(tx).Commit(t.Context(), create("7"))
	require.ErrorContains(t, err, "synchronous")
	require.NoError(t, tx.Rollback())
	require.NoError(t, c.Close())
}

func countTx(t *testing.T, tx *sql.Tx, q string) int {
	t.Helper()
	var n int
	require.NoError(t, tx.QueryRowContext(t.Context(), q).Scan(&n))
	return n
}

// TestFull: a full disk is an error that says so, and nothing is half done.
func TestFull(t *testing.T) {
	t.Parallel()
	db, s := openBoth(t, plain(t), nil)
	db.SetMaxOpenConns(1)
	out, err := s.Commit(t.Context(), create("1"))
	require.NoError(t, err)
	pages := count(t, db, `PRAGMA page_count`)
	fill := func() { require.NoError(t, run(db, fmt.Sprintf(`PRAGMA max_page_count = %d`, pages))) }
	fill()
	big := create("2")
	big.Writes[0].Record.Request = make([]byte, 100_000)
	_, err = s.Commit(t.Context(), big)
	require.ErrorContains(t, err, "full")
	fill() // SQLite rolled back by itself, so the connection was closed
	o := outcome(out[0])
	o.Writes[0].Record.Result = make([]byte, 100_000)
	_, err = s.Commit(t.Context(), o)
	require.ErrorContains(t, err, "full")
	noneOpen(t, db)
	require.NoError(t, run(db, `PRAGMA max_page_count = 100000`))
	r, err := s.Get(t.Context(), settle.ByID(out[0].ID))
	require.NoError(t, err)
	assert.EqualValues(t, 1, r.Version)
	_, err = s.Commit(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM settle_operation`))
}

// TestCorruptRow: a damaged row is an error without content, and in nobody's way.
func TestCorruptRow(t *testing.T) {
	t.Parallel()
	db, s := openBoth(t, plain(t), nil)
	for i := range 3 {
		c := create(fmt.Sprint(i))
		c.Writes[0].DueIn = 0
		_, err := s.Commit(t.Context(), c)
		require.NoError(t, err)
	}
	damaged := created("0")
	for _, body := range []any{[]byte("SECRET"), []byte(`{"v":9}`), []byte{}, "SECRET", 7} {
		require.NoError(t, run(db, `UPDATE settle_operation SET body = ?, due = 1 WHERE id = ?`, body, []byte(damaged.ID)))
		check := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, settle.ErrCorrupt)
			assert.NotContains(t, err.Error(), "SECRET")
		}
		_, err := s.Get(t.Context(), settle.ByID(damaged.ID))
		check(err)
		_, err = s.Commit(t.Context(), outcome(func() settle.Record { r := damaged; r.Version = 1; return r }()))
		require.Error(t, err)
		_, err = s.List(t.Context(), settle.Query{})
		check(err)
		assert.Contains(t, err.Error(), damaged.ID)
		other, err := s.Get(t.Context(), settle.ByID(created("1").ID))
		require.NoError(t, err)
		assert.Equal(t, created("1").Subject, other.Subject)
	}
	claim := settle.Claim{Kinds: []string{"charge"}, Token: "x", Lease: time.Minute, Limit: 1}
	_, err := s.Claim(t.Context(), claim) // the damaged one is the earliest
	require.ErrorIs(t, err, settle.ErrCorrupt)
	claim.Limit = 10
	out, err := s.Claim(t.Context(), claim)
	require.NoError(t, err)
	assert.Len(t, out, 2)
	require.NoError(t, run(db, `UPDATE settle_operation SET entry = 'SECRET' WHERE id = ?`, []byte(damaged.ID)))
	_, err = s.History(t.Context(), damaged.ID, 0, 0)
	require.ErrorIs(t, err, settle.ErrCorrupt)
	assert.NotContains(t, err.Error(), "SECRET")
}

func TestNewChecks(t *testing.T) {
	t.Parallel()
	ready := func(t *testing.T, dsn string) *sql.DB {
		db := open(t, dsn)
		require.NoError(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.SQLite()))
		return db
	}
	for name, tt := range map[string]struct {
		db   func(t *testing.T) *sql.DB
		want string // part of the refusal
		safe bool   // refused even if the unsafe is accepted
	}{
		"no schema": {func(t *testing.T) *sql.DB { return open(t, sqlstore.DSN(file(t))) }, "EnsureSchema", true},
		"newer": {func(t *testing.T) *sql.DB {
			db := ready(t, plain(t))
			require.NoError(t, run(db, `UPDATE settle_schema SET version = 99`))
			return db
		}, "99", true},
		"older": {func(t *testing.T) *sql.DB {
			db := ready(t, plain(t))
			require.NoError(t, run(db, `UPDATE settle_schema SET version = 0`))
			return db
		}, "EnsureSchema", true},
		"journal": {func(t *testing.T) *sql.DB {
			db := ready(t, plain(t))
			db.SetMaxOpenConns(1)
			require.NoError(t, run(db, `PRAGMA journal_mode = DELETE`))
			return db
		}, "journal_mode=WAL", false},
		"synchronous": {func(t *testing.T) *sql.DB { return ready(t, plain(t)+"?_pragma=synchronous(NORMAL)") }, "synchronous(FULL)", false},
		"memory": {func(t *testing.T) *sql.DB {
			db := open(t, ":memory:")
			db.SetMaxOpenConns(1)
			require.NoError(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.SQLite()))
			return db
		}, "memory", false},
		"memory of each connection": {func(t *testing.T) *sql.DB { return ready(t, ":memory:") }, "memory", true},
		"shared memory":             {func(t *testing.T) *sql.DB { return ready(t, "file:shared?mode=memory&cache=shared") }, "memory", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := tt.db(t)
			_, err := sqlstore.New(db, sqlstore.SQLite(), nil)
			require.ErrorContains(t, err, tt.want)
			s, err := sqlstore.New(db, sqlstore.SQLite(), &sqlstore.Options{AcceptUnsafe: true})
			if tt.safe {
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			out, err := s.Commit(t.Context(), create("1"))
			require.NoError(t, err)
			_, err = s.Commit(t.Context(), outcome(out[0]))
			require.NoError(t, err)
			require.NoError(t, s.Close())
		})
	}
	_, err := sqlstore.New(nil, sqlstore.SQLite(), nil)
	require.Error(t, err)
	_, err = sqlstore.New(open(t, plain(t)), sqlstore.Dialect{}, nil)
	require.Error(t, err)
	require.Error(t, sqlstore.EnsureSchema(t.Context(), open(t, plain(t)), sqlstore.Dialect{}))
	// A driver whose errors have no code is refused, not misunderstood.
	_, err = sqlstore.New(ready(t, plain(t)), sqlstore.SQLite(), &sqlstore.Options{ErrorCode: func(error) (int, bool) { return 0, false }})
	require.ErrorContains(t, err, "ErrorCode")
	require.ErrorContains(t, sqlstore.EnsureSchema(t.Context(), func() *sql.DB {
		db := ready(t, plain(t))
		require.NoError(t, run(db, `UPDATE settle_schema SET version = 99`))
		return db
	}(), sqlstore.SQLite()), "99")
}

// TestSynchronousPerConnection: PRAGMA synchronous belongs to a connection, and
// each is made safe before the store's first transaction on it.
func TestSynchronousPerConnection(t *testing.T) {
	t.Parallel()
	db, s := openBoth(t, plain(t), nil)
	db.SetMaxOpenConns(1)
	require.NoError(t, run(db, `PRAGMA synchronous = OFF`))
	_, err := s.Commit(t.Context(), create("1"))
	require.NoError(t, err)
	assert.Equal(t, 2, count(t, db, `PRAGMA synchronous`))
	db.SetMaxIdleConns(0) // a new connection for everything
	for i := range 25 {
		_, err := s.Commit(t.Context(), create(fmt.Sprint("n", i)))
		require.NoError(t, err)
	}
}

func TestSchemaText(t *testing.T) {
	t.Parallel()
	all := sqlstore.Schema(sqlstore.SQLite())
	require.NotEmpty(t, all)
	db := open(t, plain(t))
	require.NoError(t, run(db, `PRAGMA journal_mode = WAL`))
	for i, m := range all {
		assert.Equal(t, i+1, m.Version)
		require.NoError(t, run(db, m.SQL))
	}
	s, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), create("1"))
	require.NoError(t, err)
	require.NoError(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.SQLite())) // finds nothing to do
	assert.Equal(t, "sqlite", sqlstore.SQLite().String())
}

func planOf(t *testing.T, db *sql.DB, q string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+q)
	require.NoError(t, err)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var a, b, c int
		var detail string
		require.NoError(t, rows.Scan(&a, &b, &c, &detail))
		plan.WriteString(detail + "\n")
	}
	require.NoError(t, rows.Err())
	return plan.String()
}

// TestPlans: no statement on the way of a request reads a whole table.
func TestPlans(t *testing.T) {
	t.Parallel()
	db, _ := openBoth(t, plain(t), nil)
	for _, q := range []string{
		`SELECT 1 FROM settle_operation WHERE id = x''`,
		`SELECT 1 FROM settle_operation WHERE scope = x'' AND kind = x'' AND key = x'' AND retired = x''`,
		`SELECT 1 FROM settle_operation WHERE scope = x'' AND kind = x'' AND subject = x'' AND purpose = x'' AND retired = x''`,
		`SELECT 1 FROM settle_operation WHERE scope = x'' AND hold = x''`,
		`SELECT n FROM settle_operation WHERE due <= 5 AND kind IN (x'', x'01') ORDER BY due, n LIMIT 5`,
		`SELECT 1 FROM settle_operation o WHERE o.due <= 5 AND kind IN (x'')`,
		`SELECT o.n FROM settle_operation o WHERE o.n IN (SELECT n FROM settle_operation WHERE due < 5) AND o.id > x'' ORDER BY o.id LIMIT 5`,
	} {
		plan := planOf(t, db, q)
		assert.Contains(t, plan, "USING", q)
		assert.NotContains(t, plan, "SCAN", q)
		if os.Getenv("SETTLE_PLANS") != "" {
			t.Log(q, "\n", plan)
		}
	}
}
