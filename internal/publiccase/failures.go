package publiccase

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

// IC-55: what provably had no effect is no final answer.
func notSentIsNotFinal(s suite) {
	for name, obs := range map[string]settle.Observation[pt.Receipt]{
		"circuit open": {Fact: settle.NotSent, Code: "circuit_open"},
		"unauthorized": {Fact: settle.NotApplied, Code: "unauthorized"},
	} {
		s.wire(name, func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, keyed())
			r.Serve()
			p := r.Bare(nil)
			closed := false
			a := pt.ChargeAdapter(p.API, r.Promise)
			submit := a.SubmitFunc
			a.SubmitFunc = func(ctx context.Context, c *settle.Call[pt.Payment]) (settle.Observation[pt.Receipt], error) {
				if !closed {
					return obs, nil
				}
				return submit(ctx, c)
			}
			x, err := settle.New(p.Engine, rig.KindCharge, a, nil)
			rig.OK(t, err)
			for range 3 {
				out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
				rig.Is(t, err, settle.ErrWaiting)
				rig.Not(t, err, settle.ErrFailed, settle.ErrUnknown)
				if out.Next != settle.NextRetry {
					t.Errorf("told to %q, want retry", out.Next)
				}
			}
			r.Ledger(0, nil)
			closed = true
			out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.OK(t, err)
			if out.Replayed {
				t.Error("an answer that nobody gave was replayed")
			}
			r.Ledger(1, map[string]int{out.ID: 1})
		})
	}
	s.wire("429 with Retry-After", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Serve()
		r.Provider.Script(pt.RateLimit(90 * time.Second))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrWaiting)
		if d := out.RetryAt.Sub(out.AsOf); d < 89*time.Second || d > 91*time.Second {
			t.Errorf("next try in %v, the header said 90 s", d)
		}
		_, err = p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR")) // before that time
		rig.Is(t, err, settle.ErrWaiting)
		r.Ledger(1, map[string]int{out.ID: 0})
	})
	s.wire("a business refusal is final", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Serve()
		r.Provider.Script(pt.Decline("insufficient_funds"))
		p := r.Start(nil)
		for range 3 {
			out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			own := rig.Typed(t, err, settle.ErrFailed)
			if own.Code != "insufficient_funds" || out.Next != settle.NextShowFailure {
				t.Errorf("code %q, next %q", own.Code, out.Next)
			}
		}
		r.Ledger(1, nil)
	})
	for name, step := range map[string]pt.Step{
		"503 before": pt.Status(503, "unavailable"), "500 after": pt.StatusAfter(500, "oops"), "502": pt.Status(502, ""),
		"429": pt.RateLimit(time.Minute), "401": pt.Status(401, "expired"),
	} {
		s.bubble(name+", then one minute", func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, &pt.Options{KeyWindow: day, CacheOnlySuccess: true})
			r.Provider.Script(step)
			p := r.Start(nil)
			out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.Not(t, err, settle.ErrFailed, settle.ErrCanceled) // a lookup may have found it already
			rig.After(61 * time.Second)
			again, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.OK(t, err)
			if again.ID != out.ID {
				t.Error("another operation")
			}
			r.Ledger(r.Sends(), map[string]int{out.ID: 1})
			sameBytes(t, r, again.Record)
		})
	}
	s.bubble("the worker keeps the stated time", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.RateLimit(90*time.Second), pt.RateLimit(10*time.Minute))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrWaiting)
		p.Work()
		rig.After(time.Hour)
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(3, map[string]int{out.ID: 1})
		reqs := r.Provider.Requests()
		for i, min := range []time.Duration{90 * time.Second, 10 * time.Minute} {
			if d := reqs[i+1].At.Sub(reqs[i].At); d < min || d > 2*min {
				t.Errorf("request %d came %v after the one that was told to wait %v", i+2, d, min)
			}
		}
	})
}

// IC-56: what the provider said is stored as soon as it is known, and a panic after it
// does not make the claim disappear.
func panicAfterTheCharge(s suite) {
	s.bubble("the hook panics", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		mails, broken := 0, true
		p := r.StartWith(nil, &settle.ExecutorOptions[pt.Payment, pt.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[pt.Receipt]) error {
				if broken {
					panic("no mail server")
				}
				mails++
				return nil
			},
		})
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrConsequence)
		rig.Not(t, err, settle.ErrFailed, settle.ErrPending)
		if res, ok := out.Result(); !ok || res.Amount != 100 || out.State != settle.StateSucceeded {
			t.Errorf("the result is %+v, %v, in state %s (I11)", res, ok, out.State)
		}
		_, err = p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrConsequence)
		broken = false
		p.Work()
		rig.After(time.Hour)
		again, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		if again.ID != out.ID || mails != 1 {
			t.Errorf("%d mails, want 1", mails)
		}
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	for _, when := range []string{"before the call", "after the call"} {
		s.bubble("the adapter panics "+when, func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, keyed())
			r.Provider.ScriptLookup(pt.Status(500, "")) // else the same call finds it
			p := r.Bare(nil)
			a := pt.ChargeAdapter(p.API, r.Promise)
			submit := a.SubmitFunc
			first := true
			a.SubmitFunc = func(ctx context.Context, c *settle.Call[pt.Payment]) (settle.Observation[pt.Receipt], error) {
				if !first {
					return submit(ctx, c)
				}
				first = false
				if when == "after the call" {
					if _, err := submit(ctx, c); err != nil {
						t.Error(err)
					}
				}
				panic(errors.New("nil map"))
			}
			x, err := settle.New(p.Engine, rig.KindCharge, a, nil)
			rig.OK(t, err)
			out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.Is(t, err, settle.ErrUnknown) // a panic is no answer (I4)
			p.Work()
			rig.After(10 * time.Minute)
			again, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.OK(t, err)
			if again.ID != out.ID {
				t.Error("another operation")
			}
			r.Ledger(1, map[string]int{out.ID: 1})
		})
	}
	s.bubble("the caller panics", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		p := r.Start(nil)
		handler := func() (out settle.Outcome[pt.Receipt], err error) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			if out, err = p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR")); err == nil {
				panic("no mail server")
			}
			return out, err
		}
		_, err := handler()
		rig.OK(t, err)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		if !out.Replayed {
			t.Error("the retry is no replay")
		}
		r.Ledger(1, map[string]int{out.ID: 1})
	})
}

type login struct {
	Amount int64  `json:"amount"`
	OTP    string `json:"otp"`
}

// IC-57: a refusal before anything is stored does not bind the key.
func refusalLeavesTheKeyFree(s suite) {
	wrong := errors.New("wrong code")
	op := func(otp string) settle.Operation[login] {
		return settle.Operation[login]{Subject: "order-1", Purpose: "purchase", Key: "K", Request: login{100, otp}}
	}
	authorize := &settle.ExecutorOptions[login, raw]{Authorize: func(_ context.Context, op settle.Operation[login]) error {
		if op.Request.OTP != "123456" {
			return wrong
		}
		return nil
	}}
	s.bubble("refused, then corrected", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		x := rig.Raw(r.Start(nil), "login", authorize, nil)
		for _, otp := range []string{"000000", "111111"} {
			out, err := x.Execute(t.Context(), op(otp))
			rig.Refused(t, out, err, settle.ErrRefused)
			rig.Is(t, err, wrong)
		}
		if all := r.All(); len(all) > 0 {
			t.Errorf("a refusal was stored: %v", all)
		}
		out, err := x.Execute(t.Context(), op("123456"))
		rig.OK(t, err)
		if out.Replayed {
			t.Error("the corrected call got a replay")
		}
		res, err := x.Execute(t.Context(), op("000000")) // and never the stored refusal
		rig.Refused(t, res, err, settle.ErrMismatch, "/otp")
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	s.bubble("past the claim", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.Status(503, "unavailable"))
		x := rig.Raw[login, raw](r.Start(nil), "login", nil, nil)
		first, err := x.Execute(t.Context(), op("000000"))
		rig.Is(t, err, settle.ErrPending)
		out, err := x.Execute(t.Context(), op("123456"))
		own := rig.Refused(t, out, err, settle.ErrMismatch, "/otp")
		if own.ID != first.ID {
			t.Error("the mismatch does not name the operation")
		}
		r.Ledger(1, map[string]int{first.ID: 0})
	})
	s.bubble("a hundred at once, one of them right", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		a, b := rig.Raw(r.Start(nil), "login", authorize, nil), rig.Raw(r.Start(nil), "login", authorize, nil)
		var waits []func() rig.Answer[raw]
		for i := range 100 {
			otp := fmt.Sprintf("%06d", i)
			if i == 50 {
				otp = "123456"
			}
			x := a
			if i%2 == 1 {
				x = b
			}
			waits = append(waits, rig.Execute(t.Context(), x, op(otp)))
		}
		for i, w := range waits {
			ans := w()
			switch {
			case i == 50:
				rig.OK(t, ans.Err)
			case !errors.Is(ans.Err, settle.ErrRefused) && !errors.Is(ans.Err, settle.ErrMismatch):
				t.Errorf("call %d got %v", i, ans.Err)
			}
		}
		r.Ledger(1, nil)
		if all := r.All(); len(all) != 1 || all[0].State != settle.StateSucceeded {
			t.Errorf("stored are %v", all)
		}
	})
}

// IC-58: a business refusal is terminal at once and is not the "in progress".
func businessRefusalIsFinal(s suite) {
	for _, replies := range []pt.Replay{pt.ReplayStored, pt.ReplayCurrent} {
		s.bubble("no stock, "+string(replies), func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, &pt.Options{KeyWindow: day, Replay: replies})
			r.Provider.Script(pt.Decline("no_stock"))
			p := r.Start(rarely)
			check := func(replayed bool) string {
				t.Helper()
				out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
				own := rig.Typed(t, err, settle.ErrFailed)
				rig.Not(t, err, settle.ErrPending, settle.ErrInProgress)
				if own.Code != "no_stock" || own.State != settle.StateFailed || out.Next != settle.NextShowFailure || out.Replayed != replayed {
					t.Errorf("code %q, state %s, next %q, replayed %v", own.Code, own.State, out.Next, out.Replayed)
				}
				if _, ok := out.Result(); ok {
					t.Error("a refusal shows a result")
				}
				return out.ID
			}
			id := check(false)
			if check(true) != id {
				t.Error("another operation")
			}
			p.Work()
			rig.After(2 * day)
			if check(true) != id {
				t.Error("another operation after recovery")
			}
			r.Ledger(1, map[string]int{id: 0})
		})
	}
	s.bubble("told apart from in progress", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.Slow(5 * time.Second).And(pt.Decline("no_stock")))
		a, b := r.Start(nil), r.Start(nil)
		first := rig.Execute(t.Context(), a.Charges, rig.Op("order-1", 100, "EUR"))
		rig.After(time.Second)
		_, err := b.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrInProgress)
		rig.Not(t, err, settle.ErrFailed)
		rig.Is(t, first().Err, settle.ErrFailed)
		_, err = b.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrFailed)
		rig.Not(t, err, settle.ErrInProgress)
	})
	s.bubble("the refusal's reply is lost", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.Decline("no_stock").And(pt.DropReply()))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(10 * time.Minute)
		rec := r.State(out.ID, settle.StateFailed)
		if rec.Code != "no_stock" {
			t.Errorf("the code is %q", rec.Code)
		}
		r.Ledger(r.Sends(), map[string]int{out.ID: 0})
	})
}
