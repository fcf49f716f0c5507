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

// TestRegress_CorrectedSettleDelay (I6): a deploy corrects SettleDelay from 10 s to 10 min. Of the key window the shorter one counts, of the settle delay the longer one, for attempts
// that were made before, too.
func TestRegress_CorrectedSettleDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		var at []time.Time
		mk := func(settles time.Duration) (*settle.Engine, *aex) {
			e, err := settle.Open(s, nil)
			rig.OK(t, err)
			c := regressContract(true, settle.NoLookup)
			c.SettleDelay = settles
			f := &fakeAd{submit: func(_ context.Context, c *acall, n int) (aobs, error) {
				_ = c.Key()
				at = append(at, time.Now())
				return aobs{}, errors.New("lost")
			}}
			x, err := settle.New(e, "pay", f.adapter(c), nil)
			rig.OK(t, err)
			return e, x
		}
		_, x1 := mk(10 * time.Second)
		e2, _ := mk(10 * time.Minute)
		_, err := x1.Execute(t.Context(), aop(1))
		rig.Is(t, err, settle.ErrUnknown)
		stop := work(t, e2)
		time.Sleep(time.Hour)
		stop()
		if len(at) > 1 && at[1].Sub(at[0]) < 10*time.Minute {
			t.Errorf("sent again after %v: by the contract of the process that sends, the first may land for 10 min, and concurrent requests are not safe", at[1].Sub(at[0]))
		}
	})
}
