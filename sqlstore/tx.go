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
	s     *Store
	conn  *sql.Conn
	done  bool
	owner atomic.Int32 // who closes it: 0 undecided, 1 the caller of begin, 2 whoever waits for the lock
}

// A waiting writer looks once whether it needs the lock at all.
const lookAfter = 5 * time.Millisecond

// begin waits for the gate, a connection and the write lock, together no longer
// than Options.LockWait, and runs first, which takes the lock, as the first
// statement: before it the transaction holds nothing, so nothing can be stale.
// If that takes its time, needless, if not nil, is asked whether there is
// anything to do; its error ends the waiting. What fails here was not committed.
func (s *Store) begin(ctx context.Context, doing string, first func(ctx context.Context, q runner) error,
	needless func(ctx context.Context) error,
) (*step, error) {
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
	t := &step{s: s, conn: conn}
	if err := s.ready(wait, conn); err != nil {
		t.close()
		return nil, refuse(err)
	}
	if ctx.Done() == nil {
		// Nobody can cancel the wait, so it needs no goroutine; the driver ends it in time,
		// and acquire looks at the clock.
		if err := t.acquire(ctx, wait, first); err != nil {
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
		err := t.acquire(context.WithoutCancel(ctx), wait, first)
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

// acquire starts transactions until one has the lock, or wait ends.
func (t *step) acquire(ctx, wait context.Context, first func(ctx context.Context, q runner) error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		t.done = false
		tx, err := t.conn.BeginTx(ctx, nil)
		t.runner = runner{s: t.s, tx: tx}
		switch {
		case err == nil:
			err = first(ctx, t.runner)
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
	err := t.tx.Commit()
	if err != nil {
		drop(t.conn)
	}
	return err
}

// rollback undoes what is not committed. A connection that does not roll back
// is closed instead of going back to the pool.
func (t *step) rollback() {
	if t.tx != nil && !t.done {
		t.done = true
		if err := t.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			drop(t.conn)
		}
	}
}

// close rolls back what is open, gives the connection back and lets the next
// writer in.
func (t *step) close() {
	t.rollback()
	_ = t.conn.Close() // it was dropped, or goes back
	<-t.s.gate
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
	r, err := a.s.get(context.WithoutCancel(ctx), runner(a), by)
	if c := a.s.class(err); err != nil && (c == busy || c == stale) {
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
	quiet := context.WithoutCancel(ctx)
	if err := a.s.d.within(quiet, a.tx); err != nil {
		return nil, err
	}
	if err := a.lock(ctx); err != nil {
		return nil, err
	}
	if !a.s.opts.AcceptUnsafe {
		if err := a.s.d.durable(quiet, a.tx); err != nil {
			return nil, failed("commit", err)
		}
	}
	var out []settle.Record
	var err error
	for range restarts {
		out, err = a.once(quiet, &c)
		if !errors.Is(err, errRestart) {
			break
		}
	}
	if errors.Is(err, errRestart) || err != nil && (a.s.class(err) == busy || a.s.class(err) == stale) {
		return nil, errors.Join(settle.ErrRetryTx, err)
	}
	return out, err
}

func (a appTx) once(ctx context.Context, c *settle.Change) ([]settle.Record, error) {
	if _, err := a.tx.ExecContext(ctx, a.s.d.savepoint); err != nil {
		return nil, failed("savepoint", err)
	}
	out, err := apply(ctx, runner(a), c, micros(), nil)
	if err != nil && !errors.Is(err, errReplay) {
		_, undo := a.tx.ExecContext(ctx, a.s.d.rollbackTo)
		if undo == nil {
			_, undo = a.tx.ExecContext(ctx, a.s.d.release)
		}
		if undo != nil {
			// Half of the change must not commit with the application's writes.
			undo = errors.Join(undo, a.tx.Rollback())
			return nil, errors.Join(err, failed("the whole transaction was rolled back", undo))
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
		_, err := runner(a).exec(context.WithoutCancel(ctx), a.s.d.lock)
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
