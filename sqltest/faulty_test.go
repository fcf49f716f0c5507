package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"testing"

	"modernc.org/sqlite"
)

// faults is a driver around the real one, which can lose answers.
type faults struct {
	driver.Driver
	mu sync.Mutex
	// plan is asked before (done false) and after (done true) each statement, BEGIN,
	// COMMIT and ROLLBACK. An error before keeps it from running.
	plan func(text string, done bool) error
	log  []string
}

func (f *faults) ask(text string, done bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if done {
		f.log = append(f.log, text)
	}
	if f.plan == nil {
		return nil
	}
	return f.plan(text, done)
}

func (f *faults) set(plan func(text string, done bool) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.log = plan, nil
}

// once answers err after the first statement that begins with text was carried
// out; before: instead of carrying it out.
func (f *faults) once(text string, before bool, err error) {
	hit := false
	f.set(func(got string, done bool) error {
		if hit || done == before || !strings.HasPrefix(strings.TrimSpace(got), text) {
			return nil
		}
		hit = true
		return err
	})
}

var driverNumber struct {
	sync.Mutex
	n int
}

func openFaulty(tb testing.TB, dsn string) (*sql.DB, *faults) {
	tb.Helper()
	return openFaultyDriver(tb, &sqlite.Driver{}, dsn)
}

// openFaultyDriver is openFaulty for any driver whose connections run statements under a
// context.
func openFaultyDriver(tb testing.TB, d driver.Driver, dsn string) (*sql.DB, *faults) {
	tb.Helper()
	f := &faults{Driver: d}
	driverNumber.Lock()
	driverNumber.n++
	name := fmt.Sprintf("faulty-%d", driverNumber.n)
	driverNumber.Unlock()
	sql.Register(name, f)
	db, err := sql.Open(name, dsn)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db, f
}

func (f *faults) Open(name string) (driver.Conn, error) {
	c, err := f.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return &faultyConn{f: f, realConn: c.(realConn)}, nil
}

type realConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

type faultyConn struct {
	realConn
	f *faults
}

// What a driver may offer beside: database/sql does without it when the answer is that of
// a connection that has it not.

func (c *faultyConn) ResetSession(ctx context.Context) error {
	if r, ok := c.realConn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *faultyConn) IsValid() bool {
	v, ok := c.realConn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *faultyConn) CheckNamedValue(v *driver.NamedValue) error {
	if ch, ok := c.realConn.(driver.NamedValueChecker); ok {
		return ch.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func around[T any](f *faults, text string, run func() (T, error)) (T, error) {
	var zero T
	if err := f.ask(text, false); err != nil {
		return zero, err
	}
	v, err := run()
	if err != nil {
		return v, err
	}
	if err := f.ask(text, true); err != nil {
		if r, ok := any(v).(driver.Rows); ok {
			_ = r.Close()
		}
		return zero, err
	}
	return v, nil
}

func (c *faultyConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return around(c.f, "BEGIN", func() (driver.Tx, error) {
		tx, err := c.realConn.BeginTx(ctx, o)
		return faultyTx{tx, c.f}, err
	})
}

func (c *faultyConn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	return around(c.f, q, func() (driver.Result, error) { return c.realConn.ExecContext(ctx, q, args) })
}

func (c *faultyConn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	return around(c.f, q, func() (driver.Rows, error) { return c.realConn.QueryContext(ctx, q, args) })
}

func (c *faultyConn) PrepareContext(ctx context.Context, q string) (driver.Stmt, error) {
	st, err := c.realConn.PrepareContext(ctx, q)
	if err != nil {
		return nil, err
	}
	return faultyStmt{st.(realStmt), c.f, q}, nil
}

type realStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type faultyStmt struct {
	realStmt
	f *faults
	q string
}

func (s faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return around(s.f, s.q, func() (driver.Result, error) { return s.realStmt.ExecContext(ctx, args) })
}

func (s faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return around(s.f, s.q, func() (driver.Rows, error) { return s.realStmt.QueryContext(ctx, args) })
}

type faultyTx struct {
	driver.Tx
	f *faults
}

func (t faultyTx) Commit() error {
	_, err := around(t.f, "COMMIT", func() (struct{}, error) { return struct{}{}, t.Tx.Commit() })
	return err
}

func (t faultyTx) Rollback() error {
	_, err := around(t.f, "ROLLBACK", func() (struct{}, error) { return struct{}{}, t.Tx.Rollback() })
	return err
}
