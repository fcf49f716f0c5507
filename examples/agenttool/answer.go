package main

import (
	"cmp"
	"errors"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// result is what the model gets to read.
type result struct {
	Status    string                `json:"status" jsonschema:"What is known about the payment. Only succeeded means paid; unknown means that it may be."`
	Next      settle.Next           `json:"next" jsonschema:"The safe next action, as a word."`
	Advice    string                `json:"advice" jsonschema:"The safe next action, in words."`
	Reason    string                `json:"reason,omitempty" jsonschema:"Why, if there is more to say."`
	Operation string                `json:"operation,omitempty" jsonschema:"The one payment of the order. It is no argument of any tool."`
	Receipt   *providertest.Receipt `json:"receipt,omitempty" jsonschema:"Of a payment that succeeded."`
}

// noEffect reports whether it is certain that nothing was paid. Only that may be called an error towards a model: an
// outcome that is not known must not look like a failure (I4).
func (r result) noEffect() bool {
	switch r.Status {
	case "refused", string(settle.StateFailed), string(settle.StateCanceled):
		return true
	}
	return false
}

// text is the result for a reader.
func (r result) text() string {
	out := r.Status
	if r.Reason != "" {
		out += " (" + r.Reason + ")"
	}
	return out + ". " + r.Advice
}

// tell puts a verdict into words. Only err == nil is a success.
func tell(out settle.Outcome[providertest.Receipt], err error) result {
	res := result{Status: string(out.State), Next: out.Next, Advice: out.Next.Advice(), Operation: out.ID}
	var e *settle.Error
	if errors.As(err, &e) {
		res.Reason, res.Operation = e.Code, cmp.Or(out.ID, e.ID)
	}
	switch {
	case err == nil:
		if receipt, ok := out.Result(); ok {
			res.Receipt = &receipt
		}
	case errors.Is(err, settle.ErrRefused):
		return result{
			Status: "refused", Next: settle.NextWaitPerson, Reason: "not approved", Advice: "Nothing was started by this call. " +
				"A person must approve this order as it is now; then call pay_order again.",
		}
	case errors.Is(err, settle.ErrMismatch):
		// What is there is not this request: it is told, and accepted or not by asking for its status (IC-64).
		return result{
			Status: string(e.State), Next: settle.NextWaitPerson, Reason: "order changed", Operation: e.ID,
			Advice: "The order was changed after its payment was started, and this call started nothing. The status is that of the payment as it was started. " +
				"Ask for operation_status, and tell a person. Do not pay it in another way.",
		}
	case errors.Is(err, settle.ErrStore), errors.Is(err, settle.ErrDraining):
		return notNow()
	case errors.Is(err, settle.ErrFailed):
		res.Advice = "It is certain that nothing was paid. Tell a person: after another approval pay_order may be called again."
	case errors.Is(err, settle.ErrPending):
		res.Status = cmp.Or(res.Status, string(settle.StateUnknown)) // stopped waiting before anything was known
	}
	res.Status = cmp.Or(res.Status, "refused")
	return res
}

// wrong answers a call that makes no sense.
func wrong(reason string) result {
	return result{
		Status: "refused", Reason: reason, Next: settle.NextFixRequest,
		Advice: "Nothing was started by this call. If an earlier one is open, do not repeat it under a new request; ask for operation_status.",
	}
}

// notNow answers when the database is in trouble. That says nothing about the payment.
func notNow() result {
	return result{
		Status: "unavailable", Next: settle.NextRetry, Advice: "Nothing is known at the moment, and the payment may exist. " +
			"Call again later with the same order_id.",
	}
}
