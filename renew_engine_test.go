package settle_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// One process works on many operations for longer than a lease: one call of the store renews all of
// its claims, however they came, and none is lost.
func TestRenewalsOfOneProcessAreOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60
		var mu sync.Mutex
		var calls []int
		store := &tapped{Store: memstore.New(nil), renew: func(_ context.Context, held []settle.Held, _ time.Duration, next func() ([]error, error)) ([]error, error) {
			mu.Lock()
			calls = append(calls, len(held))
			mu.Unlock()
			return next()
		}}
		s := newShop(t, store, settle.Options{Lease: 30 * time.Second, Concurrency: n})
		x := s.kind("charge", nil, takes(4*time.Minute+5*time.Second)) // ends between renewals
		ids := s.register(x, "a", n/2)
		stop := s.work()
		var wg sync.WaitGroup
		for i := range n / 2 { // and those of callers, one after the other
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				out, err := x.Execute(context.Background(), order("b", i))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				ids = append(ids, out.ID)
				mu.Unlock()
			})
		}
		wg.Wait()
		stop()
		s.effects(ids)
		if lost := s.count(settle.EventClaimLost); lost > 0 {
			t.Errorf("%d claims were lost", lost)
		}
		// Every ten seconds for four minutes, and one more for those that came later.
		if len(calls) > 26 {
			t.Errorf("%d renewals of %v claims, want one each ten seconds", len(calls), calls)
		}
		all := 0
		for _, c := range calls {
			if c == n {
				all++
			}
		}
		if all < 20 {
			t.Errorf("%d of the renewals %v were of all claims, want all but the first and last", all, calls)
		}
	})
}

// I5: the answer for one claim is that it is lost. Its holder stops, the others go on.
func TestI5_OneClaimOfManyIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(nil)
		var mu sync.Mutex
		victim := ""
		store := &tapped{Store: inner, renew: func(_ context.Context, held []settle.Held, _ time.Duration, next func() ([]error, error)) ([]error, error) {
			said, err := next()
			mu.Lock()
			defer mu.Unlock()
			for i, h := range held {
				if victim == "" || h.ID == victim {
					victim, said[i] = h.ID, settle.ErrClaimLost
				}
			}
			return said, err
		}}
		s := newShop(t, store, settle.Options{Concurrency: 10})
		canceled := map[string]time.Duration{}
		began := time.Now()
		x := s.kind("charge", nil, func(ctx context.Context, c *acall) error {
			err := takes(2*time.Minute+5*time.Second)(ctx, c) // ends between renewals
			if err != nil {
				mu.Lock()
				canceled[c.ID] = time.Since(began)
				mu.Unlock()
			}
			return err
		})
		ids := s.register(x, "a", 10)
		stop := s.work()
		time.Sleep(2*time.Minute + 6*time.Second)
		synctest.Wait()
		mu.Lock()
		if len(canceled) != 1 || canceled[victim] != 10*time.Second {
			t.Errorf("requests were given up after %v, want the one whose claim was lost, at its renewal", canceled)
		}
		mu.Unlock()
		if n := s.count(settle.EventClaimLost); n != 1 {
			t.Errorf("%d claims were reported lost, want 1", n)
		}
		mu.Lock()
		victim = "nobody"
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		stop()
		s.effects(ids)
	})
}

// I5: a store that does not answer renewals in time ends all claims of the process before the store
// would: no request runs into the time of the next holder, and none starts.
func TestI5_NoAnswerToRenewalsEndsTheClaims(t *testing.T) {
	for name, renew := range map[string]func(ctx context.Context) error{
		"silent": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"deaf":   func(context.Context) error { time.Sleep(40 * time.Second); return errDown }, // it breaks S5
		"down":   func(context.Context) error { return errDown },
		"locked": func(context.Context) error { return settle.ErrUncommitted },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				n := 0
				store := &tapped{Store: memstore.New(nil), renew: func(ctx context.Context, held []settle.Held, _ time.Duration, _ func() ([]error, error)) ([]error, error) {
					mu.Lock()
					n++
					mu.Unlock()
					err := renew(ctx)
					said := make([]error, len(held))
					for i := range said {
						said[i] = settle.ErrUncommitted
					}
					if name == "locked" {
						return said, nil
					}
					return nil, err
				}}
				s := newShop(t, store, settle.Options{Lease: 30 * time.Second, Concurrency: 10})
				var ended []time.Duration
				began := time.Now()
				x := s.kind("charge", nil, func(ctx context.Context, _ *acall) error {
					<-ctx.Done()
					mu.Lock()
					ended = append(ended, time.Since(began))
					mu.Unlock()
					return ctx.Err()
				})
				s.register(x, "a", 10)
				stop := s.work()
				time.Sleep(29 * time.Second)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if len(ended) != 10 {
					t.Fatalf("%d of 10 requests ended before the lease did", len(ended))
				}
				for _, at := range ended {
					if at < 26*time.Second || at > 28*time.Second {
						t.Errorf("a request ended at %v, want a margin before the lease of 30 s", at)
					}
				}
				if n < 3 && name != "deaf" {
					t.Errorf("%d renewals were tried, want one after the other", n)
				}
				if got := len(s.arrived()); got != 10 {
					t.Errorf("%d requests, want 10: none without a claim", got)
				}
				mu.Unlock()
				stop()
				time.Sleep(time.Minute) // until the last answer has come
				mu.Lock()
			})
		})
	}
}

// A renewal that reaches the store after the holder's own last write, which gave the claim up, and before that write's
// answer is back, hears that there is no such claim. Nothing was lost, and nobody is told so.
func TestRenewalThatMeetsTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		store := &slow{Store: memstore.New(nil), by: 2 * time.Second}
		tap := &tapped{Store: store, renew: func(_ context.Context, _ []settle.Held, _ time.Duration, next func() ([]error, error)) ([]error, error) {
			said, err := next()
			for _, e := range said {
				if errors.Is(e, settle.ErrClaimLost) {
					lost++
				}
			}
			return said, err
		}}
		s := newShop(t, tap, settle.Options{Lease: 30 * time.Second})
		x := s.kind("charge", nil, takes(7*time.Second)) // recorded at 9 s, renewed at 10 s, answered at 11 s
		ids := s.register(x, "a", 1)
		stop := s.work()
		time.Sleep(time.Minute)
		stop()
		s.effects(ids)
		if lost == 0 {
			t.Fatal("no renewal met the outcome: the test shows nothing")
		}
		if n := s.count(settle.EventClaimLost); n != 0 {
			t.Errorf("%d claims were reported lost, and none was", n)
		}
	})
}

// slow answers commits late.
type slow struct {
	settle.Store
	by time.Duration
}

// Commit implements settle.Store.
func (s *slow) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	recs, err := s.Store.Commit(ctx, c)
	time.Sleep(s.by)
	return recs, err
}
