package main

import (
	"time"

	"github.com/settle-go/settle"
)

// contract is what Stripe promises for API v1. Each fact with where it is from; "ours" marks a
// choice of this program. The pages are those of Stripe's documentation (docs.stripe.com; the API reference in
// its edition 2026-09-30), and the SDK's source, github.com/stripe/stripe-go/v85 v85.0.0.
//
//   - Window: keys may be removed once they are at least 24 hours old, and a removed key makes a
//     new request (api/idempotent_requests).
//   - MaxLen: 255 characters (api/idempotent_requests). The SDK trims spaces and refuses longer ones.
//   - ConcurrentSafe: a request that conflicts with one that is executing under the same key
//     stores nothing and may be repeated (api/idempotent_requests); its code is idempotency_key_in_use (error.go).
//   - The result of the first request, a 500 included, is stored once the endpoint began to execute
//     and is the answer to every repetition; a request with other parameters is an error (api/idempotent_requests).
//     So a repeated 500 is no second failure, and never a reason for a fresh key.
//   - 401, 429 and most 400 are answered in front of that (error-low-level): they say nothing
//     about an earlier request under the same key.
//   - Lookup: list, not search. A search is not for reading what was just written: usually a minute behind, up to an hour
//     in an outage (search, api/payment_intents/search), and not offered in every country. The same page sends such readers to the
//     lists, which that delay does not affect. It does not promise that a list sees every write at once, so: Eventual, not Authoritative.
//   - LookupLag: not published for lists. Ours: a minute.
//   - SettleDelay: not published. Ours: two minutes.
//   - Deadline: ours. The SDK's own default is 80 seconds (stripe.go, defaultHTTPTimeout).
//   - ProcessingLimit: ours, for cards, which do not stay in processing (payments/paymentintents/lifecycle);
//     bank debits need days.
//
// Keys belong to an account and its mode: both are in AccountFacts, so that an operation never moves.
func contract(account, mode string) settle.Contract {
	return settle.Contract{
		Account:         settle.AccountFacts{Provider: "stripe", Account: account, Mode: mode},
		Keys:            settle.Keys{Window: 24 * time.Hour, MaxLen: 255, ConcurrentSafe: true},
		Lookup:          settle.Eventual,
		LookupLag:       time.Minute,
		SettleDelay:     2 * time.Minute,
		Deadline:        30 * time.Second,
		ProcessingLimit: time.Hour,
		Source:          "docs.stripe.com: api/idempotent_requests, error-low-level, api/errors, search, rate-limits; stripe-go v85.0.0",
		Checked:         "2026-11-29",
	}
}

// refundContract differs in one fact: a refund may be pending (api/refunds/object), for how long is not
// published there. Ours: ten days, since banks take days.
func refundContract(account, mode string) settle.Contract {
	c := contract(account, mode)
	c.ProcessingLimit = 10 * 24 * time.Hour
	return c
}
