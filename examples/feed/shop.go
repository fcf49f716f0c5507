package main

import (
	"context"
	"fmt"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// shop charges orders, and publishes what becomes of them.
type shop struct {
	engine  *settle.Engine
	charges map[string]*settle.Executor[providertest.Payment, providertest.Receipt]
	stop    context.CancelFunc
	done    chan error
}

// openShop makes an engine whose worker publishes to p, with executors of the kinds.
func openShop(store settle.Store, bank *providertest.Provider, promise settle.Contract, p settle.Publisher, kinds ...string) (*shop, error) {
	engine, err := settle.Open(store, &settle.Options{
		Scope: "shop", Publisher: p, PollInterval: 20 * time.Millisecond, Lease: 2 * time.Second, StoreTimeout: time.Second,
	})
	if err != nil {
		return nil, err
	}
	s := &shop{engine: engine, charges: map[string]*settle.Executor[providertest.Payment, providertest.Receipt]{}, done: make(chan error, 1)}
	for _, kind := range kinds {
		if s.charges[kind], err = settle.New(engine, kind, providertest.ChargeAdapter(bank, promise), nil); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.done <- engine.Run(ctx) }()
	return s, nil
}

// pay charges one order.
func (s *shop) pay(ctx context.Context, kind, order string) (string, error) {
	out, err := s.charges[kind].Execute(ctx, settle.Operation[providertest.Payment]{
		Subject: order, Purpose: "purchase", Request: providertest.Payment{Amount: 1999, Currency: "EUR"},
	})
	if err != nil {
		return "", fmt.Errorf("order %s: %w", order, err)
	}
	return out.ID, nil
}

func (s *shop) close() error {
	s.stop()
	return <-s.done
}
