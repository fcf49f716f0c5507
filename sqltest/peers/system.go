package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// system is one way to pay an order once. Its methods are for many callers at once.
type system interface {
	// pay does what was not done before. It returns when the outcome is durable.
	pay(ctx context.Context, order string) error
	// again asks for a payment that was made before.
	again(ctx context.Context, order string) error
	close()
}

// bench is what the systems share.
type bench struct {
	dsn      string // of a database that nobody else uses
	pool     *pgxpool.Pool
	provider time.Duration
}

// charge is the provider: it takes its time and always succeeds.
func (b *bench) charge(ctx context.Context, name string) (receipt, error) {
	if b.provider > 0 {
		t := time.NewTimer(b.provider)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return receipt{}, ctx.Err()
		}
	}
	return receipt{ID: "ch_" + name}, nil
}

type request struct {
	Order    string `json:"order"`
	Customer string `json:"customer"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Invoice  string `json:"invoice"`
	Account  string `json:"account"`
}

type receipt struct {
	ID string `json:"id"`
}

func requestOf(order string) request {
	return request{Order: order, Customer: "cus_8472", Amount: 1999, Currency: "EUR", Invoice: "inv_" + order, Account: "acct_1"}
}

// conns is how many connections each system may use: a server takes a hundred by default, and all
// systems are connected at once.
const conns = 16

type maker struct {
	name string
	make func(ctx context.Context, b *bench) (system, error)
}

func makers() []maker {
	return []maker{
		{"floor", newFloor},
		{"settle", newSettled},
		{"DBOS", newDBOS},
		{"River", newRiver},
	}
}
