package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/settle-go/settle"
)

// errorCode finds the database's code in errors of drivers that tell it: by a method Code, or
// by a field Number, as that of go-sql-driver/mysql.
func errorCode(err error) (int, bool) {
	var e interface {
		error
		Code() int
	}
	if errors.As(err, &e) {
		return e.Code(), true
	}
	return serverNumber(err)
}

func serverNumber(err error) (int, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			continue
		}
		if n := v.FieldByName("Number"); n.IsValid() && n.CanUint() {
			return int(n.Uint()), true
		}
	}
	return 0, false
}

// errRestart: the transaction was rolled back, nothing of it was committed, and
// it may start again from its first statement.
var errRestart = errors.New("settle/sqlstore: transaction must start again")

func failed(doing string, err error) error { return &stepError{doing: doing, err: plain(err)} }

// plain hides sql.ErrTxDone, which says nothing to anybody (IC-23).
func plain(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return errEnded
	}
	return err
}

var errEnded = errors.New("the transaction has ended")

// stepError says what the store was doing when something failed.
type stepError struct {
	doing string
	err   error
}

// Error implements error.
func (e *stepError) Error() string {
	return "settle/sqlstore: " + e.doing + ": " + e.err.Error() + advice(sqlState(e.err))
}

// advice is what to do about an error, where the server's words do not tell.
func advice(state string) string {
	switch state {
	case "26000", "42P05", "08P01": // a statement of another session: this one was not executed (IC-37)
		return ": behind a proxy that shares sessions set Options.Unprepared, and the driver not to prepare"
	}
	return ""
}

// Unwrap returns what the driver said.
func (e *stepError) Unwrap() error { return e.err }

// Explain implements settle.Explainer: the words of a driver may quote data, its code
// does not.
func (e *stepError) Explain() string {
	text := "sqlstore: " + e.doing
	code, ok := errorCode(e.err)
	state := sqlState(e.err)
	number, numbered := serverNumber(e.err)
	switch what := sqliteCodes[code&0xff]; {
	case errors.Is(e.err, errEnded), errors.Is(e.err, settle.ErrCorrupt):
		return e.Error()
	// What a driver wraps around it, say where it wanted to connect and as whom, is its own words.
	case errors.Is(e.err, context.Canceled):
		return text + ": " + context.Canceled.Error()
	case errors.Is(e.err, context.DeadlineExceeded):
		return text + ": " + context.DeadlineExceeded.Error()
	case state != "":
		return text + ": SQLSTATE " + state + advice(state)
	case numbered:
		return fmt.Sprintf("%s: server error %d", text, number)
	case ok && what != "":
		return text + ": " + what
	case ok:
		return fmt.Sprintf("%s: driver's code %d", text, code)
	}
	return text
}

// sqliteCodes are the primary result codes that an operator can do something about
// (https://www.sqlite.org/rescode.html).
var sqliteCodes = map[int]string{
	5: "database is locked", 6: "table is locked", 7: "out of memory", 8: "database is read-only", 10: "disk I/O error",
	11: "database file is damaged", 13: "disk is full", 14: "cannot open the database file", 26: "not a database",
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
