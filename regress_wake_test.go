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

type panicBack struct{ N int }

func (*panicBack) UnmarshalJSON([]byte) error { panic("old format") }

// TestRegress_ResultThatPanicsOnReading: a result that cannot be read does not take the confirmed effect's outcome away.
func TestRegress_ResultThatPanicsOnReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := settle.Open(memstore.New(nil), nil)
		rig.OK(t, err)
		x, err := settle.New(e, "pay", settle.Adapter[areq, panicBack]{
			Promise:   regressContract(false, settle.NoLookup),
			TermsFunc: func(settle.Operation[areq]) settle.Terms { return settle.Terms{} },
			SubmitFunc: func(_ context.Context, c *settle.Call[areq]) (settle.Observation[panicBack], error) {
				return settle.Observation[panicBack]{Fact: settle.Applied, Ref: "ch_1"}, nil
			},
		}, nil)
		rig.OK(t, err)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("Execute panicked after the effect: %v", p)
			}
		}()
		out, err := x.Execute(t.Context(), aop(1))
		if err != nil || out.State != settle.StateSucceeded {
			t.Errorf("%v %v", out.State, err)
		}
	})
}

// TestRegress_LateRetryAfter: a refusal that comes late says when to come again, like any other.
func TestRegress_LateRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		var at []time.Time
		e, x := remoteKind(t, s, func(_ context.Context, c *settle.Call[areq]) (aobs, error) {
			_ = c.Key()
			at = append(at, time.Now())
			if len(at) == 1 {
				time.Sleep(6 * time.Second) // beyond its deadline of 5 s
				return aobs{Fact: settle.NotApplied, RetryAfter: time.Hour}, nil
			}
			return aobs{Fact: settle.NotApplied, RetryAfter: time.Hour}, nil
		}, func(context.Context, *settle.Call[areq]) (aobs, error) { return aobs{}, errors.New("no") }, nil)
		stop := work(t, e)
		_, err := x.Execute(t.Context(), aop(1))
		rig.Is(t, err, settle.ErrPending)
		time.Sleep(30 * time.Minute)
		stop()
		if len(at) > 1 {
			t.Errorf("asked to wait an hour, sent again after %v", at[1].Sub(at[0]))
		}
	})
}

// TestRegress_WakeLostAtReview: an event asks for a look while the holder is about to open a review: the look is made all the same.
func TestRegress_WakeLostAtReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &beforeCommit{Store: memstore.New(nil)}
		var landed atomic.Bool
		e, err := settle.Open(s, nil)
		rig.OK(t, err)
		x, err := settle.New(e, "pay", settle.Adapter[areq, ares]{
			Promise:   regressContract(false, settle.Authoritative),
			TermsFunc: func(settle.Operation[areq]) settle.Terms { return settle.Terms{} },
			SubmitFunc: func(_ context.Context, c *settle.Call[areq]) (aobs, error) {
				return aobs{}, errors.New("lost")
			},
			LookupFunc: func(context.Context, *settle.Call[areq]) (aobs, error) {
				if landed.Load() {
					return aobs{Fact: settle.Applied, Ref: "ch_1"}, nil
				}
				return aobs{Fact: settle.NotFound}, nil
			},
		}, nil)
		rig.OK(t, err)
		var id string
		s.f = func(c settle.Change) {
			if c.Writes[0].Entry.Note == "review" && !landed.Load() {
				landed.Store(true)
				ev := settle.Event{Account: c.Writes[0].Record.Account, ID: "evt_1", Operation: c.Writes[0].Record.ID}
				_, err := e.Observe(context.WithoutCancel(t.Context()), ev)
				rig.OK(t, err)
			}
		}
		stop := work(t, e)
		out, err := x.Execute(t.Context(), aop(1))
		rig.Is(t, err, settle.ErrPending)
		id = out.ID
		time.Sleep(30 * time.Minute)
		stop()
		r, err := s.Get(t.Context(), settle.ByID(id))
		rig.OK(t, err)
		if r.State != settle.StateSucceeded {
			t.Errorf("the event asked for a look half an hour ago, and nobody looked: %v due %v now %v", r, r.Due, time.Now())
		}
	})
}
