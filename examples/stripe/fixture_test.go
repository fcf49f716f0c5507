package main

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/pipenet"
	"github.com/settle-go/settle/examples/internal/stagetest"
	"github.com/settle-go/settle/examples/stripe/stripefake"
	"github.com/settle-go/settle/memstore"
)

const secret = "sk_test_fake"

// world is Stripe, a network and a database, in a bubble with a clock of its own: hours pass in no time.
type world struct {
	t      *testing.T
	stripe *stripefake.Server
	store  *memstore.Store
	net    *pipenet.Net
	server *http.Server
	mode   string
	opts   settle.Options // of each engine that is started from now on
	// onEffect, if set, runs once money has moved, before any reply.
	onEffect func()
}

func inBubble(t *testing.T, o stripefake.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: memstore.New(nil), net: pipenet.Listen(), mode: "test", opts: settle.Options{Scope: "shop"}}
		o.Secret = secret
		o.OnEffect = func(stripefake.Movement) {
			if w.onEffect != nil {
				w.onEffect()
			}
		}
		w.stripe = stripefake.New(&o)
		w.server = stagetest.ServeOn(t, w.net, w.stripe)
		f(t, w)
	})
}

func inBubbleNamed(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, stripefake.Options{}, f) })
}

// process is one process of the shop. Its connections are its own.
type process struct {
	t *testing.T
	*shop
	adapter   settle.Adapter[Charge, Receipt]
	transport *http.Transport
	stop      func()
}

// start starts a process, with a worker. keepAlive is for tests of what a kept-alive
// connection brings about; without it each request has a connection of its own.
func (w *world) start(keepAlive bool) *process {
	w.t.Helper()
	p := &process{t: w.t, transport: w.net.Transport()}
	p.transport.DisableKeepAlives = !keepAlive
	promise := contract("acct_1", w.mode)
	api := newClient(secret, "http://stripe.example", p.transport, promise)
	p.adapter = chargeAdapter(api, promise)
	s, err := newShop(w.store, api, "acct_1", w.mode, w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	p.shop = s
	w.t.Cleanup(p.transport.CloseIdleConnections)
	p.stop = stagetest.Work(w.t, s.engine)
	return p
}

// adapter returns the charge adapter alone, for what one call says.
func (w *world) adapter() settle.Adapter[Charge, Receipt] {
	w.t.Helper()
	transport := w.net.Transport()
	w.t.Cleanup(transport.CloseIdleConnections)
	transport.DisableKeepAlives = true
	promise := contract("acct_1", w.mode)
	return chargeAdapter(newClient(secret, "http://stripe.example", transport, promise), promise)
}

func pay(method string) settle.Operation[Charge] {
	return settle.Operation[Charge]{
		Subject: "order-8472", Purpose: "purchase", Request: Charge{Amount: 1999, Currency: "EUR", PaymentMethod: method},
	}
}

// finish repeats the same call, once in a virtual minute, until it is settled or a person is asked.
func (p *process) finish(op settle.Operation[Charge]) (settle.Outcome[Receipt], error) {
	p.t.Helper()
	return p.finishEvery(time.Minute, op)
}

func (p *process) finishEvery(pause time.Duration, op settle.Operation[Charge]) (settle.Outcome[Receipt], error) {
	p.t.Helper()
	for range 60 {
		out, err := p.charges.Execute(p.t.Context(), op)
		if !errors.Is(err, settle.ErrPending) {
			return out, err
		}
		time.Sleep(pause) // the bubble's
	}
	p.t.Fatal("not settled in sixty tries")
	return settle.Outcome[Receipt]{}, nil
}

// moved checks the ledger: the amounts that moved, in order.
func (w *world) moved(want ...int64) {
	w.t.Helper()
	got := w.stripe.Ledger()
	if len(got) != len(want) {
		w.t.Fatalf("the ledger has %d movements, want %d: %+v", len(got), len(want), got)
	}
	for i, m := range got {
		if m.Amount != want[i] {
			w.t.Errorf("movement %d is %d, want %d", i, m.Amount, want[i])
		}
	}
}

// oneKey checks that every request that could have an effect carried the key of the record.
func (w *world) oneKey(key string, posts int) {
	w.t.Helper()
	got := w.stripe.Posts()
	if len(got) != posts {
		w.t.Errorf("%d requests were made, want %d", len(got), posts)
	}
	for _, r := range got {
		if r.Key != key || key == "" {
			w.t.Errorf("a request carried the key %q, the record has %q", r.Key, key)
		}
	}
}

// wait lets a minute of the bubble go by.
func (*world) wait() { time.Sleep(time.Minute) }
