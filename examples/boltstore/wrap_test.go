package boltstore_test

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/storetest"
)

// Whatever call of the store fails, before or after it took effect, or is made twice: the charge
// is made once, and the next one who asks for it gets to know (I1, I2, I15).
func TestAnyCallFails(t *testing.T) {
	t.Parallel()
	lost := errors.New("the answer was lost")
	for name, fault := range map[string]storetest.Fault{
		"before": {Before: storetest.Fail(lost)},
		"after":  {After: storetest.Fail(lost)},
		"twice":  {Twice: true, After: storetest.Fail(lost)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := 1
				for ; anyCallFails(t, n, fault); n++ {
				}
				if n < 3 { // a creation and an outcome at least
					t.Errorf("%d calls of the store were disturbed", n-1)
				}
			})
		})
	}
}

// anyCallFails disturbs the n-th call of the store, and reports whether it came to that.
func anyCallFails(t *testing.T, n int, fault storetest.Fault) bool {
	offer := &providertest.Options{KeyWindow: 24 * time.Hour}
	provider := providertest.New(offer)
	s := store(t, file(t, filepath.Join(t.TempDir(), "app.db")))
	op := settle.Operation[providertest.Payment]{
		Subject: "order-8472", Purpose: "purchase",
		Request: providertest.Payment{Amount: 1999, Currency: "EUR"},
	}

	var calls atomic.Int64
	nth := storetest.Nth("", n, fault)
	disturbed := storetest.Wrap(s, func(c storetest.Call) storetest.Fault {
		calls.Add(1)
		return nth(c)
	})
	_, _ = charges(t, disturbed, provider, offer).Execute(t.Context(), op) // whatever it says, it is safe to ask again

	time.Sleep(10 * time.Minute) // free in a bubble: leases end, questions are due
	out, err := charges(t, s, provider, offer).Execute(t.Context(), op)
	if err != nil || out.State != settle.StateSucceeded {
		t.Errorf("call %d: the operation ended with %v and error %v", n, out, err)
	}
	if made := provider.Effects(out.ID); made != 1 || len(provider.Duplicates()) != 0 {
		t.Errorf("call %d: the provider made %d charges", n, made)
	}
	return int(calls.Load()) >= n && !t.Failed()
}

func charges(t *testing.T, s settle.Store, provider *providertest.Provider, offer *providertest.Options) *executor {
	t.Helper()
	engine, err := settle.Open(s, &settle.Options{Scope: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	x, err := settle.New(engine, "charge", providertest.ChargeAdapter(provider, providertest.Promise(offer)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
