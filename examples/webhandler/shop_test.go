package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

const order = "order-1"

// fixture is the shop behind a real HTTP server, with a provider behind another.
type fixture struct {
	t         *testing.T
	shop      *shop
	url       string
	provider  *providertest.Provider
	succeeded chan string // the id of each operation that became succeeded
	arrived   chan string // the key of each request at the provider
	charged   chan string // the id of each charge
}

func (f *fixture) Notice(_ context.Context, n settle.Notice) {
	if n.Event == settle.EventTransition && n.To == settle.StateSucceeded {
		f.succeeded <- n.Operation
	}
}

func start(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		t: t, succeeded: make(chan string, 16), arrived: make(chan string, 16), charged: make(chan string, 16),
	}
	offer := providertest.Options{
		KeyWindow: 24 * time.Hour,
		OnCreate:  func(r providertest.Request) { f.arrived <- r.Key },
		OnApply:   func(o providertest.Object) { f.charged <- o.ID },
	}
	f.provider = providertest.New(&offer)
	bank := httptest.NewServer(f.provider.Handler())
	t.Cleanup(bank.Close)

	db, err := sql.Open("sqlite", sqlstore.DSN(filepath.Join(t.TempDir(), "shop.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	f.shop, err = newShop(t.Context(), db, providertest.NewClient(bank.URL, bank.Client()), providertest.Promise(&offer),
		settle.Options{Observer: f, PollInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO orders (id, customer, amount, currency) VALUES (?, 'ada', 1999, 'EUR')`, order); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(f.shop.handler())
	f.url = srv.URL
	worker := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { worker <- f.shop.engine.Run(ctx) }()
	t.Cleanup(func() {
		srv.Close()
		cancel()
		if err := <-worker; err != nil {
			t.Error(err)
		}
		if err := f.shop.engine.Drain(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return f
}

// got is a response that arrived.
type got struct {
	httpsettle.Status                       // of an operation
	Problem           httpsettle.Problem    // why not
	Receipt           *providertest.Receipt // in Status.Result
	code              int
	header            http.Header
}

// call makes one request of a customer; a lost response is an error.
func (f *fixture) call(ctx context.Context, token, method, path string) (got, error) {
	req, err := http.NewRequestWithContext(ctx, method, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + token}, "Prefer": {"wait=20"}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return got{}, err
	}
	defer func() { _ = res.Body.Close() }()
	g := got{code: res.StatusCode, header: res.Header}
	if strings.HasSuffix(res.Header.Get("Content-Type"), "+json") {
		return g, json.NewDecoder(res.Body).Decode(&g.Problem)
	}
	g.Result = &g.Receipt
	err = json.NewDecoder(res.Body).Decode(&g.Status)
	return g, err
}

// want is a request of Ada's.
func (f *fixture) want(method, path string, code int) got {
	f.t.Helper()
	g, err := f.call(f.t.Context(), "token-of-ada", method, path)
	if err != nil {
		f.t.Fatal(err)
	}
	if g.code != code {
		f.t.Fatalf("%s %s: %+v, want %d", method, path, g, code)
	}
	return g
}

// look asks where an answer told to.
func (f *fixture) look(g got, code int) got {
	f.t.Helper()
	u, err := url.Parse(pay)
	if err != nil {
		f.t.Fatal(err)
	}
	if u, err = u.Parse(g.header.Get("Location")); err != nil {
		f.t.Fatal(err)
	}
	return f.want("GET", u.Path, code)
}

// books checks the two ledgers that matter: the provider's and the shop's.
func (f *fixture) books(charges int, paid int64) {
	f.t.Helper()
	if got := f.provider.Ledger(); len(got) != charges {
		f.t.Errorf("the provider's ledger has %d charges, want %d: %+v", len(got), charges, got)
	}
	var got int64
	if err := f.shop.db.QueryRowContext(f.t.Context(), `SELECT paid FROM orders WHERE id = ?`, order).Scan(&got); err != nil {
		f.t.Fatal(err)
	}
	if got != paid {
		f.t.Errorf("%d cents are booked for the order, want %d", got, paid)
	}
}

const pay = "/orders/" + order + "/payments"

func TestPayTwice(t *testing.T) {
	f := start(t)
	first := f.want("POST", pay, http.StatusOK)
	again := f.want("POST", pay, http.StatusOK)
	if again.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the replay is not marked")
	}
	status := f.look(first, http.StatusOK)
	for _, r := range []got{again, status} {
		if r.Receipt == nil || *r.Receipt != *first.Receipt || r.Operation != first.Operation {
			t.Errorf("another answer: %+v, first %+v", r, first)
		}
	}
	f.books(1, 1999)
}

// Another customer finds neither the order nor its payment, and nobody finds nothing.
func TestOthers(t *testing.T) {
	f := start(t)
	first := f.want("POST", pay, http.StatusOK)
	for token, code := range map[string]int{"token-of-bob": http.StatusNotFound, "": http.StatusUnauthorized} {
		for method, path := range map[string]string{"POST": pay, "GET": pay + "/" + first.Operation} {
			if g, err := f.call(t.Context(), token, method, path); err != nil || g.code != code || g.Problem.Operation != "" {
				t.Errorf("%q %s: %+v %v", token, method, g, err)
			}
		}
	}
	f.want("POST", "/orders/no-such/payments", http.StatusNotFound)
	f.books(1, 1999)
}

// Eight clicks while the provider is still thinking (I5).
func TestDoubleClick(t *testing.T) {
	f := start(t)
	release := make(chan struct{})
	f.provider.Script(providertest.HangBefore(release))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			g, err := f.call(t.Context(), "token-of-ada", "POST", pay)
			if err != nil || g.code != http.StatusOK || g.Receipt == nil || g.Receipt.ID != "ch_1" {
				t.Errorf("%+v %v", g, err)
			}
		})
	}
	<-f.arrived
	close(release)
	wg.Wait()
	f.books(1, 1999)
}

// The reply is lost: the provider is asked within the same call (I4).
func TestLostReply(t *testing.T) {
	f := start(t)
	f.provider.Script(providertest.DropReply())
	f.want("POST", pay, http.StatusOK)
	f.books(1, 1999)
}

// The reply is lost and the provider does not answer questions either: the customer is
// told to wait, never that it failed, and the worker finishes it (I10, I11).
func TestOutcomeUnknown(t *testing.T) {
	f := start(t)
	f.provider.Script(providertest.DropReply())
	f.provider.ScriptLookup(providertest.Status(503, "maintenance"))
	body := f.want("POST", pay, http.StatusAccepted)
	if body.State != settle.StateUnknown || body.Next != settle.NextWait || body.Receipt != nil {
		t.Errorf("%+v", body)
	}
	if !strings.Contains(body.Advice, "Do not repeat it under a new request") || body.header.Get("Retry-After") == "" {
		t.Errorf("the advice invites to pay twice: %q", body.Advice)
	}
	f.books(1, 0)
	if g := f.look(body, http.StatusOK); g.State != settle.StateSucceeded { // it waits for the worker
		t.Errorf("%+v", g)
	}
	f.books(1, 1999)
}

// The browser is closed while the provider works: the payment goes on and is recorded.
func TestClientGoesAway(t *testing.T) {
	f := start(t)
	release := make(chan struct{})
	f.provider.Script(providertest.HangAfter(release))
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := f.call(ctx, "token-of-ada", "POST", pay)
		gone <- err
	}()
	<-f.charged
	cancel()
	if err := <-gone; err == nil {
		t.Fatal("the client got an answer although it went away")
	}
	f.books(1, 0)
	close(release)
	<-f.succeeded
	f.look(f.want("POST", pay, http.StatusOK), http.StatusOK)
	f.books(1, 1999)
}

// A decline is final for its operation; the next try names it. Two clicks on "try
// another card" are one operation.
func TestDeclinedThenReplaced(t *testing.T) {
	f := start(t)
	f.provider.Script(providertest.Decline("card_declined"))
	no := f.want("POST", pay, http.StatusUnprocessableEntity).Problem
	if no.Code != "card_declined" || no.Next != settle.NextShowFailure {
		t.Errorf("%+v", no)
	}
	f.want("POST", pay, http.StatusUnprocessableEntity)
	f.books(0, 0)
	f.want("POST", pay+"?replaces="+no.Operation, http.StatusOK)
	f.want("POST", pay+"?replaces="+no.Operation, http.StatusOK)
	f.books(1, 1999)
}

// The price changes after the payment: it is not the same request any more (I3).
func TestAmountChanged(t *testing.T) {
	f := start(t)
	f.want("POST", pay, http.StatusOK)
	if _, err := f.shop.db.ExecContext(t.Context(), `UPDATE orders SET amount = 2999`); err != nil {
		t.Fatal(err)
	}
	body := f.want("POST", pay, http.StatusUnprocessableEntity).Problem
	if len(body.Fields) != 1 || body.Fields[0] != "/amount" || !strings.HasSuffix(body.Type, "#key-reused") {
		t.Errorf("%+v", body)
	}
	f.books(1, 1999)
}

// The provider charges another amount than it was asked for: a person must look, and
// nothing is booked.
func TestWrongAmount(t *testing.T) {
	f := start(t)
	f.provider.Script(providertest.WrongAmount(19))
	body := f.want("POST", pay, http.StatusAccepted)
	if body.State != settle.StateReview || body.Code != settle.ReasonDisputed {
		t.Errorf("%+v", body)
	}
	f.books(1, 0)
}
