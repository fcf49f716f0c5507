// Command invoice pays a supplier's invoice that somebody approved:
//
//	go run ./invoice
//
// Two clerks pay it at once: one payment. The supplier amends the invoice: that is refused. A third clerk pays it by hand in the
// provider's portal; that is found in the evening, in the settlement file, and refunded once.
//
// The provider is a process of its own (examples/internal/bankproc). What settle is told is in payables.go, the settlement file in
// settlement.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/bankproc"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/providertest"
)

func main() {
	bankproc.Main()
	stage.Main("invoice", run)
}

func run(ctx context.Context, out io.Writer, dir string) (err error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	bank, err := bankproc.Start(ctx, filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bank.Close()) }()
	p, err := newPayables(ctx, filepath.Join(dir, "payables.db"), bank.Client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()

	invoice := providertest.Payment{Amount: 48_000, Currency: "EUR", Invoice: "R-2041"}
	_, err = p.pay(ctx, "carl", invoice, nil)
	say("Invoice R-2041 over 480.00 EUR, not approved: %v", err)
	if !errors.Is(err, settle.ErrRefused) {
		return fmt.Errorf("paid without approval: %w", err)
	}
	approval, err := p.approve(invoice, "ana")
	if err != nil {
		return err
	}
	_, err = p.pay(ctx, "ana", invoice, approval)
	say("Ana approves exactly this, and may not pay it herself: %v", err)
	if !errors.Is(err, errOwnApproval) {
		return fmt.Errorf("paid by who approved it: %w", err)
	}
	say("Two clerks pay it at the same moment.")
	var clerks sync.WaitGroup
	errs := make([]error, 2)
	for i, clerk := range []string{"carl", "cleo"} {
		clerks.Go(func() { _, errs[i] = p.pay(ctx, clerk, invoice, approval) })
	}
	clerks.Wait()
	paid, err := p.pay(ctx, "carl", invoice, approval)
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	say("  %s: %s, %d request in all, approved by %s", paid.State, paid.References[0].Ref, len(paid.Attempts), paid.Approval.By)

	amended := invoice
	amended.Amount = 84_000
	_, err = p.pay(ctx, "carl", amended, approval)
	say("The supplier amends it to 840.00 EUR: %v", err)
	if !errors.Is(err, settle.ErrMismatch) && !errors.Is(err, settle.ErrRefused) {
		return fmt.Errorf("the amended invoice: %w", err)
	}

	// Under the same reference, since it was copied from the first payment, and under a key of the portal's own.
	byHand, err := bank.CreateCharge(ctx, providertest.Params{
		Key: "portal-77", Reference: paid.ID, Account: p.account.Account, Amount: invoice.Amount, Currency: invoice.Currency,
	})
	if err != nil {
		return err
	}
	say("A third clerk pays it by hand in the portal: %s. Nothing here knows.", byHand.ID)

	file := filepath.Join(dir, "settlement.csv")
	for _, evening := range []string{"first", "second"} {
		if err := writeSettlement(ctx, bank, file); err != nil {
			return err
		}
		say("The %s evening, the settlement file:", evening)
		if err := p.settlement(ctx, file, say); err != nil {
			return err
		}
	}
	return audit(ctx, say, bank, paid.ID)
}

// audit: of two payments one is left, and it is the approved amount.
func audit(ctx context.Context, say func(string, ...any), bank *bankproc.Process, id string) error {
	ledger, err := bank.Ledger(ctx)
	if err != nil {
		return err
	}
	say("The provider's ledger:")
	var paid, back int64
	for _, o := range ledger {
		say("  %-5s %-7s %6d %s %s", o.ID, o.Kind, o.Amount, o.Currency, o.Parent)
		switch {
		case o.Kind == providertest.KindRefund:
			back += o.Amount
		case o.Reference == id:
			paid += o.Amount
		}
	}
	if len(ledger) != 3 || paid != 96_000 || back != 48_000 {
		return fmt.Errorf("%d effects, %d paid and %d refunded", len(ledger), paid, back)
	}
	say("The supplier has 480.00 EUR, once.")
	return nil
}
