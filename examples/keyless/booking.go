package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
)

// contract is what this hotel promises: no idempotency keys, so nothing that may have left is sent again.
// What a lookup by the own reference does not show by the time that everything has settled, a
// person must find out.
func contract() settle.Contract {
	return settle.Contract{
		Account:     settle.AccountFacts{Provider: "hotel", Account: "grand"},
		Lookup:      settle.Eventual,
		LookupLag:   5 * time.Minute, // "new bookings appear in lists within minutes"
		SettleDelay: 2 * time.Minute, // not published
		Deadline:    20 * time.Second,
		Source:      "package hotel of this example",
		Checked:     "2026-11-29",
	}
}

// Stay is what is booked.
type Stay struct {
	Room    string          `json:"room"`
	Arrival string          `json:"arrival"` // 2026-12-24
	Nights  int             `json:"nights"`
	Price   decimal.Decimal `json:"price"` // of the whole stay, in the currency's main unit, as the hotel writes it
	// Currency is an ISO 4217 code.
	Currency string `json:"currency"`
}

// Confirmation is what is kept of a booking.
type Confirmation struct {
	ID string `json:"id"`
}

// bookings speaks the hotel's API. It is what an adapter looks like where there is no SDK.
type bookings struct {
	url     string
	http    *httpsettle.Client
	promise settle.Contract
}

func newBookings(url string, transport http.RoundTripper, promise settle.Contract) *bookings {
	client, err := httpsettle.NewClient(&httpsettle.ClientOptions{
		// Keys is not set: nothing below repeats a request, not the transport when a kept-alive connection
		// dies, nor a redirect.
		Transport: transport, Timeout: promise.Deadline,
		Statuses: map[int]settle.Fact{
			http.StatusUnprocessableEntity: settle.Declined, // this request has no twin that could have taken the room
			http.StatusUnauthorized:        settle.NotApplied,
			http.StatusTooManyRequests:     settle.NotApplied,
		},
		Genuine: func(a *httpsettle.Answer) bool { return a.Fact == settle.Applied || reason(a) != "" },
	})
	if err != nil {
		panic(err) // the table above is wrong
	}
	return &bookings{url: strings.TrimSuffix(url, "/"), promise: promise, http: client}
}

// reason is the hotel's word for a refusal, "" if the answer is not the hotel's.
func reason(a *httpsettle.Answer) string {
	var e struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(a.Body, &e) // what is no JSON has no reason
	return e.Error
}

// booking is the hotel's JSON.
type booking struct {
	Reference string `json:"reference"`
	Room      string `json:"room"`
	Arrival   string `json:"arrival"`
	Nights    int    `json:"nights"`
	Price     string `json:"price"`
	Currency  string `json:"currency"`

	ID     string `json:"id,omitempty"`
	Status string `json:"status,omitempty"`
}

// Contract implements settle.ProviderAdapter.
func (b *bookings) Contract() settle.Contract { return b.promise }

// Terms implements settle.ProviderAdapter. The room and the days are terms like the price: a
// booking of another room is not the one that was asked for.
func (b *bookings) Terms(op settle.Operation[Stay]) settle.Terms {
	r := op.Request
	return settle.Terms{Amount: settle.Major(r.Price, r.Currency), Other: map[string]string{
		"room": r.Room, "arrival": r.Arrival, "nights": strconv.Itoa(r.Nights),
	}}
}

// Submit implements settle.ProviderAdapter.
func (b *bookings) Submit(ctx context.Context, c *settle.Call[Stay]) (settle.Observation[Confirmation], error) {
	r := c.Request
	body, err := json.Marshal(booking{
		Reference: c.ID, Room: r.Room, Arrival: r.Arrival, Nights: r.Nights, Price: r.Price.String(), Currency: r.Currency,
	})
	if err != nil {
		return settle.Observation[Confirmation]{Fact: settle.NotSent, Code: "unwritable_request"}, nil //nolint:nilerr // nothing left: that is a fact
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/bookings", bytes.NewReader(body))
	if err != nil {
		return settle.Observation[Confirmation]{Fact: settle.NotSent, Code: "no_request"}, nil //nolint:nilerr // nothing left: that is a fact
	}
	req.Header.Set("Content-Type", "application/json")
	a, err := b.http.Do(req)
	out, done, err := httpsettle.Observe[Confirmation](a, err)
	switch {
	case err != nil, a == nil: // no answer, or provably not sent
		return out, err
	case !done && a.Status == http.StatusCreated:
		return read(a.Body)
	case !done:
		return settle.Observation[Confirmation]{}, fmt.Errorf("hotel: status %d is no booking", a.Status)
	}
	out.Code = reason(a)
	return out, nil
}

// Lookup implements settle.ProviderAdapter: by the hotel's id once it is known, before that by the own
// reference, on every page of the list.
func (b *bookings) Lookup(ctx context.Context, c *settle.Call[Stay]) (settle.Observation[Confirmation], error) {
	if c.Ref != "" {
		reply, err := b.get(ctx, "/bookings/"+url.PathEscape(c.Ref))
		if err != nil {
			return settle.Observation[Confirmation]{}, err
		}
		return read(reply)
	}
	best := settle.Observation[Confirmation]{Fact: settle.NotFound}
	for cursor, n := "", 0; ; n++ {
		reply, err := b.get(ctx, "/bookings?"+url.Values{"reference": {c.ID}, "cursor": {cursor}}.Encode())
		if err != nil {
			return settle.Observation[Confirmation]{}, err
		}
		var page struct {
			Bookings []json.RawMessage `json:"bookings"`
			Next     *string           `json:"next"`
		}
		if err := json.Unmarshal(reply, &page); err != nil || page.Bookings == nil || page.Next == nil || n == maxPages {
			return settle.Observation[Confirmation]{}, errors.Join(errors.New("hotel: a page of the list is unreadable, or there are too many"), err)
		}
		for _, raw := range page.Bookings {
			seen, err := read(raw)
			if err != nil {
				return settle.Observation[Confirmation]{}, err
			}
			// A booking that stands is not hidden by one that was rejected.
			if best.Fact == settle.NotFound || seen.Fact == settle.Applied && best.Fact != settle.Applied {
				best = seen
			}
		}
		if *page.Next == "" {
			return best, nil
		}
		cursor = *page.Next
	}
}

const maxPages = 100

// read says what a booking proves, in the hotel's own words.
func read(raw []byte) (settle.Observation[Confirmation], error) {
	var b booking
	if err := json.Unmarshal(raw, &b); err != nil {
		return settle.Observation[Confirmation]{}, err
	}
	price, err := decimal.NewFromString(b.Price)
	if err != nil || b.ID == "" {
		return settle.Observation[Confirmation]{}, errors.Join(errors.New("hotel: the reply is no booking"), err)
	}
	out := settle.Observation[Confirmation]{Ref: b.ID, Code: b.Status, Result: Confirmation{ID: b.ID}}
	out.Terms = settle.Terms{Amount: settle.Major(price, b.Currency), Other: map[string]string{
		"room": b.Room, "arrival": b.Arrival, "nights": strconv.Itoa(b.Nights),
	}}
	switch b.Status {
	case "requested":
		out.Fact = settle.Underway
	case "confirmed":
		out.Fact = settle.Applied
	case "rejected":
		out.Fact = settle.Declined
	case "canceled":
		out.Fact = settle.Reversed
	}
	return out, nil
}

func (b *bookings) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		return nil, err
	}
	a, err := b.http.Do(req)
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, fmt.Errorf("hotel: status %d", a.Status)
	}
	return a.Body, nil
}
