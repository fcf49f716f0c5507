package main

import (
	"context"
	"errors"

	stripe "github.com/stripe/stripe-go/v85"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
)

// holdAdapter authorizes: the money is held and not taken. Capturing it is another kind of operation.
func holdAdapter(api *stripe.Client, promise settle.Contract) settle.Adapter[Charge, Receipt] {
	return intentAdapter(api, promise, stripe.PaymentIntentCaptureMethodManual, observeHold)
}

// observeHold says what a PaymentIntent proves about an authorization. One that was canceled after it held money was
// an authorization all the same: it is the void that undid it.
func observeHold(i *stripe.PaymentIntent) settle.Observation[Receipt] {
	out := observeIntent(i)
	if i.Status == stripe.PaymentIntentStatusRequiresCapture {
		out.Fact, out.Terms.Amount = settle.Applied, settle.Minor(i.AmountCapturable, string(i.Currency))
		out.Result = Receipt{ID: i.ID, Amount: i.AmountCapturable, Currency: string(i.Currency)}
	}
	return out
}

// Void lets go of what an authorization holds. It has no amount: it is of the whole.
type Void struct{}

// voidAdapter cancels PaymentIntents that were not captured. Canceling takes no metadata, so that nothing carries the operation's
// id. Nothing needs it: the PaymentIntent that is to be undone says itself whether it is canceled, and settle lets one void of it run at a time.
func voidAdapter(api *stripe.Client, promise settle.Contract) settle.Adapter[Void, Receipt] {
	return settle.Adapter[Void, Receipt]{
		Promise:   promise,
		TermsFunc: func(op settle.Operation[Void]) settle.Terms { return settle.Terms{Amount: op.Undoes.Amount} },
		SubmitFunc: func(ctx context.Context, c *settle.Call[Void]) (settle.Observation[Receipt], error) {
			params := &stripe.PaymentIntentCancelParams{}
			params.SetIdempotencyKey(c.Key())
			ctx, way := httpsettle.Watch(ctx)
			intent, err := api.V1PaymentIntents.Cancel(ctx, c.Undoes.Ref, params)
			if err == nil {
				return observeVoid(intent), nil
			}
			var e *stripe.Error
			if errors.As(err, &e) && e.Code == stripe.ErrorCodePaymentIntentUnexpectedState && e.PaymentIntent != nil && e.HTTPStatusCode < 500 {
				return observeVoid(e.PaymentIntent), nil // canceled before, or captured
			}
			return refused(err, way, c.Attempt)
		},
		LookupFunc: func(ctx context.Context, c *settle.Call[Void]) (settle.Observation[Receipt], error) {
			intent, err := api.V1PaymentIntents.Retrieve(ctx, c.Undoes.Ref, nil)
			if err != nil {
				return settle.Observation[Receipt]{}, err
			}
			if intent.Status == stripe.PaymentIntentStatusRequiresCapture {
				return settle.Observation[Receipt]{Fact: settle.NotFound}, nil // it holds still
			}
			return observeVoid(intent), nil
		},
		EventFunc: readObject("payment_intent", observeVoid),
	}
}

// observeVoid says what a PaymentIntent proves about its void.
func observeVoid(i *stripe.PaymentIntent) settle.Observation[Receipt] {
	released := i.Amount - i.AmountReceived
	out := settle.Observation[Receipt]{
		Ref: i.ID, Code: string(i.Status), Terms: settle.Terms{Amount: settle.Minor(released, string(i.Currency))},
		Result: Receipt{ID: i.ID, Amount: released, Currency: string(i.Currency)},
	}
	switch i.Status {
	case stripe.PaymentIntentStatusCanceled:
		out.Fact = settle.Applied
	case stripe.PaymentIntentStatusSucceeded:
		out.Fact = settle.Declined // captured: there is nothing to let go, and never will be
	case stripe.PaymentIntentStatusProcessing, stripe.PaymentIntentStatusRequiresAction, stripe.PaymentIntentStatusRequiresCapture,
		stripe.PaymentIntentStatusRequiresConfirmation, stripe.PaymentIntentStatusRequiresPaymentMethod:
	default: // a status that is new, or a reply that is no PaymentIntent: Unclear
	}
	return out
}
