package publiccase

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

// onApply makes a provider that calls the returned hook when an effect has happened
// and before its reply leaves.
func onApply(o *pt.Options) (*pt.Options, *hook) {
	h := new(hook)
	o.OnApply = func(pt.Object) {
		if f := h.f.Load(); f != nil {
			(*f)()
		}
	}
	return o, h
}

type hook struct{ f atomic.Pointer[func()] }

func (h *hook) set(f func()) { h.f.Store(&f) }
func (h *hook) clear()       { h.f.Store(nil) }

// IC-15: a crash between sending and storing is taken over when the lease ends, not
// when some retention does, and starts with a question.
func orphanedClaim(s suite) {
	for _, lookup := range []settle.LookupPromise{settle.Authoritative, settle.NoLookup} {
		s.bubble("lookup "+string(lookup), func(t *testing.T, store settle.Store) {
			o, hook := onApply(keyed())
			r := rig.New(t, store, o)
			r.Promise.Lookup = lookup
			a := r.Start(nil)
			hook.set(a.Kill)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			first, err := a.Charges.Execute(ctx, rig.Op("order-1", 100, "EUR"))
			rig.Is(t, err, settle.ErrPending)
			hook.clear()
			claimed := r.Get(first.ID)
			b := r.Start(nil)
			rig.After(4 * time.Second)
			out, err := b.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR")) // at 5 s
			rig.Is(t, err, settle.ErrInProgress)
			if left := out.Due.Sub(out.AsOf); left <= 24*time.Second || left > 25*time.Second {
				t.Errorf("the hint when to try again is %v, want the rest of the lease", left)
			}
			r.Ledger(1, map[string]int{first.ID: 1})
			rig.After(26 * time.Second)
			out, err = b.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR")) // at 31 s
			rig.OK(t, err)
			if out.ID != first.ID || out.Version <= claimed.Version {
				t.Errorf("taken over at version %d, claimed at %d", out.Version, claimed.Version)
			}
			sends := 1
			if lookup == settle.NoLookup {
				sends = 2 // under the same key, inside its window
			} else if r.Lookups() == 0 {
				t.Error("not asked for")
			}
			r.Ledger(sends, map[string]int{first.ID: 1})
			sameBytes(t, r, r.State(first.ID, settle.StateSucceeded))
		})
	}
	s.bubble("killed before the request left", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		a := r.Start(nil)
		resume := a.Store.StallReplies() // the claim is committed, its reply does not arrive
		defer resume()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.Charges.Execute(ctx, rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrPending)
		a.Kill()
		resume()
		b := r.Start(nil)
		b.Work()
		rig.After(10 * time.Minute)
		all := r.All()
		if len(all) != 1 {
			t.Fatalf("%d operations, want 1", len(all))
		}
		r.State(all[0].ID, settle.StateSucceeded)
		r.Ledger(1, map[string]int{all[0].ID: 1})
	})
	s.bubble("killed again and again", func(t *testing.T, store settle.Store) {
		o, hook := onApply(keyed())
		r := rig.New(t, store, o)
		r.Provider.ScriptLookup(pt.HangBefore(nil), pt.HangBefore(nil), pt.HangBefore(nil))
		a := r.Start(nil)
		hook.set(a.Kill)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		first, err := a.Charges.Execute(ctx, rig.Op("order-1", 100, "EUR"))
		cancel()
		rig.Is(t, err, settle.ErrPending)
		hook.clear()
		for range 3 { // each next worker dies while it asks
			p := r.Start(nil)
			p.Work()
			rig.After(35 * time.Second)
			p.Kill()
		}
		r.Start(nil).Work()
		rig.After(10 * time.Minute)
		rec := r.State(first.ID, settle.StateSucceeded)
		r.Ledger(r.Sends(), map[string]int{first.ID: 1})
		sameBytes(t, r, rec)
	})
}

// IC-16: after a lost insert the answer follows the row that won. (The sweep that deletes
// rows is the store's retention, which never removes an unsettled one, I14.)
func lostInsert(s suite) {
	mine := rig.Op("order-1", 100, "EUR")
	for _, c := range []struct {
		name  string
		other settle.Operation[pt.Payment]
		steps []pt.Step
		run   bool // the winner is still running
		want  error
		sends int
	}{
		{"the winner succeeded", mine, nil, false, nil, 1},
		{"the winner failed", mine, []pt.Step{pt.Decline("card_declined")}, false, settle.ErrFailed, 1},
		{"the winner is unknown", mine, []pt.Step{pt.DropRequest()}, false, settle.ErrUnknown, 1},
		{"the winner runs", mine, []pt.Step{pt.Slow(5 * time.Second)}, true, settle.ErrInProgress, 1},
		{"the winner asked for something else", rig.Op("order-1", 101, "EUR"), nil, false, settle.ErrMismatch, 1},
		{"it runs, and asked for something else", rig.Op("order-1", 101, "EUR"), []pt.Step{pt.Slow(5 * time.Second)}, true, settle.ErrMismatch, 1},
	} {
		for _, authorize := range []bool{false, true} {
			s.bubble(fmt.Sprintf("%s, authorize %v", c.name, authorize), func(t *testing.T, store settle.Store) {
				r := rig.New(t, store, keyed())
				r.Provider.Script(c.steps...)
				b := r.Start(nil)
				x := &settle.ExecutorOptions[pt.Payment, pt.Receipt]{}
				if authorize { // reads before it inserts, and loses all the same
					x.Authorize = func(context.Context, settle.Operation[pt.Payment]) error { return nil }
				}
				a := r.StartWith(nil, x)
				var won func() rig.Answer[pt.Receipt]
				var once sync.Once
				a.Store.BeforeCommit(func(settle.Change) error {
					once.Do(func() {
						won = rig.Execute(t.Context(), b.Charges, c.other)
						if c.run {
							rig.After(time.Second)
							return
						}
						ans := won()
						won = func() rig.Answer[pt.Receipt] { return ans }
					})
					return nil
				})
				out, err := a.Charges.Execute(t.Context(), mine)
				switch {
				case c.want == nil:
					rig.OK(t, err)
					if !out.Replayed {
						t.Error("no replay")
					}
				case errors.Is(c.want, settle.ErrMismatch):
					rig.Refused(t, out, err, settle.ErrMismatch, "/amount")
				default:
					rig.Is(t, err, c.want)
				}
				ans := won()
				r.Ledger(c.sends, nil)
				if all := r.All(); len(all) != 1 || all[0].ID != ans.Out.ID {
					t.Errorf("%d operations, want the winner's", len(all))
				}
			})
		}
	}
}

// IC-17: completion and release are one write, so a waiter never finds the claim free
// and the work undone.
func finishedButNotStored(s suite) {
	type world struct {
		r    *rig.Rig
		a, b *rig.Process
		hook *hook
	}
	start := func(t *testing.T, store settle.Store) world {
		o, hook := onApply(keyed())
		r := rig.New(t, store, o)
		return world{r, r.Start(nil), r.Start(nil), hook}
	}
	op := rig.Op("order-1", 100, "EUR")
	s.bubble("A completes", func(t *testing.T, store settle.Store) {
		w := start(t, store)
		w.r.Provider.Script(pt.Slow(5 * time.Second))
		a := rig.Execute(t.Context(), w.a.Charges, op)
		w.b.Work()
		rig.After(time.Second)
		_, err := w.b.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrInProgress)
		ans := a()
		rig.OK(t, ans.Err)
		rig.After(5 * time.Minute)
		out, err := w.b.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		if !out.Replayed {
			t.Error("no replay")
		}
		w.r.Ledger(1, map[string]int{out.ID: 1})
		for _, x := range w.r.History(out.ID) { // no entry shows the claim released before success
			if x.From == settle.StateSubmitting && x.To != settle.StateSubmitting && x.To != settle.StateSucceeded {
				t.Errorf("history shows %s to %s", x.From, x.To)
			}
		}
	})
	s.bubble("A is paused", func(t *testing.T, store settle.Store) {
		w := start(t, store)
		var resume func()
		w.hook.set(func() { resume = w.a.Store.Stall() })
		a := rig.Execute(t.Context(), w.a.Charges, op)
		w.b.Work() // B waits for the lease
		rig.After(5 * time.Minute)
		out, err := w.b.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		w.r.Ledger(1, map[string]int{out.ID: 1})
		resume()
		ans := a()
		rig.OK(t, ans.Err) // A learned the same and finds it there
		if ans.Out.ID != out.ID {
			t.Error("A has another operation")
		}
		rig.After(time.Minute)
		rec := w.r.State(out.ID, settle.StateSucceeded)
		w.r.Ledger(1, map[string]int{out.ID: 1})
		if len(rec.References) != 1 || len(rec.Alarms()) != 0 {
			t.Errorf("references %+v, alarms %v", rec.References, rec.Alarms())
		}
		superseded := 0
		for _, x := range w.r.History(out.ID) {
			if x.Disposition == settle.DispositionSuperseded {
				superseded++
			}
		}
		if superseded == 0 {
			t.Error("what A learned is not in the history (I12)")
		}
	})
	s.bubble("A crashes", func(t *testing.T, store settle.Store) {
		w := start(t, store)
		w.hook.set(w.a.Kill)
		a := rig.Execute(t.Context(), w.a.Charges, op)
		w.b.Work()
		rig.After(5 * time.Minute)
		a()
		out, err := w.b.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		w.r.Ledger(1, map[string]int{out.ID: 1})
		if w.r.Lookups() == 0 {
			t.Error("not asked for")
		}
	})
}

// IC-18: a heartbeat that comes late renews nothing, and what its holder learned is kept
// as evidence.
func staleHeartbeat(s suite) {
	s.bubble("late heartbeat, late result", func(t *testing.T, store settle.Store) {
		resultX, lookupB := make(chan struct{}), make(chan struct{})
		r := rig.New(t, store, &pt.Options{KeyWindow: 48 * time.Hour})
		r.Promise.Deadline = time.Hour
		r.Provider.ScriptLookup(pt.HangBefore(lookupB))
		opts := &settle.Options{Lease: 5 * time.Minute}
		a, b := r.Bare(opts), r.Start(opts)
		var canceled time.Time
		adapter := pt.ChargeAdapter(a.API, r.Promise)
		submit := adapter.SubmitFunc
		adapter.SubmitFunc = func(ctx context.Context, c *settle.Call[pt.Payment]) (settle.Observation[pt.Receipt], error) {
			obs, err := submit(ctx, c)
			<-ctx.Done() // the SDK notices that nobody waits, and answers later all the same
			canceled = time.Now()
			<-resultX
			return obs, err
		}
		x, err := settle.New(a.Engine, rig.KindCharge, adapter, nil)
		rig.OK(t, err)
		op := rig.Op("order-1", 100, "EUR")
		begin := time.Now()
		first := rig.Execute(t.Context(), x, op)
		rig.After(time.Second)
		resume := a.Store.Stall() // the first heartbeat is held up
		rig.After(6*time.Minute - time.Second)
		second := rig.Execute(t.Context(), b.Charges, op) // B takes over
		rig.After(time.Second)
		id := r.All()[0].ID
		before := r.Get(id)
		if !before.Claimed() || before.State != settle.StateSubmitting {
			t.Fatalf("B did not take over: %v", before)
		}
		resume() // A's heartbeat fires now
		rig.After(time.Second)
		now := r.Get(id)
		if now.Token != before.Token || !now.Due.Equal(before.Due) {
			t.Error("A's heartbeat touched B's claim")
		}
		if canceled.IsZero() || canceled.Sub(begin) > 6*time.Minute+2*time.Second {
			t.Errorf("A's context was canceled at %v", canceled.Sub(begin))
		}
		ans := first()
		rig.Is(t, ans.Err, settle.ErrPending)
		rig.Not(t, ans.Err, settle.ErrFailed)
		if now = r.Get(id); !now.Claimed() || now.Token != before.Token {
			t.Error("A's completion ended B's claim")
		}
		close(resultX) // A finishes with X while B still runs: evidence, whoever brings it
		rig.After(time.Second)
		rec := r.State(id, settle.StateSucceeded)
		if len(rec.References) != 1 {
			t.Errorf("references %+v, want the one in X", rec.References)
		}
		close(lookupB)
		got := second()
		rig.OK(t, got.Err)
		rig.After(time.Hour)
		r.State(id, settle.StateSucceeded)
		r.Ledger(1, map[string]int{id: 1})
	})
	s.bubble("late completion of a decline", func(t *testing.T, store settle.Store) {
		// The stale holder's refusal ends its own attempt, not B's claim.
		lookupB := make(chan struct{})
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.Decline("card_declined"))
		r.Provider.ScriptLookup(pt.HangBefore(lookupB))
		a, b := r.Start(nil), r.Start(nil)
		op := rig.Op("order-1", 100, "EUR")
		gate := make(chan struct{})
		var once sync.Once
		a.Store.BeforeCommit(func(c settle.Change) error {
			if c.Writes[0].Entry.Fact != "" {
				once.Do(func() { <-gate })
			}
			return nil
		})
		first := rig.Execute(t.Context(), a.Charges, op)
		rig.After(time.Minute)
		a.Store.Cut() // no heartbeat any more
		rig.After(time.Minute)
		second := rig.Execute(t.Context(), b.Charges, op)
		rig.After(time.Second)
		a.Store.Mend()
		close(gate)
		first()
		close(lookupB)
		second()
		b.Work()
		rig.After(5 * time.Minute)
		id := r.All()[0].ID
		r.State(id, settle.StateFailed)
		r.Ledger(1, map[string]int{id: 0})
	})
}

// IC-20: a holder that cannot renew stops before its lease ends on the store's clock.
func failingHeartbeat(s suite) {
	opts := &settle.Options{Lease: 20 * time.Second, StoreTimeout: time.Minute}
	s.bubble("about to start", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		a := r.Start(opts)
		resume := a.Store.StallReplies()
		first := rig.Execute(t.Context(), a.Charges, rig.Op("order-1", 100, "EUR"))
		rig.After(3 * time.Second)
		a.Store.Cut()
		rig.After(19 * time.Second)
		resume() // at 22 s the claim's reply is there
		rig.After(6 * time.Second)
		a.Store.Mend()
		ans := first()
		if ans.Err == nil {
			t.Error("confirmed without a request")
		}
		rig.Not(t, ans.Err, settle.ErrFailed)
		id := r.All()[0].ID
		r.Ledger(0, nil) // nothing started
		rec := r.Get(id)
		if rec.State != settle.StateCreated || rec.Attempts[0].Fate != settle.FateNotSent {
			t.Errorf("%v with attempts %+v, want created with one that was not sent", rec, rec.Attempts)
		}
		r.Start(opts).Work()
		rig.After(time.Minute)
		r.State(id, settle.StateSucceeded)
		r.Ledger(1, map[string]int{id: 1})
	})
	for _, lookup := range []settle.LookupPromise{settle.Authoritative, settle.NoLookup} {
		s.bubble("had started, lookup "+string(lookup), func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, keyed())
			r.Promise.Deadline, r.Promise.Lookup = 5*time.Minute, lookup
			r.Provider.Script(pt.HangAfter(nil))
			a := r.Bare(opts)
			adapter := pt.ChargeAdapter(a.API, r.Promise)
			submit := adapter.SubmitFunc
			begin := time.Now()
			var over time.Duration
			adapter.SubmitFunc = func(ctx context.Context, c *settle.Call[pt.Payment]) (settle.Observation[pt.Receipt], error) {
				obs, err := submit(ctx, c)
				over = time.Since(begin)
				return obs, err
			}
			x, err := settle.New(a.Engine, rig.KindCharge, adapter, nil)
			rig.OK(t, err)
			first := rig.Execute(t.Context(), x, rig.Op("order-1", 100, "EUR"))
			rig.After(3 * time.Second)
			a.Store.Cut()
			rig.After(25 * time.Second)
			a.Store.Mend()
			ans := first()
			rig.Is(t, ans.Err, settle.ErrUnknown, settle.ErrClaimLost, rig.ErrDown) // renewal errors reach the caller
			rig.Not(t, ans.Err, settle.ErrFailed)
			if over <= 0 || over >= 20*time.Second {
				t.Errorf("the request was stopped at %v, want before the lease of 20 s ended", over)
			}
			id := r.All()[0].ID
			r.State(id, settle.StateUnknown)
			r.Start(opts).Work()
			rig.After(20 * time.Minute)
			r.State(id, settle.StateSucceeded)
			r.Ledger(r.Sends(), map[string]int{id: 1})
		})
	}
	s.bubble("one heartbeat in three gets through", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Promise.Deadline = 5 * time.Minute
		r.Provider.Script(pt.Slow(2 * time.Minute))
		a, b := r.Start(opts), r.Start(opts)
		b.Work()
		first := rig.Execute(t.Context(), a.Charges, rig.Op("order-1", 100, "EUR"))
		for range 10 {
			rig.After(7 * time.Second)
			a.Store.Cut()
			rig.After(5 * time.Second)
			a.Store.Mend()
		}
		ans := first()
		rig.OK(t, ans.Err)
		r.Ledger(1, map[string]int{ans.Out.ID: 1})
		if n := r.Lookups(); n != 0 {
			t.Errorf("somebody took over and asked %d times", n)
		}
	})
}

// IC-62: a long call keeps its lease by renewal, and whoever is told to do the step
// again is told that it is in progress.
func longToolCall(s suite) {
	op := rig.Op("run-7/step-3", 100, "EUR")
	start := func(t *testing.T, store settle.Store) (*rig.Rig, []*rig.Process) {
		r := rig.New(t, store, keyed())
		r.Promise.Deadline = 5 * time.Minute
		var ps []*rig.Process
		for range 3 {
			p := r.Start(&settle.Options{Lease: time.Minute})
			p.Work()
			ps = append(ps, p)
		}
		return r, ps
	}
	s.bubble("three workers", func(t *testing.T, store settle.Store) {
		r, ps := start(t, store)
		r.Provider.Script(pt.Slow(200 * time.Second))
		first := rig.Execute(t.Context(), ps[0].Charges, op)
		for range 2 {
			rig.After(90 * time.Second) // the second time is at 180 s
			for _, p := range ps[1:] {
				out, err := p.Charges.Execute(t.Context(), op)
				rig.Is(t, err, settle.ErrInProgress)
				if out.Next != settle.NextWait {
					t.Errorf("told to %q, want wait", out.Next)
				}
			}
		}
		ans := first()
		rig.OK(t, ans.Err)
		for _, p := range ps {
			out, err := p.Charges.Execute(t.Context(), op)
			rig.OK(t, err)
			if !out.Replayed {
				t.Error("no replay")
			}
		}
		r.Ledger(1, map[string]int{ans.Out.ID: 1})
		if n := r.Lookups(); n != 0 {
			t.Errorf("somebody took over and asked %d times", n)
		}
	})
	for _, steps := range [][]pt.Step{{pt.Slow(200 * time.Second)}, {pt.HangAfter(nil)}, {pt.DropRequest()}} {
		s.bubble("the first is dead, "+steps[0].String(), func(t *testing.T, store settle.Store) {
			r, ps := start(t, store)
			r.Provider.Script(steps...)
			first := rig.Execute(t.Context(), ps[0].Charges, op)
			rig.After(10 * time.Second)
			ps[0].Kill()
			rig.After(170 * time.Second)
			for _, p := range ps[1:] { // at 180 s
				_, err := p.Charges.Execute(t.Context(), op)
				rig.Not(t, err, settle.ErrFailed, settle.ErrCanceled, settle.ErrMismatch)
			}
			rig.After(10 * time.Minute)
			first()
			id := r.All()[0].ID
			rec := r.State(id, settle.StateSucceeded)
			r.Ledger(r.Sends(), map[string]int{id: 1})
			sameBytes(t, r, rec)
			if r.Lookups() == 0 {
				t.Error("not asked for")
			}
		})
	}
}
