package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/stripe/stripe-go/v85/webhook"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/stripe/stripefake"
	"github.com/settle-go/settle/webhook"
)

const signing = "whsec_fake"

// deliver sends events to the process's endpoint, signed now by Stripe's SDK.
func (p *process) deliver(want int, events ...stripefake.Event) {
	p.t.Helper()
	h, err := p.webhooks("acct_1", "test", []webhook.Secret{{Value: signing}})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range events {
		r := httptest.NewRequestWithContext(p.t.Context(), http.MethodPost, "/webhooks/stripe", strings.NewReader(string(e.Body)))
		r.Header.Set(webhook.StripeHeader, e.Signed(signing, time.Now()))
		rec := httptest.NewRecorder()
		if h.ServeHTTP(rec, r); rec.Code != want {
			p.t.Errorf("%s is answered %d %s, want %d", e.Type, rec.Code, rec.Body, want)
		}
	}
}

func (p *process) state(want settle.State) settle.Record {
	p.t.Helper()
	rec, err := p.charges.Find(p.t.Context(), settle.Intent{Subject: "order-8472", Purpose: "purchase"})
	if err != nil {
		p.t.Fatal(err)
	}
	if rec.State != want {
		p.t.Errorf("%s, want %s", rec.State, want)
	}
	return rec
}

// The reply is lost and Stripe cannot be asked; its events settle the charge, in any order and however often they come. The charge
// below the PaymentIntent is no second effect.
func TestEventsSettleALostReply(t *testing.T) {
	for name, order := range map[string][]int{
		"in order": {0, 1, 2}, "reversed": {2, 1, 0}, "only the last": {2}, "twice, shuffled": {1, 2, 0, 2, 0, 1},
	} {
		inBubbleNamed(t, name, func(t *testing.T, w *world) {
			p := w.start(false)
			w.stripe.Script(stripefake.Fault{Lose: stripefake.After})
			w.stripe.ScriptGet(stripefake.Fault{Status: 503}, stripefake.Fault{Status: 503}, stripefake.Fault{Status: 503})
			if _, err := p.charges.Execute(t.Context(), pay(stripefake.Visa)); !errors.Is(err, settle.ErrPending) {
				t.Fatal(err)
			}
			events := w.stripe.Events() // created, charge.succeeded, payment_intent.succeeded
			for _, i := range order {
				p.deliver(200, events[i])
			}
			if rec := p.state(settle.StateSucceeded); len(rec.References) != 1 || len(rec.Alarms()) != 0 {
				t.Errorf("%+v %v", rec.References, rec.Alarms())
			}
			w.moved(1999)
		})
	}
}

// The event overtakes the reply.
func TestEventBeforeTheReply(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		p := w.start(false)
		w.onEffect = func() { p.deliver(200, w.stripe.Events()...) }
		if _, err := p.finish(pay(stripefake.Visa)); err != nil {
			t.Fatal(err)
		}
		w.onEffect = nil
		w.moved(1999)
		w.oneKey(p.state(settle.StateSucceeded).ProviderKey, 1)
	})
}

// A bank debit takes days; the event says how it ended, before anybody asks.
func TestDecidedByEvent(t *testing.T) {
	for _, succeeds := range []bool{true, false} {
		inBubbleNamed(t, fmt.Sprint(succeeds), func(t *testing.T, w *world) {
			p := w.start(false)
			if _, err := p.charges.Execute(t.Context(), pay(stripefake.Slow)); !errors.Is(err, settle.ErrProcessing) {
				t.Fatal(err)
			}
			known := len(w.stripe.Events())
			w.stripe.Decide(w.stripe.Intents()[0], succeeds)
			p.deliver(200, w.stripe.Events()[known:]...)
			p.deliver(200, w.stripe.Events()[:known]...) // the older ones are late
			if succeeds {
				p.state(settle.StateSucceeded)
				w.moved(1999)
			} else {
				p.state(settle.StateFailed)
				w.moved()
			}
		})
	}
}

// A refund that bounces is told by an event: what it gave back can be given back again, once.
func TestBouncedRefundByEvent(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		p := w.start(false)
		charge, err := p.finish(pay(stripefake.Visa))
		if err != nil {
			t.Fatal(err)
		}
		op := settle.Operation[Refund]{Undoes: settle.Effect{Operation: charge.ID}, Purpose: "damaged", Request: Refund{Amount: 1999, Currency: "EUR"}}
		out, err := p.refunds.Execute(t.Context(), op)
		if err != nil {
			t.Fatal(err)
		}
		result, _ := out.Result()
		p.deliver(200, w.stripe.Events()...)
		w.stripe.Bounce(result.ID)
		bounced := w.stripe.Events()[len(w.stripe.Events())-1]
		p.deliver(200, bounced, bounced)
		rec, err := p.engine.Get(t.Context(), out.ID)
		if err != nil || rec.State != settle.StateFailed {
			t.Errorf("the refund is %s %v", rec.State, err)
		}
		p.state(settle.StateSucceeded)
		op.Purpose = "damaged, another card"
		if _, err := p.refunds.Execute(t.Context(), op); err != nil {
			t.Error(err)
		}
		w.moved(1999, -1999, 1999, -1999)
	})
}

// An event of the other mode is kept for a person, one that is not signed is refused.
func TestForeignEvents(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		p := w.start(false)
		w.stripe.Script(stripefake.Fault{Lose: stripefake.After})
		w.stripe.ScriptGet(stripefake.Fault{Status: 503})
		if _, err := p.charges.Execute(t.Context(), pay(stripefake.Visa)); !errors.Is(err, settle.ErrPending) {
			t.Fatal(err)
		}
		e := w.stripe.Events()[2]
		live := e
		live.Body = []byte(strings.ReplaceAll(string(e.Body), `"livemode": false`, `"livemode": true`))
		p.deliver(200, live)
		p.state(settle.StateUnknown)
		n := 0
		for r, err := range p.engine.List(t.Context(), settle.Query{Kind: settle.EventKind}) {
			if err != nil || r.State.Settled() {
				t.Error("an event of the other mode was merged", err)
			}
			n++
		}
		if n != 1 {
			t.Errorf("%d events are kept", n)
		}
		p.deliver(200, e)
		p.state(settle.StateSucceeded)
	})
}

// Package webhook and Stripe's own SDK agree: what the SDK signs is verified, and what is verified of headers that were
// tampered with, the SDK takes too.
func TestSignaturesAgreeWithTheSDK(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	v, err := webhook.New(webhook.Stripe(), &webhook.Options{Secrets: []webhook.Secret{{Value: signing}}})
	if err != nil {
		t.Fatal(err)
	}
	verify := func(header, body string) bool {
		_, err := v.Verify(http.Header{webhook.StripeHeader: {header}}, []byte(body))
		return err == nil
	}
	good, odd := 0, 0
	for range 2000 {
		body := fmt.Sprintf("{\"id\": \"evt_%d\",\n \"note\":\"\\u001B 💶\"}", dice.Uint32())
		header := stripefake.Event{Body: []byte(body)}.Signed(signing, time.Now())
		if !verify(header, body) {
			t.Fatalf("what the SDK signs is refused: %s", header)
		}
		bytes := []byte(header)
		switch i := dice.IntN(len(bytes)); dice.IntN(4) {
		case 0:
			bytes[i] = "0123456789abcdefABCDEF,=tv "[dice.IntN(27)]
		case 1:
			bytes = append(bytes[:i], bytes[i+1:]...)
		case 2:
			bytes = append([]byte("v1="+strings.Repeat("0", 64)+","), bytes...)
		case 3:
			bytes = append(bytes, ",v0=x,v1=zz"...)
		}
		ours, theirs := verify(string(bytes), body), sdk.ValidatePayloadIgnoringTolerance([]byte(body), string(bytes), signing) == nil
		if ours && !theirs {
			t.Fatalf("verified here and refused by the SDK: %q", bytes)
		}
		if ours {
			good++
		} else {
			odd++
		}
	}
	if good == 0 || odd == 0 {
		t.Errorf("%d verified, %d refused: the headers say nothing", good, odd)
	}
}

// An object of another kind is not for these operations although it has their names; and an event that lost the
// metadata is known by the reference.
func TestWhatEventsName(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		p := w.start(false)
		if _, err := p.charges.Execute(t.Context(), pay(stripefake.Slow)); !errors.Is(err, settle.ErrProcessing) {
			t.Fatal(err)
		}
		w.stripe.Decide(w.stripe.Intents()[0], true)
		events := w.stripe.Events()
		for _, e := range events {
			_, err := p.adapter.EventFunc(t.Context(), settle.Event{Payload: e.Body})
			if other := e.Type == "charge.succeeded"; other != errors.Is(err, settle.ErrNotForKind) {
				t.Errorf("%s: %v", e.Type, err)
			}
		}
		last := events[len(events)-1]
		last.Body = []byte(strings.ReplaceAll(string(last.Body), ownReference, "something_else"))
		p.deliver(200, last)
		p.state(settle.StateSucceeded)
	})
}
