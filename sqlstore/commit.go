package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

// restarts is how often a transaction that was not committed starts again.
const restarts = 3

// errReplay: the change was applied before; there is nothing to commit (S26).
var errReplay = errors.New("settle/sqlstore: applied before")

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
	var err error
	for range restarts {
		var out []settle.Record
		out, err = s.commit(ctx, &c)
		if !errors.Is(err, errRestart) {
			return out, err
		}
	}
	return nil, failed("commit", err)
}

// answered carries the answer to a change that needs no transaction.
type answered struct{ out []settle.Record }

func (answered) Error() string { return errReplay.Error() }

// needless answers a creation that lost without the write lock, for which it
// would have to wait: with the conflict, or with success if the change was
// applied before. Nil if the lock is needed to tell.
func (s *Store) needless(ctx context.Context, c *settle.Change) error {
	q, r := runner{s: s}, &c.Writes[0].Record
	taken, err := q.exists(ctx, s.d.taken, bytesOf(r.ID), bytesOf(r.Scope), bytesOf(r.Kind), bytesOf(r.Key),
		bytesOf(r.Scope), bytesOf(r.Kind), bytesOf(r.Subject), bytesOf(r.Purpose), bytesOf(r.Scope), hold(r))
	if err != nil || !taken {
		return nil
	}
	was, err := applied(ctx, q, c)
	if err != nil {
		return nil
	}
	if was {
		out, err := current(ctx, q, c)
		if err != nil {
			return nil
		}
		return answered{out}
	}
	if err := conflict(ctx, q, r, false); errors.Is(err, settle.ErrConflict) {
		return err
	}
	return nil
}

// commit is one try. Until COMMIT was sent, whatever fails was not committed: it
// is rolled back, and what only came at a bad time starts again.
func (s *Store) commit(ctx context.Context, c *settle.Change) (out []settle.Record, err error) {
	quiet := context.WithoutCancel(ctx)
	var first *row
	var needless func(ctx context.Context) error
	if len(c.Writes) > 0 && c.Writes[0].IfVersion == 0 {
		needless = func(ctx context.Context) error { return s.needless(ctx, c) }
	}
	t, err := s.begin(ctx, "commit", func(ctx context.Context, q runner) (err error) {
		if len(c.Writes) == 0 || c.Writes[0].IfVersion == 0 {
			_, err = q.exec(ctx, s.d.lock)
			return err
		}
		first, err = loadRow(ctx, q, s.d.lockRow, c.Writes[0].Record.ID)
		return err
	}, needless)
	if err != nil {
		var a answered
		if errors.As(err, &a) {
			return a.out, nil
		}
		return nil, err
	}
	defer t.close()
	if out, err = apply(quiet, t.runner, c, micros(), first); err != nil {
		if errors.Is(err, errReplay) {
			return out, nil
		}
		if errors.Is(err, driver.ErrBadConn) || s.class(err) == stale {
			err = s.unsent("commit", err)
		}
		return nil, err
	}
	if c.Hook != nil {
		if err := runHook(ctx, c.Hook, appTx{s: s, tx: t.tx}); err != nil {
			return nil, &settle.HookError{Err: err}
		}
		if ctx.Err() == nil && len(c.Writes) > 0 {
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
	return s.settled(ctx, c, out, err)
}

// afterHook makes sure that the transaction is still what it was. SQLite rolls all of it
// back when a statement of the hook is interrupted or says so (INSERT OR ROLLBACK), and
// what follows commits by itself; a hook can also commit or roll back itself. So the
// change's own write must still be there. done: the hook has committed it.
func (s *Store) afterHook(ctx context.Context, t *step, c *settle.Change) (done bool, err error) {
	was, err := applied(ctx, t.runner, c)
	switch {
	case err == nil && was:
		return false, nil
	case errors.Is(err, errEnded):
		t.done = true
		drop(t.conn)
		was, err = s.readBack(ctx, func(ctx context.Context, q runner) (bool, error) { return applied(ctx, q, c) })
		if err == nil && was {
			return true, nil
		}
	}
	return false, &settle.HookError{Err: errHookEnded}
}

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

// settled finds out what became of c after its COMMIT answered with err. The
// value of err says nothing (I15): a driver can lose the answer of a COMMIT that
// was carried out, and report one cause for both (IC-22, IC-23). So the write's
// own id is looked for on another connection, under a context that the caller's
// end does not end. The connection of the COMMIT is closed by now, so that an
// absent id means that it was not, and will not be, committed.
func (s *Store) settled(ctx context.Context, c *settle.Change, out []settle.Record, cause error) ([]settle.Record, error) {
	was, err := s.readBack(ctx, func(ctx context.Context, q runner) (bool, error) { return applied(ctx, q, c) })
	switch {
	case err != nil:
		return nil, fmt.Errorf("settle/sqlstore: outcome of a commit unknown: %w", errors.Join(cause, err, ctx.Err()))
	case was:
		return out, nil
	case ctx.Err() != nil:
		return nil, ended(ctx, "not committed")
	}
	return nil, failed("not committed", cause)
}

// readBack asks until there is an answer, for as long as a lock may take.
func (s *Store) readBack(ctx context.Context, ask func(ctx context.Context, q runner) (bool, error)) (was bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.LockWait)
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
func applied(ctx context.Context, q runner, c *settle.Change) (bool, error) {
	if len(c.Writes) == 0 {
		return false, errors.New("settle/sqlstore: a change without writes leaves no trace")
	}
	w := &c.Writes[0]
	text, args := q.s.d.created, []any{bytesOf(w.Record.ID)}
	switch {
	case w.IfVersion == 1:
		text = q.s.d.writeID2
	case w.IfVersion > 1:
		text, args = q.s.d.writeID, append(args, w.IfVersion+1)
	}
	var id string
	found, err := q.one(ctx, text, args, func(rows *sql.Rows) error { return rows.Scan(&id) })
	if err != nil {
		return false, failed("read back", err)
	}
	return found && id == c.ID, nil
}

// current returns the records of c as they are now.
func current(ctx context.Context, q runner, c *settle.Change) ([]settle.Record, error) {
	out := make([]settle.Record, len(c.Writes))
	for i := range c.Writes {
		var err error
		if out[i], err = q.s.get(ctx, q, settle.ByID(c.Writes[i].Record.ID)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// conflict names the first of r's names that another record has; stored: the
// record with r's id is the one that is written. errRestart if there is none.
func conflict(ctx context.Context, q runner, r *settle.Record, stored bool) error {
	for _, name := range r.Names() {
		owner, err := q.s.get(ctx, q, name)
		if errors.Is(err, settle.ErrNotFound) || err == nil && stored && owner.ID == r.ID {
			continue
		}
		if err != nil {
			return err
		}
		return &settle.ConflictError{Index: name, Existing: owner}
	}
	return errRestart
}

// repeated reports whether err is about a row that this very transaction wrote:
// database/sql repeats a statement whose driver reports a bad connection, even
// when it was carried out (IC-03).
func repeated(err error, w *settle.Write, now int64) bool {
	var c *settle.ConflictError
	return errors.As(err, &c) && c.Existing.ID == w.Record.ID && c.Index.Name == settle.IndexID &&
		c.Existing.CreatedAt.UnixMicro() == now
}

// row is a stored record as a write needs it.
type row struct {
	n, version int64
	token      string
	due        sql.NullInt64
	old        settle.Record // without bookkeeping and payloads
	err        error         // the record is damaged
}

func loadRow(ctx context.Context, q runner, text, id string) (*row, error) {
	var o row
	found, err := q.one(ctx, text, []any{bytesOf(id)}, func(rows *sql.Rows) error {
		var body sql.RawBytes
		if err := rows.Scan(&o.n, &o.version, &o.token, &o.due, &body); err != nil {
			return err
		}
		o.old, o.err = settle.DecodeRecord(body, nil, nil)
		return nil
	})
	if err != nil || !found {
		return nil, err
	}
	return &o, nil
}

// apply performs the writes of c in q's transaction, which has the write lock.
// locked is the row of the first write if it was read already. After an error
// the caller undoes everything.
func apply(ctx context.Context, q runner, c *settle.Change, now int64, locked *row) ([]settle.Record, error) {
	out := make([]settle.Record, 0, len(c.Writes))
	for i := range c.Writes {
		w := &c.Writes[i]
		var o *row
		var err error
		switch {
		case w.IfVersion == 0:
		case i == 0 && locked != nil:
			o = locked
		default:
			o, err = loadRow(ctx, q, q.s.d.row, w.Record.ID)
		}
		if err == nil && w.IfVersion > 0 {
			err = guard(ctx, q, w, o, now)
		}
		var r settle.Record
		if err == nil {
			r, err = put(ctx, q, c.ID, w, o, now)
		}
		if err == nil {
			out = append(out, r)
			continue
		}
		if q.s.class(err) == duplicate {
			inserted := o == nil && r.ID != ""
			err = conflict(ctx, q, &w.Record, o != nil || inserted)
			if repeated(err, w, now) {
				return nil, errRestart
			}
			if r.ID != "" {
				return nil, err // this very run wrote the row: the id of c in it proves nothing
			}
		}
		if i == 0 && errors.Is(err, settle.ErrConflict) {
			// In the way of itself, because it was applied before? (S26)
			was, lookErr := applied(ctx, q, c)
			if lookErr != nil {
				return nil, lookErr
			}
			if was {
				if out, err = current(ctx, q, c); err == nil {
					err = errReplay
				}
				return out, err
			}
		}
		return nil, err
	}
	return out, nil
}

// guard checks what w says about the stored record (S21, S22).
func guard(ctx context.Context, q runner, w *settle.Write, o *row, now int64) error {
	switch {
	case o == nil:
		return settle.ErrNotFound
	case o.version != w.IfVersion, w.IfToken != "" && (w.IfToken != o.token || !o.due.Valid || o.due.Int64 <= now):
		existing, err := q.s.get(ctx, q, settle.ByID(w.Record.ID))
		if err != nil {
			return err
		}
		return &settle.ConflictError{Existing: existing}
	case o.err != nil:
		return fmt.Errorf("settle/sqlstore: operation %s: %w", w.Record.ID, o.err)
	}
	return nil
}

// put writes one record, its references and its entry. The record that it
// returns with an error is the zero Record if no row of it was written.
func put(ctx context.Context, q runner, id string, w *settle.Write, o *row, now int64) (settle.Record, error) {
	d := &q.s.d
	r := w.Record
	r.Version = w.IfVersion + 1
	r.CreatedAt, r.UpdatedAt = instant(now), instant(now)
	var due sql.NullInt64
	if o != nil {
		r.CreatedAt, due = o.old.CreatedAt, o.due
	}
	switch {
	case w.DueIn >= 0:
		due = sql.NullInt64{Int64: now + w.DueIn.Microseconds(), Valid: true}
	case w.DueIn == settle.Keep:
	default:
		due = sql.NullInt64{}
	}
	body, err := settle.EncodeRecord(r)
	if err != nil {
		return settle.Record{}, failed("encode", err)
	}
	var n int64
	var had []string
	if o == nil {
		res, err := q.exec(ctx, d.insert, bytesOf(r.ID), bytesOf(r.Scope), bytesOf(r.Kind), bytesOf(r.Key), bytesOf(r.Subject),
			bytesOf(r.Purpose), retired(&r), hold(&r), string(r.State), r.Version, bytesOf(r.Token), due,
			now, now, body, payload(r.Request), payload(r.Result), bytesOf(id), settle.EncodeEntry(w.Entry))
		if err != nil {
			return settle.Record{}, failed("insert", err)
		}
		if n, err = res.LastInsertId(); err != nil {
			return r, failed("insert", err)
		}
	} else {
		n, had = o.n, o.old.OwnedRefs()
		text, args := d.update, append(make([]any, 0, 12), string(r.State), r.Version, bytesOf(r.Token), due, now,
			body, payload(r.Request), payload(r.Result))
		if r.Version == 2 {
			text, args = d.update2, append(args, bytesOf(id), now, settle.EncodeEntry(w.Entry))
		}
		if _, err := q.exec(ctx, text, append(args, n)...); err != nil {
			return r, failed("update", err)
		}
		// Written only when they change: indexes cost a page each.
		if !sameNames(&r, &o.old) {
			if _, err := q.exec(ctx, d.rename, bytesOf(r.Scope), bytesOf(r.Kind), bytesOf(r.Key), bytesOf(r.Subject),
				bytesOf(r.Purpose), retired(&r), hold(&r), n); err != nil {
				return r, failed("update names", err)
			}
		}
	}
	if err := putRefs(ctx, q, n, &r, o, had); err != nil {
		return r, err
	}
	if r.Version > 2 {
		if _, err := q.exec(ctx, d.addEntry, n, r.Version, bytesOf(id), now, settle.EncodeEntry(w.Entry)); err != nil {
			return r, failed("insert history", err)
		}
	}
	// What is returned went through the stored form, so that it is what everybody
	// else will read (IC-30), and shares nothing with the caller's record.
	out, err := settle.DecodeRecord(body, clone(r.Request), clone(r.Result))
	if err != nil {
		return r, failed("encode", err)
	}
	out.Version, out.Token, out.AsOf = r.Version, r.Token, instant(now)
	if due.Valid {
		out.Due = instant(due.Int64)
	}
	return out, nil
}

func putRefs(ctx context.Context, q runner, n int64, r *settle.Record, o *row, had []string) error {
	has := r.OwnedRefs()
	if o != nil && sameRefs(has, r, had, &o.old) {
		return nil
	}
	moved := o != nil && (o.old.Account != r.Account || o.old.Kind != r.Kind)
	for _, ref := range had {
		if moved || !slices.Contains(has, ref) {
			if _, err := q.exec(ctx, q.s.d.dropRef, bytesOf(o.old.Account), bytesOf(o.old.Kind), bytesOf(ref), n); err != nil {
				return failed("delete reference", err)
			}
		}
	}
	for _, ref := range has {
		if moved || !slices.Contains(had, ref) {
			if _, err := q.exec(ctx, q.s.d.addRef, bytesOf(r.Account), bytesOf(r.Kind), bytesOf(ref), n); err != nil {
				return failed("insert reference", err)
			}
		}
	}
	return nil
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
