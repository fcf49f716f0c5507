package memstore

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

// maxIdentity bounds every part of an identity, in bytes. The core refuses
// longer ones before a store sees them; here it catches a core that does not.
const maxIdentity = 255

// Commit implements [settle.Store]. A hook that panics, or ends its goroutine,
// has failed: nothing is written.
func (s *Store) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	recs, now, replayed, err := s.commit(ctx, c)
	if err != nil {
		return nil, err
	}
	return answer(c, recs, now, replayed), nil
}

func (s *Store) commit(ctx context.Context, c settle.Change) ([]*settle.Record, time.Time, bool, error) {
	if err := s.lock(ctx); err != nil {
		return nil, time.Time{}, false, err
	}
	if c.Hook != nil {
		return s.commitHook(ctx, c)
	}
	defer s.mu.Unlock()
	recs, now, replayed, err := s.apply(c)
	s.keep()
	return recs, now, replayed, err
}

// answer is what a Commit returns: what was written is the caller's own, with the stored bookkeeping;
// what was written before is copied.
func answer(c settle.Change, recs []*settle.Record, now time.Time, replayed bool) []settle.Record {
	if replayed {
		return copies(recs, now)
	}
	out := make([]settle.Record, len(recs))
	for i, r := range recs {
		out[i] = c.Writes[i].Record
		out[i].Version, out[i].Due, out[i].CreatedAt, out[i].UpdatedAt, out[i].AsOf = r.Version, r.Due, r.CreatedAt, r.UpdatedAt, r.AsOf
	}
	return out
}

// commitHook applies c and keeps every other caller out while the hook runs. It
// is called with s.mu locked and unlocks it.
func (s *Store) commitHook(ctx context.Context, c settle.Change) ([]*settle.Record, time.Time, bool, error) {
	t := s.begin()
	good := false
	defer func() { t.end(good) }()
	recs, now, replayed, err := func() ([]*settle.Record, time.Time, bool, error) {
		defer s.mu.Unlock()
		return s.apply(c)
	}()
	if err == nil && !replayed {
		err = call(ctx, c.Hook, t)
	}
	good = err == nil
	return recs, now, replayed, err
}

// call runs the hook; its failure or panic is a *settle.HookError.
func call(ctx context.Context, hook func(context.Context, settle.Tx) error, t *tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			// The value may quote a payload: only its type is told (I16).
			err = &settle.HookError{Err: errors.New("memstore: the hook panicked with a " + reflect.TypeOf(p).String())}
		}
	}()
	if err := hook(ctx, t); err != nil {
		return &settle.HookError{Err: err}
	}
	return nil
}

// InTx runs fn in a transaction of the application: what it writes through the
// Tx commits together when fn returns nil, else nothing does. It stands in for a
// database's transaction in tests of what registers operations that way. Other
// callers of the store wait until fn returns, or give up with their context, or
// after five seconds with settle.ErrUncommitted, as fn itself does if it calls the store.
func (s *Store) InTx(ctx context.Context, fn func(settle.Tx) error) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	t := s.begin()
	s.mu.Unlock()
	good := false
	defer func() { t.end(good) }()
	if err := fn(t); err != nil {
		return err
	}
	good = true
	return nil
}

// tx is the open transaction: its writes are in the maps already, and in s.undo
// until it ends.
type tx struct {
	s     *Store
	ended bool
}

var errEnded = errors.New("memstore: the transaction has ended")

// begin opens the transaction; s.mu is locked and there is no other.
func (s *Store) begin() *tx {
	s.busy = make(chan struct{})
	return &tx{s: s}
}

// end closes the transaction and lets the others in; s.mu is not locked.
func (t *tx) end(good bool) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	if !good {
		s.rollback(0)
	}
	s.keep()
	close(s.busy)
	s.busy = nil
}

// Get implements [settle.Tx].
func (t *tx) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	if err := ctx.Err(); err != nil {
		return settle.Record{}, err
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.ended {
		return settle.Record{}, errEnded
	}
	rec, now, err := t.s.find(by)
	if err != nil {
		return settle.Record{}, err
	}
	return copyOf(rec, now), nil
}

// Commit implements [settle.Tx].
func (t *tx) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.ended {
		return nil, errEnded
	}
	if c.Hook != nil {
		return nil, invalid("commit", "Change.Hook")
	}
	recs, now, replayed, err := t.s.apply(c)
	if err != nil {
		return nil, err
	}
	return answer(c, recs, now, replayed), nil
}

// Unwrap implements [settle.Tx]: there is nothing beneath.
func (t *tx) Unwrap() any { return nil }

// apply makes the writes of c, all or none. It is called with s.mu locked and
// leaves what it did in s.undo; readers are kept out until that is dropped.
func (s *Store) apply(c settle.Change) (recs []*settle.Record, now time.Time, replayed bool, err error) {
	if field := problem(c); field != "" {
		return nil, now, false, invalid("commit", field)
	}
	now = s.now()
	recs = make([]*settle.Record, len(c.Writes))
	if r := s.rows[c.Writes[0].Record.ID]; r != nil && r.wrote(c.ID) { // S26
		for i := range c.Writes {
			r := s.rows[c.Writes[i].Record.ID]
			if r == nil {
				return nil, now, false, invalid("commit", "Change.ID") // another change had it
			}
			recs[i] = r.rec
		}
		return recs, now, true, nil
	}
	mark := len(s.undo)
	for i := range c.Writes {
		if recs[i], err = s.write(&c.Writes[i], c.ID, now); err != nil {
			s.rollback(mark)
			var x *settle.ConflictError // what this change wrote before is nobody's any more
			if errors.As(err, &x) && x.Index.Name == "" {
				if r := s.rows[x.Existing.ID]; r != nil {
					x.Existing = copyOf(r.rec, now)
				}
			}
			return nil, now, false, err
		}
	}
	return recs, now, false, nil
}

// write makes one write, if nothing stands against it.
func (s *Store) write(w *settle.Write, id string, now time.Time) (*settle.Record, error) {
	r := s.rows[w.Record.ID]
	var old *settle.Record
	switch {
	case w.IfVersion == 0 && r != nil:
		return nil, &settle.ConflictError{Index: settle.ByID(r.id), Existing: copyOf(r.rec, now)}
	case w.IfVersion == 0:
		r = &row{id: w.Record.ID, history: make([]settle.Entry, 0, 2)} // most have two: sent and answered
	case r == nil:
		return nil, settle.ErrNotFound
	default:
		old = r.rec
		if old.Version != w.IfVersion || w.IfToken != "" && !holds(old, w.IfToken, now) {
			return nil, &settle.ConflictError{Existing: copyOf(old, now)}
		}
	}
	names := w.Record.Names()
	if i := shared(names, r.names); i == len(names) && i == len(r.names) {
		names = r.names
	} else {
		for _, n := range names[i:] {
			if owner := s.names[n]; owner != nil && owner != r {
				return nil, &settle.ConflictError{Index: n, Existing: copyOf(owner.rec, now)}
			}
		}
	}

	rec := kept(&w.Record, old)
	rec.Version, rec.UpdatedAt, rec.AsOf = w.IfVersion+1, now, now
	if old == nil {
		rec.CreatedAt, rec.Due = now, time.Time{}
	} else {
		rec.CreatedAt, rec.Due = old.CreatedAt, old.Due // a renewal may have moved Due since the caller read it
	}
	switch {
	case w.DueIn == settle.Never:
		rec.Due = time.Time{}
	case w.DueIn >= 0:
		rec.Due = later(now, w.DueIn)
	}

	if old == nil {
		s.rows[r.id] = r
		s.tidy = s.tidy && (len(s.order) == 0 || s.order[len(s.order)-1].id < r.id)
		s.order = append(s.order, r)
	}
	s.undo = append(s.undo, change{row: r, rec: old, names: r.names})
	s.put(r, rec, names)
	e := w.Entry
	e.Seq, e.Operation, e.Write, e.At, e.Alarms = rec.Version, rec.ID, id, now, slices.Clone(e.Alarms)
	r.history = append(r.history, e)
	return rec, nil
}

// kept is the copy of r that is stored. It shares the request with the record that it replaces, if that
// is the same: nothing that is stored is ever changed.
func kept(r, old *settle.Record) *settle.Record {
	out := *r
	same := old != nil && len(r.Request) > 0 && bytes.Equal(old.Request, r.Request)
	if same {
		out.Request = nil
	}
	out = out.Clone()
	if same {
		out.Request = old.Request
	}
	return &out
}

// rollback takes back what was done since there were mark changes.
func (s *Store) rollback(mark int) {
	for i := len(s.undo) - 1; i >= mark; i-- {
		u := &s.undo[i]
		r := u.row
		s.put(r, u.rec, u.names)
		r.history[len(r.history)-1] = settle.Entry{}
		r.history = r.history[:len(r.history)-1]
		if u.rec == nil {
			delete(s.rows, r.id)
			s.order[len(s.order)-1] = nil // List, which sorts, was kept out
			s.order = s.order[:len(s.order)-1]
		}
	}
	clear(s.undo[mark:])
	s.undo = s.undo[:mark]
}

// keep makes what was done final.
func (s *Store) keep() {
	clear(s.undo)
	s.undo = s.undo[:0]
}

// wrote reports whether the change with that id wrote r.
func (r *row) wrote(id string) bool {
	for i := len(r.history) - 1; i >= 0; i-- { // a repeat comes soon after
		if r.history[i].Write == id {
			return true
		}
	}
	return false
}

// problem names what is wrong with c, whatever is stored.
func problem(c settle.Change) string {
	if c.ID == "" {
		return "Change.ID"
	}
	if len(c.Writes) == 0 {
		return "Change.Writes"
	}
	for i := range c.Writes {
		w := &c.Writes[i]
		r := &w.Record
		switch {
		case r.ID == "" || len(r.ID) > maxIdentity:
			return "Record.ID"
		case len(r.Scope) > maxIdentity:
			return "Record.Scope"
		case len(r.Kind) > maxIdentity:
			return "Record.Kind"
		case len(r.Key) > maxIdentity:
			return "Record.Key"
		case len(r.Subject) > maxIdentity:
			return "Record.Subject"
		case len(r.Purpose) > maxIdentity:
			return "Record.Purpose"
		case len(r.Hold) > maxIdentity:
			return "Record.Hold"
		case w.IfVersion < 0:
			return "Write.IfVersion"
		case w.IfVersion == 0 && w.IfToken != "":
			return "Write.IfToken" // there is no stored token to compare
		case w.DueIn < settle.Never:
			return "Write.DueIn"
		}
	}
	return ""
}

func invalid(do, field string) error {
	return &settle.Error{Do: do, Fields: []string{field}, Err: settle.ErrInvalid}
}
