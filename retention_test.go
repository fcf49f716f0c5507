package settle_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// counted is a store that notes the steps of retention.
type counted struct {
	settle.Store
	mu     sync.Mutex
	pages  []int // records read by each List
	pruned []int // records pruned by each change
	dead   bool
}

func (s *counted) List(ctx context.Context, q settle.Query) ([]settle.Record, error) {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead {
		return nil, errDown
	}
	out, err := s.Store.List(ctx, q)
	if q.Overdue == 0 && err == nil {
		s.mu.Lock()
		s.pages = append(s.pages, len(out))
		s.mu.Unlock()
	}
	return out, err
}

func (s *counted) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead {
		return nil, errDown
	}
	out, err := s.Store.Commit(ctx, c)
	if err == nil && len(c.Writes) > 0 && c.Writes[0].Entry.Note == "pruned" {
		s.mu.Lock()
		s.pruned = append(s.pruned, len(c.Writes))
		s.mu.Unlock()
	}
	return out, err
}

func (s *counted) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil, errDown
	}
	return s.Store.Claim(ctx, c)
}

func (s *counted) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil, errDown
	}
	return s.Store.Renew(ctx, held, lease)
}

// countPruned is how many records are pruned, and how often in all.
func countPruned(t *testing.T, e *settle.Engine) (records, times int) {
	t.Helper()
	for r, err := range e.List(t.Context(), settle.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Request == nil {
			records++
		}
		for x, err := range e.History(t.Context(), r.ID) {
			if err != nil {
				t.Fatal(err)
			}
			if x.Note == "pruned" {
				times++
			}
		}
	}
	return records, times
}

// I14: three processes on one store: one of them looks through it, in bounded steps; when it dies, another
// goes on where it was; and each record is pruned once.
func TestI14_RetentionInBoundedSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, age = 10_000, 24 * time.Hour
		inner := memstore.New(nil)
		var procs []*shop
		var stores []*counted
		for range 3 {
			st := &counted{Store: inner}
			stores = append(stores, st)
			procs = append(procs, newShop(t, st, settle.Options{Retention: age, PollInterval: time.Hour}))
		}
		var x *sales
		for _, p := range procs {
			x = p.kind("charge", nil, nil)
		}
		for i := range n {
			if _, err := x.Execute(t.Context(), order("a", i)); err != nil {
				t.Fatal(err)
			}
		}
		var stops []func()
		for _, p := range procs {
			stops = append(stops, p.work())
		}
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		time.Sleep(age - 10*time.Second)
		synctest.Wait()
		for _, s := range stores {
			if len(s.pruned) > 0 {
				t.Fatal("something was pruned before its age")
			}
			s.pages = nil
		}
		// A pass begins within a tenth of the age; it takes 100 pages of at least 20 ms.
		var one *counted
		step := 250 * time.Millisecond // until the pass has begun
		for one == nil {
			time.Sleep(step)
			synctest.Wait()
			for _, s := range stores {
				s.mu.Lock()
				if len(s.pruned) > 0 {
					step = 10 * time.Millisecond
				}
				if len(s.pruned) >= 80 {
					one = s
				}
				s.mu.Unlock()
			}
		}
		one.mu.Lock()
		one.dead = true
		began := len(one.pruned)
		one.mu.Unlock()
		time.Sleep(2*time.Minute + 30*time.Second) // its lease, and how often the others look
		synctest.Wait()
		records, times := countPruned(t, newShop(t, inner, settle.Options{}).e)
		if records != n || times != n {
			t.Errorf("%d of %d records are pruned, %d times in all", records, n, times)
		}
		var others, pages int
		for _, s := range stores {
			for _, k := range append(slices.Clone(s.pruned), s.pages...) {
				if k > 100 {
					t.Errorf("a step of %d records, want at most 100", k)
				}
			}
			if s != one {
				others += len(s.pruned)
				pages += len(s.pages)
			}
		}
		if began+others != n/100 {
			t.Errorf("%d and %d steps, want %d: what the first has done is not done again", began, others, n/100)
		}
		if pages > 40 {
			t.Errorf("the next process read %d pages, want those from the noted place on", pages)
		}
		one.mu.Lock()
		one.dead = false
		one.mu.Unlock()
	})
}

// What belongs to retention itself is no operation of the application.
func TestRetentionIsNoOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, memstore.New(nil), settle.Options{Retention: time.Hour})
		s.kind("charge", nil, nil)
		stop := s.work()
		time.Sleep(30 * time.Minute)
		for r, err := range s.e.List(t.Context(), settle.Query{}) {
			t.Errorf("listed: %v, %v", r, err)
		}
		n := 0
		for r, err := range s.e.List(t.Context(), settle.Query{Kind: settle.RetentionKind}) {
			if n++; err != nil || r.Due.IsZero() {
				t.Error("it is never due (I10)")
			}
		}
		if n != 1 {
			t.Errorf("%d records of retention, want 1", n)
		}
		stop()
		// Nobody removes anything any more: that is no operation that waits for somebody.
		other := newShop(t, s.store, settle.Options{})
		other.kind("charge", nil, nil)
		stop = other.work()
		time.Sleep(3 * time.Hour)
		stop()
		if got := other.count(settle.EventOverdue) + s.count(settle.EventOverdue); got != 0 {
			t.Errorf("%d notices of something overdue", got)
		}
		for _, bad := range []time.Duration{-1, time.Second} {
			if _, err := settle.Open(s.store, &settle.Options{Retention: bad}); err == nil {
				t.Errorf("a retention of %v is accepted", bad)
			}
		}
	})
}

// A drained engine ends its pass at the next page, and says how far it came.
func TestDrainEndsRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memstore.New(nil)}
		s := newShop(t, store, settle.Options{Retention: time.Minute, PollInterval: time.Hour})
		x := s.kind("charge", nil, nil)
		for i := range 3000 {
			if _, err := x.Execute(t.Context(), order("a", i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		stop := s.work()
		time.Sleep(100 * time.Millisecond)
		if err := s.e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		synctest.Wait()
		read := len(store.pages)
		if read == 0 || read > 10 {
			t.Fatalf("%d pages in 100 ms", read)
		}
		next := newShop(t, store, settle.Options{Retention: time.Minute, PollInterval: time.Hour})
		next.kind("charge", nil, nil)
		stop = next.work()
		time.Sleep(10 * time.Second)
		stop()
		if got := len(store.pages); got != 31 {
			t.Errorf("%d pages of 3000 records and the end, want 31: the next process goes on at once", got)
		}
		if records, times := countPruned(t, next.e); records != 3000 || times != 3000 {
			t.Error(fmt.Sprint(records, " records, ", times, " times"))
		}
	})
}
