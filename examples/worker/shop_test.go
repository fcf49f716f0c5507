package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/stagetest"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

var offer = providertest.Options{KeyWindow: 24 * time.Hour}

// host is one process of the application, as far as a test can have several: an
// engine and a pool of its own on the shared database file.
type host struct {
	*shop
	t         *testing.T
	dead      atomic.Bool
	succeeded chan string // kinds
}

func (h *host) Notice(_ context.Context, n settle.Notice) {
	if n.Event == settle.EventTransition && n.To == settle.StateSucceeded {
		h.succeeded <- n.Kind
	}
}

func newHost(t *testing.T, file string, provider providertest.API) *host {
	t.Helper()
	db, err := sql.Open("sqlite", sqlstore.DSN(file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	h := &host{t: t, succeeded: make(chan string, 16)}
	h.shop, err = newShop(t.Context(), db, provider, providertest.Promise(&offer),
		settle.Options{Scope: "shop", Lease: time.Second, PollInterval: 20 * time.Millisecond, Observer: h},
		func(s settle.Store) settle.Store { return mortal{s, &h.dead} })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// work runs the host's worker until the test ends.
func (h *host) work() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- h.engine.Run(ctx) }()
	h.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
	})
}

// mortal is a store that a host loses when it dies: nothing that the host still does
// reaches the database, as if it had been killed between two statements.
type mortal struct {
	settle.Store
	dead *atomic.Bool
}

var errDead = errors.New("this host is dead")

func (m mortal) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	if m.dead.Load() {
		return settle.Record{}, errDead
	}
	return m.Store.Get(ctx, by)
}

func (m mortal) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.Store.Commit(ctx, c)
}

func (m mortal) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.Store.Claim(ctx, c)
}

func (m mortal) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.Store.Renew(ctx, held, lease)
}

func (h *host) number(query string, args ...any) (n int64) {
	h.t.Helper()
	if err := h.db.QueryRowContext(h.t.Context(), query, args...).Scan(&n); err != nil {
		h.t.Fatal(err)
	}
	return n
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// A rollback takes the order and its charge with it: nothing is ever sent (I1).
func TestRollbackLeavesNothing(t *testing.T) {
	provider := providertest.New(&offer)
	h := newHost(t, filepath.Join(t.TempDir(), "shop.db"), provider)
	soldOut := errors.New("sold out")
	registered := false
	err := h.place(t.Context(), "order-1", 1999, func(tx *sql.Tx) error {
		_, err := h.store.In(tx).Get(t.Context(), settle.ByIntent("shop", "charge", "order-1", "purchase"))
		registered = err == nil
		return soldOut
	})
	if !errors.Is(err, soldOut) || !registered {
		t.Fatalf("error %v; the charge was registered inside the transaction: %v", err, registered)
	}
	if _, err := h.charges.Find(t.Context(), settle.Intent{Subject: "order-1", Purpose: "purchase"}); !errors.Is(err, settle.ErrNotFound) {
		t.Errorf("the charge outlived its transaction: %v", err)
	}
	if n := h.number(`SELECT count(*) FROM orders`); n != 0 {
		t.Errorf("%d orders", n)
	}
	// The worker has the next order, so it has looked, and only that is charged.
	h.must(h.place(t.Context(), "order-2", 500, nil))
	h.work()
	<-h.succeeded
	if got := provider.Requests(); len(got) != 1 || got[0].Amount != 500 {
		t.Errorf("requests %+v", got)
	}
}

// A host dies after its request had its effect and before the reply came. Another
// host takes over when the lease ends, asks, and books (I2, I5, I10, I11).
func TestAnotherHostFinishes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	o, charged := offer, make(chan string, 16)
	o.OnApply = func(c providertest.Object) { charged <- c.ID }
	provider := providertest.New(&o)
	provider.Script(providertest.HangAfter(nil))
	a, b := newHost(t, file, provider), newHost(t, file, provider)

	h := a
	h.must(a.place(t.Context(), "order-1", 1999, nil))
	a.work()
	<-charged
	a.dead.Store(true)
	if n := b.number(`SELECT paid FROM orders WHERE id = 'order-1'`); n != 0 {
		t.Fatalf("%d cents are booked, and nobody knows of the charge yet", n)
	}
	rec, err := b.charges.Find(t.Context(), settle.Intent{Subject: "order-1", Purpose: "purchase"})
	if err != nil || rec.State.Settled() || len(rec.Attempts) != 1 {
		t.Fatalf("%v, %d attempts, %v", rec, len(rec.Attempts), err)
	}

	b.work()
	<-b.succeeded
	if n := b.number(`SELECT paid FROM orders WHERE id = 'order-1'`); n != 1999 {
		t.Errorf("%d cents are booked, want 1999", n)
	}
	if n := provider.Effects(rec.ID); n != 1 {
		t.Errorf("%d effects", n)
	}
	if len(a.succeeded) != 0 {
		t.Error("the dead host recorded something")
	}
}

// Refunds are registered before the charge was even sent: they wait for it, each is
// made once although replies get lost, and what would be too much is refused (I8, I9).
func TestRefundsWaitForTheirCharge(t *testing.T) {
	o := offer
	o.Choose = func(r providertest.Request) providertest.Step { return providertest.DropReply() }
	provider := providertest.New(&o)
	h := newHost(t, filepath.Join(t.TempDir(), "shop.db"), provider)
	h.must(h.place(t.Context(), "order-1", 1999, nil))
	h.must(h.giveBack(t.Context(), "return-1", "order-1", 300))
	h.must(h.giveBack(t.Context(), "return-2", "order-1", 1000))
	if err := h.giveBack(t.Context(), "return-3", "order-1", 700); !errors.Is(err, settle.ErrExceeds) {
		t.Errorf("700 of the 699 that are left: %v", err)
	}
	if n := h.number(`SELECT count(*) FROM returns`); n != 2 {
		t.Errorf("%d returns: the refused one should have been rolled back", n)
	}

	h.work()
	for range 3 {
		<-h.succeeded
	}
	if n := h.number(`SELECT sum(refunded) FROM returns`); n != 1300 {
		t.Errorf("%d cents are booked as refunded, want 1300", n)
	}
	if n := provider.Remaining("ch_1"); n != 699 || len(provider.Ledger()) != 3 {
		t.Errorf("%d are left of the charge, want 699; ledger %+v", n, provider.Ledger())
	}
}

// The program itself, as `go run ./worker` runs it.
func TestProgram(t *testing.T) {
	stagetest.Says(t, run, "order-2 was rolled back", "re_2")
}
