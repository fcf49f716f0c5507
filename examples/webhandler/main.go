// Command webhandler is a shop's payment endpoint: a button that can be clicked
// twice, a client that can go away, a provider whose replies get lost, and one
// charge all the same.
//
//	go run ./webhandler
//	curl -i -X POST -H "Authorization: Bearer token-of-ada" http://127.0.0.1:8080/orders/order-1/payments
//
// The endpoint is in shop.go; what each of its answers means is in docs/web-handlers.md. This file starts it, with a provider
// simulated in the same process that loses every other reply.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the database driver; sqlstore works with any

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to serve on")
	file := flag.String("db", filepath.Join(os.TempDir(), "webhandler.db"), "database file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *file); err != nil {
		slog.Error("webhandler", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr, file string) error {
	db, err := sql.Open("sqlite", sqlstore.DSN(file))
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
	s, err := newShop(ctx, db, providertest.New(&offer), providertest.Promise(&offer),
		settle.Options{Logger: slog.Default()})
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `INSERT OR IGNORE INTO orders (id, customer, amount, currency)
		VALUES ('order-1', 'ada', 1999, 'EUR'), ('order-2', 'bob', 500, 'EUR')`); err != nil {
		return err
	}

	// The worker finishes what callers and crashed processes left behind.
	worker := make(chan error, 1)
	go func() { worker <- s.engine.Run(ctx) }()

	srv := &http.Server{Addr: addr, Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.ListenAndServe() }()
	slog.Info("serving", "try", `curl -i -X POST -H "Authorization: Bearer token-of-ada" http://`+addr+`/orders/order-1/payments`)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}

	// Shutdown: no new requests, then wait for what was sent already. What does not
	// answer in time is taken over by the next process.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return errors.Join(srv.Shutdown(ctx), s.engine.Drain(ctx), <-worker)
}
