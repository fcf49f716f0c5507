package scenario

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

func t20(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true // the bounce is made up
		ran := 0
		p := l.Start(&Setup{Options: settle.Options{PollInterval: 30 * time.Second}, Charge: &settle.ExecutorOptions[Payment, Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[Receipt]) error { ran++; return nil },
		}})
		out, err := p.Charge.Execute(l.Ctx, Order())
		if err != nil {
			t.Fatal(err)
		}
		back, err := refundOf(l, p, out.ID, "one item", 300)
		if err != nil {
			t.Fatal(err)
		}
		left := func(want int64) {
			t.Helper()
			r := l.Get(out.ID)
			l.Want(r, settle.StateSucceeded)
			if got := r.Effects()[0].Left(); !got.Equal(settle.Minor(want, "EUR")) {
				t.Fatalf("left %v, want %d", got, want)
			}
		}
		left(1699)
		event(t, p, back.ID, said{Fact: settle.Reversed, Ref: back.References[0].Ref, Code: "account_closed"})
		left(1999)
		if !slices.Contains(p.Alarms(), settle.AlarmUndone) {
			t.Fatalf("alarms %v, want %s among them", p.Alarms(), settle.AlarmUndone)
		}
		l.Want(l.Get(back.ID), settle.StateFailed)
		event(t, p, back.ID, said{Fact: settle.Reversed, Ref: back.References[0].Ref})
		left(1999) // freed once
		p.Work()
		l.Elapse(time.Hour)
		if ran != 1 {
			t.Fatalf("the hook ran %d times", ran)
		}
	})
}

func t21(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		void, err := settle.New(p.Engine, "void.captured", settle.Adapter[Refund, Receipt]{
			Promise:   *silent(l),
			TermsFunc: func(op settle.Operation[Refund]) settle.Terms { return settle.Terms{Amount: op.Undoes.Amount} },
			SubmitFunc: func(_ context.Context, c *settle.Call[Refund]) (settle.Observation[Receipt], error) {
				_ = c.Key()
				return settle.Observation[Receipt]{Fact: settle.Declined, Code: "already_captured"}, nil
			},
		}, &settle.ExecutorOptions[Refund, Receipt]{Undoes: "charge"})
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.Charge.Execute(l.Ctx, Order())
		if err != nil {
			t.Fatal(err)
		}
		no, err := void.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", Refund{})
		if !errors.Is(err, settle.ErrFailed) {
			t.Fatalf("the void: %v, want failed", err)
		}
		keys := []string{no.ProviderKey}
		for reason, cents := range map[string]int64{"returned": 300, "returned, second item": 400} {
			back, err := refundOf(l, p, out.ID, reason, cents)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, back.ProviderKey)
			l.Effects(back.ID, 1)
		}
		slices.Sort(keys)
		if len(slices.Compact(keys)) != 3 {
			t.Fatalf("keys %v, want three", keys)
		}
		// The same reason is the same compensation: another amount for it is refused, not sent (I3).
		if _, err := refundOf(l, p, out.ID, "returned", 500); !errors.Is(err, settle.ErrMismatch) {
			t.Fatalf("another amount for the same reason: %v", err)
		}
		l.Requests(3)
	})
}

func t24(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true // the refund that failed is said to have been done
		p := l.Start(nil)
		out, err := p.Charge.Execute(l.Ctx, Order())
		if err != nil {
			t.Fatal(err)
		}
		l.Provider.Script(providertest.Decline("insufficient_funds"))
		one, err := refundOf(l, p, out.ID, "first", 0)
		if !errors.Is(err, settle.ErrFailed) {
			t.Fatalf("error %v, want failed", err)
		}
		two, err := refundOf(l, p, out.ID, "second", 0)
		if err != nil {
			t.Fatal(err)
		}
		l.Want(event(t, p, one.ID, said{Fact: settle.Applied, Ref: "re_late", Terms: settle.Terms{Amount: settle.Minor(1999, "EUR")}}), settle.StateSucceeded)
		r := l.Get(out.ID)
		l.Want(r, settle.StateCompensated)
		if !slices.Contains(r.Alarms(), settle.AlarmExcess) || !slices.Contains(p.Alarms(), settle.AlarmExcess) {
			t.Fatalf("alarms %v, want %s among them", p.Alarms(), settle.AlarmExcess)
		}
		l.Want(l.Get(two.ID), settle.StateSucceeded)
		if _, err := refundOf(l, p, out.ID, "third", 1); !errors.Is(err, settle.ErrExceeds) {
			t.Fatalf("a further refund: %v, want exceeds", err)
		}
		l.Requests(3)
	})
}

func t25(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true // the first was declined, and is said to have an effect
		p := l.Start(nil)
		held := func(purpose string) Charge {
			op := Order()
			op.Hold, op.Purpose = "order-8472", purpose
			return op
		}
		l.Provider.Script(providertest.Decline("stolen_card"))
		one, err := p.Charge.Execute(l.Ctx, held("first card"))
		if !errors.Is(err, settle.ErrFailed) {
			t.Fatalf("error %v, want failed", err)
		}
		two, err := p.Charge.Execute(l.Ctx, held("second card"))
		if err != nil {
			t.Fatal(err)
		}
		r := event(t, p, one.ID, said{Fact: settle.Applied, Ref: "ch_late", Terms: settle.Terms{Amount: settle.Minor(1, "EUR")}})
		l.Want(r, settle.StateReview)
		if !slices.Contains(p.Alarms(), settle.AlarmMismatch) || !slices.Contains(p.Alarms(), settle.AlarmReview) {
			t.Fatalf("alarms %v", p.Alarms())
		}
		if _, err := p.Charge.Execute(l.Ctx, held("third card")); !errors.Is(err, settle.ErrHeld) {
			t.Fatalf("a third: %v, want held", err)
		}
		l.Want(l.Get(two.ID), settle.StateSucceeded)
	})
}

// An event names the refund by the provider's reference before the reply has brought it: it is parked, matched
// again once the reference is known, and the refund is counted once.
func t23(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil).Work()
		out, err := p.Charge.Execute(l.Ctx, Order())
		if err != nil {
			t.Fatal(err)
		}
		g := l.Gate()
		l.Provider.Script(providertest.HangAfter(g.C)) // done, and the reply is on its way
		done := make(chan settle.Outcome[Receipt], 1)
		go func() {
			back, _ := refundOf(l, p, out.ID, "returned", 300)
			done <- back
		}()
		l.Elapse(time.Second)
		reqs := l.Requests(2)
		objs, err := l.Provider.List(l.Ctx, providertest.Query{Kind: providertest.KindRefund, Account: l.Promise.Account.Account, Reference: reqs[1].Reference})
		if err != nil || len(objs.Objects) != 1 {
			t.Fatalf("the provider has %v, %v", objs, err)
		}
		ev := settle.Event{Account: l.Promise.Account.String(), ID: "evt_refund", Type: "refund.updated", Ref: objs.Objects[0].ID, Payload: settle.Payload(`{}`)}
		got, err := p.Engine.Observe(l.Ctx, ev)
		if err != nil || !got.Parked {
			t.Fatalf("parked %v, error %v", got.Parked, err)
		}
		g.Open()
		back := <-done
		l.Elapse(10 * time.Minute)
		l.Want(l.Get(back.ID), settle.StateSucceeded)
		if kept, err := p.Engine.Get(l.Ctx, got.Event); err != nil || !kept.State.Settled() {
			t.Fatalf("the parked event is %s, %v", kept.State, err)
		}
		r := l.Get(out.ID)
		l.Want(r, settle.StateSucceeded)
		if left := r.Effects()[0].Left(); !left.Equal(settle.Minor(1699, "EUR")) || len(r.Ledger) != 1 {
			t.Fatalf("left %v, ledger %+v: want one refund of 300", left, r.Ledger)
		}
		l.Effects(back.ID, 1)
	})
}

// t07: the state does not depend on the order of what is learned about several references.
func t07(t *testing.T, open Open) {
	bad := said{Fact: settle.Declined, Ref: "A", Code: "stolen_card"}
	back := said{Fact: settle.Reversed, Ref: "A"}
	slow := said{Fact: settle.Underway, Ref: "A", Sequence: 6}
	a, b := charged("A"), charged("B")
	for _, c := range []struct {
		reports []said
		alarms  []string
	}{
		{[]said{bad, b}, nil},
		{[]said{b, bad}, nil},
		{[]said{slow, b}, nil},
		{[]said{b, slow}, nil},
		{[]said{a, b, back}, []string{settle.AlarmDuplicate}},
		{[]said{a, back, b}, []string{settle.AlarmDuplicate}},
		{[]said{b, a, back}, []string{settle.AlarmDuplicate}},
		{[]said{b, back, a}, []string{settle.AlarmDuplicate}},
		{[]said{back, a, b}, []string{settle.AlarmDuplicate}},
		{[]said{back, b, a}, []string{settle.AlarmDuplicate}},
	} {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			l.Lies = true // the reports are made up
			l.Provider.Script(providertest.DropReply())
			p := l.Start(&Setup{Promise: silent(l)})
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrUnknown)
			for _, o := range c.reports {
				event(t, p, out.ID, o)
			}
			r := l.Get(out.ID)
			l.Want(r, settle.StateSucceeded)
			if got := r.Alarms(); !slices.Equal(got, c.alarms) {
				t.Fatalf("alarms %v, want %v; %s", got, c.alarms, l.story(out.ID))
			}
			for _, x := range r.References {
				if x.Ref == "A" && c.alarms != nil && x.Rank != settle.RankReversed {
					t.Fatalf("A is %s: the order counts (I7)", x.Rank)
				}
			}
		})
	}
}
