package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/bankproc"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/providertest"
)

// payables pays invoices, and gets back what was paid twice.
type payables struct {
	db       *sql.DB
	engine   *settle.Engine
	payments *settle.Executor[providertest.Payment, providertest.Receipt]
	refunds  *settle.Executor[providertest.Refund, providertest.Receipt]
	account  settle.AccountFacts
}

var (
	errNotApproved = errors.New("nobody approved it")
	errOwnApproval = errors.New("who approves does not pay")
)

// fourEyes is the policy. It is asked before anything is stored, and not again for what exists. That an approval is of this
// very invoice and amount, and still good, settle checks itself.
func fourEyes(_ context.Context, ask settle.Ask) (settle.Grant, error) {
	switch {
	case ask.Action != settle.ActionStart: // what brings money back needs no second person
		return settle.Grant{Rule: "clerks"}, nil
	case ask.Approval == nil:
		return settle.Grant{}, errNotApproved
	case ask.Approval.By == ask.Actor:
		return settle.Grant{}, errOwnApproval
	}
	return settle.Grant{Rule: "four-eyes"}, nil
}

func newPayables(ctx context.Context, file string, bank *providertest.Client) (p *payables, err error) {
	p = &payables{}
	db, store, err := stage.Open(ctx, file, "")
	if err != nil {
		return nil, err
	}
	p.db = db
	if p.engine, err = settle.Open(store, &settle.Options{Scope: "payables", Policy: fourEyes}); err != nil {
		return nil, err
	}
	promise := providertest.Promise(&bankproc.Offer)
	p.account = promise.Account
	p.payments, err = settle.New(p.engine, "payment", providertest.ChargeAdapter(bank, promise), nil)
	if err != nil {
		return nil, err
	}
	p.refunds, err = settle.New(p.engine, "refund", providertest.RefundAdapter(bank, promise),
		&settle.ExecutorOptions[providertest.Refund, providertest.Receipt]{Undoes: "payment"})
	return p, err
}

func (p *payables) close(ctx context.Context) error {
	return errors.Join(p.engine.Drain(ctx), p.db.Close())
}

// approve binds a decision to the fingerprint of what was shown to the approver: another amount, or invoice, is not covered.
func (p *payables) approve(invoice providertest.Payment, by string) (*settle.Approval, error) {
	fingerprint, err := p.payments.Fingerprint(operation(invoice))
	if err != nil {
		return nil, err
	}
	return &settle.Approval{By: by, At: time.Now(), Until: time.Now().Add(24 * time.Hour), Fingerprint: fingerprint}, nil
}

// operation is what paying an invoice is: its number is the subject, so all clerks and all tries mean the same payment.
func operation(invoice providertest.Payment) settle.Operation[providertest.Payment] {
	return settle.Operation[providertest.Payment]{Subject: invoice.Invoice, Purpose: "payment", Request: invoice}
}

// pay pays an invoice once. clerk is who was authenticated; a server notes that in its middleware.
func (p *payables) pay(ctx context.Context, clerk string, invoice providertest.Payment, approval *settle.Approval) (settle.Outcome[providertest.Receipt], error) {
	op := operation(invoice)
	op.Approval = approval
	return p.payments.Execute(settle.WithActor(ctx, clerk), op)
}
