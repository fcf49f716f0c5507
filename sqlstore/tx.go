package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/settle-go/settle"
)

// step is one writing transaction of the store's own. Its statements run under
// a context that nobody cancels: they are short, and what a cancelled statement
// or COMMIT did is a question that need not arise. Only waiting is cancelled.
type step struct {
	runner
	s            *Store
	conn         *sql.Conn
	done, closed bool
	gated        bool            // it has the gate
	owner        atomic.Int32    // who closes it: 0 undecided, 1 the caller of begin, 2 whoever waits for the lock
	over         <-chan struct{} // on a server: the end of the caller's patience; nil if it has none
}

// A waiting writer looks once whether it needs the lock at all.
const lookAfter = 5 * time.Millisecond

// begin starts a transaction. On a database with one write lock it waits for the
// gate, a connection and that lock, together no longer than Options.LockWait, and takes the lock
// with the first statement: before it the transaction holds nothing, so nothing can be stale.
// If that takes its time, needless, if not nil, is asked whether there is
// anything to do; its error ends the waiting. What fails here was not committed.
func (s *Store) begin(ctx context.Context, doing string, needless func(ctx context.Context) error) (*step, error) {
	if !s.d.local {
		return s.beginPlain(ctx, doing)
	}
	wait, cancel := context.WithTimeout(ctx, s.opts.LockWait)
	defer cancel()
	refuse := func(err error) error {
		switch {
		case ctx.Err() != nil:
			return ended(ctx, doing)
		case wait.Err() != nil:
			return locked(doing, s.opts.LockWait, nil)
		}
		return s.unsent(doing, err)
	}
	look := func() error {
		if needless == nil {
			return nil
		}
		ask := needless
		needless = nil
		return ask(wait)
	}
	select {
	case s.gate <- struct{}{}:
	default:
		if err := look(); err != nil {
			return nil, err
		}
		select {
		case s.gate <- struct{}{}:
		case <-wait.Done():
			return nil, refuse(nil)
		}
	}
	conn, err := s.db.Conn(wait)
	if err != nil {
		<-s.gate
		return nil, refuse(err)
	}
	t := &step{s: s, conn: conn, gated: true}
	if err := s.ready(wait, conn); err != nil {
		t.close()
		return nil, refuse(err)
	}
	if ctx.Done() == nil {
		// Nobody can cancel the wait, so it needs no goroutine; the driver ends it in time,
		// and acquire looks at the clock.
		if err := t.acquire(ctx, wait); err != nil {
			t.close()
			return nil, refuse(err)
		}
		return t, nil
	}
	// A driver that waits for the lock, as it was told by the DSN, may wait longer
	// than ctx and LockWait allow. So the wait is another goroutine's: whoever is
	// first decides whose the transaction is.
	got := make(chan error, 1)
	go func() {
		err := t.acquire(context.WithoutCancel(ctx), wait)
		if t.owner.CompareAndSwap(0, 1) {
			got <- err
		} else {
			t.close()
		}
	}()
	slow := time.NewTimer(lookAfter)
	defer slow.Stop()
	over := wait.Done()
	for {
		select {
		case err = <-got:
			if err != nil {
				t.close()
				return nil, refuse(err)
			}
			return t, nil
		case <-slow.C:
			if err := look(); err != nil && t.owner.CompareAndSwap(0, 2) {
				return nil, err
			}
		case <-over:
			if t.owner.CompareAndSwap(0, 2) {
				return nil, refuse(nil)
			}
			over = nil // got is coming
		}
	}
}

// beginPlain starts a transaction on a server, whose rows are locked as they are written.
func (s *Store) beginPlain(ctx context.Context, doing string) (*step, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, s.unsent(doing, err)
	}
	t := &step{s: s, conn: conn, over: ctx.Done()}
	err = s.ready(ctx, conn)
	var tx *sql.Tx
	if err == nil {
		// Every statement of a write locks what it reads, so the level does not matter to it; what is
		// set costs MySQL a round trip. A claim must not lock gaps between rows that are due.
		var level *sql.TxOptions
		if doing == "claim" || s.d.answer == answerRow {
			level = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
		}
		tx, err = conn.BeginTx(ctx, level)
	}
	if err != nil {
		drop(conn)
		t.close()
		if ctx.Err() != nil {
			return nil, ended(ctx, doing)
		}
		return nil, s.unsent(doing, err)
	}
	t.runner = runner{s: s, tx: tx}
	return t, nil
}

// acquire starts transactions until one has the lock, or wait ends.
func (t *step) acquire(ctx, wait context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		t.done = false
		tx, err := t.conn.BeginTx(ctx, nil)
		t.runner = runner{s: t.s, tx: tx}
		switch {
		case err == nil:
			_, err = t.exec(ctx, &t.s.q.lock)
		case t.s.class(err) != busy:
			drop(t.conn) // it may be in a transaction of which nobody knows
		}
		if err == nil {
			return nil
		}
		t.rollback()
		if t.s.class(err) != busy || sleep(wait, pause) != nil {
			return err
		}
	}
}

// unsent is for errors of a transaction whose COMMIT was not sent: some only came
// at a bad time.
func (s *Store) unsent(doing string, err error) error {
	if errors.Is(err, driver.ErrBadConn) || s.class(err) == stale || s.class(err) == duplicate {
		return fmt.Errorf("%w: %s", errRestart, err.Error()) // text only: whoever sees ErrBadConn may repeat the whole call
	}
	return failed(doing, err)
}

// commit reports what COMMIT said. After an error the connection is closed, so
// that the transaction, if it is still open, ends with it.
func (t *step) commit() error {
	t.done = true
	err := t.bounded(t.tx.Commit)
	if err != nil && !t.closed {
		drop(t.conn)
	}
	return err
}

var errSilent = errors.New("settle/sqlstore: no answer in time")

// bounded runs COMMIT or ROLLBACK, which take no context: some drivers send them without
// a deadline, and a network that has gone silent then holds the caller for as long as TCP tries.
// When patience ends first, the connection is left to a goroutine that closes it
// whenever it can, and the step is closed (S5).
func (t *step) bounded(end func() error) error {
	if t.over == nil {
		return end()
	}
	said := make(chan error, 1)
	var left atomic.Bool // by whoever is first: the answer, or the end of patience
	go func() {
		err := end()
		if left.CompareAndSwap(false, true) {
			said <- err
			return
		}
		drop(t.conn)
		_ = t.conn.Close() // it was dropped
	}()
	select {
	case err := <-said:
		return err
	case <-t.over:
	}
	if left.CompareAndSwap(false, true) {
		t.closed = true
		return errSilent
	}
	return <-said
}

// rollback undoes what is not committed. A connection that does not roll back
// is closed instead of going back to the pool.
func (t *step) rollback() {
	if t.tx != nil && !t.done {
		t.done = true
		if err := t.bounded(t.tx.Rollback); err != nil && !errors.Is(err, sql.ErrTxDone) && !t.closed {
			drop(t.conn)
		}
	}
}

// close rolls back what is open, gives the connection back and lets the next
// writer in.
func (t *step) close() {
	if t.closed {
		return
	}
	t.rollback()
	if !t.closed {
		_ = t.conn.Close() // it was dropped, or goes back
	}
	t.closed = true
	if t.gated {
		<-t.s.gate
	}
}

// Tx returns the *sql.Tx behind tx, as a hook gets it. It panics if tx is of another
// store, which is a mistake of the program: in a hook the panic is contained, and the
// consequence stays due.
func Tx(tx settle.Tx) *sql.Tx { return tx.Unwrap().(*sql.Tx) }

// In makes a settle.Tx of a transaction of the application on the store's
// database, which the application commits or rolls back itself. Commit in it has
// no hook, and is undone as a whole if it fails, so that the transaction may go on.
//
// An SQLite transaction that begins by reading cannot write once another
// connection has written: Commit is then ErrRetryTx, and the transaction must be
// rolled back and started again. Open the database so that transactions take the
// write lock at their start (see DSN), or write first, and this does not happen.
func (s *Store) In(tx *sql.Tx) settle.Tx { return appTx{s: s, tx: tx} }

type appTx struct {
	s  *Store
	tx *sql.Tx
}

// Unwrap implements settle.Tx.
func (a appTx) Unwrap() any { return a.tx }

// Get implements settle.Tx.
func (a appTx) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	if ctx.Err() != nil {
		return settle.Record{}, ended(ctx, "get")
	}
	r, err := a.s.get(a.s.quiet(ctx), runner(a), by)
	if c := a.s.class(err); c == busy || c == stale {
		return r, errors.Join(settle.ErrRetryTx, err)
	}
	return r, err
}

// Commit implements settle.Tx.
func (a appTx) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if c.Hook != nil {
		return nil, invalid("a change inside a transaction has no hook")
	}
	if err := valid(&c); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, "commit")
	}
	if len(c.Writes) == 0 {
		return nil, nil
	}
	s, quiet := a.s, a.s.quiet(ctx)
	if s.d.within != nil {
		if err := s.d.within(quiet, a.tx); err != nil {
			return nil, err
		}
	}
	if s.d.local {
		if err := a.lock(ctx); err != nil {
			return nil, err
		}
	}
	if s.d.durable != nil && !s.opts.AcceptUnsafe {
		if err := s.d.durable(quiet, a.tx); err != nil {
			return nil, failed("commit", err)
		}
	}
	try, err := s.attempt(&c)
	if err != nil {
		return nil, err
	}
	var out []settle.Record
	for range restarts {
		out, err = a.once(quiet, try)
		if !errors.Is(err, errRestart) {
			break
		}
	}
	if k := s.class(err); errors.Is(err, errRestart) || k == busy || k == stale {
		return nil, errors.Join(settle.ErrRetryTx, err)
	}
	return out, err
}

func (a appTx) once(ctx context.Context, try *attempt) ([]settle.Record, error) {
	if _, err := a.tx.ExecContext(ctx, a.s.d.savepoint); err != nil {
		return nil, failed("savepoint", err)
	}
	out, err := a.s.apply(ctx, runner(a), try)
	if err != nil {
		_, undo := a.tx.ExecContext(ctx, a.s.d.rollbackTo)
		if undo == nil {
			_, undo = a.tx.ExecContext(ctx, a.s.d.release)
		}
		switch {
		case undo != nil && a.s.class(err) == stale:
			return nil, err // a server has ended the transaction: it can only be rolled back
		case undo != nil:
			// Half of the change must not commit with the application's writes.
			undo = errors.Join(undo, a.tx.Rollback())
			return nil, errors.Join(err, failed("the whole transaction was rolled back", undo))
		case errors.Is(err, errTaken), errors.Is(err, errMoved), errors.Is(err, settle.ErrNotFound):
			return a.s.refusal(ctx, runner(a), try.c, out)
		}
		return nil, err
	}
	if _, err := a.tx.ExecContext(ctx, a.s.d.release); err != nil {
		return nil, failed("savepoint", errors.Join(err, a.tx.Rollback()))
	}
	return out, nil
}

// lock takes the write lock for the application's transaction, if it has none,
// waiting like any other writer. A transaction that has read may never get it.
func (a appTx) lock(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, a.s.opts.LockWait)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		if ctx.Err() != nil {
			return ended(ctx, "commit")
		}
		// Not under ctx: SQLite rolls back the transaction of a statement that is
		// interrupted.
		_, err := runner(a).exec(context.WithoutCancel(ctx), &a.s.q.lock)
		if err == nil {
			return nil
		}
		c := a.s.class(err)
		if c == busy && sleep(wait, pause) == nil {
			continue
		}
		if ctx.Err() != nil {
			return ended(ctx, "commit")
		}
		if c == busy || c == stale {
			return errors.Join(settle.ErrRetryTx, failed("commit", err))
		}
		return failed("commit", err)
	}
}
