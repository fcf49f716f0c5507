package settle_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

// A charge whose reply is lost, while the provider cannot be asked either: the outcome is unknown, not failed. Later the same call
// finds out. A second amount for the same order is refused, and there is one charge.
func ExampleExecutor_Execute() {
	offer := &providertest.Options{KeyWindow: 24 * time.Hour}
	provider := providertest.New(offer)
	provider.Script(providertest.DropReply())
	provider.ScriptLookup(providertest.Status(503, "maintenance"))

	engine, err := settle.Open(memstore.New(nil), &settle.Options{Scope: "shop-1"}) // a shop uses sqlstore
	if err != nil {
		panic(err)
	}
	charges, err := settle.New(engine, "charge", providertest.ChargeAdapter(provider, providertest.Promise(offer)), nil)
	if err != nil {
		panic(err)
	}
	pay := func(amount int64) {
		out, err := charges.Execute(context.Background(), settle.Operation[providertest.Payment]{
			Subject: "order-8472", Purpose: "purchase", Request: providertest.Payment{Amount: amount, Currency: "EUR"},
		})
		switch {
		case err == nil:
			fmt.Println(out.State, "next:", out.Next)
		case errors.Is(err, settle.ErrPending):
			fmt.Println(out.State, "next:", out.Next)
		case errors.Is(err, settle.ErrMismatch):
			var refused *settle.Error
			errors.As(err, &refused)
			fmt.Println("refused, because of", refused.Fields)
		}
	}
	pay(1999)
	rec, err := charges.Find(context.Background(), settle.Intent{Subject: "order-8472", Purpose: "purchase"})
	if err != nil {
		panic(err)
	}
	if _, err := engine.Reconcile(context.Background(), rec.ID); err != nil { // a worker does that when it is due
		panic(err)
	}
	pay(1999)
	pay(2999)
	fmt.Println("charges:", len(provider.Ledger()))
	// Output:
	// unknown next: wait
	// succeeded next: done
	// refused, because of [/amount]
	// charges: 1
}
