package scenario

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// t01: the provider answers a known key with the first result, whatever is asked. If two
// operations ever shared a key, one would get the other's receipt, and no effect.
func t01(t *testing.T, open Open) {
	po := &providertest.Options{KeyWindow: 24 * time.Hour, Drift: providertest.DriftIgnore, KeyMaxLen: 64}
	Play(t, open, po, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		payout, err := settle.New(p.Engine, "payout", providertest.ChargeAdapter(p.API, l.Promise), nil)
		l.noErr(err)
		keys := map[string]string{}
		do := func(name string, x *settle.Executor[Payment, Receipt], op Charge) settle.Record {
			t.Helper()
			out, err := x.Execute(l.Ctx, op)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if other, taken := keys[out.ProviderKey]; taken {
				t.Fatalf("%s has the provider key of %s", name, other)
			}
			keys[out.ProviderKey] = name
			res, ok := out.Result()
			if !ok || res.Amount != op.Request.Amount {
				t.Fatalf("%s got the receipt of another", name)
			}
			if n := l.Provider.Effects(out.ID); n != 1 {
				t.Fatalf("%s had %d effects", name, n)
			}
			return out.Record
		}
		amount := int64(0)
		op := func(scope, subject, purpose, key string) Charge {
			amount++
			return Charge{
				Scope: scope, Subject: subject, Purpose: purpose, Key: key,
				Request: Payment{Amount: amount, Currency: "EUR"},
			}
		}
		do("charge 123", p.Charge, op("shop", "order-1", "purchase", "123"))
		do("payout 123", payout, op("shop", "order-1", "purchase", "123"))
		first := do("tenant a", p.Charge, op("a", "order-17", "purchase", ""))
		do("tenant b", p.Charge, op("b", "order-17", "purchase", ""))
		// Boundaries between parts must not be movable.
		do("parts 1", p.Charge, op("ab", "c", "d", ""))
		do("parts 2", p.Charge, op("a", "bc", "d", ""))
		do("parts 3", p.Charge, op("a", "b", "cd", ""))
		do("separators", p.Charge, op("a", "b:c", "d/e", ""))
		do("separators moved", p.Charge, op("a", "b", "c:d/e", ""))
		long := do("long", p.Charge, op("a", strings.Repeat("x", 200), "purchase", ""))
		do("longer", p.Charge, op("a", strings.Repeat("x", 201), "purchase", ""))
		do("types a hash form", p.Charge, op("a", "evil-1", "purchase", long.ProviderKey))
		do("types a literal form", p.Charge, op("a", "evil-2", "purchase", first.ProviderKey))
	})
}

// t29: the other caller's effect is what makes the precondition fail.
func t29(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		stock := 1
		var mu sync.Mutex
		reached, go2 := make(chan struct{}), make(chan struct{})
		take := func(context.Context, Charge) error {
			mu.Lock()
			defer mu.Unlock()
			if stock == 0 {
				return errors.New("sold out")
			}
			stock--
			return nil
		}
		a := l.Start(&Setup{Charge: &settle.ExecutorOptions[Payment, Receipt]{Authorize: take}})
		b := l.Start(&Setup{Charge: &settle.ExecutorOptions[Payment, Receipt]{
			Authorize: func(ctx context.Context, op Charge) error {
				close(reached) // b saw no record; now a is faster
				<-go2
				return take(ctx, op)
			},
		}})
		type answer struct {
			out settle.Outcome[Receipt]
			err error
		}
		answers := make(chan answer, 1)
		go func() {
			out, err := b.Charge.Execute(l.Ctx, Order())
			answers <- answer{out, err}
		}()
		<-reached
		outA, err := a.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		close(go2)
		got := <-answers
		l.noErr(got.err)
		if got.out.ID != outA.ID || !got.out.Replayed {
			t.Fatalf("b got %v, replayed %v; want a replay of %v", got.out, got.out.Replayed, outA)
		}
		// Alone, the refusal stands, binds no key and stores nothing.
		other := Order()
		other.Subject = "order-18"
		if _, err = a.Charge.Execute(l.Ctx, other); !errors.Is(err, settle.ErrRefused) {
			t.Fatalf("error %v, want ErrRefused", err)
		}
		if n := len(l.All("charge")); n != 1 {
			t.Fatalf("%d charges are stored, want 1", n)
		}
		stock = 1
		_, err = a.Charge.Execute(l.Ctx, other)
		l.noErr(err)
	})
}

// t35: a credential that expires is outside the fingerprint. While nothing may have
// left, the caller's fresh one replaces it; after that the stored bytes are sent.
func t35(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		var sent []string
		p := l.Start(&Setup{
			Promise: l.contract(noLookup),
			Adapter: func(a *settle.Adapter[Payment, Receipt]) {
				inner := a.SubmitFunc
				a.SubmitFunc = func(ctx context.Context, c *settle.Call[Payment]) (settle.Observation[Receipt], error) {
					sent = append(sent, c.Request.Token)
					return inner(ctx, c)
				}
			},
		})
		with := func(token string) Charge {
			op := Order()
			op.Request.Token = token
			return op
		}
		l.Provider.Script(providertest.Status(401, "expired"), providertest.DropReply(), providertest.OK())
		out, err := p.Charge.Execute(l.Ctx, with("old"))
		l.wantErr(err, settle.ErrWaiting)
		l.Want(out.Record, settle.StateCreated)
		out, err = p.Charge.Execute(l.Ctx, with("fresh"))
		l.wantErr(err, settle.ErrUnknown)
		_, err = p.Charge.Execute(l.Ctx, with("fresher"))
		l.wantErr(err, settle.ErrPending)
		p.Work()
		l.Want(l.Rest(out.ID, 5*time.Minute), settle.StateSucceeded)
		if want := []string{"old", "fresh", "fresh"}; !slices.Equal(sent, want) {
			t.Fatalf("sent %v, want %v", sent, want)
		}
		l.Effects(out.ID, 1)
	})
}

// I1: when a request arrives, its operation is stored with as many attempts as requests
// have arrived; and while the store cannot say that it stored the attempt, none arrives.
func I1(t *testing.T, open Open) {
	var l *Lab
	arrived := map[string]int{}
	po := &providertest.Options{KeyWindow: 24 * time.Hour, OnCreate: func(r providertest.Request) {
		arrived[r.Reference]++
		rec, err := l.Store.Get(context.Background(), settle.ByID(r.Reference))
		if err != nil || rec.ProviderKey != r.Key || len(rec.Attempts) < arrived[r.Reference] {
			l.T.Errorf("request %d arrived before its attempt was stored: %v %v (I1)", arrived[r.Reference], rec, err)
		}
	}}
	Play(t, open, po, func(t *testing.T, lab *Lab) {
		l = lab
		l.Provider.Script(providertest.DropReply(), providertest.DropReply(), providertest.RateLimit(0))
		p := l.Start(&Setup{Promise: l.contract(noLookup)}).Work()
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrUnknown)
		l.Want(l.Rest(out.ID, 10*time.Minute), settle.StateSucceeded)
		if n := len(l.Provider.Requests()); n < 4 {
			t.Fatalf("%d requests, want at least 4", n)
		}
	})
	for _, c := range []struct {
		name string
		x    Fault
	}{{"before", Fault{Before: errBroken}}, {"after", Fault{After: errBroken}}} {
		t.Run("commit fails "+c.name, func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, lab *Lab) {
				l, arrived = lab, map[string]int{}
				p := l.Start(&Setup{Plan: Always(OpCommit, c.x)})
				_, err := p.Charge.Execute(l.Ctx, Order())
				l.wantErr(err, settle.ErrStore)
				l.Requests(0)
				// What was stored all the same is not lost: a worker elsewhere sends it.
				l.Start(nil).Work()
				l.Elapse(5 * time.Minute)
				if want := map[bool]int{true: 1, false: 0}[c.x.After != nil]; len(l.Provider.Ledger()) != want {
					t.Fatalf("%d effects, want %d", len(l.Provider.Ledger()), want)
				}
			})
		})
	}
}

// I2: byte-identical key and request from every process, and another account sends and
// asks nothing.
func I2(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Provider.Script(providertest.DropRequest(), providertest.DropRequest(), providertest.DropRequest(), providertest.OK())
		rec := l.crash(Setup{Promise: l.contract(noLookup)}, Order())
		for range 3 { // each try from another process
			l.Elapse(10 * time.Minute)
			l.Start(&Setup{Promise: l.contract(noLookup), Options: settle.Options{EscalateAfter: 2 * time.Hour}}).Reconcile(rec.ID)
		}
		reqs := l.Requests(4)
		for i, r := range reqs {
			if r.Key != rec.ProviderKey || r.Key != reqs[0].Key || string(r.Body) != string(reqs[0].Body) || r.Account != reqs[0].Account {
				t.Fatalf("request %d differs from the first (I2)", i+1)
			}
		}
		l.Want(l.Get(rec.ID), settle.StateSucceeded)
	})
	t.Run("an adapter that derives other terms sends nothing", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			rec := l.crash(Setup{}, Order(), providertest.DropRequest())
			changed := l.Start(&Setup{Adapter: func(a *settle.Adapter[Payment, Receipt]) {
				a.TermsFunc = func(op Charge) settle.Terms {
					return settle.Terms{Account: l.Promise.Account.Account, Amount: settle.Minor(op.Request.Amount*100, op.Request.Currency)}
				}
			}})
			l.Elapse(time.Minute)
			changed.Reconcile(rec.ID)
			l.Requests(1)
			if n := l.Asked(); n != 0 {
				t.Fatalf("it asked %d times (I2)", n)
			}
			l.Start(nil).Reconcile(rec.ID)
			l.Elapse(2 * time.Second)
			l.Start(nil).Reconcile(rec.ID)
			l.Want(l.Get(rec.ID), settle.StateSucceeded)
		})
	})
}

// I3: another request under a known identity never reaches the provider, changes
// nothing, and learns the names of what differs; in flight and afterwards, in the same
// process and in others.
func I3(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		release := l.Gate()
		l.Provider.Script(providertest.HangBefore(release.C))
		p, q := l.Start(nil), l.Start(nil)
		done := make(chan error, 1)
		go func() {
			_, err := p.Charge.Execute(l.Ctx, Order())
			done <- err
		}()
		l.Elapse(time.Second)
		other := Order()
		other.Request.Amount, other.Request.Invoice = 2999, "R-0000"
		try := func(when string) {
			t.Helper()
			before := l.Only()
			for name, x := range map[string]*Process{"the same process": p, "another process": q} {
				out, err := x.Charge.Execute(l.Ctx, other)
				var own *settle.Error
				if !errors.Is(err, settle.ErrMismatch) || !errors.As(err, &own) {
					t.Fatalf("%s, %s: error %v, want ErrMismatch (I3)", when, name, err)
				}
				if want := []string{"/amount", "/invoice"}; !slices.Equal(own.Fields, want) {
					t.Fatalf("%s, %s: fields %v, want %v", when, name, own.Fields, want)
				}
				if strings.Contains(err.Error(), "2999") || strings.Contains(err.Error(), "R-0000") || strings.Contains(err.Error(), "1999") {
					t.Fatalf("%s: the error quotes a value: %v", when, err)
				}
				if out.ID != "" || own.ID != before.ID || out.Next != settle.NextFixRequest {
					t.Fatalf("%s, %s: outcome %v, next %s", when, name, out, out.Next)
				}
				if _, err := x.Charge.Register(l.Ctx, other); !errors.Is(err, settle.ErrMismatch) {
					t.Fatalf("%s, %s: Register: %v, want ErrMismatch (I3)", when, name, err)
				}
			}
			after := l.Only()
			after.AsOf = before.AsOf
			if after.Version != before.Version || !after.Due.Equal(before.Due) || after.Fingerprint.Sum != before.Fingerprint.Sum ||
				string(after.Request) != string(before.Request) {
				t.Fatalf("%s: the record changed from %v to %v (I3)", when, before, after)
			}
			l.Requests(1)
		}
		try("in flight")
		release.Open()
		l.noErr(<-done)
		try("settled")
		// Repeats of the same request, differently spelled, are none of this.
		same := Order()
		same.Request.Token = "another"
		out, err := q.Charge.Execute(l.Ctx, same)
		l.noErr(err)
		if !out.Replayed {
			t.Fatal("a repeat is no replay")
		}
	})
}
