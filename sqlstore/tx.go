package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
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
		// set costs MySQL a round trip. A claim and a renewal must not lock gaps between rows.
		var level *sql.TxOptions
		if doing == "claim" || doing == "renew" || s.d.answer == answerRow {
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
	open := !t.done
	t.rollback()
	switch { // it was dropped, or goes back
	case t.closed:
	case open: // when the context has ended database/sql rolls back too, and Close waits for that
		_ = t.bounded(t.conn.Close)
	default:
		_ = t.conn.Close()
	}
	t.closed = true
	if t.gated {
		<-t.s.gate
	}
}
