package main

import (
	"errors"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/stripe/stripefake"
)

// IC-04: Go's transport sends a POST with an Idempotency-Key again by itself when a kept-alive connection
// dies without a reply. Stripe sees two requests with the same key and the same body; settle counts
// one attempt, Stripe one effect, and the second reply is the result.
func TestIC04_HiddenResendIsOneAttempt(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		p := w.start(true)
		first := pay(stripefake.Visa)
		first.Subject = "order-1" // leaves a connection behind
		if _, err := p.charges.Execute(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		w.stripe.Script(stripefake.Fault{Lose: stripefake.After})
		out, err := p.charges.Execute(t.Context(), pay(stripefake.Visa))
		if err != nil {
			t.Fatal(err)
		}
		posts := w.stripe.Posts()[1:]
		if len(posts) != 2 || posts[0].Key != posts[1].Key || posts[0].Body != posts[1].Body || posts[0].Body == "" {
			t.Fatalf("Stripe should have seen one request twice, and saw %+v", posts)
		}
		if posts[0].Key != out.ProviderKey {
			t.Errorf("key %q, the record has %q", posts[0].Key, out.ProviderKey)
		}
		if gets := len(w.stripe.Requests()) - len(w.stripe.Posts()); gets != 0 {
			t.Errorf("%d lookups: the second reply should have been the result", gets)
		}
		if receipt, ok := out.Result(); !ok || receipt.ID != w.stripe.Intents()[1] || len(out.Attempts) != 1 {
			t.Errorf("receipt %+v, %d attempts; want the one effect and one attempt", receipt, len(out.Attempts))
		}
		w.moved(1999, 1999) // order-1, and this one once
	})
}

// The reason for httpsettle.Watch: the hidden resend meets a closed door, so that the error says that dialing was
// refused, although the first copy arrived and had its effect. Nothing may conclude "not sent" from it.
func TestIC04_RefusedResendIsNotNotSent(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		p := w.start(true)
		first := pay(stripefake.Visa)
		first.Subject = "order-1"
		if _, err := p.charges.Execute(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		w.onEffect = func() { _ = w.net.Close() } // from now on dialing is refused
		w.stripe.Script(stripefake.Fault{Lose: stripefake.After})

		params := settle.NewCall("key-2", settle.Call[Charge]{ID: "op-2", Attempt: 1, Request: pay(stripefake.Visa).Request})
		obs, err := p.adapter.Submit(t.Context(), params)
		var dial *net.OpError
		if !errors.As(err, &dial) || dial.Op != "dial" || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("the case is gone: the error should be that of a refused dial, and is %v (%+v)", err, obs)
		}
		if w.stripe.Effects("op-2") != 1 {
			t.Error("the first copy should have had its effect")
		}
	})
}

// Nobody listens, on a network of sockets: the attempt was not sent, and the operation may still be
// canceled or sent later.
func TestDialRefusedIsNotSent(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	promise := contract("acct_1", "test")
	a := chargeAdapter(newClient(secret, url, &http.Transport{}, promise), promise)
	obs, err := a.Submit(t.Context(), settle.NewCall("k", settle.Call[Charge]{ID: "op", Attempt: 1, Request: pay(stripefake.Visa).Request}))
	if err != nil || obs.Fact != settle.NotSent {
		t.Errorf("%+v %v", obs, err)
	}
}

// The SDK makes up a key where none is set, repeats requests and reports on itself. With this client
// it does none of that: every POST carries the stored key, and an attempt is one request.
func TestTheSDKAddsNothing(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		w.stripe.Script(
			stripefake.Fault{Status: 503, Type: "api_error"},
			stripefake.Fault{Status: 429, Type: "invalid_request_error", Code: "lock_timeout"}, // the SDK would repeat this one
		)
		p := w.start(false)
		for range 3 { // three attempts
			_, err := p.adapter.Submit(t.Context(), settle.NewCall("the key", settle.Call[Charge]{ID: "op", Request: pay(stripefake.Visa).Request}))
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.adapter.Lookup(t.Context(), settle.NewCall("the key", settle.Call[Charge]{ID: "op"})); err != nil {
			t.Fatal(err)
		}
		w.oneKey("the key", 3)
		for _, r := range w.stripe.Requests() {
			if r.Method == http.MethodGet && r.Key != "" {
				t.Errorf("a lookup carried the key %q", r.Key)
			}
			if r.Header.Get("X-Stripe-Client-Telemetry") != "" {
				t.Error("telemetry was sent")
			}
		}
		w.moved(1999)
	})
}
