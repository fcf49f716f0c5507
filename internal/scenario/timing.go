package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// The numbers of the ordinary contract: providertest.Promise and settle's default lease.
const (
	lease    = settle.DefaultLease
	deadline = 10 * time.Second
	settling = time.Minute
	grace    = deadline + settling
	margin   = lease + grace
)

// t10: an attempt that was committed at 0 by a holder that died may start until its
// lease ends; its quiet counts from there, not from its commit.
func t10(t *testing.T, open Open) {
	for _, by := range []string{"a worker", "a caller", "a person's question"} {
		t.Run("taken over by "+by, func(t *testing.T) {
			po := &providertest.Options{KeyWindow: 24 * time.Hour, Concurrent: providertest.ConcurrentUnsafe}
			Play(t, open, po, func(t *testing.T, l *Lab) {
				promise := l.contract(noLookup)
				rec := l.crash(Setup{Promise: promise}, Order(), providertest.DropRequest())
				p := l.Start(&Setup{Promise: promise})
				l.At(lease)
				switch by {
				case "a caller":
					_, err := p.Charge.Execute(l.Ctx, Order())
					l.wantErr(err, settle.ErrUnknown)
				case "a person's question":
					l.Want(p.Reconcile(rec.ID), settle.StateUnknown)
				}
				p.Work()
				l.Want(l.Rest(rec.ID, 10*time.Minute), settle.StateSucceeded)
				at := l.Requests(2)[1].At.Sub(l.Began)
				if at < lease+grace {
					t.Fatalf("sent again after %v, before lease + deadline + settle delay = %v", at, lease+grace)
				}
				if at > lease+grace+time.Minute {
					t.Fatalf("sent again only after %v", at)
				}
			})
		})
	}
}

// t11: at a provider that executes two requests under one key at the same time, the
// second waits until the first cannot be running any more.
func t11(t *testing.T, open Open) {
	for _, c := range []struct {
		name   string
		crash  bool
		lookup bool
	}{
		{"holder alive", false, false},
		{"holder dead", true, false},
		{"holder alive, lookup", false, true},
		{"holder dead, lookup", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			po := &providertest.Options{KeyWindow: 24 * time.Hour, Concurrent: providertest.ConcurrentUnsafe}
			Play(t, open, po, func(t *testing.T, l *Lab) {
				promise := l.contract(func(k *settle.Contract) {
					if !c.lookup {
						noLookup(k)
					}
				})
				l.Provider.Script(providertest.Slow(grace - 5*time.Second)) // as slow as the contract allows
				var id string
				if c.crash {
					id = l.crash(Setup{Promise: promise}, Order()).ID
				} else {
					out, err := l.Start(&Setup{Promise: promise}).Charge.Execute(l.Ctx, Order())
					l.wantErr(err, settle.ErrUnknown)
					id = out.ID
				}
				l.Start(&Setup{Promise: promise}).Work()
				l.Want(l.Rest(id, 10*time.Minute), settle.StateSucceeded)
				l.Effects(id, 1)
				if reqs := l.Provider.Requests(); len(reqs) > 1 && reqs[1].At.Sub(l.Began) < grace {
					t.Fatalf("the second request came at %v, while the first could run", reqs[1].At.Sub(l.Began))
				}
			})
		})
	}
	t.Run("safe: sent again at once", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			promise := l.contract(noLookup)
			rec := l.crash(Setup{Promise: promise}, Order(), providertest.Slow(grace-5*time.Second))
			l.Start(&Setup{Promise: promise}).Work()
			l.At(lease + 5*time.Second)
			if n := len(l.Provider.Requests()); n < 2 {
				t.Fatal("not sent again although concurrent requests are safe")
			}
			l.Want(l.Rest(rec.ID, 10*time.Minute), settle.StateSucceeded)
		})
	})
}

// t14: fifteen minutes are for unknown operations only.
func t14(t *testing.T, open Open) {
	t.Run("a bank refund takes three days", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			promise := l.contract(func(c *settle.Contract) { c.ProcessingLimit = 5 * 24 * time.Hour })
			p := l.Start(&Setup{Promise: promise, Options: settle.Options{PollInterval: 30 * time.Minute}}).Work()
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.noErr(err)
			l.Provider.Script(providertest.Processing())
			back, err := p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", Refund{})
			l.wantErr(err, settle.ErrProcessing)
			l.At(72 * time.Hour)
			l.Want(l.Get(back.ID), settle.StateProcessing)
			l.noErr(l.Provider.Finish("re_1"))
			l.Want(l.Rest(back.ID, time.Hour), settle.StateSucceeded)
			l.Want(l.Get(out.ID), settle.StateCompensated)
		})
	})
	t.Run("beyond its limit a person looks", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			promise := l.contract(func(c *settle.Contract) { c.ProcessingLimit = 5 * time.Hour })
			p := l.Start(&Setup{Promise: promise, Options: settle.Options{PollInterval: time.Minute}}).Work()
			l.Provider.Script(providertest.Processing())
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrProcessing)
			l.At(4*time.Hour + 50*time.Minute)
			l.Want(l.Get(out.ID), settle.StateProcessing)
			r := l.Rest(out.ID, time.Hour)
			if r.State != settle.StateReview || r.Review.Reason != settle.ReasonProcessing {
				t.Fatalf("it is %s %+v, want review because of the limit", r.State, r.Review)
			}
		})
	})
	t.Run("the worker is down for 20 minutes", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			rec, err := l.Start(nil).Charge.Register(l.Ctx, Order())
			l.noErr(err)
			l.At(20 * time.Minute)
			l.Start(nil).Work()
			l.Want(l.Rest(rec.ID, time.Minute), settle.StateSucceeded)
			l.Requests(1)
		})
	})
}

// t15: configuration moved to another account, region or mode.
func t15(t *testing.T, open Open) {
	for name, change := range map[string]func(*settle.AccountFacts){
		"account": func(a *settle.AccountFacts) { a.Account = "acct_us" },
		"region":  func(a *settle.AccountFacts) { a.Region = "us" },
		"mode":    func(a *settle.AccountFacts) { a.Mode = "live" },
	} {
		t.Run(name, func(t *testing.T) {
			po := &providertest.Options{KeyWindow: 24 * time.Hour, Account: "acct_eu"}
			Play(t, open, po, func(t *testing.T, l *Lab) {
				rec := l.crash(Setup{}, Order(), providertest.DropReply())
				moved := l.contract(func(c *settle.Contract) { change(&c.Account) })
				q := l.Start(&Setup{Promise: moved, Options: settle.Options{Concurrency: 1, PollInterval: time.Minute}}).Work()
				l.At(5 * time.Minute)
				if _, err := q.Charge.Execute(l.Ctx, Order()); err == nil {
					t.Fatal("another account reports success")
				}
				l.Requests(1)
				if n := l.Asked(); n != 0 {
					t.Fatalf("another account asked %d times (I2)", n)
				}
				if r := l.Get(rec.ID); r.State != settle.StateUnknown || r.Due.IsZero() {
					t.Fatalf("it is %s, due %v; want unknown, and due for another process", r.State, r.Due)
				}
				r := l.Rest(rec.ID, 30*time.Minute)
				if r.State != settle.StateReview || r.Review.Reason != settle.ReasonAccount {
					t.Fatalf("it is %s %+v, want review because of the account", r.State, r.Review)
				}
				if at := r.Review.Since.Sub(l.Began); at < settle.DefaultEscalateAfter {
					t.Fatalf("in review after %v already", at)
				}
				l.Requests(1)
				if n := l.Asked(); n != 0 {
					t.Fatalf("another account asked %d times (I2)", n)
				}
				q.Stop()
				// A process of the old account still finds the effect out of review.
				l.Start(&Setup{Options: settle.Options{PollInterval: time.Minute}}).Work()
				l.Until(rec.ID, 3*time.Hour, func(r settle.Record) bool { return r.State == settle.StateSucceeded })
			})
		})
	}
	t.Run("another process has the account", func(t *testing.T) {
		po := &providertest.Options{KeyWindow: 24 * time.Hour, Account: "acct_eu"}
		Play(t, open, po, func(t *testing.T, l *Lab) {
			rec := l.crash(Setup{}, Order(), providertest.DropReply())
			seldom := settle.Options{PollInterval: 10 * time.Second}
			l.Start(&Setup{Options: seldom, Promise: l.contract(func(c *settle.Contract) { c.Account.Account = "acct_us" })}).Work()
			l.Start(&Setup{Options: seldom}).Work()
			l.Want(l.Rest(rec.ID, 14*time.Minute), settle.StateSucceeded)
		})
	})
}

// t44: an outage of the workers is no reason to ask a person.
func t44(t *testing.T, open Open) {
	for _, c := range []struct {
		name   string
		lookup bool
		safe   bool
	}{
		{"no lookup, concurrent safe", false, true},
		{"no lookup, concurrent unsafe", false, false},
		{"lookup, concurrent safe", true, true},
		{"lookup, concurrent unsafe", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				promise := l.contract(func(k *settle.Contract) {
					k.Keys.ConcurrentSafe = c.safe
					if !c.lookup {
						noLookup(k)
					}
				})
				rec := l.crash(Setup{Promise: promise}, Order(), providertest.DropRequest())
				l.At(20 * time.Minute)
				l.Start(&Setup{Promise: promise}).Work()
				l.Want(l.Rest(rec.ID, 10*time.Minute), settle.StateSucceeded)
				l.Requests(2)
				for _, x := range l.History(rec.ID) {
					if x.To == settle.StateReview {
						t.Fatalf("it was in review; %s", l.story(rec.ID))
					}
				}
			})
		})
	}
	t44released(t, open)
}

// t44released: the same outage, after a holder that lived to say that no answer came.
func t44released(t *testing.T, open Open) {
	for _, lookup := range []bool{false, true} {
		t.Run(fmt.Sprintf("the holder recorded no answer, lookup %v", lookup), func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				promise := l.contract(func(c *settle.Contract) {
					if !lookup {
						noLookup(c)
					}
				})
				l.Provider.Script(providertest.DropRequest())
				out, err := l.Start(&Setup{Promise: promise}).Charge.Execute(l.Ctx, Order())
				l.wantErr(err, settle.ErrUnknown)
				l.At(20 * time.Minute)
				l.Start(&Setup{Promise: promise}).Work()
				l.Want(l.Rest(out.ID, 10*time.Minute), settle.StateSucceeded)
				l.Requests(2)
			})
		})
	}
}
