// Package stripefake is a local server that speaks the part of Stripe's API v1
// that the stripe example uses: PaymentIntents that are created and confirmed in one request, or held and canceled,
// refunds, retrieving and listing both, the events of both, and the treatment of the Idempotency-Key
// header. It keeps a ledger of the money that moved, and misbehaves when a test says so.
//
// What it does about keys is what Stripe documents for API v1 ("Idempotent requests"
// and "Advanced error handling" in Stripe's documentation):
//
//   - The status and body of the first request with a key are stored once the endpoint
//     began to execute, whatever they are, a 500 included, and are the answer to every
//     later request with that key, with the header Idempotent-Replayed: true.
//   - A key that comes with another endpoint or other parameters: 400, type idempotency_error.
//   - A key whose first request is still running: 409, code idempotency_key_in_use.
//   - Nothing is stored of a request that was refused before it began to execute: no
//     valid API key (401), too many requests (429), invalid parameters (400), a running one (409).
//   - Keys are forgotten after Options.KeyAge, 24 hours by default: the documentation
//     promises no more. A forgotten key makes a new request.
//
// It is not Stripe: what the documentation leaves open is decided here in the way that is
// hardest for a client.
package stripefake
