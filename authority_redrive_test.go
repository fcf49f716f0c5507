package settle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
)

// TestPolicy_Redrive: the policy is asked before a consequence is run again, and the history says who it was, and by
// which rule. A refusal leaves it set aside.
func TestPolicy_Redrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig.New(t, memstore.New(nil), nil)
		mended := false
		o := settle.Options{PollInterval: 10 * time.Second, Policy: func(_ context.Context, ask settle.Ask) (settle.Grant, error) {
			if ask.Action == settle.ActionRedrive && ask.Actor != "ann" {
				return settle.Grant{}, errors.New("only ann")
			}
			return settle.Grant{Rule: "shop-1"}, nil
		}}
		p := r.StartWith(&o, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[rig.Receipt]) error {
				if mended {
					return nil
				}
				return errors.New("out of paper")
			},
		})
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 5, "EUR"))
		rig.Is(t, err, settle.ErrConsequence)
		p.Work()
		rig.After(2 * time.Hour)
		if now := r.Get(out.ID); now.Consequence != settle.ConsequenceAside {
			t.Fatalf("the consequence is %q", now.Consequence)
		}
		mended = true
		err = p.Redrive(settle.WithActor(t.Context(), "ben"), out.ID, settle.By{Actor: "ben", Reason: "mended"})
		rig.Typed(t, err, settle.ErrRefused, "Policy")
		err = p.Redrive(settle.WithActor(t.Context(), "ben"), out.ID, settle.By{Actor: "ann", Reason: "mended"})
		rig.Typed(t, err, settle.ErrRefused, "Actor")
		if now := r.Get(out.ID); now.Consequence != settle.ConsequenceAside {
			t.Errorf("after a refusal the consequence is %q", now.Consequence)
		}
		rig.OK(t, p.Redrive(settle.WithActor(t.Context(), "ann"), out.ID, settle.By{Actor: "ann", Reason: "mended"}))
		if now := r.Get(out.ID); now.Consequence != settle.ConsequenceDone {
			t.Errorf("the consequence is %q", now.Consequence)
		}
		h := r.History(out.ID)
		if x := h[len(h)-1]; x.Code != settle.CodeRedriven || x.Actor != "ann" || x.Rule != "shop-1" || x.Note != "mended" {
			t.Errorf("the history ends with %+v", x)
		}
	})
}
