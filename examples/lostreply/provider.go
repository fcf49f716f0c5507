package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/settle-go/settle/providertest"
)

// offer is what the provider promises: it remembers an idempotency key for a day.
var offer = providertest.Options{KeyWindow: 24 * time.Hour}

// provider is the role of a payment provider with books of its own, which it
// writes to disk before it answers, as real ones do. The first reply never arrives:
// "drop" resets the connection, "stall" keeps the caller waiting.
func provider(fault, ledger string) error {
	o := offer
	o.Path = ledger
	o.OnApply = func(c providertest.Object) {
		tell("provider", "charges the card: %s, %s", c.ID, money(c.Amount, c.Currency))
		tell("provider", "!charged %s", c.ID)
	}
	o.OnLookup = func(q providertest.Query) { tell("provider", "is asked: do you have a charge for %s?", q.Reference) }
	p, err := providertest.Open(&o)
	if err != nil {
		return err
	}
	first := providertest.DropReply()
	if fault == "stall" {
		first = providertest.HangAfter(nil) // nil: until the caller gives up
	}
	p.Script(first)

	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // the kernel chooses the port
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: p.Handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		// The stage manager holds the other end: when it goes, so does the provider.
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = srv.Close()
	}()
	tell("provider", "!url http://%s", l.Addr())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return p.Close()
}

// tell writes a line of the play. All processes share one pipe, so the lines stand
// in the order in which things happened. A line that begins with "!" is a signal to
// the stage manager and is not shown.
func tell(who, format string, args ...any) {
	fmt.Printf("%s\t%s\n", who, fmt.Sprintf(format, args...))
}
