package settle_test

import (
	"context"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

// I4, I6: a person's "no request had an effect" speaks for the attempts that were there
// when it was said. A process that sends another one in between is not made to send a third.
func TestRegress_PersonSpeaksForNoLaterAttempt(t *testing.T) {
	for _, fact := range []settle.Fact{settle.NotApplied, settle.Declined} {
		variant(t, string(fact), keyed(), func(t *testing.T, r *rig.Rig) {
			r.Promise.Lookup = settle.NoLookup
			r.Provider.Script(pt.DropRequest(), pt.DropReply())
			op := rig.Op("order-1", 100, "EUR")
			p, q := r.Start(&settle.Options{StoreTimeout: time.Hour}), r.Start(nil)
			out, err := p.Charges.Execute(t.Context(), op)
			rig.Is(t, err, settle.ErrUnknown)
			rig.After(5 * time.Minute)
			first := true
			p.Store.BeforeCommit(func(settle.Change) error {
				if !first {
					return nil
				}
				first = false
				_, err := q.Charges.Execute(context.Background(), op) // sends, and gets no reply
				rig.Is(t, err, settle.ErrUnknown)
				rig.After(5 * time.Minute) // until that attempt is quiet, too
				return nil
			})
			rec, err := p.Resolve(t.Context(), out.ID, decision(fact))
			rig.Is(t, err, settle.ErrPending)
			if rec.State != settle.StateUnknown {
				t.Errorf("it is %s, and has its effect", rec.State)
			}
			r.Ledger(2, map[string]int{out.ID: 1})
		})
	}
}

// I9: a wish that no longer fits the confirmed effect stays a wish when a person lets it go
// on: it does not make its operation one that is being undone.
func TestRegress_ResumedWishThatDoesNotFitHoldsNothing(t *testing.T) {
	variant(t, "", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.WrongAmount(1998))
		p := r.Start(nil)
		charge, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 1999, "EUR"))
		rig.Is(t, err, settle.ErrReview)
		wish, err := p.Refunds.Compensate(t.Context(), settle.Effect{Operation: charge.ID}, "returned", rig.Refund{Amount: 1999, Currency: "EUR"})
		rig.Is(t, err, settle.ErrWaiting)
		d := decision(settle.Applied)
		d.Ref = "ch_1"
		_, err = p.Resolve(t.Context(), charge.ID, d)
		rig.OK(t, err)
		if rec := r.State(wish.ID, settle.StateReview); rig.Reason(rec) != settle.ReasonExceeds {
			t.Fatalf("the reason is %q", rig.Reason(rec))
		}
		_, err = p.Resolve(t.Context(), wish.ID, settle.Decision{Actor: "ann", Reason: "again", Evidence: "none", Resume: true})
		rig.OK(t, err)
		rec := r.State(charge.ID, settle.StateSucceeded)
		if len(rec.Ledger) != 1 || rec.Ledger[0].Status != settle.PostingWished {
			t.Errorf("the ledger is %+v, want one wish", rec.Ledger)
		}
		p.Work()
		rig.After(10 * time.Minute)
		r.State(charge.ID, settle.StateSucceeded)
		r.State(wish.ID, settle.StateReview)
		r.Ledger(1, map[string]int{charge.ID: 1, wish.ID: 0})
	})
}
