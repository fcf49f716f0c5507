package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/settle-go/settle"
)

// Tx returns the *sql.Tx behind tx, as a hook gets it. It panics if tx is of another
// store or of InConn, which is a mistake of the program: in a hook the panic is contained, and
// the consequence stays due.
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

// InConn is In for an application that begins its transactions itself, by statements on
// a connection (BEGIN IMMEDIATE, START TRANSACTION …): conn must be in one, of the
// store's database, and the application ends it by COMMIT or ROLLBACK on conn. Commit without a
// transaction stores nothing and is an error. What In says holds here too; Unwrap returns conn.
//
// The settle.Tx is good until that transaction ends, and, as conn with a transaction on it, for one
// goroutine at a time.
func (s *Store) InConn(conn *sql.Conn) settle.Tx { return appTx{s: s, session: conn} }

// appTx is a transaction of the application: tx, or what session is in.
type appTx struct {
	s       *Store
	tx      *sql.Tx
	session *sql.Conn
}

// Unwrap implements settle.Tx.
func (a appTx) Unwrap() any {
	if a.session != nil {
		return a.session
	}
	return a.tx
}

func (a appTx) inside() inside {
	if a.session != nil {
		return a.session
	}
	return a.tx
}

func (a appTx) exec(ctx context.Context, text string) error {
	_, err := a.inside().ExecContext(ctx, text)
	return err
}

// rollback ends the transaction, so that half of a change cannot commit. A connection goes with it:
// COMMIT on one that is in no transaction is no error everywhere.
func (a appTx) rollback(ctx context.Context) error {
	if a.session == nil {
		return a.tx.Rollback()
	}
	err := a.exec(context.WithoutCancel(ctx), `ROLLBACK`)
	drop(a.session)
	return err
}

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
		if err := s.d.within(quiet, a.inside()); err != nil {
			return nil, err
		}
	}
	if s.d.local {
		if err := a.lock(ctx); err != nil {
			return nil, err
		}
	}
	if s.d.durable != nil && !s.opts.AcceptUnsafe {
		if err := s.d.durable(quiet, a.inside()); err != nil {
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
	if err := a.exec(ctx, a.s.d.savepoint); err != nil {
		return nil, failed("savepoint", err)
	}
	out, err := a.s.apply(ctx, runner(a), try)
	if err != nil {
		undo := a.exec(ctx, a.s.d.rollbackTo)
		if undo == nil {
			undo = a.exec(ctx, a.s.d.release)
		}
		switch {
		case undo != nil && a.s.class(err) == stale:
			return nil, err // a server has ended the transaction: it can only be rolled back
		case undo != nil:
			// Half of the change must not commit with the application's writes.
			undo = errors.Join(undo, a.rollback(ctx))
			return nil, errors.Join(err, failed("the whole transaction was rolled back", undo))
		case errors.Is(err, errTaken), errors.Is(err, errMoved), errors.Is(err, settle.ErrNotFound):
			return a.s.refusal(ctx, runner(a), try.c, out)
		}
		return nil, err
	}
	if err := a.exec(ctx, a.s.d.release); err != nil {
		return nil, failed("savepoint", errors.Join(err, a.rollback(ctx)))
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
