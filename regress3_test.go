package settle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// AA. the provider asks to be left alone until an epoch: Retry-After read as seconds.
func TestRegress_RetryAfterDecades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			if n == 1 {
				_ = c.Key()
				return aobs{Fact: settle.NotApplied, Code: "rate", RetryAfter: 1_790_000_000 * time.Second}, nil
			}
			return good("ch_")(ctx, c, n)
		}
		out, _ := w.pays.Execute(t.Context(), aop(1))
		stop := work(t, w.e)
		time.Sleep(30 * 24 * time.Hour)
		stop()
		r := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		if !r.State.Settled() && r.State != settle.StateReview {
			t.Errorf("%v after a month, due %v, %d sends", r, r.Due, w.pay.sent())
		}
	})
}

// BB. resent again and again while the provider says that it is under way, and the record grows.
func TestRegress_UnderwayGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := attackContract(true, settle.NoLookup)
		c.Keys.Window, c.ProcessingLimit = settle.Forever, 10*24*time.Hour
		w := newWorld(t, memstore.New(nil), c, c, nil)
		w.pay.submit = func(ctx context.Context, c *acall, n int) (aobs, error) {
			if n == 1 {
				return noReply(ctx, c, n)
			}
			_ = c.Key()
			return aobs{Fact: settle.Underway, Ref: "ch_1"}, nil
		}
		out, _ := w.pays.Execute(t.Context(), aop(1))
		stop := work(t, w.e)
		time.Sleep(9 * 24 * time.Hour)
		stop()
		r := must(t, nil2(w.e.Get(t.Context(), out.ID)), nil)
		b, _ := settle.EncodeRecord(r)
		if len(r.Attempts) > 50 {
			t.Errorf("%d attempts kept, %d bytes; every one a request", len(r.Attempts), len(b))
		}
	})
}
