package boltstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

// Claim implements settle.Store. A due record that cannot be read is claimed and left
// out, so that it does not stand in the way of the others; when there is no other,
// Claim returns its error.
func (s *Store) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	if c.Token == "" || c.Lease < time.Microsecond {
		return nil, invalid("a claim without token or lease")
	}
	t, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer t.close()
	due := t.due(c.Kinds, c.Except, c.Limit)
	if len(due) == 0 {
		return nil, nil // and nothing to commit
	}
	var out []settle.Record
	var bad error
	for _, d := range due {
		was := t.claim(d.id)
		now := claim{version: was.version + 1, due: t.later(c.Lease), token: c.Token}
		if err := t.grant(d.kind, d.id, was, now); err != nil {
			return nil, err
		}
		r, err := t.record(d.id)
		if err != nil {
			bad = err
			continue
		}
		out = append(out, r)
	}
	applied := func(t *step) bool { return t.claim(due[0].id).token == c.Token }
	if err := s.finish(ctx, t, applied); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, bad
	}
	return out, nil
}

// Renew implements settle.Store. One transaction renews all claims; each is answered for itself (S42).
func (s *Store) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	if lease < time.Microsecond {
		return nil, invalid("a renewal without lease")
	}
	t, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer t.close()
	out := make([]error, len(held))
	var last *settle.Held
	for i, h := range held {
		out[i] = t.renew(h, lease)
		switch {
		case out[i] == nil:
			last = &held[i]
		case !errors.Is(out[i], settle.ErrClaimLost) && !errors.Is(out[i], settle.ErrCorrupt):
			return nil, out[i]
		}
	}
	if last == nil {
		return out, nil
	}
	end := t.claim(last.ID)
	if err := s.finish(ctx, t, func(t *step) bool { return t.claim(last.ID) == end }); err != nil {
		return nil, err
	}
	return out, nil
}

func (t *step) renew(h settle.Held, lease time.Duration) error {
	r, err := t.record(h.ID)
	if errors.Is(err, settle.ErrNotFound) {
		return settle.ErrClaimLost
	}
	if err != nil {
		return err
	}
	was := t.claim(h.ID)
	if !was.holds(h.Token, t.now) {
		return settle.ErrClaimLost
	}
	now := was
	now.due = t.later(lease)
	return t.grant(r.Kind, h.ID, was, now)
}

// grant replaces a record's claim, and its place in the order of what is due.
func (t *step) grant(kind, id string, was, now claim) error {
	if err := t.move(id, kind, was.due, kind, now.due); err != nil {
		return err
	}
	return t.put(bucketClaim, []byte(id), now.encode())
}

// dueRecord is a line of the bucket of what is due.
type dueRecord struct {
	kind, id string
	due      int64
}

// due lists what is due now, earliest first (S30). To know a scope it has to read the record.
func (t *step) due(kinds, except []string, limit int) []dueRecord {
	var out []dueRecord
	kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	for _, kind := range kinds {
		prefix, n := join(kind), 0
		c := t.bucket(bucketDue).Cursor()
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix) && n < limit; k, _ = c.Next() {
			rest := k[len(prefix):]
			due := number(rest)
			if due > micros(t.now) {
				break
			}
			if r, err := t.record(string(rest[8:])); len(except) > 0 && err == nil && slices.Contains(except, r.Scope) {
				continue
			}
			out = append(out, dueRecord{kind: kind, id: string(rest[8:]), due: due})
			n++
		}
	}
	slices.SortStableFunc(out, func(a, b dueRecord) int { return cmp.Compare(a.due, b.due) })
	return out[:min(len(out), max(limit, 0))]
}
