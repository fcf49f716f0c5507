package settle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// counting is a store that counts what is read, and fails to tell versions when it is told to.
type counting struct {
	*memstore.Store
	gets, versions int
	err            error
}

func (c *counting) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	c.gets++
	return c.Store.Get(ctx, by)
}

func (c *counting) Version(ctx context.Context, id string) (settle.Record, error) {
	c.versions++
	if c.err != nil {
		return settle.Record{}, c.err
	}
	return c.Store.Version(ctx, id)
}

// known plays f in a world in which order-1 was paid and asked for again, so that one process remembers it.
func known(t *testing.T, name string, opts *settle.Options, f func(t *testing.T, r *rig.Rig, s *counting, p *rig.Process, first settle.Outcome[pt.Receipt])) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &counting{Store: memstore.New(nil)}
			r := rig.New(t, s, nil)
			p := r.Start(opts)
			_, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 1999, "EUR"))
			rig.OK(t, err)
			out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 1999, "EUR"))
			rig.OK(t, err)
			s.gets, s.versions = 0, 0
			f(t, r, s, p, out)
			if n := r.Sends(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	})
}

// TestI13_KnownReplay: what a process remembers of a settled operation is believed only after the store has said that it is
// still so, and shares no memory with what a caller was given.
func TestI13_KnownReplay(t *testing.T) {
	again := func(p *rig.Process) (settle.Outcome[pt.Receipt], error) {
		return p.Charges.Execute(context.Background(), rig.Op("order-1", 1999, "EUR"))
	}
	known(t, "one read of a version", nil, func(t *testing.T, _ *rig.Rig, s *counting, p *rig.Process, first settle.Outcome[pt.Receipt]) {
		for i := range 3 {
			time.Sleep(time.Second)
			out, err := again(p)
			rig.OK(t, err)
			was, _ := first.Result()
			if now, ok := out.Result(); !ok || now != was || out.ID != first.ID || !out.Replayed || out.Version != first.Version {
				t.Errorf("it says %+v, not %+v", out, first)
			}
			if want := first.AsOf.Add(time.Duration(i+1) * time.Second); !out.AsOf.Equal(want) {
				t.Errorf("as of %v, want the time of the read, %v", out.AsOf, want)
			}
			if s.gets != 0 || s.versions != i+1 {
				t.Errorf("%d records and %d versions were read", s.gets, s.versions)
			}
			// The outcome is the caller's.
			clear(out.Request)
			clear(out.Record.Result)
			clear(out.Attempts)
			clear(out.References)
			clear(out.Fingerprint.Volatile)
		}
	})
	known(t, "another request is drift", nil, func(t *testing.T, _ *rig.Rig, _ *counting, p *rig.Process, _ settle.Outcome[pt.Receipt]) {
		_, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 2999, "EUR"))
		rig.Is(t, err, settle.ErrMismatch)
		keyed := rig.Op("order-1", 1999, "EUR")
		keyed.Key = "another"
		_, err = p.Charges.Execute(t.Context(), keyed)
		rig.Is(t, err, settle.ErrConflict)
	})
	known(t, "reversed by another process", nil, func(t *testing.T, r *rig.Rig, s *counting, p *rig.Process, first settle.Outcome[pt.Receipt]) {
		rig.OK(t, r.Provider.Reverse(r.Provider.Objects()[0].ID))
		_, err := r.Start(nil).Refresh(t.Context(), first.ID)
		rig.OK(t, err)
		for range 3 {
			out, err := again(p)
			rig.Is(t, err, settle.ErrFailed)
			if out.Next != settle.NextShowReversal {
				t.Errorf("next is %s", out.Next)
			}
		}
		if s.gets == 0 {
			t.Error("the new record was never read")
		}
	})
	for name, fault := range map[string]error{"no version": errors.New("no answer"), "not found": settle.ErrNotFound} {
		known(t, name, nil, func(t *testing.T, _ *rig.Rig, s *counting, p *rig.Process, first settle.Outcome[pt.Receipt]) {
			s.err = fault
			out, err := again(p)
			rig.OK(t, err)
			if out.ID != first.ID || s.versions != 1 {
				t.Errorf("%v, after %d reads of a version", out.Record, s.versions)
			}
		})
	}
	known(t, "draining", nil, func(t *testing.T, _ *rig.Rig, s *counting, p *rig.Process, _ settle.Outcome[pt.Receipt]) {
		rig.OK(t, p.Drain(t.Context()))
		_, err := again(p)
		rig.Is(t, err, settle.ErrDraining)
		if s.versions+s.gets > 0 {
			t.Error("it asked the store")
		}
	})
}

// TestI13_KnownReplaced: the intent has moved on to another operation, of the same version.
func TestI13_KnownReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: memstore.New(nil)}
		r := rig.New(t, s, nil)
		p, q := r.Start(nil), r.Start(nil)
		r.Provider.Script(pt.Decline("stolen_card"))
		op := rig.Op("order-1", 1999, "EUR")
		var declined settle.Outcome[pt.Receipt]
		for range 3 {
			var err error
			declined, err = p.Charges.Execute(t.Context(), op)
			rig.Is(t, err, settle.ErrFailed)
		}
		retry := op
		retry.Replaces = declined.ID
		paid, err := q.Charges.Execute(t.Context(), retry)
		rig.OK(t, err)
		for range 3 {
			out, err := p.Charges.Execute(t.Context(), op)
			rig.OK(t, err)
			if out.ID != paid.ID {
				t.Errorf("it is still the operation that was replaced: %v", out.Record)
			}
		}
	})
}

// swapped is a store that another takes the place of, as a replica does that is promoted.
type swapped struct{ *memstore.Store }

// TestI13_KnownFailover: a replica takes over that has not seen the outcome, and comes to another one under the same version. What
// counts is what the store says now, not what this process has seen.
func TestI13_KnownFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &swapped{memstore.New(nil)}
		r := rig.New(t, s, nil)
		p := r.Start(nil)
		r.Provider.Script(pt.Decline("stolen_card"))
		op := rig.Op("order-1", 1999, "EUR")
		var out settle.Outcome[pt.Receipt]
		for range 3 {
			var err error
			out, err = p.Charges.Execute(t.Context(), op)
			rig.Is(t, err, settle.ErrFailed)
		}
		first := out.Clone()
		first.State, first.References, first.Result, first.Code, first.Message = settle.StateSubmitting, nil, nil, "", ""
		first.Attempts = []settle.Attempt{{N: 1, Grace: first.Attempts[0].Grace}}
		first.Token = "dead"
		s.Store = memstore.New(nil)
		time.Sleep(time.Second)
		recs, err := s.Commit(t.Context(), settle.Change{ID: "c", Writes: []settle.Write{{Record: first, DueIn: time.Second}}})
		rig.OK(t, err)
		won := recs[0].Clone()
		won.Token, won.State = "", settle.StateSucceeded
		won.Attempts[0].Fate, won.Attempts[0].End = settle.FateApplied, won.AsOf
		won.References = []settle.Reference{{Ref: "ch_1", Rank: settle.RankSucceeded}}
		_, err = s.Commit(t.Context(), settle.Change{ID: "d", Writes: []settle.Write{{Record: won, IfVersion: 1, DueIn: settle.Never}}})
		rig.OK(t, err)
		again, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		if again.State != settle.StateSucceeded || again.Version != out.Version {
			t.Errorf("it says %v", again.Record)
		}
	})
}

// mutestore is a store over a network that answers no more.
type mutestore struct {
	*memstore.Store
	now atomic.Bool
}

func (s *mutestore) LocalReads() bool { return false }

func (s *mutestore) wait(ctx context.Context) error {
	if !s.now.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *mutestore) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	if err := s.wait(ctx); err != nil {
		return settle.Record{}, err
	}
	return s.Store.Get(ctx, by)
}

func (s *mutestore) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.Commit(ctx, c)
}

func (s *mutestore) Version(ctx context.Context, id string) (settle.Record, error) {
	if err := s.wait(ctx); err != nil {
		return settle.Record{}, err
	}
	return s.Store.Version(ctx, id)
}

// TestReplayOfASilentStore: whatever this process knows of an operation, a caller waits for the store no longer than it said.
func TestReplayOfASilentStore(t *testing.T) {
	for repeats := range 4 {
		synctest.Test(t, func(t *testing.T) {
			s := &mutestore{Store: memstore.New(nil)}
			r := rig.New(t, s, nil)
			p := r.Start(nil)
			for range repeats {
				_, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 1999, "EUR"))
				rig.OK(t, err)
			}
			s.now.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := p.Charges.Execute(ctx, rig.Op("order-1", 1999, "EUR"))
			rig.Is(t, err, settle.ErrPending)
			rig.Is(t, err, context.DeadlineExceeded)
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("after %d repeats it took %v", repeats, took)
			}
			s.now.Store(false)
		})
	}
}
