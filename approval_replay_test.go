package settle_test

import (
	"testing"

	"github.com/settle-go/settle"
)

// Section 6 of the design: approvals are checked only while no record exists. An approval
// for another request than the one that was done under the former is no reason to
// hide what was done: "refused" would be read as "not paid".
func TestApprovalIsNoReasonToHideAnOutcome(t *testing.T) {
	p := newWishShop(t)
	op := wishedPurchase(1999)
	sum, err := p.charges.Fingerprint(op)
	if err != nil {
		t.Fatal(err)
	}
	op.Approval = &settle.Approval{By: "ada", Fingerprint: sum}
	first, err := p.charges.Execute(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	other, err := p.charges.Fingerprint(wishedPurchase(2999))
	if err != nil {
		t.Fatal(err)
	}
	op.Approval = &settle.Approval{By: "ada", Fingerprint: other}
	again, err := p.charges.Execute(t.Context(), op)
	if err != nil || again.ID != first.ID {
		t.Errorf("a replay under another approval: %v, want the receipt", err)
	}
}
