package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// schema has the shop's own tables, in the same database as settle's.
const schema = `
CREATE TABLE IF NOT EXISTS orders  (id TEXT PRIMARY KEY, amount INTEGER NOT NULL, paid INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS returns (id TEXT PRIMARY KEY, order_id TEXT NOT NULL, amount INTEGER NOT NULL, refunded INTEGER NOT NULL DEFAULT 0);`

const currency = "EUR"

// shop takes orders and returns. Nothing here talks to the provider: what shall be
// charged or refunded is registered in the transaction that writes the order or
// the return, and the worker (engine.Run, in this or any other process) does it
// after that transaction committed. No transaction waits for a provider.
type shop struct {
	db      *sql.DB
	store   *sqlstore.Store
	engine  *settle.Engine
	charges *settle.Executor[providertest.Payment, providertest.Receipt]
	refunds *settle.Executor[providertest.Refund, providertest.Receipt]
}

// newShop makes the shop. wrap, if it is not nil, stands between settle and the store.
func newShop(ctx context.Context, db *sql.DB, provider providertest.API, promise settle.Contract, opts settle.Options, wrap func(settle.Store) settle.Store) (s *shop, err error) {
	if err := sqlstore.EnsureSchema(ctx, db, sqlstore.SQLite()); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, err
	}
	s = &shop{db: db}
	if s.store, err = sqlstore.New(db, sqlstore.SQLite(), nil); err != nil {
		return nil, err
	}
	store := settle.Store(s.store)
	if wrap != nil {
		store = wrap(store)
	}
	if s.engine, err = settle.Open(store, &opts); err != nil {
		return nil, err
	}
	// Two kinds on one engine: one Run works both.
	s.charges, err = settle.New(s.engine, "charge", providertest.ChargeAdapter(provider, promise),
		&settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{OnSuccess: markPaid})
	if err != nil {
		return nil, err
	}
	s.refunds, err = settle.New(s.engine, "refund", providertest.RefundAdapter(provider, promise),
		&settle.ExecutorOptions[providertest.Refund, providertest.Receipt]{Undoes: "charge", OnSuccess: markRefunded})
	return s, err
}

// place stores an order and, in the same transaction, the intent to charge it:
// there is never an order without its charge, nor a charge without its order.
// check is the rest of the application; if it fails, nothing of all this happened.
func (s *shop) place(ctx context.Context, order string, amount int64, check func(*sql.Tx) error) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, amount) VALUES (?, ?)`, order, amount); err != nil {
			return err
		}
		_, err := s.charges.RegisterTx(ctx, s.store.In(tx), settle.Operation[providertest.Payment]{
			Subject: order, Purpose: "purchase",
			Request: providertest.Payment{Amount: amount, Currency: currency},
		})
		if err != nil || check == nil {
			return err
		}
		return check(tx)
	})
}

// giveBack stores a return and the intent to refund it. The order need not be paid
// yet: the refund waits until the charge is confirmed, and is dropped if that fails.
// Refunds of one order can never exceed what was charged.
func (s *shop) giveBack(ctx context.Context, id, order string, amount int64) error {
	charge, err := s.charges.Find(ctx, settle.Intent{Subject: order, Purpose: "purchase"})
	if err != nil {
		return err
	}
	return s.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO returns (id, order_id, amount) VALUES (?, ?, ?)`, id, order, amount)
		if err != nil {
			return err
		}
		_, err = s.refunds.RegisterTx(ctx, s.store.In(tx), settle.Operation[providertest.Refund]{
			Undoes:  settle.Effect{Operation: charge.ID},
			Purpose: id, // why: it tells this refund from others of the same charge
			Request: providertest.Refund{Amount: amount, Currency: currency},
		})
		return err
	})
}

// transact runs f in a transaction, again if the database asks for that.
func (s *shop) transact(ctx context.Context, f func(*sql.Tx) error) error {
	for try := 1; ; try++ {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err = f(tx); err == nil {
			return tx.Commit()
		}
		_ = tx.Rollback()
		if !errors.Is(err, settle.ErrRetryTx) || try == 10 {
			return err
		}
	}
}

// markPaid runs in the transaction in which the charge becomes succeeded, so it counts once.
func markPaid(ctx context.Context, tx settle.Tx, out settle.Outcome[providertest.Receipt]) error {
	receipt, _ := out.Result()
	return update(ctx, tx, `UPDATE orders SET paid = paid + ? WHERE id = ?`, receipt.Amount, out.Subject)
}

// markRefunded does the same for a refund, whose purpose is the id of the return.
func markRefunded(ctx context.Context, tx settle.Tx, out settle.Outcome[providertest.Receipt]) error {
	receipt, _ := out.Result()
	return update(ctx, tx, `UPDATE returns SET refunded = refunded + ? WHERE id = ?`, receipt.Amount, out.Purpose)
}

// update changes one row in settle's transaction. An update that meets no row is an
// error: settle then keeps the evidence and runs the hook again later.
func update(ctx context.Context, in settle.Tx, query string, args ...any) error {
	res, err := sqlstore.Tx(in).ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%d rows changed, want 1 (%w)", n, errors.Join(err, sql.ErrNoRows))
	}
	return nil
}
