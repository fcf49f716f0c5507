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
	po := &providertest.Options{KeyWindow: 24 * time.Hour, Concurrent: providertest.ConcurrentUnsafe}
	Play(t, open, po, func(t *testing.T, l *Lab) {
		promise := l.contract(noLookup)
		rec := l.crash(Setup{Promise: promise}, Order(), providertest.DropRequest())
		l.Start(&Setup{Promise: promise}).Work()
		l.Want(l.Rest(rec.ID, 10*time.Minute), settle.StateSucceeded)
		at := l.Requests(2)[1].At.Sub(l.Began)
		if at < lease+grace {
			t.Fatalf("sent again after %v, before lease + deadline + settle delay = %v", at, lease+grace)
		}
		if at > lease+grace+time.Minute {
			t.Fatalf("sent again only after %v", at)
		}
	})
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

// t12: the window closes early by lease + deadline + settle delay, since a request that
// is decided on now may start at the end of its lease and land that much later.
func t12(t *testing.T, open Open) {
	const window = 5 * time.Minute
	for _, at := range []time.Duration{window - margin - 10*time.Second, window - margin + time.Second, window - 20*time.Second, window + time.Second} {
		for _, slow := range []time.Duration{0, 26 * time.Second} {
			t.Run(fmt.Sprintf("taken over at %v, commits take %v", at, slow), func(t *testing.T) {
				Play(t, open, &providertest.Options{KeyWindow: window}, func(t *testing.T, l *Lab) {
					promise := l.contract(noLookup)
					// The first request has its effect, and its key is about to be forgotten.
					rec := l.crash(Setup{Promise: promise}, Order(), providertest.DropReply(), providertest.ApplyAfter(grace))
					l.At(at)
					l.Start(&Setup{
						Promise: promise, Options: settle.Options{StoreTimeout: time.Minute},
						Plan: Nth(OpCommit, 1, Fault{DelayReply: slow}),
					}).Work()
					r := l.Rest(rec.ID, time.Hour)
					for _, q := range l.Provider.Requests()[1:] {
						if q.At.Sub(l.Began)+grace > window {
							t.Errorf("a request at %v may land after the window of %v (I6)", q.At.Sub(l.Began), window)
						}
					}
					l.Effects(rec.ID, 1)
					sent := len(l.Provider.Requests()) > 1
					if early := at < window-margin; early != sent {
						t.Fatalf("sent again: %v, want %v", sent, early)
					}
					if !sent && (r.State != settle.StateReview || r.Review.Reason != settle.ReasonWindow) {
						t.Fatalf("it is %s %+v, want review because of the window", r.State, r.Review)
					}
				})
			})
		}
	}
}

// t36: as t12, with the last attempt sent as late and landing as late as it may.
func t36(t *testing.T, open Open) {
	const window = 5 * time.Minute
	for delay := time.Duration(0); delay <= 28*time.Second; delay += 7 * time.Second {
		for at := window - margin - 30*time.Second; at < window; at += 9 * time.Second {
			t.Run(fmt.Sprintf("taken over at %v, commits take %v", at, delay), func(t *testing.T) {
				Play(t, open, &providertest.Options{KeyWindow: window}, func(t *testing.T, l *Lab) {
					promise := l.contract(noLookup)
					rec := l.crash(Setup{Promise: promise}, Order(), providertest.DropReply())
					for range 20 {
						l.Provider.Script(providertest.ApplyAfter(grace))
					}
					l.At(at)
					l.Start(&Setup{
						Promise: promise, Options: settle.Options{StoreTimeout: time.Minute},
						Plan: Always(OpCommit, Fault{DelayReply: delay}),
					}).Work()
					l.Rest(rec.ID, 2*time.Hour)
					l.Effects(rec.ID, 1) // a request that lands after the key is forgotten is a second charge
				})
			})
		}
	}
}

// t13: however old, the provider is asked before a person is.
func t13(t *testing.T, open Open) {
	for _, found := range []bool{true, false} {
		t.Run(fmt.Sprintf("found %v", found), func(t *testing.T) {
			Play(t, open, &providertest.Options{KeyWindow: time.Hour}, func(t *testing.T, l *Lab) {
				step := providertest.DropRequest()
				if found {
					step = providertest.DropReply()
				}
				rec := l.crash(Setup{}, Order(), step)
				l.At(72 * time.Hour)
				l.Start(nil).Work()
				r := l.Rest(rec.ID, time.Hour)
				if l.Asked() == 0 {
					t.Fatalf("nobody asked; %s", l.story(rec.ID))
				}
				l.Requests(1)
				if found {
					l.Want(r, settle.StateSucceeded)
				} else {
					l.Want(r, settle.StateReview)
				}
			})
		})
	}
}

// t14: fifteen minutes are for unknown operations only.
func t14(t *testing.T, open Open) {
	t.Run("a bank refund takes three days", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			promise := l.contract(func(c *settle.Contract) { c.ProcessingLimit = 5 * 24 * time.Hour })
			p := l.Start(&Setup{Promise: promise, Options: settle.Options{PollInterval: time.Minute}}).Work()
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
				q := l.Start(&Setup{Promise: moved, Options: settle.Options{Concurrency: 1}}).Work()
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
				l.Start(nil).Work()
				l.Until(rec.ID, 3*time.Hour, func(r settle.Record) bool { return r.State == settle.StateSucceeded })
			})
		})
	}
	t.Run("another process has the account", func(t *testing.T) {
		po := &providertest.Options{KeyWindow: 24 * time.Hour, Account: "acct_eu"}
		Play(t, open, po, func(t *testing.T, l *Lab) {
			rec := l.crash(Setup{}, Order(), providertest.DropReply())
			l.Start(&Setup{Promise: l.contract(func(c *settle.Contract) { c.Account.Account = "acct_us" })}).Work()
			l.Start(nil).Work()
			l.Want(l.Rest(rec.ID, 14*time.Minute), settle.StateSucceeded)
		})
	})
}

// t28: the holder's deadline counts from before the claim was sent; wall time ends it too.
func t28(t *testing.T, open Open) {
	t.Run("the reply to the creating commit takes nearly the lease", func(t *testing.T) {
		for _, took := range []time.Duration{25 * time.Second, 28 * time.Second, 35 * time.Second} {
			for _, keys := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v, keys %v", took, keys), func(t *testing.T) {
					po := &providertest.Options{KeyWindow: 24 * time.Hour, Concurrent: providertest.ConcurrentUnsafe}
					if !keys {
						po.KeyWindow = 0
					}
					Play(t, open, po, func(t *testing.T, l *Lab) {
						promise := l.contract(noLookup)
						p := l.Start(&Setup{
							Promise: promise, Options: settle.Options{StoreTimeout: time.Minute}, Plan: Nth(OpCommit, 1, Fault{DelayReply: took}),
						})
						q := l.Start(&Setup{Promise: promise}).Work()
						_, err := p.Charge.Execute(l.Ctx, Order())
						id := l.Only().ID
						if took < 27*time.Second {
							l.noErr(err)
						} else {
							// Its attempt was never sent, and it is there to say so: no quiet, no key and no
							// person are needed before the next.
							l.wantErr(err, settle.ErrPending)
							l.Want(l.Rest(id, 5*time.Minute), settle.StateSucceeded)
							if r := l.Get(id); r.Attempts[0].Fate != settle.FateNotSent {
								t.Errorf("attempt 1 is %q, want not sent; %s", r.Attempts[0].Fate, l.story(id))
							}
						}
						q.Stop()
						if at := l.Requests(1)[0].At.Sub(l.Began); at > 27*time.Second && at < lease {
							t.Fatalf("sent at %v, when the lease was as good as over", at)
						}
					})
				})
			}
		}
	})
	t.Run("the reply to the claim takes nearly the lease", func(t *testing.T) {
		po := &providertest.Options{KeyWindow: 24 * time.Hour, Concurrent: providertest.ConcurrentUnsafe}
		Play(t, open, po, func(t *testing.T, l *Lab) {
			promise := l.contract(noLookup)
			slow := l.Start(&Setup{
				Promise: promise, Options: settle.Options{StoreTimeout: time.Minute}, Plan: Nth(OpClaim, 1, Fault{DelayReply: 28 * time.Second}),
			})
			rec, err := slow.Charge.Register(l.Ctx, Order())
			l.noErr(err)
			slow.Work()
			l.Elapse(time.Second)
			q := l.Start(&Setup{Promise: promise}).Work()
			l.Want(l.Rest(rec.ID, 5*time.Minute), settle.StateSucceeded)
			q.Stop()
			if at := l.Requests(1)[0].At.Sub(l.Began); at < lease {
				t.Fatalf("sent at %v by a holder whose lease was as good as over", at)
			}
		})
	})
	t.Run("suspended between commit and send", func(t *testing.T) {
		po := &providertest.Options{KeyWindow: 24 * time.Hour, Concurrent: providertest.ConcurrentUnsafe}
		Play(t, open, po, func(t *testing.T, l *Lab) {
			promise := l.contract(noLookup)
			clock := l.machine(0)
			p := l.Start(&Setup{
				Promise: promise, Options: settle.Options{StoreTimeout: 5 * time.Minute, Clock: clock},
				Plan: func(c Call) Fault {
					switch {
					case c.Op == OpCommit && clock.slept() == 0:
						return Fault{Then: func() { clock.suspend(time.Minute) }}
					case c.Op == OpRenew:
						return Fault{Before: errBroken} // its timers slept, too
					}
					return Fault{}
				},
			})
			q := l.Start(&Setup{Promise: promise}).Work()
			_, err := p.Charge.Execute(l.Ctx, Order())
			if clock.slept() == 0 {
				t.Fatal("the machine was not suspended")
			}
			l.wantErr(err, settle.ErrPending)
			id := l.Only().ID
			l.Want(l.Rest(id, 10*time.Minute), settle.StateSucceeded)
			q.Stop()
			r := l.Get(id)
			if r.Attempts[0].Fate != settle.FateNotSent {
				t.Fatalf("attempt 1 is %q, want not sent; %s", r.Attempts[0].Fate, l.story(id))
			}
			l.Requests(1)
		})
	})
	// The end of an attempt is AsOf + the time since the claim was sent, where late is safe. A
	// monotonic clock that stood still makes it early, and quiet with it.
	t.Run("suspended during the request", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			clock := l.machine(0)
			l.Provider.Script(providertest.DropReply())
			p := l.Start(&Setup{
				Promise: l.contract(noLookup), Options: settle.Options{Clock: clock},
				Plan: Nth(OpCreate, 1, Fault{Then: func() { clock.suspend(8 * time.Second) }}),
			})
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrUnknown)
			a := l.Get(out.ID).Attempts[0]
			if took := a.End.Sub(l.Began); took < 8*time.Second {
				t.Fatalf("the attempt ended at %v by the record, and its request ran until %v", took, 8*time.Second)
			}
		})
	})
}

// t37: the holder renewed its lease twice before it died; and the second holder dies
// with its claim, which overwrites the lease's end.
func t37(t *testing.T, open Open) {
	for _, second := range []bool{false, true} {
		t.Run(fmt.Sprintf("the next holder dies too: %v", second), func(t *testing.T) {
			po := &providertest.Options{KeyWindow: 24 * time.Hour, Concurrent: providertest.ConcurrentUnsafe}
			Play(t, open, po, func(t *testing.T, l *Lab) {
				promise := l.contract(func(c *settle.Contract) { noLookup(c); c.Deadline = 50 * time.Second })
				// Until it dies at 45 s its request waits; the provider has it until 150 s, inside
				// the last renewal's end (70 s) + deadline + settle delay.
				l.Provider.Script(providertest.Slow(150 * time.Second))
				p := l.Start(&Setup{Promise: promise})
				done := make(chan error, 1)
				go func() {
					_, err := p.Charge.Execute(l.Ctx, Order())
					done <- err
				}()
				l.At(45 * time.Second)
				p.Kill()
				id := l.Only().ID
				if due := l.Get(id).Due.Sub(l.Began); due < 60*time.Second {
					t.Fatalf("the lease ends at %v: it was not renewed", due)
				}
				if second {
					q := l.Start(&Setup{Promise: promise, Plan: Nth(OpClaim, 0, Fault{})})
					q.Faults(func(c Call) Fault {
						if c.Op == OpCommit || c.Op == OpGet {
							return Fault{Kill: true} // before its first write
						}
						return Fault{}
					})
					q.Work()
					l.At(90 * time.Second)
					q.Kill()
				}
				l.Start(&Setup{Promise: promise}).Work()
				l.Want(l.Rest(id, 15*time.Minute), settle.StateSucceeded)
				if err := <-done; err == nil {
					t.Fatal("a dead process reports success")
				}
				l.Effects(id, 1)
				if at := l.Requests(2)[1].At.Sub(l.Began); at < 150*time.Second {
					t.Fatalf("the second request came at %v, beside the first", at)
				}
			})
		})
	}
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
}

// I6: nothing that may have left is sent again where no key guards it or once the
// window is closed; what provably never had an effect opens no window.
func I6(t *testing.T, open Open) {
	t.Run("no keys: sent once", func(t *testing.T) {
		for _, lookup := range []bool{true, false} {
			t.Run(fmt.Sprintf("lookup %v", lookup), func(t *testing.T) {
				Play(t, open, &providertest.Options{}, func(t *testing.T, l *Lab) {
					promise := l.contract(func(c *settle.Contract) {
						if !lookup {
							noLookup(c)
						}
					})
					rec := l.crash(Setup{Promise: promise}, Order(), providertest.DropRequest())
					l.Start(&Setup{Promise: promise}).Work()
					l.Want(l.Rest(rec.ID, time.Hour), settle.StateReview)
					l.Elapse(5 * time.Hour)
					l.Requests(1)
				})
			})
		}
	})
	t.Run("harmless attempts open no window", func(t *testing.T) {
		Play(t, open, &providertest.Options{KeyWindow: 5 * time.Minute}, func(t *testing.T, l *Lab) {
			for range 30 {
				l.Provider.Script(providertest.RateLimit(time.Minute))
			}
			p := l.Start(nil).Work()
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrWaiting)
			l.Until(out.ID, 2*time.Hour, func(r settle.Record) bool { return r.State == settle.StateSucceeded })
			for i, q := range l.Requests(31) {
				if i > 0 && q.At.Sub(l.Provider.Requests()[i-1].At) < time.Minute {
					t.Fatalf("request %d ignores RetryAfter", i+1)
				}
			}
			if n := len(l.Get(out.ID).Attempts); n > 10 {
				t.Fatalf("the record keeps %d attempts", n)
			}
		})
	})
	t.Run("not past SendBefore", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			l.Provider.Script(providertest.RateLimit(time.Minute))
			p := l.Start(nil).Work()
			op := Order()
			op.SendBefore = l.Began.Add(30 * time.Second)
			out, err := p.Charge.Execute(l.Ctx, op)
			l.wantErr(err, settle.ErrWaiting)
			l.Want(l.Rest(out.ID, 10*time.Minute), settle.StateCanceled)
			l.Requests(1)
		})
	})
	t.Run("the shorter of stored and current window holds", func(t *testing.T) {
		for _, stored := range []bool{true, false} {
			t.Run(fmt.Sprintf("stored is shorter %v", stored), func(t *testing.T) {
				Play(t, open, &providertest.Options{KeyWindow: 10 * time.Minute}, func(t *testing.T, l *Lab) {
					short := l.contract(noLookup)
					long := l.contract(func(c *settle.Contract) { noLookup(c); c.Keys.Window = 24 * time.Hour })
					was, is := long, short
					if stored {
						was, is = short, long
					}
					rec := l.crash(Setup{Promise: was}, Order(), providertest.DropReply())
					l.At(11 * time.Minute)
					l.Start(&Setup{Promise: is}).Work()
					l.Want(l.Rest(rec.ID, time.Hour), settle.StateReview)
					l.Requests(1)
				})
			})
		}
	})
}
