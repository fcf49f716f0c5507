package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// t18: the commit that released the claim was applied, its reply is late, and another
// worker has claimed since. The first finds that its own change was applied.
func t18(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Provider.Script(providertest.Processing())
		q := l.Start(nil)
		claimed := false
		var lost *settle.Change
		p := l.Start(&Setup{
			Options: settle.Options{StoreTimeout: time.Minute},
			Plan: func(c Call) Fault {
				if c.Op != OpCommit || claimed || c.Change.Writes[0].Entry.Note != "wait" {
					return Fault{}
				}
				claimed, lost = true, c.Change
				return Fault{After: errBroken, Then: func() {
					time.Sleep(3 * time.Second) // due again
					q.Work()
					time.Sleep(2 * time.Second)
				}}
			},
		})
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrProcessing)
		if !claimed {
			t.Fatal("no release was lost")
		}
		if l.claims[out.ID] == 0 {
			t.Fatal("no other worker has claimed")
		}
		n := 0
		for _, x := range l.History(out.ID) {
			if x.Write == lost.ID {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("the release is in the history %d times, want once (I15)", n)
		}
		l.noErr(l.Provider.Finish("ch_1"))
		l.Want(l.Rest(out.ID, 20*time.Minute), settle.StateSucceeded)
	})
}

// I5: two workers never work on one operation, and who lost its claim starts no
// request, adds no attempt and moves no schedule.
func I5(t *testing.T, open Open) {
	t.Run("many workers, one request at a time", func(t *testing.T) {
		var mu sync.Mutex
		running := map[string]int{}
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			watch := func(a providertest.API) providertest.API { return counting{a, &mu, running, l} }
			for range 12 {
				l.Provider.Script(providertest.Slow(4 * time.Second).And(providertest.DropRequest()))
			}
			for range 4 {
				l.Start(&Setup{API: watch, Promise: l.contract(noLookup)}).Work()
			}
			p := l.Start(&Setup{API: watch, Promise: l.contract(noLookup)})
			for i := range 6 {
				op := Order()
				op.Subject = fmt.Sprintf("order-%d", i)
				_, err := p.Charge.Register(l.Ctx, op)
				l.noErr(err)
			}
			for _, r := range l.All("charge") {
				l.Want(l.Rest(r.ID, time.Hour), settle.StateSucceeded)
			}
		})
	})
	t.Run("after its claim is lost", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			promise := l.contract(func(c *settle.Contract) { noLookup(c); c.Deadline = time.Minute })
			release := l.Gate()
			p, done := l.slowHolder(promise, providertest.HangBefore(release.C))
			id := l.Only().ID
			token := l.Get(id).Token
			q := l.Start(&Setup{Promise: promise}).Work()
			l.At(lease + 2*time.Second)
			r := l.Get(id)
			before := len(p.Applied())
			if r.Token == token {
				t.Fatalf("the claim was not taken over; %s", l.story(id))
			}
			l.wantErr(<-done, settle.ErrPending)
			release.Open()
			l.Want(l.Rest(id, 10*time.Minute), settle.StateSucceeded)
			q.Stop()
			after := p.Applied()[before:]
			for _, c := range after {
				if w := c.Writes[0]; w.Entry.Fact != settle.Applied || w.IfToken != "" || w.DueIn >= 0 {
					t.Fatalf("the former holder writes %+v, due in %v (I5)", w.Entry, w.DueIn)
				}
			}
			if len(after) != 1 {
				t.Fatalf("the former holder writes %d times, want once: what it learned", len(after))
			}
			lost := slices.ContainsFunc(p.notices.all(), func(n settle.Notice) bool { return n.Event == settle.EventClaimLost })
			if !lost {
				t.Fatal("the former holder did not notice")
			}
			l.Effects(id, 1)
		})
	})
	t.Run("cannot renew in time, so it starts nothing", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			// A partition right after the claim: the attempt's commit hangs until the lease is over.
			l.Provider.Script(providertest.RateLimit(0))
			p := l.Start(&Setup{Options: settle.Options{StoreTimeout: 2 * time.Minute}})
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrWaiting)
			p.Faults(func(c Call) Fault {
				switch {
				case c.Op == OpRenew:
					return Fault{Before: errBroken}
				case c.Op == OpCommit && c.Change.Writes[0].Entry.Note == "attempt":
					return Fault{Delay: lease + time.Second}
				}
				return Fault{}
			})
			l.Elapse(3 * time.Second)
			p.Work()
			l.At(32 * time.Second)
			l.Requests(1)
			p.Faults(nil)
			l.Want(l.Rest(out.ID, 5*time.Minute), settle.StateSucceeded)
			l.Requests(2)
		})
	})
}

// counting fails the test when two create requests of one operation run at once.
type counting struct {
	providertest.API
	mu      *sync.Mutex
	running map[string]int
	l       *Lab
}

func (c counting) Create(ctx context.Context, r providertest.Request) (providertest.Object, error) {
	c.add(r.Reference, 1)
	defer c.add(r.Reference, -1)
	return c.API.Create(ctx, r)
}

func (c counting) add(id string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[id] += n; c.running[id] > 1 {
		c.l.T.Errorf("two requests of one operation run at once (I5)")
	}
}

// I10: the process dies at every one of its calls, before and after it was made; a
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

// I13: neither a wrong clock of the process nor one that jumps in mid-work changes a
// decision.
func I13(t *testing.T, open Open) {
	steps := []providertest.Step{providertest.DropRequest(), providertest.RateLimit(2 * time.Second), providertest.Slow(5 * time.Second).And(providertest.DropReply())}
	play := func(t *testing.T, skew, jump time.Duration) string {
		var told string
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			clock := l.machine(skew)
			l.Provider.Script(steps...)
			jumped := false
			p := l.Start(&Setup{
				Promise: l.contract(func(c *settle.Contract) { noLookup(c); c.Keys.ConcurrentSafe = false }), Options: settle.Options{Clock: clock},
				Plan: func(c Call) Fault {
					if c.Op == OpCreate && c.Create != nil && len(l.Provider.Requests()) == 2 && !jumped {
						jumped = true
						return Fault{Then: func() { clock.set(jump) }}
					}
					return Fault{}
				},
			}).Work()
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrUnknown)
			r := l.Rest(out.ID, time.Hour)
			l.Effects(out.ID, 1)
			if !jumped {
				t.Fatal("the clock was not set")
			}
			var b strings.Builder
			for _, x := range l.History(out.ID) {
				fmt.Fprintf(&b, "%s→%s %s %s %d %s\n", x.From, x.To, x.Source, x.Fact, x.Attempt, x.Note)
			}
			fmt.Fprintf(&b, "%d requests, %s", len(l.Provider.Requests()), r.State)
			told = b.String()
		})
		return told
	}
	want := play(t, 0, 0)
	for _, c := range []struct {
		name       string
		skew, jump time.Duration
	}{
		{"5 minutes fast", 5 * time.Minute, 0},
		{"5 minutes slow", -5 * time.Minute, 0},
		{"set back by 5 minutes", 0, -5 * time.Minute},
		{"set back by an hour, and fast", 5 * time.Minute, -time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := play(t, c.skew, c.jump); got != want {
				t.Fatalf("with the right clock:\n%s\nwith this one:\n%s (I13)", want, got)
			}
		})
	}
	// Set forward in mid-claim, the holder cannot tell it from having been suspended and
	// ends its own work (section 6 of the design). The outcome is the same.
	t.Run("set forward by 5 minutes", func(t *testing.T) {
		got := play(t, 0, 5*time.Minute)
		if !strings.HasSuffix(got, string(settle.StateSucceeded)) {
			t.Fatalf("it ended as\n%s (I13)", got)
		}
	})
}

// I15: at each commit in turn the reply is lost, or the call is repeated behind the
// engine's back. Nothing about the outcome changes.
func I15(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		x    Fault
	}{
		{"reply lost", Fault{After: errBroken}},
		{"repeated", Fault{Twice: true}},
		{"repeated, reply lost", Fault{Twice: true, After: errBroken}},
		{"not made", Fault{Before: errBroken}},
		{"reply too late", Fault{DelayReply: settle.DefaultStoreTimeout + time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 1
			for ; ; n++ {
				done := false
				t.Run(fmt.Sprintf("commit %d", n), func(t *testing.T) {
					Play(t, open, nil, func(t *testing.T, l *Lab) {
						ship := l.shipping(OpCommit, n, c.x)
						l.Provider.Script(providertest.RateLimit(2*time.Second), providertest.DropReply())
						out, err := ship.p.Charge.Execute(l.Ctx, Order())
						if err == nil || errors.Is(err, settle.ErrFailed) {
							t.Fatalf("Execute: %v", err)
						}
						ship.p.Work()
						id := l.Only().ID
						l.Want(l.Rest(id, time.Hour), settle.StateSucceeded)
						l.Elapse(5 * time.Minute)
						l.Requests(2)
						l.Effects(id, 1)
						ship.want(1)
						_ = out
						done = ship.p.Hits() == 0
					})
				})
				if done || t.Failed() {
					break
				}
			}
			if n < 5 && !t.Failed() {
				t.Fatalf("only %d commits were tried", n)
			}
		})
	}
}
