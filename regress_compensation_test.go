package settle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

func TestRegress_WishOfAnotherUnitIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(_ context.Context, c *acall, _ int) (aobs, error) {
			_ = c.Key()
			return aobs{Fact: settle.Applied, Ref: "ch_1", Terms: settle.Terms{Amount: settle.Minor(1000, "JPY")}}, nil
		}
		out, err := w.pays.Execute(t.Context(), aop(1000))
		if !errors.Is(err, settle.ErrReview) {
			t.Fatal(err)
		}
		_, err = w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret", areq{N: 1000})
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatal(err)
		}
		stop := work(t, w.e)
		defer stop()
		_, err = w.e.Resolve(t.Context(), out.ID, person(settle.Applied, "ch_1", settle.Terms{Amount: settle.Minor(1000, "JPY")}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if w.ref.sent() > 0 {
			t.Errorf("a refund of 1000 EUR/minor was sent for an effect of 1000 JPY/minor")
		}
	})
}

func TestRegress_LedgerCountsAskedNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		out := must(t, nil2(w.pays.Execute(t.Context(), aop(1000))), nil)
		w.ref.submit = func(_ context.Context, c *acall, _ int) (aobs, error) {
			_ = c.Key()
			return aobs{Fact: settle.Applied, Ref: "re_1", Terms: settle.Terms{Amount: settle.Minor(1000, "EUR")}}, nil
		}
		r1, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret1", areq{N: 500})
		if !errors.Is(err, settle.ErrReview) {
			t.Fatal(err)
		}
		_, err = w.e.Resolve(t.Context(), r1.ID, person(settle.Applied, "re_1", settle.Terms{Amount: settle.Minor(1000, "EUR")}))
		if err != nil {
			t.Fatal(err)
		}
		p := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		t.Log(p.State, p.Ledger, p.Alarms(), p.Effects()[0].Left())
		w.ref.submit = good("re_")
		_, err = w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret2", areq{N: 500})
		if !errors.Is(err, settle.ErrExceeds) {
			t.Errorf("1000 of 1000 were confirmed as refunded, and 500 more: %v, sends %d", err, w.ref.sent())
		}
	})
}

func TestRegress_CancelNilThenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = noReply
		out, _ := w.pays.Execute(t.Context(), aop(1000))
		wish, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret", areq{N: 1000})
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // quiet
		if _, err = w.e.Resolve(t.Context(), out.ID, person(settle.Declined, "", settle.Terms{})); err != nil {
			t.Fatal(err)
		}
		r := must(t, nil2(w.e.Get(t.Context(), wish.ID)), nil)
		t.Log(r.State, r.Withdrawn)
		if err := w.refs.Cancel(t.Context(), r.Intent(), "customer keeps it"); err != nil {
			t.Fatal(err)
		}
		_, err = settle.MergeEvent(t.Context(), w.e, out.ID, settle.Observation[struct{}]{Fact: settle.Applied, Ref: "ch_1", Terms: settle.Terms{Amount: settle.Minor(1000, "EUR")}})
		if err != nil {
			t.Fatal(err)
		}
		stop := work(t, w.e)
		defer stop()
		time.Sleep(time.Minute)
		if w.ref.sent() > 0 {
			t.Errorf("Cancel returned nil (it is canceled) and the refund was sent afterwards")
		}
	})
}

func TestRegress_RevivedWishLosesHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		var hooks atomic.Int32
		w := newWorld(t, memstore.New(nil), c, c, &settle.ExecutorOptions[areq, ares]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[ares]) error { hooks.Add(1); return nil },
		})
		w.pay.submit = noReply
		out, _ := w.pays.Execute(t.Context(), aop(1000))
		_, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret", areq{N: 1000})
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if _, err = w.e.Resolve(t.Context(), out.ID, person(settle.Declined, "", settle.Terms{})); err != nil {
			t.Fatal(err)
		}
		_, err = settle.MergeEvent(t.Context(), w.e, out.ID, settle.Observation[struct{}]{Fact: settle.Applied, Ref: "ch_1", Terms: settle.Terms{Amount: settle.Minor(1000, "EUR")}})
		if err != nil {
			t.Fatal(err)
		}
		stop := work(t, w.e)
		defer stop()
		time.Sleep(time.Minute)
		again, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret", areq{N: 1000})
		if hooks.Load() != 1 {
			t.Errorf("refund %v, consequence %q, verdict %v: the hook ran %d times", again.Record, again.Consequence, err, hooks.Load())
		}
	})
}

func TestRegress_RefusedCompensationCancelsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, &settle.ExecutorOptions[areq, ares]{
			Authorize: func(context.Context, settle.Operation[areq]) error { return errors.New("not yours") },
		})
		r := must(t, nil2(w.pays.Register(t.Context(), aop(1000))), nil)
		_, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: r.ID}, "ret", areq{N: 1000})
		now := must(t, nil2(w.e.Get(t.Context(), r.ID)), nil)
		if now.State != settle.StateCreated || !errors.Is(err, settle.ErrRefused) {
			t.Errorf("Authorize refuses everybody: error %v, the parent is %s", err, now.State)
		}
	})
}

func TestRegress_CompensateAcrossScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		out := must(t, nil2(w.pays.Execute(t.Context(), aop(1000))), nil)
		r, err := w.refs.Execute(t.Context(), settle.Operation[areq]{
			Scope: "another-tenant", Purpose: "ret", Undoes: settle.Effect{Operation: out.ID}, Request: areq{N: 1000},
		})
		if err == nil {
			t.Errorf("tenant another-tenant refunded an operation of tenant %q: %v", r.Scope, r.Record)
		}
	})
}

func TestRegress_WishWhoseTermsNameTheReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.ref.terms = func(op settle.Operation[areq]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.N, "EUR"), Other: map[string]string{"charge": op.Undoes.Ref}}
		}
		w.pay.submit = noReply
		out, _ := w.pays.Execute(t.Context(), aop(1000))
		wish, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret", areq{N: 1000})
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatal(err)
		}
		_, err = settle.MergeEvent(t.Context(), w.e, out.ID, settle.Observation[struct{}]{Fact: settle.Applied, Ref: "ch_1", Terms: settle.Terms{Amount: settle.Minor(1000, "EUR")}})
		if err != nil {
			t.Fatal(err)
		}
		stop := work(t, w.e)
		defer stop()
		time.Sleep(time.Hour)
		r := must(t, nil2(w.e.Get(t.Context(), wish.ID)), nil)
		if r.State != settle.StateSucceeded {
			t.Errorf("the wish is %s %+v after an hour, %d sends", r.State, r.Review, w.ref.sent())
		}
	})
}

func TestRegress_SameRefundWithAndWithoutRef(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		out := must(t, nil2(w.pays.Execute(t.Context(), aop(1000))), nil)
		_, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret-1", areq{N: 400})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.refs.Compensate(t.Context(), out.Effects()[0], "ret-1", areq{N: 400})
		if w.ref.sent() != 1 {
			t.Errorf("one return, refunded %d times: %v", w.ref.sends, err)
		}
	})
}

func TestRegress_ReplayOfCompensationAfterDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		out := must(t, nil2(w.pays.Execute(t.Context(), aop(1000))), nil)
		first, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret-1", areq{N: 400})
		if err != nil {
			t.Fatal(err)
		}
		_, err = settle.MergeEvent(t.Context(), w.e, out.ID, settle.Observation[struct{}]{Fact: settle.Applied, Ref: "ch_dup", Terms: settle.Terms{Amount: settle.Minor(1000, "EUR")}})
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret-1", areq{N: 400})
		if err != nil || again.ID != first.ID {
			t.Errorf("the same call again: %v (next %s), want the first one's outcome", err, again.Next)
		}
	})
}

func TestRegress_SentAfterParentCameUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		mem := memstore.New(nil)
		s := &afterCommit{Store: mem}
		w := newWorld(t, s, c, c, nil)
		other := newWorld(t, mem, c, c, nil)
		out := must(t, nil2(w.pays.Execute(t.Context(), aop(1000))), nil)
		s.f = func(ch settle.Change) {
			if ch.Writes[0].Record.Kind == "refund" && len(ch.Writes[0].Record.Attempts) > 0 {
				s.f = nil
				if _, err := other.e.Resolve(context.Background(), out.ID, person(settle.Reversed, out.Effects()[0].Ref, settle.Terms{})); err != nil {
					t.Error(err)
				}
			}
		}
		r, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret-1", areq{N: 400})
		if w.ref.sent() != 0 {
			t.Errorf("sent although the parent, read just before, was %s: %v %v", must(t, nil2(w.e.Get(t.Context(), out.ID)), nil).State, r.Record, err)
		}
	})
}

func TestRegress_ReplacedWishIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = noReply
		out, _ := w.pays.Execute(t.Context(), aop(1000))
		wish, _ := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret", areq{N: 500})
		time.Sleep(time.Hour)
		if _, err := w.e.Resolve(t.Context(), out.ID, person(settle.Declined, "", settle.Terms{})); err != nil {
			t.Fatal(err)
		}
		// An effect with another currency turns up: disputed, a person looks.
		_, err := settle.MergeEvent(t.Context(), w.e, out.ID, settle.Observation[struct{}]{Fact: settle.Applied, Ref: "ch_1", Terms: settle.Terms{Amount: settle.Minor(999, "EUR")}})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(must(t, nil2(w.e.Get(t.Context(), out.ID)), nil).State, must(t, nil2(w.e.Get(t.Context(), wish.ID)), nil).State)
		second, err := w.refs.Execute(t.Context(), settle.Operation[areq]{Purpose: "ret", Undoes: settle.Effect{Operation: out.ID}, Replaces: wish.ID, Request: areq{N: 400}})
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatal(err)
		}
		stop := work(t, w.e)
		defer stop()
		if _, err := w.e.Resolve(t.Context(), out.ID, person(settle.Applied, "ch_1", settle.Terms{Amount: settle.Minor(999, "EUR")})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		a, b := must(t, nil2(w.e.Get(t.Context(), wish.ID)), nil), must(t, nil2(w.e.Get(t.Context(), second.ID)), nil)
		if w.ref.sent() != 1 {
			t.Errorf("one return: %d refunds sent; the replaced one is %s (replaced by %q), its replacement %s", w.ref.sent(), a.State, a.ReplacedBy, b.State)
		}
	})
}

func TestRegress_WithdrawnReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		out := must(t, nil2(w.pays.Execute(t.Context(), aop(1000))), nil)
		w.ref.submit = func(_ context.Context, c *acall, _ int) (aobs, error) {
			_ = c.Key()
			return aobs{Fact: settle.NotApplied, Code: "429"}, nil
		}
		r, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret-1", areq{N: 400})
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatal(err)
		}
		if _, err := w.e.Resolve(t.Context(), out.ID, person(settle.Reversed, out.Effects()[0].Ref, settle.Terms{})); err != nil {
			t.Fatal(err)
		}
		stop := work(t, w.e)
		defer stop()
		time.Sleep(time.Hour)
		got := must(t, nil2(w.e.Get(t.Context(), r.ID)), nil)
		if got.Withdrawn != settle.WithdrawnParent {
			t.Errorf("%s because of %q, without any SendBefore", got.State, got.Withdrawn)
		}
	})
}

func TestRegress_WholeWishOfLargerEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.ref.terms = func(op settle.Operation[areq]) settle.Terms {
			if op.Request.N == 0 {
				return settle.Terms{}
			}
			return settle.Terms{Amount: settle.Minor(op.Request.N, "EUR")}
		}
		w.pay.submit = func(_ context.Context, c *acall, _ int) (aobs, error) {
			_ = c.Key()
			return aobs{Fact: settle.Applied, Ref: "ch_1", Terms: settle.Terms{Amount: settle.Minor(1500, "EUR")}}, nil
		}
		out, err := w.pays.Execute(t.Context(), aop(1000))
		if !errors.Is(err, settle.ErrReview) {
			t.Fatal(err)
		}
		_, err = w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "whole", areq{})
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatal(err)
		}
		stop := work(t, w.e)
		defer stop()
		_, err = w.e.Resolve(t.Context(), out.ID, person(settle.Applied, "ch_1", settle.Terms{Amount: settle.Minor(1500, "EUR")}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_, err = w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "more", areq{N: 500})
		p := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		if !errors.Is(err, settle.ErrExceeds) || p.State != settle.StateCompensated {
			t.Errorf("the whole effect of 1500 was undone, and 500 more: %v; parent %s %+v", err, p.State, p.Ledger)
		}
	})
}

func TestRegress_AmbiguousWishIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(_ context.Context, c *acall, _ int) (aobs, error) {
			_ = c.Key()
			return aobs{Fact: settle.NotApplied}, nil
		}
		out, err := w.pays.Execute(t.Context(), aop(1000))
		if err := w.pays.Cancel(t.Context(), out.Intent(), "x"); err != nil {
			t.Fatal(err)
		}
		ev := func(ref string, n int64) {
			_, err = settle.MergeEvent(t.Context(), w.e, out.ID, settle.Observation[struct{}]{Fact: settle.Applied, Ref: ref, Terms: settle.Terms{Amount: settle.Minor(n, "EUR")}})
			if err != nil {
				t.Fatal(err)
			}
		}
		ev("ch_1", 999) // disputed: the wish waits
		wish, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "ret", areq{N: 500})
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatal(err)
		}
		ev("ch_1", 1000)
		ev("ch_2", 1000)
		for _, ref := range []string{"ch_1", "ch_2"} {
			r, err := w.e.Resolve(t.Context(), out.ID, person(settle.Applied, ref, settle.Terms{}))
			t.Log(r.State, err)
		}
		got := must(t, nil2(w.e.Get(t.Context(), wish.ID)), nil)
		if got.State != settle.StateReview {
			t.Errorf("the wish is %s (%s) although two effects are confirmed", got.State, got.Withdrawn)
		}
	})
}

func TestRegress_NamelessRefundedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(_ context.Context, c *acall, _ int) (aobs, error) {
			_ = c.Key()
			return aobs{Fact: settle.Applied, Terms: c.Terms}, nil
		}
		out := must(t, nil2(w.pays.Execute(t.Context(), aop(1000))), nil)
		if _, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "r0", areq{N: 1000}); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{"ch_1", "ch_2"} {
			r, err := settle.MergeEvent(t.Context(), w.e, out.ID, settle.Observation[struct{}]{Fact: settle.Applied, Ref: ref, Terms: settle.Terms{Amount: settle.Minor(1000, "EUR")}})
			t.Log(r.State, err, r.Alarms())
		}
		done := 1
		for _, ref := range []string{"ch_1", "ch_2"} {
			if _, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID, Ref: ref}, "r1", areq{N: 1000}); err == nil {
				done++
			}
		}
		if done > 2 {
			p := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
			t.Errorf("two effects exist (the provider named two), %d whole refunds were made: %s %v", done, p.State, p.Alarms())
		}
	})
}

func TestRegress_PostingDependsOnOrder(t *testing.T) {
	var got []settle.PostingStatus
	for _, order := range [][]settle.Fact{{settle.Reversed, settle.Declined}, {settle.Declined, settle.Reversed}} {
		synctest.Test(t, func(t *testing.T) {
			c := regressContract(true, settle.NoLookup)
			w := newWorld(t, memstore.New(nil), c, c, nil)
			out := must(t, nil2(w.pays.Execute(t.Context(), aop(1000))), nil)
			w.ref.submit = func(_ context.Context, c *acall, _ int) (aobs, error) {
				_ = c.Key()
				return aobs{Fact: settle.Underway, Ref: "re_1"}, nil
			}
			r, _ := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "r0", areq{N: 1000})
			for _, f := range order {
				if _, err := settle.MergeEvent(t.Context(), w.e, r.ID, settle.Observation[struct{}]{Fact: f, Ref: "re_1"}); err != nil {
					t.Fatal(err)
				}
			}
			p := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
			got = append(got, p.Ledger[0].Status)
		})
	}
	if got[0] != got[1] {
		t.Errorf("the parent's ledger depends on the order of evidence: %v", got)
	}
}

func TestRegress_DuplicateRefundNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		out := must(t, nil2(w.pays.Execute(t.Context(), aop(1000))), nil)
		r := must(t, nil2(w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "r0", areq{N: 500})), nil)
		if _, err := settle.MergeEvent(t.Context(), w.e, r.ID, settle.Observation[struct{}]{Fact: settle.Applied, Ref: "re_dup", Terms: settle.Terms{Amount: settle.Minor(500, "EUR")}}); err != nil {
			t.Fatal(err)
		}
		_, err := w.refs.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "r1", areq{N: 500})
		if err == nil {
			t.Errorf("1000 of 1000 confirmed as refunded (twice 500), and 500 more were sent")
		}
	})
}
