package scenario

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// refunded is what the provider says of a refund.
func refunded(ref string, cents int64) said {
	return said{Fact: settle.Applied, Ref: ref, Terms: settle.Terms{Amount: settle.Minor(cents, "EUR")}}
}

// of makes an event about something that undid the effect parent, without any name of ours.
func (l *Lab) of(parent string, o said) settle.Event {
	ev := l.says("", o)
	ev.Type, ev.Parent = "refund.updated", parent
	return ev
}

// observes has p take in an event, and checks whether it is parked.
func (l *Lab) observes(p *Process, ev settle.Event, parked bool) settle.Observed {
	l.T.Helper()
	out, err := p.Engine.Observe(l.Ctx, ev)
	l.noErr(err)
	if out.Parked != parked {
		l.T.Fatalf("parked %v, want %v", out.Parked, parked)
	}
	return out
}

// foreignCounts: a refund made in the dashboard counts like one of ours, once, whatever names it.
func foreignCounts(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out := l.paid(p)
		obj, err := l.Provider.RefundByHand("ch_1", 1500)
		l.noErr(err)
		ev := l.of("ch_1", refunded(obj.ID, 1500))
		got := l.observes(p, ev, false)
		if got.Record.ID != out.ID {
			t.Fatalf("it was taken in by %q", got.Record.ID)
		}
		l.left(out.ID, 499)
		l.Want(l.Get(out.ID), settle.StateSucceeded)
		if !slices.Contains(p.Alarms(), settle.AlarmElsewhere) {
			t.Fatalf("alarms %v, want %s", p.Alarms(), settle.AlarmElsewhere)
		}
		// The same event, and another of the same refund.
		if again := l.observes(p, ev, false); !again.Duplicate {
			t.Fatal("the same event is none")
		}
		l.observes(p, l.of("ch_1", refunded(obj.ID, 1500)), false)
		l.left(out.ID, 499)
		_, err = refundOf(l, p, out.ID, "too much", 500)
		l.wantErr(err, settle.ErrExceeds)
		back, err := refundOf(l, p, out.ID, "the rest", 499)
		l.noErr(err)
		l.Want(l.Get(out.ID), settle.StateCompensated)
		l.Effects(back.ID, 1)
		// It bounces: the balance is back once, whatever comes after.
		l.noErr(l.Provider.Reverse(obj.ID))
		l.observes(p, l.of("ch_1", said{Fact: settle.Reversed, Ref: obj.ID}), false)
		l.observes(p, l.of("ch_1", said{Fact: settle.Reversed, Ref: obj.ID}), false)
		l.observes(p, l.of("ch_1", refunded(obj.ID, 1500)), false)
		l.left(out.ID, 1500)
		if left := l.Provider.Remaining("ch_1"); left != 1500 {
			t.Fatalf("the provider says %d", left)
		}
	})
}

// foreignWaits: an event that may be about a refund of ours waits until that is settled, and
// then is either its, or foreign (T-23).
func foreignWaits(t *testing.T, open Open) {
	for _, ours := range []bool{true, false} {
		name := "it is foreign"
		if ours {
			name = "it is ours"
		}
		t.Run(name, func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				p := l.Start(nil).Work()
				out := l.paid(p)
				g := l.Gate()
				l.Provider.Script(providertest.HangAfter(g.C)) // done, and the reply is on its way
				done := make(chan settle.Outcome[Receipt], 1)
				go func() {
					back, _ := refundOf(l, p, out.ID, "returned", 300)
					done <- back
				}()
				l.Elapse(time.Second)
				ref, want := "re_1", int64(1699)
				if !ours {
					obj, err := l.Provider.RefundByHand("ch_1", 200)
					l.noErr(err)
					ref, want = obj.ID, 1499
				}
				cents := map[bool]int64{true: 300, false: 200}[ours]
				got := l.observes(p, l.of("ch_1", refunded(ref, cents)), true)
				l.left(out.ID, 1699) // reserved, and nothing else
				g.Open()
				back := <-done
				l.Want(back.Record, settle.StateSucceeded)
				l.Elapse(5 * time.Minute)
				l.Want(l.Get(got.Event), settle.StateSucceeded)
				l.left(out.ID, want)
				r := l.Get(out.ID)
				if n := len(r.Ledger); n != map[bool]int{true: 1, false: 2}[ours] {
					t.Fatalf("ledger %+v", r.Ledger)
				}
				l.Effects(back.ID, 1)
			})
		})
	}
}

// foreignTurnsOurs: a refund that failed, as far as anybody knew, owns the reference after all: it
// counts once.
func foreignTurnsOurs(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true // the refund is said to have been declined
		p := l.Start(nil)
		out := l.paid(p)
		l.Provider.Script(providertest.Decline("insufficient_funds"))
		no, err := refundOf(l, p, out.ID, "returned", 300)
		l.wantErr(err, settle.ErrFailed)
		l.left(out.ID, 1999)
		l.observes(p, l.of("ch_1", refunded("re_77", 300)), false)
		l.left(out.ID, 1699)
		l.Want(event(t, p, no.ID, refunded("re_77", 300)), settle.StateSucceeded)
		l.left(out.ID, 1699)
		if r := l.Get(out.ID); len(r.Ledger) != 1 || r.Ledger[0].Status != settle.PostingDone {
			t.Fatalf("ledger %+v", r.Ledger)
		}
		// And an event that comes now is its, too.
		got := l.observes(p, l.of("ch_1", refunded("re_77", 300)), false)
		if got.Record.ID != no.ID {
			t.Fatalf("it was taken in by %q", got.Record.ID)
		}
		l.left(out.ID, 1699)
	})
}

// foreignBesideQueued: what was taken elsewhere while a refund is queued cannot be refunded again (T-20).
func foreignBesideQueued(t *testing.T, open Open) {
	register := func(l *Lab, p *Process, id string, cents int64) settle.Record {
		rec, err := p.Refund.Register(l.Ctx, settle.Operation[Refund]{
			Undoes: settle.Effect{Operation: id}, Purpose: "returned", Request: Refund{Amount: cents, Currency: "EUR"},
		})
		l.noErr(err)
		return rec
	}
	t.Run("all of it: the queued one is canceled, and starts if that is undone", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			p := l.Start(nil)
			out := l.paid(p)
			rec := register(l, p, out.ID, 1000)
			obj, err := l.Provider.RefundByHand("ch_1", 1999)
			l.noErr(err)
			l.observes(p, l.of("ch_1", refunded(obj.ID, 1999)), false)
			l.Want(l.Get(out.ID), settle.StateCompensated)
			p.Work()
			r := l.Rest(rec.ID, time.Hour)
			l.Want(r, settle.StateCanceled)
			if r.Withdrawn != settle.WithdrawnParent {
				t.Fatalf("canceled because of %q", r.Withdrawn)
			}
			l.Requests(1)
			l.noErr(l.Provider.Reverse(obj.ID))
			l.observes(p, l.of("ch_1", said{Fact: settle.Reversed, Ref: obj.ID}), false)
			l.Until(rec.ID, time.Hour, func(r settle.Record) bool { return r.State == settle.StateSucceeded })
			l.left(out.ID, 999)
			l.Effects(rec.ID, 1)
		})
	})
	t.Run("so much that it does not fit: review", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			p := l.Start(nil)
			out := l.paid(p)
			rec := register(l, p, out.ID, 1000)
			obj, err := l.Provider.RefundByHand("ch_1", 1500)
			l.noErr(err)
			l.observes(p, l.of("ch_1", refunded(obj.ID, 1500)), false)
			p.Work()
			r := l.Rest(rec.ID, time.Hour)
			l.Want(r, settle.StateReview)
			if r.Review.Reason != settle.ReasonExceeds {
				t.Fatalf("in review because of %q", r.Review.Reason)
			}
			l.Requests(1)
		})
	})
	t.Run("a chargeback of the charge itself", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			p := l.Start(nil)
			out := l.paid(p)
			rec := register(l, p, out.ID, 1000)
			l.noErr(l.Provider.Reverse("ch_1"))
			event(t, p, out.ID, said{Fact: settle.Reversed, Ref: "ch_1", Code: "chargeback"})
			p.Work()
			l.Want(l.Rest(rec.ID, time.Hour), settle.StateCanceled)
			l.Requests(1)
		})
	})
}

// foreignOwned: a reference that another operation owns goes to review, naming it.
func foreignOwned(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true // two charges are said to have one reference
		p := l.Start(nil)
		out := l.paid(p)
		back, err := refundOf(l, p, out.ID, "returned", 300)
		l.noErr(err)
		second := Order()
		second.Subject = "order-18"
		l.Provider.Script(providertest.DropRequest())
		p2 := l.Start(&Setup{Promise: silent(l)})
		other, err := p2.Charge.Execute(l.Ctx, second)
		l.wantErr(err, settle.ErrUnknown)
		r := event(t, p, other.ID, charged("ch_1"))
		l.Want(r, settle.StateReview)
		if r.Review.Reason != settle.ReasonForeign || r.References[0].Owner != out.ID {
			t.Fatalf("review %+v, reference %+v; want the owner %s named", r.Review, r.References[0], out.ID)
		}
		// A refund of ours that is said to be of another payment.
		got := l.observes(p, l.of("ch_999", refunded("re_1", 300)), true)
		p.Work()
		kept := l.Until(got.Event, time.Hour, func(r settle.Record) bool { return r.State == settle.StateReview })
		h := l.History(kept.ID)
		if last := h[len(h)-1]; kept.Review.Reason != settle.ReasonForeign || last.Note != back.ID {
			t.Fatalf("review %+v, history says %q; want %s named", kept.Review, last.Note, back.ID)
		}
		l.left(out.ID, 1699)
	})
}

// foreignByHand: a person says so, where no event does.
func foreignByHand(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out := l.paid(p)
		record := func(id, ref string, fact settle.Fact, cents int64) error {
			f := settle.Foreign{
				Effect: settle.Effect{Operation: id}, Ref: ref, Fact: fact, Actor: "ana", Reason: "in the dashboard", Evidence: "export 7",
			}
			if cents > 0 {
				f.Amount = settle.Minor(cents, "EUR")
			}
			_, err := p.Engine.RecordForeign(l.Ctx, f)
			return err
		}
		l.wantErr(record(out.ID, "", settle.Applied, 1), settle.ErrInvalid)
		l.wantErr(record(out.ID, "re_9", settle.Declined, 1), settle.ErrInvalid)
		l.wantErr(record("00000000-0000-7000-8000-000000000000", "re_9", settle.Applied, 1), settle.ErrNotFound)
		obj, err := l.Provider.RefundByHand("ch_1", 400)
		l.noErr(err)
		for range 2 {
			l.noErr(record(out.ID, obj.ID, settle.Applied, 400))
			l.left(out.ID, 1599)
		}
		h := l.History(out.ID)
		if last := h[len(h)-1]; last.Actor != "ana" || last.Source != settle.SourcePerson || last.Ref != obj.ID {
			t.Fatalf("the history says %+v", last)
		}
		back, err := refundOf(l, p, out.ID, "returned", 300)
		l.noErr(err)
		l.wantErr(record(out.ID, back.References[0].Ref, settle.Applied, 300), settle.ErrConflict)
		l.Provider.Script(providertest.DropRequest())
		l.Provider.ScriptLookup(providertest.Status(503, ""))
		open, err := refundOf(l, p, out.ID, "unknown", 100)
		l.wantErr(err, settle.ErrUnknown)
		err = record(out.ID, "re_77", settle.Applied, 1)
		l.wantErr(err, settle.ErrPending)
		l.wantID(err, open.ID)
		l.Provider.Script(providertest.Decline("stolen_card"))
		second := Order()
		second.Subject = "order-18"
		failed, err := p.Charge.Execute(l.Ctx, second)
		l.wantErr(err, settle.ErrFailed)
		l.wantErr(record(failed.ID, "re_78", settle.Applied, 0), settle.ErrNoEffect)
		l.left(out.ID, 1199)
		p.Work()
		l.Want(l.Rest(open.ID, time.Hour), settle.StateSucceeded)
		// All of it, and more: recorded and alarmed, never refused.
		l.noErr(record(out.ID, "re_77", settle.Applied, 0))
		l.Want(l.Get(out.ID), settle.StateCompensated)
		if !slices.Contains(p.Alarms(), settle.AlarmExcess) {
			t.Fatalf("alarms %v, want %s", p.Alarms(), settle.AlarmExcess)
		}
	})
}

// foreignElsewhere: the kind of the refund is made in another process only.
func foreignElsewhere(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out := l.paid(p)
		back, err := p.Void.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", providertest.Void{})
		l.noErr(err)
		q := l.Start(&Setup{NoVoid: true})
		l.observes(q, l.of("ch_1", refunded(back.References[0].Ref, 1999)), true)
		if r := l.Get(out.ID); len(r.Ledger) != 1 {
			t.Fatalf("counted twice: %+v", r.Ledger)
		}
		p.Work()
		l.Elapse(time.Minute)
		l.Want(l.Get(out.ID), settle.StateCompensated)
	})
}

// foreignRace: a refund begins, and has its effect, between the look at the ledger and the commit of the
// event that speaks of it.
func foreignRace(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out := l.paid(p)
		begun := false
		q := l.Start(&Setup{Plan: func(c Call) Fault {
			if c.Op != OpCommit || begun || c.Change.Writes[0].Entry.Source != settle.SourceEvent {
				return Fault{}
			}
			begun = true
			l.Provider.Script(providertest.DropReply())
			l.Provider.ScriptLookup(providertest.Status(503, ""))
			if _, err := refundOf(l, p, out.ID, "returned", 300); !errors.Is(err, settle.ErrUnknown) {
				t.Errorf("error %v, want unknown", err)
			}
			return Fault{}
		}})
		got := l.observes(q, l.of("ch_1", refunded("re_1", 300)), true)
		if !begun {
			t.Fatal("the event was not committed beside anything")
		}
		p.Work()
		l.Until(got.Event, time.Hour, func(r settle.Record) bool { return r.State.Settled() })
		l.left(out.ID, 1699)
		if r := l.Get(out.ID); len(r.Ledger) != 1 {
			t.Fatalf("counted twice: %+v", r.Ledger)
		}
	})
}
