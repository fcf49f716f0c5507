package settle_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// refreshed plays f in a world of one process in which an order was paid.
func refreshed(t *testing.T, name string, f func(t *testing.T, r *rig.Rig, p *rig.Process, id, ref string)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := rig.New(t, memstore.New(nil), nil)
			p := r.Start(nil)
			out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 1999, "EUR"))
			rig.OK(t, err)
			f(t, r, p, out.ID, r.Provider.Objects()[0].ID)
			if n := r.Sends(); n > 2 {
				t.Errorf("%d requests: a refresh sends nothing", n)
			}
		})
	})
}

// TestRefresh: a settled operation is asked about again. What the provider says is merged like any other answer, and
// nothing is sent.
func TestRefresh(t *testing.T) {
	refreshed(t, "nothing has changed", func(t *testing.T, r *rig.Rig, p *rig.Process, id, _ string) {
		before := r.Lookups()
		got, err := p.Refresh(t.Context(), id)
		rig.OK(t, err)
		if got.Fact != settle.Applied || got.Record.State != settle.StateSucceeded || r.Lookups() != before+1 {
			t.Errorf("it says %q, %v after %d lookups", got.Fact, got.Record, r.Lookups()-before)
		}
		if h := r.History(id); h[len(h)-1].Source != settle.SourceLookup || h[len(h)-1].Disposition != settle.DispositionSuperseded {
			t.Errorf("the history ends with %+v", h[len(h)-1])
		}
	})
	refreshed(t, "T-20: reversed, and no event told", func(t *testing.T, r *rig.Rig, p *rig.Process, id, ref string) {
		rig.OK(t, r.Provider.Reverse(ref))
		got, err := p.Refresh(t.Context(), id)
		rig.OK(t, err)
		if got.Fact != settle.Reversed || got.Record.State != settle.StateFailed {
			t.Errorf("it says %q, %v", got.Fact, got.Record)
		}
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 1999, "EUR"))
		rig.Is(t, err, settle.ErrFailed)
		if out.Next != settle.NextShowReversal || out.Record.Next() != settle.NextShowReversal {
			t.Errorf("next is %s, of the record %s", out.Next, out.Record.Next())
		}
	})
	refreshed(t, "no answer", func(t *testing.T, r *rig.Rig, p *rig.Process, id, _ string) {
		version := r.Get(id).Version
		r.Provider.ScriptLookup(pt.Status(500, ""), pt.Status(500, ""), pt.Status(500, ""))
		got, err := p.Refresh(t.Context(), id)
		rig.OK(t, err)
		if got.Fact != settle.Unclear || got.Record.State != settle.StateSucceeded || r.Get(id).Version != version {
			t.Errorf("it says %q, %v", got.Fact, got.Record)
		}
	})
	refreshed(t, "the provider knows of none", func(t *testing.T, _ *rig.Rig, p *rig.Process, id, _ string) {
		other, err := settle.Open(p.Store, nil)
		rig.OK(t, err)
		_, err = settle.New(other, rig.KindCharge, forgetful(t), nil)
		rig.OK(t, err)
		got, err := other.Refresh(t.Context(), id)
		rig.OK(t, err)
		if got.Fact != settle.NotFound || got.Record.State != settle.StateSucceeded {
			t.Errorf("it says %q, %v: nothing proves an absence", got.Fact, got.Record)
		}
	})
	refreshed(t, "a refund, of which its parent learns", func(t *testing.T, r *rig.Rig, p *rig.Process, id, ref string) {
		out, err := p.Refunds.Compensate(t.Context(), settle.Effect{Operation: id, Ref: ref}, "returned", rig.Refund{Amount: 1999, Currency: "EUR"})
		rig.OK(t, err)
		r.State(id, settle.StateCompensated)
		rig.OK(t, r.Provider.Reverse(r.Provider.Objects()[1].ID))
		got, err := p.Refresh(t.Context(), out.ID)
		rig.OK(t, err)
		if got.Fact != settle.Reversed || got.Record.State != settle.StateFailed {
			t.Errorf("it says %q, %v", got.Fact, got.Record)
		}
		if now := r.State(id, settle.StateSucceeded); !now.Effects()[0].Left().Equal(settle.Minor(1999, "EUR")) {
			t.Errorf("the balance is not back: %+v (I9)", now.Ledger)
		}
	})
	refreshed(t, "one that was never sent", func(t *testing.T, r *rig.Rig, p *rig.Process, _, _ string) {
		waiting, err := p.Charges.Register(t.Context(), rig.Op("order-2", 1, "EUR"))
		rig.OK(t, err)
		before := r.Lookups()
		got, err := p.Refresh(t.Context(), waiting.ID)
		if err != nil || got.Fact != settle.Unclear || got.Record.ID != waiting.ID || r.Lookups() != before {
			t.Errorf("it says %q, %v, %v after %d lookups", got.Fact, got.Record, err, r.Lookups()-before)
		}
	})
}

// TestRefresh_Refusals: whom nobody can ask is not asked, and the call says so.
func TestRefresh_Refusals(t *testing.T) {
	refreshed(t, "refusals", func(t *testing.T, r *rig.Rig, p *rig.Process, id, _ string) {
		_, err := p.Refresh(t.Context(), "no-such-id")
		rig.Typed(t, err, settle.ErrNotFound)
		before := r.Lookups()
		_, err = r.Bare(nil).Refresh(t.Context(), id)
		rig.Typed(t, err, settle.ErrInvalid, "kind")
		promise := r.Promise
		r.Promise.Account.Account = "acct-2"
		_, err = r.Start(nil).Refresh(t.Context(), id)
		rig.Typed(t, err, settle.ErrInvalid, "Contract.Account")
		r.Promise = promise
		r.Promise.Lookup = settle.NoLookup
		blind := r.Bare(nil)
		a, ok := forgetful(t).(settle.Adapter[rig.Payment, rig.Receipt])
		if !ok {
			t.Fatal("another adapter")
		}
		a.Promise, a.LookupFunc = r.Promise, nil
		_, err = settle.New(blind.Engine, rig.KindCharge, a, nil)
		rig.OK(t, err)
		_, err = blind.Refresh(t.Context(), id)
		rig.Typed(t, err, settle.ErrInvalid, "Contract.Lookup")
		rig.OK(t, p.Drain(t.Context()))
		_, err = p.Refresh(t.Context(), id)
		rig.Typed(t, err, settle.ErrDraining)
		if r.Lookups() != before {
			t.Errorf("%d lookups by calls that were refused", r.Lookups()-before)
		}
	})
}

// TestRefresh_SharedAndLeft: callers of one process share the lookup. One that leaves early is told so, and the answer is
// merged all the same.
func TestRefresh_SharedAndLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeAd{submit: good("ch_")}
		f.lookup = func(_ context.Context, c *acall, _ int) (aobs, error) {
			time.Sleep(3 * time.Second)
			return aobs{Fact: settle.Reversed, Ref: c.Ref}, nil
		}
		e := must(t, nil2(settle.Open(memstore.New(nil), nil)), nil)
		x := must(t, nil2(settle.New(e, "pay", f.adapter(regressContract(true, settle.Authoritative)), nil)), nil)
		out, err := x.Execute(t.Context(), aop(5))
		rig.OK(t, err)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				got, err := e.Refresh(t.Context(), out.ID)
				if err != nil || got.Fact != settle.Reversed || got.Record.State != settle.StateFailed {
					t.Errorf("it says %q, %v, %v", got.Fact, got.Record, err)
				}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := e.Refresh(ctx, out.ID)
		rig.Is(t, err, settle.ErrPending, context.DeadlineExceeded)
		if got.Record.ID != out.ID {
			t.Errorf("the caller who left got %v", got.Record)
		}
		wg.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.lookups != 1 || f.sends != 1 {
			t.Errorf("%d lookups and %d requests, want one of each", f.lookups, f.sends)
		}
	})
}

// TestI12_ALookupThatCameLateIsMerged: the provider answers when nobody waits for it any more.
func TestI12_ALookupThatCameLateIsMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeAd{submit: good("ch_")}
		f.lookup = func(_ context.Context, c *acall, _ int) (aobs, error) {
			time.Sleep(time.Minute) // it ignores its context
			return aobs{Fact: settle.Reversed, Ref: c.Ref}, nil
		}
		e := must(t, nil2(settle.Open(memstore.New(nil), nil)), nil)
		x := must(t, nil2(settle.New(e, "pay", f.adapter(regressContract(true, settle.Authoritative)), nil)), nil)
		out, err := x.Execute(t.Context(), aop(5))
		rig.OK(t, err)
		got, err := e.Refresh(t.Context(), out.ID)
		if err != nil || got.Fact != settle.Unclear || got.Record.State != settle.StateSucceeded {
			t.Errorf("it says %q, %v, %v", got.Fact, got.Record, err)
		}
		rig.After(2 * time.Minute)
		if r, err := e.Get(t.Context(), out.ID); err != nil || r.State != settle.StateFailed {
			t.Errorf("afterwards it is %v, %v", r, err)
		}
	})
}

// forgetful is an adapter of the same provider account that finds nothing.
func forgetful(t *testing.T) settle.ProviderAdapter[rig.Payment, rig.Receipt] {
	t.Helper()
	return settle.Adapter[rig.Payment, rig.Receipt]{
		Promise: rig.New(t, memstore.New(nil), nil).Promise,
		TermsFunc: func(op settle.Operation[rig.Payment]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.Amount, op.Request.Currency)}
		},
		SubmitFunc: func(context.Context, *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
			return settle.Observation[rig.Receipt]{}, errors.New("nobody asked for this")
		},
		LookupFunc: func(context.Context, *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
			return settle.Observation[rig.Receipt]{Fact: settle.NotFound}, nil
		},
	}
}

// TestI10_AnEventAboutATombstone: what was canceled before it was known has no request, so there is nothing to ask: the event is
// kept, and the row does not come due again and again.
func TestI10_AnEventAboutATombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig.New(t, memstore.New(nil), nil)
		p := r.Start(nil)
		rig.OK(t, p.Charges.Cancel(t.Context(), rig.Intent("order-1"), "changed_mind"))
		tomb, err := p.Charges.Find(t.Context(), rig.Intent("order-1"))
		rig.OK(t, err)
		_, err = p.Observe(t.Context(), settle.Event{Account: tomb.Account, ID: "evt-1", Operation: tomb.ID})
		rig.OK(t, err)
		p.Work()
		rig.After(time.Hour)
		now := r.State(tomb.ID, settle.StateCanceled)
		if !now.Due.IsZero() || now.Version > tomb.Version+2 {
			t.Errorf("it is due at %v, version %d", now.Due, now.Version)
		}
	})
}
