package pgxsettle_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/pgxsettle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// An order and the charge for it commit together. Only then is anything sent, by whichever worker comes first.
func ExampleIn() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// in the transaction: created
	// after COMMIT: succeeded, 1 request to the provider
}

func example(ctx context.Context) error {
	url := os.Getenv("SETTLE_POSTGRES")
	if url == "" {
		url = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	const schema = "settle_pgx_example" // an application has settle's tables beside its own
	if _, err := pool.Exec(ctx, `DROP SCHEMA IF EXISTS `+schema+` CASCADE; CREATE SCHEMA `+schema); err != nil {
		return err
	}
	defer func() { _, _ = pool.Exec(ctx, `DROP SCHEMA `+schema+` CASCADE`) }()
	config := pool.Config()
	config.ConnConfig.RuntimeParams["search_path"] = schema
	shop, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer shop.Close()
	if _, err := shop.Exec(ctx, `CREATE TABLE orders (id text PRIMARY KEY)`); err != nil {
		return err
	}

	db := stdlib.OpenDBFromPool(shop)
	defer func() { _ = db.Close() }()
	if err := sqlstore.EnsureSchema(ctx, db, sqlstore.PostgreSQL()); err != nil {
		return err
	}
	store, err := sqlstore.New(db, sqlstore.PostgreSQL(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	engine, err := settle.Open(store, nil)
	if err != nil {
		return err
	}
	o := &providertest.Options{KeyWindow: 24 * time.Hour}
	bank := providertest.New(o) // here an adapter of your own
	charges, err := settle.New(engine, "charge", providertest.ChargeAdapter(bank, providertest.Promise(o)), nil)
	if err != nil {
		return err
	}

	charge := settle.Operation[providertest.Payment]{
		Scope: "shop", Subject: "order-42", Purpose: "purchase", Request: providertest.Payment{Amount: 1999, Currency: "EUR", Invoice: "R-42"},
	}
	err = pgx.BeginFunc(ctx, shop, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('order-42')`); err != nil {
			return err
		}
		registered, err := charges.RegisterTx(ctx, pgxsettle.In(store, tx), charge)
		fmt.Println("in the transaction:", registered.State)
		return err
	})
	if err != nil {
		return err
	}
	out, err := charges.Execute(ctx, charge) // or Engine.Run in a worker
	fmt.Printf("after COMMIT: %s, %d request to the provider\n", out.State, bank.Calls(providertest.OpCreate))
	return err
}
