package main

import (
	stripe "github.com/stripe/stripe-go/v85"

	"github.com/settle-go/settle"
)

// shop has the two kinds of operation that touch money.
type shop struct {
	engine  *settle.Engine
	charges *settle.Executor[Charge, Receipt]
	refunds *settle.Executor[Refund, Receipt]
}

func newShop(store settle.Store, api *stripe.Client, account, mode string, opts settle.Options) (*shop, error) {
	engine, err := settle.Open(store, &opts)
	if err != nil {
		return nil, err
	}
	s := &shop{engine: engine}
	if s.charges, err = settle.New(engine, "charge", chargeAdapter(api, contract(account, mode)), nil); err != nil {
		return nil, err
	}
	s.refunds, err = settle.New(engine, "refund", refundAdapter(api, refundContract(account, mode)),
		&settle.ExecutorOptions[Refund, Receipt]{Undoes: "charge"})
	return s, err
}
