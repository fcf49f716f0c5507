package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	stripe "github.com/stripe/stripe-go/v85"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
)

// refused says what the error of a create request proves. way is whether the request
// can have left; attempt is the number of the operation's attempt, for the reason at "first" below.
func refused(err error, way *httpsettle.Watched, attempt int) (settle.Observation[Receipt], error) {
	var none settle.Observation[Receipt]
	var e *stripe.Error
	if !errors.As(err, &e) {
		if way.NotSent(err) {
			return settle.Observation[Receipt]{Fact: settle.NotSent, Code: "no_connection"}, nil
		}
		return none, err // no answer, or none that is Stripe's: nothing is known
	}
	obs := settle.Observation[Receipt]{Fact: settle.Unclear, Code: code(e), Message: e.Msg}
	if i := e.PaymentIntent; i != nil && i.ID != "" && e.HTTPStatusCode < 500 {
		// The payment exists and says itself how it stands. Declined, it waits for another payment
		// method, which nobody but this program could give it: that is final.
		seen := observeIntent(i)
		seen.Code, seen.Message = obs.Code, obs.Message
		if e.Type == stripe.ErrorTypeCard && i.Status == stripe.PaymentIntentStatusRequiresPaymentMethod {
			seen.Fact = settle.Declined
		}
		return seen, nil
	}
	switch status := e.HTTPStatusCode; {
	case e.Type == stripe.ErrorTypeCard && status == http.StatusPaymentRequired:
		obs.Fact = settle.Declined
	case e.Type == stripe.ErrorTypeIdempotency:
		// A request under our key exists, with other parameters. It is not this one's failure.
	case status == http.StatusTooManyRequests && e.Code != stripe.ErrorCodeLockTimeout,
		status == http.StatusUnauthorized, status == http.StatusForbidden:
		obs.Fact, obs.RetryAfter = settle.NotApplied, httpsettle.RetryAfter(header(e), time.Now())
	case e.Type == stripe.ErrorTypeInvalidRequest && (status == http.StatusBadRequest || status == http.StatusNotFound):
		// Most of these are answered before the key is looked at. On the first attempt that is final, there
		// is nothing else that could succeed; later it says nothing about the attempts before.
		obs.Fact = settle.NotApplied
		if first := attempt == 1; first {
			obs.Fact = settle.Declined
		}
	}
	return obs, nil // else 409, 429 lock_timeout, 5xx: Unclear
}

// code is the machine word of an error, e.g. card_declined:insufficient_funds.
func code(e *stripe.Error) string {
	word := cmp.Or(string(e.Code), string(e.Type))
	if e.DeclineCode != "" && string(e.DeclineCode) != word {
		word += ":" + string(e.DeclineCode)
	}
	if e.HTTPStatusCode >= 500 {
		word = fmt.Sprintf("http_%d:%s", e.HTTPStatusCode, word)
		if header(e).Get("Stripe-Should-Retry") == "false" {
			word += ":final" // repeating under the key will only repeat the answer
		}
	}
	return word
}

func header(e *stripe.Error) http.Header {
	if e.LastResponse == nil {
		return nil
	}
	return e.LastResponse.Header
}

// weight orders what several objects of one operation say: one that exists hides behind no
// declined try.
func weight(f settle.Fact) int {
	switch f {
	case settle.Applied:
		return 5
	case settle.Reversed:
		return 4
	case settle.NeedsAction, settle.Underway:
		return 3
	case settle.Declined:
		return 2
	case settle.Unclear:
		return 1
	case settle.NotFound, settle.NotSent, settle.NotApplied:
	}
	return 0
}

// walk reads a list to its end and returns the weightiest of the objects that observe recognizes.
// A page that fails is an error, never "not found", and so is a list that is longer than walkLimit.
func walk[T any](ctx context.Context, list *stripe.V1List[T], observe func(T) (settle.Observation[Receipt], bool)) (settle.Observation[Receipt], error) {
	best, n := settle.Observation[Receipt]{Fact: settle.NotFound}, 0
	for o, err := range list.All(ctx) {
		if err != nil {
			return settle.Observation[Receipt]{}, err
		}
		if n++; n > walkLimit {
			return settle.Observation[Receipt]{}, errors.New("stripe: the list is too long to be walked: bound it by customer or time")
		}
		if seen, ours := observe(o); ours && weight(seen.Fact) > weight(best.Fact) {
			best = seen
		}
	}
	if list.Meta().URL == "" {
		// The SDK takes {} for a list that has ended.
		return settle.Observation[Receipt]{}, errors.New("stripe: the last page was no list")
	}
	return best, nil
}

// walkLimit is how many objects a lookup reads: a hundred pages, some seconds.
const walkLimit = 10_000
