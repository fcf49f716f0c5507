// Command subscription charges a customer every month:
//
//	go run ./subscription
//
// In January the provider's webhook is faster than its reply, and comes three times: access is granted once. In
// February the bank takes the charge back after a dispute: access ends, and a refund finds that there is nothing left to refund. In
// March the customer leaves, and gets a part back.
//
// The provider is a process of its own (examples/internal/bankproc). What settle is told, and how, is in billing.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/bankproc"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/providertest"
)

func main() {
	bankproc.Main()
	stage.Main("subscription", run)
}

func run(ctx context.Context, out io.Writer, dir string) (err error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	bank, err := bankproc.Start(ctx, filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bank.Close()) }()
	b, err := newBilling(ctx, filepath.Join(dir, "billing.db"), bank.Client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()

	say("January: the charge is made, the reply takes its time, and the webhook overtakes it.")
	if err := bank.Hold(ctx); err != nil {
		return err
	}
	type answer struct {
		out settle.Outcome[providertest.Receipt]
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		out, err := b.charge(ctx, "2027-01")
		answers <- answer{out, err}
	}()
	if err := bank.Charged(ctx); err != nil {
		return err
	}
	for range 3 { // providers deliver at least once
		if err := b.webhooks(ctx, 0); err != nil {
			return err
		}
	}
	say("  webhook: access granted in %v, while the request is still open", b.months(ctx))
	if err := bank.Release(ctx); err != nil {
		return err
	}
	january := <-answers
	if january.err != nil {
		return january.err
	}
	say("  reply:   %s %s, nothing new; granted %d time", january.out.State, january.out.References[0].Ref, b.grants(ctx, "2027-01"))

	say("February: paid, and weeks later disputed. The bank takes the money back.")
	february, err := b.charge(ctx, "2027-02")
	if err != nil {
		return err
	}
	if err := errors.Join(bank.Reverse(ctx, february.References[0].Ref), b.webhooks(ctx, 0)); err != nil {
		return err
	}
	if february, err = b.charge(ctx, "2027-02"); !errors.Is(err, settle.ErrFailed) {
		return fmt.Errorf("a charge that was taken back is %s: %w", february.State, err)
	}
	say("  %s: %s is %s, and access ends; next: %s", february.State, february.References[0].Ref, february.References[0].Rank, february.Next)
	if err := b.revoke(ctx, "2027-02"); err != nil {
		return err
	}
	_, err = b.refund(ctx, february.ID, "goodwill", 900)
	say("  a clerk wants to refund it too: %v", err)
	if !errors.Is(err, settle.ErrNoEffect) {
		return fmt.Errorf("refunded what is gone: %w", err)
	}

	say("March: the customer leaves after a third of the month. Two thirds go back, however often it is clicked.")
	march, err := b.charge(ctx, "2027-03")
	if err != nil {
		return err
	}
	for range 2 {
		back, err := b.refund(ctx, march.ID, "left early", 600)
		if err != nil {
			return err
		}
		say("  refund %s: %s", back.References[0].Ref, back.State)
	}
	_, err = b.refund(ctx, march.ID, "angry letter", 600)
	say("  and 600 more: %v", err)
	if !errors.Is(err, settle.ErrExceeds) {
		return fmt.Errorf("refunded more than was paid: %w", err)
	}
	return audit(ctx, say, bank, b)
}

// audit holds what happened at the provider against what the customer has.
func audit(ctx context.Context, say func(string, ...any), bank *bankproc.Process, b *billing) error {
	ledger, err := bank.Ledger(ctx)
	if err != nil {
		return err
	}
	say("The provider's ledger:")
	effects := map[string]int{}
	kept := int64(0)
	for _, o := range ledger {
		say("  %-5s %-7s %4d %s %s", o.ID, o.Kind, o.Amount, o.Currency, o.Status)
		effects[o.Reference]++
		switch {
		case o.Status != providertest.StatusSucceeded:
		case o.Kind == providertest.KindRefund:
			kept -= o.Amount
		default:
			kept += o.Amount
		}
	}
	for id, n := range effects {
		if n != 1 {
			return fmt.Errorf("operation %s had %d effects", id, n)
		}
	}
	if months := b.months(ctx); len(ledger) != 4 || kept != price+price-600 || fmt.Sprint(months) != "[2027-01 2027-03]" {
		return fmt.Errorf("%d effects, %d kept, access in %v", len(ledger), kept, months)
	}
	say("Each operation had one effect; access in %v, each granted once.", b.months(ctx))
	return nil
}
