package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/stagetest"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// fixture has one database and one provider, and makes a new toolset whenever the
// agent's process is started again.
type fixture struct {
	t         *testing.T
	file      string
	offer     providertest.Options
	provider  *providertest.Provider
	succeeded chan string
	onRequest func() // when a request arrives, before anything else
}

func (f *fixture) Notice(_ context.Context, n settle.Notice) {
	if n.Event == settle.EventTransition && n.To == settle.StateSucceeded {
		f.succeeded <- n.Operation
	}
}

func setUp(t *testing.T, choose func(providertest.Request) providertest.Step) (*fixture, *toolset) {
	t.Helper()
	f := &fixture{
		t: t, file: filepath.Join(t.TempDir(), "orders.db"), succeeded: make(chan string, 16),
		offer: offer,
	}
	f.offer.Choose = choose
	f.offer.OnCreate = func(providertest.Request) {
		if f.onRequest != nil {
			f.onRequest()
		}
	}
	f.provider = providertest.New(&f.offer)
	tools := f.restart()
	f.orders(tools)
	return f, tools
}

func (f *fixture) orders(tools *toolset) {
	f.t.Helper()
	if _, err := tools.db.ExecContext(f.t.Context(), `INSERT INTO orders (id, amount, currency) VALUES
		('order-8472', 1999, 'EUR'), ('order-9', 500, 'EUR')`); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) restart() *toolset {
	f.t.Helper()
	db, err := sql.Open("sqlite", sqlstore.DSN(f.file))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = db.Close() })
	tools, err := newToolset(f.t.Context(), db, f.provider, providertest.Promise(&f.offer),
		settle.Options{Scope: "shop", PollInterval: 20 * time.Millisecond, Observer: f})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := tools.engine.Drain(context.WithoutCancel(f.t.Context())); err != nil {
			f.t.Error(err)
		}
	})
	return tools
}

func (f *fixture) approve(tools *toolset, order string) {
	f.t.Helper()
	if err := tools.approve(f.t.Context(), order, "ada", time.Now().Add(time.Hour)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) call(tools *toolset, tool, input string) result {
	f.t.Helper()
	var res result
	if err := json.Unmarshal(tools.call(f.t.Context(), tool, []byte(input)), &res); err != nil {
		f.t.Errorf("%s(%s) is no JSON: %v", tool, input, err)
	}
	return res
}

func (f *fixture) charges(want int) {
	f.t.Helper()
	if got := f.provider.Ledger(); len(got) != want {
		f.t.Errorf("%d charges, want %d: %+v", len(got), want, got)
	}
}

// An agent without memory calls whatever comes to its mind, from several sessions at once
// and after restarts, while the provider loses replies: one charge (I2, I5).
func TestForgetfulAgent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	lossy := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	f, tools := setUp(t, func(providertest.Request) providertest.Step {
		mu.Lock()
		defer mu.Unlock()
		switch lossy.IntN(3) {
		case 0:
			return providertest.DropReply()
		case 1:
			return providertest.StatusAfter(502, "bad_gateway")
		}
		return providertest.OK()
	})
	f.approve(tools, "order-8472")
	inputs := []string{
		`{"order_id": "order-8472"}`, `{"order_id": " ORDER-8472 "}`, `{"order_id": "#order-8472"}`,
		`{"order_id": "order-8472", "amount": 1}`, `{"order_id": "order-8472", "idempotency_key": "again"}`,
		`{"order_id": "order-8472-retry"}`, `{"order_id": 8472}`, `pay it, please`,
	}
	for session := range 3 {
		tools := f.restart()
		var wg sync.WaitGroup
		for agent := range uint64(4) {
			wg.Go(func() {
				mind := rand.New(rand.NewPCG(seed, uint64(session)<<8|agent|1<<16))
				for range 6 {
					tool := []string{"pay_order", "pay_order", "operation_status", "pay_it_now"}[mind.IntN(4)]
					in := inputs[mind.IntN(len(inputs))]
					if res := f.call(tools, tool, in); res.Status == "" || res.Next == "" || res.Advice == "" {
						t.Errorf("%s(%s) says nothing useful: %+v", tool, in, res)
					}
				}
			})
		}
		wg.Wait()
	}
	// However it went, the same call ends in the receipt of the one charge.
	ctx, stop := context.WithCancel(t.Context())
	worker := make(chan error, 1)
	go func() { worker <- tools.engine.Run(ctx) }()
	res := f.call(tools, "pay_order", inputs[0])
	if res.Status != string(settle.StateSucceeded) {
		<-f.succeeded
		res = f.call(tools, "operation_status", inputs[0])
	}
	if res.Status != string(settle.StateSucceeded) || res.Receipt == nil || res.Receipt.ID != "ch_1" {
		t.Errorf("%+v", res)
	}
	stop()
	if err := <-worker; err != nil {
		t.Error(err)
	}
	f.charges(1)
}

// No answer is not a failure, and the words must not invite a second payment (I4).
func TestUnknownOutcome(t *testing.T) {
	f, tools := setUp(t, nil)
	f.approve(tools, "order-8472")
	f.provider.Script(providertest.DropReply())
	f.provider.ScriptLookup(providertest.Status(503, "maintenance"))
	const order = `{"order_id": "order-8472"}`
	for _, tool := range []string{"pay_order", "operation_status", "pay_order"} {
		res := f.call(tools, tool, order)
		if res.Status != string(settle.StateUnknown) || res.Next != settle.NextWait || res.Receipt != nil {
			t.Errorf("%s: %+v", tool, res)
		}
		if !strings.Contains(res.Advice, "may exist") || !strings.Contains(res.Advice, "Do not repeat it under a new request") {
			t.Errorf("%s: the advice invites to pay twice: %q", tool, res.Advice)
		}
	}
	f.charges(1)
}

// The provider takes longer than the model waits: the tool answers, the payment goes on.
func TestModelStopsWaiting(t *testing.T) {
	f, tools := setUp(t, nil)
	f.approve(tools, "order-8472")
	release := make(chan struct{})
	f.provider.Script(providertest.HangAfter(release))
	tools.patience = 50 * time.Millisecond
	const order = `{"order_id": "order-8472"}`
	if res := f.call(tools, "pay_order", order); res.Next != settle.NextWait || res.Receipt != nil {
		t.Errorf("%+v", res)
	}
	close(release)
	<-f.succeeded
	if res := f.call(tools, "operation_status", order); res.Receipt == nil {
		t.Errorf("%+v", res)
	}
	f.charges(1)
}

// Without a person's approval of this very order nothing is sent; with it the same call works.
func TestApproval(t *testing.T) {
	f, tools := setUp(t, nil)
	const order = `{"order_id": "order-9"}`
	refused := func(why string) {
		t.Helper()
		if res := f.call(tools, "pay_order", order); res.Status != "refused" || res.Next != settle.NextWaitPerson {
			t.Errorf("%s: %+v", why, res)
		}
		f.charges(0)
	}
	exec := func(query string) {
		t.Helper()
		if _, err := tools.db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	refused("not approved")
	f.approve(tools, "order-9")
	exec(`UPDATE orders SET until = 1 WHERE id = 'order-9'`)
	refused("approved until long ago")
	f.approve(tools, "order-9")
	exec(`UPDATE orders SET amount = 50000 WHERE id = 'order-9'`)
	refused("approved with another amount")
	if res := f.call(tools, "operation_status", order); res.Status != "none" {
		t.Errorf("%+v", res)
	}

	f.approve(tools, "order-9")
	if res := f.call(tools, "pay_order", order); res.Receipt == nil || res.Receipt.Amount != 50000 {
		t.Errorf("%+v", res)
	}
	// The approval ends after the payment: that is no reason to hide what was done.
	exec(`UPDATE orders SET until = 1 WHERE id = 'order-9'`)
	if res := f.call(tools, "pay_order", order); res.Receipt == nil {
		t.Errorf("after the approval's end: %+v", res)
	}
	f.charges(1)
}

// An amount or a key from the model is refused, not ignored: it would believe that it counted.
func TestModelHasNoSay(t *testing.T) {
	f, tools := setUp(t, nil)
	f.approve(tools, "order-8472")
	for _, in := range []string{
		`{"order_id": "order-8472", "amount": 1}`, `{"order_id": "order-8472", "idempotency_key": "again"}`, `{"order_id": 8472}`, `pay it`,
		`{"order_id": "order-8472-retry"}`, `{}`,
	} {
		if res := f.call(tools, "pay_order", in); res.Status != "refused" || res.Next != settle.NextFixRequest {
			t.Errorf("%s: %+v", in, res)
		}
	}
	f.charges(0)
}

// What the model is told about the tools has no place for a key or an amount, and never asks for one.
func TestDefinitions(t *testing.T) {
	f, tools := setUp(t, nil)
	for _, d := range definitions() {
		var schema struct {
			Properties map[string]any `json:"properties"`
			Additional *bool          `json:"additionalProperties"`
		}
		if err := json.Unmarshal(d.InputSchema, &schema); err != nil {
			t.Fatal(err)
		}
		delete(schema.Properties, "reason")
		if _, ok := schema.Properties["order_id"]; !ok || len(schema.Properties) != 1 || schema.Additional == nil || *schema.Additional {
			t.Errorf("%s: %+v", d.Name, schema)
		}
		if text := strings.ToLower(d.Description); strings.Contains(text, "unique") || strings.Contains(text, "retry") {
			t.Errorf("%s invites to pay again: %s", d.Name, d.Description)
		}
		if res := f.call(tools, d.Name, `{"order_id": "none"}`); res.Reason == "there is no such tool" {
			t.Errorf("%s is not there", d.Name)
		}
	}
}

// The program itself, as `go run ./agenttool` runs it.
func TestProgram(t *testing.T) {
	stagetest.Says(t, run, "The provider's ledger has 1 charge.")
}
