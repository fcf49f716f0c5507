package settle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

// A consequence is due, and the process that claims it was made without the hook: it must
// leave the row for one that has it, and not claim it again and again (I10, I11).
func TestI11_ProcessWithoutTheHookLeavesTheConsequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		o := &providertest.Options{KeyWindow: 24 * time.Hour}
		provider := providertest.New(o)
		runs, broken := 0, true
		start := func(opts *settle.ExecutorOptions[providertest.Payment, providertest.Receipt]) (*settle.Engine, *settle.Executor[providertest.Payment, providertest.Receipt]) {
			e, err := settle.Open(store, nil)
			if err != nil {
				t.Fatal(err)
			}
			x, err := settle.New(e, "charge", providertest.ChargeAdapter(provider, providertest.Promise(o)), opts)
			if err != nil {
				t.Fatal(err)
			}
			return e, x
		}
		with, x := start(&settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[providertest.Receipt]) error {
				if broken {
					return errors.New("no")
				}
				runs++
				return nil
			},
		})
		out, err := x.Execute(t.Context(), settle.Operation[providertest.Payment]{
			Scope: "s", Subject: "o", Purpose: "p", Request: providertest.Payment{Amount: 1, Currency: "EUR"},
		})
		if !errors.Is(err, settle.ErrConsequence) {
			t.Fatalf("error %v, want ErrConsequence", err)
		}
		work := func(e *settle.Engine, d time.Duration) settle.Record {
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.Run(ctx) }()
			time.Sleep(d)
			stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			r, err := e.Get(t.Context(), out.ID)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		without, _ := start(nil)
		if r := work(without, 10*time.Minute); r.Consequence != settle.ConsequenceDue || r.Version-out.Version > 40 || r.Due.IsZero() {
			t.Fatalf("after 10 minutes without the hook: consequence %q, %d versions more, due %v", r.Consequence, r.Version-out.Version, r.Due)
		}
		broken = false
		if r := work(with, 10*time.Minute); r.Consequence != settle.ConsequenceDone || runs != 1 {
			t.Fatalf("consequence %q after %d runs", r.Consequence, runs)
		}
	})
}
