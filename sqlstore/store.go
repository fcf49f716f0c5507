// Package sqlstore is a settle.Store over database/sql. It imports no driver:
// the application opens the *sql.DB with the driver of its choice, and a Dialect
// says which database it is.
//
//	db, err := sql.Open("sqlite", sqlstore.DSN("/var/lib/app/app.db"))
//	err = sqlstore.EnsureSchema(ctx, db, sqlstore.SQLite()) // or run sqlstore.Schema by a tool of your own
//	store, err := sqlstore.New(db, sqlstore.SQLite(), nil)
//
// The application's own tables may live in the same database. In turns a
// transaction of the application into a settle.Tx, so that a business row and
// an operation commit together; Tx turns the settle.Tx that a hook gets back into
// its *sql.Tx.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settle-go/settle"
)

// Options are what New can be told; the zero value is right.
type Options struct {
	// LockWait is how long a step waits for a free connection and for the write
	// lock before it gives up with ErrUncommitted. Defaults to 5 seconds.
	LockWait time.Duration
	// AcceptUnsafe lets New open a database that may lose commits with the power
	// (I1): in memory, in another journal mode, with a lower synchronous. For tests.
	AcceptUnsafe bool
	// ErrorCode finds the database's own (for SQLite: extended) result code in an
	// error of a driver whose errors have no method Code() int. See SQLite.
	ErrorCode func(error) (code int, ok bool)
}

// Store keeps operations in a database. It is safe for concurrent use by many
// goroutines and, where the database is shared, by many processes.
type Store struct {
	db   *sql.DB
	d    Dialect
	opts Options
	// gate lets one writer of this process at the database's lock: waiting here is
	// fair and wakes at once, waiting there is polling.
	gate chan struct{}

	mu       sync.RWMutex
	prepared map[string]*sql.Stmt
	closed   bool
	known    map[any]struct{} // driver connections that were made ready
}

var (
	_ settle.Store = (*Store)(nil)
	_ settle.Tx    = appTx{}
)

// New returns a store on db, after it has checked that the schema is there in
// the right version and that a commit survives a loss of power. It changes
// nothing. Close releases what it prepared; db stays the application's.
func New(db *sql.DB, d Dialect, opts *Options) (*Store, error) {
	if db == nil || d.name == "" {
		return nil, errors.New("settle/sqlstore: New needs a database and a dialect")
	}
	s := newStore(db, d, opts)
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.LockWait)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, failed("open", err)
	}
	defer conn.Close()
	if err := s.reading(ctx, "open", func() error {
		if err := d.check(ctx, db, conn, &s.opts); err != nil {
			return err
		}
		return checkSchema(ctx, conn, d)
	}); err != nil {
		return nil, err
	}
	// The pool may allow one connection only: give it back before preparing.
	if err := conn.Close(); err != nil {
		return nil, failed("open", err)
	}
	if err := s.prepareAll(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(db *sql.DB, d Dialect, opts *Options) *Store {
	s := &Store{db: db, d: d, gate: make(chan struct{}, 1), prepared: map[string]*sql.Stmt{}, known: map[any]struct{}{}}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.LockWait <= 0 {
		s.opts.LockWait = 5 * time.Second
	}
	if s.opts.ErrorCode == nil {
		s.opts.ErrorCode = errorCode
	}
	return s
}

// Close closes the prepared statements. The store is of no use after it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, st := range s.prepared {
		errs = append(errs, st.Close())
	}
	clear(s.prepared)
	clear(s.known)
	return errors.Join(errs...)
}

func (s *Store) prepareAll(ctx context.Context) error {
	if !s.d.prepare {
		return nil
	}
	d := &s.d
	all := []string{
		d.lock, d.lockRow, d.row, d.taken, d.insert, d.update, d.update2, d.rename, d.addRef, d.dropRef, d.addEntry,
		d.created, d.writeID2, d.writeID, d.claim, d.renew, d.lease, d.claimed, d.history,
	}
	for _, text := range append(all, slices.Collect(maps.Values(d.getBy))...) {
		if err := s.prepare(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// prepare is never called by who has a transaction: in a pool of one connection
// it would wait for itself.
func (s *Store) prepare(ctx context.Context, text string) error {
	if !s.d.prepare {
		return nil
	}
	s.mu.RLock()
	_, have := s.prepared[text]
	full := len(s.prepared) > 100 // kinds come in ever new numbers: do without
	s.mu.RUnlock()
	if have || full {
		return nil
	}
	st, err := s.db.PrepareContext(ctx, text)
	if err != nil {
		return failed("prepare", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, have := s.prepared[text]; have || s.closed {
		return st.Close() //nolint:sqlclosecheck // a duplicate; the others are closed by Close
	}
	s.prepared[text] = st
	return nil
}

func (s *Store) stmt(text string) *sql.Stmt {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.prepared[text]
}

func (s *Store) class(err error) class { return s.d.classify(err, s.opts.ErrorCode) }

// runner runs statements, in tx or, if that is nil, each on its own.
type runner struct {
	s  *Store
	tx *sql.Tx
}

func (r runner) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	st := r.s.stmt(text)
	switch {
	case st == nil && r.tx == nil:
		return r.s.db.QueryContext(ctx, text, args...)
	case st == nil:
		return r.tx.QueryContext(ctx, text, args...)
	case r.tx == nil:
		return st.QueryContext(ctx, args...)
	default:
		return r.tx.StmtContext(ctx, st).QueryContext(ctx, args...) //nolint:sqlclosecheck // ends with tx
	}
}

// exec only runs in a transaction.
func (r runner) exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if st := r.s.stmt(text); st != nil {
		return r.tx.StmtContext(ctx, st).ExecContext(ctx, args...) //nolint:sqlclosecheck // ends with tx
	}
	return r.tx.ExecContext(ctx, text, args...)
}

// one scans the first row, if there is one.
func (r runner) one(ctx context.Context, text string, args []any, scan func(*sql.Rows) error) (found bool, err error) {
	rows, err := r.query(ctx, text, args...)
	if err != nil {
		return false, err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	if !rows.Next() {
		return false, rows.Err()
	}
	return true, scan(rows)
}

// exists reports whether the query has a row.
func (r runner) exists(ctx context.Context, text string, args ...any) (bool, error) {
	return r.one(ctx, text, args, func(*sql.Rows) error { return nil })
}

// ready makes the connection fit for durable writes, once.
func (s *Store) ready(ctx context.Context, conn *sql.Conn) error {
	if s.opts.AcceptUnsafe {
		return nil
	}
	var dc any
	if err := conn.Raw(func(c any) error {
		if reflect.TypeOf(c).Comparable() {
			dc = c
		}
		return nil
	}); err != nil {
		return err
	}
	s.mu.RLock()
	_, known := s.known[dc]
	s.mu.RUnlock()
	if known {
		return nil
	}
	if err := s.d.ready(ctx, conn); err != nil {
		return err
	}
	if dc == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The pool closes connections without telling: start again rather than keep
	// all that ever were.
	if len(s.known) >= 2*s.db.Stats().OpenConnections+16 {
		clear(s.known)
	}
	s.known[dc] = struct{}{}
	return nil
}

// micros is the store's clock (I13): the host's, since an embedded database has
// none of its own. It is read after the write lock was obtained, and in plain
// reads after the row.
func micros() int64 { return time.Now().UnixMicro() }

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// bytesOf is what names are bound as; never nil, which would be NULL.
func bytesOf(s string) []byte { return []byte(s) }

// payload is NULL for nil and only for nil.
func payload(p settle.Payload) any {
	if p == nil {
		return nil
	}
	return []byte(p)
}

// kinds puts n placeholders into text.
func kinds(text string, n int) string {
	return strings.Replace(text, "{kinds}", strings.Repeat("?, ", n-1)+"?", 1)
}

func invalid(what string) error { return fmt.Errorf("%w: %s", settle.ErrInvalid, what) }
