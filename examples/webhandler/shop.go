package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// schema is the shop's own table. It lives in the same database as settle's, so
// that one transaction can change both.
const schema = `CREATE TABLE IF NOT EXISTS orders (
	id       TEXT PRIMARY KEY,
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
	mux.HandleFunc("POST /orders/{id}/pay", s.pay)
	mux.HandleFunc("GET /orders/{id}/pay", s.status)
	return mux
}

// pay handles the button. The client says which order, and nothing else: the
// amount is the server's, and so is the key.
func (s *shop) pay(w http.ResponseWriter, r *http.Request) {
	op := settle.Operation[providertest.Payment]{
		Subject: r.PathValue("id"), Purpose: purchase,
		// After a decline the customer may try again; the next try names the one that failed.
		Replaces: r.URL.Query().Get("replaces"),
	}
	err := s.db.QueryRowContext(r.Context(), `SELECT amount, currency FROM orders WHERE id = ?`, op.Subject).
		Scan(&op.Request.Amount, &op.Request.Currency)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "no such order", http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, "try again", http.StatusServiceUnavailable) // nothing was sent yet
		return
	}
	// If the client goes away, Execute returns and the payment goes on without it.
	out, err := s.charges.Execute(r.Context(), op)
	answer(w, r, out, err)
}

// status tells what became of the payment, and starts nothing.
func (s *shop) status(w http.ResponseWriter, r *http.Request) {
	rec, err := s.charges.Find(r.Context(), settle.Intent{Subject: r.PathValue("id"), Purpose: purchase})
	if err != nil { // Find's error is about reading; it says nothing about the payment
		answer(w, r, settle.Outcome[providertest.Receipt]{}, err)
		return
	}
	out, err := s.charges.Outcome(rec)
	answer(w, r, out, err)
}

// reply is what the browser gets. Next is a word for programs, Advice a sentence for people.
type reply struct {
	Status    settle.State          `json:"status,omitempty"`
	Operation string                `json:"operation,omitempty"`
	Next      settle.Next           `json:"next"`
	Advice    string                `json:"advice"`
	Reason    string                `json:"reason,omitempty"`
	Differs   []string              `json:"differs,omitempty"`
	Action    string                `json:"action,omitempty"`
	Receipt   *providertest.Receipt `json:"receipt,omitempty"`
}

func answer(w http.ResponseWriter, r *http.Request, out settle.Outcome[providertest.Receipt], err error) {
	body := reply{Status: out.State, Operation: out.ID, Next: out.Next}
	if e := (*settle.Error)(nil); errors.As(err, &e) {
		// A refused call has no record; its error names the operation that stood in the way.
		body.Status, body.Operation, body.Next, body.Reason, body.Differs = e.State, e.ID, e.Next(), e.Code, e.Fields
	}
	body.Advice = body.Next.Advice()
	if receipt, ok := out.Result(); ok {
		body.Receipt = &receipt
	}
	if out.Progress != nil {
		body.Action = out.Progress.Action
	}
	code := statusCode(err)
	switch code {
	case http.StatusAccepted:
		w.Header().Set("Location", r.URL.Path)
		w.Header().Set("Retry-After", "1")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
		body.Advice = "Nothing is known at the moment. Send the same request again."
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// statusCode maps a verdict to HTTP. Only nil is a success; what is not known is
// never shown as a failure, or the customer would pay again elsewhere.
func statusCode(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, settle.ErrPending), // in progress, unknown, processing or waiting: it goes on without us
		errors.Is(err, settle.ErrActionRequired), // the customer must act, then ask again
		errors.Is(err, settle.ErrReview),         // a person must look; the money may have moved
		errors.Is(err, settle.ErrConsequence):    // paid; the booking is being retried
		return http.StatusAccepted
	case errors.Is(err, settle.ErrFailed):
		return http.StatusPaymentRequired
	case errors.Is(err, settle.ErrMismatch), errors.Is(err, settle.ErrConflict), errors.Is(err, settle.ErrHeld),
		errors.Is(err, settle.ErrCanceled), errors.Is(err, settle.ErrCompensated):
		return http.StatusConflict
	case errors.Is(err, settle.ErrRefused):
		return http.StatusForbidden
	case errors.Is(err, settle.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, settle.ErrInvalid):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable // a store in trouble, a shutdown: the same request later is safe
}
