package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

var _ settle.Tallier = (*Store)(nil)

// Tally implements settle.Tallier. It reads every record.
func (s *Store) Tally(ctx context.Context, overdue time.Duration) ([]settle.Tally, error) {
	type line struct {
		kind  string
		state settle.State
	}
	lines := map[line]*settle.Tally{}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	for _, r := range s.rows {
		x := r.rec
		if x == nil {
			continue
		}
		state := x.State
		if state == settle.StateSubmitting && (x.Due.IsZero() || !x.Due.After(now)) {
			state = settle.StateUnknown
		}
		k := line{x.Kind, state}
		t := lines[k]
		if t == nil {
			t = &settle.Tally{Kind: k.kind, State: k.state, Oldest: x.CreatedAt, Newest: x.CreatedAt, AsOf: now}
			lines[k] = t
		}
		t.Count++
		if x.CreatedAt.Before(t.Oldest) {
			t.Oldest = x.CreatedAt
		}
		if x.CreatedAt.After(t.Newest) {
			t.Newest = x.CreatedAt
		}
		if !x.Due.IsZero() && x.Due.Before(now.Add(-overdue)) {
			t.Overdue++
		}
	}
	out := make([]settle.Tally, 0, len(lines))
	for _, t := range lines {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b settle.Tally) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	return out, nil
}
