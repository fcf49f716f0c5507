// Command async pays out through a bank that accepts at once and decides days later: the reply is lost, the payout is
// found to be in process, and an event settles it.
//
//	go run ./async
//
// The adapter is in payout.go, the bank, a local server, in package bank. Its events are Standard Webhooks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/async/bank"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/stdwebhook"
	"github.com/settle-go/settle/webhook"
)

// secret signs the events of the local bank. A real one comes from where your other secrets are.
const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func main() { stage.Main("async", run) }

// office is what pays out, and the endpoint for the bank's events.
type office struct {
	engine   *settle.Engine
	payouts  *settle.Executor[Payout, Receipt]
	webhooks *webhook.Handler
}

func newOffice(store settle.Store, base string, transport http.RoundTripper, onPaid func(context.Context, settle.Tx, settle.Outcome[Receipt]) error) (*office, error) {
	engine, err := settle.Open(store, &settle.Options{Scope: "office"})
	if err != nil {
		return nil, err
	}
	promise := contract()
	adapter, err := newAdapter(base, transport, promise)
	if err != nil {
		return nil, err
	}
	o := &office{engine: engine}
	if o.payouts, err = settle.New(engine, "payout", adapter, &settle.ExecutorOptions[Payout, Receipt]{OnSuccess: onPaid}); err != nil {
		return nil, err
	}
	v, err := webhook.New(stdwebhook.Scheme(), &webhook.Options{Secrets: []webhook.Secret{{Value: secret}}})
	if err != nil {
		return nil, err
	}
	o.webhooks, err = webhook.NewHandler(engine, v, promise.Account, readEvent, nil)
	return o, err
}

func run(ctx context.Context, out io.Writer, dir string) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	b := bank.New(&bank.Options{Secret: secret})
	bankURL, closeBank, err := stage.Serve(ctx, b)
	if err != nil {
		return err
	}
	defer closeBank()
	db, store, err := stage.Open(ctx, filepath.Join(dir, "payouts.db"), "")
	if err != nil {
		return err
	}
	defer db.Close()
	paid := make(chan string, 2)
	o, err := newOffice(store, bankURL, http.DefaultTransport, func(_ context.Context, _ settle.Tx, out settle.Outcome[Receipt]) error {
		paid <- out.Subject // a real one writes through the transaction
		return nil
	})
	if err != nil {
		return err
	}
	hookURL, closeHook, err := stage.Serve(ctx, o.webhooks)
	if err != nil {
		return err
	}
	defer closeHook()

	b.LoseReplies(1)
	salary := settle.Operation[Payout]{
		Subject: "employee-7", Purpose: "salary 2026-11", Request: Payout{Amount: 312_050, Currency: "EUR", IBAN: "NL91ABNA0417164300"},
	}
	say("Pay out 3120.50 EUR. The bank's reply is lost.")
	got, err := o.payouts.Execute(ctx, salary)
	say("  => %s: %s", got.State, got.Next.Advice())
	if !errors.Is(err, settle.ErrPending) {
		return fmt.Errorf("the bank has not decided, and the outcome is %w", err)
	}
	say("Days later the bank has paid, and says so; first to an endpoint that is down, then twice.")
	b.Decide(b.Payouts()[0].ID, "paid", "")
	refused := b.DeliverAll(ctx, http.DefaultClient, "http://127.0.0.1:1/")
	say("  %d events were not delivered", refused)
	b.DeliverAll(ctx, http.DefaultClient, hookURL)
	for _, ev := range b.Events() {
		if err := b.Deliver(ctx, http.DefaultClient, hookURL, ev); err != nil {
			return err
		}
	}
	got, err = o.payouts.Execute(ctx, salary)
	if err != nil {
		return err
	}
	receipt, _ := got.Result()
	say("  => %s: receipt %s; fulfilled for %s, once", got.State, receipt.ID, <-paid)
	if n := len(b.Payouts()); n != 1 || len(paid) != 0 {
		return fmt.Errorf("%d payouts, %d more fulfilments", n, len(paid))
	}
	return o.engine.Drain(ctx)
}
