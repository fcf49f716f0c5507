package memstore_test

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

// RegisterTx in an open transaction, and Execute of the same operation from the same goroutine: ErrUncommitted
// after the lock wait, no deadlock, and nothing is sent under a record that is not committed (I1).
func TestT30_ExecuteInsideTheTransactionThatRegisters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		po := &providertest.Options{KeyWindow: 24 * time.Hour}
		provider := providertest.New(po)
		e, err := settle.Open(store, &settle.Options{Scope: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		x, err := settle.New(e, "charge", providertest.ChargeAdapter(provider, providertest.Promise(po)), nil)
		if err != nil {
			t.Fatal(err)
		}
		op := settle.Operation[providertest.Payment]{
			Subject: "order-1", Purpose: "purchase", Request: providertest.Payment{Amount: 1999, Currency: "EUR"},
		}
		var id string
		err = store.InTx(t.Context(), func(tx settle.Tx) error {
			r, err := x.RegisterTx(t.Context(), tx, op)
			if err != nil {
				return err
			}
			id = r.ID
			start := time.Now()
			if _, err := x.Execute(context.Background(), op); !errors.Is(err, settle.ErrUncommitted) {
				t.Errorf("Execute: %v, want ErrUncommitted", err)
			}
			if d := time.Since(start); d > time.Minute {
				t.Errorf("after %v of the bubble's time", d)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := provider.Effects(id); n != 0 {
			t.Fatalf("%d effects before the commit", n)
		}
		out, err := x.Execute(t.Context(), op)
		if err != nil || out.ID != id || provider.Effects(id) != 1 {
			t.Fatalf("after the commit: %v, %v, %d effects", out, err, provider.Effects(id))
		}
	})
}
