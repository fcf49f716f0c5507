package memstore_test

import (
	"context"
	"fmt"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

// A test of an application: the store is in memory, the provider is a simulator whose reply gets lost.
func ExampleNew() {
	provider := providertest.New(nil)
	provider.Script(providertest.DropReply())
	engine, err := settle.Open(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	charges, err := settle.New(engine, "charge", providertest.ChargeAdapter(provider, providertest.Promise(nil)), nil)
	if err != nil {
		panic(err)
	}
	for range 2 {
		out, err := charges.Execute(context.Background(), settle.Operation[providertest.Payment]{
			Scope: "shop-1", Subject: "order-8472", Purpose: "purchase", Request: providertest.Payment{Amount: 1999, Currency: "EUR"},
		})
		fmt.Println(out.State, err, "replayed:", out.Replayed)
	}
	fmt.Println("charges:", len(provider.Ledger()))
	// Output:
	// succeeded <nil> replayed: false
	// succeeded <nil> replayed: true
	// charges: 1
}
