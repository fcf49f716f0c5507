package settle_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
)

// slowAck holds back the answer to the commit of attempt 2.
type slowAck struct {
	*memstore.Store
	once    sync.Once
	applied chan struct{}
	ack     chan struct{}
}

func (s *slowAck) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	recs, err := s.Store.Commit(ctx, c)
	if x := c.Writes[0].Entry; err == nil && x.Note == "attempt" && x.Attempt == 2 {
		s.once.Do(func() { close(s.applied); <-s.ack })
	}
	return recs, err
}

type evAdapter struct{ settle.Adapter[areq, ares] }

func (evAdapter) ReadEvent(_ context.Context, ev settle.Event) (aobs, error) {
	switch ev.Type {
	case "applied":
		return aobs{Fact: settle.Applied, Ref: ev.Ref}, nil
	case "reversed":
		return aobs{Fact: settle.Reversed, Ref: ev.Ref}, nil
	}
	return aobs{}, nil
}

// TestRegress_ClaimTakenBySettle (I5): an event settles the operation, and takes the claim, in the moment when attempt 2 is committed and not acknowledged; another
// unsettles it; another process claims. The first one hears the answer and sends: beside the other's claim, and not after a recorded end of attempt 2.
func TestRegress_ClaimTakenBySettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New(nil)
		s := &slowAck{Store: m, applied: make(chan struct{}), ack: make(chan struct{})}
		var mu sync.Mutex
		var sends []string
		mk := func(name string, st settle.Store) (*settle.Engine, *aex) {
			e, err := settle.Open(st, nil)
			rig.OK(t, err)
			c := regressContract(true, settle.NoLookup)
			x, err := settle.New(e, "pay", settle.ProviderAdapter[areq, ares](evAdapter{settle.Adapter[areq, ares]{
				Promise:   c,
				TermsFunc: func(settle.Operation[areq]) settle.Terms { return settle.Terms{} },
				SubmitFunc: func(ctx context.Context, c *settle.Call[areq]) (aobs, error) {
					_ = c.Key()
					mu.Lock()
					sends = append(sends, name)
					mu.Unlock()
					r, err := m.Get(context.Background(), settle.ByID(c.ID))
					if err == nil {
						a := r.Attempts[len(r.Attempts)-1]
						if c.Attempt == 2 && !a.End.IsZero() && a.End.Before(time.Now()) {
							t.Errorf("I5: attempt 2 leaves after its recorded end %v, state %v, claimed by the other: %v", a.End, r.State, r.Claimed())
						}
					}
					return aobs{}, errors.New("lost")
				},
			}}), nil)
			rig.OK(t, err)
			return e, x
		}
		e1, x1 := mk("p1", s)
		e2, _ := mk("p2", m)
		out, err := x1.Execute(t.Context(), aop(1))
		rig.Is(t, err, settle.ErrUnknown)
		go func() {
			for range 3 {
				time.Sleep(time.Minute)
				_, _ = e1.Reconcile(context.WithoutCancel(t.Context()), out.ID)
			}
		}()
		<-s.applied
		acc := out.Account
		_, err = e2.Observe(t.Context(), settle.Event{Account: acc, ID: "e1", Type: "applied", Operation: out.ID, Ref: "ch_1"})
		rig.OK(t, err)
		_, err = e2.Observe(t.Context(), settle.Event{Account: acc, ID: "e2", Type: "reversed", Operation: out.ID, Ref: "ch_1"})
		rig.OK(t, err)
		_, err = e2.Reconcile(t.Context(), out.ID)
		rig.OK(t, err)
		time.Sleep(2 * time.Second)
		close(s.ack)
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(sends, "p1") {
			t.Errorf("sent by %v", sends)
		}
	})
}
