package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/stripe/stripefake"
	"github.com/settle-go/settle/providertest"
)

// The suite for adapters, on both. The fake has small pages, so that a lookup must read several.
func TestChargeAdapterTellsTheTruth(t *testing.T) {
	promise := contract("acct_1", "test")
	providertest.Run(t, providertest.Harness[Charge, Receipt]{
		Local: func(testing.TB) providertest.Local {
			fake := stripefake.New(&stripefake.Options{Secret: secret, PageSize: 3})
			return providertest.Local{Handler: fake, Effects: fake.Effects}
		},
		Adapter: func(_ testing.TB, w providertest.Wire) settle.ProviderAdapter[Charge, Receipt] {
			return chargeAdapter(newClient(secret, w.URL, w.Transport, promise), promise)
		},
		Request: func(n int) Charge {
			return Charge{
				Amount: 1000 + int64(n), Currency: []string{"EUR", "JPY", "KWD"}[n%3], PaymentMethod: stripefake.Visa, Customer: "cus_ada",
			}
		},
		Key: providertest.InHeader("Idempotency-Key"), Reference: providertest.InForm("metadata[" + ownReference + "]"),
		Echo:    providertest.Echo{Amount: []string{"amount", "amount_received"}, Currency: []string{"currency"}},
		Answers: append(answers(), declines()...), PageSize: 3, Secrets: []string{secret},
	})
}

func TestRefundAdapterTellsTheTruth(t *testing.T) {
	promise := refundContract("acct_1", "test")
	providertest.Run(t, providertest.Harness[Refund, Receipt]{
		Local: func(testing.TB) providertest.Local {
			fake := stripefake.New(&stripefake.Options{Secret: secret, PageSize: 3})
			charge := fake.Charge(1_000_000, "eur") // all refunds are of one charge, so that its list has pages
			return providertest.Local{
				Handler: fake, Effects: fake.Effects,
				Undoes: func(int) settle.Effect {
					return settle.Effect{Operation: "charge", Ref: charge, Amount: settle.Minor(1_000_000, "EUR")}
				},
			}
		},
		Adapter: func(_ testing.TB, w providertest.Wire) settle.ProviderAdapter[Refund, Receipt] {
			return refundAdapter(newClient(secret, w.URL, w.Transport, promise), promise)
		},
		Request: func(n int) Refund { return Refund{Amount: 100 + int64(n), Currency: "EUR"} },
		Key:     providertest.InHeader("Idempotency-Key"), Reference: providertest.InForm("metadata[" + ownReference + "]"),
		Echo:    providertest.Echo{Amount: []string{"amount"}, Currency: []string{"currency"}},
		Answers: answers(), PageSize: 3, Secrets: []string{secret},
	})
}

// answers are Stripe's documented errors (docs.stripe.com: api/errors, error-codes, error-low-level).
func answers() []providertest.Answer {
	body := func(typ, code string) string {
		return `{"error":{"type":"` + typ + `","code":"` + code + `","message":"m","request_log_url":"https://dashboard.stripe.com/logs/req_1"}}`
	}
	const invalid, api = "invalid_request_error", "api_error"
	return []providertest.Answer{
		{Name: "invalid parameter", Status: 400, Body: body(invalid, "parameter_invalid_integer"), Want: settle.Declined},
		{Name: "no such object", Status: 404, Body: body(invalid, "resource_missing"), Want: settle.Declined},
		{Name: "invalid, on a later attempt", Status: 400, Body: body(invalid, "amount_too_small"), Again: true, Want: settle.NotApplied},
		{Name: "other parameters", Status: 400, Body: body("idempotency_error", "")},
		{Name: "key in use", Status: 409, Body: body(invalid, "idempotency_key_in_use")},
		{Name: "lock timeout", Status: 429, Body: body(invalid, "lock_timeout")},
		{
			Name: "rate limit", Status: 429, Header: map[string]string{"Retry-After": "7", "Stripe-Should-Retry": "true"},
			Body: body(invalid, "rate_limit"), Want: settle.NotApplied, RetryAfter: 7 * time.Second,
		},
		{Name: "no valid API key", Status: http.StatusUnauthorized, Body: body(invalid, ""), Want: settle.NotApplied},
		{Name: "no permission", Status: http.StatusForbidden, Body: body(invalid, ""), Want: settle.NotApplied},
		{Name: "failed dependency", Status: 424, Body: body(api, "")},
		{Name: "stored failure", Status: 500, Header: map[string]string{"Idempotent-Replayed": "true", "Stripe-Should-Retry": "false"}, Body: body(api, "")},
		{Name: "402 that is no card's", Status: 402, Body: body(invalid, "")},
	}
}

// declines are errors of a PaymentIntent that was created and confirmed.
func declines() []providertest.Answer {
	body := func(code, decline, intent string) string {
		return `{"error":{"type":"card_error","code":"` + code + `","decline_code":"` + decline + `","message":"m"` + intent + `}}`
	}
	intent := func(status string) string {
		return `,"payment_intent":{"id":"pi_9","object":"payment_intent","status":"` + status + `","amount":1000,"currency":"eur","client_secret":"pi_9_secret"}`
	}
	return []providertest.Answer{
		{Name: "declined", Status: 402, Body: body("card_declined", "insufficient_funds", intent("requires_payment_method")), Want: settle.Declined},
		{Name: "authentication required", Status: 402, Body: body("authentication_required", "authentication_required", intent("requires_payment_method")), Want: settle.Declined},
		{Name: "declined without an intent", Status: 402, Body: body("expired_card", "", ""), Want: settle.Declined},
		{Name: "an error beside a payment that is processing", Status: 402, Body: body("card_declined", "", intent("processing")), Want: settle.Underway},
		{Name: "a 500 beside a declined payment", Status: 500, Body: body("card_declined", "", intent("requires_payment_method"))},
	}
}
