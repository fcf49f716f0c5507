package main

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/stagetest"
	"github.com/settle-go/settle/examples/stripe/stripefake"
)

// The story of the program, on a clock of its own: the charge happens, its reply is lost and
// nothing can be asked; the process ends; the next one finds the payment (I1, I2, I4, I10).
func TestLostReplyRestartOnePaymentIntent(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		w.stripe.Script(stripefake.Fault{Lose: stripefake.After})
		w.stripe.ScriptGet(stripefake.Fault{Lose: stripefake.Before})
		a := w.start(false)
		out, err := a.charges.Execute(t.Context(), pay(stripefake.Visa))
		if !errors.Is(err, settle.ErrPending) || out.State != settle.StateUnknown {
			t.Fatalf("the first process says %s, %v, and cannot know", out.State, err)
		}
		a.stop()
		w.moved(1999)

		b := w.start(false)
		out, err = b.finish(pay(stripefake.Visa))
		receipt, ok := out.Result()
		if err != nil || !ok || receipt.ID != w.stripe.Intents()[0] || receipt.Amount != 1999 || receipt.Currency != "eur" {
			t.Errorf("%+v %v %v", receipt, ok, err)
		}
		w.moved(1999)
		w.oneKey(out.ProviderKey, 1)
	})
}

// The reply and the payment's way to the list are lost for longer than a lookup waits, so the request is
// sent again under the same key, and Stripe answers it from memory.
func TestSentAgainUnderTheSameKey(t *testing.T) {
	inBubble(t, stripefake.Options{ListLag: 1 << 40}, func(t *testing.T, w *world) {
		w.stripe.Script(stripefake.Fault{Lose: stripefake.After}, stripefake.Fault{Lose: stripefake.Before})
		out, err := w.start(false).finish(pay(stripefake.Visa))
		if err != nil {
			t.Fatal(err)
		}
		w.moved(1999)
		w.oneKey(out.ProviderKey, len(out.Attempts))
		if len(out.Attempts) != 3 {
			t.Errorf("%d attempts, want 3", len(out.Attempts))
		}
	})
}

// A 500 that Stripe stored is what every later request under the key gets. It is neither a failure
// nor a reason for a fresh key (I2, I4).
func TestStoredFailure(t *testing.T) {
	t.Run("after the effect", func(t *testing.T) {
		inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
			w.stripe.Script(stripefake.Fault{Crash: stripefake.After})
			out, err := w.start(false).finish(pay(stripefake.Visa))
			if err != nil {
				t.Fatalf("the payment exists: %v", err)
			}
			w.moved(1999)
			w.oneKey(out.ProviderKey, 1)
		})
	})
	t.Run("before the effect", func(t *testing.T) {
		inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
			w.stripe.Script(stripefake.Fault{Crash: stripefake.Before})
			out, err := w.start(false).finish(pay(stripefake.Visa))
			if !errors.Is(err, settle.ErrReview) {
				t.Fatalf("%s %v, want a person", out.State, err)
			}
			w.moved()
			if n := len(w.stripe.Posts()); n < 2 {
				t.Errorf("%d requests: it should have tried again under its key", n)
			}
			w.oneKey(out.ProviderKey, len(w.stripe.Posts()))
		})
	})
}

// Once Stripe may have forgotten the key, nothing is sent again, although nobody could ask all the time (I6).
func TestForgottenKey(t *testing.T) {
	inBubble(t, stripefake.Options{ListLag: 1 << 60}, func(t *testing.T, w *world) {
		w.opts.EscalateAfter = 30 * 24 * time.Hour // patience is not what ends it
		w.stripe.Script(stripefake.Fault{Lose: stripefake.After})
		w.stripe.Script(slices.Repeat([]stripefake.Fault{{Lose: stripefake.Before}}, 10_000)...)
		begun := time.Now()
		p := w.start(false)
		out, err := p.finishEvery(time.Hour, pay(stripefake.Visa))
		if !errors.Is(err, settle.ErrReview) || out.Review == nil || out.Review.Reason != settle.ReasonWindow {
			t.Fatalf("%s %+v %v, want a person, since the key may be forgotten", out.State, out.Review, err)
		}
		if last := out.Attempts[len(out.Attempts)-1].Start.Sub(begun); last < 23*time.Hour || last >= 24*time.Hour {
			t.Errorf("the last request left after %v, want shortly before 24 h", last)
		}
		w.oneKey(out.ProviderKey, len(out.Attempts))
		w.moved(1999)
	})
}

// What Stripe charged is compared with what was asked for: a person looks, nothing is taken for paid.
func TestWrongAmount(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		w.stripe.Script(stripefake.Fault{Amount: 19})
		out, err := w.start(false).finish(pay(stripefake.Visa))
		if !errors.Is(err, settle.ErrReview) || out.Review == nil || out.Review.Reason != settle.ReasonDisputed {
			t.Errorf("%s %v", out.State, err)
		}
	})
}

// A secret of the other mode is noticed by the first answer.
func TestWrongMode(t *testing.T) {
	inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
		w.mode = "live" // the fake says livemode: false
		_, err := w.start(false).finish(pay(stripefake.Visa))
		if !errors.Is(err, settle.ErrReview) {
			t.Errorf("%v, want a person", err)
		}
	})
}

// A bank debit stays in processing; what it turns into is found by its id.
func TestProcessing(t *testing.T) {
	for _, succeeds := range []bool{true, false} {
		t.Run(map[bool]string{true: "succeeds", false: "fails"}[succeeds], func(t *testing.T) {
			inBubble(t, stripefake.Options{}, func(t *testing.T, w *world) {
				p := w.start(false)
				out, err := p.charges.Execute(t.Context(), pay(stripefake.Slow))
				if !errors.Is(err, settle.ErrPending) || out.State != settle.StateProcessing {
					t.Fatalf("%s %v", out.State, err)
				}
				w.stripe.Decide(w.stripe.Intents()[0], succeeds)
				_, err = p.finish(pay(stripefake.Slow))
				if succeeds && err != nil || !succeeds && !errors.Is(err, settle.ErrFailed) {
					t.Error(err)
				}
				w.oneKey(out.ProviderKey, 1)
			})
		})
	}
}

// The program itself.
func TestProgram(t *testing.T) {
	t.Parallel()
	stagetest.Says(t, run, "=> unknown", "Stripe has 1 PaymentIntent", "=> succeeded: receipt pi_fake000001, 1 request", "paid once")
}
