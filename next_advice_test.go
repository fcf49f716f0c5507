package settle_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// A store that failed says nothing about the effect, so the advice must not either.
func TestAdviceAfterAStoreErrorClaimsNothing(t *testing.T) {
	for _, sentinel := range []error{settle.ErrStore, settle.ErrUncommitted, settle.ErrDraining} {
		advice := (&settle.Error{Err: sentinel}).Next().Advice()
		if strings.Contains(advice, "Nothing had an effect") {
			t.Errorf("%v: %q", sentinel, advice)
		}
	}
}

// What was done and came undone is not told as if nothing had happened.
func TestAdviceAfterAReversal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig.New(t, memstore.New(nil), nil)
		p := r.Start(nil)
		r.Provider.Script(pt.Status(402, "card_declined"))
		refused, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 5, "EUR"))
		rig.Is(t, err, settle.ErrFailed)
		done, err := p.Charges.Execute(t.Context(), rig.Op("order-2", 5, "EUR"))
		rig.OK(t, err)
		rig.OK(t, r.Provider.Reverse(r.Provider.Objects()[0].ID))
		_, err = p.Refresh(t.Context(), done.ID)
		rig.OK(t, err)
		undone, err := p.Charges.Execute(t.Context(), rig.Op("order-2", 5, "EUR"))
		rig.Is(t, err, settle.ErrFailed)
		for _, c := range []struct {
			out  settle.Outcome[rig.Receipt]
			want settle.Next
			says string
		}{
			{refused, settle.NextShowFailure, "nothing happened"},
			{undone, settle.NextShowReversal, "came undone"},
		} {
			if c.out.Next != c.want || c.out.Record.Next() != c.want || !strings.Contains(c.out.Next.Advice(), c.says) {
				t.Errorf("%v: next %q, of the record %q: %q", c.out, c.out.Next, c.out.Record.Next(), c.out.Next.Advice())
			}
		}
	})
}
