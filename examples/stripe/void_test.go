package main

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/stripe/stripefake"
	"github.com/settle-go/settle/providertest"
)

func TestHoldAdapterTellsTheTruth(t *testing.T) {
	promise := contract("acct_1", "test")
	providertest.Run(t, providertest.Harness[Charge, Receipt]{
		Local: func(testing.TB) providertest.Local {
			fake := stripefake.New(&stripefake.Options{Secret: secret, PageSize: 3})
			return providertest.Local{Handler: fake, Effects: fake.Held}
		},
		Adapter: func(_ testing.TB, w providertest.Wire) settle.ProviderAdapter[Charge, Receipt] {
			return holdAdapter(newClient(secret, w.URL, w.Transport, promise), promise)
		},
		Request: func(n int) Charge {
			return Charge{Amount: 1000 + int64(n), Currency: []string{"EUR", "JPY", "KWD"}[n%3], PaymentMethod: stripefake.Visa, Customer: "cus_ada"}
		},
		Key: providertest.InHeader("Idempotency-Key"), Reference: providertest.InForm("metadata[" + ownReference + "]"),
		Echo:    providertest.Echo{Amount: []string{"amount", "amount_capturable"}, Currency: []string{"currency"}},
		Answers: append(answers(), declines()...), PageSize: 3, Secrets: []string{secret},
	})
}

// A void carries no own reference, so the test remembers which payment each call was to let go.
func TestVoidAdapterTellsTheTruth(t *testing.T) {
	promise := contract("acct_1", "test")
	var mu sync.Mutex
	of := map[string]string{}
	providertest.Run(t, providertest.Harness[Void, Receipt]{
		Local: func(testing.TB) providertest.Local {
			fake := stripefake.New(&stripefake.Options{Secret: secret})
			return providertest.Local{
				Handler: fake,
				Effects: func(id string) int {
					mu.Lock()
					defer mu.Unlock()
					if fake.Canceled(of[id]) {
						return 1
					}
					return 0
				},
				Undoes: func(n int) settle.Effect {
					return settle.Effect{Operation: "hold", Ref: fake.Hold(1000+int64(n), "eur"), Amount: settle.Minor(1000+int64(n), "EUR")}
				},
			}
		},
		Adapter: func(_ testing.TB, w providertest.Wire) settle.ProviderAdapter[Void, Receipt] {
			a := voidAdapter(newClient(secret, w.URL, w.Transport, promise), promise)
			submit := a.SubmitFunc
			a.SubmitFunc = func(ctx context.Context, c *settle.Call[Void]) (settle.Observation[Receipt], error) {
				mu.Lock()
				of[c.ID] = c.Undoes.Ref
				mu.Unlock()
				return submit(ctx, c)
			}
			return a
		},
		Request: func(int) Void { return Void{} },
		Key:     providertest.InHeader("Idempotency-Key"),
		Echo:    providertest.Echo{Amount: []string{"amount"}, Currency: []string{"currency"}},
		Answers: answers(), Secrets: []string{secret},
	})
}

func (p *process) hold() settle.Outcome[Receipt] {
	p.t.Helper()
	out, err := p.holds.Execute(p.t.Context(), pay(stripefake.Visa))
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

func void(hold settle.Outcome[Receipt]) settle.Operation[Void] {
	return settle.Operation[Void]{Undoes: settle.Effect{Operation: hold.ID}, Purpose: "out of stock"}
}

// What is held is let go, although the reply is lost; its own event on the authorization changes nothing. No money moves.
func TestVoid(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		p := w.start(false)
		hold := p.hold()
		w.stripe.Script(stripefake.Fault{Lose: stripefake.After})
		out, err := p.voids.Execute(t.Context(), void(hold))
		for errors.Is(err, settle.ErrPending) {
			w.wait()
			out, err = p.voids.Execute(t.Context(), void(hold))
		}
		if err != nil || len(out.Attempts) != 1 || !w.stripe.Canceled(w.stripe.Intents()[0]) {
			t.Errorf("%+v %v", out.Record, err)
		}
		p.deliver(200, w.stripe.Events()...)
		if rec, err := p.engine.Get(t.Context(), hold.ID); err != nil || rec.State != settle.StateCompensated || len(rec.Alarms()) != 0 {
			t.Errorf("the authorization is %s, %v %v", rec.State, rec.Alarms(), err)
		}
		w.moved()
	})
}

// What was captured meanwhile cannot be voided, and the authorization stands.
func TestVoidAfterCapture(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		p := w.start(false)
		hold := p.hold()
		w.stripe.Capture(w.stripe.Intents()[0])
		if _, err := p.voids.Execute(t.Context(), void(hold)); !errors.Is(err, settle.ErrFailed) {
			t.Error(err)
		}
		if rec, err := p.engine.Get(t.Context(), hold.ID); err != nil || rec.State != settle.StateSucceeded {
			t.Errorf("the authorization is %s %v", rec.State, err)
		}
		w.moved(1999)
	})
}
