package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/async/bank"
	"github.com/settle-go/settle/httpsettle"
	"github.com/settle-go/settle/webhook"
)

// contract is what this bank promises. It takes up to five banking days to decide, which holidays make a week and more.
func contract() settle.Contract {
	return settle.Contract{
		Account:         settle.AccountFacts{Provider: "bank", Account: "main", Mode: "live"},
		Keys:            settle.Keys{Window: 7 * 24 * time.Hour, MaxLen: 64, ConcurrentSafe: true},
		Lookup:          settle.Authoritative,
		SettleDelay:     2 * time.Minute,
		Deadline:        20 * time.Second,
		ProcessingLimit: 10 * 24 * time.Hour,
		Source:          "package bank of this example",
		Checked:         "2026-11-29",
	}
}

// Payout is what is paid out.
type Payout struct {
	Amount   int64  `json:"amount"` // in the currency's smallest unit
	Currency string `json:"currency"`
	IBAN     string `json:"iban"`
}

// Receipt is what is kept of it.
type Receipt struct {
	ID string `json:"id"`
}

// client speaks the bank's API.
type client struct {
	base string
	http *httpsettle.Client
}

func newAdapter(base string, transport http.RoundTripper, promise settle.Contract) (settle.Adapter[Payout, Receipt], error) {
	hc, err := httpsettle.NewClient(&httpsettle.ClientOptions{
		Transport: transport, Keys: true, Timeout: promise.Deadline,
		Statuses: map[int]settle.Fact{
			http.StatusAccepted:            settle.Underway,
			http.StatusUnprocessableEntity: settle.Declined,
			http.StatusConflict:            settle.Unclear, // a request under our key exists
			http.StatusUnauthorized:        settle.NotApplied,
			http.StatusTooManyRequests:     settle.NotApplied,
		},
		Genuine: func(a *httpsettle.Answer) bool { return a.Status < 300 || reason(a) != "" },
	})
	if err != nil {
		return settle.Adapter[Payout, Receipt]{}, err
	}
	c := &client{base: strings.TrimSuffix(base, "/"), http: hc}
	return settle.Adapter[Payout, Receipt]{
		Promise: promise,
		TermsFunc: func(op settle.Operation[Payout]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.Amount, op.Request.Currency), Other: map[string]string{"iban": op.Request.IBAN}}
		},
		SubmitFunc: c.submit, LookupFunc: c.lookup, EventFunc: readPayout,
	}, nil
}

// reason is the bank's word for a refusal, "" if the answer is not the bank's.
func reason(a *httpsettle.Answer) string {
	var e struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(a.Body, &e) // what is no JSON has no reason
	return e.Error
}

func (c *client) submit(ctx context.Context, call *settle.Call[Payout]) (settle.Observation[Receipt], error) {
	r := call.Request
	body, err := json.Marshal(bank.Payout{Reference: call.ID, Amount: r.Amount, Currency: r.Currency, IBAN: r.IBAN})
	if err != nil {
		return settle.Observation[Receipt]{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/payouts", bytes.NewReader(body))
	if err != nil {
		return settle.Observation[Receipt]{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", call.Key())
	a, err := c.http.Do(req)
	out, done, err := httpsettle.Observe[Receipt](a, err)
	switch {
	case err != nil, a == nil:
		return out, err
	case !done:
		return observe(a.Body)
	}
	out.Code = reason(a)
	return out, nil
}

func (c *client) lookup(ctx context.Context, call *settle.Call[Payout]) (settle.Observation[Receipt], error) {
	if call.Ref != "" {
		body, err := c.get(ctx, "/payouts/"+url.PathEscape(call.Ref))
		if err != nil {
			return settle.Observation[Receipt]{}, err
		}
		return observe(body)
	}
	body, err := c.get(ctx, "/payouts?"+url.Values{"reference": {call.ID}}.Encode())
	if err != nil {
		return settle.Observation[Receipt]{}, err
	}
	var list struct {
		Payouts []json.RawMessage `json:"payouts"`
	}
	switch err := json.Unmarshal(body, &list); {
	case err != nil || list.Payouts == nil:
		return settle.Observation[Receipt]{}, errors.Join(errors.New("bank: the reply is no list"), err)
	case len(list.Payouts) == 0:
		return settle.Observation[Receipt]{Fact: settle.NotFound}, nil
	case len(list.Payouts) > 1:
		return settle.Observation[Receipt]{}, errors.New("bank: several payouts under one reference") // one key makes one
	}
	return observe(list.Payouts[0])
}

func (c *client) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	a, err := c.http.Do(req)
	switch {
	case err != nil:
		return nil, err
	case a.Status != http.StatusOK:
		return nil, fmt.Errorf("bank: status %d", a.Status)
	}
	return a.Body, nil
}

// observe says what a payout proves, in a reply, a lookup and an event alike.
func observe(raw []byte) (settle.Observation[Receipt], error) {
	var p bank.Payout
	if err := json.Unmarshal(raw, &p); err != nil || p.ID == "" {
		return settle.Observation[Receipt]{}, errors.Join(errors.New("bank: the reply is no payout"), err)
	}
	out := settle.Observation[Receipt]{
		Ref: p.ID, Code: p.Code, Sequence: p.Revision, Result: Receipt{ID: p.ID},
		Terms: settle.Terms{Amount: settle.Minor(p.Amount, p.Currency), Other: map[string]string{"iban": p.IBAN}},
	}
	switch p.Status {
	case "processing":
		out.Fact = settle.Underway
	case "paid":
		out.Fact = settle.Applied
	case "failed":
		out.Fact = settle.Declined
	case "returned":
		out.Fact = settle.Reversed
	} // anything else proves nothing
	return out, nil
}

// event is the bank's event, in the form that Standard Webhooks recommend.
type event struct {
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// readEvent says which event a delivery is: the payout's reference is our operation. What is no payout
// cannot be about an operation of ours.
func readEvent(d webhook.Delivery) (settle.Event, error) {
	var e event
	var p bank.Payout
	if err := json.Unmarshal(d.Body, &e); err != nil {
		return settle.Event{}, err
	}
	if !strings.HasPrefix(e.Type, "payout.") {
		return settle.Event{}, webhook.ErrIgnore
	}
	if err := json.Unmarshal(e.Data, &p); err != nil {
		return settle.Event{}, err
	}
	return settle.Event{Type: e.Type, Operation: p.Reference, Ref: p.ID, Sequence: p.Revision, At: e.Timestamp}, nil
}

// readPayout says what the event means for the operation.
func readPayout(_ context.Context, ev settle.Event) (settle.Observation[Receipt], error) {
	var e event
	if err := json.Unmarshal(ev.Payload, &e); err != nil {
		return settle.Observation[Receipt]{}, err
	}
	return observe(e.Data)
}
