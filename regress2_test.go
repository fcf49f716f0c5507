package settle_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// X. an effect reported without a reference, refunded, then named, then a duplicate: refunded again.
func TestRegress_NamelessRefundedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// Y. a wall-only clock that is stepped forward during a pass makes an attempt quiet.
type stepClock struct{ off atomic.Int64 }

func (c *stepClock) Now() time.Time { return time.Now().Round(0).Add(time.Duration(c.off.Load())) }

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
		x := nil2(settle.New(e, "pay", f.adapter(attackContract(true, settle.Authoritative)), nil))
		_, _ = x.Execute(t.Context(), aop(1))
		time.Sleep(2 * time.Second)
		recs := listAll(t, e)
		_, _ = e.Reconcile(t.Context(), recs[0].ID)
		if len(at) > 1 && at[1].Sub(at[0]) < 15*time.Second {
			t.Errorf("sent again after %v, not quiet before 15s: our clock decided", at[1].Sub(at[0]))
		}
	})
}

func listAll(t *testing.T, e *settle.Engine) (out []settle.Record) {
	for r, err := range e.List(t.Context(), settle.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// Z1. a worker that waits for a slot claims after Drain.
func TestRegress_ClaimsAfterDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		e := nil2(settle.Open(mem, &settle.Options{Concurrency: 1, Lease: time.Hour}))
		f := &fakeAd{}
		gate := make(chan struct{})
		f.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			<-gate
			return good("ch_")(ctx, c, n)
		}
		c := attackContract(true, settle.NoLookup)
		x := nil2(settle.New(e, "pay", f.adapter(c), nil))
		ids := []string{}
		for _, s := range []string{"o1", "o2"} {
			op := aop(1)
			op.Subject = s
			ids = append(ids, must(t, nil2(x.Register(t.Context(), op)), nil).ID)
		}
		stop := work(t, e)
		synctest.Wait()
		go func() { time.Sleep(time.Second); close(gate) }()
		_ = e.Drain(t.Context())
		stop()
		for _, id := range ids {
			if r := must(t, nil2(e.Get(t.Context(), id)), nil); r.Claimed() {
				t.Errorf("%v was claimed by an engine that drains, for a lease of an hour", r)
			}
		}
	})
}

// Z6. a person's Resume is overruled by a decision that was made before it.
type beforeCommit struct {
	settle.Store
	f func(c settle.Change)
}

func (s *beforeCommit) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if s.f != nil {
		s.f(c)
	}
	return s.Store.Commit(ctx, c)
}

func TestRegress_ResumeOverruled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		s := &beforeCommit{Store: mem}
		c := attackContract(true, settle.NoLookup)
		w := newWorld(t, s, c, c, nil)
		other := newWorld(t, mem, c, c, nil)
		w.pay.submit = noReply
		out, _ := w.pays.Execute(t.Context(), aop(1))
		var resumed time.Time
		s.f = func(ch settle.Change) {
			if ch.Writes[0].Entry.Note == "review" && resumed.IsZero() {
				resumed = time.Now()
				_, err := other.e.Resolve(context.Background(), out.ID, settle.Decision{Actor: "a", Reason: "r", Evidence: "e", Resume: true})
				if err != nil {
					t.Error(err)
				}
			}
		}
		stop := work(t, w.e)
		time.Sleep(2 * time.Hour)
		stop()
		var reviews []time.Time
		for x, err := range w.e.History(t.Context(), out.ID) {
			if err == nil && x.Note == "review" {
				reviews = append(reviews, x.At)
			}
		}
		if len(reviews) > 0 && reviews[0].Sub(resumed) < 15*time.Minute {
			t.Errorf("resumed at %v, in review again at %v, before another EscalateAfter", resumed, reviews[0])
		}
	})
}

// Z3. declined then bounced, bounced then declined: the ledgers differ.
func TestRegress_PostingDependsOnOrder(t *testing.T) {
	var got []settle.PostingStatus
	for _, order := range [][]settle.Fact{{settle.Reversed, settle.Declined}, {settle.Declined, settle.Reversed}} {
		synctest.Test(t, func(t *testing.T) {
			c := attackContract(true, settle.NoLookup)
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

// Z10. a hook that ends its goroutine loses the evidence, for ever.
func TestRegress_HookGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := nil2(settle.Open(memstore.New(nil), nil))
		f := &fakeAd{submit: good("ch_")}
		x := nil2(settle.New(e, "pay", f.adapter(attackContract(true, settle.NoLookup)), &settle.ExecutorOptions[areq, ares]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[ares]) error { runtime.Goexit(); return nil },
		}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, err := x.Execute(ctx, aop(1))
		t.Log(out.Record, err)
		stop := work(t, e)
		defer stop()
		time.Sleep(time.Hour)
		r := listAll(t, e)[0]
		if len(r.References) == 0 {
			t.Errorf("%v after %d sends: the provider's confirmation is nowhere", r, f.sent())
		}
	})
}

// T2. an observed amount with a huge exponent.
func TestRegress_HugeExponent2(t *testing.T) {
	c := attackContract(true, settle.NoLookup)
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

// Z7. late lookups are evidence too.
func TestRegress_LateLookupAnswerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := nil2(settle.Open(memstore.New(nil), nil))
		f := &fakeAd{submit: noReply}
		f.lookup = func(ctx context.Context, c *acall, n int) (aobs, error) {
			time.Sleep(6 * time.Second) // the deadline is 5 seconds
			return aobs{Fact: settle.Applied, Ref: "ch_1", Terms: c.Terms}, nil
		}
		x := nil2(settle.New(e, "pay", f.adapter(attackContract(false, settle.Authoritative)), nil))
		_, _ = x.Execute(t.Context(), aop(1000))
		stop := work(t, e)
		time.Sleep(2 * time.Hour)
		stop()
		if r := listAll(t, e)[0]; r.State != settle.StateSucceeded {
			t.Errorf("%v %+v after %d lookups that all said applied", r, r.Review, f.lookups)
		}
	})
}

// Z11. a duplicate effect of a compensation is not in the parent's ledger.
func TestRegress_DuplicateRefundNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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
