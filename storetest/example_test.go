package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/storetest"
)

// The answer to the commit that records a charge's success is lost. The charge has been made once
// all the same, and its caller learns that it succeeded.
func ExampleWrap() {
	lost := storetest.Fault{After: storetest.Fail(errors.New("connection reset by peer"))}
	store := storetest.Wrap(memstore.New(nil), storetest.Nth(storetest.OpCommit, 2, lost))

	engine, err := settle.Open(store, nil)
	if err != nil {
		panic(err)
	}
	requests := 0
	charge, err := settle.New(engine, "charge", settle.Adapter[int, string]{
		Promise: settle.Contract{
			Account: settle.AccountFacts{Provider: "acme"}, Deadline: time.Second, SettleDelay: time.Minute,
		},
		TermsFunc: func(settle.Operation[int]) settle.Terms { return settle.Terms{} },
		SubmitFunc: func(context.Context, *settle.Call[int]) (settle.Observation[string], error) {
			requests++
			return settle.Observation[string]{Fact: settle.Applied, Ref: "ch_1"}, nil
		},
	}, nil)
	if err != nil {
		panic(err)
	}
	out, err := charge.Execute(context.Background(), settle.Operation[int]{
		Scope: "shop", Subject: "order-17", Purpose: "purchase", Request: 1999,
	})
	fmt.Println(out.State, err)
	fmt.Println("requests:", requests)
	// Output:
	// succeeded <nil>
	// requests: 1
}
