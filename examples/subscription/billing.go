package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/bankproc"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

const price = 900 // cents a month

// billing is the application: its own table, and two kinds of operations on the same database.
type billing struct {
	db      *sql.DB
	engine  *settle.Engine
	charges *settle.Executor[providertest.Payment, providertest.Receipt]
	refunds *settle.Executor[providertest.Refund, providertest.Receipt]
	bank    *providertest.Client
	account settle.AccountFacts
}

func newBilling(ctx context.Context, file string, bank *providertest.Client) (b *billing, err error) {
	b = &billing{bank: bank}
	db, store, err := stage.Open(ctx, file, `CREATE TABLE access (month TEXT PRIMARY KEY, grants INTEGER NOT NULL, revoked INTEGER NOT NULL DEFAULT 0)`)
	if err != nil {
		return nil, err
	}
	b.db = db
	if b.engine, err = settle.Open(store, &settle.Options{Scope: "customer-7"}); err != nil {
		return nil, err
	}
	promise := providertest.Promise(&bankproc.Offer)
	b.account = promise.Account
	charge, refund := providertest.ChargeAdapter(bank, promise), providertest.RefundAdapter(bank, promise)
	charge.EventFunc, refund.EventFunc = providertest.ReadEvent("charge"), providertest.ReadEvent("refund")
	b.charges, err = settle.New(b.engine, "charge", charge, &settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{OnSuccess: grant})
	if err != nil {
		return nil, err
	}
	b.refunds, err = settle.New(b.engine, "refund", refund, &settle.ExecutorOptions[providertest.Refund, providertest.Receipt]{Undoes: "charge"})
	return b, err
}

func (b *billing) close(ctx context.Context) error {
	return errors.Join(b.engine.Drain(ctx), b.db.Close())
}

// charge charges a month, once: the month is the subject. A job that runs twice, or on two hosts, calls this twice.
func (b *billing) charge(ctx context.Context, month string) (settle.Outcome[providertest.Receipt], error) {
	return b.charges.Execute(ctx, settle.Operation[providertest.Payment]{
		Subject: "subscription-7 " + month, Purpose: "monthly fee", Request: providertest.Payment{Amount: price, Currency: "EUR", Invoice: month},
	})
}

// grant commits in the transaction that confirms the charge, whoever confirms it, webhook or reply: so it happens once. It
// counts, where a real one would only insert, so that the audit could see a second time.
func grant(ctx context.Context, tx settle.Tx, out settle.Outcome[providertest.Receipt]) error {
	month := out.Subject[len("subscription-7 "):]
	_, err := sqlstore.Tx(tx).ExecContext(ctx, `INSERT INTO access (month, grants) VALUES (?, 1) ON CONFLICT (month) DO UPDATE SET grants = grants + 1`, month)
	return err
}

// webhooks takes in what the provider reports, from delivery number after on. A real endpoint gets them by HTTP and checks their
// signature first: package webhook does both.
func (b *billing) webhooks(ctx context.Context, after int) error {
	deliveries, err := b.bank.Deliveries(ctx, after)
	if err != nil {
		return err
	}
	for _, ev := range deliveries {
		if _, err := b.engine.Observe(ctx, ev.Settle(b.account)); err != nil {
			return err // not kept: the provider shall deliver it again
		}
	}
	return nil
}

// refund gives a part back. The reason makes it that refund: the same reason again is the same refund.
func (b *billing) refund(ctx context.Context, charge, reason string, cents int64) (settle.Outcome[providertest.Receipt], error) {
	return b.refunds.Compensate(ctx, settle.Effect{Operation: charge}, reason, providertest.Refund{Amount: cents, Currency: "EUR"})
}

func (b *billing) revoke(ctx context.Context, month string) error {
	_, err := b.db.ExecContext(ctx, `UPDATE access SET revoked = 1 WHERE month = ?`, month)
	return err
}

// months lists what the customer has access to, each granted once. It is nil after an error, which the audit notices.
func (b *billing) months(ctx context.Context) (out []string) {
	rows, err := b.db.QueryContext(ctx, `SELECT month FROM access WHERE revoked = 0 AND grants = 1 ORDER BY month`)
	if err != nil {
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var month string
		if rows.Scan(&month) != nil {
			return nil
		}
		out = append(out, month)
	}
	if rows.Err() != nil {
		return nil
	}
	return out
}

func (b *billing) grants(ctx context.Context, month string) (n int) {
	_ = b.db.QueryRowContext(ctx, `SELECT grants FROM access WHERE month = ?`, month).Scan(&n) // 0 then
	return n
}
