package publiccase

import (
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

// IC-63: a model that mints a fresh key per try meets the operation of its intent.
func freshKeyFromAModel(s suite) {
	keyedOp := func(key string) settle.Operation[pt.Payment] {
		op := rig.Op("order-17", 100, "EUR")
		op.Key = key
		return op
	}
	s.bubble("after a time-out", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.HangAfter(nil))
		r.Provider.ScriptLookup(pt.Status(500, "")) // else the same call finds it
		p := r.Start(nil)
		first, err := p.Charges.Execute(t.Context(), keyedOp("k1"))
		rig.Is(t, err, settle.ErrUnknown)
		for _, key := range []string{"k2", "k3", ""} {
			out, err := p.Charges.Execute(t.Context(), keyedOp(key))
			if key == "" { // no key of its own: the intent says which it is
				rig.Is(t, err, settle.ErrUnknown)
				continue
			}
			own := rig.Refused(t, out, err, settle.ErrConflict, "Key")
			if own.ID != first.ID || own.State != settle.StateUnknown {
				t.Errorf("the conflict tells of %q in state %q, want the unresolved operation", own.ID, own.State)
			}
			if advice := own.Next().Advice(); own.Next() != settle.NextWait || !strings.Contains(advice, "not known") || !strings.Contains(advice, "key") {
				t.Errorf("a tool caller is told %q: %q; want that the outcome is unknown and not to be repeated under a new key", own.Next(), advice)
			}
		}
		r.Ledger(1, map[string]int{first.ID: 1})
		p.Work()
		rig.After(10 * time.Minute)
		r.State(first.ID, settle.StateSucceeded)
		out, err := p.Charges.Execute(t.Context(), keyedOp("k4"))
		own := rig.Refused(t, out, err, settle.ErrConflict, "Key")
		if own.State != settle.StateSucceeded {
			t.Errorf("the conflict tells of state %q", own.State)
		}
		out, err = p.Charges.Execute(t.Context(), keyedOp("k1"))
		rig.OK(t, err)
		if !out.Replayed {
			t.Error("the original key is no replay")
		}
		r.Ledger(1, map[string]int{first.ID: 1})
	})
	s.bubble("one key for another order", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		p := r.Start(nil)
		first, err := p.Charges.Execute(t.Context(), keyedOp("k1"))
		rig.OK(t, err)
		op := rig.Op("order-18", 100, "EUR")
		op.Key = "k1"
		out, err := p.Charges.Execute(t.Context(), op)
		own := rig.Refused(t, out, err, settle.ErrConflict, "Key")
		if own.ID != first.ID {
			t.Error("the conflict does not name the operation that has the key")
		}
		r.Ledger(1, map[string]int{first.ID: 1})
	})
	s.bubble("a crowd of fresh keys", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		ps := []*rig.Process{r.Start(nil), r.Start(nil), r.Start(nil)}
		var waits []func() rig.Answer[pt.Receipt]
		for i := range 60 {
			waits = append(waits, rig.Execute(t.Context(), ps[i%3].Charges, keyedOp("k"+strings.Repeat("x", i))))
		}
		won := 0
		for _, w := range waits {
			if ans := w(); ans.Err == nil {
				won++
			} else {
				rig.Is(t, ans.Err, settle.ErrConflict)
			}
		}
		if won != 1 {
			t.Errorf("%d calls won, want 1", won)
		}
		r.Ledger(1, nil)
	})
}

// IC-64: a resumed flow with regenerated arguments is a mismatch that carries the
// operation's state; the recorded result is accepted explicitly, or not at all.
func resumedWithOtherArguments(s suite) {
	step := func(amount int64, note string) settle.Operation[pt.Payment] {
		return settle.Operation[pt.Payment]{
			Subject: "run-7", Purpose: "step-2", Request: pt.Payment{Amount: amount, Currency: "EUR", Invoice: note},
		}
	}
	resumes := []struct {
		op     settle.Operation[pt.Payment]
		fields []string
	}{
		{step(1000, "B"), []string{"/invoice"}},
		{step(1200, "A"), []string{"/amount"}},
		{step(1200, "B"), []string{"/amount", "/invoice"}},
		{step(1000, ""), []string{"/invoice"}},
	}
	s.bubble("after success", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		p := r.Start(nil)
		first, err := p.Charges.Execute(t.Context(), step(1000, "A"))
		rig.OK(t, err)
		for _, c := range resumes {
			out, err := p.Charges.Execute(t.Context(), c.op)
			own := rig.Refused(t, out, err, settle.ErrMismatch, c.fields...)
			if own.ID != first.ID || own.State != settle.StateSucceeded {
				t.Errorf("the mismatch tells of %q in state %q", own.ID, own.State)
			}
			if strings.Contains(err.Error(), "1200") || strings.Contains(err.Error(), "1000") {
				t.Errorf("the error shows values (I3, I16): %v", err)
			}
			rec, err := p.Get(t.Context(), own.ID) // what the error names can be accepted explicitly
			rig.OK(t, err)
			got, err := p.Charges.Outcome(rec)
			rig.OK(t, err)
			if res, ok := got.Result(); !ok || res.Amount != 1000 {
				t.Errorf("the recorded result is %+v, %v", res, ok)
			}
		}
		r.Ledger(1, map[string]int{first.ID: 1})
	})
	s.bubble("while unknown", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.DropReply())
		r.Provider.ScriptLookup(pt.Status(500, ""))
		p := r.Start(nil)
		first, err := p.Charges.Execute(t.Context(), step(1000, "A"))
		rig.Is(t, err, settle.ErrUnknown)
		for _, c := range resumes {
			out, err := p.Charges.Execute(t.Context(), c.op)
			own := rig.Refused(t, out, err, settle.ErrMismatch, c.fields...)
			if own.State != settle.StateUnknown {
				t.Errorf("the mismatch tells of state %q", own.State)
			}
			if own.Next() != settle.NextWait {
				t.Errorf("a tool caller is told to %q while the outcome is unknown, want wait", own.Next())
			}
		}
		r.Ledger(1, map[string]int{first.ID: 1})
	})
	s.bubble("after failure", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.Decline("card_declined"))
		p := r.Start(nil)
		first, err := p.Charges.Execute(t.Context(), step(1000, "A"))
		rig.Is(t, err, settle.ErrFailed)
		for _, c := range resumes {
			out, err := p.Charges.Execute(t.Context(), c.op)
			rig.Refused(t, out, err, settle.ErrMismatch, c.fields...)
		}
		r.Ledger(1, map[string]int{first.ID: 0})
		op := step(1200, "B") // said explicitly, it is a new operation
		op.Replaces = first.ID
		next, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		r.Ledger(2, map[string]int{first.ID: 0, next.ID: 1})
	})
}
