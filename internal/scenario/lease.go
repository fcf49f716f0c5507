package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

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
