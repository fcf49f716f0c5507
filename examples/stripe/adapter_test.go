package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/stripe/stripefake"
)

func call(key, id string, c Charge) *settle.Call[Charge] {
	return settle.NewCall(key, settle.Call[Charge]{ID: id, Attempt: 1, Request: c})
}

// What each payment method and each fault of the server proves, through the SDK and the wire.
func TestAnswers(t *testing.T) {
	const unknown = settle.Fact("no answer")
	for _, c := range []struct {
		name    string
		method  string
		faults  []stripefake.Fault // of the first attempt and of the second
		want    [2]settle.Fact     // likewise; the second is a repetition under the same key
		code    string             // of the last
		effects int
	}{
		{name: "paid", method: stripefake.Visa, want: [2]settle.Fact{settle.Applied, settle.Applied}, code: "succeeded", effects: 1},
		{name: "declined", method: stripefake.Declined, want: [2]settle.Fact{settle.Declined, settle.Declined}, code: "card_declined:generic_decline"},
		{name: "no funds", method: stripefake.InsufficientFunds, want: [2]settle.Fact{settle.Declined, settle.Declined}, code: "card_declined:insufficient_funds"},
		{name: "the bank wants to see the customer", method: stripefake.NeedsAuth, want: [2]settle.Fact{settle.Declined, settle.Declined}, code: "authentication_required"},
		{name: "processing", method: stripefake.Slow, want: [2]settle.Fact{settle.Underway, settle.Underway}, code: "processing"},
		// The first attempt's refusal is final. The same words to a later one say nothing about the first.
		{name: "invalid", method: "nonsense", want: [2]settle.Fact{settle.Declined, settle.NotApplied}, code: "resource_missing"},
		{
			name: "stored failure after the effect", method: stripefake.Visa, faults: []stripefake.Fault{{Crash: stripefake.After}},
			want: [2]settle.Fact{settle.Unclear, settle.Unclear}, code: "http_500:api_error:final", effects: 1,
		},
		{
			name: "failure in front of the endpoint", method: stripefake.Visa, faults: []stripefake.Fault{{Status: 503, Type: "api_error"}},
			want: [2]settle.Fact{settle.Unclear, settle.Applied}, code: "succeeded", effects: 1,
		},
		{
			name: "a proxy's page", method: stripefake.Visa, faults: []stripefake.Fault{{Status: 502}, {Status: 429}},
			want: [2]settle.Fact{unknown, unknown},
		},
		{
			name: "half a reply", method: stripefake.Visa, faults: []stripefake.Fault{{Garble: true}},
			want: [2]settle.Fact{unknown, settle.Applied}, code: "succeeded", effects: 1,
		},
		{
			name: "no reply", method: stripefake.Visa, faults: []stripefake.Fault{{Lose: stripefake.Before}, {Lose: stripefake.After}},
			want: [2]settle.Fact{unknown, unknown}, effects: 1,
		},
		{
			name: "too many requests", method: stripefake.Visa,
			faults: []stripefake.Fault{{Status: 429, Type: "invalid_request_error", Code: "rate_limit"}, {Status: 429, Type: "invalid_request_error", Code: "lock_timeout"}},
			want:   [2]settle.Fact{settle.NotApplied, settle.Unclear}, code: "lock_timeout",
		},
		{
			name: "no permission", method: stripefake.Visa,
			faults: []stripefake.Fault{{Status: 401, Type: "invalid_request_error"}, {Status: 403, Type: "invalid_request_error"}},
			want:   [2]settle.Fact{settle.NotApplied, settle.NotApplied}, code: "invalid_request_error",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
				w.stripe.Script(c.faults...)
				a := w.adapter()
				for i, want := range c.want {
					call := settle.NewCall("key", settle.Call[Charge]{ID: "op", Attempt: i + 1, Request: pay(c.method).Request})
					obs, err := a.Submit(t.Context(), call)
					got := obs.Fact
					if err != nil {
						got = unknown
					}
					if got != want {
						t.Errorf("attempt %d: %q (%v), want %q", i+1, got, err, want)
					}
					if i == 1 && obs.Code != c.code {
						t.Errorf("code %q, want %q", obs.Code, c.code)
					}
				}
				if n := w.stripe.Effects("op"); n != c.effects {
					t.Errorf("%d effects, want %d", n, c.effects)
				}
			})
		})
	}
}

// The same key with other parameters, and while the first request is running: neither is a failure.
func TestKeyConflicts(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.stripe.Script(stripefake.Fault{Hold: release})
		a, request := w.adapter(), pay(stripefake.Visa).Request
		done := make(chan settle.Observation[Receipt], 1)
		go func() {
			obs, err := a.Submit(t.Context(), call("key", "op", request))
			if err != nil {
				t.Error(err)
			}
			done <- obs
		}()
		synctest.Wait() // the first request is at the endpoint
		obs, err := a.Submit(t.Context(), call("key", "op", request))
		if err != nil || obs.Fact != settle.Unclear || obs.Code != "idempotency_key_in_use" {
			t.Errorf("while it runs: %+v %v", obs, err)
		}
		close(release)
		if obs := <-done; obs.Fact != settle.Applied {
			t.Errorf("the first request: %+v", obs)
		}
		request.Amount++
		obs, err = a.Submit(t.Context(), call("key", "op", request))
		if err != nil || obs.Fact != settle.Unclear || obs.Code != "idempotency_error" {
			t.Errorf("with another amount: %+v %v", obs, err)
		}
		w.moved(1999)
	})
}

// Amounts are Stripe's: minor units, whatever the currency's decimal places. Nothing scales.
func TestAmountsAreNeverScaled(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		a := w.adapter()
		for i, c := range []Charge{{Amount: 1999, Currency: "EUR"}, {Amount: 500, Currency: "JPY"}, {Amount: 1230, Currency: "KWD"}} {
			c.PaymentMethod = stripefake.Visa
			obs, err := a.Submit(t.Context(), call(c.Currency, c.Currency, c))
			if err != nil || !obs.Terms.Amount.Equal(settle.Minor(c.Amount, c.Currency)) {
				t.Errorf("%+v: %+v %v", c, obs, err)
			}
			want := fmt.Sprintf("amount=%d&", c.Amount)
			if body := w.stripe.Posts()[i].Body; !strings.HasPrefix(body, want) || !strings.Contains(body, "currency="+strings.ToLower(c.Currency)) {
				t.Errorf("%+v was sent as %s", c, body)
			}
			if m := w.stripe.Ledger()[i]; m.Amount != c.Amount {
				t.Errorf("%+v became %+v", c, m)
			}
		}
	})
}

// A lookup reads to the end of what can hold the payment, and no further.
func TestLookupBounds(t *testing.T) {
	inBubble(t, stripefake.Options{PageSize: 2}, func(t *testing.T, w *world) {
		a := w.adapter()
		submit := func(id, customer string) {
			t.Helper()
			obs, err := a.Submit(t.Context(), call(id, id, Charge{Amount: 1, Currency: "EUR", PaymentMethod: stripefake.Visa, Customer: customer}))
			if err != nil || obs.Fact != settle.Applied {
				t.Fatalf("%+v %v", obs, err)
			}
		}
		lookup := func(id string, c Charge) (fact settle.Fact, pages int) {
			t.Helper()
			before := len(w.stripe.Requests())
			obs, err := a.Lookup(t.Context(), call(id, id, c))
			if err != nil {
				t.Fatal(err)
			}
			return obs.Fact, len(w.stripe.Requests()) - before
		}
		submit("ada", "cus_ada")
		for i := range 4 {
			submit(fmt.Sprint("early", i), "cus_bob")
		}
		time.Sleep(24 * time.Hour) // the bubble's
		placed := time.Now().Unix()
		submit("late", "cus_bob")

		for _, c := range []struct {
			id    string
			in    Charge
			want  settle.Fact
			pages int
		}{
			{"ada", Charge{}, settle.Applied, 3},
			{"ada", Charge{Customer: "cus_ada"}, settle.Applied, 1},
			{"ada", Charge{Customer: "cus_bob"}, settle.NotFound, 3},
			{"late", Charge{Since: placed}, settle.Applied, 1},
			{"ada", Charge{Since: placed}, settle.NotFound, 1},
			{"late", Charge{Since: placed + 1800}, settle.Applied, 1}, // the shop's clock was ahead
		} {
			if fact, pages := lookup(c.id, c.in); fact != c.want || pages != c.pages {
				t.Errorf("%s %+v: %q after %d pages, want %q after %d", c.id, c.in, fact, pages, c.want, c.pages)
			}
		}
	})
}

// Of several payments with the operation's reference the one that succeeded is reported, whichever is the newest.
func TestLookupPrefersWhatExists(t *testing.T) {
	for _, methods := range [][]string{{stripefake.Visa, stripefake.Declined}, {stripefake.Declined, stripefake.Visa}} {
		inBubbleNamed(t, methods[1], func(t *testing.T, w *world) {
			a := w.adapter()
			for i, m := range methods {
				if _, err := a.Submit(t.Context(), call(fmt.Sprint("key", i), "op", pay(m).Request)); err != nil {
					t.Fatal(err)
				}
			}
			if obs, err := a.Lookup(t.Context(), call("", "op", Charge{})); err != nil || obs.Fact != settle.Applied {
				t.Errorf("%+v %v", obs, err)
			}
		})
	}
}

// A body that is JSON and no list is not "not found".
func TestNoListIsNotNotFound(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		w.stripe.ScriptGet(stripefake.Fault{Status: 200, Type: "not_an_error"})
		if obs, err := w.adapter().Lookup(t.Context(), call("", "op", Charge{})); err == nil {
			t.Errorf("%+v", obs)
		}
	})
}
