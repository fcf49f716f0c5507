package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/settle-go/settle"
)

// restarts is how often a transaction that was not committed starts again at once.
const restarts = 3

func valid(c *settle.Change) error {
	if c.ID == "" {
		return invalid("a change without an id")
	}
	for i := range c.Writes {
		if w := &c.Writes[i]; w.Record.ID == "" || w.IfVersion < 0 {
			return invalid("a write without an id, or below version 0")
		}
	}
	return nil
}

// attempt is one Commit: the values of its writes are worked out once.
type attempt struct {
	c      *settle.Change
	values []*values
}

func (s *Store) attempt(c *settle.Change) (*attempt, error) {
	a := &attempt{c: c, values: make([]*values, len(c.Writes))}
	for i := range c.Writes {
		var err error
		if a.values[i], err = s.writing(c.ID, &c.Writes[i]); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Commit implements settle.Store.
func (s *Store) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if err := valid(&c); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, "commit")
	}
	if len(c.Writes) == 0 && c.Hook == nil {
		return nil, nil
	}
	a, err := s.attempt(&c)
	if err != nil {
		return nil, err
	}
	if s.single(a) || s.shares(a) {
		out, done, err := s.direct(ctx, a)
		if done || err != nil {
			return out, err
		}
	}
	return s.restarting(ctx, "commit", func() ([]settle.Record, error) { return s.commit(ctx, a) })
}

// restarting repeats a step that came at a bad time and committed nothing. Deadlocks
// and serialization failures of many writers take a pause of random length.
func (s *Store) restarting(ctx context.Context, doing string, step func() ([]settle.Record, error)) ([]settle.Record, error) {
	began := time.Now()
	for try := 1; ; try++ {
		out, err := step()
		if !errors.Is(err, errRestart) {
			return out, err
		}
		if again, ok := err.(hookRestart); ok && try >= restarts { //nolint:errorlint // it is never wrapped
			return nil, again.HookError
		}
		if try >= restarts && (s.d.local || time.Since(began) > s.opts.LockWait) {
			return nil, failed(doing, err)
		}
		if try >= restarts && sleep(ctx, rand.N(time.Duration(min(try, 20))*time.Millisecond)) != nil {
			return nil, ended(ctx, doing)
		}
	}
}

// single reports whether one statement is all of the change.
func (s *Store) single(a *attempt) bool {
	if !s.plain || a.c.Hook != nil || len(a.values) != 1 {
		return false
	}
	v := a.values[0]
	if v.was == 0 {
		return v.ref == nil
	}
	return s.guarded(v) && (s.d.whole || v.was < 2)
}

// shares reports whether the change may share a transaction with others: what refuses it does
// so before it has written anything.
func (s *Store) shares(a *attempt) bool {
	if s.d.lock != "" || a.c.Hook != nil || len(a.values) != 1 {
		return false
	}
	v := a.values[0]
	if len(v.body)+len(v.entry)+len(v.record.Request)+len(v.record.Result) > maxShare {
		return false
	}
	return v.was == 0 && v.ref == nil || v.was > 0 && s.guarded(v)
}

// write is the statement that is all of a change of one record, and when the record was
// created; 0: now.
func (s *Store) write(v *values) (text *query, created int64) {
	if v.was == 0 {
		return &s.q.insert, 0
	}
	return &s.q.update, v.record.CreatedAt.UnixMicro()
}

// direct commits by one statement. Where that does nothing, done is false and a
// transaction finds out why.
func (s *Store) direct(ctx context.Context, a *attempt) (out []settle.Record, done bool, err error) {
	if !s.d.local {
		if s.shares(a) {
			if !s.flush.enter() {
				return s.together(ctx, a)
			}
			defer s.flush.leave(1)
		}
		if !s.single(a) {
			out, err := s.restarting(ctx, "commit", func() ([]settle.Record, error) { return s.commit(ctx, a) })
			return out, true, err
		}
		return s.alone(ctx, a)
	}
	select {
	case s.gate <- struct{}{}:
	default:
		return s.together(ctx, a)
	}
	defer func() { <-s.gate }()
	// A driver that waits for the lock would not hear ctx's end: then it is begin that waits.
	if ctx.Done() != nil || s.db.Stats().MaxOpenConnections > 0 {
		return nil, false, nil
	}
	now := micros()
	a.values[0].at(now, now+slack.Microseconds())
	return s.alone(ctx, a)
}

// alone runs the statement of a by itself.
func (s *Store) alone(ctx context.Context, a *attempt) (out []settle.Record, done bool, err error) {
	v := a.values[0]
	text, created := s.write(v)
	st, err := s.effect(ctx, runner{s: s}, text, v)
	if created == 0 {
		created = st.now
	}
	switch {
	case err == nil && st.hit:
		r, err := s.written(v, st, created)
		return []settle.Record{r}, true, err
	case err == nil:
		return nil, false, s.rival(ctx, v)
	}
	switch s.class(err) {
	case busy:
		if !s.d.local {
			return nil, true, locked("commit", s.opts.LockWait, err)
		}
		return nil, false, nil
	case duplicate:
		return nil, false, s.rival(ctx, v)
	case stale:
		return nil, false, nil // nothing was done
	case other:
	}
	r, lookErr := s.written(v, stamp{now: v.now}, created)
	if lookErr != nil {
		return nil, true, lookErr
	}
	out, err = s.settled(ctx, a.c, []settle.Record{r}, err)
	return out, true, err
}

// commit is one try in a transaction. Until COMMIT was sent, whatever fails was not
// committed: it is rolled back, and what only came at a bad time starts again.
func (s *Store) commit(ctx context.Context, a *attempt) (out []settle.Record, err error) {
	c := a.c
	var needless func(ctx context.Context) error
	if s.d.taken != "" && len(c.Writes) > 0 && c.Writes[0].IfVersion == 0 {
		needless = func(ctx context.Context) error { return s.needless(ctx, c) }
	}
	t, err := s.begin(ctx, "commit", needless)
	if err != nil {
		var e answered
		if errors.As(err, &e) {
			return e.out, nil
		}
		return nil, err
	}
	defer t.close()
	quiet := s.quiet(ctx)
	if out, err = s.apply(quiet, t.runner, a); err != nil {
		return s.undone(ctx, t, a, out, err)
	}
	if c.Hook != nil {
		if err := runHook(ctx, c.Hook, appTx{s: s, tx: t.tx}); err != nil {
			if s.class(err) == stale {
				return nil, hookRestart{&settle.HookError{Err: err}}
			}
			return nil, &settle.HookError{Err: err}
		}
		if ctx.Err() == nil {
			if done, err := s.afterHook(quiet, t, c); done || err != nil {
				return out, err
			}
		}
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, "commit")
	}
	err = t.commit()
	if err == nil {
		return out, nil
	}
	if k := s.class(err); k == stale || k == duplicate {
		return nil, s.unsent("commit", err) // the database says that it did not commit
	}
	return s.settled(ctx, c, out, err)
}

// quiet is the context of a statement: on a file they are short, and what a cancelled one
// did is a question that need not arise; a server may never answer.
func (s *Store) quiet(ctx context.Context) context.Context {
	if s.d.local {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// apply performs the writes of a in q's transaction. With an error it returns the
// records before the one that failed.
func (s *Store) apply(ctx context.Context, q runner, a *attempt) ([]settle.Record, error) {
	out := make([]settle.Record, 0, len(a.values))
	now := micros()
	for _, v := range a.values {
		v.at(now, never)
		r, err := s.put(ctx, q, v)
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

// undone ends the transaction of a write that failed, after those that wrote before, and says
// why it did. It gives the connection back first: the pool may have no other.
func (s *Store) undone(ctx context.Context, t *step, a *attempt, before []settle.Record, err error) ([]settle.Record, error) {
	t.close()
	if errors.Is(err, errTaken) || errors.Is(err, errMoved) || errors.Is(err, settle.ErrNotFound) {
		var out []settle.Record
		rerr := s.reading(ctx, "commit", func() (err error) {
			out, err = s.refusal(s.quiet(ctx), runner{s: s}, a.c, before)
			return err
		})
		return out, rerr
	}
	if errors.Is(err, driver.ErrBadConn) || s.class(err) == stale {
		err = s.unsent("commit", err)
	}
	if s.class(err) == busy {
		err = locked("commit", s.opts.LockWait, err)
	}
	return nil, err
}

// afterHook makes sure that the transaction is still what it was. SQLite rolls all of it
// back when a statement of the hook is interrupted or says so (INSERT OR ROLLBACK), and
// what follows commits by itself; a hook can also commit or roll back itself. So the
// change's own write must still be there. done: the hook has committed it.
func (s *Store) afterHook(ctx context.Context, t *step, c *settle.Change) (done bool, err error) {
	if len(c.Writes) == 0 {
		// A transaction in which a statement failed answers nothing more on PostgreSQL, and its
		// COMMIT is a rollback, which a driver may take for success (IC-24).
		if s.d.local {
			return false, nil
		}
		_, err := t.exec(ctx, &query{text: `SELECT 1`})
		if err == nil || errors.Is(err, sql.ErrTxDone) {
			return false, nil
		}
		return false, &settle.HookError{Err: failed("after the hook", err)}
	}
	was, err := s.applied(ctx, t.runner, c)
	switch {
	case err == nil && was:
		return false, nil
	case errors.Is(err, errEnded):
		t.done = true
		drop(t.conn)
		was, err = s.readBack(ctx, func(ctx context.Context, q runner) (bool, error) { return s.applied(ctx, q, c) })
		if err == nil && was {
			return true, nil
		}
	}
	return false, &settle.HookError{Err: errHookEnded}
}

// hookRestart is the error of a hook whose statement met a deadlock or a serialization failure: the
// whole step starts again, the hook included, and keeps the hook's error if that does not help.
type hookRestart struct{ *settle.HookError }

// Is matches errRestart.
func (hookRestart) Is(target error) bool { return target == errRestart }

var errHookEnded = errors.New("settle/sqlstore: the hook ended its transaction")

// runHook turns a panic into an error that does not quote it (I16).
func runHook(ctx context.Context, hook func(context.Context, settle.Tx) error, tx settle.Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("settle/sqlstore: the hook panicked with a %T", p)
		}
	}()
	return hook(ctx, tx)
}

// settled finds out what became of c after its COMMIT, or its only statement, answered
// with err. The value of err says nothing (I15): a driver can lose the answer of a COMMIT that
// was carried out, and report one cause for both (IC-22, IC-23). So the write's
// own id is looked for on another connection; on a file under a context that the caller's
// end does not end. The connection of the COMMIT is closed by now, so that on a file an
// absent id means that it was not, and will not be, committed. A server may still be
// at it: the error is then as good as any that is not listed (S6).
func (s *Store) settled(ctx context.Context, c *settle.Change, out []settle.Record, cause error) ([]settle.Record, error) {
	was, err := s.readBack(s.quiet(ctx), func(ctx context.Context, q runner) (bool, error) { return s.applied(ctx, q, c) })
	switch {
	case err != nil:
		return nil, doubt(ctx, cause, err)
	case was && s.d.serverClock:
		return s.current(s.quiet(ctx), runner{s: s}, c)
	case was:
		return out, nil
	case ctx.Err() != nil:
		return nil, ended(ctx, "not committed")
	}
	return nil, failed("not committed", cause)
}

// doubt is the error of a commit that ended with cause and cannot be read back. The cause is first: it says what is wrong, and
// the reading back has often only run out of time.
func doubt(ctx context.Context, cause, err error) error {
	return fmt.Errorf("settle/sqlstore: outcome of a commit unknown: %w", errors.Join(failed("commit", cause), err, ctx.Err()))
}

// readBack asks until there is an answer, for as long as a lock may take.
func (s *Store) readBack(ctx context.Context, ask func(ctx context.Context, q runner) (bool, error)) (was bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.LockWait)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		was, err = ask(ctx, runner{s: s})
		if err == nil || sleep(ctx, pause) != nil {
			return was, err
		}
	}
}

// applied reports whether c was committed before: its first write left its id
// beside the version that it made, and nobody else makes that version.
func (s *Store) applied(ctx context.Context, q runner, c *settle.Change) (bool, error) {
	if len(c.Writes) == 0 {
		return false, errors.New("settle/sqlstore: a change without writes leaves no trace")
	}
	w := &c.Writes[0]
	text := &s.q.writeID
	switch w.IfVersion {
	case 0:
		text = &s.q.writeID1
	case 1:
		text = &s.q.writeID2
	}
	v := values{id: w.Record.ID, after: w.IfVersion + 1}
	var id string
	found, err := q.one(ctx, text, v.list(text.params), func(rows *sql.Rows) error {
		var stored sql.RawBytes
		err := rows.Scan(&stored)
		id = s.d.text(stored)
		return err
	})
	if err != nil {
		return false, failed("read back", err)
	}
	return found && id == c.ID, nil
}

// current returns the records of c as they are now.
func (s *Store) current(ctx context.Context, q runner, c *settle.Change) ([]settle.Record, error) {
	out := make([]settle.Record, len(c.Writes))
	for i := range c.Writes {
		var err error
		if out[i], err = s.get(ctx, q, settle.ByID(c.Writes[i].Record.ID)); err != nil {
			return nil, err
		}
	}
	return out, nil
}
