package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/settle-go/settle"
)

// errorCode finds SQLite's result code in errors of drivers that tell it.
func errorCode(err error) (int, bool) {
	var e interface {
		error
		Code() int
	}
	if errors.As(err, &e) {
		return e.Code(), true
	}
	return 0, false
}

// errRestart: the transaction was rolled back, nothing of it was committed, and
// it may start again from its first statement.
var errRestart = errors.New("settle/sqlstore: transaction must start again")

func failed(doing string, err error) error {
	if errors.Is(err, sql.ErrTxDone) { // says nothing to anybody (IC-23)
		return fmt.Errorf("settle/sqlstore: %s: the transaction has ended", doing)
	}
	return fmt.Errorf("settle/sqlstore: %s: %w", doing, err)
}

func ended(ctx context.Context, doing string) error {
	return fmt.Errorf("settle/sqlstore: %s: %w", doing, ctx.Err())
}

func locked(doing string, wait time.Duration, err error) error {
	if err == nil {
		return fmt.Errorf("%w: %s: not free within %v", settle.ErrUncommitted, doing, wait)
	}
	return fmt.Errorf("%w: %s: not free within %v: %w", settle.ErrUncommitted, doing, wait, err)
}

// drop closes the connection behind conn for good instead of giving it back
// to the pool: it may still be in a transaction.
func drop(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// sleep returns ctx's error if it ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
