// Command keyless books a hotel room at a provider that knows no idempotency keys: after a lost
// reply nothing can be sent again, so the booking is looked for by the own reference.
//
//	go run ./keyless
//
// The adapter is in booking.go. The hotel is package hotel, a local server. What happens when the lookup finds
// nothing (a person must decide, and is told so) takes minutes and is in the tests, on a clock of their own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/examples/keyless/hotel"
	"github.com/settle-go/settle/memstore"
)

func main() { stage.Main("keyless", run) }

func run(ctx context.Context, out io.Writer, _ string) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	books := hotel.New(&hotel.Options{Lag: 200 * time.Millisecond})
	url, closeServer, err := stage.Serve(ctx, books)
	if err != nil {
		return err
	}
	defer closeServer()

	// A memstore is enough for a demonstration; what must survive a crash belongs into a database.
	engine, err := settle.Open(memstore.New(nil), &settle.Options{Scope: "travel"})
	if err != nil {
		return err
	}
	rooms, err := settle.New(engine, "booking", newBookings(url, nil, contract()), nil)
	if err != nil {
		return err
	}
	stay := settle.Operation[Stay]{
		Subject: "trip-17", Purpose: "room",
		Request: Stay{Room: "sea view", Arrival: "2026-12-24", Nights: 2, Price: decimal.RequireFromString("340.50"), Currency: "EUR"},
	}
	books.Script(hotel.LoseReply)
	say("Trip 17 books a room. The hotel books it, and its reply is lost.")
	for told := false; ; {
		o, err := rooms.Execute(ctx, stay)
		if errors.Is(err, settle.ErrPending) {
			if !told {
				told = true
				say("  => %s: %s\nThe same call again, until it is known:", o.State, o.Next.Advice())
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		got, _ := o.Result()
		say("  => %s: booking %s, found by our own reference", o.State, got.ID)
		break
	}
	say("The hotel got %d request and has %d booking.", books.Posts(), len(books.Bookings()))
	if books.Posts() != 1 || len(books.Bookings()) != 1 {
		return errors.New("there should be one request and one booking")
	}
	return engine.Drain(ctx)
}
