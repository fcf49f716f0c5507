package main

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	stripe "github.com/stripe/stripe-go/v85"

	"github.com/settle-go/settle"
)

// newClient makes the SDK's client. url is empty for Stripe itself. Four defaults of the SDK are
// changed:
//
//   - MaxNetworkRetries is 0 instead of 2. The SDK would repeat under the same key, which is harmless, but
//     it sleeps between tries without looking at the context, and settle repeats anyway.
//   - The HTTP client is bounded by the contract's deadline instead of 80 seconds, and follows no
//     redirect: a request with a secret goes nowhere else.
//   - Telemetry is off.
//   - The logger is off: it prints errors, and at its debug level bodies, with client secrets (I16).
func newClient(secret, url string, transport http.RoundTripper, promise settle.Contract) *stripe.Client {
	config := &stripe.BackendConfig{
		EnableTelemetry:   stripe.Bool(false),
		MaxNetworkRetries: stripe.Int64(0),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		HTTPClient: &http.Client{
			Transport:     transport,
			Timeout:       promise.Deadline,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if url != "" {
		config.URL = stripe.String(url)
	}
	return stripe.NewClient(secret, stripe.WithBackends(stripe.NewBackendsWithConfig(config)))
}

// watch reports whether a request ever had a connection. Only one that had none was certainly not
// sent. The error does not tell: Go's transport repeats a POST with an Idempotency-Key
// by itself when a kept-alive connection dies under it, and if that second copy finds the door
// closed, the error says "dial refused" although the first copy may have arrived.
func watch(ctx context.Context) (_ context.Context, connected func() bool) {
	had := new(atomic.Bool)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { had.Store(true) },
	})
	return ctx, had.Load
}
