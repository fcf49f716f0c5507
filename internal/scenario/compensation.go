package scenario

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// t22: a compensation of an unknown operation is stored and waits; it is canceled when
// there turns out to be no effect, and started in the commit that confirms one.
func t22(t *testing.T, open Open) {
	for _, happened := range []bool{true, false} {
		t.Run(fmt.Sprintf("the effect exists %v", happened), func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				release := l.Gate()
				step := providertest.HangBefore(release.C)
				if !happened {
					step = step.And(providertest.Decline("stolen_card"))
				}
				l.Provider.Script(step)
				p := l.Start(nil)
				done := make(chan error, 1)
				go func() {
					_, err := p.Charge.Execute(l.Ctx, Order())
					done <- err
				}()
				l.Elapse(time.Second)
				id := l.Only().ID
				worker := l.Start(nil).Work()
				wish, err := worker.Refund.Compensate(l.Ctx, settle.Effect{Operation: id}, "returned", Refund{})
				l.wantErr(err, settle.ErrWaiting)
				again, err := worker.Refund.Compensate(l.Ctx, settle.Effect{Operation: id}, "returned", Refund{})
				l.wantErr(err, settle.ErrWaiting)
				if again.ID != wish.ID {
					t.Fatal("the same wish is stored twice")
				}
				// The wish holds its amount (I9).
				_, err = worker.Refund.Compensate(l.Ctx, settle.Effect{Operation: id}, "again", Refund{})
				l.wantErr(err, settle.ErrExceeds)
				l.Elapse(5 * time.Second)
				l.Requests(1) // nothing is undone yet (I8)
				release.Open()
				err = <-done
				if happened {
					l.wantErr(err, settle.ErrCompensated) // confirmed, and being undone: not to be fulfilled
					r := l.Rest(wish.ID, 5*time.Minute)
					l.Want(r, settle.StateSucceeded)
					l.Want(l.Get(id), settle.StateCompensated)
					// The start is in the commit that confirmed the parent.
					confirmed, started := "", ""
					for _, x := range l.History(id) {
						if x.Fact == settle.Applied {
							confirmed = x.Write
						}
					}
					for _, x := range l.History(wish.ID) {
						if x.Note == "parent_confirmed" {
							started = x.Write
						}
					}
					if confirmed == "" || confirmed != started {
						t.Fatalf("confirmed by change %q, started by %q", confirmed, started)
					}
					l.Requests(2)
				} else {
					l.wantErr(err, settle.ErrFailed)
					l.Want(l.Rest(wish.ID, 5*time.Minute), settle.StateCanceled)
					l.Elapse(time.Hour)
					l.Requests(1)
				}
			})
		})
	}
}

// t41: the operation failed by a person's word, its wish was canceled, and then the
// answer of its first request arrives.
func t41(t *testing.T, open Open) {
	Play(t, open, &providertest.Options{}, func(t *testing.T, l *Lab) {
		promise := l.contract(func(c *settle.Contract) { noLookup(c); c.Deadline = time.Minute })
		release := l.Gate()
		_, done := l.slowHolder(promise, providertest.HangBefore(release.C))
		id := l.Only().ID
		q := l.Start(&Setup{Promise: promise}).Work()
		wish, err := q.Refund.Compensate(l.Ctx, settle.Effect{Operation: id}, "returned", Refund{})
		l.wantErr(err, settle.ErrWaiting)
		l.Want(l.Rest(id, 10*time.Minute), settle.StateReview)
		l.wantErr(<-done, settle.ErrPending)
		_, err = q.Engine.Resolve(l.Ctx, id, settle.Decision{Actor: "ana", Reason: "not in the dashboard", Evidence: "screenshot 7", Fact: settle.Declined})
		l.noErr(err)
		l.Want(l.Get(id), settle.StateFailed)
		l.Want(l.Rest(wish.ID, 5*time.Minute), settle.StateCanceled)
		release.Open()
		l.Elapse(time.Second)
		h := l.History(id)
		revived := false
		for _, x := range h {
			revived = revived || x.Disposition == settle.DispositionRevived
		}
		if !revived {
			t.Fatalf("the success after the failure is not marked revived; %s", l.story(id))
		}
		l.Want(l.Until(wish.ID, 10*time.Minute, func(r settle.Record) bool { return r.State == settle.StateSucceeded }), settle.StateSucceeded)
		l.Want(l.Get(id), settle.StateCompensated)
		l.Requests(2)
	})
}

// I8 holds: a compensation is sent only for an effect that is confirmed at that moment, and
// is an operation like any other.
func I8(t *testing.T, open Open) {
	t.Run("nothing was sent: canceled instead", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			p := l.Start(nil)
			rec, err := p.Charge.Register(l.Ctx, Order())
			l.noErr(err)
			_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: rec.ID}, "returned", Refund{})
			l.wantErr(err, settle.ErrNoEffect)
			l.Want(l.Get(rec.ID), settle.StateCanceled)
			p.Work()
			l.Elapse(time.Hour)
			l.Requests(0)
		})
	})
	t.Run("unknown or failed: never sent", func(t *testing.T) {
		Play(t, open, &providertest.Options{}, func(t *testing.T, l *Lab) {
			l.Provider.Script(providertest.DropRequest(), providertest.Decline("stolen_card"))
			p := l.Start(&Setup{Promise: l.contract(noLookup), Options: settle.Options{PollInterval: 30 * time.Second}}).Work()
			lost, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrUnknown)
			_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: lost.ID}, "returned", Refund{})
			l.wantErr(err, settle.ErrWaiting)
			op := Order()
			op.Subject = "order-18"
			failed, err := p.Charge.Execute(l.Ctx, op)
			l.wantErr(err, settle.ErrFailed)
			_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: failed.ID}, "returned", Refund{})
			l.wantErr(err, settle.ErrNoEffect)
			_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: "00000000-0000-7000-8000-000000000000"}, "returned", Refund{})
			l.wantErr(err, settle.ErrNotFound)
			l.Elapse(5 * time.Hour)
			for _, q := range l.Provider.Requests() {
				if q.Kind == providertest.KindRefund {
					t.Fatal("a refund was sent for an effect that is not confirmed (I8)")
				}
			}
		})
	})
	t.Run("undone before the queued refund left", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			p := l.Start(nil)
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.noErr(err)
			rec, err := p.Refund.Register(l.Ctx, settle.Operation[Refund]{Undoes: settle.Effect{Operation: out.ID}, Purpose: "returned"})
			l.noErr(err)
			l.noErr(l.Provider.Reverse("ch_1")) // a chargeback took it all
			_, err = p.Engine.Resolve(l.Ctx, out.ID, settle.Decision{Actor: "ana", Reason: "chargeback", Evidence: "case 9", Fact: settle.Reversed, Ref: "ch_1"})
			l.noErr(err)
			p.Work()
			l.Want(l.Rest(rec.ID, time.Hour), settle.StateCanceled)
			l.Requests(1)
		})
	})
	t.Run("undone between the read and the commit of the attempt", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			other := l.Start(nil)
			out, err := other.Charge.Execute(l.Ctx, Order())
			l.noErr(err)
			acted := false
			p := l.Start(&Setup{Plan: func(c Call) Fault {
				if c.Op != OpCommit || acted || c.Change.Writes[0].Record.Kind != "refund" || len(c.Change.Writes[0].Record.Attempts) == 0 {
					return Fault{}
				}
				acted = true
				l.noErr(l.Provider.Reverse("ch_1"))
				if _, err := other.Engine.Resolve(l.Ctx, out.ID, settle.Decision{Actor: "ana", Reason: "chargeback", Evidence: "case 9", Fact: settle.Reversed, Ref: "ch_1"}); err != nil {
					t.Error(err)
				}
				return Fault{}
			}})
			rec, err := p.Refund.Register(l.Ctx, settle.Operation[Refund]{Undoes: settle.Effect{Operation: out.ID}, Purpose: "returned"})
			l.noErr(err)
			p.Work()
			l.Want(l.Rest(rec.ID, time.Hour), settle.StateCanceled)
			if !acted {
				t.Fatal("no attempt was committed")
			}
			l.Requests(1)
		})
	})
	t.Run("the same call again is the same compensation", func(t *testing.T) {
		for _, c := range []struct {
			name string
			step providertest.Step
			err  error
		}{
			{"done", providertest.OK(), nil},
			{"underway", providertest.Processing(), settle.ErrProcessing},
			{"unknown", providertest.DropRequest(), settle.ErrPending},
			{"declined", providertest.Decline("too_late"), settle.ErrFailed},
		} {
			t.Run(c.name, func(t *testing.T) {
				Play(t, open, nil, func(t *testing.T, l *Lab) {
					p := l.Start(nil)
					out, err := p.Charge.Execute(l.Ctx, Order())
					l.noErr(err)
					l.Provider.Script(c.step)
					var id string
					for i := range 3 {
						back, err := p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", Refund{})
						if !errors.Is(err, c.err) {
							t.Fatalf("call %d: error %v, want %v", i+1, err, c.err)
						}
						if id == "" {
							id = back.ID
						}
						if back.ID != id || back.Replayed != (i > 0) {
							t.Fatalf("call %d: %v, replayed %v; want the first, %s", i+1, back, back.Replayed, id)
						}
						rec, err := l.Start(nil).Refund.Register(l.Ctx, settle.Operation[Refund]{Undoes: settle.Effect{Operation: out.ID}, Purpose: "returned"})
						if err != nil || rec.ID != id {
							t.Fatalf("call %d: Register: %v %v", i+1, rec, err)
						}
					}
					_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", Refund{Amount: 5, Currency: "EUR"})
					l.wantErr(err, settle.ErrMismatch)
					l.Requests(2)
				})
			})
		}
	})
	t.Run("itself at most once", func(t *testing.T) {
		for _, step := range []providertest.Step{providertest.DropReply(), providertest.DropRequest(), providertest.StatusAfter(500, "internal"), providertest.RateLimit(time.Second)} {
			t.Run(step.String(), func(t *testing.T) {
				Play(t, open, nil, func(t *testing.T, l *Lab) {
					p := l.Start(nil)
					out, err := p.Charge.Execute(l.Ctx, Order())
					l.noErr(err)
					l.Provider.Script(step)
					back, err := p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", Refund{})
					if err == nil || errors.Is(err, settle.ErrFailed) {
						// A lookup in the same call may find the effect at once.
						l.Want(back.Record, settle.StateSucceeded)
					}
					p.Work()
					l.Want(l.Rest(back.ID, time.Hour), settle.StateSucceeded)
					l.Effects(back.ID, 1)
					l.Want(l.Get(out.ID), settle.StateCompensated)
					_, err = p.Charge.Execute(l.Ctx, Order())
					l.wantErr(err, settle.ErrCompensated)
					if left := l.Provider.Remaining("ch_1"); left != 0 {
						t.Fatalf("%d are left of the charge", left)
					}
				})
			})
		}
	})
}
