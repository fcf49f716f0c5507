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
