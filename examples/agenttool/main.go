// Command agenttool lets a language model pay orders, although it forgets what it
// did, says the same thing in other words, and tries again when in doubt.
//
//	go run ./agenttool
//	go run ./agenttool -stdio -db orders.db -provider http://127.0.0.1:8080
//
// The tools are in tools.go, as plain functions from JSON to JSON; mcp.go serves them by the Model Context Protocol, on
// standard input and output with -stdio. Without flags this file plays a model that makes every mistake, against a provider
// whose first reply is lost and that cannot be asked at first.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	_ "modernc.org/sqlite" // the database driver; sqlstore works with any

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

func main() {
	stdio := flag.Bool("stdio", false, "serve the tools by MCP on standard input and output")
	file := flag.String("db", "orders.db", "the database, with -stdio")
	provider := flag.String("provider", "", "the URL of a providertest provider, with -stdio")
	lease := flag.Duration("lease", settle.DefaultLease, "how soon another process takes over from one that died, with -stdio")
	flag.Parse()
	if *stdio {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := serve(ctx, *file, *provider, *lease); err != nil {
			fmt.Fprintln(os.Stderr, "agenttool:", err)
			os.Exit(1)
		}
		return
	}
	stage.Main("agenttool", run)
}

// serve is the server's process: the tools, and a worker that finishes what no caller waits for.
func serve(ctx context.Context, file, provider string, lease time.Duration) error {
	db, err := sql.Open("sqlite", sqlstore.DSN(file))
	if err != nil {
		return err
	}
	defer db.Close()
	// Requests of one connection each: Go's transport would repeat one by itself when a kept-alive connection dies under it.
	api := providertest.NewClient(provider, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	t, err := newToolset(ctx, db, api, providertest.Promise(&offer),
		settle.Options{Scope: "shop", Lease: lease})
	if err != nil {
		return err
	}
	s, err := t.server()
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	worker := make(chan error, 1)
	go func() { worker <- t.engine.Run(working) }()
	err = s.Run(ctx, &mcp.StdioTransport{}) // until the client is gone
	stop()
	if ctx.Err() != nil {
		err = nil
	}
	done, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, <-worker, t.engine.Drain(done))
}

// offer is what the provider of this program promises.
var offer = providertest.Options{KeyWindow: 24 * time.Hour}

func run(ctx context.Context, out io.Writer, dir string) error {
	db, err := sql.Open("sqlite", sqlstore.DSN(filepath.Join(dir, "orders.db")))
	if err != nil {
		return err
	}
	defer db.Close()
	provider := providertest.New(&offer)
	provider.Script(providertest.DropReply())
	provider.ScriptLookup(providertest.Status(503, "maintenance"))
	t, err := newToolset(ctx, db, provider, providertest.Promise(&offer), settle.Options{Scope: "shop"})
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `INSERT INTO orders (id, amount, currency) VALUES ('order-8472', 1999, 'EUR')`); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	worker := make(chan error, 1)
	go func() { worker <- t.engine.Run(ctx) }()

	say := func(thought, tool, input string) {
		_, _ = fmt.Fprintf(out, "model: %s\n  %s(%s)\n  => %s\n\n", thought, tool, input, t.call(ctx, tool, []byte(input)))
	}
	say("I shall pay order 8472.", "pay_order", `{"order_id": "order-8472"}`)
	if err := t.approve(ctx, "order-8472", "ada@example.com", time.Now().Add(time.Hour)); err != nil {
		return err
	}
	_, _ = fmt.Fprint(out, "ada@example.com approves order-8472, 19.99 EUR, for an hour.\n\n")
	say("Once more, then.", "pay_order", `{"order_id": "order-8472"}`)
	say("Unknown? I'd better do it again.", "pay_order", `{"order_id": "#ORDER-8472"}`)
	say("Perhaps with a key of its own.", "pay_order", `{"order_id": "order-8472", "idempotency_key": "try-2"}`)
	for {
		rec, err := t.charges.Find(ctx, settle.Intent{Subject: "order-8472", Purpose: "purchase"})
		if err != nil {
			return err
		}
		if rec.State.Settled() {
			break
		}
		time.Sleep(100 * time.Millisecond) // the worker finds out meanwhile
	}
	say("What was I doing?", "operation_status", `{"order_id": "order-8472"}`)
	say("Ah, I should pay order 8472!", "pay_order", `{"order_id": "order-8472"}`)

	stop()
	charges := len(provider.Ledger())
	_, _ = fmt.Fprintf(out, "The provider's ledger has %d charge.\n", charges)
	if charges != 1 {
		return fmt.Errorf("%d charges, want 1", charges)
	}
	return <-worker
}
