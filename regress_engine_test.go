package settle_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

func TestRegress_LookupStragglerRace(t *testing.T) {
	c := regressContract(true, settle.Authoritative)
	c.Deadline = 20 * time.Millisecond
	w := newWorld(t, memstore.New(nil), c, c, nil)
	w.pay.submit = noReply
	done := make(chan struct{})
	w.pay.lookup = func(ctx context.Context, c *acall, n int) (aobs, error) {
		<-done
		return aobs{Fact: settle.NotFound}, nil
	}
	_, err := w.pays.Execute(t.Context(), aop(1000))
	t.Log(err)
	close(done)
	_ = w.e.Drain(t.Context())
}

func TestRegress_ApprovalJudgedByOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := nil2(settle.Open(memstore.New(nil), &settle.Options{Clock: aheadClock{time.Hour}}))
		f := &fakeAd{submit: good("ch_")}
		x := nil2(settle.New(e, "pay", f.adapter(regressContract(true, settle.NoLookup)), nil))
		op := aop(1000)
		op.Approval = &settle.Approval{By: "ada", At: time.Now(), Until: time.Now().Add(30 * time.Minute), Fingerprint: nil2(x.Fingerprint(op))}
		if _, err := x.Execute(t.Context(), op); err != nil {
			t.Errorf("the store's clock says that the approval holds: %v", err)
		}
	})
}

func TestRegress_LookAgainLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := nil2(settle.Open(memstore.New(nil), nil))
		var fail atomic.Bool
		fail.Store(true)
		f := &fakeAd{}
		var hooks atomic.Int32
		x := nil2(settle.New(e, "pay", f.adapter(regressContract(true, settle.Authoritative)), &settle.ExecutorOptions[areq, ares]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[ares]) error {
				hooks.Add(1)
				if fail.Load() {
					return errors.New("no")
				}
				return nil
			},
		}))
		go1, in := make(chan struct{}), make(chan string, 1)
		f.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			in <- c.ID
			<-go1
			return good("ch_")(ctx, c, n)
		}
		stopped := make(chan struct{})
		f.lookup = func(_ context.Context, _ *acall, n int) (aobs, error) {
			if n > 1000 {
				select {
				case <-stopped:
				default:
					close(stopped)
				}
				time.Sleep(time.Second)
			}
			return aobs{}, errors.New("down")
		}
		done := make(chan struct{})
		go func() { defer close(done); _, _ = x.Execute(context.Background(), aop(1)) }()
		id := <-in
		_, err := e.Resolve(t.Context(), id, settle.Decision{Actor: "a", Reason: "r", Evidence: "e", Resume: true})
		if err != nil {
			t.Fatal(err)
		}
		close(go1)
		<-done
		fail.Store(false)
		stop := work(t, e)
		began := time.Now()
		select {
		case <-stopped:
		case <-time.After(10 * time.Minute):
		}
		r := must(t, nil2(e.Get(t.Context(), id)), nil)
		if f.lookups > 100 || r.Consequence != settle.ConsequenceDone {
			t.Errorf("%d lookups in %v, hook ran %d times, consequence %s, version %d", f.lookups, time.Since(began), hooks.Load(), r.Consequence, r.Version)
		}
		stop()
	})
}

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
		c := regressContract(true, settle.NoLookup)
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

func TestRegress_ResumeOverruled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		s := &beforeCommit{Store: mem}
		c := regressContract(true, settle.NoLookup)
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

func TestRegress_HookGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := nil2(settle.Open(memstore.New(nil), nil))
		f := &fakeAd{submit: good("ch_")}
		x := nil2(settle.New(e, "pay", f.adapter(regressContract(true, settle.NoLookup)), &settle.ExecutorOptions[areq, ares]{
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
