package stripefake

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// refund is a Refund.
type refund struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Amount        int64             `json:"amount"`
	Currency      string            `json:"currency"`
	Status        string            `json:"status"`
	Created       int64             `json:"created"`
	PaymentIntent string            `json:"payment_intent"`
	Metadata      map[string]string `json:"metadata"`
	FailureReason string            `json:"failure_reason,omitempty"`

	at time.Time
}

func (r *refund) when() time.Time { return r.at }

func (s *Server) createRefund(form url.Values, _ Fault) execute {
	of := find(s.intents, func(i *intent) bool { return i.ID == form.Get("payment_intent") })
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	if of != nil && !form.Has("amount") {
		amount, err = s.refundable(of), nil
	}
	return execute{
		check: func() *answer {
			var a answer
			switch {
			case of == nil:
				a = fail(http.StatusNotFound, wireError{Type: "invalid_request_error", Code: "resource_missing", Message: "No such payment_intent", Param: "payment_intent"})
			case err != nil:
				a = fail(http.StatusBadRequest, wireError{Type: "invalid_request_error", Code: "parameter_invalid_integer", Message: "Invalid integer", Param: "amount"})
			default:
				return nil
			}
			return &a
		},
		run: func() answer {
			left := s.refundable(of)
			switch {
			case left == 0:
				return refusal(http.StatusBadRequest, "invalid_request_error", "charge_already_refunded", "Charge has already been refunded.")
			case amount <= 0 || amount > left:
				return fail(http.StatusBadRequest, wireError{Type: "invalid_request_error", Message: "Refund amount is greater than unrefunded amount on charge", Param: "amount"})
			}
			now := s.opts.Now()
			r := &refund{
				ID: s.id("re"), Object: "refund", Amount: amount, Currency: of.Currency, Status: "succeeded",
				Created: now.Unix(), PaymentIntent: of.ID, Metadata: metadata(form), at: now,
			}
			s.refunds = append(s.refunds, r)
			s.ledger = append(s.ledger, Movement{
				ID: r.ID, Intent: of.ID, Amount: -amount, Currency: r.Currency, Operation: reference(r.Metadata),
			})
			s.emit("refund.created", r)
			return ok(r)
		},
	}
}

// refundable is what was received and not given back.
func (s *Server) refundable(i *intent) int64 {
	left := i.AmountReceived
	for _, r := range s.refunds {
		if r.PaymentIntent == i.ID && r.Status != "failed" && r.Status != "canceled" {
			left -= r.Amount
		}
	}
	return left
}

// Bounce makes a refund fail after it succeeded, as when the customer's bank sends it back.
func (s *Server) Bounce(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := find(s.refunds, func(r *refund) bool { return r.ID == id }); r != nil && r.Status == "succeeded" {
		r.Status, r.FailureReason = "failed", "expired_or_canceled_card"
		s.ledger = append(s.ledger, Movement{
			ID: r.ID, Intent: r.PaymentIntent, Amount: r.Amount, Currency: r.Currency, Operation: reference(r.Metadata),
		})
		s.emit("refund.failed", r)
	}
}

func (s *Server) retrieveRefund(req *http.Request, _ url.Values) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := find(s.refunds, func(r *refund) bool { return r.ID == req.PathValue("id") }); r != nil {
		return ok(r)
	}
	return refusal(http.StatusNotFound, "invalid_request_error", "resource_missing", "No such refund")
}

func (s *Server) listRefunds(_ *http.Request, q url.Values) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return page(s, "/v1/refunds", s.refunds, q, func(r *refund) (string, bool) {
		of := q.Get("payment_intent")
		return r.ID, of == "" || r.PaymentIntent == of
	})
}
