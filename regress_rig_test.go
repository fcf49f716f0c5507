package settle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
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

func regressContract(keys bool, look settle.LookupPromise) settle.Contract {
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

// Must not happen: the person accepts an effect in another unit: the stored wish is sent.

// Must not happen: a refund that was confirmed as larger than asked (and accepted) is counted as asked.

// Must not happen: Cancel of a compensation canceled with its parent returns nil, and it is sent all the same.

// Must not happen: a revived wish's hook never runs, and the verdict is nil.

// Must not happen: Authorize refuses the compensation, and the parent is canceled all the same.

// Must not happen: the scope of a compensation is silently that of the parent.

// Must not happen: NotSent before Key() was asked for closes the key window for ever.

// Must not happen: a refusal that came without the key closes an older attempt.

// Must not happen: an adapter that neither sends the key nor heeds its context.

// Must not happen: RetryAfter without bound.

// Must not happen: a lookup that outlasts its deadline races with the merge.

// Must not happen: the reference of the parent in the terms of a wish.

// Must not happen: same wish, once before and once after the reference is known.

// Must not happen: replay of a compensation after a duplicate effect appeared.

// Must not happen: the approval's end is judged by the process's own clock.

type aheadClock struct{ d time.Duration }

func (c aheadClock) Now() time.Time { return time.Now().Add(c.d) }

// Must not happen: Wake, a consequence that is due, and a lookup without answer: a loop without backoff.

// Must not happen: the parent comes undone between the commit of the attempt and the request.

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

// Must not happen: a replaced compensation is sent after all when the parent revives.

// Must not happen: a late decline of attempt 1 while attempt 2 is under way settles as failed.

// Must not happen: an observed amount with a huge exponent.

// Must not happen: reason of a compensation that the worker cancels by itself.

// Must not happen: whole-effect compensation of an effect that turns out larger.

// Must not happen: the reason why a wish of an ambiguous parent ends.

var _ = strings.Contains

var _ = providertest.New

// Must not happen: an effect reported without a reference, refunded, then named, then a duplicate: refunded again.

// Must not happen: a wall-only clock that is stepped forward during a pass makes an attempt quiet.

type stepClock struct{ off atomic.Int64 }

func (c *stepClock) Now() time.Time { return time.Now().Round(0).Add(time.Duration(c.off.Load())) }

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

// Z3. declined then bounced, bounced then declined: the ledgers differ.

// Z10. a hook that ends its goroutine loses the evidence, for ever.

// T2. an observed amount with a huge exponent.

// Z7. late lookups are evidence too.

// Z11. a duplicate effect of a compensation is not in the parent's ledger.

// Must not happen: the provider asks to be left alone until an epoch: Retry-After read as seconds.

// Must not happen: resent again and again while the provider says that it is under way, and the record grows.
