// Package memstore keeps records in memory. It is the reference for what a
// [settle.Store] does, and the store of unit tests, examples and simulations:
// every clause of the contract but S7 holds (the records die with the process),
// so it must never stand behind a real provider.
//
// A Store starts no goroutine and waits on channels only while a hook or a
// transaction of the application is open, so it works inside a testing/synctest
// bubble, on the bubble's clock.
package memstore

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/settle-go/settle"
)

var _ settle.Store = (*Store)(nil)

// Options are for New. The zero value is right for most.
type Options struct {
	// Clock is the store's own clock, the one that judges leases. Defaults to the
	// system's. It must not call the store.
	Clock settle.Clock
}

// Store is a settle.Store in memory. It is safe for concurrent use.
type Store struct {
	clock settle.Clock // nil: the system's

	mu    sync.Mutex
	rows  map[string]*row       // by id
	names map[settle.Index]*row // by every other name
	due   map[string]*queue     // by kind; only rows with a Due
	order []*row                // for List
	tidy  bool                  // order is in ascending order of id
	undo  []change              // what the step in progress did, oldest first
	busy  chan struct{}         // closed when the open transaction ends; nil: there is none
}

// row is one operation. A stored record is never modified, only replaced, so
// that readers copy it outside the lock.
type row struct {
	id      string
	rec     *settle.Record // nil: the creation was undone
	names   []settle.Index
	history []settle.Entry
	pos     int // in its queue
}

// change is what takes one write back.
type change struct {
	row   *row
	rec   *settle.Record
	names []settle.Index
}

// New returns an empty store. opts may be nil.
func New(opts *Options) *Store {
	s := &Store{
		rows:  map[string]*row{},
		names: map[settle.Index]*row{},
		due:   map[string]*queue{},
		tidy:  true,
	}
	if opts != nil {
		s.clock = opts.Clock
	}
	return s
}

// LocalReads implements [settle.Local].
func (s *Store) LocalReads() bool { return true }

// Get implements [settle.Store].
func (s *Store) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	rec, now, err := s.get(ctx, by)
	if err != nil {
		return settle.Record{}, err
	}
	return copyOf(rec, now), nil
}

func (s *Store) get(ctx context.Context, by settle.Index) (*settle.Record, time.Time, error) {
	if err := s.lock(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer s.mu.Unlock()
	return s.find(by)
}

// Version implements [settle.Versioner].
func (s *Store) Version(ctx context.Context, id string) (settle.Record, error) {
	rec, now, err := s.get(ctx, settle.ByID(id))
	if err != nil {
		return settle.Record{}, err
	}
	return settle.Record{ID: rec.ID, Version: rec.Version, UpdatedAt: rec.UpdatedAt, AsOf: now}, nil
}

// Claim implements [settle.Store].
func (s *Store) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	claimed, now, err := s.claim(ctx, c)
	if err != nil {
		return nil, err
	}
	return copies(claimed, now), nil
}

func (s *Store) claim(ctx context.Context, c settle.Claim) ([]*settle.Record, time.Time, error) {
	if err := s.lock(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer s.mu.Unlock()
	if c.Token == "" {
		return nil, time.Time{}, invalid("claim", "Claim.Token")
	}
	if c.Lease < time.Microsecond {
		return nil, time.Time{}, invalid("claim", "Claim.Lease")
	}
	now := s.now()
	var out []*settle.Record
	var others []*row
	if len(c.Except) > 0 {
		others = s.others(c, now)
	}
	for len(out) < c.Limit {
		var r *row
		switch {
		case len(c.Except) == 0:
			r = s.earliest(c.Kinds)
		case len(out) < len(others):
			r = others[len(out)]
		}
		if r == nil || r.rec.Due.After(now) {
			break
		}
		next := *r.rec
		next.Token, next.Due, next.Version = c.Token, later(now, c.Lease), next.Version+1
		s.put(r, &next, r.names)
		out = append(out, &next)
	}
	return out, now, nil
}

// earliest is the row of kinds that is, or will be, due first. Ties go by id,
// so that runs on a frozen clock repeat.
func (s *Store) earliest(kinds []string) *row {
	var first *row
	for _, k := range kinds {
		if q := s.due[k]; q != nil && len(*q) > 0 && (first == nil || before((*q)[0], first)) {
			first = (*q)[0]
		}
	}
	return first
}

// others lists the rows that are due but for those of scopes that c leaves out, in the order of
// earliest. It costs what is due.
func (s *Store) others(c settle.Claim, now time.Time) []*row {
	var out []*row
	kinds := slices.Compact(slices.Sorted(slices.Values(c.Kinds)))
	for _, k := range kinds {
		q := s.due[k]
		if q == nil {
			continue
		}
		for _, r := range *q {
			if !r.rec.Due.After(now) && !slices.Contains(c.Except, r.rec.Scope) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b *row) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	return out
}

// Renew implements [settle.Store].
func (s *Store) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if lease < time.Microsecond {
		return nil, invalid("renew", "lease")
	}
	now, out := s.now(), make([]error, len(held))
	for i, h := range held {
		r := s.rows[h.ID]
		if r == nil || !holds(r.rec, h.Token, now) {
			out[i] = settle.ErrClaimLost
			continue
		}
		next := *r.rec
		next.Due = later(now, lease)
		s.put(r, &next, r.names)
	}
	return out, nil
}

// holds reports whether token has a live claim on rec.
func holds(rec *settle.Record, token string, now time.Time) bool {
	return token != "" && rec.Token == token && rec.Due.After(now)
}

// List implements [settle.Store].
func (s *Store) List(ctx context.Context, q settle.Query) ([]settle.Record, error) {
	found, now, err := s.list(ctx, q)
	if err != nil {
		return nil, err
	}
	return copies(found, now), nil
}

func (s *Store) list(ctx context.Context, q settle.Query) ([]*settle.Record, time.Time, error) {
	if err := s.lock(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer s.mu.Unlock()
	now, limit := s.now(), q.Limit
	if limit <= 0 {
		limit = 100
	}
	rows := s.ordered()
	if q.Overdue > 0 {
		rows = s.overdue(now.Add(-q.Overdue))
	}
	if q.After != "" {
		i, found := slices.BinarySearchFunc(rows, q.After, func(r *row, id string) int { return compare(r.id, id) })
		if found {
			i++
		}
		rows = rows[i:]
	}
	var out []*settle.Record
	for _, r := range rows {
		if len(out) == limit {
			break
		}
		if (q.Scope == "" || r.rec.Scope == q.Scope) && (q.Kind == "" || r.rec.Kind == q.Kind) &&
			(q.Subject == "" || r.rec.Subject == q.Subject) &&
			(len(q.States) == 0 || slices.Contains(q.States, r.rec.State)) {
			out = append(out, r.rec)
		}
	}
	return out, now, nil
}

func (s *Store) ordered() []*row {
	if !s.tidy {
		slices.SortFunc(s.order, func(a, b *row) int { return compare(a.id, b.id) })
		s.tidy = true
	}
	return s.order
}

// overdue lists, by id, the rows whose Due was before t. It costs what is due,
// not what is stored.
func (s *Store) overdue(t time.Time) []*row {
	var out []*row
	for _, q := range s.due {
		for _, r := range *q {
			if r.rec.Due.Before(t) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b *row) int { return compare(a.id, b.id) })
	return out
}

// History implements [settle.Store].
func (s *Store) History(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	r := s.rows[id]
	if r == nil || limit <= 0 {
		return nil, nil
	}
	i, _ := slices.BinarySearchFunc(r.history, after+1, func(e settle.Entry, seq int64) int { return compare(e.Seq, seq) })
	out := slices.Clone(r.history[i:min(len(r.history), i+limit)])
	for i := range out {
		out[i].Alarms = slices.Clone(out[i].Alarms)
	}
	return out, nil
}

// lockWait bounds how long a call waits for an open hook or transaction, perhaps
// its own caller's.
const lockWait = 5 * time.Second

// lock takes s.mu when no transaction is open, or gives up with ctx (S5), or
// with ErrUncommitted.
func (s *Store) lock(ctx context.Context) error {
	var late <-chan time.Time
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		busy := s.busy
		if busy == nil {
			return nil
		}
		s.mu.Unlock()
		if late == nil {
			timer := time.NewTimer(lockWait)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-busy:
		case <-ctx.Done():
		case <-late:
			return settle.ErrUncommitted
		}
	}
}

// now is the store's time, in the whole microseconds that every store keeps.
func (s *Store) now() time.Time {
	t := time.Now()
	if s.clock != nil {
		t = s.clock.Now()
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

func later(now time.Time, d time.Duration) time.Time { return now.Add(d.Truncate(time.Microsecond)) }

// find returns the row's record as it is stored; the caller copies it.
func (s *Store) find(by settle.Index) (*settle.Record, time.Time, error) {
	var r *row
	if by == settle.ByID(by.Parts[0]) {
		r = s.rows[by.Parts[0]]
	} else {
		r = s.names[by]
	}
	if r == nil {
		return nil, time.Time{}, settle.ErrNotFound
	}
	return r.rec, s.now(), nil
}

// copyOf is what leaves the store (S3): read or written at now.
func copyOf(rec *settle.Record, now time.Time) settle.Record {
	out := rec.Clone()
	out.AsOf = now
	return out
}

func copies(recs []*settle.Record, now time.Time) []settle.Record {
	if len(recs) == 0 {
		return nil
	}
	out := make([]settle.Record, len(recs))
	for i, r := range recs {
		out[i] = copyOf(r, now)
	}
	return out
}

func compare[T string | int64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// put makes rec the record of r, and names its names, in every map. A nil rec
// takes r out.
func (s *Store) put(r *row, rec *settle.Record, names []settle.Index) {
	if i := shared(r.names, names); i < max(len(r.names), len(names)) {
		for _, n := range r.names[i:] {
			if n.Name != settle.IndexID {
				delete(s.names, n)
			}
		}
		for _, n := range names[i:] {
			if n.Name != settle.IndexID {
				s.names[n] = r
			}
		}
		r.names = names
	}
	was := r.rec != nil && !r.rec.Due.IsZero()
	is := rec != nil && !rec.Due.IsZero()
	if was && is && r.rec.Kind == rec.Kind {
		moved := !r.rec.Due.Equal(rec.Due)
		r.rec = rec
		if moved {
			heap.Fix(s.due[rec.Kind], r.pos)
		}
		return
	}
	if was {
		heap.Remove(s.due[r.rec.Kind], r.pos)
	}
	r.rec = rec
	if is {
		q := s.due[rec.Kind]
		if q == nil {
			q = new(queue)
			s.due[rec.Kind] = q
		}
		heap.Push(q, r)
	}
}

// shared is how many names a and b begin with in common: as a rule all but the
// last ones, since Names lists the lasting ones first.
func shared(a, b []settle.Index) int {
	n := min(len(a), len(b))
	if n > 0 && &a[0] == &b[0] {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// queue holds the rows of one kind that have a Due, the earliest on top.
type queue []*row

func before(a, b *row) bool {
	if c := a.rec.Due.Compare(b.rec.Due); c != 0 {
		return c < 0
	}
	return a.id < b.id
}

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return before(q[i], q[j]) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].pos, q[j].pos = i, j
}

func (q *queue) Push(x any) {
	r := x.(*row)
	r.pos = len(*q)
	*q = append(*q, r)
}

func (q *queue) Pop() any {
	old := *q
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return r
}
