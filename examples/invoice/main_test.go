package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/settle-go/settle/examples/internal/bankproc"
	"github.com/settle-go/settle/examples/internal/stagetest"
)

func TestMain(m *testing.M) {
	bankproc.Main() // the provider that run starts is this binary
	os.Exit(m.Run())
}

// The whole story against the provider's process (I3, I8, I9). The verdict is the audit in run; the lines show that it got there.
func TestInvoice(t *testing.T) {
	stagetest.Says(t, run,
		"not approved: settle: execute payment: refused", "may not pay it herself: settle: execute payment: refused",
		"succeeded: ch_1, 1 request in all, approved by ana", "known operation with another request",
		"line 1: duplicate_reference ch_2, suggested: compensate", "refund re_1 of ch_2: succeeded", "2 lines, 2 as expected, 0 news, 0 findings",
		"The supplier has 480.00 EUR, once.",
	)
}

// An audit that cannot fail shows nothing: here nothing was paid.
func TestAuditFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bank, err := bankproc.Start(ctx, filepath.Join(t.TempDir(), "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bank.Close() }()
	if err := audit(ctx, func(string, ...any) {}, bank, "none"); err == nil {
		t.Error("it praises itself all the same")
	}
}
