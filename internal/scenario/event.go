package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// The traces of this file need events, whatever delivers them.

type said = settle.Observation[Receipt]

// event has the provider report o about an operation.
func event(t *testing.T, p *Process, id string, o said) settle.Record {
	t.Helper()
	out, err := p.Engine.Observe(context.Background(), p.lab.says(id, o))
	if err != nil {
		t.Fatalf("event %s: %v", o.Fact, err)
	}
	if out.Parked || out.Duplicate {
		t.Fatalf("event %s: parked %v, duplicate %v", o.Fact, out.Parked, out.Duplicate)
	}
	return out.Record
}

// says makes an event that means o, with an id of its own.
func (l *Lab) says(id string, o said) settle.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events++
	body, err := json.Marshal(o)
	if err != nil {
		l.T.Fatal(err)
	}
	return settle.Event{
		Account: l.Promise.Account.String(), ID: fmt.Sprint("evt_", l.events), Type: "charge.updated", Operation: id,
		Ref: o.Ref, Sequence: o.Sequence, Payload: body,
	}
}

// hears reads such an event.
func hears(_ context.Context, ev settle.Event) (said, error) {
	var o said
	err := json.Unmarshal(ev.Payload, &o)
	return o, err
}

// listens reads such events, and the provider's own about one kind of objects.
func listens(kind string) func(context.Context, settle.Event) (said, error) {
	read := providertest.ReadEvent(kind)
	return func(ctx context.Context, ev settle.Event) (said, error) {
		if strings.HasSuffix(ev.Type, ".updated") {
			return hears(ctx, ev)
		}
		return read(ctx, ev)
	}
}

func charged(ref string) said {
	return said{Fact: settle.Applied, Ref: ref, Terms: settle.Terms{Amount: settle.Minor(1999, "EUR")}}
}

func silent(l *Lab) *settle.Contract {
	c := l.Promise
	c.Lookup = settle.NoLookup
	return &c
}

// executes runs the order in the background and returns when its request has arrived.
func executes(t *testing.T, l *Lab, p *Process) (id string, done <-chan error) {
	t.Helper()
	answer := make(chan error, 1)
	go func() {
		_, err := p.Charge.Execute(context.Background(), Order())
		answer <- err
	}()
	l.Elapse(time.Second)
	l.Requests(1)
	return l.Only().ID, answer
}

func t04(t *testing.T, open Open) {
	for _, c := range []struct {
		name, ref string
		keys      bool
	}{
		{"no reference", "", true},
		{"no reference, no keys", "", false},
		{"the reference of another try", "ch_try_9", true},
		{"the reference of another try, no keys", "ch_try_9", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			po := &providertest.Options{}
			if c.keys {
				po.KeyWindow = 24 * time.Hour
			}
			Play(t, open, po, func(t *testing.T, l *Lab) {
				lands := l.Gate()
				l.Provider.Script(providertest.ApplyLater(lands.C).And(providertest.HangAfter(nil)))
				p := l.Start(&Setup{Promise: silent(l)})
				id, done := executes(t, l, p)
				if err := <-done; !errors.Is(err, settle.ErrUnknown) {
					t.Fatalf("error %v, want unknown", err)
				}
				l.Want(event(t, p, id, said{Fact: settle.Declined, Ref: c.ref, Code: "stolen_card"}), settle.StateUnknown)
				lands.Open()
				l.Start(nil).Work() // one that can ask
				l.Want(l.Rest(id, time.Hour), settle.StateSucceeded)
				l.Effects(id, 1)
			})
		})
	}
}

func t06(t *testing.T, open Open) {
	t.Run("a decline, then the reply says success", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			g := l.Gate()
			l.Provider.Script(providertest.HangBefore(g.C))
			p := l.Start(nil)
			id, done := executes(t, l, p)
			before := l.Get(id)
			r := event(t, l.Start(nil), id, said{Fact: settle.Declined, Code: "stolen_card"})
			l.Want(r, settle.StateSubmitting)
			if r.Token != before.Token || !r.Due.Equal(before.Due) {
				t.Fatalf("the event moved the claim")
			}
			g.Open()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			l.Want(l.Get(id), settle.StateSucceeded)
		})
	})
	t.Run("a success, then the reply", func(t *testing.T) {
		for _, reply := range []providertest.Step{providertest.OK(), providertest.DropReply(), providertest.Decline("stolen_card")} {
			t.Run(reply.String(), func(t *testing.T) {
				Play(t, open, nil, func(t *testing.T, l *Lab) {
					l.Lies = true
					g := l.Gate()
					l.Provider.Script(providertest.HangBefore(g.C).And(reply))
					p := l.Start(nil)
					id, done := executes(t, l, p)
					r := event(t, l.Start(nil), id, charged("ch_1"))
					l.Want(r, settle.StateSucceeded)
					if r.Token != "" || !r.Due.IsZero() {
						t.Fatalf("settled by the event, and token %q, due %v are left", r.Token, r.Due)
					}
					g.Open()
					if err := <-done; err != nil {
						t.Fatalf("the holder says %v of a confirmed effect", err)
					}
					r = l.Get(id)
					l.Want(r, settle.StateSucceeded)
					if r.Token != "" || !r.Due.IsZero() {
						t.Fatalf("after the late reply token %q, due %v", r.Token, r.Due)
					}
					h := l.History(id)
					if last := h[len(h)-1]; last.Source != settle.SourceReply {
						t.Fatalf("the late reply is not in the history: %+v (I12)", last)
					}
					l.Requests(1)
				})
			})
		}
	})
}

func t17(t *testing.T, open Open) {
	for _, first := range []string{"event", "completion"} {
		t.Run(first+" first", func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				g := l.Gate()
				l.Provider.Script(providertest.HangBefore(g.C).And(providertest.Processing()))
				isReply := func(c Call) bool {
					return c.Op == OpCommit && c.Change.Writes[0].Entry.Source == settle.SourceReply
				}
				isEvent := func(c Call) bool {
					return c.Op == OpCommit && c.Change.Writes[0].Entry.Source == settle.SourceEvent
				}
				late := func(which func(Call) bool) Plan {
					hit := false
					return func(c Call) Fault {
						if hit || !which(c) {
							return Fault{}
						}
						hit = true
						return Fault{Delay: 2 * time.Second}
					}
				}
				p, q := l.Start(nil), l.Start(nil)
				id, done := executes(t, l, p)
				switch first {
				case "event":
					p.Faults(late(isReply))
					g.Open()
					l.Elapse(time.Second) // the completion has read, and not written
					event(t, q, id, said{Fact: settle.NeedsAction, Ref: "ch_1", Action: "3ds", Sequence: 99})
				case "completion":
					q.Faults(late(isEvent))
					merged := make(chan struct{})
					go func() {
						defer close(merged)
						event(t, q, id, said{Fact: settle.NeedsAction, Ref: "ch_1", Action: "3ds", Sequence: 99})
					}()
					l.Elapse(time.Second) // the event has read, and not written
					g.Open()
					<-merged
				}
				err := <-done
				if p.Hits()+q.Hits() != 1 {
					t.Fatalf("%d writes were late, want 1", p.Hits()+q.Hits())
				}
				if !errors.Is(err, settle.ErrActionRequired) && !errors.Is(err, settle.ErrProcessing) {
					t.Fatalf("the holder says %v", err)
				}
				for _, n := range p.Notices() {
					if n.Event == settle.EventClaimLost {
						t.Fatal("the holder believes that its claim is lost")
					}
				}
				r := l.Get(id)
				if r.Attempts[0].Fate != settle.FateUnderway {
					t.Fatalf("the completion is lost: attempt %q", r.Attempts[0].Fate)
				}
				var sources []settle.Source
				for _, x := range l.History(id) {
					if x.Fact != "" {
						sources = append(sources, x.Source)
					}
				}
				for _, s := range []settle.Source{settle.SourceEvent, settle.SourceReply} {
					if !slices.Contains(sources, s) {
						t.Fatalf("no %s in the history, only %v (I12)", s, sources)
					}
				}
			})
		})
	}
}

func t19(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		g := l.Gate()
		l.Provider.Script(providertest.HangBefore(g.C).And(providertest.Processing()))
		p := l.Start(nil)
		id, done := executes(t, l, p)
		before := l.Get(id)
		r := event(t, l.Start(nil), id, said{Fact: settle.Underway, Ref: "ch_1", Sequence: 1})
		if !r.Due.Equal(before.Due) || r.Token != before.Token || !r.Wake {
			t.Fatalf("due %v→%v, token kept %v, wake %v", before.Due, r.Due, r.Token == before.Token, r.Wake)
		}
		recs, err := l.Store.Claim(l.Ctx, settle.Claim{Kinds: []string{"charge"}, Token: "t", Lease: time.Second, Limit: 10})
		if err != nil || len(recs) != 0 {
			t.Fatalf("a second worker claims %v %v", recs, err)
		}
		g.Open()
		if err := <-done; !errors.Is(err, settle.ErrProcessing) {
			t.Fatalf("error %v, want processing", err)
		}
		// The wake counts when the claim ends: looked at again without any backoff.
		r = l.Get(id)
		if r.Due.After(r.AsOf) && !r.State.Settled() {
			t.Fatalf("due in %v after a wake, want now", r.Due.Sub(r.AsOf))
		}
		if r.Wake {
			t.Fatal("the wake is left after it counted")
		}
	})
}

func t26(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true // a 429 after the effect
		l.Provider.Script(providertest.StatusAfter(429, "rate_limited"))
		runs := 0
		p := l.Start(&Setup{Options: settle.Options{PollInterval: 30 * time.Second}, Charge: &settle.ExecutorOptions[Payment, Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[Receipt]) error { runs++; return nil },
		}})
		out, err := p.Charge.Execute(l.Ctx, Order())
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatalf("error %v, want waiting", err)
		}
		if err := p.Charge.Cancel(l.Ctx, Order().Intent(), "changed_mind"); err != nil {
			t.Fatal(err)
		}
		l.Want(l.Get(out.ID), settle.StateCanceled)
		r := event(t, p, out.ID, charged("ch_1"))
		l.Want(r, settle.StateReview)
		if r.Review.Reason != settle.ReasonCanceled || r.Review.Deadline.IsZero() || r.Due.IsZero() {
			t.Fatalf("review %+v, due %v", r.Review, r.Due)
		}
		for _, a := range []string{settle.AlarmCanceled, settle.AlarmReview} {
			if !slices.Contains(p.Alarms(), a) {
				t.Fatalf("alarms %v, want %s among them", p.Alarms(), a)
			}
		}
		p.Work()
		l.Elapse(3 * time.Hour)
		l.Want(l.Get(out.ID), settle.StateReview)
		if runs != 0 {
			t.Fatalf("the hook ran %d times", runs)
		}
		back, err := p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "withdrawn", Refund{})
		if err != nil {
			t.Fatalf("it cannot be compensated: %v", err)
		}
		l.Effects(back.ID, 1)
		l.Want(l.Get(out.ID), settle.StateCompensated)
		if runs != 0 {
			t.Fatalf("the hook ran %d times", runs)
		}
	})
}

func t34(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Provider.Script(providertest.Processing())
		p := l.Start(nil).Work()
		g := l.Gate()
		out, err := p.Charge.Execute(l.Ctx, Order())
		if !errors.Is(err, settle.ErrProcessing) {
			t.Fatalf("error %v, want processing", err)
		}
		l.Provider.ScriptLookup(providertest.HangAfter(g.C))
		asked := l.Asked()
		l.Elapse(3 * time.Second)
		if n := l.Asked() - asked; n != 1 {
			t.Fatalf("%d lookups, want one that hangs", n)
		}
		event(t, l.Start(nil), out.ID, said{Fact: settle.NeedsAction, Ref: "ch_1", Action: "3ds", Sequence: 99})
		l.Want(l.Get(out.ID), settle.StateActionRequired)
		g.Open()
		l.Elapse(0)
		r := l.Get(out.ID)
		l.Want(r, settle.StateProcessing)
		if !r.Progress.FromLookup {
			t.Fatalf("progress %+v, want the lookup's", r.Progress)
		}
		l.Elapse(1300 * time.Millisecond) // one poll of the worker, and no backoff: the event asked
		if n := l.Asked() - asked; n < 2 {
			t.Fatal("the later event asks for no other lookup")
		}
	})
}

// T-42 beside the state table: the revived former try is a person's, and its hook does
// not run.
func t42(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true
		var hooks []string
		p := l.Start(&Setup{Options: settle.Options{PollInterval: 30 * time.Second}, Charge: &settle.ExecutorOptions[Payment, Receipt]{
			OnSuccess: func(_ context.Context, _ settle.Tx, out settle.Outcome[Receipt]) error {
				hooks = append(hooks, out.ID)
				return nil
			},
		}})
		l.Provider.Script(providertest.Decline("stolen_card"))
		one, err := p.Charge.Execute(l.Ctx, Order())
		if !errors.Is(err, settle.ErrFailed) {
			t.Fatalf("error %v, want failed", err)
		}
		again := Order()
		again.Replaces, again.Request.Invoice = one.ID, "R-2042"
		two, err := p.Charge.Execute(l.Ctx, again)
		if err != nil {
			t.Fatal(err)
		}
		if two.ProviderKey == one.ProviderKey {
			t.Fatal("the next try has the former's provider key")
		}
		r := event(t, p, one.ID, charged("ch_1"))
		l.Want(r, settle.StateReview)
		if r.Review.Reason != settle.ReasonReplaced || !slices.Contains(p.Alarms(), settle.AlarmReplaced) {
			t.Fatalf("review %+v, alarms %v", r.Review, p.Alarms())
		}
		p.Work()
		l.Elapse(3 * time.Hour)
		l.Want(l.Get(two.ID), settle.StateSucceeded)
		if fmt.Sprint(hooks) != fmt.Sprint([]string{two.ID}) {
			t.Fatalf("hooks ran for %v, want once for the second", hooks)
		}
	})
}
