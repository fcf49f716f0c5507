package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// schema is the shop's own table. It lives in the same database as settle's, so
// that one transaction can change both.
const schema = `CREATE TABLE IF NOT EXISTS orders (
	id       TEXT PRIMARY KEY,
	customer TEXT NOT NULL,
	amount   INTEGER NOT NULL,           -- cents
	currency TEXT NOT NULL,
	paid     INTEGER NOT NULL DEFAULT 0, -- cents; booked by markPaid and nobody else
	charge   TEXT                        -- the provider's name of the charge
)`

// purchase is why an order is paid. Together with the order's id it names the
// operation: "pay this order, once", however often somebody clicks.
const purchase = "purchase"

type shop struct {
	db      *sql.DB
	engine  *settle.Engine
	charges *settle.Executor[providertest.Payment, providertest.Receipt]
	pay     http.Handler // POST pays an order, GET tells what became of it
}

func newShop(ctx context.Context, db *sql.DB, provider providertest.API, promise settle.Contract, opts settle.Options) (*shop, error) {
	if err := sqlstore.EnsureSchema(ctx, db, sqlstore.SQLite()); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, err
	}
	store, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	if err != nil {
		return nil, err
	}
	s := &shop{db: db}
	if s.engine, err = settle.Open(store, &opts); err != nil {
		return nil, err
	}
	s.charges, err = settle.New(s.engine, "charge", providertest.ChargeAdapter(provider, promise),
		&settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{OnSuccess: markPaid})
	if err != nil {
		return nil, err
	}
	s.pay, err = httpsettle.NewHandler(s.engine, s.charges, customer, s.order, &httpsettle.HandlerOptions[providertest.Receipt]{
		Keys: httpsettle.KeyOptional, // the order says which payment it is; a client that sends keys is held to them
	})
	return s, err
}

// markPaid runs in the transaction that makes the payment succeeded. So the order is
// paid exactly if the payment is confirmed, and the money is booked once, although
// paid = paid + ? is anything but idempotent. Ship here, not after Execute: a
// replay returns nil too, and after a crash nobody returns to the code behind Execute.
func markPaid(ctx context.Context, in settle.Tx, out settle.Outcome[providertest.Receipt]) error {
	receipt, _ := out.Result()
	_, err := sqlstore.Tx(in).ExecContext(ctx, `UPDATE orders SET paid = paid + ?, charge = ? WHERE id = ?`,
		receipt.Amount, receipt.ID, out.Subject)
	return err
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{order}/payments", s.pay)
	mux.Handle("GET /orders/{order}/payments/{id}", s.pay) // where Location leads
	return mux
}

// tokens are the sessions of this example. A real shop has a session store here.
var tokens = map[string]string{"token-of-ada": "ada", "token-of-bob": "bob"}

// customer is who asks: payments, keys and answers of two customers never meet.
func customer(r *http.Request) (string, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return tokens[token], nil // nobody is answered with 401
}

var errNoOrder = &httpsettle.Problem{Status: http.StatusNotFound, Title: "No such order", Next: settle.NextFixRequest}

// order says which operation a click is. The client says which order, and nothing else: the amount is the server's.
// Nothing is stored or sent before this returns, so whatever is refused here can be tried again.
func (s *shop) order(r *http.Request, _ []byte) (settle.Operation[providertest.Payment], error) {
	op := settle.Operation[providertest.Payment]{
		Subject: r.PathValue("order"), Purpose: purchase,
		// After a decline the customer may try again; the next try names the one that failed.
		Replaces: r.URL.Query().Get("replaces"),
	}
	who, err := customer(r)
	if err != nil {
		return op, err
	}
	err = s.db.QueryRowContext(r.Context(), `SELECT amount, currency FROM orders WHERE id = ? AND customer = ?`, op.Subject, who).
		Scan(&op.Request.Amount, &op.Request.Currency)
	if errors.Is(err, sql.ErrNoRows) {
		return op, errNoOrder
	}
	return op, err
}
