package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

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
func t36(t *testing.T, open Open) { landsLate(t, open, 7*time.Second, 9*time.Second) }

func t36thin(t *testing.T, open Open) { landsLate(t, open, 14*time.Second, 27*time.Second) }

// landsLate plays each delay of commits with each time of takeover, so far apart.
func landsLate(t *testing.T, open Open, delays, takeovers time.Duration) {
	const window = 5 * time.Minute
	for delay := time.Duration(0); delay <= 28*time.Second; delay += delays {
		for at := window - margin - 30*time.Second; at < window; at += takeovers {
			t.Run(fmt.Sprintf("taken over at %v, commits take %v", at, delay), func(t *testing.T) {
				Play(t, open, &providertest.Options{KeyWindow: window}, func(t *testing.T, l *Lab) {
					promise := l.contract(noLookup)
					rec := l.crash(Setup{Promise: promise}, Order(), providertest.DropReply())
					for range 20 {
						l.Provider.Script(providertest.ApplyAfter(grace))
					}
					l.At(at)
					l.Start(&Setup{
						Promise: promise, Options: settle.Options{StoreTimeout: time.Minute, PollInterval: l.poll()},
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

// I6 holds: nothing that may have left is sent again where no key guards it or once the
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
			// After hours the first request that may have left: the window begins with it.
			l.Provider.Script(providertest.DropRequest())
			p := l.Start(&Setup{Promise: l.contract(noLookup)}).Work()
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrWaiting)
			l.Until(out.ID, 4*time.Hour, func(r settle.Record) bool { return r.State.Settled() || r.State == settle.StateReview })
			l.Want(l.Get(out.ID), settle.StateSucceeded)
			reqs := l.Requests(32)
			for i, q := range reqs[:30] {
				if i > 0 && q.At.Sub(reqs[i-1].At) < time.Minute {
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
