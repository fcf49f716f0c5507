package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/settle-go/settle"
)

// Commit implements settle.Store.
func (s *Store) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if err := valid(&c); err != nil {
		return nil, err
	}
	t, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer t.close()
	out, repeat, err := t.apply(&c)
	if err != nil || repeat {
		return out, err
	}
	applied := func(t *step) bool { return t.applied(&c) }
	if c.Hook != nil {
		if err := runHook(ctx, c.Hook, s.In(t.tx)); err != nil {
			return nil, &settle.HookError{Err: err}
		}
		if t.ended() { // the hook has, by committing or by rolling back
			was, err := s.look(applied)
			if err != nil || !was {
				return nil, &settle.HookError{Err: errors.Join(errEnded, err)}
			}
			return out, nil
		}
	}
	if err := s.finish(ctx, t, applied); err != nil {
		return nil, err
	}
	return out, nil
}

// runHook turns a panic into an error that does not quote it (I16).
func runHook(ctx context.Context, hook func(context.Context, settle.Tx) error, tx settle.Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("boltstore: the hook panicked with a %T", p)
		}
	}()
	return hook(ctx, tx)
}

// In makes a settle.Tx of a writing transaction of the application on the store's
// database, which the application commits or rolls back itself. A Commit that is refused
// leaves nothing in it, so it may go on. Unwrap returns the *bbolt.Tx.
func (s *Store) In(tx *bbolt.Tx) settle.Tx { return &appTx{s: s, tx: tx} }

type appTx struct {
	s  *Store
	tx *bbolt.Tx
}

// Unwrap implements settle.Tx.
func (a *appTx) Unwrap() any { return a.tx }

// step starts a step of its own time in the transaction.
func (a *appTx) step(ctx context.Context) (*step, error) {
	t := &step{tx: a.tx, now: clock()}
	if t.ended() {
		return nil, errEnded
	}
	return t, a.s.usable(ctx)
}

// Get implements settle.Tx.
func (a *appTx) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	t, err := a.step(ctx)
	if err != nil {
		return settle.Record{}, err
	}
	return t.find(by)
}

// Commit implements settle.Tx.
func (a *appTx) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if c.Hook != nil {
		return nil, invalid("a change inside a transaction has no hook")
	}
	if err := valid(&c); err != nil {
		return nil, err
	}
	t, err := a.step(ctx)
	if err != nil {
		return nil, err
	}
	out, _, err := t.apply(&c)
	return out, err
}

func valid(c *settle.Change) error {
	if c.ID == "" || len(c.Writes) == 0 {
		return invalid("a change without id or writes")
	}
	for i := range c.Writes {
		w := &c.Writes[i]
		if w.Record.ID == "" || w.IfVersion < 0 || w.IfVersion == 0 && w.IfToken != "" || w.DueIn < settle.Never {
			return invalid("a write without id, or with a condition or a due that cannot be")
		}
	}
	return nil
}

// applied reports whether c was committed before.
func (t *step) applied(c *settle.Change) bool {
	return t.bucket(bucketChange).Get(join(c.Writes[0].Record.ID, c.ID)) != nil
}

// apply makes the writes of c, all or none. repeat: it was applied before, and this is how
// its records are now (S26). bbolt lets one writer in at a time, so callers that
// come together are as good as callers that come one after the other.
func (t *step) apply(c *settle.Change) (out []settle.Record, repeat bool, err error) {
	repeat = t.applied(c)
	mark := len(t.undo)
	for i := range c.Writes {
		var r settle.Record
		if repeat {
			r, err = t.record(c.Writes[i].Record.ID)
		} else {
			r, err = t.write(c.ID, &c.Writes[i])
		}
		if err != nil {
			return nil, false, errors.Join(err, t.back(mark))
		}
		out = append(out, r)
	}
	return out, repeat, nil
}

// write makes one write, if nothing stands against it. What stands against it is told
// before anything is written; what earlier writes of the change did is seen (S24).
func (t *step) write(change string, w *settle.Write) (settle.Record, error) {
	id := w.Record.ID
	old, err := t.record(id)
	exists := err == nil
	if err != nil && (w.IfVersion > 0 || !errors.Is(err, settle.ErrNotFound)) {
		return settle.Record{}, err // ErrNotFound too (S21)
	}
	switch {
	case exists && w.IfVersion == 0:
		return settle.Record{}, &settle.ConflictError{Index: settle.ByID(id), Existing: old}
	case exists && old.Version != w.IfVersion,
		w.IfToken != "" && !t.claim(id).holds(w.IfToken, t.now):
		return settle.Record{}, &settle.ConflictError{Existing: old}
	}
	names := w.Record.Names()
	for _, n := range names[1:] { // the first is the id
		if owner := t.owner(n); owner != "" && owner != id {
			existing, err := t.record(owner)
			if err != nil {
				return settle.Record{}, err
			}
			return settle.Record{}, &settle.ConflictError{Index: n, Existing: existing}
		}
	}

	r := w.Record
	r.Version, r.UpdatedAt, r.AsOf = w.IfVersion+1, t.now, t.now
	r.CreatedAt, r.Due = t.now, time.Time{}
	if exists {
		r.CreatedAt, r.Due = old.CreatedAt, old.Due // the stored ones, whatever the caller read (S20)
	}
	switch {
	case w.DueIn == settle.Never:
		r.Due = time.Time{}
	case w.DueIn >= 0:
		r.Due = t.later(w.DueIn)
	}
	if err := t.store(&r); err != nil {
		return settle.Record{}, err
	}
	if err := t.move(id, old.Kind, old.Due, r.Kind, r.Due); err != nil {
		return settle.Record{}, err
	}
	if err := t.rename(&old, exists, names); err != nil {
		return settle.Record{}, err
	}
	if err := t.put(bucketHistory, historyKey(id, r.Version), encodeEntry(w.Entry, t.now, change)); err != nil {
		return settle.Record{}, err
	}
	if err := t.put(bucketChange, join(id, change), []byte{}); err != nil {
		return settle.Record{}, err
	}
	return t.record(id) // as everybody will read it (S3, S28)
}

// store puts the record, its payloads and its claim under its id.
func (t *step) store(r *settle.Record) error {
	body, err := settle.EncodeRecord(*r)
	if err != nil {
		return err
	}
	key := []byte(r.ID)
	return errors.Join(
		t.put(bucketRecord, key, body),
		// The caller's payloads are copied: bbolt reads them when the transaction commits (S3).
		t.put(bucketRequest, key, bytes.Clone(r.Request)),
		t.put(bucketResult, key, bytes.Clone(r.Result)),
		t.put(bucketClaim, key, claim{r.Version, r.Due, r.Token}.encode()),
	)
}

// move takes a record from one place in the order of what is due to another.
func (t *step) move(id, kind string, due time.Time, newKind string, newDue time.Time) error {
	if !due.IsZero() {
		if err := t.put(bucketDue, dueKey(kind, due, id), nil); err != nil {
			return err
		}
	}
	if newDue.IsZero() {
		return nil
	}
	return t.put(bucketDue, dueKey(newKind, newDue, id), []byte{})
}

// rename takes the names that a record gave up from it, and gives it its new ones.
func (t *step) rename(old *settle.Record, exists bool, names []settle.Index) error {
	var had []settle.Index
	if exists {
		had = old.Names()
	}
	if slices.Equal(had, names) {
		return nil
	}
	var errs []error
	for _, n := range had {
		if n.Name != settle.IndexID {
			errs = append(errs, t.put(bucketName, nameKey(n), nil))
		}
	}
	for _, n := range names[1:] {
		errs = append(errs, t.put(bucketName, nameKey(n), []byte(names[0].Parts[0])))
	}
	return errors.Join(errs...)
}

// later is d from now, cut to what the store keeps (S2).
func (t *step) later(d time.Duration) time.Time { return t.now.Add(d.Truncate(time.Microsecond)) }
