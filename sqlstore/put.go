package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

// Reasons why a write was refused. Which name has which owner, and what the record is
// now, is read when the transaction is over: some databases answer nothing more in it.
var (
	errTaken = errors.New("settle/sqlstore: a name is taken")
	errMoved = errors.New("settle/sqlstore: the record changed")
)

// slack is for how long an instant that was read before a statement may stand for that
// of the statement, which may have waited for a lock (S4).
const slack = 10 * time.Millisecond

// writing returns the values of one write. They hold for one try: now is set by each.
func (s *Store) writing(id string, w *settle.Write) (*values, error) {
	v := &values{record: &w.Record, id: w.Record.ID, was: w.IfVersion, token: w.Record.Token, ifToken: w.IfToken, write: id, refs: []byte{}, wait: s.lockWait()}
	switch {
	case w.DueIn >= 0:
		v.dueIn = w.DueIn.Microseconds()
	case w.DueIn == settle.Keep && w.IfVersion > 0:
		v.keep = true
	}
	if err := s.encode(v, &w.Entry); err != nil {
		return nil, failed("encode", err)
	}
	if refs := w.Record.OwnedRefs(); len(refs) > 0 {
		v.ref, v.refs = bytesOf(refs[0]), refsSum(&w.Record, refs)
	}
	return v, nil
}

// refsSum stands for a set of references in the guard of an update.
func refsSum(r *settle.Record, refs []string) []byte {
	b := make([]byte, 0, 128)
	for _, s := range append([]string{r.Account, r.Kind}, refs...) {
		b = append(append(b, byte(len(s)>>8), byte(len(s))), s...)
	}
	sum := sha256.Sum256(b)
	return sum[:16]
}

// at sets the instant of a write where the clock is the host's. late is until when the
// statement may begin.
func (v *values) at(now, late int64) {
	v.now, v.late, v.due = now, late, nil
	if in, ok := v.dueIn.(int64); ok {
		v.due = now + in
	}
}

// stamp is what a writing statement did.
type stamp struct {
	now int64
	due sql.NullInt64
	hit bool
}

// effect runs a writing statement.
func (s *Store) effect(ctx context.Context, q runner, text *query, v *values) (st stamp, err error) {
	args := v.list(text.params)
	if s.d.answer == answerRow {
		st.hit, err = q.one(ctx, text, args, func(rows *sql.Rows) error { return rows.Scan(&st.now, &st.due) })
		return st, err
	}
	res, err := q.exec(ctx, text, args...)
	if err != nil {
		return st, err
	}
	st.now = v.now
	if s.d.answer == answerStamp {
		st.now, err = res.LastInsertId()
		st.hit = st.now > 0
	} else {
		var n int64
		n, err = res.RowsAffected()
		st.hit = n > 0
	}
	if in, ok := v.dueIn.(int64); ok {
		st.due = sql.NullInt64{Int64: st.now + in, Valid: true}
	}
	return st, err
}

// put writes one record, its references and its entry, in q's transaction.
func (s *Store) put(ctx context.Context, q runner, v *values) (settle.Record, error) {
	if v.was == 0 {
		st, err := s.effect(ctx, q, &s.q.insert, v)
		switch {
		case err != nil:
			return settle.Record{}, s.refused("insert", err)
		case !st.hit:
			return settle.Record{}, errTaken
		}
		for _, ref := range s.apart(v.record) {
			if err := s.reference(ctx, q, &s.q.addRef, v.record, ref); err != nil {
				return settle.Record{}, err
			}
		}
		return s.written(v, st, st.now)
	}
	if s.guarded(v) {
		st, err := s.effect(ctx, q, &s.q.update, v)
		if err != nil {
			return settle.Record{}, s.refused("update", err)
		}
		if st.hit {
			return s.rest(ctx, q, v, st)
		}
	}
	return s.rewrite(ctx, q, v)
}

// guarded reports whether the guarded update can do the write.
func (s *Store) guarded(v *values) bool {
	return (!v.keep || s.d.answer == answerRow) && (v.ref == nil || len(v.record.OwnedRefs()) == 1)
}

// rest adds what the guarded update could not.
func (s *Store) rest(ctx context.Context, q runner, v *values, st stamp) (settle.Record, error) {
	if !s.d.whole {
		if err := s.entry(ctx, q, v, st.now); err != nil {
			return settle.Record{}, err
		}
	}
	return s.written(v, st, v.record.CreatedAt.UnixMicro())
}

// row is a stored record as a write needs it.
type row struct {
	version, created, now int64
	token                 string
	due                   sql.NullInt64
	old                   settle.Record // without bookkeeping and payloads
	err                   error         // the record is damaged
}

func (s *Store) load(ctx context.Context, q runner, id string) (*row, error) {
	var o row
	found, err := q.one(ctx, &s.q.row, []any{bytesOf(id)}, func(rows *sql.Rows) error {
		var f form
		var token sql.RawBytes
		to := f.to(&s.d, []any{&o.version, &token, &o.due, &o.created, &f.body})
		if s.d.serverClock {
			to = append(to, &o.now)
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		o.token = s.d.text(token)
		o.old, o.err = f.record(&s.d, nil, nil)
		return nil
	})
	if err != nil || !found {
		return nil, err
	}
	return &o, nil
}

// rewrite is the long way: read and lock the row, check it, write all of it.
func (s *Store) rewrite(ctx context.Context, q runner, v *values) (settle.Record, error) {
	o, err := s.load(ctx, q, v.id)
	switch {
	case err != nil:
		return settle.Record{}, s.refused("read", err)
	case o == nil:
		return settle.Record{}, settle.ErrNotFound
	}
	if !s.d.serverClock {
		o.now = v.now
	}
	if o.version != v.was || v.ifToken != "" && (v.ifToken != o.token || !o.due.Valid || o.due.Int64 <= o.now) {
		return settle.Record{}, errMoved
	}
	if o.err != nil {
		return settle.Record{}, fmt.Errorf("settle/sqlstore: operation %s: %w", v.id, o.err)
	}
	if v.keep && o.due.Valid {
		v.due = o.due.Int64
	}
	if err := s.dropRefs(ctx, q, v.record, &o.old); err != nil {
		return settle.Record{}, err
	}
	st, err := s.effect(ctx, q, &s.q.rewrite, v)
	switch {
	case err != nil:
		return settle.Record{}, s.refused("update", err)
	case !st.hit:
		return settle.Record{}, errMoved // by whom, on a row that is locked? Then look again
	}
	if v.keep {
		st.due = o.due
	}
	if err := s.addRefs(ctx, q, v.record, &o.old); err != nil {
		return settle.Record{}, err
	}
	if err := s.entry(ctx, q, v, st.now); err != nil {
		return settle.Record{}, err
	}
	return s.written(v, st, o.created)
}

// entry adds the history entry unless the operation's row holds it.
func (s *Store) entry(ctx context.Context, q runner, v *values, now int64) error {
	if v.was < 2 {
		return nil
	}
	v.now = now
	if _, err := q.exec(ctx, &s.q.addEntry, v.list(s.q.addEntry.params)...); err != nil {
		return s.refused("insert history", err)
	}
	return nil
}

// apart are the references of r that its row does not hold.
func (s *Store) apart(r *settle.Record) []string {
	refs := r.OwnedRefs()
	if s.d.refInRow && len(refs) > 0 {
		return refs[1:]
	}
	return refs
}

// changed returns those of has, of r, that had, of old, is without.
func changed(r, old *settle.Record, has, had []string) (out []string) {
	moved := old.Account != r.Account || old.Kind != r.Kind
	for _, ref := range has {
		if moved || !slices.Contains(had, ref) {
			out = append(out, ref)
		}
	}
	return out
}

// dropRefs takes away the stored references of old that r is without. It comes before r is written, whose row may now
// hold one that was apart.
func (s *Store) dropRefs(ctx context.Context, q runner, r, old *settle.Record) error {
	for _, ref := range changed(r, old, s.apart(old), s.apart(r)) {
		v := values{record: old, id: r.ID, ref: bytesOf(ref)}
		if _, err := q.exec(ctx, &s.q.dropRef, v.list(s.q.dropRef.params)...); err != nil {
			return s.refused("delete reference", err)
		}
	}
	return nil
}

// addRefs stores the references of r that old, which was stored, is without.
func (s *Store) addRefs(ctx context.Context, q runner, r, old *settle.Record) error {
	has, had := s.apart(r), s.apart(old)
	for _, ref := range changed(r, old, has, had) {
		if ref == has[0] && len(had) == 0 && s.d.triggers {
			continue // by the trigger
		}
		if err := s.reference(ctx, q, &s.q.addRef, r, ref); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) reference(ctx context.Context, q runner, text *query, r *settle.Record, ref string) error {
	v := values{record: r, id: r.ID, ref: bytesOf(ref)}
	if _, err := q.exec(ctx, text, v.list(text.params)...); err != nil {
		return s.refused("insert reference", err)
	}
	return nil
}

// refused gives errors of a write their meaning.
func (s *Store) refused(doing string, err error) error {
	if s.class(err) == duplicate {
		return errTaken
	}
	return failed(doing, err)
}

// written returns the record as it is now stored. It went through the stored form, so
// that it is what everybody else will read (IC-30), and shares nothing with the caller's.
func (s *Store) written(v *values, st stamp, created int64) (settle.Record, error) {
	out, err := v.stored(&s.d)
	if err != nil {
		return out, failed("encode", err)
	}
	out.Version, out.Token = v.was+1, v.token
	out.CreatedAt, out.UpdatedAt, out.AsOf = instant(created), instant(st.now), instant(st.now)
	if st.due.Valid {
		out.Due = instant(st.due.Int64)
	}
	return out, nil
}

// never is late enough for a statement that has the lock.
const never = math.MaxInt64
