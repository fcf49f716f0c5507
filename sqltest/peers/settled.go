package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// settled is settle over database/sql with pgx.
type settled struct {
	db     *sql.DB
	engine *settle.Engine
	store  *sqlstore.Store
	pays   *settle.Executor[request, receipt]
}

func newSettled(ctx context.Context, b *bench) (system, error) { return openSettled(ctx, b) }

func openSettled(ctx context.Context, b *bench) (*settled, error) {
	db, err := sql.Open("pgx", b.dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	if err := sqlstore.EnsureSchema(ctx, db, sqlstore.PostgreSQL()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	store, err := sqlstore.New(db, sqlstore.PostgreSQL(), nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	engine, err := settle.Open(store, &settle.Options{Concurrency: 64})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	pays, err := settle.New(engine, "charge", adapter(b), nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &settled{db, engine, store, pays}, nil
}

func adapter(b *bench) settle.Adapter[request, receipt] {
	return settle.Adapter[request, receipt]{
		Promise: settle.Contract{
			Account: settle.AccountFacts{Provider: "bench"}, Keys: settle.Keys{Window: 24 * time.Hour},
			SettleDelay: time.Minute, Deadline: 30 * time.Second,
		},
		TermsFunc: func(op settle.Operation[request]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.Amount, op.Request.Currency)}
		},
		SubmitFunc: func(ctx context.Context, c *settle.Call[request]) (settle.Observation[receipt], error) {
			res, err := b.charge(ctx, c.Key())
			if err != nil {
				return settle.Observation[receipt]{}, err
			}
			return settle.Observation[receipt]{Fact: settle.Applied, Ref: res.ID, Terms: c.Terms, Result: res}, nil
		},
	}
}

func operation(order string) settle.Operation[request] {
	return settle.Operation[request]{Scope: "shop", Subject: order, Purpose: "purchase", Request: requestOf(order)}
}

func (s *settled) pay(ctx context.Context, order string) error {
	_, err := s.pays.Execute(ctx, operation(order))
	return err
}

func (s *settled) again(ctx context.Context, order string) error { return s.pay(ctx, order) }

// insist asks until the payment is made: another process may be at it.
func (s *settled) insist(ctx context.Context, order string) error {
	for {
		err := s.pay(ctx, order)
		if !errors.Is(err, settle.ErrPending) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *settled) close() { _ = s.db.Close() }
