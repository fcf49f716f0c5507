// Package webhook takes in what providers report by themselves: it verifies the signature over the raw
// bytes, has [settle.Engine.Observe] keep and merge the event in one step, and answers 2xx only when it is durable.
//
// A [Scheme] is one provider's way of signing. [Stripe] is here; Standard Webhooks are in the
// package stdwebhook, a module of its own, since they are verified by that standard's own library. A
// [Verifier] adds what every scheme needs: several secrets with an end time each, and a tolerance in both
// directions. A [Handler] is an [http.Handler] around both.
//
//	v, err := webhook.New(webhook.Stripe(), &webhook.Options{Secrets: []webhook.Secret{{Value: secret}}})
//	h, err := webhook.NewHandler(engine, v, account, readEvent, nil)
//	mux.Handle("POST /webhooks/stripe", h)
//
// Mount it where nobody has touched the body: a middleware that decodes and encodes it again breaks every
// signature (IC-43), and there is no fallback that verifies anything else than what was sent.
package webhook
