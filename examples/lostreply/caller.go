package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "modernc.org/sqlite" // the database driver; sqlstore works with any

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

const (
	order  = "order-8472"
	amount = 1999 // cents
)

// naive is the role of a shop that handles errors by trying again. It even sends an
// idempotency key, but makes a new one for every try.
func naive(url string) error {
	client := providertest.NewClient(url, nil)
	for try := 1; ; try++ {
		key := rand.Text()[:12]
		tell("shop", "POST /v1/charges  %s  %s  key %s", order, money(amount, "EUR"), key)
		charge, err := client.CreateCharge(context.Background(), providertest.Params{
			Key: key, Reference: order, Amount: amount, Currency: "EUR",
		})
		if err == nil {
			tell("shop", "reply: %s %s. Done, or so it seems.", charge.ID, charge.Status)
			return nil
		}
		tell("shop", "error: no reply. \"It has failed, try again.\"")
		if try == 3 {
			return err
		}
	}
}

// lease is how long a claim on an operation outlives its process. It is short here
// so that nobody has to wait; the default is 30 seconds.
const lease = time.Second

// purpose and subject say what the payment is for; from them settle makes the
// idempotency key. That is why it is the same in every process and in every try.
var purpose = "purchase"

// withSettle is the role of a shop that uses settle. Its error handling is the
// loop at the end: still pending, so call again with the same operation.
func withSettle(name, file, url string) error {
	ctx := context.Background()
	engine, db, err := openEngine(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	client := providertest.NewClient(url, nil)
	charges, err := settle.New(engine, "charge", providertest.ChargeAdapter(client, providertest.Promise(&offer)), nil)
	if err != nil {
		return err
	}
	pay := settle.Operation[providertest.Payment]{
		Subject: order, Purpose: purpose,
		Request: providertest.Payment{Amount: amount, Currency: "EUR"},
	}

	tell(name, "Execute: pay %s, %s", order, money(amount, "EUR"))
	waiting := false
	for {
		out, err := charges.Execute(ctx, pay)
		switch {
		case err == nil: // and only then is the payment confirmed
			receipt, _ := out.Result()
			tell(name, "succeeded: receipt %s, %d request sent in all", receipt.ID, len(out.Attempts))
			return nil
		case !errors.Is(err, settle.ErrPending):
			return err
		case !waiting:
			waiting = true
			tell(name, "not settled (%s): another process has claimed it for %v. Repeats the same call.", out.State, out.Due.Sub(out.AsOf).Round(100*time.Millisecond))
		}
		time.Sleep(lease / 10)
	}
}

// openEngine opens settle on the database file that all shops share.
func openEngine(ctx context.Context, file string) (*settle.Engine, *sql.DB, error) {
	db, err := sql.Open("sqlite", sqlstore.DSN(file))
	if err != nil {
		return nil, nil, err
	}
	if err := sqlstore.EnsureSchema(ctx, db, sqlstore.SQLite()); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	store, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	engine, err := settle.Open(store, &settle.Options{Scope: "my-shop", Lease: lease})
	return engine, db, err
}

// showDatabase prints what is stored about the order, and returns the states of
// its payments: of the one payment, if all is well.
func showDatabase(s *stage, file string) (states []settle.State, err error) {
	engine, db, err := openEngine(s.ctx, file)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for r, err := range engine.List(s.ctx, settle.Query{Subject: order}) {
		if err != nil {
			return nil, err
		}
		states = append(states, r.State)
		s.say("database", "%s is %s, %d request sent, key %s", r.Subject, r.State, len(r.Attempts), r.ProviderKey)
	}
	return states, nil
}

// showHistory prints everything that settle noted about the payment.
func showHistory(s *stage, file string) error {
	engine, db, err := openEngine(s.ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	s.print("", "  What settle wrote down:")
	for r, err := range engine.List(s.ctx, settle.Query{Subject: order}) {
		if err != nil {
			return err
		}
		for h, err := range engine.History(s.ctx, r.ID) {
			if err != nil {
				return err
			}
			s.print(fmt.Sprintf("    %d  %10s -> %-10s  %s", h.Seq, h.From, h.To, explain(h)))
		}
	}
	return nil
}

// explain puts an entry of the history into words.
func explain(h settle.Entry) string {
	switch {
	case h.Fact == settle.Applied:
		return "the provider confirms " + h.Ref + ", by " + string(h.Source)
	case h.Fact != "":
		return string(h.Source) + " says " + string(h.Fact)
	case h.Attempt > 0:
		return fmt.Sprintf("on disk before request %d leaves", h.Attempt)
	case h.Note == "claim":
		return "shop B takes over: a request is open, nobody knows how it ended"
	}
	return h.Note
}
