package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// schema is the application's own table. The approval is a person's, and it is bound
// to the exact request that was approved.
const schema = `CREATE TABLE IF NOT EXISTS orders (
	id          TEXT PRIMARY KEY,
	amount      INTEGER NOT NULL, -- cents
	currency    TEXT NOT NULL,
	approved_by TEXT NOT NULL DEFAULT '',
	approved_at INTEGER NOT NULL DEFAULT 0, -- Unix seconds, as is the next
	until       INTEGER NOT NULL DEFAULT 0,
	fingerprint TEXT NOT NULL DEFAULT ''
)`

// toolset is what the language model may call: two functions, each from JSON to
// JSON. A model forgets, rephrases, repeats and invents, so it decides only which
// order. What the order costs, whether somebody approved it and under which key it
// is paid is looked up here.
type toolset struct {
	db       *sql.DB
	engine   *settle.Engine
	charges  *settle.Executor[providertest.Payment, providertest.Receipt]
	patience time.Duration // how long a model waits for one call
}

// definitions is what the model is told about the tools, in the usual form.
const definitions = `[
  {"name": "pay_order", "description": "Pays an approved order once. Safe to call again for the same order.",
   "input_schema": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"], "additionalProperties": false}},
  {"name": "operation_status", "description": "Tells what became of the payment of an order. Starts nothing.",
   "input_schema": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"], "additionalProperties": false}}
]`

func newToolset(ctx context.Context, db *sql.DB, provider providertest.API, promise settle.Contract, opts settle.Options) (*toolset, error) {
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
	t := &toolset{db: db, patience: 5 * time.Second}
	if t.engine, err = settle.Open(store, &opts); err != nil {
		return nil, err
	}
	// There is no hook here. An application that ships or books does it in OnSuccess, see
	// the example webhandler.
	t.charges, err = settle.New(t.engine, "charge", providertest.ChargeAdapter(provider, promise),
		&settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{Authorize: needsApproval})
	return t, err
}

// needsApproval runs before anything is stored, and only while no payment of the
// order exists: an approval that ends later does not hide what was done under it.
// That the approval is for this very request is checked by settle.
func needsApproval(_ context.Context, op settle.Operation[providertest.Payment]) error {
	if op.Approval == nil || !op.Approval.Until.After(time.Now()) {
		return errors.New("no approval")
	}
	return nil
}

// result is what the model gets to read.
type result struct {
	Status  string                `json:"status"`
	Next    settle.Next           `json:"next"`
	Advice  string                `json:"advice"`
	Reason  string                `json:"reason,omitempty"`
	Receipt *providertest.Receipt `json:"receipt,omitempty"`
}

// call runs a tool. It always answers with something that a model can act on.
func (t *toolset) call(ctx context.Context, tool string, input []byte) []byte {
	var in struct {
		OrderID string `json:"order_id"`
	}
	var res result
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.DisallowUnknownFields() // an amount or a key from the model is an error, not a hint
	err := dec.Decode(&in)
	order := strings.ToLower(strings.Trim(in.OrderID, " #"))
	switch {
	case err != nil:
		res = wrong("the input has exactly one member, order_id, a string")
	case tool == "pay_order":
		res = t.pay(ctx, order)
	case tool == "operation_status":
		res = t.status(ctx, order)
	default:
		res = wrong("there is no such tool")
	}
	out, err := json.Marshal(res)
	if err != nil {
		panic(err) // plain strings and numbers always marshal
	}
	return out
}

func (t *toolset) pay(ctx context.Context, order string) result {
	op, err := t.operation(ctx, order)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return wrong("there is no such order")
	case err != nil:
		return notNow()
	}
	// The model does not wait for ever; the payment goes on when it stops waiting.
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	return tell(t.charges.Execute(ctx, op))
}

func (t *toolset) status(ctx context.Context, order string) result {
	rec, err := t.charges.Find(ctx, settle.Intent{Subject: order, Purpose: "purchase"})
	switch {
	case errors.Is(err, settle.ErrNotFound):
		return result{Status: "none", Next: settle.NextRetry, Advice: "No payment of this order was started. pay_order may be called."}
	case err != nil:
		return notNow()
	}
	return tell(t.charges.Outcome(rec))
}

// tell puts a verdict into words. Only err == nil is a success.
func tell(out settle.Outcome[providertest.Receipt], err error) result {
	res := result{Status: string(out.State), Next: out.Next, Advice: out.Next.Advice()}
	var e *settle.Error
	if errors.As(err, &e) {
		res.Reason = e.Code
	}
	switch {
	case errors.Is(err, settle.ErrRefused):
		return result{Status: "refused", Next: settle.NextWaitPerson, Reason: "not approved", Advice: "Nothing was started by this call. " +
			"A person must approve this order as it is now; then call pay_order again."}
	case errors.Is(err, settle.ErrMismatch):
		return result{Status: "refused", Next: settle.NextWaitPerson, Reason: "order changed", Advice: "Nothing was started by this call. " +
			"The order was changed after its payment was started. Ask for operation_status, and tell a person."}
	case errors.Is(err, settle.ErrStore), errors.Is(err, settle.ErrDraining):
		return notNow()
	case errors.Is(err, settle.ErrPending) && res.Status == "":
		res.Status = string(settle.StateUnknown) // stopped waiting before anything was known
	case res.Status == "":
		res.Status = "refused"
	}
	if receipt, ok := out.Result(); ok && err == nil {
		res.Receipt = &receipt
	}
	return res
}

// wrong answers a call that makes no sense.
func wrong(reason string) result {
	return result{Status: "refused", Reason: reason, Next: settle.NextFixRequest, Advice: settle.NextFixRequest.Advice()}
}

// notNow answers when the database is in trouble. That says nothing about the payment.
func notNow() result {
	return result{Status: "unavailable", Next: settle.NextRetry, Advice: "Nothing is known at the moment, and the payment may exist. " +
		"Call again later with the same order_id."}
}

// operation is the payment of an order: identity, amount and approval, all from the database.
func (t *toolset) operation(ctx context.Context, order string) (settle.Operation[providertest.Payment], error) {
	op := settle.Operation[providertest.Payment]{Subject: order, Purpose: "purchase"}
	var a settle.Approval
	var at, until int64
	err := t.db.QueryRowContext(ctx, `SELECT amount, currency, approved_by, approved_at, until, fingerprint FROM orders WHERE id = ?`, order).
		Scan(&op.Request.Amount, &op.Request.Currency, &a.By, &at, &until, &a.Fingerprint)
	if err == nil && a.By != "" {
		a.At, a.Until = time.Unix(at, 0), time.Unix(until, 0)
		op.Approval = &a
	}
	return op, err
}

// approve is for people, not for the model: it binds the approval to the order as it is now.
func (t *toolset) approve(ctx context.Context, order, by string, until time.Time) error {
	op, err := t.operation(ctx, order)
	if err != nil {
		return err
	}
	fingerprint, err := t.charges.Fingerprint(op)
	if err != nil {
		return err
	}
	_, err = t.db.ExecContext(ctx, `UPDATE orders SET approved_by = ?, approved_at = ?, until = ?, fingerprint = ? WHERE id = ?`,
		by, time.Now().Unix(), until.Unix(), fingerprint, order)
	return err
}
