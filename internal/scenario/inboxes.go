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

// RunEvents plays what can happen to an event, on stores that open makes.
func RunEvents(t *testing.T, open func(t testing.TB) settle.Store) {
	run(t, open, []scene{
		{"once, whoever delivers it and however often", eventOnce},
		{"before the response, after it, both and neither", eventAndResponse},
		{"a fault at every call", eventFaults},
		{"the same id with other content", eventChanged},
		{"of another account", eventOfAnotherAccount},
		{"that nobody owns", eventOrphan},
		{"for a kind that is made elsewhere", eventForAnotherProcess},
		{"that does not speak for the kind", eventNotForKind},
		{"that cannot be read", eventUnreadable},
		{"without a reader", eventWithoutReader},
		{"that is none", eventInvalid},
	})
}

// merged counts the events in the history of an operation.
func (l *Lab) merged(id string) (n int) {
	for _, x := range l.History(id) {
		if x.Source == settle.SourceEvent {
			n++
		}
	}
	return n
}

func eventOnce(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p, q := l.Start(nil), l.Start(nil)
		out, err := p.Charge.Execute(l.Ctx, Order())
		if err != nil {
			t.Fatal(err)
		}
		ev := l.says(out.ID, charged("ch_1"))
		var wg sync.WaitGroup
		fresh := make(chan bool, 16)
		for i := range 16 {
			e := []*settle.Engine{p.Engine, q.Engine}[i%2]
			wg.Go(func() {
				got, err := e.Observe(context.Background(), ev)
				if err != nil {
					t.Error(err)
				}
				if got.Record.ID != out.ID || got.Parked {
					t.Errorf("observed %q, parked %v", got.Record.ID, got.Parked)
				}
				fresh <- !got.Duplicate
			})
		}
		wg.Wait()
		close(fresh)
		n := 0
		for f := range fresh {
			if f {
				n++
			}
		}
		if n != 1 || l.merged(out.ID) != 1 {
			t.Errorf("%d deliveries were the first, %d were merged (I7)", n, l.merged(out.ID))
		}
	})
}

func eventAndResponse(t *testing.T, open Open) {
	for _, c := range []struct {
		name          string
		before, after bool
		lost          bool
	}{{"before", true, false, false}, {"after", false, true, false}, {"both", true, true, false}, {"neither", false, false, false}, {"instead", true, false, true}} {
		t.Run(c.name, func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				g := l.Gate()
				step := providertest.HangAfter(g.C)
				if c.lost {
					step = step.And(providertest.DropReply())
				}
				l.Provider.Script(step)
				hooks := 0
				setup := &Setup{Charge: &settle.ExecutorOptions[Payment, Receipt]{
					OnSuccess: func(context.Context, settle.Tx, settle.Outcome[Receipt]) error { hooks++; return nil },
				}}
				p := l.Start(setup)
				id, done := executes(t, l, p)
				if c.before {
					l.Want(event(t, l.Start(setup), id, charged("ch_1")), settle.StateSucceeded)
				}
				g.Open()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if c.after {
					event(t, p, id, charged("ch_1"))
				}
				l.Want(l.Get(id), settle.StateSucceeded)
				if hooks != 1 {
					t.Errorf("the hook ran %d times (I11)", hooks)
				}
				l.Effects(id, 1)
				if a := l.Get(id); len(a.Alarms()) > 0 {
					t.Errorf("alarms %v", a.Alarms())
				}
			})
		})
	}
}

// eventFaults: a nil error means kept, and what was delivered again until then is merged once.
func eventFaults(t *testing.T, open Open) {
	for _, parked := range []bool{false, true} {
		for n := 1; n < 12; n++ {
			for name, x := range map[string]Fault{
				"before": {Before: errBroken}, "after": {After: errBroken}, "twice": {Twice: true},
				"gone before": {Kill: true}, "gone after": {Kill: true, After: errGone},
			} {
				hit := true
				t.Run(name, func(t *testing.T) {
					Play(t, open, nil, func(t *testing.T, l *Lab) {
						l.Lies = true
						l.Provider.Script(providertest.DropReply())
						p := l.Start(&Setup{Promise: silent(l)})
						out, _ := p.Charge.Execute(l.Ctx, Order())
						ev := l.says(out.ID, charged("ch_1"))
						if parked {
							ev.Operation, ev.ID = "", "evt_parked"
							ev.Ref = "ch_unknown_yet"
						}
						q := l.Start(&Setup{Plan: Nth("", n, x)})
						got, err := q.Engine.Observe(l.Ctx, ev)
						hit = q.Hits() > 0
						if err != nil {
							if got, err = l.Start(nil).Engine.Observe(l.Ctx, ev); err != nil {
								t.Fatal(err)
							}
						}
						if got.Parked != parked {
							t.Fatalf("parked %v", got.Parked)
						}
						kept, err := p.Engine.Get(l.Ctx, got.Event)
						if err != nil {
							t.Fatalf("acknowledged and not kept: %v", err)
						}
						if parked {
							if kept.Due.IsZero() {
								t.Error("parked and never due (I10)")
							}
							return
						}
						l.Want(kept, settle.StateSucceeded)
						l.Want(l.Get(out.ID), settle.StateSucceeded)
						if m := l.merged(out.ID); m != 1 {
							t.Errorf("merged %d times", m)
						}
					})
				})
				if !hit {
					n = 99
				}
			}
		}
	}
}

func eventChanged(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out, err := p.Charge.Execute(l.Ctx, Order())
		if err != nil {
			t.Fatal(err)
		}
		ev := l.says(out.ID, charged("ch_1"))
		if _, err := p.Engine.Observe(l.Ctx, ev); err != nil {
			t.Fatal(err)
		}
		other := l.says(out.ID, said{Fact: settle.Reversed, Ref: "ch_1"})
		other.ID = ev.ID
		got, err := p.Engine.Observe(l.Ctx, other)
		if err != nil || !got.Duplicate {
			t.Fatalf("duplicate %v, error %v", got.Duplicate, err)
		}
		l.Want(l.Get(out.ID), settle.StateSucceeded)
		if !slices.Contains(p.Alarms(), settle.AlarmEventChanged) {
			t.Errorf("alarms %v", p.Alarms())
		}
	})
}

func eventOfAnotherAccount(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out, err := p.Charge.Execute(l.Ctx, Order())
		if err != nil {
			t.Fatal(err)
		}
		ev := l.says(out.ID, said{Fact: settle.Reversed, Ref: "ch_1"})
		ev.Account = "providertest/another//live"
		got, err := p.Engine.Observe(l.Ctx, ev)
		if err != nil || !got.Parked {
			t.Fatalf("parked %v, error %v", got.Parked, err)
		}
		l.Want(l.Get(out.ID), settle.StateSucceeded)
		// The same id at the right account is another event.
		ev.Account = l.Promise.Account.String()
		if got, err = p.Engine.Observe(l.Ctx, ev); err != nil || got.Duplicate || got.Parked {
			t.Fatalf("%+v, error %v", got, err)
		}
	})
}

func eventOrphan(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true
		p := l.Start(&Setup{Options: settle.Options{OrphanAfter: time.Hour, PollInterval: 5 * time.Minute}})
		p.Work()
		ev := l.says("no-such-operation", charged("ch_orphan"))
		got, err := p.Engine.Observe(l.Ctx, ev)
		if err != nil || !got.Parked {
			t.Fatalf("parked %v, error %v", got.Parked, err)
		}
		for _, r := range l.Matching(settle.Query{}) {
			t.Errorf("%s of kind %s is listed among operations", r.ID, r.Kind)
		}
		l.Elapse(50 * time.Minute)
		r, err := p.Engine.Get(l.Ctx, got.Event)
		if err != nil || r.State != settle.StateCreated {
			t.Fatalf("%s after 50 minutes, error %v", r.State, err)
		}
		l.Elapse(40 * time.Minute) // of polls of 5 minutes, and a retry of as much and more
		if r, err = p.Engine.Get(l.Ctx, got.Event); err != nil {
			t.Fatal(err)
		}
		l.Want(r, settle.StateReview)
		if r.Review.Reason != settle.ReasonOrphan || r.Review.Deadline.IsZero() || r.Due.IsZero() {
			t.Errorf("review %+v, due %v (I10)", r.Review, r.Due)
		}
		listed := len(l.Matching(settle.Query{Kind: settle.EventKind, States: []settle.State{settle.StateReview}}))
		if listed != 1 || !slices.Contains(p.Alarms(), settle.AlarmReview) {
			t.Errorf("%d listed, alarms %v", listed, p.Alarms())
		}
		// Nobody does anything.
		l.Elapse(25 * time.Hour)
		if !slices.Contains(p.Alarms(), settle.AlarmOverdue) {
			t.Errorf("nobody decided by %v, alarms %v", r.Review.Deadline, p.Alarms())
		}
		// A person takes note of it.
		if r, err = p.Engine.Resolve(l.Ctx, got.Event, settle.Decision{
			Actor: "ann", Reason: "of the old system", Evidence: "ledger 7", Fact: settle.Applied,
		}); err != nil {
			t.Fatal(err)
		}
		l.Want(r, settle.StateSucceeded)
		if !r.Due.IsZero() {
			t.Errorf("still due: %v", r.Due)
		}
	})
}

// eventForAnotherProcess: this process has no such kind, and has nothing lost.
func eventForAnotherProcess(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Provider.Script(providertest.DropReply())
		p := l.Start(&Setup{Promise: silent(l)})
		out, _ := p.Charge.Execute(l.Ctx, Order())
		bare, err := settle.Open(l.Store, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := bare.Observe(l.Ctx, l.says(out.ID, charged("ch_1")))
		if err != nil || !got.Parked {
			t.Fatalf("parked %v, error %v", got.Parked, err)
		}
		l.Want(l.Get(out.ID), settle.StateUnknown)
		p.Work()
		l.Elapse(10 * time.Second)
		l.Want(l.Get(out.ID), settle.StateSucceeded)
	})
}

func eventNotForKind(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(&Setup{Adapter: func(a *settle.Adapter[Payment, Receipt]) {
			a.EventFunc = func(context.Context, settle.Event) (said, error) { return said{}, settle.ErrNotForKind }
		}})
		out, err := p.Charge.Execute(l.Ctx, Order())
		if err != nil {
			t.Fatal(err)
		}
		ev := l.says(out.ID, charged("py_9"))
		for i := range 2 {
			got, err := p.Engine.Observe(l.Ctx, ev)
			if err != nil || got.Parked || got.Duplicate != (i == 1) {
				t.Fatalf("%+v, error %v", got, err)
			}
		}
		r := l.Get(out.ID)
		if l.merged(out.ID) != 0 || len(r.References) != 1 {
			t.Errorf("it was merged: %+v", r.References)
		}
	})
}

// eventUnreadable: it is kept and tried again; a panic too.
func eventUnreadable(t *testing.T, open Open) {
	for name, read := range map[string]func() (said, error){
		"error": func() (said, error) { return said{}, errors.New("a new version of the payload") },
		"panic": func() (said, error) { panic("card 4242") },
	} {
		t.Run(name, func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				l.Provider.Script(providertest.DropReply())
				p := l.Start(&Setup{Promise: silent(l), Adapter: func(a *settle.Adapter[Payment, Receipt]) {
					a.EventFunc = func(context.Context, settle.Event) (said, error) { return read() }
				}})
				out, _ := p.Charge.Execute(l.Ctx, Order())
				got, err := p.Engine.Observe(l.Ctx, l.says(out.ID, charged("ch_1")))
				if err != nil || !got.Parked {
					t.Fatalf("parked %v, error %v", got.Parked, err)
				}
				l.Want(l.Get(out.ID), settle.StateUnknown)
				l.Start(&Setup{Promise: silent(l)}).Work() // the next release
				l.Elapse(10 * time.Second)
				l.Want(l.Get(out.ID), settle.StateSucceeded)
			})
		})
	}
}

func eventWithoutReader(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Provider.Script(providertest.Processing())
		p := l.Start(&Setup{Adapter: func(a *settle.Adapter[Payment, Receipt]) { a.EventFunc = nil }})
		out, _ := p.Charge.Execute(l.Ctx, Order())
		reads := 0
		p.Faults(func(c Call) Fault {
			if c.Op == OpRead || c.Op == OpFind {
				reads++
			}
			return Fault{}
		})
		event(t, p, out.ID, charged("ch_1"))
		l.Want(l.Get(out.ID), settle.StateProcessing)
		p.Work()
		l.Elapse(time.Second)
		if reads == 0 {
			t.Error("nobody asked the provider")
		}
	})
}

func eventInvalid(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		for name, bad := range map[string]func(*settle.Event){
			"no account": func(e *settle.Event) { e.Account = "" },
			"no id":      func(e *settle.Event) { e.ID = "" },
			"long id":    func(e *settle.Event) { e.ID = string(make([]byte, 300)) },
			"control":    func(e *settle.Event) { e.Ref = "a\x00b" },
			"too large":  func(e *settle.Event) { e.Payload = make([]byte, settle.MaxEvent+1) },
		} {
			ev := l.says("x", charged("ch_1"))
			bad(&ev)
			if _, err := p.Engine.Observe(l.Ctx, ev); !errors.Is(err, settle.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(l.All(settle.EventKind)) != 0 {
			t.Error("something was stored")
		}
		if _, err := settle.New(p.Engine, "settle.mine", providertest.ChargeAdapter(p.API, l.Promise), nil); !errors.Is(err, settle.ErrInvalid) {
			t.Errorf("a kind of settle's own: %v", err)
		}
	})
}
