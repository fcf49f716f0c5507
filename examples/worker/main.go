// Command worker shows settle as an outbox: the application registers what shall
// be done in its own transaction, next to its own rows, and a worker does it.
//
//	go run ./worker
//
// It takes three orders, of which one is rolled back, and two returns; then it runs
// the worker against a provider that loses every other reply, and prints both
// ledgers. The interesting part is in shop.go.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the database driver; sqlstore works with any

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

func main() { stage.Main("worker", run) }

func run(ctx context.Context, out io.Writer, dir string) error {
	db, err := sql.Open("sqlite", sqlstore.DSN(filepath.Join(dir, "shop.db")))
	if err != nil {
		return err
	}
	defer db.Close()
	offer, count := providertest.Options{KeyWindow: 24 * time.Hour}, new(atomic.Int64)
	offer.Choose = func(providertest.Request) providertest.Step {
		if count.Add(1)%2 == 1 {
			return providertest.DropReply()
		}
		return providertest.OK()
	}
	provider := providertest.New(&offer)
	s, err := newShop(ctx, db, provider, providertest.Promise(&offer), settle.Options{Scope: "shop"}, nil)
	if err != nil {
		return err
	}

	soldOut := errors.New("sold out")
	err = s.place(ctx, "order-2", 700, func(*sql.Tx) error { return soldOut })
	if !errors.Is(err, soldOut) {
		return fmt.Errorf("order-2 should have been rolled back: %w", err)
	}
	err = errors.Join(
		s.place(ctx, "order-1", 1999, nil),
		s.place(ctx, "order-3", 500, nil),
		s.giveBack(ctx, "return-1", "order-1", 300),
		s.giveBack(ctx, "return-2", "order-3", 500),
	)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "Registered: two charges and two refunds. order-2 was rolled back, and its charge with it.")
	_, _ = fmt.Fprintf(out, "The provider has seen %d requests.\n\n", len(provider.Requests()))

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	worker := make(chan error, 1)
	go func() { worker <- s.engine.Run(ctx) }()
	for {
		open := 0
		for r, err := range s.engine.List(ctx, settle.Query{}) {
			if err != nil {
				return err
			}
			if !r.State.Settled() {
				open++
			}
		}
		if open == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for r, err := range s.engine.List(ctx, settle.Query{}) {
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "  %-7s %-12s %-11s %s\n", r.Kind, r.Purpose, r.State, r.Terms.Amount)
	}
	_, _ = fmt.Fprintln(out, "\nThe provider's ledger, after it lost every other reply:")
	for _, o := range provider.Ledger() {
		_, _ = fmt.Fprintf(out, "  %-5s %-7s %4d %s\n", o.ID, o.Kind, o.Amount, o.Currency)
	}
	stop()
	if err := <-worker; err != nil {
		return err
	}
	if n := len(provider.Ledger()); n != 4 {
		return fmt.Errorf("%d entries in the provider's ledger, want 4", n)
	}
	return nil
}
