package scenario

import (
	"context"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// t09: processing and action_required with one sequence end in the same state in both orders, and
// a lookup that fails does not make it unknown.
func t09(t *testing.T, open Open) {
	reports := []said{
		{Fact: settle.Underway, Ref: "ch_1", Sequence: 7},
		{Fact: settle.NeedsAction, Ref: "ch_1", Action: "3ds", Sequence: 7},
	}
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			l.Lies = true
			l.Provider.Script(providertest.Processing())
			p := l.Start(nil)
			out, _ := p.Charge.Execute(l.Ctx, Order())
			p.Faults(Always(OpRead, Fault{Before: errBroken}))
			p.Work()
			for _, i := range order {
				event(t, p, out.ID, reports[i])
			}
			r := l.Get(out.ID)
			l.Want(r, settle.StateActionRequired)
			if r.Due.After(r.AsOf) && !r.Wake && !r.Claimed() && p.Hits() == 0 { // unless the worker looks, or has looked, already
				t.Errorf("no lookup is asked for: due in %v", r.Due.Sub(r.AsOf))
			}
			l.Elapse(20 * time.Second)
			if p.Hits() == 0 {
				t.Error("nobody looked")
			}
			l.Want(l.Get(out.ID), settle.StateActionRequired)
			p.Faults(nil)
		})
	}
}

// t27: Observe finds no operation, the operation gets its reference, and then the event is
// parked: workers match it again.
func t27(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		g := l.Gate()
		l.Provider.Script(providertest.HangBefore(g.C).And(providertest.Processing()))
		p, q := l.Start(nil), l.Start(nil)
		done := make(chan error, 1)
		go func() {
			_, err := p.Charge.Execute(context.Background(), Order())
			done <- err
		}()
		l.Elapse(time.Second)
		id := l.Only().ID
		ev := l.says("", said{Fact: settle.Declined, Code: "stolen_card"})
		ev.Ref = "ch_1"
		// The event's commit waits until the operation has its reference.
		q.Faults(Nth(OpCommit, 1, Fault{Delay: 3 * time.Second}))
		seen := make(chan settle.Observed, 1)
		go func() {
			out, err := q.Engine.Observe(context.Background(), ev)
			if err != nil {
				t.Error(err)
			}
			seen <- out
		}()
		l.Elapse(time.Second)
		g.Open()
		l.wantErr(<-done, settle.ErrProcessing)
		if refs := l.Get(id).References; len(refs) == 0 || refs[0].Ref == "" {
			// The provider names its first object so.
			t.Fatalf("the reply brought no reference: %+v", refs)
		} else if refs[0].Ref != ev.Ref {
			t.Fatalf("the reference is %q", refs[0].Ref)
		}
		if out := <-seen; !out.Parked {
			t.Fatalf("not parked: %+v", out)
		}
		l.Start(nil).Work()
		l.Elapse(time.Minute)
		for _, x := range l.History(id) {
			if x.Source == settle.SourceEvent && x.Fact == settle.Declined {
				return
			}
		}
		t.Error("the parked event was never applied")
	})
}
