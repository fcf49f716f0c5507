package scenario

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// undoIt undoes an effect by a void until the charge is captured, and by a refund from then on.
func undoIt(l *Lab, p *Process, id string) (settle.Record, error) {
	return p.Charge.Undo(l.Ctx, settle.Effect{Operation: id}, "returned", func(now said) string {
		if now.Fact == settle.Applied && !now.Result.Captured {
			return "void"
		}
		return "refund"
	}, p.Void.Way(providertest.Void{}), p.Refund.Way(Refund{}))
}

// undoChosen: void or refund, by what the provider says now; then it stays that.
func undoChosen(t *testing.T, open Open) {
	for _, captured := range []bool{false, true} {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			l.Lies = true // a void reverses the charge at the provider
			p := l.Start(nil).Work()
			out := l.paid(p)
			want := "void"
			if captured {
				l.noErr(l.Provider.Capture("ch_1"))
				want = "refund"
			}
			l.Provider.Script(providertest.DropReply())
			l.Provider.ScriptLookup(providertest.OK(), providertest.Status(503, ""), providertest.Status(503, ""))
			first, err := undoIt(l, p, out.ID)
			l.wantErr(err, settle.ErrUnknown)
			if first.Kind != want {
				t.Fatalf("captured %v: it is a %s", captured, first.Kind)
			}
			if !captured {
				// A lookup would choose otherwise now; while the first is unknown nothing else starts.
				_, err = refundOf(l, p, out.ID, "returned", 0)
				l.wantErr(err, settle.ErrExceeds)
				_, err = refundOf(l, p, out.ID, "another", 1)
				l.wantErr(err, settle.ErrExceeds)
			}
			again, err := undoIt(l, p, out.ID)
			if again.ID != first.ID || err != nil && !errors.Is(err, settle.ErrPending) {
				t.Fatalf("the same call again: %v %v, want %s", again, err, first.ID)
			}
			l.Want(l.Rest(first.ID, time.Hour), settle.StateSucceeded)
			l.Want(l.Get(out.ID), settle.StateCompensated)
			again, err = undoIt(l, p, out.ID)
			l.noErr(err)
			if again.ID != first.ID {
				t.Fatalf("after it is done: %v, want %s", again, first.ID)
			}
			if n := len(l.All("void")) + len(l.All("refund")); n != 1 {
				t.Fatalf("%d compensations", n)
			}
		})
	}
}

// undoRefusedChoice: a choice of nothing, no answer, and what was never sent.
func undoRefusedChoice(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out := l.paid(p)
		ways := []settle.Way{p.Void.Way(providertest.Void{}), p.Refund.Way(Refund{})}
		effect := settle.Effect{Operation: out.ID}
		_, err := p.Charge.Undo(l.Ctx, effect, "returned", func(said) string { return "" }, ways...)
		l.wantErr(err, settle.ErrRefused)
		_, err = p.Charge.Undo(l.Ctx, effect, "returned", func(said) string { panic("choice") }, ways...)
		l.wantErr(err, settle.ErrRefused)
		_, err = p.Charge.Undo(l.Ctx, effect, "returned", nil, ways...)
		l.wantErr(err, settle.ErrInvalid)
		_, err = p.Charge.Undo(l.Ctx, settle.Effect{Operation: "00000000-0000-7000-8000-000000000000"}, "returned", func(said) string { return "void" }, ways...)
		l.wantErr(err, settle.ErrNotFound)
		l.Provider.ScriptLookup(providertest.Status(503, ""))
		var heard []settle.Fact
		_, err = p.Charge.Undo(l.Ctx, effect, "returned", func(now said) string { heard = append(heard, now.Fact); return "" }, ways...)
		l.wantErr(err, settle.ErrRefused)
		second := Order()
		second.Subject = "order-18"
		rec, err := p.Charge.Register(l.Ctx, second)
		l.noErr(err)
		asked := l.Asked()
		_, err = p.Charge.Undo(l.Ctx, settle.Effect{Operation: rec.ID}, "returned", func(now said) string { heard = append(heard, now.Fact); return "void" }, ways...)
		l.wantErr(err, settle.ErrNoEffect)
		l.Want(l.Get(rec.ID), settle.StateCanceled)
		if !slices.Equal(heard, []settle.Fact{settle.Unclear, settle.Unclear}) || l.Asked() != asked {
			t.Fatalf("choose heard %v", heard)
		}
		// A lookup that finds the effect undone is evidence.
		l.noErr(l.Provider.Reverse("ch_1"))
		_, err = undoIt(l, p, out.ID)
		l.wantErr(err, settle.ErrNoEffect)
		l.Want(l.Get(out.ID), settle.StateFailed)
		l.Requests(1)
	})
}

// undoChosenAtOnce: two processes choose at the same time, and the charge is captured in between.
func undoChosenAtOnce(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true
		p, q := l.Start(nil), l.Start(nil)
		out := l.paid(p)
		var inner settle.Record
		first := true
		ways := func(x *Process) []settle.Way {
			return []settle.Way{x.Void.Way(providertest.Void{}), x.Refund.Way(Refund{})}
		}
		got, err := p.Charge.Undo(l.Ctx, settle.Effect{Operation: out.ID}, "returned", func(said) string {
			if !first {
				t.Error("chosen twice, although another has chosen")
			}
			first = false
			l.noErr(l.Provider.Capture("ch_1"))
			var err error
			inner, err = undoIt(l, q, out.ID)
			l.noErr(err)
			return "void"
		}, ways(p)...)
		l.noErr(err)
		if inner.Kind != "refund" || got.ID != inner.ID {
			t.Fatalf("one has %v, the other %v", inner, got)
		}
		l.Requests(2)
	})
}

// ic50: a failed void after capture still allows a refund, and one void at a time.
func ic50(t *testing.T, open Open) {
	t.Run("captured meanwhile", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			p := l.Start(nil)
			out := l.paid(p)
			p.Faults(func(c Call) Fault { // captured between the lookup and the void
				if c.Op == OpCreate && c.Create.Kind == providertest.KindVoid {
					l.noErr(l.Provider.Capture("ch_1"))
				}
				return Fault{}
			})
			no, err := undoIt(l, p, out.ID)
			l.wantErr(err, settle.ErrFailed)
			l.Want(no, settle.StateFailed)
			p.Faults(nil)
			l.left(out.ID, 1999)
			yes, err := undoIt(l, p, out.ID)
			l.noErr(err)
			if no.Kind != "void" || yes.Kind != "refund" || no.ProviderKey == yes.ProviderKey {
				t.Fatalf("%v, then %v", no, yes)
			}
			l.Effects(no.ID, 0)
			l.Effects(yes.ID, 1)
			l.Want(l.Get(out.ID), settle.StateCompensated)
		})
	})
	t.Run("two voids at once, and a refund beside one", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			l.Lies = true
			p, q := l.Start(nil), l.Start(nil)
			out := l.paid(p)
			g := l.Gate()
			l.Provider.Script(providertest.HangBefore(g.C))
			done := make(chan error, 1)
			go func() {
				_, err := p.Void.Compensate(context.Background(), settle.Effect{Operation: out.ID}, "one", providertest.Void{})
				done <- err
			}()
			l.Elapse(time.Second)
			l.Requests(2)
			_, err := q.Void.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "two", providertest.Void{})
			l.wantErr(err, settle.ErrExceeds)
			_, err = refundOf(l, q, out.ID, "three", 1)
			l.wantErr(err, settle.ErrExceeds)
			g.Open()
			l.noErr(<-done)
			l.Requests(2)
			l.Want(l.Get(out.ID), settle.StateCompensated)
		})
	})
	t.Run("the void is unknown", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			p := l.Start(&Setup{Promise: silent(l)})
			out := l.paid(p)
			l.noErr(l.Provider.Capture("ch_1"))
			l.Provider.Script(providertest.DropRequest())
			void, err := p.Void.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "one", providertest.Void{})
			l.wantErr(err, settle.ErrUnknown)
			_, err = refundOf(l, p, out.ID, "one", 0)
			l.wantErr(err, settle.ErrExceeds)
			l.wantID(err, out.ID)
			p.Work()
			l.Want(l.Rest(void.ID, time.Hour), settle.StateFailed)
			_, err = refundOf(l, p, out.ID, "one", 0)
			l.noErr(err)
		})
	})
}

// ic49: the balance is reserved in the commit that reads the charge.
func ic49(t *testing.T, open Open) {
	type ask struct {
		reason string
		cents  int64
	}
	// atOnce asks for refunds from as many processes and returns how many passed.
	atOnce := func(l *Lab, id string, asks ...ask) (passed int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, a := range asks {
			p := l.Start(nil)
			wg.Go(func() {
				_, err := refundOf(l, p, id, a.reason, a.cents)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					passed++
				case !errors.Is(err, settle.ErrExceeds):
					l.T.Errorf("%s: %v", a.reason, err)
				}
			})
		}
		wg.Wait()
		return passed
	}
	pay := func(l *Lab) (p *Process, id string) {
		op := Order()
		op.Request.Amount = 1000
		p = l.Start(nil)
		out, err := p.Charge.Execute(l.Ctx, op)
		l.noErr(err)
		return p, out.ID
	}
	t.Run("they fit", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			p, id := pay(l)
			if n := atOnce(l, id, ask{"r-1", 500}, ask{"r-2", 500}); n != 2 {
				t.Fatalf("%d passed", n)
			}
			_, err := refundOf(l, p, id, "r-3", 1)
			l.wantErr(err, settle.ErrExceeds)
			l.Requests(3)
		})
	})
	t.Run("they do not", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			_, id := pay(l)
			if n := atOnce(l, id, ask{"r-1", 600}, ask{"r-2", 600}, ask{"r-3", 600}, ask{"r-4", 600}); n != 1 {
				t.Fatalf("%d passed", n)
			}
			l.Requests(2)
		})
	})
	t.Run("one is unknown", func(t *testing.T) {
		for _, end := range []providertest.Step{providertest.OK(), providertest.Decline("insufficient_funds")} {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				l.Provider.Script(providertest.OK())
				_, id := pay(l)
				p := l.Start(&Setup{Promise: silent(l)})
				l.Provider.Script(providertest.DropRequest(), end)
				open, err := refundOf(l, p, id, "r-1", 500)
				l.wantErr(err, settle.ErrUnknown)
				_, err = refundOf(l, p, id, "r-2", 600)
				l.wantErr(err, settle.ErrExceeds)
				l.Requests(2)
				p.Work()
				r := l.Rest(open.ID, time.Hour)
				_, err = refundOf(l, p, id, "r-3", 600)
				if r.State == settle.StateFailed {
					l.noErr(err) // a definite failure frees it
				} else {
					l.wantErr(err, settle.ErrExceeds)
				}
			})
		}
	})
}

// ic52: a refund that is done fails days later; the balance is restored once.
func ic52(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		ship := 0
		p := l.Start(&Setup{Options: settle.Options{PollInterval: time.Hour}, Charge: &settle.ExecutorOptions[Payment, Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[Receipt]) error { ship++; return nil },
		}}).Work()
		out := l.paid(p)
		back, err := refundOf(l, p, out.ID, "returned", 0)
		l.noErr(err)
		l.Want(l.Get(out.ID), settle.StateCompensated)
		l.Elapse(72 * time.Hour)
		l.noErr(l.Provider.Reverse("re_1"))
		ev := l.says(back.ID, said{Fact: settle.Reversed, Ref: "re_1", Code: "account_closed"})
		for range 2 {
			l.observes(p, ev, false)
			l.left(out.ID, 1999)
		}
		l.Want(l.Get(out.ID), settle.StateSucceeded)
		l.Want(l.Get(back.ID), settle.StateFailed)
		if !slices.Contains(p.Alarms(), settle.AlarmUndone) {
			t.Fatalf("alarms %v, want %s", p.Alarms(), settle.AlarmUndone)
		}
		again, err := refundOf(l, p, out.ID, "returned again", 0)
		l.noErr(err)
		l.Effects(again.ID, 1)
		l.Want(l.Get(out.ID), settle.StateCompensated)
		if ship != 1 {
			t.Fatalf("fulfilled %d times", ship)
		}
	})
}

// ic41: nothing that comes late fulfils what was refunded, or makes it paid again.
func ic41(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		ship := 0
		p := l.Start(&Setup{Options: settle.Options{PollInterval: time.Minute}, Charge: &settle.ExecutorOptions[Payment, Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[Receipt]) error { ship++; return nil },
		}}).Work()
		out := l.paid(p)
		_, err := refundOf(l, p, out.ID, "returned", 0)
		l.noErr(err)
		l.Elapse(2 * time.Hour)
		for range 2 {
			l.Want(event(t, p, out.ID, charged("ch_1")), settle.StateCompensated)
		}
		l.left(out.ID, 0)
		_, err = p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrCompensated)
		if ship != 1 {
			t.Fatalf("fulfilled %d times", ship)
		}
	})
}

// undoneNeverFulfilled: a charge that is being undone before it is confirmed is not
// fulfilled, whatever effects turn up, with a hook or without.
func undoneNeverFulfilled(t *testing.T, open Open) {
	for _, hook := range []bool{true, false} {
		for _, dupFirst := range []bool{true, false} { // the duplicate turns up while the refund is open, or after it
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				l.Lies = true // the duplicate is made up
				ship := 0
				s := &Setup{
					Promise: silent(l), Charge: &settle.ExecutorOptions[Payment, Receipt]{},
					Options: settle.Options{PollInterval: 30 * time.Second},
				}
				if hook {
					s.Charge.OnSuccess = func(context.Context, settle.Tx, settle.Outcome[Receipt]) error { ship++; return nil }
				}
				p := l.Start(s)
				l.Provider.Script(providertest.DropReply())
				out, err := p.Charge.Execute(l.Ctx, Order())
				l.wantErr(err, settle.ErrUnknown)
				wish, err := refundOf(l, p, out.ID, "canceled order", 0)
				l.wantErr(err, settle.ErrWaiting)
				l.Want(event(t, p, out.ID, charged("ch_1")), settle.StateCompensating)
				if dupFirst {
					event(t, p, out.ID, charged("ch_dup"))
				}
				p.Work()
				l.Want(l.Rest(wish.ID, time.Hour), settle.StateSucceeded)
				if !dupFirst {
					l.Want(l.Get(out.ID), settle.StateCompensated)
					event(t, p, out.ID, charged("ch_dup"))
				}
				l.Elapse(time.Hour)
				r := l.Get(out.ID)
				l.Want(r, settle.StateSucceeded)
				if !slices.Contains(r.Alarms(), settle.AlarmDuplicate) || ship != 0 {
					t.Fatalf("hook %v, duplicate first %v: alarms %v, fulfilled %d times", hook, dupFirst, r.Alarms(), ship)
				}
				if hook || !dupFirst {
					_, err = p.Charge.Execute(l.Ctx, Order())
					l.wantErr(err, settle.ErrCompensated)
				}
			})
		}
	}
}

// undoDuplicate: two effects of one operation, one of them undone by its reference.
func undoDuplicate(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true // the duplicate is another operation's charge at the provider
		ship := 0
		p := l.Start(&Setup{Charge: &settle.ExecutorOptions[Payment, Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[Receipt]) error { ship++; return nil },
		}})
		out := l.paid(p)
		twin, err := l.Provider.Create(l.Ctx, providertest.Request{Kind: providertest.KindCharge, Key: "resent", Amount: 1999, Currency: "EUR"})
		l.noErr(err)
		event(t, p, out.ID, charged(twin.ID))
		if !slices.Contains(p.Alarms(), settle.AlarmDuplicate) {
			t.Fatalf("alarms %v", p.Alarms())
		}
		_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "duplicate", Refund{})
		l.wantErr(err, settle.ErrInvalid) // which of the two?
		effect := settle.Effect{Operation: out.ID, Ref: twin.ID}
		back, err := p.Refund.Compensate(l.Ctx, effect, "duplicate", Refund{})
		l.noErr(err)
		if left := l.Provider.Remaining(twin.ID); left != 0 {
			t.Fatalf("%d are left of the duplicate", left)
		}
		if left := l.Provider.Remaining("ch_1"); left != 1999 {
			t.Fatalf("%d are left of the charge", left)
		}
		again, err := p.Refund.Compensate(l.Ctx, effect, "duplicate", Refund{})
		l.noErr(err)
		_, err = p.Refund.Compensate(l.Ctx, effect, "once more", Refund{})
		l.wantErr(err, settle.ErrExceeds)
		paid, err := p.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		if again.ID != back.ID || paid.State != settle.StateSucceeded || ship != 1 {
			t.Fatalf("%v, then %v; %v, fulfilled %d times", back, again, paid, ship)
		}
	})
}
