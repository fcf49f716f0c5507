package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/async/bank"
	"github.com/settle-go/settle/examples/internal/stagetest"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

// The suite for adapters. This provider has never decided when it answers.
func TestPayoutAdapterTellsTheTruth(t *testing.T) {
	providertest.Run(t, providertest.Harness[Payout, Receipt]{
		Local: func(testing.TB) providertest.Local {
			b := bank.New(nil)
			return providertest.Local{Handler: b, Effects: b.Effects}
		},
		Adapter: func(t testing.TB, w providertest.Wire) settle.ProviderAdapter[Payout, Receipt] {
			a, err := newAdapter(w.URL, w.Transport, contract())
			if err != nil {
				t.Fatal(err)
			}
			return a
		},
		Request: func(n int) Payout {
			return Payout{Amount: 1000 + int64(n), Currency: []string{"EUR", "JPY", "KWD"}[n%3], IBAN: "NL91ABNA0417164300"}
		},
		Key: providertest.InHeader("Idempotency-Key"), Reference: providertest.InJSON("/reference"),
		Echo: providertest.Echo{Amount: []string{"amount"}, Currency: []string{"currency"}, Other: map[string][]string{"iban": {"iban"}}},
		Answers: []providertest.Answer{
			{Name: "no money", Status: 422, Body: `{"error":"insufficient_funds"}`, Want: settle.Declined},
			{Name: "no such account", Status: 422, Body: `{"error":"unknown_account"}`, Want: settle.Declined},
			{Name: "other parameters", Status: 409, Body: `{"error":"key_reused"}`},
			{Name: "running", Status: 409, Body: `{"error":"key_in_use"}`},
			{Name: "token", Status: 401, Body: `{"error":"unauthorized"}`, Want: settle.NotApplied},
			{Name: "too fast", Status: 429, Header: map[string]string{"Retry-After": "3"}, Body: `{"error":"slow_down"}`, Want: settle.NotApplied, RetryAfter: 3 * time.Second},
			{Name: "repeated when it is paid", Status: 200, Again: true, Want: settle.Applied, Body: `{"id":"{ref}","status":"paid","amount":1,"currency":"EUR"}`},
			{Name: "repeated when it has failed", Status: 200, Again: true, Want: settle.Declined, Body: `{"id":"{ref}","status":"failed","amount":1,"currency":"EUR"}`},
			{Name: "a status that is new", Status: 200, Body: `{"id":"po_9","status":"held","amount":1,"currency":"EUR"}`},
		},
	})
}

// world is an office with its bank, in a bubble: days pass in no time.
type world struct {
	*office
	t     *testing.T
	bank  *bank.Bank
	hooks atomic.Int64
	wire  *http.Client // from the bank to the endpoint
	onPay func(bank.Payout)
}

func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		w.bank = bank.New(&bank.Options{Secret: secret, OnTaken: func(p bank.Payout) {
			if w.onPay != nil {
				w.onPay(p)
			}
		}})
		transport := stagetest.Serve(t, w.bank).Transport()
		t.Cleanup(transport.CloseIdleConnections)
		transport.DisableKeepAlives = true
		var err error
		w.office, err = newOffice(memstore.New(nil), "http://bank.example", transport, func(context.Context, settle.Tx, settle.Outcome[Receipt]) error {
			w.hooks.Add(1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.wire = &http.Client{Transport: direct{w.webhooks}}
		stagetest.Work(t, w.engine)
		f(t, w)
	})
}

// direct is a network of no length.
type direct struct{ h http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	d.h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

func salary() settle.Operation[Payout] {
	return settle.Operation[Payout]{Subject: "employee-7", Purpose: "salary", Request: Payout{Amount: 312_050, Currency: "EUR", IBAN: "NL91"}}
}

// pay pays out; the bank takes it and has not decided.
func (w *world) pay() bank.Payout {
	w.t.Helper()
	if _, err := w.payouts.Execute(w.t.Context(), salary()); !errors.Is(err, settle.ErrPending) {
		w.t.Fatalf("the bank has not decided: %v", err)
	}
	return w.bank.Payouts()[0]
}

// ends checks the state, the ledger and how often the hook ran.
func (w *world) ends(want settle.State, effects, hooks int) settle.Record {
	w.t.Helper()
	rec, err := w.payouts.Find(w.t.Context(), settle.Intent{Subject: "employee-7", Purpose: "salary"})
	if err != nil {
		w.t.Fatal(err)
	}
	if rec.State != want || w.bank.Effects(rec.ID) != effects || int(w.hooks.Load()) != hooks || len(w.bank.Payouts()) != 1 {
		w.t.Errorf("%s with %d effects of %d payouts, the hook ran %d times; want %s, %d of 1, %d",
			rec.State, w.bank.Effects(rec.ID), len(w.bank.Payouts()), w.hooks.Load(), want, effects, hooks)
	}
	return rec
}

func (w *world) deliver(events ...*bank.Event) {
	w.t.Helper()
	for _, ev := range events {
		if err := w.bank.Deliver(w.t.Context(), w.wire, "http://office.example/", ev); err != nil {
			w.t.Error(err)
		}
	}
}

// wait lets time go by in the bubble.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestProcessingThenEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.pay()
		w.ends(settle.StateProcessing, 1, 0)
		wait(3 * 24 * time.Hour)
		w.ends(settle.StateProcessing, 1, 0)
		w.bank.Decide(p.ID, "paid", "")
		w.deliver(w.bank.Events()...)
		w.ends(settle.StateSucceeded, 1, 1) // at once, and not when somebody looks
		out, err := w.payouts.Execute(t.Context(), salary())
		if receipt, ok := out.Result(); err != nil || !ok || receipt.ID != p.ID || !out.Replayed {
			t.Errorf("%+v %v", receipt, err)
		}
	})
}

func TestFailedByEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.pay()
		w.bank.Decide(p.ID, "failed", "account_closed")
		w.deliver(w.bank.Events()...)
		w.ends(settle.StateFailed, 0, 0)
		if _, err := w.payouts.Execute(t.Context(), salary()); !errors.Is(err, settle.ErrFailed) {
			t.Error(err)
		}
	})
}

// The reply is lost, and the event comes before anybody has looked.
func TestLostReplyThenEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.bank.LoseReplies(1)
		p := w.pay()
		w.bank.Decide(p.ID, "paid", "")
		w.deliver(w.bank.Events()[1])
		w.ends(settle.StateSucceeded, 1, 1)
	})
}

// The bank is so fast that its event overtakes its reply.
func TestEventBeforeTheReply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.onPay = func(p bank.Payout) {
			w.bank.Decide(p.ID, "paid", "")
			w.deliver(w.bank.Events()...)
		}
		_, _ = w.payouts.Execute(t.Context(), salary())
		w.ends(settle.StateSucceeded, 1, 1)
	})
}

// Every order of the events, each of them twice, ends the same.
func TestEventsInAnyOrder(t *testing.T) {
	for name, order := range map[string][]int{"in order": {0, 1}, "reversed": {1, 0}, "reversed, twice": {1, 0, 1, 0}, "each twice": {0, 0, 1, 1}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				p := w.pay()
				w.bank.Decide(p.ID, "paid", "")
				for _, i := range order {
					w.deliver(w.bank.Events()[i])
				}
				w.ends(settle.StateSucceeded, 1, 1)
			})
		})
	}
}

// The endpoint refuses what it cannot keep, and the bank sends it again.
func TestEndpointDown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.pay()
		w.bank.Decide(p.ID, "paid", "")
		up := w.wire
		w.wire = &http.Client{Transport: direct{http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) })}}
		if n := w.bank.DeliverAll(t.Context(), w.wire, "http://office.example/"); n != 2 {
			t.Errorf("%d were refused", n)
		}
		w.ends(settle.StateProcessing, 1, 0)
		wait(20 * time.Minute)
		if n := w.bank.DeliverAll(t.Context(), up, "http://office.example/"); n != 0 {
			t.Errorf("%d were refused", n)
		}
		w.ends(settle.StateSucceeded, 1, 1)
	})
}

// No event ever comes: looking finds it, since the worker asks as long as the bank may take.
func TestNoEventAtAll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.pay()
		wait(2 * 24 * time.Hour)
		w.bank.Decide(p.ID, "paid", "")
		wait(24 * time.Hour)
		w.ends(settle.StateSucceeded, 1, 1)
	})
}

// A payout that came back is no success any more: what was done about it is undone by people, and nothing is paid a
// second time by itself.
func TestReturned(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.pay()
		w.bank.Decide(p.ID, "paid", "")
		w.deliver(w.bank.Events()...)
		w.bank.Decide(p.ID, "returned", "account_closed")
		w.deliver(w.bank.Events()[2])
		rec := w.ends(settle.StateFailed, 0, 1)
		if len(rec.References) != 1 || rec.References[0].Rank != settle.RankReversed || rec.References[0].Ref != p.ID {
			t.Errorf("%+v", rec.References)
		}
		if _, err := w.payouts.Execute(t.Context(), salary()); !errors.Is(err, settle.ErrFailed) {
			t.Error(err)
		}
		w.ends(settle.StateFailed, 0, 1)
	})
}

// The program itself, as `go run ./async` runs it.
func TestProgram(t *testing.T) {
	stagetest.Says(t, run, "=> processing", "2 events were not delivered", "=> succeeded: receipt po_1")
}
