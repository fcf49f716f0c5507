package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// RunAuthority holds what approvals and policies promise.
func RunAuthority(t *testing.T, open func(t testing.TB) settle.Store) {
	run(t, open, []scene{
		{"a refusal stores nothing", refusalStoresNothing},
		{"a grant is in the history", grantIsKept},
		{"asked once", askedOnce},
		{"one caller's refusal is not another's", refusalIsNotShared},
		{"who decides is who was authenticated", deciderIsActor},
		{"an approval is of one intent", approvalIsOfOneIntent},
		{"an approval ends between check and send", approvalEnds},
		{"a replay outlives the approval", replayOutlivesApproval},
		{"another amount than was approved", approvedAmount},
	})
}

var errForbidden = errors.New("scenario: not for you")

// desk is a policy that keeps what it was asked.
type desk struct {
	allow func(settle.Ask) (settle.Grant, error)
	asked []settle.Ask
}

func (d *desk) policy(_ context.Context, a settle.Ask) (settle.Grant, error) {
	d.asked = append(d.asked, a)
	return d.allow(a)
}

func (d *desk) setup() *Setup { return &Setup{Options: settle.Options{Policy: d.policy}} }

func as(l *Lab, actor string) context.Context { return settle.WithActor(l.Ctx, actor) }

// frozen returns a function that fails the test if anything is stored that was not when frozen was called.
func (l *Lab) frozen() func(what string) {
	l.T.Helper()
	all := func() string {
		var out []string
		for _, kind := range []string{"charge", "refund", "void", settle.EventKind} {
			for _, r := range l.All(kind) {
				out = append(out, fmt.Sprint(r.ID, r.Version, len(l.History(r.ID)), r.State))
			}
		}
		return fmt.Sprint(out)
	}
	before, sent := all(), len(l.Provider.Requests())
	return func(what string) {
		l.T.Helper()
		if now := all(); now != before {
			l.T.Fatalf("%s: stored is %s, was %s", what, now, before)
		}
		l.Requests(sent)
	}
}

func refusalStoresNothing(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		d := &desk{}
		d.allow = func(settle.Ask) (settle.Grant, error) { return settle.Grant{}, nil }
		p := l.Start(d.setup())
		paid, err := p.Charge.Execute(as(l, "ann"), Order())
		l.noErr(err)
		unsent := Order()
		unsent.Subject = "order-18"
		waiting, err := p.Charge.Register(as(l, "ann"), unsent)
		l.noErr(err)
		disputed := Order()
		disputed.Subject = "order-19"
		l.Provider.Script(providertest.WrongAmount(1))
		open, err := p.Charge.Execute(as(l, "ann"), disputed)
		l.wantErr(err, settle.ErrReview)
		l.Lies = true

		ctx := as(l, "mallory")
		fresh := Order()
		fresh.Subject = "order-20"
		refund := Refund{Amount: 100, Currency: "EUR"}
		for name, no := range map[string]func(settle.Ask) (settle.Grant, error){
			"an error": func(settle.Ask) (settle.Grant, error) { return settle.Grant{}, errForbidden },
			"a panic":  func(settle.Ask) (settle.Grant, error) { panic(errForbidden) },
			"a rule that cannot be kept": func(settle.Ask) (settle.Grant, error) {
				return settle.Grant{Rule: "a\x00"}, nil
			},
		} {
			d.allow = no
			same := l.frozen()
			for what, call := range map[settle.Action]func() error{
				settle.ActionStart: func() error {
					_, err := p.Charge.Execute(ctx, fresh)
					if _, again := p.Charge.Register(ctx, fresh); !errors.Is(again, settle.ErrRefused) {
						return again
					}
					return err
				},
				settle.ActionCompensate: func() error {
					if _, err := p.Refund.Compensate(ctx, settle.Effect{Operation: waiting.ID}, "returned", refund); !errors.Is(err, settle.ErrRefused) {
						return err // it would cancel what was not sent yet
					}
					_, err := p.Refund.Compensate(ctx, settle.Effect{Operation: paid.ID}, "returned", refund)
					return err
				},
				settle.ActionCancel: func() error {
					if err := p.Charge.Cancel(ctx, fresh.Intent(), "not wanted"); !errors.Is(err, settle.ErrRefused) {
						return err // a tombstone
					}
					return p.Charge.Cancel(ctx, unsent.Intent(), "not wanted")
				},
				settle.ActionResolve: func() error {
					_, err := p.Engine.Resolve(ctx, open.ID, settle.Decision{Actor: "mallory", Reason: "mine", Evidence: "none", Fact: settle.Applied})
					return err
				},
				settle.ActionAssign: func() error {
					_, err := p.Engine.Assign(ctx, open.ID, settle.Assignment{Actor: "mallory", Owner: "mallory", Reason: "mine"})
					return err
				},
				settle.ActionForeign: func() error {
					_, err := p.Engine.RecordForeign(ctx, settle.Foreign{
						Effect: settle.Effect{Operation: paid.ID}, Ref: "re_9", Fact: settle.Applied, Actor: "mallory", Reason: "mine", Evidence: "none",
					})
					return err
				},
			} {
				d.asked = nil
				err := call()
				l.wantErr(err, settle.ErrRefused)
				if name == "an error" {
					l.wantErr(err, errForbidden)
				}
				same(name + ", " + string(what))
				for _, a := range d.asked {
					if a.Action != what || a.Actor != "mallory" || a.Scope != "shop" || a.Kind == "" || a.Subject == "" || a.Purpose == "" {
						t.Fatalf("%s: the policy was asked %+v", what, a)
					}
				}
				if len(d.asked) == 0 {
					t.Fatalf("%s: nobody was asked", what)
				}
			}
		}
	})
}

func grantIsKept(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		end := l.Began.Add(time.Hour).UTC()
		d := &desk{allow: func(a settle.Ask) (settle.Grant, error) {
			return settle.Grant{Rule: "limits-7", Until: end}, nil
		}}
		p := l.Start(d.setup())
		op := Order()
		sum, err := p.Charge.Fingerprint(op)
		l.noErr(err)
		op.Approval = &settle.Approval{By: "ben", At: l.Began, Until: end.Add(time.Minute), Fingerprint: sum}
		out, err := p.Charge.Execute(as(l, "ann"), op)
		l.noErr(err)
		if a := d.asked[0]; a.Terms.Amount.String() != settle.Minor(1999, "EUR").String() || a.Approval == nil || a.Approval.By != "ben" {
			t.Fatalf("the policy was asked %+v", a)
		}
		if h := l.History(out.ID); h[0].Actor != "ann" || h[0].Rule != "limits-7" {
			t.Fatalf("the history begins with %+v", h[0])
		}
		r := l.Get(out.ID)
		if !r.SendBefore.Equal(end) || r.Approval == nil || r.Approval.By != "ben" || r.Approval.Fingerprint != sum {
			t.Fatalf("stored is %v, %+v", r.SendBefore, r.Approval)
		}
		back, err := refundOf(l, p, out.ID, "returned", 300)
		l.noErr(err)
		if h := l.History(back.ID); h[0].Rule != "limits-7" || h[0].Actor != "" {
			t.Fatalf("the refund's history begins with %+v", h[0])
		}
		if a := d.asked[len(d.asked)-1]; a.Action != settle.ActionCompensate || a.Undoes.Operation != out.ID || a.Purpose != "returned" ||
			!a.Terms.Amount.Equal(settle.Minor(300, "EUR")) || !a.Undoes.Amount.Equal(settle.Minor(1999, "EUR")) {
			t.Fatalf("the policy was asked %+v", a)
		}
		unsent := Order()
		unsent.Subject = "order-18"
		l.noErr(p.Charge.Cancel(as(l, "ann"), unsent.Intent(), "not wanted"))
		i := slices.IndexFunc(l.All("charge"), func(r settle.Record) bool { return r.Subject == "order-18" })
		if h := l.History(l.All("charge")[i].ID); h[0].Actor != "ann" || h[0].Rule != "limits-7" || h[0].Note != "not wanted" {
			t.Fatalf("the tombstone's history begins with %+v", h[0])
		}
	})
}

// askedOnce: what exists is only reported, whoever asks.
func askedOnce(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		d := &desk{allow: func(settle.Ask) (settle.Grant, error) { return settle.Grant{}, nil }}
		p := l.Start(d.setup())
		out, err := p.Charge.Execute(as(l, "ann"), Order())
		l.noErr(err)
		_, err = refundOf(l, p, out.ID, "returned", 300)
		l.noErr(err)
		canceled := Order()
		canceled.Subject = "order-18"
		l.noErr(p.Charge.Cancel(l.Ctx, canceled.Intent(), "not wanted"))
		d.asked, d.allow = nil, func(settle.Ask) (settle.Grant, error) { return settle.Grant{}, errForbidden }
		same := l.frozen()
		for _, q := range []*Process{p, l.Start(d.setup())} {
			again, err := q.Charge.Execute(as(l, "mallory"), Order())
			l.noErr(err)
			if !again.Replayed || again.ID != out.ID {
				t.Fatalf("it answers %v", again)
			}
			_, err = refundOf(l, q, out.ID, "returned", 300)
			l.noErr(err)
			// The same compensation, which now names the reference.
			_, err = q.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID, Ref: out.References[0].Ref}, "returned", Refund{Amount: 300, Currency: "EUR"})
			l.noErr(err)
			l.noErr(q.Charge.Cancel(l.Ctx, canceled.Intent(), "not wanted"))
			_, err = q.Charge.Execute(l.Ctx, canceled)
			l.wantErr(err, settle.ErrCanceled)
		}
		same("a replay")
		if len(d.asked) > 0 {
			t.Fatalf("asked about what exists: %+v", d.asked)
		}
		// What the name of the reference makes another one is asked about.
		_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID, Ref: out.References[0].Ref}, "broken", Refund{Amount: 300, Currency: "EUR"})
		l.wantErr(err, settle.ErrRefused)
	})
}

// refusalIsNotShared: callers of one operation share the work, not the authority.
func refusalIsNotShared(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		hold := l.Gate()
		p := l.Start(&Setup{Options: settle.Options{Policy: func(_ context.Context, a settle.Ask) (settle.Grant, error) {
			if a.Actor == "ann" {
				return settle.Grant{}, nil
			}
			<-hold.C
			return settle.Grant{}, errForbidden
		}}})
		calls := map[string]chan error{}
		for _, actor := range []string{"mallory", "mallory's friend", "ann", "ann"} {
			done := make(chan error, 1)
			calls[actor] = done
			go func() {
				_, err := p.Charge.Execute(as(l, actor), Order())
				done <- err
			}()
			synctest.Wait()
		}
		hold.Open()
		l.noErr(<-calls["ann"])
		l.wantErr(<-calls["mallory"], settle.ErrRefused) // nothing was there when it was asked
		l.Requests(1)
	})
}

func deciderIsActor(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true
		p := l.Start(nil)
		l.Provider.Script(providertest.WrongAmount(1))
		out, err := p.Charge.Execute(as(l, "agent-7"), Order())
		l.wantErr(err, settle.ErrReview)
		if h := l.History(out.ID); h[0].Actor != "agent-7" {
			t.Fatalf("the history begins with %+v", h[0])
		}
		same := l.frozen()
		_, err = p.Engine.Resolve(as(l, "mallory"), out.ID, settle.Decision{Actor: "ann", Reason: "fine", Evidence: "none", Fact: settle.Applied})
		l.wantErr(err, settle.ErrRefused)
		for _, actor := range []string{"a\x00", string(make([]byte, 300)), "a\xff"} {
			other := Order()
			other.Subject = "order-18"
			_, err = p.Charge.Execute(as(l, actor), other)
			l.wantErr(err, settle.ErrInvalid)
		}
		same("an actor that is none")
		_, err = p.Engine.Resolve(as(l, "ann"), out.ID, settle.Decision{Reason: "fine", Evidence: "mail 7", Fact: settle.Applied})
		l.noErr(err)
		h := l.History(out.ID)
		if last := h[len(h)-1]; last.Actor != "ann" {
			t.Fatalf("the history ends with %+v", last)
		}
	})
}

func approved(l *Lab, p *Process, op Charge, until time.Duration) Charge {
	l.T.Helper()
	sum, err := p.Charge.Fingerprint(op)
	l.noErr(err)
	op.Approval = &settle.Approval{By: "ben", At: time.Now(), Fingerprint: sum}
	if until > 0 {
		op.Approval.Until = time.Now().Add(until)
	}
	return op
}

// approvalIsOfOneIntent: the same request for something else is something else.
func approvalIsOfOneIntent(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		op := approved(l, p, Order(), 0)
		same := l.frozen()
		for what, change := range map[string]func(*Charge){
			"scope":   func(o *Charge) { o.Scope = "shop-2" },
			"subject": func(o *Charge) { o.Subject = "order-18" },
			"purpose": func(o *Charge) { o.Purpose = "tip" },
			"request": func(o *Charge) { o.Request.Amount++ },
		} {
			other := op
			change(&other)
			_, err := p.Charge.Execute(l.Ctx, other)
			l.wantErr(err, settle.ErrRefused)
			same("another " + what)
		}
		l.Provider.Script(providertest.Decline("stolen_card"))
		failed, err := p.Charge.Execute(l.Ctx, op)
		l.wantErr(err, settle.ErrFailed)
		op.Replaces = failed.ID // the next try of the same intent, since the former had no effect
		out, err := p.Charge.Execute(l.Ctx, op)
		l.noErr(err)

		refund := settle.Operation[Refund]{Undoes: settle.Effect{Operation: out.ID}, Purpose: "returned", Request: Refund{Amount: 300, Currency: "EUR"}}
		sum, err := p.Refund.Fingerprint(refund)
		l.noErr(err)
		refund.Approval = &settle.Approval{By: "ben", Fingerprint: sum}
		same = l.frozen()
		again := refund
		again.Purpose = "returned again"
		_, err = p.Refund.Execute(l.Ctx, again)
		l.wantErr(err, settle.ErrRefused)
		same("another refund of the same amount")
		_, err = p.Refund.Execute(l.Ctx, refund)
		l.noErr(err)
	})
}

// approvalEnds: its end counts by the store's clock until the request starts.
func approvalEnds(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(&Setup{Plan: Nth(OpCommit, 1, Fault{DelayReply: 4 * time.Second})}) // it is stored, and the answer is slow
		op := approved(l, p, Order(), 2*time.Second)
		out, err := p.Charge.Execute(l.Ctx, op)
		l.wantErr(err, settle.ErrCanceled)
		l.Want(l.Get(out.ID), settle.StateCanceled)
		late := Order()
		late.Subject = "order-18"
		late = approved(l, p, late, time.Minute)
		r, err := p.Charge.Register(l.Ctx, late)
		l.noErr(err)
		l.Elapse(2 * time.Minute)
		p.Work()
		l.Want(l.Rest(r.ID, time.Hour), settle.StateCanceled)
		l.Requests(0)
	})
}

func replayOutlivesApproval(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		op := approved(l, p, Order(), time.Minute)
		out, err := p.Charge.Execute(l.Ctx, op)
		l.noErr(err)
		unknown := Order()
		unknown.Subject = "order-18"
		unknown = approved(l, p, unknown, time.Minute)
		l.Provider.Script(providertest.DropReply())
		l.Provider.ScriptLookup(providertest.Status(503, ""), providertest.Status(503, ""))
		was, err := p.Charge.Execute(l.Ctx, unknown)
		l.wantErr(err, settle.ErrUnknown)
		l.Elapse(time.Hour)
		for range 2 { // with the approval that has ended, and without one
			again, err := p.Charge.Execute(l.Ctx, op)
			l.noErr(err)
			if again.ID != out.ID || !again.Replayed {
				t.Fatalf("it answers %v", again)
			}
			op.Approval = nil
		}
		p.Work()
		l.Want(l.Rest(was.ID, time.Hour), settle.StateSucceeded) // found by lookup; nothing is sent any more
		l.Effects(was.ID, 1)
		l.Requests(2)
	})
}

func approvedAmount(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		op := approved(l, p, Order(), time.Hour)
		changed := op
		changed.Request.Amount = 299900
		same := l.frozen()
		_, err := p.Charge.Execute(l.Ctx, changed)
		l.wantErr(err, settle.ErrRefused)
		_, err = p.Charge.Register(l.Ctx, changed)
		l.wantErr(err, settle.ErrRefused)
		same("another amount")
		_, err = p.Charge.Execute(l.Ctx, op)
		l.noErr(err)
		same = l.frozen()
		_, err = p.Charge.Execute(l.Ctx, changed)
		l.wantErr(err, settle.ErrMismatch)
		_, err = p.Charge.Execute(l.Ctx, approved(l, p, changed, time.Hour)) // nor if that was approved too
		l.wantErr(err, settle.ErrMismatch)
		same("another amount of what exists")
	})
}
