package settle_test

import (
	"errors"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// TestParentIsLeftAlone: a compensation touches its parent when its share of the ledger moves: at its registration,
// its start and its end. A refund that is unknown, and stays so, does not write it: many refunds of one charge would
// wait for each other.
func TestParentIsLeftAlone(t *testing.T) {
	p := newWishShopAt(t, providertest.ConcurrentUnsafe) // nothing is sent again before it is quiet
	charge, err := p.charges.Execute(t.Context(), wishedPurchase(1999))
	if err != nil {
		t.Fatal(err)
	}
	version := func() int64 {
		t.Helper()
		r, err := p.store.Get(t.Context(), settle.ByID(charge.ID))
		if err != nil {
			t.Fatal(err)
		}
		return r.Version
	}
	before := version()
	p.provider.Script(providertest.DropReply())
	for range 20 {
		p.provider.ScriptLookup(providertest.Status(503, ""))
	}
	refund, err := p.refunds.Compensate(t.Context(), settle.Effect{Operation: charge.ID}, "goodwill", wishedRefund(500))
	if !errors.Is(err, settle.ErrUnknown) {
		t.Fatal(err)
	}
	if got := version() - before; got != 1 {
		t.Errorf("the parent was written %d times, want 1: the reservation, which is the start", got)
	}
	before = version()
	for range 2 {
		r, err := p.engine.Reconcile(t.Context(), refund.ID)
		if err != nil || r.State != settle.StateUnknown {
			t.Fatal(r, err)
		}
	}
	if version() != before {
		t.Error("the parent was written for a refund that stays unknown")
	}
	r, err := p.engine.Reconcile(t.Context(), refund.ID)
	for err == nil && r.State == settle.StateUnknown && p.provider.ScriptLeft() > 0 {
		r, err = p.engine.Reconcile(t.Context(), refund.ID)
	}
	if err == nil && r.State == settle.StateUnknown {
		r, err = p.engine.Reconcile(t.Context(), refund.ID)
	}
	if err != nil || r.State != settle.StateSucceeded {
		t.Fatal(r, err)
	}
	if got := version() - before; got != 1 {
		t.Errorf("the parent was written %d times by the refund's end, want 1", got)
	}
}
