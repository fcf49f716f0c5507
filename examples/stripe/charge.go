package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	stripe "github.com/stripe/stripe-go/v85"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
)

// ownReference is the metadata entry that carries the operation's id. A lookup finds a
// payment by it when no reply ever came.
const ownReference = "settle_operation"

// Charge is one payment, made by the server with a payment method that the customer left
// there. A bank that wants to see the customer first is a decline with the code
// authentication_required: the flow with a browser in between is another kind of operation.
type Charge struct {
	// Amount is in the currency's smallest unit, as Stripe counts: cents for EUR, but whole yen for
	// JPY. Nothing here multiplies.
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"` // ISO 4217
	PaymentMethod string `json:"payment_method"`
	// Customer and Since bound the list that a lookup walks before a reference is known: the payments of
	// this customer, made since this time. At least one is needed with a busy account.
	Customer string `json:"customer,omitempty"`
	// Since is when the order was placed, in Unix seconds: no payment for it is older. It comes from the order,
	// never from the clock at the time of the call: it is part of the request.
	Since int64 `json:"since,omitempty"`
}

// Receipt is what is kept of a payment or refund that is confirmed.
type Receipt struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// skew is by how much the clock that stamped Since may be ahead of Stripe's.
const skew = time.Hour

// chargeAdapter makes PaymentIntents: created and confirmed in one request, so that one key covers both.
func chargeAdapter(api *stripe.Client, promise settle.Contract) settle.Adapter[Charge, Receipt] {
	return intentAdapter(api, promise, stripe.PaymentIntentCaptureMethodAutomatic, observeIntent)
}

// intentAdapter makes PaymentIntents that take the money, or hold it for a capture.
func intentAdapter(api *stripe.Client, promise settle.Contract, capture stripe.PaymentIntentCaptureMethod,
	observe func(*stripe.PaymentIntent) settle.Observation[Receipt],
) settle.Adapter[Charge, Receipt] {
	return settle.Adapter[Charge, Receipt]{
		Promise: promise,
		TermsFunc: func(op settle.Operation[Charge]) settle.Terms {
			return settle.Terms{
				Amount: settle.Minor(op.Request.Amount, op.Request.Currency),
				// The secret decides whether money moves. A live secret in a process that believes it tests is noticed.
				Other: map[string]string{"livemode": strconv.FormatBool(promise.Account.Mode == "live")},
			}
		},
		SubmitFunc: func(ctx context.Context, c *settle.Call[Charge]) (settle.Observation[Receipt], error) {
			params := &stripe.PaymentIntentCreateParams{
				Amount:             stripe.Int64(c.Request.Amount),
				Currency:           stripe.String(strings.ToLower(c.Request.Currency)),
				PaymentMethod:      stripe.String(c.Request.PaymentMethod),
				PaymentMethodTypes: []*string{stripe.String("card")},
				CaptureMethod:      stripe.String(string(capture)),
				Confirm:            stripe.Bool(true),
				// Without this the answer could be "ask the customer", with nobody there to ask.
				ErrorOnRequiresAction: stripe.Bool(true),
				Metadata:              map[string]string{ownReference: c.ID},
			}
			if c.Request.Customer != "" {
				params.Customer = stripe.String(c.Request.Customer)
			}
			params.SetIdempotencyKey(c.Key()) // without it the SDK makes one up, a new one for each call
			ctx, way := httpsettle.Watch(ctx)
			intent, err := api.V1PaymentIntents.Create(ctx, params)
			if err != nil {
				return refused(err, way, c.Attempt)
			}
			return observe(intent), nil
		},
		LookupFunc: func(ctx context.Context, c *settle.Call[Charge]) (settle.Observation[Receipt], error) {
			if c.Ref != "" {
				intent, err := api.V1PaymentIntents.Retrieve(ctx, c.Ref, nil)
				if err != nil {
					return settle.Observation[Receipt]{}, err
				}
				return observe(intent), nil
			}
			params := &stripe.PaymentIntentListParams{}
			params.Limit = stripe.Int64(100)
			if c.Request.Customer != "" {
				params.Customer = stripe.String(c.Request.Customer)
			}
			if c.Request.Since > 0 {
				params.CreatedRange = &stripe.RangeQueryParams{GreaterThanOrEqual: c.Request.Since - int64(skew.Seconds())}
			}
			return walk(ctx, api.V1PaymentIntents.List(ctx, params), func(i *stripe.PaymentIntent) (settle.Observation[Receipt], bool) {
				return observe(i), i.Metadata[ownReference] == c.ID
			})
		},
		EventFunc: readObject("payment_intent", observe),
	}
}

// observeIntent says what a PaymentIntent proves. The terms are Stripe's numbers, unconverted.
func observeIntent(i *stripe.PaymentIntent) settle.Observation[Receipt] {
	out := settle.Observation[Receipt]{
		Ref: i.ID, Code: string(i.Status),
		Terms: settle.Terms{
			Amount: settle.Minor(i.Amount, string(i.Currency)),
			Other:  map[string]string{"livemode": strconv.FormatBool(i.Livemode)},
		},
	}
	switch i.Status {
	case stripe.PaymentIntentStatusSucceeded:
		// What was received, not what was asked for.
		out.Fact, out.Terms.Amount = settle.Applied, settle.Minor(i.AmountReceived, string(i.Currency))
		out.Result = Receipt{ID: i.ID, Amount: i.AmountReceived, Currency: string(i.Currency)}
	case stripe.PaymentIntentStatusRequiresPaymentMethod:
		// Declined, unless nothing was tried yet. The client secret never left this program, so nobody else can try.
		out.Fact = settle.Underway
		if e := i.LastPaymentError; e != nil {
			out.Fact, out.Code, out.Message = settle.Declined, code(e), e.Msg
		}
	case stripe.PaymentIntentStatusCanceled:
		out.Fact = settle.Declined // it makes no further charge, and made none
	case stripe.PaymentIntentStatusRequiresAction:
		out.Fact = settle.NeedsAction
		if n := i.NextAction; n != nil && n.RedirectToURL != nil {
			out.Action = n.RedirectToURL.URL
		}
	case stripe.PaymentIntentStatusProcessing, stripe.PaymentIntentStatusRequiresCapture, stripe.PaymentIntentStatusRequiresConfirmation:
		out.Fact = settle.Underway
	default: // a status that is new, or a reply that is no PaymentIntent: Unclear
	}
	return out
}
