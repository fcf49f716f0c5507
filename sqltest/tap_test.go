package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// tap stands between database/sql and one connection of a driver.
type tap interface {
	// text is what is sent instead of a statement.
	text(q string) string
	// before is asked before each statement, BEGIN, COMMIT and ROLLBACK. An error keeps it
	// from running.
	before(ctx context.Context, c realConn, text string) error
	// after is told that it was carried out. Its error is the answer then.
	after(text string) error
}

// openTapped opens a pool whose connections have a tap each. Nothing is registered, so that
// a pool of a bubble leaves nothing behind.
func openTapped(c driver.Connector, tapFor func() tap) *sql.DB {
	return sql.OpenDB(tapped{c, tapFor})
}

type tapped struct {
	driver.Connector
	tapFor func() tap
}

// Connect implements driver.Connector.
func (t tapped) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := t.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &tappedConn{realConn: c.(realConn), tap: t.tapFor()}, nil
}

// byName is the connector of a driver that has none.
type byName struct {
	d   driver.Driver
	dsn string
}

// Connect implements driver.Connector.
func (n byName) Connect(context.Context) (driver.Conn, error) { return n.d.Open(n.dsn) }

// Driver implements driver.Connector.
func (n byName) Driver() driver.Driver { return n.d }

type realConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

type tappedConn struct {
	realConn
	tap tap
}

// What a driver may offer beside: database/sql does without it when the answer is that of
// a connection that has it not.

// ResetSession implements driver.SessionResetter.
func (c *tappedConn) ResetSession(ctx context.Context) error {
	if r, ok := c.realConn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid implements driver.Validator.
func (c *tappedConn) IsValid() bool {
	v, ok := c.realConn.(driver.Validator)
	return !ok || v.IsValid()
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *tappedConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.realConn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func around[T any](ctx context.Context, c *tappedConn, text string, run func(text string) (T, error)) (T, error) {
	var zero T
	if err := c.tap.before(ctx, c.realConn, text); err != nil {
		return zero, err
	}
	v, err := run(c.tap.text(text))
	if err != nil {
		return v, err
	}
	if err := c.tap.after(text); err != nil {
		if r, ok := any(v).(driver.Rows); ok {
			_ = r.Close()
		}
		return zero, err
	}
	return v, nil
}

func (c *tappedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return around(ctx, c, "BEGIN", func(string) (driver.Tx, error) {
		tx, err := c.realConn.BeginTx(ctx, o)
		return tappedTx{tx, c}, err
	})
}

func (c *tappedConn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	return around(ctx, c, q, func(q string) (driver.Result, error) { return c.realConn.ExecContext(ctx, q, args) })
}

func (c *tappedConn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	return around(ctx, c, q, func(q string) (driver.Rows, error) { return c.realConn.QueryContext(ctx, q, args) })
}

func (c *tappedConn) PrepareContext(ctx context.Context, q string) (driver.Stmt, error) {
	st, err := c.realConn.PrepareContext(ctx, c.tap.text(q))
	if err != nil {
		return nil, err
	}
	return tappedStmt{st.(realStmt), c, q}, nil
}

type realStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type tappedStmt struct {
	realStmt
	c *tappedConn
	q string
}

func (s tappedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return around(ctx, s.c, s.q, func(string) (driver.Result, error) { return s.realStmt.ExecContext(ctx, args) })
}

func (s tappedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return around(ctx, s.c, s.q, func(string) (driver.Rows, error) { return s.realStmt.QueryContext(ctx, args) })
}

type tappedTx struct {
	driver.Tx
	c *tappedConn
}

func (t tappedTx) Commit() error { return t.end("COMMIT", t.Tx.Commit) }

func (t tappedTx) Rollback() error { return t.end("ROLLBACK", t.Tx.Rollback) }

func (t tappedTx) end(text string, run func() error) error {
	_, err := around(context.Background(), t.c, text, func(string) (struct{}, error) { return struct{}{}, run() })
	return err
}
