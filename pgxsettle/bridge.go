package pgxsettle

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/jackc/pgx/v5"
)

// bridge is a connector, its driver and its only connection: a transaction that is there already.
type bridge struct{ tx pgx.Tx }

var (
	_ driver.Connector         = bridge{}
	_ driver.QueryerContext    = bridge{}
	_ driver.ExecerContext     = bridge{}
	_ driver.NamedValueChecker = bridge{}

	errBridge = errors.New("pgxsettle: the transaction is the application's")
)

// Connect implements driver.Connector.
func (b bridge) Connect(context.Context) (driver.Conn, error) { return b, nil }

// Driver implements driver.Connector.
func (b bridge) Driver() driver.Driver { return b }

// Open implements driver.Driver.
func (b bridge) Open(string) (driver.Conn, error) { return b, nil }

// Close implements driver.Conn. The transaction stays as it is.
func (b bridge) Close() error { return nil }

// Prepare implements driver.Conn. The store's statements on such a connection are not prepared
// by database/sql; pgx does it by itself.
func (b bridge) Prepare(string) (driver.Stmt, error) { return nil, errBridge }

// Begin implements driver.Conn.
func (b bridge) Begin() (driver.Tx, error) { return nil, errBridge }

// CheckNamedValue implements driver.NamedValueChecker: pgx knows the types that the store uses.
func (b bridge) CheckNamedValue(*driver.NamedValue) error { return nil }

func values(args []driver.NamedValue) []any {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = a.Value
	}
	return out
}

// ExecContext implements driver.ExecerContext. The end of the transaction is pgx's business, so that
// a COMMIT after it fails.
func (b bridge) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	if q == `ROLLBACK` {
		return driver.ResultNoRows, b.tx.Rollback(ctx)
	}
	tag, err := b.tx.Exec(ctx, q, values(args)...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// QueryContext implements driver.QueryerContext.
func (b bridge) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := b.tx.Query(ctx, q, values(args)...)
	if err != nil {
		return nil, err
	}
	return bridgeRows{rows}, nil
}

type bridgeRows struct{ rows pgx.Rows }

// Columns implements driver.Rows.
func (r bridgeRows) Columns() []string {
	fields := r.rows.FieldDescriptions()
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.Name
	}
	return out
}

// Close implements driver.Rows.
func (r bridgeRows) Close() error {
	r.rows.Close()
	return r.rows.Err()
}

// Next implements driver.Rows.
func (r bridgeRows) Next(dest []driver.Value) error {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	got, err := r.rows.Values()
	if err != nil {
		return err
	}
	for i, v := range got {
		switch v := v.(type) {
		case int32: // database/sql knows one size
			dest[i] = int64(v)
		default:
			dest[i] = v
		}
	}
	return nil
}
