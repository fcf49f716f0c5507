package providertest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settle-go/settle/providertest"
)

// A charge is applied and its reply is lost. The caller who sends it again under
// a fresh key pays twice; the ledger knows.
func Example() {
	p := providertest.New(&providertest.Options{KeyWindow: 24 * time.Hour})
	p.Script(providertest.DropReply())

	for _, key := range []string{"key-1", "key-1", "key-2"} {
		o, err := p.Create(context.Background(), providertest.Request{
			Kind: providertest.KindCharge, Key: key, Reference: "order-17", Amount: 1999, Currency: "EUR",
		})
		switch {
		case errors.Is(err, providertest.ErrNoReply):
			fmt.Println(key, "no reply, effects:", p.Effects("order-17"))
		case err == nil:
			fmt.Println(key, o.ID, o.Status, "effects:", p.Effects("order-17"))
		}
	}
	fmt.Println("duplicates:", p.Duplicates())
	// Output:
	// key-1 no reply, effects: 1
	// key-1 ch_1 succeeded effects: 1
	// key-2 ch_2 succeeded effects: 2
	// duplicates: [order-17]
}
