package settle_test

import (
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
