// Package examples holds runnable programs that use settle, one in each folder,
// and a test for each:
//
//   - lostreply: a lost reply and a killed process, without settle and with it. Start here.
//   - webhandler: a payment endpoint, its answers, and the order marked as paid in one transaction.
//   - worker: charges and refunds registered next to business rows, done by a worker.
//   - metrics: a worker that is watched: /metrics for Prometheus, and everything that its alerts read.
//   - agenttool: a payment tool for a language model that forgets and repeats, as a function and by MCP.
//   - stripe: charge, refund, authorization, void and webhook around Stripe's SDK, with what Stripe documents about keys and errors.
//   - keyless: an adapter for a provider without idempotency keys; nothing is sent twice.
//   - async: an adapter for a bank that decides days later, and the webhook by which it says so.
//   - ec2: an adapter around Amazon's SDK: a machine that is launched once, under its client token.
//   - subscription: a webhook before its reply, a charge that is taken back, partial refunds.
//   - invoice: an approved invoice paid once, an amended one refused, a duplicate found in a settlement file and refunded.
//   - feed (a module of its own): transitions published through Watermill to NATS or a table, and the inbox that applies each once.
//   - boltstore: a store of one's own, over bbolt, which docs/store-authors.md walks through.
//
// It is a module of its own so that what a program needs (a database driver, a
// provider's SDK) never becomes a requirement of the root module. It is never
// tagged and not meant to be imported.
package examples
