package providertest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pt "github.com/settle-go/settle/providertest"
)

func TestKeyWindow(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name    string
		window  time.Duration
		after   time.Duration
		key     string
		effects int
	}{
		{name: "no keys honored", window: 0, key: "k1", effects: 2},
		{name: "inside", window: time.Hour, after: time.Hour - 1, key: "k1", effects: 1},
		{name: "at its end", window: time.Hour, after: time.Hour, key: "k1", effects: 2},
		{name: "forever", window: pt.Forever, after: 200 * 365 * 24 * time.Hour, key: "k1", effects: 1},
		{name: "request without key", window: pt.Forever, key: "", effects: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := start
			p := pt.New(&pt.Options{KeyWindow: c.window, Now: func() time.Time { return now }})
			for range 2 {
				_, err := p.Create(t.Context(), charge(c.key))
				require.NoError(t, err)
				now = start.Add(c.after)
			}
			assert.Equal(t, c.effects, p.Effects("order-17"))
			assert.Equal(t, c.effects > 1, len(p.Duplicates()) > 0)
		})
	}
}

func TestWindowIsNotRenewedByAReplay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := pt.New(&pt.Options{KeyWindow: time.Hour, Now: func() time.Time { return now }})
	for range 3 {
		_, err := p.Create(t.Context(), charge("k1"))
		require.NoError(t, err)
		now = now.Add(40 * time.Minute)
	}
	assert.Equal(t, 2, p.Effects("order-17"))
}

func TestForgetKeys(t *testing.T) {
	t.Parallel()
	p := pt.New(keyed())
	for range 2 {
		_, err := p.Create(t.Context(), charge("k1"))
		require.NoError(t, err)
		p.ForgetKeys()
	}
	assert.Equal(t, []string{"order-17"}, p.Duplicates())
}

func TestKeysAreScopedByAccountAndNothingElse(t *testing.T) { // T-01, T-15
	t.Parallel()
	both(t, &pt.Options{KeyWindow: pt.Forever, Account: "acct_eu", Drift: pt.DriftIgnore}, func(t *testing.T, p *pt.Provider, api pt.API) {
		_, err := api.Create(t.Context(), charge("123"))
		require.NoError(t, err)
		us := charge("123")
		us.Account = "acct_us"
		_, err = api.Create(t.Context(), us)
		require.NoError(t, err)
		require.Len(t, p.Ledger(), 2)
		refund := pt.Request{Kind: pt.KindRefund, Key: "123", Parent: "ch_1", Amount: 1, Currency: "EUR"}
		got, err := api.Create(t.Context(), refund)
		require.NoError(t, err)
		assert.Equal(t, "ch_1", got.ID, "a refund answered with a charge")
		assert.Equal(t, "acct_eu", got.Account)

		found, err := pt.Find(t.Context(), api, pt.Query{Key: "123", Account: "acct_us"})
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, "ch_2", found[0].ID)
	})
}

func TestDrift(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		drift   pt.Drift
		code    string
		id      string
		effects int
	}{
		{drift: pt.DriftDetect, code: pt.CodeKeyReused, effects: 1},
		{drift: pt.DriftIgnore, id: "ch_1", effects: 1},
		{drift: pt.DriftNew, id: "ch_2", effects: 2},
	} {
		t.Run(string(c.drift), func(t *testing.T) {
			t.Parallel()
			both(t, &pt.Options{KeyWindow: time.Hour, Drift: c.drift}, func(t *testing.T, p *pt.Provider, api pt.API) {
				_, err := api.Create(t.Context(), charge("k1"))
				require.NoError(t, err)
				for range 2 {
					other := charge("k1")
					other.Amount++
					got, err := api.Create(t.Context(), other)
					if c.code != "" {
						assert.Equal(t, 400, fault(t, err).Status)
						assert.Equal(t, c.code, fault(t, err).Code)
					} else {
						require.NoError(t, err)
						assert.Equal(t, c.id, got.ID)
					}
				}
				assert.Equal(t, c.effects, p.Effects("order-17"))
			})
		})
	}
}

func TestDriftIsDetectedWhileTheFirstIsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pt.New(keyed())
		p.Script(pt.HangBefore(nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = p.Create(ctx, charge("k1")) }()
		synctest.Wait()
		other := charge("k1")
		other.Currency = "USD"
		_, err := p.Create(t.Context(), other)
		assert.Equal(t, pt.CodeKeyReused, fault(t, err).Code)
	})
}

func TestReplay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		replay pt.Replay
		step   pt.Step
		status pt.ObjectStatus // of the object in the replay
		code   string          // or the fault
	}{
		{"stored", pt.ReplayStored, pt.Processing(), pt.StatusProcessing, ""},
		{"current", pt.ReplayCurrent, pt.Processing(), pt.StatusSucceeded, ""},
		{"names", pt.ReplayNames, pt.Processing(), "", pt.CodeAlreadyExists},
		{"stored error", pt.ReplayStored, pt.Processing().And(pt.StatusAfter(500, "boom")), "", "boom"},
		{"current instead of error", pt.ReplayCurrent, pt.Processing().And(pt.StatusAfter(500, "boom")), pt.StatusSucceeded, ""},
		{"stored decline", pt.ReplayStored, pt.Decline("no_funds"), "", "no_funds"},
		{"current decline", pt.ReplayCurrent, pt.Decline("no_funds"), "", "no_funds"},
		{"decline behind an error", pt.ReplayStored, pt.Decline("no_funds").And(pt.StatusAfter(502, "")), "", "no_funds"},
		{"names a failed object too", pt.ReplayNames, pt.Decline("no_funds"), "", pt.CodeAlreadyExists},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			both(t, &pt.Options{KeyWindow: time.Hour, Replay: c.replay}, func(t *testing.T, p *pt.Provider, api pt.API) {
				p.Script(c.step)
				first, err := api.Create(t.Context(), charge("k1"))
				if c.name == "decline behind an error" {
					assert.Equal(t, 502, fault(t, err).Status)
				}
				_ = p.Finish("ch_1")
				got, err := api.Create(t.Context(), charge("k1"))
				if c.code != "" {
					f := fault(t, err)
					assert.Equal(t, c.code, f.Code)
					if c.code == pt.CodeAlreadyExists {
						assert.Equal(t, 409, f.Status)
						assert.Equal(t, "ch_1", f.ExistingID)
					}
					return
				}
				require.NoError(t, err)
				assert.Equal(t, c.status, got.Status)
				if c.replay == pt.ReplayStored {
					assert.Equal(t, first, got)
				}
				assert.Len(t, p.Objects(), 1)
			})
		})
	}
}

func TestCacheOnlySuccess(t *testing.T) {
	t.Parallel()
	both(t, &pt.Options{KeyWindow: time.Hour, CacheOnlySuccess: true}, func(t *testing.T, p *pt.Provider, api pt.API) {
		p.Script(pt.Decline("no_funds"), pt.StatusStored(500, "boom"), pt.StatusAfter(500, "boom"))
		for _, status := range []int{402, 500, 500} {
			_, err := api.Create(t.Context(), charge("k1"))
			assert.Equal(t, status, fault(t, err).Status)
		}
		got, err := api.Create(t.Context(), charge("k1"))
		require.NoError(t, err)
		assert.Equal(t, "ch_2", got.ID, "the effect behind the error, after the declined object")
		assert.Equal(t, 1, p.Effects("order-17"))
	})
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode    pt.Concurrent
		code    string // of the second request
		waits   bool
		effects int
	}{
		{mode: pt.ConcurrentGuard, code: pt.CodeInFlight, effects: 1},
		{mode: pt.ConcurrentWait, waits: true, effects: 1},
		{mode: pt.ConcurrentUnsafe, effects: 2}, // T-11
	} {
		for _, gaveUp := range []bool{false, true} {
			name := string(c.mode)
			if gaveUp {
				name += ", first caller gone"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p := pt.New(&pt.Options{KeyWindow: time.Hour, Concurrent: c.mode})
					release := make(chan struct{})
					p.Script(pt.HangBefore(release))
					type result struct {
						o   pt.Object
						err error
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					call := func(ctx context.Context) chan result {
						ch := make(chan result, 1)
						go func() {
							o, err := p.Create(ctx, charge("k1"))
							ch <- result{o, err}
						}()
						synctest.Wait()
						return ch
					}
					first := call(ctx)
					second := call(t.Context())
					require.Equal(t, c.waits, len(second) == 0)
					if gaveUp {
						cancel()
						require.ErrorIs(t, (<-first).err, context.Canceled)
						synctest.Wait()
						require.Equal(t, c.waits, len(second) == 0)
					}
					close(release)
					r2 := <-second
					if c.code != "" {
						assert.Equal(t, 409, fault(t, r2.err).Status)
						assert.Equal(t, c.code, fault(t, r2.err).Code)
					} else {
						require.NoError(t, r2.err)
					}
					if !gaveUp {
						r1 := <-first
						require.NoError(t, r1.err)
						if c.waits {
							assert.Equal(t, r1, r2)
						}
					}
					assert.Equal(t, c.effects, p.Effects("order-17"))
					r3 := <-call(t.Context()) // the first to finish has the key
					require.NoError(t, r3.err)
					assert.Equal(t, "ch_1", r3.o.ID)
					assert.Equal(t, c.effects, p.Effects("order-17"))
				})
			})
		}
	}
}

func TestDelayedRequestWaitsForAFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pt.New(&pt.Options{KeyWindow: time.Hour, Concurrent: pt.ConcurrentWait, CacheOnlySuccess: true})
		network, provider := make(chan struct{}), make(chan struct{})
		p.Script(pt.ApplyLater(network), pt.HangBefore(provider).And(pt.Decline("no_funds")))
		_, err := p.Create(t.Context(), charge("k1"))
		require.ErrorIs(t, err, pt.ErrNoReply)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Create(ctx, charge("k1"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(network)
		assert.Zero(t, p.Effects("order-17"), "attempt 1 has arrived and waits for attempt 2")
		close(provider)
		assert.Equal(t, 1, p.Effects("order-17"), "attempt 2 was declined, then attempt 1 ran")
		assert.Len(t, p.Objects(), 2)
	})
}

func TestWaitForASlowRequestWhoseCallerIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pt.New(&pt.Options{KeyWindow: time.Hour, Concurrent: pt.ConcurrentWait})
		p.Script(pt.Slow(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Create(ctx, charge("k1"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		start := time.Now()
		got, err := p.Create(t.Context(), charge("k1"))
		require.NoError(t, err)
		assert.Equal(t, "ch_1", got.ID)
		assert.Equal(t, 59*time.Second, time.Since(start))

		p.Script(pt.HangBefore(nil))
		ctx2, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		_, err = p.Create(ctx2, charge("k2"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ctx3, cancel3 := context.WithTimeout(t.Context(), time.Second)
		defer cancel3()
		_, err = p.Create(ctx3, charge("k2"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
