package settle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
)

// shop is an engine with any number of kinds whose provider does what it is told, and keeps a ledger.
type shop struct {
	t     *testing.T
	store settle.Store
	e     *settle.Engine

	mu      sync.Mutex
	ledger  map[string]int // effects by operation
	started []sale         // requests, in order
	running map[string]int // requests under way, by kind
	most    map[string]int // the most that were, by kind
	notices []settle.Notice
}

// sale is one request that arrived.
type sale struct {
	kind, scope, op string
	at              time.Time
}

type sales = settle.Executor[areq, ares]

func newShop(t *testing.T, store settle.Store, o settle.Options) *shop {
	t.Helper()
	s := &shop{t: t, store: store, ledger: map[string]int{}, running: map[string]int{}, most: map[string]int{}}
	o.Observer = s
	var err error
	if s.e, err = settle.Open(store, &o); err != nil {
		t.Fatal(err)
	}
	return s
}

// Notice implements settle.Observer.
func (s *shop) Notice(_ context.Context, n settle.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notices = append(s.notices, n)
}

// count counts the notices of an event.
func (s *shop) count(event settle.NoticeEvent) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.notices {
		if x.Event == event {
			n++
		}
	}
	return n
}

// kind makes a kind each of whose requests takes as long as work, which may be nil, takes.
func (s *shop) kind(name string, o *settle.ExecutorOptions[areq, ares], work func(ctx context.Context, c *acall) error) *sales {
	s.t.Helper()
	a := settle.Adapter[areq, ares]{
		Promise: settle.Contract{
			Account: settle.AccountFacts{Provider: "p"}, Deadline: 5 * time.Minute, SettleDelay: time.Second,
			Keys: settle.Keys{Window: 24 * time.Hour}, Lookup: settle.Authoritative,
		},
		TermsFunc: func(op settle.Operation[areq]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.N, "EUR")}
		},
		LookupFunc: func(_ context.Context, c *acall) (aobs, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.ledger[c.ID] == 0 {
				return aobs{Fact: settle.NotFound}, nil
			}
			return aobs{Fact: settle.Applied, Ref: "r-" + c.ID, Terms: c.Terms}, nil
		},
		SubmitFunc: func(ctx context.Context, c *acall) (aobs, error) {
			_ = c.Key()
			s.mu.Lock()
			s.started = append(s.started, sale{kind: name, scope: c.Scope, op: c.ID, at: time.Now()})
			s.running[name]++
			s.most[name] = max(s.most[name], s.running[name])
			s.mu.Unlock()
			var err error
			if work != nil {
				err = work(ctx, c)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.running[name]--
			if err != nil {
				return aobs{}, err
			}
			s.ledger[c.ID]++
			return aobs{Fact: settle.Applied, Ref: "r-" + c.ID, Terms: c.Terms, Result: ares{true}}, nil
		},
	}
	x, err := settle.New(s.e, name, a, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

// takes is work that takes d.
func takes(d time.Duration) func(context.Context, *acall) error {
	return func(ctx context.Context, _ *acall) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// order is the nth operation of a scope.
func order(scope string, n int) settle.Operation[areq] {
	return settle.Operation[areq]{Scope: scope, Subject: fmt.Sprint("o", n), Purpose: "buy", Request: areq{N: int64(n + 1)}}
}

// register stores n operations of a scope, without a word to a worker of this engine.
func (s *shop) register(x *sales, scope string, n int) (ids []string) {
	s.t.Helper()
	for i := range n {
		r, err := x.Register(context.Background(), order(scope, i))
		if err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

// work runs the worker until the returned function is called, which waits for it.
func (s *shop) work() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.e.Run(ctx) }()
	return func() {
		s.t.Helper()
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	}
}

// arrived lists the requests so far.
func (s *shop) arrived() []sale {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sale(nil), s.started...)
}

// effects checks that each operation had its effect once.
func (s *shop) effects(ids []string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if n := s.ledger[id]; n != 1 {
			s.t.Fatalf("operation %s had %d effects, want 1", id, n)
		}
	}
}

// tapped is a store whose renewals are seen, and answered by somebody else.
type tapped struct {
	settle.Store
	renew func(ctx context.Context, held []settle.Held, lease time.Duration, next func() ([]error, error)) ([]error, error)
}

// Renew implements settle.Store.
func (s *tapped) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	next := func() ([]error, error) { return s.Store.Renew(ctx, held, lease) }
	if s.renew == nil {
		return next()
	}
	return s.renew(ctx, held, lease, next)
}

var errDown = errors.New("the store is down")
