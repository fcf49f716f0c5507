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
	"reflect"
	"strconv"
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
	// Unprepared lets the store send the text of each statement instead of preparing it once.
	// For proxies that hand out another session for every transaction (IC-37), together with the
	// driver's own setting: default_query_exec_mode=exec of pgx, binary_parameters=yes of lib/pq.
	Unprepared bool
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
	q    queries
	// plain: one statement outside of a transaction is as durable as one in it.
	plain bool
	// gate lets one writer of this process at the lock of a database that has one: waiting
	// here is fair and wakes at once, waiting there is polling.
	gate  chan struct{}
	flush flusher

	mu     sync.RWMutex
	lists  map[listed]*query // statements with a list
	closed bool
	known  map[any]struct{} // driver connections that were made ready
}

type listed struct {
	text string
	lengths
}

// queries are the statements of a dialect, compiled.
type queries struct {
	lock, insert, update, rewrite, row, versionOf, addRef, dropRef, addEntry, rival, taken, writeID1, writeID2, writeID,
	claimRow, claimed, renew, history, flush, insertAll, updateAll, addEntries query
	getBy map[settle.IndexName]*query
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
	ctx, cancel := context.WithTimeout(context.Background(), max(s.opts.LockWait, openWait))
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
	// The pool may allow one connection only: give it back before taking others.
	if err := conn.Close(); err != nil {
		return nil, failed("open", err)
	}
	if err := s.sharedSessions(ctx); err != nil {
		return nil, err
	}
	s.plain = d.fit == nil || d.fit(ctx, db)
	if err := s.prepareAll(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// openWait is how long New may take: it asks many questions, of a server that may be far.
const openWait = 15 * time.Second

func newStore(db *sql.DB, d Dialect, opts *Options) *Store {
	s := &Store{db: db, d: d, gate: make(chan struct{}, 1), lists: map[listed]*query{}, known: map[any]struct{}{}, flush: flusher{crowd: crowd, most: 1}}
	if !d.local {
		s.flush.most = flushes
	}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.LockWait <= 0 {
		s.opts.LockWait = 5 * time.Second
	}
	if s.opts.ErrorCode == nil {
		s.opts.ErrorCode = errorCode
	}
	for text, q := range s.queries() {
		*q = compile(text, d.mark, lengths{})
	}
	s.q.getBy = map[settle.IndexName]*query{}
	for name, text := range d.getBy {
		q := compile(text, d.mark, lengths{})
		s.q.getBy[settle.IndexName(name)] = &q
	}
	return s
}

// queries pairs each statement with its place.
func (s *Store) queries() map[string]*query {
	d, q := &s.d, &s.q
	all := map[string]*query{
		d.lock: &q.lock, d.insert: &q.insert, d.update: &q.update, d.rewrite: &q.rewrite, d.row: &q.row, d.versionOf: &q.versionOf, d.addRef: &q.addRef,
		d.dropRef: &q.dropRef, d.addEntry: &q.addEntry, d.rival: &q.rival, d.taken: &q.taken, d.writeID1: &q.writeID1,
		d.writeID2: &q.writeID2, d.writeID: &q.writeID, d.claimRow: &q.claimRow, d.claimed: &q.claimed, d.renew: &q.renew, d.history: &q.history,
		d.flush: &q.flush, d.insertAll: &q.insertAll, d.updateAll: &q.updateAll, d.addEntries: &q.addEntries,
	}
	delete(all, "") // what the dialect does without
	return all
}

// Close closes the prepared statements. The store is of no use after it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	shut := func(q *query) {
		if q.st != nil {
			errs = append(errs, q.st.Close())
		}
	}
	for _, q := range s.queries() {
		shut(q)
	}
	for _, q := range s.q.getBy {
		shut(q)
	}
	for _, q := range s.lists {
		shut(q)
	}
	clear(s.lists)
	clear(s.known)
	return errors.Join(errs...)
}

func (s *Store) prepareAll(ctx context.Context) error {
	if s.opts.Unprepared {
		return nil
	}
	for _, q := range s.queries() {
		if err := s.prepare(ctx, q); err != nil {
			return err
		}
	}
	for _, q := range s.q.getBy {
		if err := s.prepare(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) prepare(ctx context.Context, q *query) (err error) {
	if q.st, err = s.db.PrepareContext(ctx, q.text); err != nil {
		return failed("prepare", err)
	}
	return nil
}

// with returns a statement with lists of these lengths. It is never called by who has a
// transaction: in a pool of one connection it would wait for itself.
func (s *Store) with(ctx context.Context, text string, n lengths) (*query, error) {
	key := listed{text, n}
	s.mu.RLock()
	q, have := s.lists[key]
	full := len(s.lists) > 100 // lists come in ever new numbers: do without
	s.mu.RUnlock()
	if have {
		return q, nil
	}
	fresh := compile(text, s.d.mark, n)
	if full || s.opts.Unprepared {
		return &fresh, nil
	}
	if err := s.prepare(ctx, &fresh); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q, have := s.lists[key]; have || s.closed {
		err := fresh.st.Close()
		fresh.st = nil
		if have {
			return q, err
		}
		return &fresh, err
	}
	s.lists[key] = &fresh
	return &fresh, nil
}

// lockWait is what servers are told that take it with the statement.
func (s *Store) lockWait() any { return strconv.FormatInt(s.opts.LockWait.Milliseconds(), 10) }

func (s *Store) class(err error) class {
	if err == nil {
		return other
	}
	return s.d.classify(err, s.opts.ErrorCode)
}

// runner runs statements: in tx, or on a session that is in a transaction, or each on its own.
type runner struct {
	s       *Store
	tx      *sql.Tx
	session *sql.Conn
}

func (r runner) query(ctx context.Context, q *query, args []any) (*sql.Rows, error) {
	switch {
	case r.session != nil:
		return r.session.QueryContext(ctx, q.text, args...)
	case q.st == nil && r.tx == nil:
		return r.s.db.QueryContext(ctx, q.text, args...)
	case q.st == nil:
		return r.tx.QueryContext(ctx, q.text, args...)
	case r.tx == nil:
		return q.st.QueryContext(ctx, args...)
	default:
		return r.tx.StmtContext(ctx, q.st).QueryContext(ctx, args...) //nolint:sqlclosecheck // ends with tx
	}
}

func (r runner) exec(ctx context.Context, q *query, args ...any) (sql.Result, error) {
	switch {
	case r.session != nil:
		return r.session.ExecContext(ctx, q.text, args...)
	case q.st == nil && r.tx == nil:
		return r.s.db.ExecContext(ctx, q.text, args...)
	case q.st == nil:
		return r.tx.ExecContext(ctx, q.text, args...)
	case r.tx == nil:
		return q.st.ExecContext(ctx, args...)
	default:
		return r.tx.StmtContext(ctx, q.st).ExecContext(ctx, args...) //nolint:sqlclosecheck // ends with tx
	}
}

// one scans the first row, if there is one.
func (r runner) one(ctx context.Context, q *query, args []any, scan func(*sql.Rows) error) (found bool, err error) {
	rows, err := r.query(ctx, q, args)
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
	if err := scan(rows); err != nil {
		return true, err
	}
	if r.s.d.local {
		return true, nil
	}
	rows.Next() // a server may say only now that the statement failed
	return true, rows.Err()
}

// exists reports whether the query has a row.
func (r runner) exists(ctx context.Context, q *query, args []any) (bool, error) {
	return r.one(ctx, q, args, func(*sql.Rows) error { return nil })
}

// ready makes the connection fit for durable writes, once.
func (s *Store) ready(ctx context.Context, conn *sql.Conn) error {
	if s.opts.AcceptUnsafe || s.d.ready == nil {
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

// retired keeps key and intent unique among records that have them, and only
// there, on databases without partial indexes too.
func retired(r *settle.Record) []byte {
	if r.ReplacedBy == "" {
		return []byte{}
	}
	return bytesOf(r.ID)
}

func hold(r *settle.Record) any {
	if h := r.HeldName(); h != "" {
		return bytesOf(h)
	}
	return nil
}

func invalid(what string) error { return fmt.Errorf("%w: %s", settle.ErrInvalid, what) }
