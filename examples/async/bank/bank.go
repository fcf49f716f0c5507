// Package bank is an asynchronous payout API for the async example: it accepts, decides days later, and
// reports what it decided by Standard Webhooks. It keeps a ledger, and misbehaves when a test says so.
//
//	POST /payouts            {"reference", "amount", "currency", "iban"}, header Idempotency-Key
//	GET  /payouts/{id}
//	GET  /payouts?reference=…  {"payouts": […]}
//
// Amounts are in the currency's smallest unit. An accepted payout is 202 and processing; a repeat under its key is 200 and the
// payout as it is now. Errors are {"error": "code"}: 422 insufficient_funds or unknown_account, 409 key_reused, 401, 429.
package bank

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Payout is a payout, and with its first fields the request for one.
type Payout struct {
	Reference string `json:"reference"` // the customer's own
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	IBAN      string `json:"iban"`

	ID       string `json:"id,omitempty"`
	Status   string `json:"status,omitempty"` // processing, paid, failed, returned
	Code     string `json:"code,omitempty"`   // why it failed or was returned
	Revision int64  `json:"revision,omitempty"`

	key string
}

// Options configure a Bank. The zero value works, without events.
type Options struct {
	Now     func() time.Time // nil means time.Now
	Secret  string           // signs events
	OnTaken func(Payout)     // called when a payout was accepted, before any reply
}

// Bank is the API, an http.Handler. It is safe for concurrent use.
type Bank struct {
	opts Options
	sign *standard.Webhook

	mu      sync.Mutex
	payouts []*Payout
	events  []*Event
	lose    int // of the replies to come
}

// Event is what is sent to the customer.
type Event struct {
	ID   string
	Body []byte

	delivered bool
}

// New returns a bank. It panics if the secret is none.
func New(o *Options) *Bank {
	b := &Bank{}
	if o != nil {
		b.opts = *o
	}
	if b.opts.Now == nil {
		b.opts.Now = time.Now
	}
	if b.opts.Secret != "" {
		var err error
		if b.sign, err = standard.NewWebhook(b.opts.Secret); err != nil {
			panic("bank: " + err.Error())
		}
	}
	return b
}

// LoseReplies makes the next n accepted payouts have no reply.
func (b *Bank) LoseReplies(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lose = n
}

// Effects counts the payouts under a reference that have moved money, or may still.
func (b *Bank) Effects(reference string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, p := range b.payouts {
		if p.Reference == reference && p.Status != "failed" && p.Status != "returned" {
			n++
		}
	}
	return n
}

// Payouts returns all of them, oldest first.
func (b *Bank) Payouts() []Payout {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Payout, 0, len(b.payouts))
	for _, p := range b.payouts {
		out = append(out, *p)
	}
	return out
}

// Decide sets the status of a payout, and makes the event that says so.
func (b *Bank) Decide(id, status, code string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.payouts {
		if p.ID == id {
			p.Status, p.Code = status, code
			b.report(p)
		}
	}
}

func (b *Bank) report(p *Payout) {
	p.Revision++
	body, err := json.Marshal(map[string]any{
		"type": "payout." + p.Status, "timestamp": b.opts.Now().UTC().Format(time.RFC3339Nano), "data": p,
	})
	if err != nil {
		panic(err) // of strings and numbers
	}
	b.events = append(b.events, &Event{ID: fmt.Sprintf("msg_%d", len(b.events)+1), Body: body})
}

// Events returns every event, in order, for tests that deliver them in another one.
func (b *Bank) Events() []*Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// Deliver sends one event, signed now; again if it is called again.
func (b *Bank) Deliver(ctx context.Context, client *http.Client, url string, ev *Event) error {
	now := b.opts.Now()
	signature, err := b.sign.Sign(ev.ID, now, ev.Body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(ev.Body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(standard.HeaderWebhookID, ev.ID)
	req.Header.Set(standard.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(standard.HeaderWebhookSignature, signature)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("bank: the endpoint answered %d", res.StatusCode)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ev.delivered = true
	return nil
}

// DeliverAll sends what was not accepted yet, in order, and goes on after one that is refused, as a bank that tries again later.
func (b *Bank) DeliverAll(ctx context.Context, client *http.Client, url string) (refused int) {
	for _, ev := range b.Events() {
		b.mu.Lock()
		done := ev.delivered
		b.mu.Unlock()
		if !done && b.Deliver(ctx, client, url, ev) != nil {
			refused++
		}
	}
	return refused
}

// ServeHTTP implements http.Handler.
func (b *Bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payouts", b.create)
	mux.HandleFunc("GET /payouts/{id}", func(w http.ResponseWriter, r *http.Request) {
		for _, p := range b.Payouts() {
			if p.ID == r.PathValue("id") {
				answer(w, http.StatusOK, p)
				return
			}
		}
		refuse(w, http.StatusNotFound, "no_such_payout")
	})
	mux.HandleFunc("GET /payouts", func(w http.ResponseWriter, r *http.Request) {
		found := slices.DeleteFunc(b.Payouts(), func(p Payout) bool { return p.Reference != r.URL.Query().Get("reference") })
		answer(w, http.StatusOK, map[string]any{"payouts": found})
	})
	mux.ServeHTTP(w, r)
}

func (b *Bank) create(w http.ResponseWriter, r *http.Request) {
	var p Payout
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&p); err != nil || p.Amount <= 0 || p.Currency == "" {
		refuse(w, http.StatusBadRequest, "invalid")
		return
	}
	p = Payout{Reference: p.Reference, Amount: p.Amount, Currency: p.Currency, IBAN: p.IBAN, key: r.Header.Get("Idempotency-Key")}
	if p.IBAN == "unknown" {
		refuse(w, http.StatusUnprocessableEntity, "unknown_account")
		return
	}
	b.mu.Lock()
	for _, old := range b.payouts {
		if p.key == "" || old.key != p.key {
			continue
		}
		was, asked := *old, p
		b.mu.Unlock()
		asked.ID, asked.Status, asked.Code, asked.Revision = was.ID, was.Status, was.Code, was.Revision
		if was != asked {
			refuse(w, http.StatusConflict, "key_reused")
			return
		}
		answer(w, http.StatusOK, was)
		return
	}
	p.ID, p.Status = fmt.Sprintf("po_%d", len(b.payouts)+1), "processing"
	b.payouts = append(b.payouts, &p)
	b.report(&p)
	lose := b.lose > 0
	if lose {
		b.lose--
	}
	taken := p
	b.mu.Unlock()
	if b.opts.OnTaken != nil {
		b.opts.OnTaken(taken)
	}
	if lose {
		panic(http.ErrAbortHandler)
	}
	answer(w, http.StatusAccepted, taken)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func refuse(w http.ResponseWriter, status int, code string) {
	answer(w, status, map[string]string{"error": code})
}
