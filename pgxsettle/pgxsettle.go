// Package pgxsettle registers operations in transactions of native pgx
// (github.com/jackc/pgx/v5), for applications that do not use database/sql themselves.
//
//	pool, err := pgxpool.New(ctx, url)
//	store, err := sqlstore.New(stdlib.OpenDBFromPool(pool), sqlstore.PostgreSQL(), nil)
//	…
//	tx, err := pool.Begin(ctx)
//	_, err = tx.Exec(ctx, "INSERT INTO orders …")
//	_, err = charges.RegisterTx(ctx, pgxsettle.In(store, tx), op)
//	err = tx.Commit(ctx)
//
// It is a module of its own so that pgx never becomes a requirement of the root module.
package pgxsettle

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// In makes a settle.Tx of tx, a transaction of the application on the database of store, which
// must be of the dialect sqlstore.PostgreSQL. The application commits or rolls it back itself. A
// change that is refused is undone as a whole, and tx may go on. After settle.ErrRetryTx tx must be
// rolled back and started again.
//
// It is good until tx ends and, as tx, for one goroutine at a time. Unwrap returns tx. In panics if
// store or tx is nil.
func In(store *sqlstore.Store, tx pgx.Tx) settle.Tx {
	if store == nil || tx == nil {
		panic("pgxsettle: In needs a store and a transaction")
	}
	return inside{store, tx}
}

type inside struct {
	store *sqlstore.Store
	tx    pgx.Tx
}

// Unwrap implements settle.Tx.
func (i inside) Unwrap() any { return i.tx }

// Get implements settle.Tx.
func (i inside) Get(ctx context.Context, by settle.Index) (r settle.Record, err error) {
	err = i.bridged(ctx, func(t settle.Tx) error {
		r, err = t.Get(ctx, by)
		return err
	})
	return r, err
}

// Commit implements settle.Tx.
func (i inside) Commit(ctx context.Context, c settle.Change) (out []settle.Record, err error) {
	err = i.bridged(ctx, func(t settle.Tx) error {
		out, err = t.Commit(ctx, c)
		return err
	})
	return out, err
}

// bridged hands f the transaction as a connection of database/sql, which is what the store's
// statements are written for. It is gone when f returns; the transaction stays.
func (i inside) bridged(ctx context.Context, f func(settle.Tx) error) error {
	db := sql.OpenDB(bridge{i.tx})
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	err = f(i.store.InConn(conn))
	_ = conn.Close() // of the bridge, on which nothing is open
	_ = db.Close()
	return err
}
