package settle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

func heldOp(purpose string) settle.Operation[rig.Payment] {
	op := rig.Op("order-1", 100, "EUR")
	op.Purpose, op.Hold = purpose, "order-1"
	return op
}

// A hold covers everything until there is evidence of no effect, or it was undone.
func TestHold(t *testing.T) {
	t.Parallel()
	held := func(t *testing.T, r *rig.Rig, p *rig.Process, by string) {
		t.Helper()
		n := r.Sends()
		out, err := p.Charges.Execute(t.Context(), heldOp("purchase-2"))
		own := rig.Refused(t, out, err, settle.ErrHeld)
		if own.ID != by {
			t.Errorf("held by %q, want %q", own.ID, by)
		}
		if own.Next() == settle.NextRetry || own.Next() == settle.NextDone {
			t.Errorf("a held call is told to %q", own.Next())
		}
		if r.Sends() != n {
			t.Error("sent although held")
		}
	}
	free := func(t *testing.T, p *rig.Process) settle.Outcome[rig.Receipt] {
		t.Helper()
		out, err := p.Charges.Execute(t.Context(), heldOp("purchase-2"))
		rig.OK(t, err)
		return out
	}
	for state, steps := range map[settle.State][]pt.Step{
		settle.StateSucceeded:      nil,
		settle.StateUnknown:        {pt.DropReply()},
		settle.StateProcessing:     {pt.Processing()},
		settle.StateActionRequired: {pt.ActionRequired()},
		settle.StateReview:         {pt.WrongAmount(1)},
		settle.StateCreated:        {pt.RateLimit(time.Hour)},
	} {
		variant(t, "held while "+string(state), keyed(), func(t *testing.T, r *rig.Rig) {
			r.Provider.Script(steps...)
			if state == settle.StateUnknown {
				r.Provider.ScriptLookup(pt.Status(500, ""))
			}
			p := r.Start(nil)
			out, _ := p.Charges.Execute(t.Context(), heldOp("purchase"))
			r.State(out.ID, state)
			held(t, r, p, out.ID)
			again, err := p.Charges.Execute(t.Context(), heldOp("purchase")) // the holder itself is not
			rig.Not(t, err, settle.ErrHeld)
			if again.ID != out.ID {
				t.Error("another operation")
			}
		})
	}
	variant(t, "held while in flight", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.Slow(5 * time.Second))
		p := r.Start(nil)
		first := rig.Execute(t.Context(), p.Charges, heldOp("purchase"))
		rig.After(time.Second)
		held(t, r, p, r.All()[0].ID)
		rig.OK(t, first().Err)
	})
	variant(t, "released by failure, never taken again", keyed(), func(t *testing.T, r *rig.Rig) {
		// T-25: late evidence for the first one collides with nothing.
		r.Provider.Script(pt.DropRequest(), pt.Decline("card_declined"))
		p := r.Start(nil)
		first, err := p.Charges.Execute(t.Context(), heldOp("purchase"))
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(5 * time.Minute)
		r.State(first.ID, settle.StateFailed)
		second := free(t, p)
		r.State(second.ID, settle.StateSucceeded)
		rec, err := p.Resolve(t.Context(), first.ID, settle.Decision{
			Actor: "ann", Reason: "the bank says it was charged", Evidence: "statement", Fact: settle.Applied, Ref: "ch_bank",
		})
		rig.OK(t, err)
		if rec.State != settle.StateSucceeded {
			t.Errorf("the first is %s, want succeeded", rec.State)
		}
		out, err := p.Charges.Execute(t.Context(), heldOp("purchase-3"))
		own := rig.Refused(t, out, err, settle.ErrHeld)
		if own.ID != second.ID {
			t.Error("the hold is not that of the second")
		}
	})
	variant(t, "a failed call again takes no hold", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.Decline("card_declined"))
		p := r.Start(nil)
		_, err := p.Charges.Execute(t.Context(), heldOp("purchase"))
		rig.Is(t, err, settle.ErrFailed)
		_, err = p.Charges.Execute(t.Context(), heldOp("purchase"))
		rig.Is(t, err, settle.ErrFailed)
		free(t, p)
	})
	variant(t, "released by cancellation", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		_, err := p.Charges.Register(t.Context(), heldOp("purchase"))
		rig.OK(t, err)
		out, err := p.Charges.Execute(t.Context(), heldOp("purchase-2"))
		rig.Refused(t, out, err, settle.ErrHeld)
		rig.OK(t, p.Charges.Cancel(t.Context(), rig.Intent("order-1"), "changed their mind"))
		free(t, p)
		r.Ledger(1, nil)
	})
	variant(t, "released by complete compensation only", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		first, err := p.Charges.Execute(t.Context(), heldOp("purchase"))
		rig.OK(t, err)
		_, err = p.Refunds.Compensate(t.Context(), settle.Effect{Operation: first.ID}, "part", rig.Refund{Amount: 60, Currency: "EUR"})
		rig.OK(t, err)
		held(t, r, p, first.ID)
		_, err = p.Refunds.Compensate(t.Context(), settle.Effect{Operation: first.ID}, "rest", rig.Refund{Amount: 40, Currency: "EUR"})
		rig.OK(t, err)
		r.State(first.ID, settle.StateCompensated)
		free(t, p)
		r.Ledger(4, map[string]int{first.ID: 1})
	})
	variant(t, "across kinds, not across tenants", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		first, err := p.Charges.Execute(t.Context(), heldOp("purchase"))
		rig.OK(t, err)
		other := rig.Raw[int, int](p, "booking", nil, nil)
		op := settle.Operation[int]{Subject: "s", Purpose: "p", Hold: "order-1"}
		out, err := other.Execute(t.Context(), op)
		if own := rig.Refused(t, out, err, settle.ErrHeld); own.ID != first.ID {
			t.Error("held by another")
		}
		op.Scope = "another-shop"
		_, err = other.Execute(t.Context(), op)
		rig.OK(t, err)
	})
	variant(t, "a hundred at once", keyed(), func(t *testing.T, r *rig.Rig) {
		ps := []*rig.Process{r.Start(nil), r.Start(nil)}
		var wg sync.WaitGroup
		var won atomic.Int32
		for i := range 100 {
			wg.Go(func() {
				_, err := ps[i%2].Charges.Execute(t.Context(), heldOp(fmt.Sprintf("purchase-%d", i)))
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, settle.ErrHeld):
					t.Errorf("call %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d purchases went through", won.Load())
		}
		r.Ledger(1, nil)
	})
}

// The next try after a definite end is named, never counted.
func TestReplaces(t *testing.T) {
	t.Parallel()
	retry := func(of string, token string) settle.Operation[rig.Payment] {
		op := rig.Op("order-1", 100, "EUR")
		op.Replaces, op.Request.Token = of, token
		return op
	}
	fail := func(t *testing.T, r *rig.Rig, p *rig.Process) settle.Outcome[rig.Receipt] {
		t.Helper()
		r.Provider.Script(pt.Decline("card_declined"))
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrFailed)
		return out
	}
	variant(t, "two clicks, one operation", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		first := fail(t, r, p)
		second, err := p.Charges.Execute(t.Context(), retry(first.ID, "card-2"))
		rig.OK(t, err)
		again, err := p.Charges.Execute(t.Context(), retry(first.ID, "card-3"))
		rig.OK(t, err)
		if again.ID != second.ID || !again.Replayed || second.Replayed || second.Generation != 1 || second.Replaces != first.ID {
			t.Errorf("the second click made %q of %q, generation %d", again.ID, second.ID, second.Generation)
		}
		if second.ProviderKey == first.ProviderKey {
			t.Error("both tries have one provider key: the second would be answered with the first's refusal")
		}
		now, err := p.Charges.Find(t.Context(), rig.Intent("order-1"))
		rig.OK(t, err)
		if now.ID != second.ID {
			t.Error("the intent's live operation is not the second")
		}
		// Without the name, the intent's live operation answers.
		plain, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		if plain.ID != second.ID {
			t.Error("a plain repeat met another operation")
		}
		r.State(first.ID, settle.StateFailed)
		r.Ledger(2, map[string]int{first.ID: 0, second.ID: 1})
	})
	variant(t, "with another request", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		first := fail(t, r, p)
		op := retry(first.ID, "")
		op.Request.Amount = 50
		second, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		out, err := p.Charges.Execute(t.Context(), retry(first.ID, "")) // the old amount again
		rig.Refused(t, out, err, settle.ErrMismatch, "/amount")
		r.Ledger(2, map[string]int{first.ID: 0, second.ID: 1})
	})
	variant(t, "a chain", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		last := fail(t, r, p)
		keys := map[string]bool{last.ProviderKey: true}
		for i := range 5 {
			if i < 4 {
				r.Provider.Script(pt.Decline("card_declined"))
			}
			next, err := p.Charges.Execute(t.Context(), retry(last.ID, ""))
			if i < 4 {
				rig.Is(t, err, settle.ErrFailed)
			} else {
				rig.OK(t, err)
			}
			if keys[next.ProviderKey] || next.Generation != i+1 {
				t.Errorf("try %d has generation %d and the key %q", i+2, next.Generation, next.ProviderKey)
			}
			keys[next.ProviderKey] = true
			out, err := p.Charges.Execute(t.Context(), retry(last.Replaces, "")) // a former try is not the live one
			if last.Replaces != "" {
				rig.Refused(t, out, err, settle.ErrConflict, "Replaces")
			}
			last = next
		}
		r.Ledger(6, map[string]int{last.ID: 1})
	})
	for state, steps := range map[settle.State][]pt.Step{
		settle.StateSucceeded:      nil,
		settle.StateUnknown:        {pt.DropReply()},
		settle.StateProcessing:     {pt.Processing()},
		settle.StateActionRequired: {pt.ActionRequired()},
		settle.StateReview:         {pt.WrongAmount(1)},
		settle.StateCreated:        {pt.RateLimit(time.Hour)},
	} {
		variant(t, "refused while "+string(state), keyed(), func(t *testing.T, r *rig.Rig) {
			r.Provider.Script(steps...)
			if state == settle.StateUnknown {
				r.Provider.ScriptLookup(pt.Status(500, ""))
			}
			p := r.Start(nil)
			first, _ := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			r.State(first.ID, state)
			out, err := p.Charges.Execute(t.Context(), retry(first.ID, ""))
			own := rig.Refused(t, out, err, settle.ErrConflict, "Replaces")
			if own.ID != first.ID || own.State != state {
				t.Errorf("the conflict tells of %q in state %s", own.ID, own.State)
			}
			_, err = p.Charges.Register(t.Context(), retry(first.ID, ""))
			rig.Typed(t, err, settle.ErrConflict, "Replaces")
			r.Ledger(1, nil)
		})
	}
	variant(t, "refused for a compensated one", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		first, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		_, err = p.Refunds.Compensate(t.Context(), settle.Effect{Operation: first.ID}, "return", rig.Refund{})
		rig.OK(t, err)
		out, err := p.Charges.Execute(t.Context(), retry(first.ID, ""))
		rig.Refused(t, out, err, settle.ErrConflict, "Replaces")
		r.Ledger(2, nil)
	})
	variant(t, "of a canceled one", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		rig.OK(t, p.Charges.Cancel(t.Context(), rig.Intent("order-1"), "changed their mind"))
		buried, err := p.Charges.Find(t.Context(), rig.Intent("order-1"))
		rig.OK(t, err)
		out, err := p.Charges.Execute(t.Context(), retry(buried.ID, ""))
		rig.OK(t, err)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	variant(t, "of what is no operation of this intent", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		first := fail(t, r, p)
		op := rig.Op("order-2", 100, "EUR")
		op.Replaces = first.ID
		out, err := p.Charges.Execute(t.Context(), op)
		rig.Refused(t, out, err, settle.ErrConflict, "Replaces")
		op.Replaces = "no-such-id"
		out, err = p.Charges.Execute(t.Context(), op)
		rig.Refused(t, out, err, settle.ErrNotFound)
		r.Ledger(1, nil)
		if n := len(r.All()); n != 1 {
			t.Errorf("%d operations", n)
		}
	})
	variant(t, "a hundred clicks at once", keyed(), func(t *testing.T, r *rig.Rig) {
		ps := []*rig.Process{r.Start(nil), r.Start(nil), r.Start(nil)}
		first := fail(t, r, ps[0])
		var waits []func() rig.Answer[rig.Receipt]
		for i := range 100 {
			waits = append(waits, rig.Execute(t.Context(), ps[i%3].Charges, retry(first.ID, fmt.Sprintf("card-%d", i))))
		}
		ids := map[string]int{}
		for i, w := range waits {
			ans := w()
			if ans.Err != nil && !errors.Is(ans.Err, settle.ErrInProgress) {
				t.Errorf("click %d: %v", i, ans.Err)
			}
			ids[ans.Out.ID]++
		}
		if len(ids) != 1 {
			t.Errorf("%d operations: %v", len(ids), ids)
		}
		r.Ledger(2, map[string]int{first.ID: 0})
		if n := len(r.All()); n != 2 {
			t.Errorf("%d operations are stored", n)
		}
	})
	variant(t, "with a key of the application", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		op := rig.Op("order-1", 100, "EUR")
		op.Key = "key-1"
		r.Provider.Script(pt.Decline("card_declined"))
		first, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrFailed)
		op.Replaces = first.ID // the key's name is free in the same commit
		second, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		if second.Key != "key-1" || second.ProviderKey == first.ProviderKey {
			t.Errorf("key %q, provider keys %q and %q", second.Key, first.ProviderKey, second.ProviderKey)
		}
		r.Ledger(2, map[string]int{first.ID: 0, second.ID: 1})
	})
	variant(t, "keeps the hold", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		r.Provider.Script(pt.Decline("card_declined"))
		first, err := p.Charges.Execute(t.Context(), heldOp("purchase"))
		rig.Is(t, err, settle.ErrFailed)
		op := heldOp("purchase")
		op.Replaces = first.ID
		second, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		out, err := p.Charges.Execute(t.Context(), heldOp("purchase-2"))
		if own := rig.Refused(t, out, err, settle.ErrHeld); own.ID != second.ID {
			t.Error("held by another")
		}
	})
	variant(t, "T-42: the former one revives", keyed(), func(t *testing.T, r *rig.Rig) {
		// Two effects for one intent: a person decides, and the hook runs once.
		hooks := 0
		opts := &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[rig.Receipt]) error { hooks++; return nil },
		}
		late := make(chan struct{})
		a := r.Bare(nil)
		slow := pt.ChargeAdapter(a.API, r.Promise)
		slow.SubmitFunc = func(_ context.Context, c *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
			c.Key()
			<-late // an SDK that ignores its context
			return settle.Observation[rig.Receipt]{Fact: settle.Applied, Ref: "ch_late", Terms: c.Terms}, nil
		}
		x, err := settle.New(a.Engine, rig.KindCharge, slow, opts)
		rig.OK(t, err)
		first, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		r.Provider.Script(pt.Decline("card_declined"))
		b := r.StartWith(nil, opts)
		b.Work()
		rig.After(10 * time.Minute)
		r.State(first.ID, settle.StateFailed)
		second, err := b.Charges.Execute(t.Context(), retry(first.ID, ""))
		rig.OK(t, err)
		close(late)
		rig.After(time.Second)
		rec := r.State(first.ID, settle.StateReview)
		if rig.Reason(rec) != settle.ReasonReplaced || !slices.Contains(rec.Alarms(), settle.AlarmReplaced) || rec.Review.Deadline.IsZero() {
			t.Errorf("review %+v, alarms %v", rec.Review, rec.Alarms())
		}
		rig.After(time.Hour)
		r.State(first.ID, settle.StateReview)
		r.State(second.ID, settle.StateSucceeded)
		if hooks != 1 {
			t.Errorf("the hook ran %d times", hooks)
		}
		out, err := b.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		if out.ID != second.ID {
			t.Error("the intent went back to the first")
		}
	})
}
