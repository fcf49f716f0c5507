package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/webhook"
)

// An endpoint for the events of a provider that signs as Stripe does. The event comes twice, and is kept once; a forged one is refused.
func ExampleNewHandler() {
	engine, err := settle.Open(memstore.New(nil), nil) // a shop uses sqlstore
	if err != nil {
		panic(err)
	}
	const secret = "whsec_example"
	v, err := webhook.New(webhook.Stripe(), &webhook.Options{Secrets: []webhook.Secret{{Value: secret}}})
	if err != nil {
		panic(err)
	}
	account := settle.AccountFacts{Provider: "stripe", Account: "acct_1"}
	h, err := webhook.NewHandler(engine, v, account, func(d webhook.Delivery) (settle.Event, error) {
		var e struct {
			ID, Type string
			Data     struct{ Object struct{ ID string } }
		}
		err := json.Unmarshal(d.Body, &e)
		return settle.Event{ID: e.ID, Type: e.Type, Ref: e.Data.Object.ID}, err
	}, &webhook.HandlerOptions{Report: func(r webhook.Report) {
		fmt.Println(r.Status, r.Reason, "duplicate:", r.Observed.Duplicate)
	}})
	if err != nil {
		panic(err)
	}

	deliver := func(secret string) {
		const body = `{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1"}}}`
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = fmt.Fprintf(mac, "%d.%s", time.Now().Unix(), body)
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/webhooks/stripe", strings.NewReader(body))
		r.Header.Set(webhook.StripeHeader, fmt.Sprintf("t=%d,v1=%s", time.Now().Unix(), hex.EncodeToString(mac.Sum(nil))))
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	deliver(secret)
	deliver(secret)
	deliver("whsec_guessed")
	// Output:
	// 200  duplicate: false
	// 200  duplicate: true
	// 400 mismatch duplicate: false
}
