package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/settle-go/settle"
)

// Inbox applies each transition once and in order, whatever the broker repeats or reorders: one row for each
// operation says how far it is, and moves in the transaction of what the message causes.
type Inbox struct {
	DB *sql.DB // PostgreSQL
	// Apply writes what follows from a transition, through tx only.
	Apply func(ctx context.Context, tx *sql.Tx, m settle.Message) error
}

// errEarly: the message before this one has not been applied. The broker shall bring this one again.
var errEarly = errors.New("feed: too early")

// inboxTable is its table.
const inboxTable = `CREATE TABLE IF NOT EXISTS inbox (operation text PRIMARY KEY, sequence bigint NOT NULL)`

// Take applies m if it is the next one of its operation. A nil error means that it may be acknowledged: it is applied, now or before.
func (b *Inbox) Take(ctx context.Context, m settle.Message) error {
	tx, err := b.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after Commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO inbox VALUES ($1, 0) ON CONFLICT DO NOTHING`, m.Operation); err != nil {
		return err
	}
	var at int64
	if err := tx.QueryRowContext(ctx, `SELECT sequence FROM inbox WHERE operation = $1 FOR UPDATE`, m.Operation).Scan(&at); err != nil {
		return err
	}
	switch {
	case at >= m.Sequence:
		return nil
	case at != m.Previous:
		return errEarly
	}
	if err := b.Apply(ctx, tx, m); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE inbox SET sequence = $1 WHERE operation = $2`, m.Sequence, m.Operation); err != nil {
		return err
	}
	return tx.Commit()
}
