package settle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

type areq struct {
	N    int64
	Card string `settle:"volatile"`
}
type ares struct{ OK bool }

type (
	acall = settle.Call[areq]
	aobs  = settle.Observation[ares]
	aex   = settle.Executor[areq, ares]
)

type fakeAd struct {
	mu      sync.Mutex
	submit  func(ctx context.Context, c *acall, n int) (aobs, error)
	lookup  func(ctx context.Context, c *acall, n int) (aobs, error)
	terms   func(op settle.Operation[areq]) settle.Terms
	sends   int
	lookups int
}

func (f *fakeAd) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sends
}

func attackContract(keys bool, look settle.LookupPromise) settle.Contract {
	c := settle.Contract{
		Account: settle.AccountFacts{Provider: "p"}, Deadline: 5 * time.Second, SettleDelay: 10 * time.Second, Lookup: look,
	}
	if keys {
		c.Keys.Window = 24 * time.Hour
	}
	return c
}

func (f *fakeAd) adapter(c settle.Contract) settle.Adapter[areq, ares] {
	a := settle.Adapter[areq, ares]{
		Promise: c,
		TermsFunc: func(op settle.Operation[areq]) settle.Terms {
			if f.terms != nil {
				return f.terms(op)
			}
			return settle.Terms{Amount: settle.Minor(op.Request.N, "EUR")}
		},
		SubmitFunc: func(ctx context.Context, c *acall) (aobs, error) {
			f.mu.Lock()
			f.sends++
			n := f.sends
			f.mu.Unlock()
			return f.submit(ctx, c, n)
		},
	}
	if c.Lookup != settle.NoLookup {
		a.LookupFunc = func(ctx context.Context, c *acall) (aobs, error) {
			f.mu.Lock()
			f.lookups++
			n := f.lookups
			f.mu.Unlock()
			return f.lookup(ctx, c, n)
		}
	}
	return a
}

func good(ref string) func(context.Context, *acall, int) (aobs, error) {
	return func(_ context.Context, c *acall, _ int) (aobs, error) {
		_ = c.Key()
		return aobs{Fact: settle.Applied, Ref: ref + c.ID[len(c.ID)-6:], Terms: c.Terms, Result: ares{true}}, nil
	}
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func aop(n int64) settle.Operation[areq] {
	return settle.Operation[areq]{Scope: "s", Subject: "o1", Purpose: "buy", Request: areq{N: n}}
}

type world struct {
	e        *settle.Engine
	store    settle.Store
	pay, ref *fakeAd
	pays     *aex
	refs     *aex
}

func newWorld(t *testing.T, store settle.Store, pc, rc settle.Contract, ro *settle.ExecutorOptions[areq, ares]) *world {
	t.Helper()
	w := &world{store: store, pay: &fakeAd{submit: good("ch_")}, ref: &fakeAd{submit: good("re_")}}
	w.e = must(t, nil2(settle.Open(store, nil)), nil)
	var err error
	if w.pays, err = settle.New(w.e, "pay", w.pay.adapter(pc), nil); err != nil {
		t.Fatal(err)
	}
	if ro == nil {
		ro = &settle.ExecutorOptions[areq, ares]{}
	}
	ro.Undoes = "pay"
	if w.refs, err = settle.New(w.e, "refund", w.ref.adapter(rc), ro); err != nil {
		t.Fatal(err)
	}
	return w
}

func nil2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func work(t *testing.T, e *settle.Engine) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	return func() { cancel(); <-done }
}

func noReply(_ context.Context, c *acall, _ int) (aobs, error) {
	_ = c.Key()
	return aobs{}, errors.New("reset")
}

func person(f settle.Fact, ref string, terms settle.Terms) settle.Decision {
	return settle.Decision{Actor: "ada", Reason: "r", Evidence: "e", Fact: f, Ref: ref, Terms: terms}
}

// A. the person accepts an effect in another unit: the stored wish is sent.
func TestRegress_WishOfAnotherUnitIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// B. a refund that was confirmed as larger than asked (and accepted) is counted as asked.
func TestRegress_LedgerCountsAskedNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// C. Cancel of a compensation canceled with its parent returns nil, and it is sent all the same.
func TestRegress_CancelNilThenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// D. a revived wish's hook never runs, and the verdict is nil.
func TestRegress_RevivedWishLosesHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// E. Authorize refuses the compensation, and the parent is canceled all the same.
func TestRegress_RefusedCompensationCancelsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// F. the scope of a compensation is silently that of the parent.
func TestRegress_CompensateAcrossScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// G. NotSent before Key() was asked for closes the key window for ever.
func TestRegress_NotSentWithoutKeyClosesWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// H. a refusal that came without the key closes an older attempt.
func TestRegress_KeylessRefusalClosesOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// I. an adapter that neither sends the key nor heeds its context.
func TestRegress_KeylessStraggler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// J. RetryAfter without bound.
func TestRegress_RetryAfterOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// K. a lookup that outlasts its deadline races with the merge.
func TestRegress_LookupStragglerRace(t *testing.T) {
	c := attackContract(true, settle.Authoritative)
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

// L. the reference of the parent in the terms of a wish.
func TestRegress_WishWhoseTermsNameTheReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// M. same wish, once before and once after the reference is known.
func TestRegress_SameRefundWithAndWithoutRef(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// N. replay of a compensation after a duplicate effect appeared.
func TestRegress_ReplayOfCompensationAfterDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// O. the approval's end is judged by the process's own clock.
type aheadClock struct{ d time.Duration }

func (c aheadClock) Now() time.Time { return time.Now().Add(c.d) }

func TestRegress_ApprovalJudgedByOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := nil2(settle.Open(memstore.New(nil), &settle.Options{Clock: aheadClock{time.Hour}}))
		f := &fakeAd{submit: good("ch_")}
		x := nil2(settle.New(e, "pay", f.adapter(attackContract(true, settle.NoLookup)), nil))
		op := aop(1000)
		op.Approval = &settle.Approval{By: "ada", At: time.Now(), Until: time.Now().Add(30 * time.Minute), Fingerprint: nil2(x.Fingerprint(op))}
		if _, err := x.Execute(t.Context(), op); err != nil {
			t.Errorf("the store's clock says that the approval holds: %v", err)
		}
	})
}

// P. Wake, a consequence that is due, and a lookup without answer: a loop without backoff.
func TestRegress_LookAgainLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := nil2(settle.Open(memstore.New(nil), nil))
		var fail atomic.Bool
		fail.Store(true)
		f := &fakeAd{}
		var hooks atomic.Int32
		x := nil2(settle.New(e, "pay", f.adapter(attackContract(true, settle.Authoritative)), &settle.ExecutorOptions[areq, ares]{
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

// Q. the parent comes undone between the commit of the attempt and the request.
type afterCommit struct {
	settle.Store
	f func(c settle.Change)
}

func (s *afterCommit) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	r, err := s.Store.Commit(ctx, c)
	if err == nil && s.f != nil {
		s.f(c)
	}
	return r, err
}

func TestRegress_SentAfterParentCameUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// R. a replaced compensation is sent after all when the parent revives.
func TestRegress_ReplacedWishIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// S. a late decline of attempt 1 while attempt 2 is under way settles as failed.
func TestRegress_LateDeclineBesideUnderway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// T. an observed amount with a huge exponent.
func TestRegress_HugeExponentObserved(t *testing.T) {
	c := attackContract(true, settle.NoLookup)
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

// U. reason of a compensation that the worker cancels by itself.
func TestRegress_WithdrawnReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// V. whole-effect compensation of an effect that turns out larger.
func TestRegress_WholeWishOfLargerEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

// W. the reason why a wish of an ambiguous parent ends.
func TestRegress_AmbiguousWishIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
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

var _ = strings.Contains
var _ = providertest.New
