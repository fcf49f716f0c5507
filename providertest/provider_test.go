package providertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pt "github.com/settle-go/settle/providertest"
)

func keyed() *pt.Options { return &pt.Options{KeyWindow: 24 * time.Hour} }

func charge(key string) pt.Request {
	return pt.Request{Kind: pt.KindCharge, Key: key, Reference: "order-17", Amount: 1999, Currency: "EUR"}
}

// serve returns a client for p on loopback. Without keep-alives Go's transport
// never sends a request a second time by itself.
func serve(t *testing.T, p *pt.Provider) *pt.Client {
	t.Helper()
	s := httptest.NewServer(p.Handler())
	t.Cleanup(s.Close)
	return pt.NewClient(s.URL, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
}

// both runs a test in process and over HTTP.
func both(t *testing.T, o *pt.Options, f func(t *testing.T, p *pt.Provider, api pt.API)) {
	t.Helper()
	t.Run("in process", func(t *testing.T) {
		t.Parallel()
		p := pt.New(o)
		f(t, p, p)
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		p := pt.New(o)
		f(t, p, serve(t, p))
	})
}

func fault(t *testing.T, err error) pt.Fault {
	t.Helper()
	var f *pt.Fault
	require.ErrorAs(t, err, &f)
	return *f
}

// noReply says whether err is that of a connection that broke.
func noReply(api pt.API, err error) bool {
	if _, ok := api.(*pt.Provider); ok {
		return errors.Is(err, pt.ErrNoReply)
	}
	var f *pt.Fault
	return err != nil && !errors.As(err, &f) && !errors.Is(err, pt.ErrUnreadable)
}

func TestStepsOfCreate(t *testing.T) {
	t.Parallel()
	// The step meets a first request; then the same request comes again under an
	// empty script. Keys are honored as Stripe's API v1 does.
	lost := "lost"
	for _, c := range []struct {
		step    pt.Step
		status  int    // of the first answer; 200 for success
		code    string // or lost, or "unreadable"
		effects int    // after the first request
		again   int    // status of the second answer
		finally int    // effects after it
	}{
		{step: pt.OK(), status: 200, effects: 1, again: 200, finally: 1},
		{step: pt.Step{}, status: 200, effects: 1, again: 200, finally: 1},
		{step: pt.DropReply(), code: lost, effects: 1, again: 200, finally: 1},
		{step: pt.DropRequest(), code: lost, effects: 0, again: 200, finally: 1},
		{step: pt.Garbled(), code: "unreadable", effects: 1, again: 200, finally: 1},
		{step: pt.Status(503, "down"), status: 503, code: "down", effects: 0, again: 200, finally: 1},
		{step: pt.Status(401, "unauthorized"), status: 401, code: "unauthorized", effects: 0, again: 200, finally: 1},
		{step: pt.StatusStored(500, "boom"), status: 500, code: "boom", effects: 0, again: 500, finally: 0},
		{step: pt.StatusAfter(500, "boom"), status: 500, code: "boom", effects: 1, again: 500, finally: 1},
		{step: pt.Decline("stolen_card"), status: 402, code: "stolen_card", effects: 0, again: 402, finally: 0},
		{step: pt.Decline("stolen_card").And(pt.DropReply()), code: lost, effects: 0, again: 402, finally: 0},
		{step: pt.RateLimit(1500 * time.Millisecond), status: 429, code: pt.CodeRateLimited, effects: 0, again: 200, finally: 1},
		{step: pt.InFlight(), status: 409, code: pt.CodeInFlight, effects: 0, again: 200, finally: 1},
		{step: pt.KeyReused(), status: 400, code: pt.CodeKeyReused, effects: 0, again: 200, finally: 1},
		{step: pt.AlreadyExists(), status: 409, code: pt.CodeAlreadyExists, effects: 0, again: 200, finally: 1},
		{step: pt.Processing(), status: 200, effects: 0, again: 200, finally: 0},
		{step: pt.ActionRequired().And(pt.DropReply()), code: lost, effects: 0, again: 200, finally: 0},
		{step: pt.WrongAmount(199900), status: 200, effects: 1, again: 200, finally: 1},
		{step: pt.ApplyLater(nil), code: lost, effects: 0, again: 200, finally: 1},
	} {
		t.Run(c.step.String(), func(t *testing.T) {
			t.Parallel()
			both(t, keyed(), func(t *testing.T, p *pt.Provider, api pt.API) {
				p.Script(c.step)
				_, err := api.Create(t.Context(), charge("k1"))
				switch {
				case c.code == lost:
					require.True(t, noReply(api, err), "error is %v", err)
				case c.code == "unreadable":
					require.ErrorIs(t, err, pt.ErrUnreadable)
				case c.status == 200:
					require.NoError(t, err)
				default:
					f := fault(t, err)
					assert.Equal(t, c.status, f.Status)
					assert.Equal(t, c.code, f.Code)
				}
				assert.Equal(t, c.effects, p.Effects("order-17"))
				assert.Zero(t, p.ScriptLeft())

				_, err = api.Create(t.Context(), charge("k1"))
				if c.again == 200 {
					require.NoError(t, err)
				} else {
					assert.Equal(t, c.again, fault(t, err).Status)
				}
				assert.Equal(t, c.finally, p.Effects("order-17"))
				assert.Empty(t, p.Duplicates())

				reqs := p.Requests()
				require.Len(t, reqs, 2)
				for _, r := range reqs {
					assert.Equal(t, "k1", r.Key)
					assert.JSONEq(t, `{"reference":"order-17","amount":1999,"currency":"EUR"}`, string(r.Body))
				}
				assert.Equal(t, 2, p.Calls(pt.OpCreate))
			})
		})
	}
}

func TestRateLimitSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
		p.Script(pt.RateLimit(7 * time.Second))
		_, err := api.Create(t.Context(), charge(""))
		assert.Equal(t, 7*time.Second, fault(t, err).RetryAfter)
	})
}

func TestWrongValuesAreReportedAndTheLedgerKeepsTheTruth(t *testing.T) {
	t.Parallel()
	both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
		p.Script(pt.WrongAmount(199900).And(pt.WrongCurrency("usd")).And(pt.WrongAccount("other")))
		got, err := api.Create(t.Context(), charge(""))
		require.NoError(t, err)
		found, err := pt.Find(t.Context(), api, pt.Query{Reference: "order-17"})
		require.NoError(t, err)
		require.Len(t, found, 1)
		for _, o := range []pt.Object{got, found[0], p.Events()[0].Object} {
			assert.Equal(t, int64(199900), o.Amount)
			assert.Equal(t, "usd", o.Currency)
			assert.Equal(t, "other", o.Account)
		}
		assert.Equal(t, int64(1999), p.Ledger()[0].Amount)
		assert.Equal(t, "EUR", p.Ledger()[0].Currency)

		require.NoError(t, p.Misreport(got.ID, pt.Lie{}))
		o, err := api.Get(t.Context(), got.ID)
		require.NoError(t, err)
		assert.Equal(t, int64(1999), o.Amount)
	})
}

func TestAlreadyExistsNamesTheObject(t *testing.T) {
	t.Parallel()
	both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
		p.Script(pt.DropReply(), pt.AlreadyExists())
		_, err := api.Create(t.Context(), charge("k1"))
		require.True(t, noReply(api, err))
		_, err = api.Create(t.Context(), charge("k1"))
		f := fault(t, err)
		assert.Equal(t, "ch_1", f.ExistingID)
		o, err := api.Get(t.Context(), f.ExistingID)
		require.NoError(t, err)
		assert.Equal(t, pt.StatusSucceeded, o.Status)
	})
}

func TestDeclineLeavesAFailedObject(t *testing.T) {
	t.Parallel()
	both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
		p.Script(pt.Decline("stolen_card"))
		_, err := api.Create(t.Context(), charge(""))
		o, err := api.Get(t.Context(), fault(t, err).ObjectID)
		require.NoError(t, err)
		assert.Equal(t, pt.StatusFailed, o.Status)
		assert.Equal(t, "stolen_card", o.FailureCode)
		assert.Empty(t, p.Ledger())
		assert.Len(t, p.Objects(), 1)
	})
}

func TestHangAfterTheEffect(t *testing.T) {
	t.Parallel()
	applied := make(chan struct{}, 1)
	o := keyed()
	o.OnApply = func(pt.Object) { applied <- struct{}{} }
	for _, hang := range []string{"released", "given up"} {
		t.Run(hang, func(t *testing.T) {
			both2 := func(t *testing.T, p *pt.Provider, api pt.API, applied chan struct{}) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				release := make(chan struct{})
				p.Script(pt.HangAfter(release))
				done := make(chan error)
				go func() {
					_, err := api.Create(ctx, charge("k1"))
					done <- err
				}()
				<-applied
				assert.Equal(t, 1, p.Effects("order-17"))
				if hang == "released" {
					close(release)
					require.NoError(t, <-done)
					return
				}
				cancel()
				require.ErrorIs(t, <-done, context.Canceled)
				o, err := api.Create(t.Context(), charge("k1")) // the key is not in flight
				require.NoError(t, err)
				assert.Equal(t, "ch_1", o.ID)
				assert.Equal(t, 1, p.Effects("order-17"))
			}
			p := pt.New(o)
			both2(t, p, p, applied)
			p = pt.New(o)
			both2(t, p, serve(t, p), applied)
		})
	}
}

func TestHangBeforeOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"in process", "http"} {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan struct{}, 3)
			o := keyed()
			o.OnCreate = func(pt.Request) { arrived <- struct{}{} }
			p := pt.New(o)
			var api pt.API = p
			if name == "http" {
				api = serve(t, p)
			}
			ctx, cancel := context.WithCancel(t.Context())
			release := make(chan struct{})
			p.Script(pt.HangBefore(release))
			done := make(chan error)
			go func() {
				_, err := api.Create(ctx, charge("k1"))
				done <- err
			}()
			<-arrived
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
			assert.Zero(t, p.Effects("order-17"))
			close(release)
			// Over HTTP the server may notice only now that the caller has left;
			// its request is executed either way.
			require.Eventually(t, func() bool { return p.Effects("order-17") == 1 }, 10*time.Second, time.Millisecond)
			got, err := api.Create(t.Context(), charge("k1"))
			require.NoError(t, err)
			assert.Equal(t, "ch_1", got.ID)
		})
	}
}

func TestHangBeforeWithNilNeverApplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pt.New(keyed())
		p.Script(pt.HangBefore(nil))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := p.Create(ctx, charge("k1"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = p.Create(t.Context(), charge("k1"))
		assert.Equal(t, pt.CodeInFlight, fault(t, err).Code)
		assert.Empty(t, p.Objects())
	})
}

func TestSlowProviderAppliesAfterTheDeadline(t *testing.T) { // IC-05
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pt.New(keyed())
		p.Script(pt.Slow(40 * time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := p.Create(ctx, charge("k1"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = p.Create(t.Context(), charge("k1"))
		assert.Equal(t, pt.CodeInFlight, fault(t, err).Code)
		time.Sleep(31 * time.Second)
		ledger := p.Ledger()
		require.Len(t, ledger, 1)
		assert.Equal(t, start.Add(40*time.Second), ledger[0].Created)
	})
}

func TestSlowProviderAnswersAPatientCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pt.New(nil)
		p.Script(pt.Slow(40 * time.Second))
		start := time.Now()
		_, err := p.Create(t.Context(), charge(""))
		require.NoError(t, err)
		assert.Equal(t, 40*time.Second, time.Since(start))
	})
}

func TestDelayedRequestMeetsTheKeyWhenItLands(t *testing.T) { // T-02, T-03, T-04
	t.Parallel()
	for _, c := range []struct {
		name    string
		o       pt.Options
		second  []pt.Step // the steps of attempts that come before attempt 1 lands
		effects int
	}{
		{name: "T-02: attempt 2 refused at the door", o: pt.Options{KeyWindow: time.Hour}, second: []pt.Step{pt.RateLimit(time.Second)}, effects: 1},
		{name: "T-03: decline not stored", o: pt.Options{KeyWindow: time.Hour, CacheOnlySuccess: true}, second: []pt.Step{pt.Decline("no_funds")}, effects: 1},
		{name: "decline stored", o: pt.Options{KeyWindow: time.Hour}, second: []pt.Step{pt.Decline("no_funds")}, effects: 0},
		{name: "attempt 2 applied", o: pt.Options{KeyWindow: time.Hour}, second: []pt.Step{pt.OK()}, effects: 1},
		{name: "attempt 2 applied, no keys", o: pt.Options{}, second: []pt.Step{pt.OK()}, effects: 2},
		{name: "alone", o: pt.Options{}, effects: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			both(t, &c.o, func(t *testing.T, p *pt.Provider, api pt.API) {
				release := make(chan struct{})
				p.Script(pt.ApplyLater(release))
				p.Script(c.second...)
				_, err := api.Create(t.Context(), charge("k1"))
				require.True(t, noReply(api, err))
				for range c.second {
					_, _ = api.Create(t.Context(), charge("k1"))
				}
				before := p.Effects("order-17")
				found, err := pt.Find(t.Context(), api, pt.Query{Key: "k1"})
				require.NoError(t, err)
				assert.Len(t, found, len(p.Objects()))
				close(release)
				assert.Equal(t, c.effects, p.Effects("order-17"))
				assert.LessOrEqual(t, before, c.effects)
				_, err = api.Get(t.Context(), "ch_1")
				if c.effects > 0 {
					require.NoError(t, err)
				}
			})
		})
	}
}

func TestApplyAfterLandsInOrderOfTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := pt.New(&pt.Options{Now: func() time.Time { return now }})
	p.Script(pt.ApplyAfter(time.Hour), pt.ApplyAfter(time.Minute))
	for _, ref := range []string{"late", "early"} {
		r := charge("")
		r.Reference = ref
		_, err := p.Create(t.Context(), r)
		require.ErrorIs(t, err, pt.ErrNoReply)
	}
	now = now.Add(59 * time.Second)
	require.Empty(t, p.Ledger())
	now = now.Add(time.Hour)
	ledger := p.Ledger()
	require.Len(t, ledger, 2)
	assert.Equal(t, "early", ledger[0].Reference)
	assert.Equal(t, "late", ledger[1].Reference)
	assert.Equal(t, time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC), ledger[1].Created)
}

func TestApplyLaterWithAPatientCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pt.New(nil)
		release := make(chan struct{})
		p.Script(pt.ApplyLater(release).And(pt.HangAfter(nil)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := p.Create(ctx, charge(""))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(release)
		assert.Equal(t, 1, p.Effects("order-17"))
	})
}

func TestCallerWhoHasGivenUpSendsNothing(t *testing.T) {
	t.Parallel()
	both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := api.Create(ctx, charge(""))
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, p.Requests())
	})
}

func TestChooseAndHooks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	note := func(s string) { mu.Lock(); defer mu.Unlock(); seen = append(seen, s) }
	p := pt.New(&pt.Options{
		Choose: func(r pt.Request) pt.Step {
			if r.Reference == "bad" {
				return pt.Decline("bad")
			}
			return pt.OK()
		},
		OnCreate: func(r pt.Request) { note("create " + r.Reference) },
		OnApply:  func(o pt.Object) { note("apply " + o.ID) },
		OnLookup: func(q pt.Query) { note("look " + q.ID + q.Reference) },
	})
	p.Script(pt.Status(503, "")) // comes before Choose
	for i, ref := range []string{"good", "bad", "good"} {
		r := charge("")
		r.Reference = ref
		_, err := p.Create(t.Context(), r)
		assert.Equal(t, i == 2, err == nil)
	}
	_, _ = p.Get(t.Context(), "ch_9")
	_, _ = p.List(t.Context(), pt.Query{Reference: "good"})
	assert.Equal(t, []string{"create good", "create bad", "apply ch_1", "create good", "apply ch_2", "look ch_9", "look good"}, seen)
	assert.Equal(t, 1, p.Calls(pt.OpGet))
	assert.Equal(t, 1, p.Calls(pt.OpLookup))
}

func TestScriptRefusesStepsThatDoNotFit(t *testing.T) {
	t.Parallel()
	p := pt.New(nil)
	assert.Panics(t, func() { p.Script(pt.Empty()) })
	assert.Panics(t, func() { p.ScriptLookup(pt.Decline("x")) })
	assert.Panics(t, func() { p.Script(pt.Decline("x").And(pt.Empty())) })
	assert.Equal(t, "Decline(x)+DropReply", pt.Decline("x").And(pt.DropReply()).String())
}

func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	o := keyed()
	o.KeyMaxLen = 5
	p := pt.New(o)
	for _, r := range []pt.Request{
		{Kind: "gift", Amount: 1, Currency: "EUR"},
		{Kind: pt.KindCharge, Currency: "EUR"},
		{Kind: pt.KindCharge, Amount: 1},
		{Kind: pt.KindCharge, Amount: 1, Currency: "EUR", Key: "123456"},
	} {
		_, err := p.Create(t.Context(), r)
		assert.Equal(t, pt.CodeInvalid, fault(t, err).Code)
	}
	// A refusal of the form binds no key.
	bad := charge("k1")
	bad.Amount = 0
	_, err := p.Create(t.Context(), bad)
	assert.Equal(t, 400, fault(t, err).Status)
	_, err = p.Create(t.Context(), charge("k1"))
	require.NoError(t, err)
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	both(t, &pt.Options{KeyWindow: pt.Forever, Concurrent: pt.ConcurrentWait}, func(t *testing.T, p *pt.Provider, api pt.API) {
		release := make(chan struct{})
		p.Script(pt.ApplyLater(release), pt.DropReply(), pt.StatusAfter(502, ""))
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				r := charge(fmt.Sprintf("k%d", i%4))
				r.Reference = fmt.Sprintf("order-%d", i%4)
				_, _ = api.Create(t.Context(), r)
				_, _ = pt.Find(t.Context(), api, pt.Query{Reference: r.Reference})
				p.Ledger()
			})
		}
		wg.Wait()
		close(release)
		assert.Len(t, p.Ledger(), 4)
		assert.Empty(t, p.Duplicates())
		assert.Equal(t, 40, p.Calls(pt.OpCreate))
	})
}
