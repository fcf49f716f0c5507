package main

import (
	"errors"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/stripe/stripefake"
)

// A charge is refunded in part, the reply is lost, and the rest can be refunded once and not twice (I8, I9).
func TestRefunds(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		p := w.start(false)
		charge, err := p.finish(pay(stripefake.Visa))
		if err != nil {
			t.Fatal(err)
		}
		refund := func(purpose string, amount int64) (settle.Outcome[Receipt], error) {
			op := settle.Operation[Refund]{
				Undoes: settle.Effect{Operation: charge.ID}, Purpose: purpose, Request: Refund{Amount: amount, Currency: "EUR"},
			}
			for {
				out, err := p.refunds.Execute(t.Context(), op)
				if !errors.Is(err, settle.ErrPending) {
					return out, err
				}
				time.Sleep(time.Minute)
			}
		}
		w.stripe.Script(stripefake.Fault{Lose: stripefake.After})
		out, err := refund("damaged", 500)
		if err != nil || len(out.Attempts) != 1 {
			t.Fatalf("%+v %v", out, err)
		}
		w.moved(1999, -500)
		if _, err := refund("rest", 2000); err == nil {
			t.Error("more than was paid was given back")
		}
		if _, err := refund("the rest", 1499); err != nil {
			t.Error(err)
		}
		w.moved(1999, -500, -1499)
	})
}

// A refund that bounced after it had succeeded is reported as that, not as a decline.
func TestBouncedRefund(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		promise := refundContract("acct_1", "test")
		transport := w.net.Transport()
		transport.DisableKeepAlives = true
		a := refundAdapter(newClient(secret, "http://stripe.example", transport, promise), promise)
		c := settle.Call[Refund]{
			ID: "op", Attempt: 1, Undoes: settle.Effect{Ref: w.stripe.Charge(1999, "eur")},
			Terms: settle.Terms{Amount: settle.Minor(1999, "EUR")},
		}
		obs, err := a.Submit(t.Context(), settle.NewCall("key", c))
		if err != nil || obs.Fact != settle.Applied {
			t.Fatalf("%+v %v", obs, err)
		}
		w.stripe.Bounce(obs.Ref)
		for _, c.Ref = range []string{"", obs.Ref} {
			seen, err := a.Lookup(t.Context(), settle.NewCall("key", c))
			if err != nil || seen.Fact != settle.Reversed || seen.Ref != obs.Ref || seen.Code != "expired_or_canceled_card" {
				t.Errorf("%+v %v", seen, err)
			}
		}
	})
}
