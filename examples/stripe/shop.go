package main

import (
	stripe "github.com/stripe/stripe-go/v85"

	"github.com/settle-go/settle"
)

// shop has the kinds of operation that touch money: charges and what gives them back, authorizations and what lets go of them.
type shop struct {
	engine  *settle.Engine
	charges *settle.Executor[Charge, Receipt]
	refunds *settle.Executor[Refund, Receipt]
	holds   *settle.Executor[Charge, Receipt]
	voids   *settle.Executor[Void, Receipt]
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
	if err != nil {
		return nil, err
	}
	if s.holds, err = settle.New(engine, "authorize", holdAdapter(api, contract(account, mode)), nil); err != nil {
		return nil, err
	}
	s.voids, err = settle.New(engine, "void", voidAdapter(api, contract(account, mode)),
		&settle.ExecutorOptions[Void, Receipt]{Undoes: "authorize"})
	return s, err
}
