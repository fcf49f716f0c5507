package publiccase

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

// IC-47: "not found" from a lookup that lags proves nothing.
func laggingLookup(s suite) {
	for _, keys := range []time.Duration{0, day} {
		s.bubble(fmt.Sprintf("keys for %v", keys), func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, &pt.Options{KeyWindow: keys, LookupLag: 50 * time.Second})
			r.Promise.LookupLag = time.Minute // the stated lag is longer than the real one
			r.Promise.Keys.ConcurrentSafe = false
			r.Provider.Script(pt.DropReply())
			p := r.Start(nil)
			out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.Is(t, err, settle.ErrUnknown)
			p.Work()
			for _, d := range []time.Duration{time.Second, 4 * time.Second, 15 * time.Second, 25 * time.Second} {
				rig.After(d)
				rec := r.State(out.ID, settle.StateUnknown) // never created again, never failed (I4)
				if len(rec.References) > 0 || rec.Progress != nil {
					t.Errorf("something negative was kept: %+v", rec)
				}
			}
			asked := r.Lookups()
			if asked < 3 {
				t.Errorf("%d lookups in 45 s", asked)
			}
			rig.After(2 * time.Minute)
			r.State(out.ID, settle.StateSucceeded)
			r.Ledger(1, map[string]int{out.ID: 1})
		})
	}
	s.bubble("keys, and safe under concurrency", func(t *testing.T, store settle.Store) {
		// The same key again is the other safe question.
		r := rig.New(t, store, &pt.Options{KeyWindow: day, LookupLag: time.Hour})
		r.Provider.Script(pt.DropReply())
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(time.Minute)
		rec := r.State(out.ID, settle.StateSucceeded)
		r.Ledger(2, map[string]int{out.ID: 1})
		sameBytes(t, r, rec)
	})
	s.bubble("never found", func(t *testing.T, store settle.Store) {
		// The request was lost; no lookup can prove that, so a person decides.
		r := rig.New(t, store, &pt.Options{LookupLag: 50 * time.Second})
		r.Provider.Script(pt.DropRequest())
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(time.Hour)
		r.State(out.ID, settle.StateReview)
		r.Ledger(1, map[string]int{out.ID: 0})
		horizon := r.Promise.Deadline + r.Promise.SettleDelay + r.Promise.LookupLag
		for _, x := range r.History(out.ID) {
			if x.To == settle.StateReview && x.From != settle.StateReview && x.At.Sub(out.CreatedAt) < horizon {
				t.Errorf("given up after %v, before the horizon of %v", x.At.Sub(out.CreatedAt), horizon)
			}
		}
	})
	s.bubble("the strongly consistent way is preferred", func(t *testing.T, store settle.Store) {
		// Once a reference is known it is read by id, which does not lag.
		r := rig.New(t, store, &pt.Options{LookupLag: 10 * time.Hour, Async: true})
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrProcessing)
		rig.OK(t, r.Provider.Finish(out.References[0].Ref))
		_, err = p.Reconcile(t.Context(), out.ID)
		rig.OK(t, err)
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(1, map[string]int{out.ID: 1})
		if n := r.Provider.Calls(pt.OpLookup); n != 0 {
			t.Errorf("%d searches although the id was known", n)
		}
	})
}

// rarely polls once in a minute: hours of a bubble cost polls.
var rarely = &settle.Options{PollInterval: time.Minute}

// IC-51: past the time for which the provider is known to honor the key nothing is sent
// again, neither with the old key nor with a new one (I6).
func keyWindowPassed(s suite) {
	down := func(t *testing.T, store settle.Store, o *pt.Options, edit func(*settle.Contract), outage time.Duration, looks ...pt.Step) (*rig.Rig, string) {
		r := rig.New(t, store, o)
		if edit != nil {
			edit(&r.Promise)
		}
		r.Provider.Script(pt.DropReply())
		r.Provider.ScriptLookup(append([]pt.Step{pt.Status(500, "")}, looks...)...)
		a := r.Start(nil)
		out, err := a.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		a.Kill()
		rig.After(outage)
		b := r.Start(rarely)
		b.Work()
		rig.After(2 * time.Hour)
		return r, out.ID
	}
	s.bubble("30 hours later, found", func(t *testing.T, store settle.Store) {
		r, id := down(t, store, keyed(), nil, 30*time.Hour)
		r.State(id, settle.StateSucceeded)
		r.Ledger(1, map[string]int{id: 1})
	})
	s.bubble("30 hours later, not found", func(t *testing.T, store settle.Store) {
		empty := []pt.Step{pt.Empty(), pt.Empty(), pt.Empty(), pt.Empty(), pt.Empty(), pt.Empty(), pt.Empty(), pt.Empty()}
		r, id := down(t, store, keyed(), nil, 30*time.Hour, empty...)
		rec := r.State(id, settle.StateReview)
		if rig.Reason(rec) != settle.ReasonWindow {
			t.Errorf("review %q, want %s", rig.Reason(rec), settle.ReasonWindow)
		}
		r.Ledger(1, map[string]int{id: 1})
		rig.After(20 * time.Hour) // review keeps asking, rarely; evidence still settles it
		r.State(id, settle.StateSucceeded)
		r.Ledger(1, map[string]int{id: 1})
	})
	noLookup := func(c *settle.Contract) { c.Lookup = settle.NoLookup }
	s.bubble("30 hours later, nobody to ask", func(t *testing.T, store settle.Store) {
		r, id := down(t, store, keyed(), noLookup, 30*time.Hour)
		rec := r.State(id, settle.StateReview)
		if rig.Reason(rec) != settle.ReasonWindow {
			t.Errorf("review %q, want %s", rig.Reason(rec), settle.ReasonWindow)
		}
		r.Ledger(1, map[string]int{id: 1})
		if rec.Subject == "" || rec.Purpose == "" || rec.ProviderKey == "" || rec.Fingerprint.IsZero() || len(rec.Request) == 0 {
			t.Error("the row lost its identity before it was settled (I14)")
		}
	})
	s.bubble("23 hours later, inside the window", func(t *testing.T, store settle.Store) {
		r, id := down(t, store, keyed(), noLookup, 23*time.Hour)
		r.State(id, settle.StateSucceeded)
		r.Ledger(2, map[string]int{id: 1})
	})
	s.bubble("inside the window, not inside its margin", func(t *testing.T, store settle.Store) {
		// T-12, T-36: a request may start at the lease's end and land after the settle delay.
		r, id := down(t, store, keyed(), noLookup, day-90*time.Second)
		r.State(id, settle.StateReview)
		r.Ledger(1, map[string]int{id: 1})
	})
	s.bubble("a later contract states a longer window", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		noLookup(&r.Promise)
		r.Provider.Script(pt.DropReply())
		a := r.Start(nil)
		out, err := a.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		a.Kill()
		rig.After(30 * time.Hour)
		r.Promise.Keys.Window = settle.Forever // wishful: the stored, shorter one holds
		r.Start(rarely).Work()
		rig.After(time.Hour)
		r.State(out.ID, settle.StateReview)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	s.bubble("a later contract states a shorter window", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		noLookup(&r.Promise)
		r.Provider.Script(pt.DropReply())
		a := r.Start(nil)
		out, err := a.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		a.Kill()
		rig.After(2 * time.Hour)
		r.Promise.Keys.Window = time.Hour
		r.Start(rarely).Work()
		rig.After(time.Hour)
		r.State(out.ID, settle.StateReview)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
}

// IC-53: a compensation of what never ran leaves a tombstone, and the late step is
// refused. (A step without a record has no id: it is undone by its intent, with Cancel.)
func compensationFirst(s suite) {
	for name, late := range map[string]settle.Operation[pt.Payment]{
		"the step arrives":                      rig.Op("order-1", 100, "EUR"),
		"the step arrives with another request": rig.Op("order-1", 5, "USD"),
	} {
		s.bubble(name, func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, keyed())
			p := r.Start(nil)
			p.Work()
			for range 3 { // again is not an error
				rig.OK(t, p.Charges.Cancel(t.Context(), rig.Intent("order-1"), "saga aborted"))
			}
			for range 2 {
				out, err := p.Charges.Execute(t.Context(), late)
				rig.Is(t, err, settle.ErrCanceled)
				rig.Not(t, err, settle.ErrMismatch)
				if out.Next != settle.NextStop {
					t.Errorf("told to %q, want stop", out.Next)
				}
				_, err = p.Charges.Register(t.Context(), late)
				if err != nil {
					rig.Is(t, err, settle.ErrCanceled)
				}
			}
			late.Key = "key-1"
			_, err := p.Charges.Execute(t.Context(), late)
			rig.Is(t, err, settle.ErrCanceled)
			rig.After(time.Hour)
			if all := r.All(); len(all) != 1 || all[0].State != settle.StateCanceled || !all[0].Due.IsZero() {
				t.Errorf("stored are %v; want one tombstone that nobody retries", all)
			}
			r.Ledger(0, nil)
		})
	}
	s.bubble("an unknown id", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		p := r.Start(nil)
		out, err := p.Refunds.Compensate(t.Context(), settle.Effect{Operation: "0198c0de-0000-7000-8000-000000000000"}, "abort", pt.Refund{})
		rig.Refused(t, out, err, settle.ErrNotFound)
		if all := r.All(); len(all) > 0 {
			t.Errorf("stored all the same: %v", all)
		}
	})
	s.bubble("a step that is registered and not sent", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		p := r.Start(nil)
		rec, err := p.Charges.Register(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		out, err := p.Refunds.Compensate(t.Context(), settle.Effect{Operation: rec.ID}, "abort", pt.Refund{})
		rig.Refused(t, out, err, settle.ErrNoEffect)
		p.Work()
		rig.After(time.Hour)
		r.State(rec.ID, settle.StateCanceled)
		_, err = p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrCanceled)
		_, err = p.Refunds.Compensate(t.Context(), settle.Effect{Operation: rec.ID}, "abort", pt.Refund{})
		rig.Is(t, err, settle.ErrNoEffect)
		r.Ledger(0, nil)
	})
	s.bubble("both at once", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		a, b := r.Start(nil), r.Start(nil)
		for i := range 20 {
			order := fmt.Sprintf("order-%d", i)
			cancel := rig.Background(func() error { return b.Charges.Cancel(t.Context(), rig.Intent(order), "abort") })
			out, err := a.Charges.Execute(t.Context(), rig.Op(order, 100, "EUR"))
			canceled := cancel()
			rec := r.Get(out.ID)
			n := r.Provider.Effects(out.ID)
			switch {
			case canceled == nil && rec.State == settle.StateCanceled && n == 0 && err != nil:
			case canceled != nil && rec.State == settle.StateSucceeded && n == 1 && err == nil:
			default:
				t.Errorf("cancel %v, execute %v, %s, %d effects", canceled, err, rec.State, n)
			}
		}
	})
}

// IC-54: the row is committed before the provider is called, whatever becomes of the
// caller; so a compensation finds it, asks, and refunds. (Registration inside the
// application's own transaction is a matter of the stores that have one.)
func rowBeforeTheCall(s suite) {
	for _, lost := range []bool{true, false} {
		s.bubble(fmt.Sprintf("reply lost %v", lost), func(t *testing.T, store settle.Store) {
			o, hook := onApply(keyed())
			early := 0
			o.OnCreate = func(q pt.Request) {
				if recs, err := store.List(context.Background(), settle.Query{Kind: q.Kind}); err != nil || len(recs) != 1 || len(recs[0].Attempts) == 0 {
					early++
				}
			}
			r := rig.New(t, store, o)
			a, b := r.Start(nil), r.Start(nil)
			if lost {
				hook.set(a.Kill) // the code fails after the provider applied it
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			out, err := a.Charges.Execute(ctx, rig.Op("order-1", 100, "EUR"))
			if lost {
				rig.Is(t, err, settle.ErrPending)
			} else {
				rig.OK(t, err) // and its caller rolls back what it did around it
			}
			hook.clear()
			res, err := b.Refunds.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "rolled back", pt.Refund{})
			if lost {
				rig.Is(t, err, settle.ErrWaiting) // I8: nothing is undone that is not confirmed
				r.Ledger(1, map[string]int{out.ID: 1})
			} else {
				rig.OK(t, err)
			}
			b.Work()
			rig.After(10 * time.Minute)
			r.State(out.ID, settle.StateCompensated)
			again, err := b.Refunds.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "rolled back", pt.Refund{})
			rig.OK(t, err)
			if again.ID != res.ID {
				t.Error("the same compensation is another operation")
			}
			r.State(res.ID, settle.StateSucceeded)
			r.Ledger(2, map[string]int{out.ID: 1, res.ID: 1})
			if left := r.Provider.Remaining(r.Get(out.ID).References[0].Ref); left != 0 {
				t.Errorf("%d are left of the charge", left)
			}
			if early > 0 {
				t.Errorf("%d requests left before their row was there (I1)", early)
			}
		})
	}
	s.bubble("it had no effect after all", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.DropRequest(), pt.Decline("card_declined"))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		res, err := p.Refunds.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "rolled back", pt.Refund{})
		rig.Is(t, err, settle.ErrWaiting)
		p.Work()
		rig.After(10 * time.Minute)
		r.State(out.ID, settle.StateFailed)
		r.State(res.ID, settle.StateCanceled)
		r.Ledger(2, map[string]int{out.ID: 0, res.ID: 0})
	})
}
