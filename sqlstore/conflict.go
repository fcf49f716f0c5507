package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/settle-go/settle"
)

// refusal says why the write of c after those that wrote before was refused, when all of c
// is undone: by c's own earlier success (S26), by the record as it is (S21, S22), or by the
// owner of a name (S23). errRestart if nothing stands against it any more.
func (s *Store) refusal(ctx context.Context, q runner, c *settle.Change, before []settle.Record) ([]settle.Record, error) {
	n := len(before)
	if n == 0 {
		was, err := s.applied(ctx, q, c)
		if err != nil {
			return nil, err
		}
		if was {
			return s.current(ctx, q, c)
		}
	}
	w := &c.Writes[n]
	if w.IfVersion > 0 {
		now, err := s.get(ctx, q, settle.ByID(w.Record.ID))
		switch own := made(c, n); {
		case err != nil && (!own || !errors.Is(err, settle.ErrNotFound)): // what c created is not there any more
			return nil, err
		case err == nil && !own && moved(w, &now):
			return nil, &settle.ConflictError{Existing: now}
		}
	}
	for _, name := range w.Record.Names() {
		if i := slices.IndexFunc(before, func(r settle.Record) bool {
			return r.ID != w.Record.ID && slices.Contains(r.Names(), name) && !gaveUp(c, n, r.ID, name)
		}); i >= 0 {
			return nil, &settle.ConflictError{Index: name, Existing: before[i]}
		}
		owner, err := s.get(ctx, q, name)
		switch {
		case errors.Is(err, settle.ErrNotFound), err == nil && (w.IfVersion > 0 && owner.ID == w.Record.ID || gaveUp(c, n, owner.ID, name)):
			continue
		case err != nil:
			return nil, err
		}
		return nil, &settle.ConflictError{Index: name, Existing: owner}
	}
	return nil, errRestart
}

// moved reports whether the record is not what the write takes it for.
func moved(w *settle.Write, now *settle.Record) bool {
	return now.Version != w.IfVersion || w.IfToken != "" && (now.Token != w.IfToken || !now.Due.After(now.AsOf))
}

// made reports whether an earlier write of c made what the nth one builds on.
func made(c *settle.Change, n int) bool {
	return slices.ContainsFunc(c.Writes[:n], func(w settle.Write) bool {
		return w.Record.ID == c.Writes[n].Record.ID && w.IfVersion+1 == c.Writes[n].IfVersion
	})
}

// gaveUp reports whether a write of c before the nth takes the name from its owner (S24).
func gaveUp(c *settle.Change, n int, owner string, name settle.Index) bool {
	for i := n - 1; i >= 0; i-- {
		if w := &c.Writes[i]; w.Record.ID == owner {
			return !slices.Contains(w.Record.Names(), name)
		}
	}
	return false
}

// rival answers a creation that did nothing, as all but the first of one operation do, with one
// read: a conflict with the record that has the same intent and key. Nil if that is not the
// reason, or the change may have been applied before (S26): a transaction finds out.
func (s *Store) rival(ctx context.Context, v *values) error {
	if v.was > 0 || len(s.q.rival.params) == 0 {
		return nil
	}
	name := settle.ByIntent(v.record.Scope, v.record.Kind, v.record.Subject, v.record.Purpose)
	if v.record.Key != "" {
		name = settle.ByKey(v.record.Scope, v.record.Kind, v.record.Key)
	}
	var r settle.Record
	found, err := runner{s: s}.one(ctx, &s.q.rival, v.list(s.q.rival.params), func(rows *sql.Rows) (err error) {
		r, err = s.scan(rows)
		return err
	})
	if err != nil || !found {
		return nil //nolint:nilerr // the long way says what is wrong
	}
	return &settle.ConflictError{Index: name, Existing: r}
}

// answered carries the answer to a change that needs no transaction.
type answered struct{ out []settle.Record }

func (answered) Error() string { return "settle/sqlstore: applied before" }

// needless answers a creation that lost without the write lock, for which it
// would have to wait: with the conflict, or with success if the change was
// applied before. Nil if the lock is needed to tell.
func (s *Store) needless(ctx context.Context, c *settle.Change) error {
	q := runner{s: s}
	v := values{record: &c.Writes[0].Record, id: c.Writes[0].Record.ID}
	taken, err := q.exists(ctx, &s.q.taken, v.list(s.q.taken.params))
	if err != nil || !taken {
		return nil //nolint:nilerr // then the lock is needed
	}
	switch out, err := s.refusal(ctx, q, c, nil); {
	case err == nil:
		return answered{out}
	case errors.Is(err, settle.ErrConflict):
		return err
	}
	return nil
}
