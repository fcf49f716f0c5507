package stripefake

import "net/http"

// cancelIntent lets go of what is held. What was captured or canceled before is an error that shows the PaymentIntent as it is.
func (s *Server) cancelIntent(id string) execute {
	i := find(s.intents, func(i *intent) bool { return i.ID == id })
	return execute{
		check: func() *answer {
			if i != nil {
				return nil
			}
			a := refusal(http.StatusNotFound, "invalid_request_error", "resource_missing", "No such payment_intent")
			return &a
		},
		run: func() answer {
			if i.Status == "succeeded" || i.Status == "canceled" {
				snapshot := *i
				return fail(http.StatusBadRequest, wireError{
					Type: "invalid_request_error", Code: "payment_intent_unexpected_state", Message: "You cannot cancel this PaymentIntent because of its status.",
					PaymentIntent: &snapshot,
				})
			}
			reason := "requested_by_customer"
			i.Status, i.Capturable, i.CancelReason = "canceled", 0, &reason
			s.emit("payment_intent.canceled", i)
			return ok(i)
		},
	}
}

// Hold makes a payment that waits for its capture, as if somebody else had, and returns its id.
func (s *Server) Hold(amount int64, currency string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Now()
	i := &intent{
		ID: s.id("pi"), Object: "payment_intent", Amount: amount, Capturable: amount, Currency: currency, Status: "requires_capture",
		Created: now.Unix(), at: now, hold: true,
	}
	s.intents = append(s.intents, i)
	return i.ID
}

// Capture takes what is held, as somebody else would.
func (s *Server) Capture(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := find(s.intents, func(i *intent) bool { return i.ID == id }); i != nil && i.Status == "requires_capture" {
		i.Capturable = 0
		s.succeed(i, i.Amount)
	}
}

// Held counts the payments under an own reference that hold money or did before they were captured or canceled.
func (s *Server) Held(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, i := range s.intents {
		if i.hold && reference(i.Metadata) == operation && i.Status != "requires_payment_method" {
			n++
		}
	}
	return n
}

// Canceled reports whether a payment was let go.
func (s *Server) Canceled(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := find(s.intents, func(i *intent) bool { return i.ID == id })
	return i != nil && i.Status == "canceled"
}
