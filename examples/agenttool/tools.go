package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// schema is the application's own. The approval is a person's, and it is bound to the exact request that
// was approved. What a model said about a call is kept beside it: it is no part of what is paid.
const schema = `CREATE TABLE IF NOT EXISTS orders (
	id          TEXT PRIMARY KEY,
	amount      INTEGER NOT NULL, -- cents
	currency    TEXT NOT NULL,
	approved_by TEXT NOT NULL DEFAULT '',
	approved_at INTEGER NOT NULL DEFAULT 0, -- Unix seconds, as is the next
	until       INTEGER NOT NULL DEFAULT 0,
	fingerprint TEXT NOT NULL DEFAULT '',
	replaces    TEXT NOT NULL DEFAULT '' -- the payment that failed before this approval
);
CREATE TABLE IF NOT EXISTS said (order_id TEXT NOT NULL, reason TEXT NOT NULL)`

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

// definition is what the model is told about a tool.
type definition struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// definitions are the two tools, for any framework that calls functions; mcp.go serves the same ones. No
// description asks for a key, and none invites a repeat under another name (IC-63).
func definitions() []definition {
	return []definition{
		{
			Name: "pay_order",
			Description: "Pays an approved order once, however often it is called for that order. The order alone says what is paid: there is no amount " +
				"and no key to give. If the result says unknown, do not look for another way to pay; call operation_status later.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{
				"order_id":{"type":"string","description":"The order, e.g. order-8472."},
				"reason":{"type":"string","maxLength":500,"description":"Why, in your own words, for the log. It changes nothing about the payment."}
			},"required":["order_id"],"additionalProperties":false}`),
		},
		{
			Name:        "operation_status",
			Description: "Tells what became of the payment of an order, and what is safe to do next. Starts nothing.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{
				"order_id":{"type":"string","description":"The order, e.g. order-8472."}
			},"required":["order_id"],"additionalProperties":false}`),
		},
	}
}

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

// call runs a tool as a plain function. It always answers with something that a model can act on.
func (t *toolset) call(ctx context.Context, tool string, input []byte) []byte {
	out, err := json.Marshal(t.do(ctx, tool, input))
	if err != nil {
		panic(err) // plain strings and numbers always marshal
	}
	return out
}

func (t *toolset) do(ctx context.Context, tool string, input []byte) result {
	var in struct {
		OrderID string  `json:"order_id"`
		Reason  *string `json:"reason"`
	}
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.DisallowUnknownFields() // an amount or a key from the model is an error, not a hint
	err := dec.Decode(&in)
	if _, more := dec.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("more than one value")
	}
	order := strings.ToLower(strings.Trim(in.OrderID, " #"))
	switch {
	case err != nil || tool == "pay_order" && in.Reason != nil && len(*in.Reason) > 500 || tool == "operation_status" && in.Reason != nil:
		return wrong("the arguments are not those of the tool. Give order_id, and no amount and no key: they are the server's")
	case tool == "pay_order":
		if in.Reason != nil {
			if _, err := t.db.ExecContext(ctx, `INSERT INTO said (order_id, reason) VALUES (?, ?)`, order, *in.Reason); err != nil {
				return notNow()
			}
		}
		return t.pay(ctx, order)
	case tool == "operation_status":
		return t.status(ctx, order)
	}
	return wrong("there is no such tool")
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

// operation is the payment of an order: identity, amount and approval, all from the database.
func (t *toolset) operation(ctx context.Context, order string) (settle.Operation[providertest.Payment], error) {
	op := settle.Operation[providertest.Payment]{Subject: order, Purpose: "purchase"}
	var a settle.Approval
	var at, until int64
	err := t.db.QueryRowContext(ctx,
		`SELECT amount, currency, approved_by, approved_at, until, fingerprint, replaces FROM orders WHERE id = ?`, order).
		Scan(&op.Request.Amount, &op.Request.Currency, &a.By, &at, &until, &a.Fingerprint, &op.Replaces)
	if err == nil && a.By != "" {
		a.At, a.Until = time.Unix(at, 0), time.Unix(until, 0)
		op.Approval = &a
	}
	return op, err
}

// approve is for people, not for the model: it binds the approval to the order as it is now. After a payment that failed
// it is also what allows another one; only a person decides that.
func (t *toolset) approve(ctx context.Context, order, by string, until time.Time) error {
	op, err := t.operation(ctx, order)
	if err != nil {
		return err
	}
	rec, err := t.charges.Find(ctx, settle.Intent{Subject: order, Purpose: "purchase"})
	switch {
	case errors.Is(err, settle.ErrNotFound):
	case err != nil:
		return err
	case rec.State == settle.StateFailed:
		op.Replaces = rec.ID
	}
	fingerprint, err := t.charges.Fingerprint(op)
	if err != nil {
		return err
	}
	_, err = t.db.ExecContext(ctx,
		`UPDATE orders SET approved_by = ?, approved_at = ?, until = ?, fingerprint = ?, replaces = ? WHERE id = ?`,
		by, time.Now().Unix(), until.Unix(), fingerprint, op.Replaces, order)
	return err
}
