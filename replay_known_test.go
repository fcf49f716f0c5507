package settle_test

import (
	"context"
	"errors"
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

func (c *counting) Version(ctx context.Context, id string) (int64, time.Time, error) {
	c.versions++
	if c.err != nil {
		return 0, time.Time{}, c.err
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
			if out.ID != first.ID || s.gets == 0 {
				t.Errorf("%v, after %d reads", out.Record, s.gets)
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
