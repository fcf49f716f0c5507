package scenario

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// I10 holds: the process dies at every one of its calls, before and after it was made; a
// worker alone brings what it left to an end, with one effect at most.
func I10(t *testing.T, open Open) {
	deaths := []struct {
		name string
		x    Fault
	}{
		{"before", Fault{Kill: true}},
		{"after", Fault{Kill: true, After: errGone}},
		{"in a panic after", Fault{Kill: true, After: errGone, Panic: true}},
	}
	for _, c := range []struct {
		name  string
		steps []providertest.Step
		want  settle.State
	}{
		{"success", nil, settle.StateSucceeded},
		{"lost reply", []providertest.Step{providertest.DropReply()}, settle.StateSucceeded},
		{"lost request", []providertest.Step{providertest.DropRequest()}, settle.StateSucceeded},
		{"declined", []providertest.Step{providertest.Decline("stolen_card")}, settle.StateFailed},
		{"rate limited", []providertest.Step{providertest.RateLimit(2 * time.Second)}, settle.StateSucceeded},
		{"underway", []providertest.Step{providertest.Processing()}, settle.StateProcessing},
	} {
		for _, d := range deaths {
			eachCall(t, "Execute, "+c.name+", killed "+d.name, open, func(t *testing.T, l *Lab, n int) bool {
				l.Provider.Script(c.steps...)
				p := l.Start(&Setup{Plan: Nth("", n, d.x)})
				err := contained(func() error {
					_, err := p.Charge.Execute(l.Ctx, Order())
					return err
				})
				if p.Hits() == 0 {
					return true
				}
				if err == nil && l.Only().State != settle.StateSucceeded {
					t.Fatal("success was reported and is not stored")
				}
				p.Kill()
				l.survive("charge", c.want)
				return false
			})
			eachCall(t, "Compensate, "+c.name+", killed "+d.name, open, func(t *testing.T, l *Lab, n int) bool {
				paid, err := l.Start(nil).Charge.Execute(l.Ctx, Order())
				l.noErr(err)
				l.Provider.Script(c.steps...)
				p := l.Start(&Setup{Plan: Nth("", n, d.x)})
				err = contained(func() error {
					_, err := p.Refund.Compensate(l.Ctx, settle.Effect{Operation: paid.ID}, "returned", Refund{})
					return err
				})
				if p.Hits() == 0 {
					return true
				}
				if err == nil && l.Get(paid.ID).State != settle.StateCompensated {
					t.Fatal("success was reported and is not stored")
				}
				p.Kill()
				l.survive("refund", c.want)
				l.checkParent(paid.ID)
				return false
			})
			if d.x.Panic {
				continue // a worker has no caller to contain a panic of its store
			}
			eachCall(t, "worker, "+c.name+", killed "+d.name, open, func(_ *testing.T, l *Lab, n int) bool {
				l.Provider.Script(c.steps...)
				_, err := l.Start(nil).Charge.Register(l.Ctx, Order())
				l.noErr(err)
				resting := false // all that is to be done is done: the rest is polling
				p := l.Start(nil)
				kill := Nth("", n, d.x)
				p.Faults(func(call Call) Fault {
					x := kill(call)
					if x.Kill {
						resting = l.resting()
					}
					return x
				})
				p.Work()
				l.Elapse(20 * time.Second)
				p.Kill()
				l.survive("charge", c.want)
				return resting || p.Hits() == 0
			})
		}
	}
}

// contained is a caller who survives the panic of a store that is called on its goroutine.
func contained(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errGone
		}
	}()
	return f()
}

// eachCall plays a scene with n = 1, 2, … until it says that there are fewer calls.
func eachCall(t *testing.T, name string, open Open, play func(t *testing.T, l *Lab, n int) bool) {
	t.Run(name, func(t *testing.T) {
		n := 1
		for done := false; !done; n++ {
			ok := t.Run(fmt.Sprintf("call %d", n), func(t *testing.T) {
				Play(t, open, nil, func(t *testing.T, l *Lab) { done = play(t, l, n) })
			})
			if !ok {
				return
			}
		}
		if n < 5 {
			t.Fatalf("only %d calls were tried", n-1)
		}
	})
}

// resting reports whether the only charge needs nothing more soon. It may be called
// from within a call of a process.
func (l *Lab) resting() bool {
	recs, err := l.Store.List(context.Background(), settle.Query{Kind: "charge"})
	return err == nil && len(recs) == 1 && (recs[0].State.Settled() || recs[0].State == settle.StateProcessing && recs[0].Token == "")
}

// survive lets a worker of another process finish what a dead one left.
func (l *Lab) survive(kind string, want settle.State) {
	l.T.Helper()
	l.Start(&Setup{Options: settle.Options{PollInterval: 5 * time.Second}}).Work()
	l.Elapse(2 * time.Minute) // longer than any lease
	recs := l.All(kind)
	if len(recs) == 1 && recs[0].State != want {
		l.Elapse(3 * time.Hour)
		recs = l.All(kind)
	}
	if len(recs) == 0 { // nothing was stored, so nothing was sent (I1)
		for _, q := range l.Provider.Requests() {
			if q.Kind == kind {
				l.T.Fatalf("a %s was sent and is not stored (I1)", kind)
			}
		}
		return
	}
	if len(recs) != 1 {
		l.T.Fatalf("%d operations of kind %s are stored", len(recs), kind)
	}
	r := recs[0]
	if r.State != want {
		l.T.Fatalf("it is %s, want %s (I10); %s", r.State, want, l.story(r.ID))
	}
	if l.Provider.Effects(r.ID) > 1 {
		l.T.Fatalf("more than one effect; %s", l.story(r.ID))
	}
}

// checkParent: the ledger of a charge with one refund is that of the refund.
func (l *Lab) checkParent(id string) {
	l.T.Helper()
	paid := l.Get(id)
	for _, r := range l.All("refund") {
		var status settle.PostingStatus
		for _, p := range paid.Ledger {
			if p.Operation == r.ID {
				status = p.Status
			}
		}
		want := settle.PostingOpen
		switch r.State {
		case settle.StateSucceeded, settle.StateCompensating, settle.StateCompensated:
			want = settle.PostingDone
		case settle.StateFailed, settle.StateCanceled:
			want = settle.PostingFreed
		case settle.StateCreated, settle.StateSubmitting, settle.StateUnknown, settle.StateProcessing, settle.StateActionRequired, settle.StateReview:
		}
		if status != want {
			l.T.Fatalf("the refund is %s and its posting %q, want %q; %s", r.State, status, want, l.story(id))
		}
	}
}
