package settle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
)

type treq struct {
	N     int64
	Trace string `settle:"volatile"`
}

// TestRegress_RefreshTakesOtherTerms (I2, I9): two processes of one kind derive other terms (a deploy). Without the volatile member the new one sends nothing (account_changed);
// with it the call does not take over the new terms past the reservation either.
func TestRegress_RefreshTakesOtherTerms(t *testing.T) {
	for _, trace := range []string{"same", "other"} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(nil)
			var sent int64
			mk := func(factor int64) (*aex, *settle.Executor[treq, ares]) {
				e, err := settle.Open(s, nil)
				rig.OK(t, err)
				pays, err := settle.New(e, "pay", (&fakeAd{submit: good("ch_")}).adapter(regressContract(true, settle.NoLookup)), nil)
				rig.OK(t, err)
				refs, err := settle.New(e, "refund", settle.Adapter[treq, ares]{
					Promise: regressContract(true, settle.NoLookup),
					TermsFunc: func(op settle.Operation[treq]) settle.Terms {
						return settle.Terms{Amount: settle.Minor(factor*op.Request.N, "EUR")}
					},
					SubmitFunc: func(_ context.Context, c *settle.Call[treq]) (aobs, error) {
						_ = c.Key()
						sent += c.Terms.Amount.Value.IntPart()
						return aobs{Fact: settle.Applied, Ref: "re_" + c.Purpose, Terms: c.Terms}, nil
					},
				}, &settle.ExecutorOptions[treq, ares]{Undoes: "pay"})
				rig.OK(t, err)
				return pays, refs
			}
			pays, before := mk(1)
			_, after := mk(10)
			out, err := pays.Execute(t.Context(), aop(100))
			rig.OK(t, err)
			eff := settle.Effect{Operation: out.ID}
			_, err = before.Register(t.Context(), settle.Operation[treq]{Undoes: eff, Purpose: "a", Request: treq{10, "same"}})
			rig.OK(t, err)
			_, err = before.Compensate(t.Context(), eff, "b", treq{90, ""})
			rig.OK(t, err)
			_, _ = after.Compensate(t.Context(), eff, "a", treq{10, trace})
			if sent > 100 {
				t.Errorf("I2, I9: trace %s: %d of 100 refunded", trace, sent)
			}
		})
	}
}

type vreq struct {
	N int64 `settle:"volatile"`
}

// TestRegress_PolicySeesOtherTerms: a policy that allows up to 10 is asked about 10; a volatile amount does not make 1000 of it.
func TestRegress_PolicySeesOtherTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		e, err := settle.Open(s, &settle.Options{Policy: func(_ context.Context, a settle.Ask) (settle.Grant, error) {
			if settle.Minor(10, "EUR").Value.Cmp(a.Terms.Amount.Value) < 0 {
				return settle.Grant{}, errors.New("too much")
			}
			return settle.Grant{Rule: "up to 10"}, nil
		}})
		rig.OK(t, err)
		var sent []int64
		pays, err := settle.New(e, "pay", settle.Adapter[vreq, ares]{
			Promise: regressContract(true, settle.NoLookup),
			TermsFunc: func(op settle.Operation[vreq]) settle.Terms {
				return settle.Terms{Amount: settle.Minor(op.Request.N, "EUR")}
			},
			SubmitFunc: func(_ context.Context, c *settle.Call[vreq]) (aobs, error) {
				_ = c.Key()
				sent = append(sent, c.Request.N)
				return aobs{Fact: settle.Applied, Ref: "ch_1", Terms: c.Terms}, nil
			},
		}, nil)
		rig.OK(t, err)
		op := settle.Operation[vreq]{Scope: "s", Subject: "o", Purpose: "p", Request: vreq{1000}}
		_, err = pays.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrRefused)
		small := op
		small.Request.N = 10
		_, err = pays.Register(t.Context(), small)
		rig.OK(t, err)
		_, _ = pays.Execute(t.Context(), op)
		if len(sent) == 1 && sent[0] > 10 {
			t.Errorf("the policy allowed 10 and %d was sent", sent[0])
		}
	})
}
