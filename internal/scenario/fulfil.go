package scenario

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// shipping is a process whose fulfilment hook writes through the transaction: it
// registers an operation of the kind "parcel", whose presence shows what was committed.
type shipping struct {
	l      *Lab
	p      *Process
	parcel *settle.Executor[Payment, Receipt]
	runs   int          // of the hook
	end    func() error // how the hook ends after its writes; nil: well
}

// shipping makes such a process, with a fault at the nth call of an operation.
func (l *Lab) shipping(op string, n int, x Fault) *shipping {
	l.T.Helper()
	s := &shipping{l: l}
	hook := func(ctx context.Context, tx settle.Tx, out settle.Outcome[Receipt]) error {
		s.runs++
		if out.State != settle.StateSucceeded || out.Next != settle.NextDone {
			l.T.Errorf("the hook ran for %v, next %s", out, out.Next)
		}
		_, err := s.parcel.RegisterTx(ctx, tx, settle.Operation[Payment]{
			Scope: out.Scope, Subject: out.Subject, Purpose: "ship", Request: Payment{Amount: 1, Currency: "EUR"},
		})
		if err != nil || s.end == nil {
			return err
		}
		return s.end()
	}
	o := settle.Options{PollInterval: 30 * time.Second} // for a day of which little is seen
	s.p = l.Start(&Setup{Options: o, Charge: &settle.ExecutorOptions[Payment, Receipt]{OnSuccess: hook}})
	// Parcels are made on an engine of their own whose worker does not run, so that they
	// only ever are stored or not.
	e, err := settle.Open(s.p.f.store(l), nil)
	l.noErr(err)
	s.parcel, err = settle.New(e, "parcel", providertest.ChargeAdapter(s.p.API, l.Promise), nil)
	l.noErr(err)
	if n > 0 {
		s.p.Faults(Nth(op, n, x))
	}
	return s
}

// want checks how many parcels were committed.
func (s *shipping) want(n int) {
	s.l.T.Helper()
	if got := len(s.l.All("parcel")); got != n {
		s.l.T.Fatalf("%d parcels are stored, want %d (I11); %s", got, n, s.l.story(s.l.Only().ID))
	}
}

// t16: the hook violates a foreign key on every try.
func t16(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		s := l.shipping("", 0, Fault{})
		s.end = func() error { return errors.New("violates foreign key constraint") }
		out, err := s.p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrConsequence)
		l.wantErr(func() error { r := l.Get(out.ID); return r.Err() }(), settle.ErrConsequence)
		l.Want(out.Record, settle.StateSucceeded)
		if res, ok := out.Result(); !ok || res.ID != "ch_1" {
			t.Fatalf("the result is %v %v", res, ok)
		}
		r := l.Get(out.ID)
		if r.Consequence != settle.ConsequenceDue || r.Due.IsZero() || len(r.References) != 1 || r.References[0].Rank != settle.RankSucceeded {
			t.Fatalf("stored: %s, due %v, references %+v", r.Consequence, r.Due, r.References)
		}
		s.want(0)
		s.p.Work()
		r = l.Until(out.ID, 2*time.Hour, func(r settle.Record) bool { return r.Consequence == settle.ConsequenceAside })
		l.Want(r, settle.StateSucceeded)
		if !r.Due.IsZero() || !contains(s.p.Alarms(), settle.AlarmAside) {
			t.Fatalf("set aside, due %v, alarms %v", r.Due, s.p.Alarms())
		}
		runs := s.runs
		if runs != 10 {
			t.Fatalf("the hook ran %d times, want 10", runs)
		}
		l.Elapse(4 * time.Hour) // as no time is set for it
		if s.runs != runs {
			t.Fatalf("the hook ran again after it was set aside")
		}
		_, err = s.p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrConsequence)
		s.want(0)
		s.end = nil
		l.noErr(s.p.Engine.Redrive(l.Ctx, out.ID, mended))
		redriven(l, out.ID)
		l.Elapse(time.Minute)
		r = l.Get(out.ID)
		if r.Consequence != settle.ConsequenceDone || !r.Due.IsZero() {
			t.Fatalf("after Redrive: %s, due %v; %s", r.Consequence, r.Due, l.story(out.ID))
		}
		s.want(1)
		l.wantErr(s.p.Engine.Redrive(l.Ctx, out.ID, mended), settle.ErrSettled)
		_, err = s.p.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		l.Requests(1)
	})
}

// I11 holds: what the hook writes commits with the transition that caused it, or not at all,
// and a failing hook loses no evidence.
func I11(t *testing.T, open Open) {
	t.Run("with the transition", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			s := l.shipping("", 0, Fault{})
			out, err := s.p.Charge.Execute(l.Ctx, Order())
			l.noErr(err)
			s.want(1)
			r := l.Get(out.ID)
			if parcel := l.All("parcel")[0]; !parcel.CreatedAt.Equal(r.UpdatedAt) {
				t.Fatalf("committed at %v, the transition at %v", parcel.CreatedAt, r.UpdatedAt)
			}
			_, err = s.p.Charge.Execute(l.Ctx, Order())
			l.noErr(err)
			if s.runs != 1 {
				t.Fatalf("the hook ran %d times", s.runs)
			}
		})
	})
	for name, end := range map[string]func() error{
		"fails":  func() error { return errors.New("deadlock") },
		"panics": func() error { panic("boom") },
	} {
		t.Run("once it "+name, func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				s := l.shipping("", 0, Fault{})
				s.end = end
				out, err := s.p.Charge.Execute(l.Ctx, Order())
				l.wantErr(err, settle.ErrConsequence)
				s.want(0)
				l.Want(l.Get(out.ID), settle.StateSucceeded)
				s.end = nil
				s.p.Work()
				l.Elapse(5 * time.Minute)
				s.want(1)
				_, err = s.p.Charge.Execute(l.Ctx, Order())
				l.noErr(err)
				l.Requests(1)
			})
		})
	}
	t.Run("a process without the hook", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			l.Provider.Script(providertest.DropReply())
			l.Provider.ScriptLookup(providertest.Empty())
			s := l.shipping("", 0, Fault{})
			out, err := s.p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrUnknown)
			// Evidence must not wait for the hook, nor the hook be forgotten.
			bare, err := settle.Open((&faults{}).store(l), nil)
			l.noErr(err)
			r, err := bare.Resolve(l.Ctx, out.ID, settle.Decision{
				Actor: "ana", Reason: "dashboard", Evidence: "ch_1", Fact: settle.Applied, Ref: "ch_1",
			})
			l.noErr(err)
			l.Want(r, settle.StateSucceeded)
			s.want(0)
			s.p.Work()
			l.Elapse(5 * time.Minute)
			s.want(1)
			if s.runs != 1 {
				t.Fatalf("the hook ran %d times", s.runs)
			}
		})
	})
	t.Run("every way to die around it", func(t *testing.T) {
		for _, after := range []error{nil, errGone} {
			for n := 1; ; n++ {
				done := false
				t.Run(fmt.Sprintf("commit %d, applied %v", n, after != nil), func(t *testing.T) {
					Play(t, open, nil, func(t *testing.T, l *Lab) {
						s := l.shipping(OpCommit, n, Fault{Kill: true, After: after})
						_, err := s.p.Charge.Execute(l.Ctx, Order())
						if done = s.p.Hits() == 0; done {
							l.noErr(err)
							s.want(1)
							return
						}
						q := l.shipping("", 0, Fault{})
						q.p.Work()
						l.Elapse(30 * time.Minute)
						if recs := l.All("charge"); len(recs) == 1 {
							l.Want(recs[0], settle.StateSucceeded)
							q.want(1)
							l.Effects(recs[0].ID, 1)
						}
					})
				})
				if done || t.Failed() {
					break
				}
			}
		}
	})
}

// mended is who has consequences run again, and why.
var mended = settle.By{Actor: "ann", Reason: "the printer is mended"}

// redriven checks that the history says who had a consequence run again, and why (I12).
func redriven(l *Lab, id string) {
	l.T.Helper()
	for _, x := range l.History(id) {
		if x.Code == settle.CodeRedriven && x.Source == settle.SourcePerson && x.Actor == mended.Actor && x.Note == mended.Reason {
			return
		}
	}
	l.T.Errorf("the history does not say who redrove it; %s", l.story(id))
}
