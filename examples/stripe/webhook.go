package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	stripe "github.com/stripe/stripe-go/v85"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/webhook"
)

// webhooks makes the endpoint for Stripe's events of this account and mode.
func (s *shop) webhooks(account, mode string, secrets []webhook.Secret) (*webhook.Handler, error) {
	v, err := webhook.New(webhook.Stripe(), &webhook.Options{Secrets: secrets})
	if err != nil {
		return nil, err
	}
	return webhook.NewHandler(s.engine, v, contract(account, mode).Account, func(d webhook.Delivery) (settle.Event, error) {
		return readEvent(d, mode == "live")
	}, nil)
}

// readEvent says which event a delivery is. Only PaymentIntents and refunds are ours: a charge is one try of a PaymentIntent and carries
// its metadata, so that charge.succeeded beside payment_intent.succeeded would look like a second effect.
func readEvent(d webhook.Delivery, live bool) (settle.Event, error) {
	var e stripe.Event
	if err := json.Unmarshal(d.Body, &e); err != nil {
		return settle.Event{}, err
	}
	switch {
	case e.ID == "" || e.Data == nil:
		return settle.Event{}, errors.New("stripe: no event")
	case !strings.HasPrefix(string(e.Type), "payment_intent.") && !strings.HasPrefix(string(e.Type), "refund."):
		return settle.Event{}, webhook.ErrIgnore
	case e.Livemode != live:
		return settle.Event{}, errors.New("stripe: an event of the other mode") // somebody mixed up endpoints: a person looks
	}
	var object struct {
		ID       string            `json:"id"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(e.Data.Raw, &object); err != nil {
		return settle.Event{}, err
	}
	// No Sequence: created is in whole seconds, and two events of one second have no order (IC-42). What the objects say decides.
	return settle.Event{
		ID: e.ID, Type: string(e.Type), Operation: object.Metadata[ownReference], Ref: object.ID, At: time.Unix(e.Created, 0),
	}, nil
}

// readObject makes an EventFunc of what reads an object in replies and lookups. kind is Stripe's name of the object.
func readObject[T any](kind string, observe func(*T) settle.Observation[Receipt]) func(context.Context, settle.Event) (settle.Observation[Receipt], error) {
	return func(_ context.Context, ev settle.Event) (settle.Observation[Receipt], error) {
		var e stripe.Event
		if err := json.Unmarshal(ev.Payload, &e); err != nil || e.Data == nil {
			return settle.Observation[Receipt]{}, errors.Join(errors.New("stripe: no event"), err)
		}
		var is struct {
			Object string `json:"object"`
		}
		if err := json.Unmarshal(e.Data.Raw, &is); err != nil {
			return settle.Observation[Receipt]{}, err
		}
		if is.Object != kind {
			return settle.Observation[Receipt]{}, settle.ErrNotForKind
		}
		var o T
		if err := json.Unmarshal(e.Data.Raw, &o); err != nil {
			return settle.Observation[Receipt]{}, err
		}
		return observe(&o), nil
	}
}
