package sqltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// TestLinearizabilityBites (S1): stores that break one clause each have histories without an
// order. Some do it always, some now and then, and two only when callers come together.
func TestLinearizabilityBites(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*memory) settle.Store{
		"S21 lost update":              func(m *memory) settle.Store { return lostUpdate{m} },
		"S20 answers before it writes": func(m *memory) settle.Store { return forgetful{m, new(atomic.Int64)} },
		"S10 stale read":               func(m *memory) settle.Store { return &staleRead{memory: m, old: map[settle.Index]settle.Record{}} },
		"S22 any token writes":         func(m *memory) settle.Store { return anyToken{m} },
		"S26 repeat is a new change":   func(m *memory) settle.Store { return newChange{m, new(atomic.Int64)} },
		"S31 claim hands out twice":    func(m *memory) settle.Store { return &claimTwice{memory: m} },
		"S32 claim without a version":  func(m *memory) settle.Store { return silentClaim{m} },
		"S41 renew revives":            func(m *memory) settle.Store { return &revive{memory: m} },
		"S4 clock of each caller":      func(m *memory) settle.Store { return skewed{m} },
		"S60 history loses a line":     func(m *memory) settle.Store { return shortHistory{m} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := load{short: ticks()}.withDefaults()
			const most = 40
			for i := range uint64(most) {
				h := l.record(t, []settle.Store{breaks(newMemory())}, l.seed+i)
				v := h.check()
				if v == nil {
					continue
				}
				if v.result != porcupine.Illegal {
					t.Fatalf("seed %d: the check ended with %s", l.seed+i, v.result)
				}
				report := v.report(t)
				t.Logf("round %d, seed %d: %s", i+1, l.seed+i, report)
				if !strings.Contains(report, "calls have an order") {
					t.Error("the report has no trace")
				}
				return
			}
			t.Errorf("%d histories of a store that breaks %s had an order; seeds from %d", most, name, l.seed)
		})
	}
}

// memory is a store in memory, whose clock a broken one can turn.
type memory struct {
	*memstore.Store
	clock *turnedClock
}

type turnedClock struct {
	tickingClock
	back atomic.Int64
}

func (c *turnedClock) Now() time.Time {
	return c.tickingClock.Now().Add(-time.Duration(c.back.Load()) * time.Microsecond)
}

func newMemory() *memory {
	c := new(turnedClock)
	c.us.Store(1000)
	return &memory{memstore.New(&memstore.Options{Clock: c}), c}
}

func nowAndThen() bool { return rand.IntN(4) == 0 }

// pause lets others come in between.
func pause() {
	for range 10 {
		runtime.Gosched()
	}
}

// lostUpdate compares the version in one step and writes in another.
type lostUpdate struct{ *memory }

func (s lostUpdate) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	w := c.Writes[0]
	r, err := s.Get(ctx, settle.ByID(w.Record.ID))
	if err != nil || r.Version != w.IfVersion || w.IfToken != "" {
		return s.memory.Commit(ctx, c)
	}
	pause()
	for {
		out, err := s.memory.Commit(ctx, c)
		var conflict *settle.ConflictError
		if !errors.As(err, &conflict) {
			if err == nil {
				out[0].Version = r.Version + 1 // as it has it from its own reading
			}
			return out, err
		}
		w.IfVersion = conflict.Existing.Version
		c.Writes = []settle.Write{w}
	}
}

// forgetful says that a write was made which it dropped.
type forgetful struct {
	*memory
	n *atomic.Int64
}

func (s forgetful) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	w := c.Writes[0]
	if r, err := s.Get(ctx, settle.ByID(w.Record.ID)); err == nil && r.Version == w.IfVersion && w.IfToken == "" && s.n.Add(1)%10 == 0 {
		w.Record.Version, w.Record.AsOf, w.Record.Due = r.Version+1, r.AsOf, r.Due
		return []settle.Record{w.Record}, nil
	}
	return s.memory.Commit(ctx, c)
}

// staleRead answers from a cache that nobody empties.
type staleRead struct {
	*memory
	mu  sync.Mutex
	old map[settle.Index]settle.Record
}

func (s *staleRead) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.memory.Get(ctx, by)
	if old, ok := s.old[by]; ok && err == nil && nowAndThen() {
		old.AsOf = r.AsOf
		return old, nil
	}
	if err == nil {
		s.old[by] = r
	}
	return r, err
}

// anyToken compares the version only.
type anyToken struct{ *memory }

func (s anyToken) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	w := c.Writes[0]
	w.IfToken = ""
	c.Writes = []settle.Write{w}
	return s.memory.Commit(ctx, c)
}

// newChange takes a repeat for a change of its own.
type newChange struct {
	*memory
	n *atomic.Int64
}

func (s newChange) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	r, err := s.Get(ctx, settle.ByID(c.Writes[0].Record.ID))
	if err == nil && r.Version != c.Writes[0].IfVersion {
		c.ID = fmt.Sprint(c.ID, " again ", s.n.Add(1)) // unknown to the history: a conflict
	}
	return s.memory.Commit(ctx, c)
}

// claimTwice looks for what is due without keeping others from it: who claims at the same
// time finds the same.
type claimTwice struct {
	*memory
	mu  sync.Mutex
	now *claiming
}

type claiming struct {
	done chan struct{}
	out  []settle.Record
}

func (s *claimTwice) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	s.mu.Lock()
	if f := s.now; f != nil {
		s.mu.Unlock()
		<-f.done
		var out []settle.Record
		for _, r := range f.out {
			r = r.Clone()
			r.Token, r.Due = c.Token, r.AsOf.Add(c.Lease)
			out = append(out, r)
		}
		return out, nil
	}
	f := &claiming{done: make(chan struct{})}
	s.now = f
	s.mu.Unlock()
	pause()
	out, err := s.memory.Claim(ctx, c)
	f.out = out
	s.mu.Lock()
	s.now = nil
	s.mu.Unlock()
	close(f.done)
	return out, err
}

// silentClaim hands out records whose version it does not raise, so that nobody is fenced off.
type silentClaim struct{ *memory }

func (s silentClaim) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	out, err := s.memory.Claim(ctx, c)
	for i := range out {
		out[i].Version--
	}
	return out, err
}

// revive renews a lease that is over, when nobody else has claimed yet.
type revive struct {
	*memory
	mu sync.Mutex
}

func (s *revive) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	out := make([]error, len(held))
	for i, h := range held {
		out[i] = s.renew(ctx, h.ID, h.Token, lease)
	}
	return out, nil
}

func (s *revive) renew(ctx context.Context, id, token string, lease time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := renew(ctx, s.memory, id, token, lease)
	r, gone := s.memory.Get(ctx, settle.ByID(id))
	if !errors.Is(err, settle.ErrClaimLost) || gone != nil || r.Token != token || r.Due.IsZero() {
		return err
	}
	// The lease is judged as if it were still a moment before its end, and then runs from now.
	late := r.AsOf.Sub(r.Due).Microseconds() + 2
	s.clock.back.Store(late)
	defer s.clock.back.Store(0)
	return renew(ctx, s.memory, id, token, lease+time.Duration(late)*time.Microsecond)
}

// The others wait while the clock is turned, so that nothing but the lease is wrong.

func (s *revive) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.Get(ctx, by)
}

func (s *revive) List(ctx context.Context, q settle.Query) ([]settle.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.List(ctx, q)
}

func (s *revive) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.Commit(ctx, c)
}

func (s *revive) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.Claim(ctx, c)
}

// skewed judges leases by a clock that is not the same for all.
type skewed struct{ *memory }

func (s skewed) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	if nowAndThen() {
		s.clock.back.Store(-20)
		defer s.clock.back.Store(0)
	}
	return s.memory.Claim(ctx, c)
}

// shortHistory loses a line of a long history.
type shortHistory struct{ *memory }

func (s shortHistory) History(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
	out, err := s.memory.History(ctx, id, after, limit)
	if len(out) > 3 {
		out = append(out[:2], out[3:]...)
	}
	return out, err
}
