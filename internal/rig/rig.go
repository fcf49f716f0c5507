// Package rig puts a store, a provider simulator and any number of processes
// together for tests. A process is an engine with its executors; it can be killed,
// stalled, or cut off from the store, while the store and the provider go on as
// the world does. The provider's ledger is the oracle.
//
// A rig works in a testing/synctest bubble, where time is free, and outside of
// one against the provider's HTTP server on loopback.
package rig

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

type (
	// Payment is the request of a charge.
	Payment = providertest.Payment
	// Refund is the request of a refund.
	Refund = providertest.Refund
	// Receipt is the result of both.
	Receipt = providertest.Receipt
)

// The kinds that every process has.
const (
	KindCharge = "charge"
	KindRefund = "refund"
)

// Scope is the tenant of operations that name none.
const Scope = "shop"

// Rig is one world: a store, a provider, and how to reach it.
type Rig struct {
	T        testing.TB
	Store    settle.Store
	Provider *providertest.Provider
	API      providertest.API // the provider in process, or a client of its server
	Promise  settle.Contract  // of the processes started from now on
}

// New makes a rig around an empty store. Nil options are a provider that honors
// keys for a day and has an authoritative lookup.
func New(t testing.TB, store settle.Store, o *providertest.Options) *Rig {
	if o == nil {
		o = &providertest.Options{KeyWindow: 24 * time.Hour}
	}
	if o.Account == "" {
		c := *o
		c.Account = "acct-1"
		o = &c
	}
	p := providertest.New(o)
	return &Rig{T: t, Store: store, Provider: p, API: p, Promise: providertest.Promise(o)}
}

// Serve puts the provider behind a real HTTP server; processes started from now
// on reach it over loopback. Connections are not reused: Go's transport would
// resend a keyed request by itself on one that died.
func (r *Rig) Serve() *httptest.Server {
	s := httptest.NewServer(r.Provider.Handler())
	r.T.Cleanup(s.Close)
	r.Dial(s.URL, false)
	return s
}

// Dial makes processes started from now on reach the provider at url.
func (r *Rig) Dial(url string, keepAlives bool) {
	tr := &http.Transport{DisableKeepAlives: !keepAlives}
	r.T.Cleanup(tr.CloseIdleConnections)
	r.API = providertest.NewClient(url, &http.Client{Transport: tr})
}

// Process is an engine with the two usual executors.
type Process struct {
	*settle.Engine
	Charges *settle.Executor[Payment, Receipt]
	Refunds *settle.Executor[Refund, Receipt]
	Store   *Gate            // between the engine and the rig's store
	API     providertest.API // the line to the provider; goes dead with the process

	rig     *Rig
	line    *line
	stop    context.CancelFunc
	ctx     context.Context
	workers sync.WaitGroup
}

// Start starts a process. Nil options are fine; the scope defaults to Scope.
func (r *Rig) Start(o *settle.Options) *Process { return r.StartWith(o, nil) }

// StartWith is Start with options for the executor of charges.
func (r *Rig) StartWith(o *settle.Options, x *settle.ExecutorOptions[Payment, Receipt]) *Process {
	r.T.Helper()
	p := r.Bare(o)
	var err error
	if p.Charges, err = settle.New(p.Engine, KindCharge, providertest.ChargeAdapter(p.API, r.Promise), x); err != nil {
		r.T.Fatalf("make the executor of charges: %v", err)
	}
	ro := &settle.ExecutorOptions[Refund, Receipt]{Undoes: KindCharge}
	if p.Refunds, err = settle.New(p.Engine, KindRefund, providertest.RefundAdapter(p.API, r.Promise), ro); err != nil {
		r.T.Fatalf("make the executor of refunds: %v", err)
	}
	return p
}

// Bare starts a process without executors.
func (r *Rig) Bare(o *settle.Options) *Process {
	r.T.Helper()
	var opts settle.Options
	if o != nil {
		opts = *o
	}
	if opts.Scope == "" {
		opts.Scope = Scope
	}
	p := &Process{rig: r, Store: &Gate{store: r.Store}, line: &line{api: r.API, dead: make(chan struct{})}}
	p.API = p.line
	var err error
	if p.Engine, err = settle.Open(p.Store, &opts); err != nil {
		r.T.Fatalf("open: %v", err)
	}
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(r.T.Context()))
	r.T.Cleanup(func() { // in a bubble time goes on only as long as the test does
		p.stop()
		p.workers.Wait()
		if err := p.Drain(context.WithoutCancel(r.T.Context())); err != nil {
			r.T.Errorf("drain: %v", err)
		}
	})
	return p
}

// Work runs the worker of p until the test ends or the process is killed.
func (p *Process) Work() {
	p.workers.Go(func() {
		if err := p.Run(p.ctx); err != nil {
			p.rig.T.Errorf("run: %v", err)
		}
	})
}

// Kill ends the process between two of its steps: from now on nothing that it does
// reaches the store or the provider, and nothing that is on its way comes back.
func (p *Process) Kill() {
	p.Store.kill()
	p.line.kill()
	p.stop()
}

// Op is a charge of an order.
func Op(order string, amount int64, currency string) settle.Operation[Payment] {
	return settle.Operation[Payment]{Subject: order, Purpose: "purchase", Request: Payment{Amount: amount, Currency: currency}}
}

// Intent is the intent of Op(order, …).
func Intent(order string) settle.Intent {
	return settle.Intent{Scope: Scope, Subject: order, Purpose: "purchase"}
}

// Get reads a record from the store itself, with the state as it is now.
func (r *Rig) Get(id string) settle.Record {
	r.T.Helper()
	e, err := settle.Open(r.Store, nil)
	if err != nil {
		r.T.Fatalf("open: %v", err)
	}
	rec, err := e.Get(context.WithoutCancel(r.T.Context()), id)
	if err != nil {
		r.T.Fatalf("read operation %q: %v", id, err)
	}
	return rec
}

// All lists every record.
func (r *Rig) All() []settle.Record {
	r.T.Helper()
	e, err := settle.Open(r.Store, nil)
	if err != nil {
		r.T.Fatalf("open: %v", err)
	}
	var out []settle.Record
	for rec, err := range e.List(context.WithoutCancel(r.T.Context()), settle.Query{}) {
		if err != nil {
			r.T.Fatalf("list: %v", err)
		}
		out = append(out, rec)
	}
	return out
}

// History reads the history of an operation.
func (r *Rig) History(id string) []settle.Entry {
	r.T.Helper()
	e, err := settle.Open(r.Store, nil)
	if err != nil {
		r.T.Fatalf("open: %v", err)
	}
	var out []settle.Entry
	for x, err := range e.History(context.WithoutCancel(r.T.Context()), id) {
		if err != nil {
			r.T.Fatalf("history: %v", err)
		}
		out = append(out, x)
	}
	return out
}

// Sends counts the create requests that the provider got.
func (r *Rig) Sends() int { return r.Provider.Calls(providertest.OpCreate) }

// Lookups counts the questions that the provider got.
func (r *Rig) Lookups() int {
	return r.Provider.Calls(providertest.OpLookup) + r.Provider.Calls(providertest.OpGet)
}

// Ledger checks what the provider did: sends requests, and effects per operation.
func (r *Rig) Ledger(sends int, effects map[string]int) {
	r.T.Helper()
	if n := r.Sends(); n != sends {
		r.T.Errorf("the provider got %d create requests, want %d", n, sends)
	}
	for id, want := range effects {
		if n := r.Provider.Effects(id); n != want {
			r.T.Errorf("operation %s has %d effects at the provider, want %d", id, n, want)
		}
	}
	if d := r.Provider.Duplicates(); len(d) > 0 {
		r.T.Errorf("duplicate effects of %v", d)
	}
}

// State checks the state of an operation.
func (r *Rig) State(id string, want settle.State) settle.Record {
	r.T.Helper()
	rec := r.Get(id)
	if rec.State != want {
		r.T.Errorf("operation %s is %s (%s), want %s", id, rec.State, Reason(rec), want)
	}
	return rec
}

// Reason is why an operation is in review, "" if it is not.
func Reason(rec settle.Record) string {
	if rec.Review == nil {
		return ""
	}
	return rec.Review.Reason
}

// Is checks an error against sentinels, all of which it must match.
func Is(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want %v", err, w)
		}
	}
}

// Not checks that an error matches none of the sentinels.
func Not(t testing.TB, err error, never ...error) {
	t.Helper()
	for _, n := range never {
		if errors.Is(err, n) {
			t.Errorf("got error %v, which must not match %v", err, n)
		}
	}
}

// OK ends the test on an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// Refused checks that a call was refused with a sentinel, that its *settle.Error names
// exactly these fields, and that the outcome shows no record.
func Refused[Res any](t testing.TB, out settle.Outcome[Res], err error, want error, fields ...string) settle.Error {
	t.Helper()
	own := Typed(t, err, want, fields...)
	if out.ID != "" || out.State != "" {
		t.Errorf("a refused call came with the record %v", out.Record)
	}
	if _, ok := out.Result(); ok {
		t.Error("a refused call came with a result")
	}
	return own
}

// Typed checks that err is a *settle.Error of the sentinel that names exactly these fields.
func Typed(t testing.TB, err error, want error, fields ...string) settle.Error {
	t.Helper()
	var own *settle.Error
	if !errors.As(err, &own) {
		t.Fatalf("got %v, want a *settle.Error that is %v", err, want)
	}
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
	if len(fields) > 0 && !slices.Equal(own.Fields, fields) {
		t.Errorf("the error names %q, want %q: %v", own.Fields, fields, err)
	}
	return *own // a value: it is looked at, not handled
}

// After lets time go by in a bubble, and everything that happens meanwhile.
func After(d time.Duration) {
	time.Sleep(d) // free: the bubble's clock jumps when everybody waits
	synctest.Wait()
}

// Background runs f in a goroutine and returns a function that waits for its value.
func Background[T any](f func() T) func() T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return func() T { return <-c }
}

// Answer is what Execute returned.
type Answer[Res any] struct {
	Out settle.Outcome[Res]
	Err error
}

// Execute is Execute in the background.
func Execute[Req, Res any](ctx context.Context, x *settle.Executor[Req, Res], op settle.Operation[Req]) func() Answer[Res] {
	return Background(func() Answer[Res] {
		out, err := x.Execute(ctx, op)
		return Answer[Res]{out, err}
	})
}
