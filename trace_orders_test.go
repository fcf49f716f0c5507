package settle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/providertest"
)

// orders calls f with every order of xs.
func orders[T any](xs []T, f func([]T)) {
	if len(xs) == 0 {
		f(nil)
		return
	}
	for i := range xs {
		rest := slices.Delete(slices.Clone(xs), i, i+1)
		orders(rest, func(tail []T) { f(append([]T{xs[i]}, tail...)) })
	}
}

// inAnyOrder merges the events in every order into an operation whose request got no answer, and with the
// last of them as its late reply; the provider can not be asked, so nothing else is learned.
func inAnyOrder(t *testing.T, events []said, check func(t *testing.T, l *scenario.Lab, p *scenario.Process, id string)) {
	orders(events, func(order []said) {
		name := ""
		for _, o := range order {
			name += string(o.Fact) + o.Ref + " "
		}
		for _, inFlight := range []bool{false, true} {
			t.Run(fmt.Sprintf("%sin flight %v", name, inFlight), func(t *testing.T) {
				scenario.Play(t, inMemory, nil, func(t *testing.T, l *scenario.Lab) {
					l.Lies = true // the reports are made up
					g := l.Gate()
					l.Provider.Script(providertest.HangBefore(g.C).And(providertest.DropReply()))
					p := l.Start(&scenario.Setup{Promise: silent(l)})
					id, done := executes(t, l, p)
					if !inFlight {
						g.Open()
						noAnswer(t, <-done)
					}
					for _, o := range order {
						event(t, l.Start(&scenario.Setup{Promise: silent(l)}), id, o)
					}
					if inFlight {
						g.Open()
						if err := <-done; err != nil {
							t.Logf("the caller is told %v", err)
						}
					}
					check(t, l, p, id)
				})
			})
		}
	})
}

func noAnswer(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, settle.ErrUnknown) {
		t.Fatalf("error %v, want unknown", err)
	}
}

func TestT07_OrdersThroughEngines(t *testing.T) {
	is := func(want ...string) func(*testing.T, *scenario.Lab, *scenario.Process, string) {
		return func(t *testing.T, l *scenario.Lab, _ *scenario.Process, id string) {
			r := l.Get(id)
			l.Want(r, settle.StateSucceeded)
			if got := r.Alarms(); !slices.Equal(got, want) {
				t.Fatalf("alarms %v, want %v", got, want)
			}
		}
	}
	t.Run("fail A, ok B", func(t *testing.T) {
		inAnyOrder(t, []said{{Fact: settle.Declined, Ref: "A", Code: "stolen_card"}, charged("B")}, is())
	})
	t.Run("ok A, ok B, rev A", func(t *testing.T) {
		inAnyOrder(t, []said{charged("A"), charged("B"), {Fact: settle.Reversed, Ref: "A"}}, is(settle.AlarmDuplicate))
	})
	t.Run("processing A, ok B", func(t *testing.T) {
		inAnyOrder(t, []said{{Fact: settle.Underway, Ref: "A", Sequence: 6}, charged("B")}, is())
	})
}

func TestT09_ProgressThroughEngines(t *testing.T) {
	reports := []said{
		{Fact: settle.Underway, Ref: "A", Sequence: 5},
		{Fact: settle.NeedsAction, Ref: "A", Action: "3ds", Sequence: 5},
	}
	t.Run("both orders", func(t *testing.T) {
		inAnyOrder(t, reports, func(t *testing.T, l *scenario.Lab, _ *scenario.Process, id string) {
			r := l.Get(id)
			l.Want(r, settle.StateActionRequired)
			if r.Due.After(r.AsOf) {
				t.Fatalf("no lookup is asked for: due in %v", r.Due.Sub(r.AsOf))
			}
		})
	})
	t.Run("a failed lookup", func(t *testing.T) {
		scenario.Play(t, inMemory, nil, func(t *testing.T, l *scenario.Lab) {
			l.Provider.Script(providertest.Processing())
			p := l.Start(nil)
			out, err := p.Charge.Execute(l.Ctx, scenario.Order())
			if !errors.Is(err, settle.ErrProcessing) {
				t.Fatalf("error %v, want processing", err)
			}
			l.Provider.ScriptLookup(providertest.Status(500, ""))
			asked := l.Asked()
			l.Elapse(time.Minute)
			l.Want(p.Reconcile(out.ID), settle.StateProcessing)
			if l.Asked() == asked {
				t.Fatal("nobody asked")
			}
		})
	})
}

// refundOf makes a compensation of cents of the charge id; no cents: the whole.
func refundOf(l *scenario.Lab, p *scenario.Process, id, reason string, cents int64) (settle.Outcome[scenario.Receipt], error) {
	req := scenario.Refund{}
	if cents > 0 {
		req = scenario.Refund{Amount: cents, Currency: "EUR"}
	}
	return p.Refund.Compensate(l.Ctx, settle.Effect{Operation: id}, reason, req)
}

func TestT20_PartialRefundBounces(t *testing.T) {
	scenario.Play(t, inMemory, nil, func(t *testing.T, l *scenario.Lab) {
		l.Lies = true // the bounce is made up
		ran := 0
		p := l.Start(&scenario.Setup{Charge: &settle.ExecutorOptions[scenario.Payment, scenario.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[scenario.Receipt]) error { ran++; return nil },
		}})
		out, err := p.Charge.Execute(l.Ctx, scenario.Order())
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

func TestT21_VoidThenRefundForOneReason(t *testing.T) {
	scenario.Play(t, inMemory, nil, func(t *testing.T, l *scenario.Lab) {
		p := l.Start(nil)
		void, err := settle.New(p.Engine, "void.captured", settle.Adapter[scenario.Refund, scenario.Receipt]{
			Promise:   *silent(l),
			TermsFunc: func(op settle.Operation[scenario.Refund]) settle.Terms { return settle.Terms{Amount: op.Undoes.Amount} },
			SubmitFunc: func(_ context.Context, c *settle.Call[scenario.Refund]) (settle.Observation[scenario.Receipt], error) {
				_ = c.Key()
				return settle.Observation[scenario.Receipt]{Fact: settle.Declined, Code: "already_captured"}, nil
			},
		}, &settle.ExecutorOptions[scenario.Refund, scenario.Receipt]{Undoes: "charge"})
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.Charge.Execute(l.Ctx, scenario.Order())
		if err != nil {
			t.Fatal(err)
		}
		no, err := void.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", scenario.Refund{})
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

func TestT24_RefundRevivedBesideAnother(t *testing.T) {
	scenario.Play(t, inMemory, nil, func(t *testing.T, l *scenario.Lab) {
		l.Lies = true // the refund that failed is said to have been done
		p := l.Start(nil)
		out, err := p.Charge.Execute(l.Ctx, scenario.Order())
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

func TestT25_EvidenceForAReleasedHold(t *testing.T) {
	scenario.Play(t, inMemory, nil, func(t *testing.T, l *scenario.Lab) {
		l.Lies = true // the first was declined, and is said to have an effect
		p := l.Start(nil)
		held := func(purpose string) scenario.Charge {
			op := scenario.Order()
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
func TestT23_RefundEventBeforeItsReply(t *testing.T) {
	scenario.Play(t, inMemory, nil, func(t *testing.T, l *scenario.Lab) {
		p := l.Start(nil).Work()
		out, err := p.Charge.Execute(l.Ctx, scenario.Order())
		if err != nil {
			t.Fatal(err)
		}
		g := l.Gate()
		l.Provider.Script(providertest.HangAfter(g.C)) // done, and the reply is on its way
		done := make(chan settle.Outcome[scenario.Receipt], 1)
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
