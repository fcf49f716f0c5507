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

// The whole story against the provider's process (I7, I8, I9, I11). The verdict is the audit in run; the lines show that it got there.
func TestSubscription(t *testing.T) {
	stagetest.Says(t, run,
		"access granted in [2027-01], while the request is still open", "succeeded ch_1, nothing new; granted 1 time", "no effect to undo", "exceeds the confirmed effect",
		"ch_2  charge   900 EUR reversed", "refund   600 EUR succeeded", "access in [2027-01 2027-03], each granted once",
	)
}

// An audit that cannot fail shows nothing: here two months are granted and nothing was charged.
func TestAuditFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bank, err := bankproc.Start(ctx, filepath.Join(t.TempDir(), "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bank.Close() }()
	b, err := newBilling(ctx, filepath.Join(t.TempDir(), "billing.db"), bank.Client)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.close(ctx) }()
	for _, month := range []string{"2027-01", "2027-03"} {
		if _, err := b.db.ExecContext(ctx, `INSERT INTO access (month, grants) VALUES (?, 1)`, month); err != nil {
			t.Fatal(err)
		}
	}
	if err := audit(ctx, func(string, ...any) {}, bank, b); err == nil {
		t.Error("it praises itself all the same")
	}
}
