// Command stripe charges a card through Stripe's own SDK: the reply is lost, the process
// ends without knowing what happened, the next one finds out, and there is one PaymentIntent.
//
//	go run ./stripe
//
// The adapter is in contract.go (what Stripe promises), charge.go, refund.go and void.go (what is sent and asked), answer.go (what
// an error proves), webhook.go (what its events mean) and client.go (how the SDK is set up). Here Stripe is a local server, package
// stripefake, that treats keys as Stripe documents.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/examples/stripe/stripefake"
)

func main() { stage.Main("stripe", run) }

func run(ctx context.Context, out io.Writer, dir string) error {
	file := filepath.Join(dir, "shop.db")
	fake := stripefake.New(nil)
	url, closeServer, err := stage.Serve(ctx, fake)
	if err != nil {
		return err
	}
	defer closeServer()

	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	order := settle.Operation[Charge]{
		Subject: "order-8472", Purpose: "purchase",
		Request: Charge{
			Amount: 1999, Currency: "EUR", PaymentMethod: stripefake.Visa,
			Customer: "cus_ada", Since: time.Now().Add(-time.Minute).Unix(), // as stored with the order
		},
	}

	say("Process A charges 19.99 EUR for order-8472. Its network fails before the reply arrives.")
	broken := &failing{RoundTripper: http.DefaultTransport}
	err = inProcess(ctx, file, url, broken, func(s *shop) error {
		o, err := s.charges.Execute(ctx, order)
		say("  => %s: %s", o.State, o.Next.Advice())
		if !errors.Is(err, settle.ErrPending) {
			return fmt.Errorf("process A should not know, and says %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	say("Stripe has %d PaymentIntent. Process A is gone.\n\nProcess B charges the same order.", len(fake.Intents()))
	err = inProcess(ctx, file, url, http.DefaultTransport, func(s *shop) error {
		for {
			o, err := s.charges.Execute(ctx, order)
			if errors.Is(err, settle.ErrPending) {
				time.Sleep(50 * time.Millisecond) // the same call again: that is always safe
				continue
			}
			if err != nil {
				return err
			}
			receipt, _ := o.Result()
			say("  => %s: receipt %s, %d request with effect sent in all", o.State, receipt.ID, len(o.Attempts))
			return nil
		}
	})
	if err != nil {
		return err
	}
	say("\nStripe's ledger:")
	for _, m := range fake.Ledger() {
		say("  %s  %d %s", m.ID, m.Amount, m.Currency)
	}
	if n := len(fake.Ledger()); n != 1 {
		return fmt.Errorf("the customer paid %d times", n)
	}
	say("The customer paid once, and the shop knows it.")
	return nil
}

// inProcess opens the shop on the database file, does something with it, and shuts it down.
func inProcess(ctx context.Context, file, url string, network http.RoundTripper, do func(*shop) error) error {
	db, store, err := stage.Open(ctx, file, "")
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := newShop(store, newClient("sk_test_local", url, network, contract("acct_1", "test")), "acct_1", "test", settle.Options{Scope: "shop"})
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.engine.Drain(ctx))
}

// failing is a network that delivers the first request and nothing after it, replies included.
type failing struct {
	http.RoundTripper
	down atomic.Bool
}

func (f *failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.down.Swap(true) {
		return nil, errors.New("network is down")
	}
	res, err := f.RoundTripper.RoundTrip(r)
	if err == nil {
		_ = res.Body.Close()
	}
	return nil, errors.Join(errors.New("network is down"), err)
}
