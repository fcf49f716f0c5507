package stripefake

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v85/webhook"
)

// Event is one that Stripe sends to an endpoint.
type Event struct {
	ID, Type string
	Body     []byte
}

// Signed is the header Stripe-Signature of a delivery at the given time, made by Stripe's own SDK.
func (e Event) Signed(secret string, at time.Time) string {
	return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: e.Body, Secret: secret, Timestamp: at}).Header
}

// Events returns what happened, in order. Who delivers them decides on order and number.
func (s *Server) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// emit notes an event with the object as it is now. The caller holds the lock.
func (s *Server) emit(typ string, object any) {
	id := s.id("evt")
	body, err := json.MarshalIndent(map[string]any{
		"id": id, "object": "event", "api_version": "2026-09-30.basil", "created": s.opts.Now().Unix(), "livemode": false,
		"pending_webhooks": 1, "type": typ, "data": map[string]any{"object": object},
	}, "", "  ")
	if err != nil {
		panic(err) // of structs of strings and numbers
	}
	s.events = append(s.events, Event{ID: id, Type: typ, Body: body})
}

// charged emits the event of the charge below a PaymentIntent, which carries the PaymentIntent's metadata and an id of its own.
func (s *Server) charged(i *intent) {
	s.emit("charge.succeeded", map[string]any{
		"id": "ch_" + i.ID, "object": "charge", "amount": i.AmountReceived, "amount_captured": i.AmountReceived, "currency": i.Currency,
		"status": "succeeded", "payment_intent": i.ID, "metadata": i.Metadata,
	})
}
