package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/bankproc"
	"github.com/settle-go/settle/providertest"
)

// settlement holds the day's file against what is known, and refunds what was paid twice. Only that: what needs a lookup or a
// person is told. A process that dies here goes on from the position in the second file; the refund of a finding that comes
// twice is the same refund.
func (p *payables) settlement(ctx context.Context, file string, say func(string, ...any)) error {
	position, err := os.ReadFile(file + ".position")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	sum, err := p.engine.ReconcileReport(ctx, settle.ReportOf(lines(file)), &settle.ReportOptions{
		Account: p.account.String(), Kinds: []string{"payment"},
		// All that exists until now: a real file is of a day, and a slack longer than the clocks differ.
		Until: time.Now(), Slack: time.Nanosecond,
		Resume: position,
		Save:   func(_ context.Context, position []byte) error { return os.WriteFile(file+".position", position, 0o600) },
		Found: func(ctx context.Context, f settle.Finding) error {
			say("  line %d: %s %s, suggested: %s", f.Line, f.Kind, f.Effect.Ref, f.Suggest)
			if f.Suggest != settle.SuggestCompensate {
				return nil
			}
			back, err := p.refunds.Compensate(ctx, f.Effect, "paid twice", providertest.Refund{})
			if err != nil {
				return err
			}
			say("  refund %s of %s: %s", back.References[0].Ref, f.Effect.Ref, back.State)
			return nil
		},
	})
	if err != nil {
		return err
	}
	say("  %d lines, %d as expected, %d news, %d findings", sum.Lines, sum.Matched, sum.Learned, sum.Found)
	return os.Remove(file + ".position")
}

// lines reads the file's payments: a column each for our reference, theirs, and the amount in cents.
func lines(file string) iter.Seq2[settle.ReportLine, error] {
	return func(yield func(settle.ReportLine, error) bool) {
		f, err := os.Open(file) //nolint:gosec // the file of the day
		if err != nil {
			yield(settle.ReportLine{}, err)
			return
		}
		defer func() { _ = f.Close() }() // it was only read
		rows := csv.NewReader(f)
		rows.FieldsPerRecord = 5
		for {
			row, err := rows.Read()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(settle.ReportLine{}, err)
				return
			}
			if row[0] != "payment" {
				continue // a refund is a line of another pass, a fee of none
			}
			cents, err := strconv.ParseInt(row[3], 10, 64)
			l := settle.ReportLine{Operation: row[1], Ref: row[2], Terms: settle.Terms{Amount: settle.Minor(cents, row[4])}}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// writeSettlement plays the provider's batch job: a file of everything it did.
func writeSettlement(ctx context.Context, bank *bankproc.Process, file string) (err error) {
	ledger, err := bank.Ledger(ctx)
	if err != nil {
		return err
	}
	f, err := os.Create(file) //nolint:gosec // the file of the day
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := csv.NewWriter(f)
	for _, o := range ledger {
		kind := "payment"
		if o.Kind == providertest.KindRefund {
			kind = "refund"
		}
		if err := w.Write([]string{kind, o.Reference, o.ID, fmt.Sprint(o.Amount), o.Currency}); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
