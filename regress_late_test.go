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

// slowToTell is a store that has committed the second attempt and says so only when a late answer was merged.
type slowToTell struct {
	*memstore.Store
	attempt, merged chan struct{}
}

func (s *slowToTell) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	recs, err := s.Store.Commit(ctx, c)
	switch e := c.Writes[0].Entry; {
	case err != nil:
	case e.Note == "attempt" && e.Attempt == 2:
		close(s.attempt)
		<-s.merged
	case e.Source == settle.SourceLookup && e.Fact == settle.Underway:
		close(s.merged)
	}
	return recs, err
}

// TestRegress_LateAnswerEndsNoAttempt (I5): the answer of a lookup that was given up comes while the holder of the same claim has just committed its next
// attempt. It is evidence like any other; the attempt has not ended, and what counts the provider's quiet from its end must not begin.
func TestRegress_LateAnswerEndsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowToTell{memstore.New(nil), make(chan struct{}), make(chan struct{})}
		e, err := settle.Open(s, nil)
		rig.OK(t, err)
		inFlight, answer := make(chan struct{}), make(chan struct{})
		var sent, asked atomic.Int64
		type req struct{ Order string }
		x, err := settle.New(e, "charge", settle.Adapter[req, string]{
			Promise: settle.Contract{
				Account: settle.AccountFacts{Provider: "p"}, Keys: settle.Keys{Window: 24 * time.Hour}, Lookup: settle.Authoritative,
				Deadline: time.Second, SettleDelay: time.Minute,
			},
			TermsFunc: func(settle.Operation[req]) settle.Terms { return settle.Terms{} },
			SubmitFunc: func(_ context.Context, c *settle.Call[req]) (settle.Observation[string], error) {
				_ = c.Key()
				if sent.Add(1) == 1 {
					return settle.Observation[string]{}, errors.New("no answer")
				}
				close(inFlight)
				<-answer
				return settle.Observation[string]{Fact: settle.Applied, Ref: "ch_1", Terms: c.Terms}, nil
			},
			LookupFunc: func(context.Context, *settle.Call[req]) (settle.Observation[string], error) {
				if asked.Add(1) != 2 {
					return settle.Observation[string]{}, errors.New("no answer")
				}
				<-s.attempt // whatever its context says
				return settle.Observation[string]{Fact: settle.Underway}, nil
			},
		}, nil)
		rig.OK(t, err)
		op := settle.Operation[req]{Scope: "s", Subject: "order-1", Purpose: "p", Request: req{"1"}}
		out, err := x.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrUnknown)
		done := make(chan error, 1)
		go func() {
			for {
				time.Sleep(10 * time.Minute)
				if _, err := e.Reconcile(context.WithoutCancel(t.Context()), out.ID); sent.Load() > 1 || asked.Load() > 5 {
					done <- err
					return
				}
			}
		}()
		<-inFlight
		r, err := s.Get(t.Context(), settle.ByID(out.ID))
		rig.OK(t, err)
		if a := r.Attempts[len(r.Attempts)-1]; a.N != 2 || !a.End.IsZero() {
			t.Errorf("attempt %d has started at %v and ended at %v, and is under way", a.N, a.Start, a.End)
		}
		close(answer)
		rig.OK(t, <-done)
	})
}
