package main

import (
	"net/http"

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
