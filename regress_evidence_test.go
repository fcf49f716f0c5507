package settle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

func TestRegress_NotSentWithoutKeyClosesWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			switch n {
			case 1: // circuit breaker open: nothing left
				return aobs{Fact: settle.NotSent, Code: "breaker"}, nil
			case 2:
				_ = c.Key()
				return aobs{}, errors.New("reset")
			}
			return good("ch_")(ctx, c, n)
		}
		out, err := w.pays.Execute(t.Context(), aop(1000))
		t.Log(err)
		stop := work(t, w.e)
		defer stop()
		time.Sleep(time.Hour)
		r := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		if r.State != settle.StateSucceeded {
			t.Errorf("state %s %+v window %v after %d sends: attempt 1 never left, attempt 2 had the key", r.State, r.Review, r.KeyWindow, w.pay.sent())
		}
	})
}

func TestRegress_KeylessRefusalClosesOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			if n > 1 { // the adapter's own check: the card has expired by now; nothing is asked of the provider
				return aobs{Fact: settle.Declined, Code: "card_expired"}, nil
			}
			_ = c.Key()
			return aobs{}, errors.New("reply lost after the charge")
		}
		out, _ := w.pays.Execute(t.Context(), aop(1000))
		stop := work(t, w.e)
		defer stop()
		time.Sleep(time.Hour)
		r := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		if r.State == settle.StateFailed {
			t.Errorf("failed although attempt 1 had the effect: the refusal came from a request without the key: %+v", r.Attempts)
		}
	})
}

func TestRegress_KeylessStraggler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		var effects atomic.Int32
		w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			effects.Add(1)
			time.Sleep(10 * time.Minute)
			return aobs{}, errors.New("timeout")
		}
		_, _ = w.pays.Execute(t.Context(), aop(1000))
		stop := work(t, w.e)
		defer stop()
		time.Sleep(5 * time.Minute)
		if n := effects.Load(); n > 1 {
			t.Errorf("%d requests without a key", n)
		}
		time.Sleep(time.Hour)
	})
}

func TestRegress_RetryAfterOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			_ = c.Key()
			return aobs{Fact: settle.NotApplied, Code: "rate", RetryAfter: 1<<63 - 1}, nil
		}
		out, err := w.pays.Execute(t.Context(), aop(1000))
		r := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		t.Log(out.Record, err, r.Due, r.RetryAt, r.Claimed())
		if r.Claimed() || !errors.Is(err, settle.ErrWaiting) {
			t.Errorf("%v: the release was refused by the store; still claimed %v", err, r.Claimed())
		}
	})
}

func TestRegress_LateDeclineBesideUnderway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			_ = c.Key()
			if n == 1 {
				time.Sleep(10 * time.Minute) // heeds no context; the answer comes late
				return aobs{Fact: settle.Declined, Code: "insufficient_funds"}, nil
			}
			return aobs{Fact: settle.Underway, Ref: "ch_2"}, nil
		}
		out, _ := w.pays.Execute(t.Context(), aop(1000))
		stop := work(t, w.e)
		defer stop()
		time.Sleep(9 * time.Minute)
		t.Log(must(t, nil2(w.e.Get(t.Context(), out.ID)), nil).State)
		time.Sleep(5 * time.Minute)
		r := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		if r.State == settle.StateFailed {
			t.Errorf("failed while attempt 2 is under way at the provider: %+v", r.Attempts)
		}
	})
}

func TestRegress_HugeExponentObserved(t *testing.T) {
	c := regressContract(true, settle.NoLookup)
	w := newWorld(t, memstore.New(nil), c, c, nil)
	w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
		_ = c.Key()
		d, _ := decimal.NewFromString("1e3000000")
		return aobs{Fact: settle.Applied, Ref: "ch_1", Terms: settle.Terms{Amount: settle.Amount{Value: d, Unit: "EUR/minor"}}}, nil
	}
	began := time.Now()
	out, err := w.pays.Execute(t.Context(), aop(1000))
	if d := time.Since(began); d > time.Second {
		t.Errorf("took %v: %v", d, err)
	}
	r := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
	b, _ := settle.EncodeRecord(r)
	if len(b) > 1<<16 {
		t.Errorf("stored form: %d bytes", len(b))
	}
	_, err = settle.DecodeRecord(b, nil, nil)
	t.Log(err, time.Since(began))
}

func TestRegress_SteppedClockMakesQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := &stepClock{}
		e := nil2(settle.Open(memstore.New(nil), &settle.Options{Clock: clk}))
		f := &fakeAd{}
		var at []time.Time
		f.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			_ = c.Key()
			at = append(at, time.Now())
			return aobs{}, errors.New("reset")
		}
		f.lookup = func(_ context.Context, _ *acall, n int) (aobs, error) {
			if n == 2 {
				clk.off.Store(int64(20 * time.Second))
			}
			return aobs{Fact: settle.NotFound}, nil
		}
		x := nil2(settle.New(e, "pay", f.adapter(regressContract(true, settle.Authoritative)), nil))
		_, _ = x.Execute(t.Context(), aop(1))
		time.Sleep(2 * time.Second)
		recs := listAll(t, e)
		_, _ = e.Reconcile(t.Context(), recs[0].ID)
		if len(at) > 1 && at[1].Sub(at[0]) < 15*time.Second {
			t.Errorf("sent again after %v, not quiet before 15s: our clock decided", at[1].Sub(at[0]))
		}
	})
}

func TestRegress_HugeExponent2(t *testing.T) {
	c := regressContract(true, settle.NoLookup)
	w := newWorld(t, memstore.New(nil), c, c, nil)
	w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
		_ = c.Key()
		d, _ := decimal.NewFromString("1e60000000")
		return aobs{Fact: settle.Applied, Ref: "ch_1", Terms: settle.Terms{Amount: settle.Amount{Value: d, Unit: "EUR/minor"}}}, nil
	}
	began := time.Now()
	out, err := w.pays.Execute(t.Context(), aop(1000))
	d := time.Since(began)
	if d > time.Second {
		t.Errorf("took %v: %v", d, err)
	}
	b, _ := settle.EncodeRecord(out.Record)
	t.Log(len(b), d)
}

func TestRegress_LateLookupAnswerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := nil2(settle.Open(memstore.New(nil), nil))
		f := &fakeAd{submit: noReply}
		f.lookup = func(ctx context.Context, c *acall, n int) (aobs, error) {
			time.Sleep(6 * time.Second) // the deadline is 5 seconds
			return aobs{Fact: settle.Applied, Ref: "ch_1", Terms: c.Terms}, nil
		}
		x := nil2(settle.New(e, "pay", f.adapter(regressContract(false, settle.Authoritative)), nil))
		_, _ = x.Execute(t.Context(), aop(1000))
		stop := work(t, e)
		time.Sleep(2 * time.Hour)
		stop()
		if r := listAll(t, e)[0]; r.State != settle.StateSucceeded {
			t.Errorf("%v %+v after %d lookups that all said applied", r, r.Review, f.lookups)
		}
	})
}

func TestRegress_RetryAfterDecades(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			if n == 1 {
				_ = c.Key()
				return aobs{Fact: settle.NotApplied, Code: "rate", RetryAfter: 1_790_000_000 * time.Second}, nil
			}
			return good("ch_")(ctx, c, n)
		}
		out, _ := w.pays.Execute(t.Context(), aop(1))
		stop := work(t, w.e)
		time.Sleep(36 * time.Hour)
		stop()
		r := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		if !r.State.Settled() && r.State != settle.StateReview {
			t.Errorf("%v after a day and a half, due %v, %d sends", r, r.Due, w.pay.sent())
		}
	})
}

func TestRegress_UnderwayGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := regressContract(true, settle.NoLookup)
		c.Keys.Window, c.ProcessingLimit = settle.Forever, 10*24*time.Hour
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			if n == 1 {
				return noReply(ctx, c, n)
			}
			_ = c.Key()
			return aobs{Fact: settle.Underway, Ref: "ch_1"}, nil
		}
		out, _ := w.pays.Execute(t.Context(), aop(1))
		stop := work(t, w.e)
		time.Sleep(24 * time.Hour)
		stop()
		r := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		b, _ := settle.EncodeRecord(r)
		if len(r.Attempts) > 50 {
			t.Errorf("%d attempts kept, %d bytes; every one a request", len(r.Attempts), len(b))
		}
	})
}
