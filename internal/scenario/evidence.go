package scenario

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// refusedDial fails the nth create request before a connection exists.
func refusedDial(n int) Plan {
	return Nth(OpCreate, n, Fault{Before: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}})
}

// t02: proof about attempt 2 says nothing about attempt 1.
func t02(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		step *providertest.Step
		fate settle.Fate
	}{
		{"dial refused", nil, settle.FateNotSent},
		{"429", ptr(providertest.RateLimit(0)), settle.FateNotApplied},
		{"401", ptr(providertest.Status(401, "unauthorized")), settle.FateNotApplied},
	} {
		for _, lookup := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, lookup %v", c.name, lookup), func(t *testing.T) {
				Play(t, open, nil, func(t *testing.T, l *Lab) {
					promise := l.contract(func(*settle.Contract) {})
					if !lookup {
						promise = l.contract(noLookup)
					}
					release := l.Gate()
					rec := l.crash(Setup{Promise: promise}, Order(), providertest.ApplyLater(release.C))
					s := &Setup{Promise: promise}
					if c.step == nil {
						s.Plan = refusedDial(1)
					} else {
						l.Provider.Script(*c.step)
					}
					p := l.Start(s)
					l.Elapse(31 * time.Second)
					r := p.Reconcile(rec.ID)
					l.Want(r, settle.StateUnknown)
					if len(r.Attempts) != 2 || r.Attempts[0].Fate != settle.FateOpen || r.Attempts[1].Fate != c.fate {
						t.Fatalf("attempts %+v, want open and %s", r.Attempts, c.fate)
					}
					l.wantErr(p.Charge.Cancel(l.Ctx, Order().Intent(), "too_late"), settle.ErrPending)
					release.Open()
					p.Work()
					l.Want(l.Rest(rec.ID, 10*time.Minute), settle.StateSucceeded)
					l.Effects(rec.ID, 1)
				})
			})
		}
	}
}

func ptr[T any](v T) *T { return &v }

// t03: the provider keeps refusals under no key, so the first request may still land
// after the second was declined.
func t03(t *testing.T, open Open) {
	for _, lookup := range []bool{false, true} {
		t.Run(fmt.Sprintf("lookup %v", lookup), func(t *testing.T) {
			po := &providertest.Options{KeyWindow: 24 * time.Hour, CacheOnlySuccess: true}
			Play(t, open, po, func(t *testing.T, l *Lab) {
				promise := l.contract(func(*settle.Contract) {})
				if !lookup {
					promise = l.contract(noLookup)
				}
				release := l.Gate()
				rec := l.crash(Setup{Promise: promise}, Order(), providertest.ApplyLater(release.C), providertest.Decline("stolen_card"))
				p := l.Start(&Setup{Promise: promise})
				l.Elapse(31 * time.Second)
				r := p.Reconcile(rec.ID)
				l.Want(r, settle.StateUnknown)
				l.Requests(2)
				l.Elapse(10 * time.Second)
				release.Open()
				p.Work()
				l.Want(l.Rest(rec.ID, 10*time.Minute), settle.StateSucceeded)
				l.Effects(rec.ID, 1)
			})
		})
	}
}

// slowHolder starts a process whose adapter ignores its context and whose claim cannot
// be renewed; its request hangs until release is closed, then its answer arrives.
func (l *Lab) slowHolder(promise *settle.Contract, step providertest.Step) (*Process, <-chan error) {
	l.T.Helper()
	l.Provider.Script(step)
	p := l.Start(&Setup{
		Promise: promise, API: func(a providertest.API) providertest.API { return deaf{a} }, Plan: Always(OpRenew, Fault{Before: errBroken}),
	})
	done := make(chan error, 1)
	go func() {
		_, err := p.Charge.Execute(context.Background(), Order())
		done <- err
	}()
	l.Elapse(time.Second)
	l.Requests(1)
	return p, done
}

// t05: what a holder learned after its claim was lost is merged like any observation.
func t05(t *testing.T, open Open) {
	Play(t, open, &providertest.Options{}, func(t *testing.T, l *Lab) {
		promise := l.contract(func(c *settle.Contract) { noLookup(c); c.Deadline = time.Minute })
		release := l.Gate()
		_, done := l.slowHolder(promise, providertest.HangBefore(release.C))
		id := l.Only().ID
		q := l.Start(&Setup{Promise: promise}).Work()
		r := l.Rest(id, 10*time.Minute)
		l.Want(r, settle.StateReview)
		if r.Review.Reason != settle.ReasonNoKeys {
			t.Fatalf("review because of %s, want %s", r.Review.Reason, settle.ReasonNoKeys)
		}
		l.wantErr(<-done, settle.ErrPending)
		release.Open()
		l.Elapse(time.Second)
		r = l.Get(id)
		l.Want(r, settle.StateSucceeded)
		if r.Token != "" || r.Review != nil || !r.Due.IsZero() {
			t.Fatalf("settling left token %q, review %v, due %v", r.Token, r.Review, r.Due)
		}
		h := l.History(id)
		if last := h[len(h)-1]; last.Source != settle.SourceReply || last.Fact != settle.Applied || last.From != settle.StateReview {
			t.Fatalf("the last entry is %+v, want the reply out of review", last)
		}
		l.Requests(1)
		q.Stop()
	})
}

// answers replaces what the provider says of an object.
type answers struct {
	providertest.API
	change func(*providertest.Object)
}

func (a answers) Get(ctx context.Context, id string) (providertest.Object, error) {
	o, err := a.API.Get(ctx, id)
	if a.change != nil {
		a.change(&o)
	}
	return o, err
}

// t08: {reversed, ok} ends failed whatever comes first, but a success of a reversed
// reference is worth a question, and an alarm if the provider stands by it.
func t08(t *testing.T, open Open) {
	for _, confirmed := range []bool{false, true} {
		t.Run(fmt.Sprintf("confirmed %v", confirmed), func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				promise := l.contract(func(c *settle.Contract) { c.Deadline = time.Minute })
				release := l.Gate()
				_, done := l.slowHolder(promise, providertest.HangAfter(release.C))
				id := l.Only().ID
				l.noErr(l.Provider.Reverse("ch_1"))
				stands := false
				q := l.Start(&Setup{Promise: promise, API: func(a providertest.API) providertest.API {
					return answers{a, func(o *providertest.Object) {
						if stands {
							o.Status = providertest.StatusSucceeded
						}
					}}
				}}).Work()
				l.wantErr(<-done, settle.ErrPending)
				l.Until(id, 10*time.Minute, func(r settle.Record) bool {
					return len(r.References) == 1 && r.References[0].Rank == settle.RankReversed
				})
				stands = confirmed
				asked := l.Asked()
				release.Open() // the old reply: succeeded
				l.Elapse(time.Minute)
				r := l.Get(id)
				l.Want(r, settle.StateFailed)
				if l.Asked() == asked {
					t.Fatalf("nobody asked after the success; %s", l.story(id))
				}
				if got := contains(q.Alarms(), settle.AlarmReversal); got != confirmed {
					t.Fatalf("alarmed %v, want %v; %s", got, confirmed, l.story(id))
				}
			})
		})
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// t38: a decline speaks for older attempts only if they were quiet when its own began.
func t38(t *testing.T, open Open) {
	for _, c := range []struct {
		name  string
		safe  bool
		state settle.State
	}{
		{"after quiet", false, settle.StateFailed},
		{"before quiet", true, settle.StateUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				promise := l.contract(func(k *settle.Contract) { noLookup(k); k.Keys.ConcurrentSafe = c.safe })
				rec := l.crash(Setup{Promise: promise}, Order(), providertest.DropRequest(), providertest.Decline("stolen_card"))
				l.Start(&Setup{Promise: promise}).Work()
				l.Until(rec.ID, 10*time.Minute, func(r settle.Record) bool { return len(r.Attempts) == 2 && r.Attempts[1].Fate != settle.FateOpen })
				l.Want(l.Get(rec.ID), c.state)
				l.Want(l.Rest(rec.ID, 30*time.Minute), settle.StateFailed) // attempt 3 is answered with the same decline, after quiet
				l.Effects(rec.ID, 0)
			})
		})
	}
}

// t39: progress is advice; a final refusal ends what it was about.
func t39(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Provider.Script(providertest.Processing())
		p := l.Start(nil).Work()
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrProcessing)
		l.Elapse(time.Minute)
		l.Want(l.Get(out.ID), settle.StateProcessing)
		l.noErr(l.Provider.Fail("ch_1", "insufficient_funds"))
		r := l.Rest(out.ID, 20*time.Minute)
		l.Want(r, settle.StateFailed)
		if r.Code != "insufficient_funds" {
			t.Fatalf("code %q", r.Code)
		}
	})
}

// t40: review does not end the questions, and their answers still settle.
func t40(t *testing.T, open Open) {
	Play(t, open, &providertest.Options{}, func(t *testing.T, l *Lab) {
		l.Provider.Script(providertest.ApplyAfter(5 * time.Hour).And(providertest.Decline("stolen_card")))
		p := l.Start(&Setup{Options: settle.Options{PollInterval: 30 * time.Second}}).Work()
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrUnknown)
		l.Want(l.Rest(out.ID, time.Hour), settle.StateReview)
		l.At(4 * time.Hour)
		l.Want(l.Get(out.ID), settle.StateReview)
		r := l.Until(out.ID, 3*time.Hour, func(r settle.Record) bool { return r.State != settle.StateReview })
		l.Want(r, settle.StateFailed)
		l.Requests(1)
		if !contains(p.Alarms(), settle.AlarmReview) {
			t.Fatalf("the review was not alarmed: %v", p.Alarms())
		}
	})
}

// t43: "underway" means that something left. The trace's outcome is "unknown, never created"; with the
// progress that the design keeps ("not found" never replaces it) the state's word is processing.
func t43(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(&Setup{Adapter: func(a *settle.Adapter[Payment, Receipt]) {
			submit, lookup := a.SubmitFunc, a.LookupFunc
			a.SubmitFunc = func(ctx context.Context, c *settle.Call[Payment]) (settle.Observation[Receipt], error) {
				o, err := submit(ctx, c)
				o.Ref = "" // accepted, and not named yet
				return o, err
			}
			a.LookupFunc = lookup
		}})
		l.Provider.Script(providertest.Processing())
		l.Provider.ScriptLookup(providertest.Empty(), providertest.Empty(), providertest.Empty())
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrPending)
		for range 3 {
			l.Elapse(time.Minute)
			l.Want(p.Reconcile(out.ID), settle.StateProcessing)
			l.wantErr(p.Charge.Cancel(l.Ctx, Order().Intent(), "give_up"), settle.ErrPending)
		}
		found := 0
		for _, x := range l.History(out.ID) {
			if x.Fact == settle.NotFound {
				found++
			}
		}
		if found == 0 {
			t.Fatalf("no lookup said not found; %s", l.story(out.ID))
		}
		l.Requests(1)
		l.noErr(l.Provider.Finish("ch_1"))
		p.Work()
		l.Want(l.Rest(out.ID, 20*time.Minute), settle.StateSucceeded)
	})
}
