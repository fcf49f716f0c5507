package settle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
)

func remoteKind(t *testing.T, s settle.Store, submit, lookup func(context.Context, *settle.Call[areq]) (aobs, error), o *settle.Options) (*settle.Engine, *aex) {
	t.Helper()
	e, err := settle.Open(s, o)
	rig.OK(t, err)
	x, err := settle.New(e, "pay", settle.Adapter[areq, ares]{
		Promise: regressContract(true, settle.Authoritative),
		TermsFunc: func(op settle.Operation[areq]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.N, "EUR")}
		},
		SubmitFunc: submit, LookupFunc: lookup,
	}, nil)
	rig.OK(t, err)
	return e, x
}

// TestRegress_RefreshGivesUpRecordIsItsOwn (I2): a caller of Refresh that gives up owns its Record; what it does to it is not stored by the lookup that goes on.
func TestRegress_RefreshGivesUpRecordIsItsOwn(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(nil)
			answer := make(chan struct{})
			slow := false
			e, x := remoteKind(t, s, func(_ context.Context, c *settle.Call[areq]) (aobs, error) {
				_ = c.Key()
				return aobs{}, errors.New("lost")
			}, func(context.Context, *settle.Call[areq]) (aobs, error) {
				if !slow {
					return aobs{}, errors.New("lost")
				}
				<-answer
				return aobs{Fact: settle.Underway, Ref: "ch_1"}, nil
			}, nil)
			out, err := x.Execute(t.Context(), aop(100))
			rig.Is(t, err, settle.ErrUnknown)
			before, err := s.Get(t.Context(), settle.ByID(out.ID))
			rig.OK(t, err)
			slow = true
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if !late {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			defer cancel()
			got, _ := e.Refresh(ctx, out.ID)
			// The caller redacts its copy.
			for i := range got.Record.Request {
				got.Record.Request[i] = 'X'
			}
			for i := range got.Record.Attempts {
				got.Record.Attempts[i].Fate = settle.FateNotSent
			}
			close(answer)
			synctest.Wait()
			after, err := s.Get(t.Context(), settle.ByID(out.ID))
			rig.OK(t, err)
			if string(after.Request) != string(before.Request) {
				t.Errorf("late=%v: the stored request was %s and is %s (I2)", late, string(before.Request), string(after.Request))
			}
			if after.Attempts[0].Fate != before.Attempts[0].Fate {
				t.Errorf("late=%v: stored fate %q -> %q", late, before.Attempts[0].Fate, after.Attempts[0].Fate)
			}
		})
	}
}

// TestRegress_LeaderScribbles: each of the callers that share the work owns its outcome, the first one too.
func TestRegress_LeaderScribbles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		_, x := remoteKind(t, memstore.New(nil), func(ctx context.Context, c *settle.Call[areq]) (aobs, error) {
			<-gate
			return good("ch_")(ctx, c, 1)
		}, func(context.Context, *settle.Call[areq]) (aobs, error) { return aobs{}, errors.New("no") }, nil)
		done := make(chan string, 20)
		for range 20 {
			go func() {
				out, _ := x.Execute(t.Context(), aop(100))
				got := string(out.Request)
				for i := range out.Request {
					out.Request[i] = 'X'
				}
				done <- got
			}()
		}
		synctest.Wait()
		close(gate)
		for range 20 {
			if got := <-done; got[0] != '{' {
				t.Errorf("got %s", got)
			}
		}
	})
}
