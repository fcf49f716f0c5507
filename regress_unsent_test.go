package settle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
)

// silentStore applies the commit of attempt 2, says nothing for two seconds, and then an error.
type silentStore struct {
	*memstore.Store
	n atomic.Int64
}

func (s *silentStore) LocalReads() bool { return false }

func (s *silentStore) Renew(context.Context, []settle.Held, time.Duration) ([]error, error) {
	return nil, errors.New("no answer")
}

func (s *silentStore) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	recs, err := s.Store.Commit(ctx, c)
	if x := c.Writes[0].Entry; err == nil && x.Note == "attempt" && x.Attempt == 2 && s.n.Add(1) == 1 {
		time.Sleep(2 * time.Second)
		return nil, errors.New("no answer")
	}
	return recs, err
}

// TestRegress_UnsentAttemptStaysOpen (T-28): the holder learns that attempt 2 is committed when its lease is over and somebody else has the claim. It never sends it, and says so.
func TestRegress_UnsentAttemptStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New(nil)
		s := &silentStore{Store: m}
		var sends atomic.Int64
		mk := func(st settle.Store) (*settle.Engine, *aex) {
			e, err := settle.Open(st, &settle.Options{Lease: time.Second})
			rig.OK(t, err)
			f := &fakeAd{submit: func(_ context.Context, c *acall, n int) (aobs, error) {
				sends.Add(1)
				return aobs{Fact: settle.NotApplied}, nil // a 429, whenever it is sent
			}}
			x, err := settle.New(e, "pay", f.adapter(regressContract(false, settle.NoLookup)), nil)
			rig.OK(t, err)
			return e, x
		}
		e1, x1 := mk(s)
		e2, _ := mk(m)
		out, err := x1.Execute(t.Context(), aop(1))
		rig.Is(t, err, settle.ErrPending)
		time.Sleep(time.Minute)
		go func() {
			_, _ = e1.Reconcile(context.WithoutCancel(t.Context()), out.ID)
		}()
		time.Sleep(1500 * time.Millisecond)
		stop := work(t, e2)
		time.Sleep(2 * time.Hour)
		stop()
		r, err := m.Get(t.Context(), settle.ByID(out.ID))
		rig.OK(t, err)
		if r.State == settle.StateReview {
			t.Errorf("review %s, and nothing was ever sent but what had no effect", r.Review.Reason)
		}
	})
}
