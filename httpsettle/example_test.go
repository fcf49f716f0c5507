package httpsettle_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

// A payment endpoint. The provider does the work and its reply is lost; the client sends the same request again.
func ExampleNewHandler() {
	offer := &providertest.Options{KeyWindow: 24 * time.Hour}
	provider := providertest.New(offer)
	engine, err := settle.Open(memstore.New(nil), nil) // a shop uses sqlstore
	if err != nil {
		panic(err)
	}
	charges, err := settle.New(engine, "charge", providertest.ChargeAdapter(provider, providertest.Promise(offer)), nil)
	if err != nil {
		panic(err)
	}

	h, err := httpsettle.NewHandler(engine, charges,
		func(r *http.Request) (string, error) { // who asks; here from a header that a test may set
			return r.Header.Get("X-User"), nil
		},
		func(r *http.Request, body []byte) (settle.Operation[providertest.Payment], error) {
			op := settle.Operation[providertest.Payment]{Subject: r.PathValue("order"), Purpose: "purchase"}
			return op, httpsettle.Decode(body, &op.Request)
		}, nil)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{order}/payments", h)
	mux.Handle("GET /orders/{order}/payments/{id}", h)

	pay := func(user, key string) {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/orders/8472/payments", strings.NewReader(`{"amount":1999,"currency":"EUR"}`))
		r.Header = http.Header{"X-User": {user}, "Content-Type": {"application/json"}, "Idempotency-Key": {key}}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		kind := w.Header().Get("Content-Type")
		fmt.Println(w.Code, kind, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	provider.Script(providertest.DropReply())
	pay("ann", `"4f1c"`)
	pay("ann", `"4f1c"`)
	pay("ann", `"another key"`)
	pay("ann", `4f1c`)
	pay("", `"4f1c"`)
	fmt.Println("charges:", len(provider.Ledger()))
	// Output:
	// 200 application/json replayed: false
	// 200 application/json replayed: true
	// 409 application/problem+json replayed: false
	// 400 application/problem+json replayed: false
	// 401 application/problem+json replayed: false
	// charges: 1
}
