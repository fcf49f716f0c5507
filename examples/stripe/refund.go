package main

import (
	"context"

	stripe "github.com/stripe/stripe-go/v85"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
)

// Refund gives back part of a charge, or what is left of it with Amount 0.
type Refund struct {
	Amount   int64  `json:"amount,omitempty"`
	Currency string `json:"currency,omitempty"`
}

// refundAdapter undoes charges. The amount is always named in the request: "what is left" would mean
// something else when it is sent again.
func refundAdapter(api *stripe.Client, promise settle.Contract) settle.Adapter[Refund, Receipt] {
	return settle.Adapter[Refund, Receipt]{
		Promise: promise,
		TermsFunc: func(op settle.Operation[Refund]) settle.Terms {
			if op.Request.Amount == 0 {
				return settle.Terms{Amount: op.Undoes.Amount}
			}
			return settle.Terms{Amount: settle.Minor(op.Request.Amount, op.Request.Currency)}
		},
		SubmitFunc: func(ctx context.Context, c *settle.Call[Refund]) (settle.Observation[Receipt], error) {
			params := &stripe.RefundCreateParams{
				PaymentIntent: stripe.String(c.Undoes.Ref),
				Amount:        stripe.Int64(c.Terms.Amount.Value.IntPart()),
				Metadata:      map[string]string{ownReference: c.ID},
			}
			params.SetIdempotencyKey(c.Key())
			ctx, way := httpsettle.Watch(ctx)
			refund, err := api.V1Refunds.Create(ctx, params)
			if err != nil {
				return refused(err, way, c.Attempt)
			}
			return observeRefund(refund), nil
		},
		LookupFunc: func(ctx context.Context, c *settle.Call[Refund]) (settle.Observation[Receipt], error) {
			if c.Ref != "" {
				refund, err := api.V1Refunds.Retrieve(ctx, c.Ref, nil)
				if err != nil {
					return settle.Observation[Receipt]{}, err
				}
				return observeRefund(refund), nil
			}
			params := &stripe.RefundListParams{PaymentIntent: stripe.String(c.Undoes.Ref)}
			params.Limit = stripe.Int64(100)
			return walk(ctx, api.V1Refunds.List(ctx, params), func(r *stripe.Refund) (settle.Observation[Receipt], bool) {
				return observeRefund(r), r.Metadata[ownReference] == c.ID
			})
		},
		EventFunc: readObject("refund", observeRefund),
	}
}

func observeRefund(r *stripe.Refund) settle.Observation[Receipt] {
	out := settle.Observation[Receipt]{
		Ref: r.ID, Code: string(r.Status),
		Terms:  settle.Terms{Amount: settle.Minor(r.Amount, string(r.Currency))},
		Result: Receipt{ID: r.ID, Amount: r.Amount, Currency: string(r.Currency)},
	}
	switch r.Status {
	case stripe.RefundStatusSucceeded:
		out.Fact = settle.Applied
	case stripe.RefundStatusPending:
		out.Fact = settle.Underway
	case stripe.RefundStatusRequiresAction:
		out.Fact = settle.NeedsAction
	case stripe.RefundStatusCanceled:
		out.Fact = settle.Declined
	case stripe.RefundStatusFailed:
		// It may have been reported as succeeded before: the money came back to the account.
		out.Fact, out.Code = settle.Reversed, string(r.FailureReason)
	default: // new, or no refund: Unclear
	}
	return out
}
