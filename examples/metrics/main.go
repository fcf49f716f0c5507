// Command metrics is a worker that is watched: what settle does and what lies in its store is served to Prometheus at /metrics.
//
//	go run ./metrics                          # plays a bad day and prints what Prometheus sees of it
//	go run ./metrics -addr 127.0.0.1:9464     # goes on to serve it
//
// The wiring is in watched.go; alert rules and a dashboard for it are in otelsettle/monitoring.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/providertest"
)

func main() {
	addr := flag.String("addr", "", "where to serve /metrics for a minute; empty: print it")
	flag.Parse()
	stage.Main("metrics", func(ctx context.Context, out io.Writer, dir string) error { return run(ctx, out, dir, *addr) })
}

// offer is what the provider of this program promises.
var offer = providertest.Options{KeyWindow: 24 * time.Hour}

func run(ctx context.Context, out io.Writer, dir, addr string) (err error) {
	db, store, err := stage.Open(ctx, filepath.Join(dir, "shop.db"), "")
	if err != nil {
		return err
	}
	defer db.Close()
	provider := providertest.New(&offer)
	w, err := newWatched(store, provider, onSuccess)
	if err != nil {
		return err
	}
	worker := make(chan error, 1)
	wctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { worker <- w.engine.Run(wctx) }()

	// A bad day: a lost reply, a decline, another amount than was asked for, a receipt printer that is out of paper.
	provider.Script(providertest.DropReply(), providertest.Decline("card_declined"), providertest.WrongAmount(19))
	for _, order := range []string{"order-1", "order-2", "order-3", unlucky} {
		got, err := w.charges.Execute(ctx, settle.Operation[providertest.Payment]{
			Subject: order, Purpose: "purchase", Request: providertest.Payment{Amount: 1999, Currency: "EUR"},
		})
		if got.ID == "" {
			return err
		}
		_, _ = fmt.Fprintf(out, "%s: %s\n", order, got.State)
	}
	if addr != "" {
		_, _ = fmt.Fprintf(out, "http://%s/metrics\n", addr)
		s := &http.Server{Addr: addr, Handler: w.metrics, ReadHeaderTimeout: 5 * time.Second}
		defer context.AfterFunc(ctx, func() { _ = s.Close() })()
		if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
	}
	text, err := scrape(ctx, w.metrics)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "settle_") && !strings.Contains(line, "_bucket") && !strings.HasSuffix(line, " 0\n") {
			_, _ = io.WriteString(out, "  "+line)
		}
	}
	stop()
	done, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return errors.Join(<-worker, w.engine.Drain(done), w.close(done))
}

// scrape reads a /metrics endpoint over HTTP, as Prometheus does.
func scrape(ctx context.Context, h http.Handler) (string, error) {
	url, closeServer, err := stage.Serve(ctx, h)
	if err != nil {
		return "", err
	}
	defer closeServer()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(text), err
}
