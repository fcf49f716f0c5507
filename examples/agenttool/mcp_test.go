package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// The test binary is the program too when the environment says so.
const asProgram = "AGENTTOOL_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	main()
	os.Exit(0)
}

// replyLoser is a network that loses replies of tool calls after they were made.
type replyLoser struct {
	lose func() bool
}

func (l replyLoser) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && bytes.Contains(body, []byte("tools/call")) && l.lose() {
		_, _ = io.Copy(io.Discard, res.Body) // the call was made
		_ = res.Body.Close()
		return nil, errors.New("connection reset by peer")
	}
	return res, err
}

// overHTTP serves tools by MCP on a port, and returns a function that connects the SDK's client.
func (f *fixture) overHTTP(tools *toolset, lose func() bool) (connect func() *mcp.ClientSession, stop func()) {
	f.t.Helper()
	s, err := tools.server()
	if err != nil {
		f.t.Fatal(err)
	}
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	stop = sync.OnceFunc(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	f.t.Cleanup(stop)
	return func() *mcp.ClientSession {
		return f.connect(&mcp.StreamableClientTransport{
			Endpoint: srv.URL, HTTPClient: &http.Client{Transport: replyLoser{lose}}, MaxRetries: -1, DisableStandaloneSSE: true,
		})
	}, stop
}

func (f *fixture) connect(tr mcp.Transport) *mcp.ClientSession {
	f.t.Helper()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "model", Version: "1"}, nil).Connect(f.t.Context(), tr, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() }) // it may be broken
	return c
}

// ask calls a tool through the SDK's client and checks that text and structure are for use.
func (f *fixture) ask(c *mcp.ClientSession, tool string, args any) (res result, text string, err error) {
	f.t.Helper()
	out, err := c.CallTool(f.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return res, "", err
	}
	structured, err := json.Marshal(out.StructuredContent)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := json.Unmarshal(structured, &res); err != nil {
		f.t.Fatal(err)
	}
	if len(out.Content) != 1 || res.Status == "" || res.Next == "" || res.Advice == "" {
		f.t.Fatalf("nothing useful: %s", structured)
	}
	text = out.Content[0].(*mcp.TextContent).Text
	if !strings.Contains(text, res.Status) || !strings.Contains(text, res.Advice) {
		f.t.Errorf("the text %q does not say what the structure says: %s", text, structured)
	}
	// Only what certainly had no effect is an error.
	certain := res.Status == "refused" || res.Status == "failed" || res.Status == "canceled"
	if out.IsError != certain {
		f.t.Errorf("%s: isError is %v", structured, out.IsError)
	}
	return res, text, nil
}

// mustAsk is ask over a network that loses nothing.
func (f *fixture) mustAsk(c *mcp.ClientSession, tool string, args any) (result, string) {
	f.t.Helper()
	res, text, err := f.ask(c, tool, args)
	if err != nil {
		f.t.Fatal(err)
	}
	return res, text
}

func never() bool { return false }

func order(id string) map[string]any { return map[string]any{"order_id": id} }

// What the protocol says of the tools: schemas without key and amount, and hints that are true.
func TestToolsOverMCP(t *testing.T) {
	f, tools := setUp(t, nil)
	connect, _ := f.overHTTP(tools, never)
	c := connect()
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	f.approve(tools, "order-8472")
	seen := map[string]*mcp.Tool{}
	for _, tool := range list.Tools {
		seen[tool.Name] = tool
		in, err := json.Marshal(tool.InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"amount\"", "key\"", "idempotency"} {
			if strings.Contains(string(in), word) {
				t.Errorf("%s takes %s: %s", tool.Name, word, in)
			}
		}
		var schema jsonschema.Schema
		out, err := json.Marshal(tool.OutputSchema)
		if err == nil {
			err = json.Unmarshal(out, &schema)
		}
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := schema.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range []any{order("order-8472"), order("none"), map[string]any{}} {
			got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool.Name, Arguments: args})
			if err != nil {
				t.Fatal(err)
			}
			if err := resolved.Validate(got.StructuredContent); err != nil {
				t.Errorf("%s(%v) is not as the schema says: %v", tool.Name, args, err)
			}
		}
	}
	pay, status := seen["pay_order"], seen["operation_status"]
	if len(seen) != 2 || pay == nil || status == nil {
		t.Fatalf("the tools are %v", seen)
	}
	if a := pay.Annotations; !a.IdempotentHint || a.ReadOnlyHint || a.DestructiveHint == nil || !*a.DestructiveHint || a.OpenWorldHint == nil || !*a.OpenWorldHint {
		t.Errorf("pay_order: %+v", a)
	}
	if a := status.Annotations; !a.ReadOnlyHint || !a.IdempotentHint || a.DestructiveHint == nil || *a.DestructiveHint {
		t.Errorf("operation_status: %+v", a)
	}
	f.charges(1)
}

// A model calls through the SDK's own client, over HTTP, with other words each time, while its network and the provider lose
// replies and the server is restarted: one charge, one key (I2, I5).
func TestOneChargeOverHTTP(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(n)
	}
	f, tools := setUp(t, func(providertest.Request) providertest.Step {
		return []providertest.Step{providertest.DropReply(), providertest.StatusAfter(502, "bad_gateway"), providertest.OK()}[roll(3)]
	})
	f.approve(tools, "order-8472")
	words := []any{
		order("order-8472"), order(" ORDER-8472"), order("#Order-8472"),
		map[string]any{"order_id": "order-8472", "reason": "I was asked to."},
		map[string]any{"order_id": "order-8472", "reason": "Trying once more, since the last call failed."},
		map[string]any{"order_id": "order-8472", "amount": 1999},
		map[string]any{"order_id": "order-8472", "idempotency_key": "k2"},
		order("order-8472-retry"),
		map[string]any{"order": "8472"},
		map[string]any{},
	}
	lost := 0
	for range 3 {
		tools = f.restart()
		connect, stop := f.overHTTP(tools, func() bool { return roll(3) == 0 })
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				c := connect()
				for range 6 {
					if _, _, err := f.ask(c, []string{"pay_order", "pay_order", "operation_status"}[roll(3)], words[roll(len(words))]); err != nil {
						mu.Lock()
						lost++
						mu.Unlock()
						c = connect() // a client that has forgotten what it did
					}
				}
			})
		}
		wg.Wait()
		stop()
	}
	if lost == 0 {
		t.Error("no reply was lost")
	}
	ctx, cancel := context.WithCancel(t.Context())
	worker := make(chan error, 1)
	go func() { worker <- tools.engine.Run(ctx) }()
	connect, _ := f.overHTTP(tools, never)
	c := connect()
	res, _ := f.mustAsk(c, "pay_order", order("order-8472"))
	if res.Status != "succeeded" {
		<-f.succeeded
		res, _ = f.mustAsk(c, "operation_status", order("order-8472"))
	}
	if res.Status != "succeeded" || res.Next != settle.NextDone || res.Receipt == nil || res.Receipt.Amount != 1999 {
		t.Errorf("%+v", res)
	}
	cancel()
	if err := <-worker; err != nil {
		t.Error(err)
	}
	f.charges(1)
	f.oneKey()
}

// oneKey checks that every request that could charge carried the same key.
func (f *fixture) oneKey() {
	f.t.Helper()
	keys := map[string]bool{}
	for _, r := range f.provider.Requests() {
		keys[r.Key] = true
	}
	if len(keys) != 1 || keys[""] {
		f.t.Errorf("the keys of the requests are %v, want one", keys)
	}
}

// The server's process, on standard input and output, is killed with kill -9 when the provider has charged and before it
// answers. A model that knows of nothing asks the next process.
func TestKilledServer(t *testing.T) {
	applied, release := make(chan struct{}), make(chan struct{})
	f := &fixture{t: t, file: filepath.Join(t.TempDir(), "orders.db"), succeeded: make(chan string, 16), offer: offer}
	f.offer.OnApply = func(providertest.Object) { close(applied) }
	f.provider = providertest.New(&f.offer)
	f.provider.Script(providertest.HangAfter(release))
	bank := httptest.NewServer(f.provider.Handler())
	t.Cleanup(bank.Close)
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	tools := f.restart()
	f.orders(tools)
	f.approve(tools, "order-8472")

	start := func() (*exec.Cmd, *mcp.ClientSession) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-stdio", "-db", f.file, "-provider", bank.URL, "-lease", "1s")
		cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
		cmd.Stderr = t.Output()
		return cmd, f.connect(&mcp.CommandTransport{Command: cmd})
	}
	cmd, c := start()
	called := make(chan error, 1)
	go func() {
		_, _, err := f.ask(c, "pay_order", order("order-8472"))
		called <- err
	}()
	<-applied
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-called; err == nil {
		t.Fatal("the killed process answered")
	}

	_, c = start()
	first, text := f.mustAsk(c, "pay_order", map[string]any{"order_id": "order-8472", "reason": "The tool crashed."})
	if first.Status != "succeeded" && !strings.Contains(text, "Do not repeat it under a new request") {
		t.Errorf("the words invite to pay twice: %q", text)
	}
	for res := first; res.Status != "succeeded"; {
		if res, _ = f.mustAsk(c, "operation_status", order("order-8472")); res.Next == settle.NextWaitPerson {
			t.Fatalf("%+v", res)
		}
	}
	again, _ := f.mustAsk(c, "pay_order", order("ORDER-8472"))
	if again.Receipt == nil || again.Receipt.ID != "ch_1" || again.Next != settle.NextDone {
		t.Errorf("%+v", again)
	}
	f.charges(1)
	f.oneKey()
}

// IC-62: the platform calls the tool again on another worker while the first call is still going.
func TestIC62_CalledAgainOnAnotherWorker(t *testing.T) {
	f, one := setUp(t, nil)
	two := f.restart()
	f.approve(one, "order-8472")
	arrived, release := make(chan struct{}), make(chan struct{})
	f.onRequest = sync.OnceFunc(func() { close(arrived) })
	f.provider.Script(providertest.HangBefore(release))
	connectOne, _ := f.overHTTP(one, never)
	connectTwo, _ := f.overHTTP(two, never)
	c1, c2 := connectOne(), connectTwo()
	first := make(chan result, 1)
	go func() {
		res, _, err := f.ask(c1, "pay_order", order("order-8472"))
		if err != nil {
			t.Error(err)
		}
		first <- res
	}()
	<-arrived
	for _, tool := range []string{"pay_order", "pay_order", "operation_status"} {
		if res, text := f.mustAsk(c2, tool, order("order-8472")); res.Next != settle.NextWait || !strings.Contains(text, "Do not repeat it under a new request") {
			t.Errorf("%s: %q", tool, text)
		}
	}
	if n := f.provider.Calls(providertest.OpCreate); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
	close(release)
	if res := <-first; res.Status != "succeeded" {
		t.Errorf("%+v", res)
	}
	if res, _ := f.mustAsk(c2, "pay_order", order("order-8472")); res.Receipt == nil {
		t.Errorf("%+v", res)
	}
	f.charges(1)
}

// IC-63: after a time-out the model comes with a key of its own, then without. It is told that the outcome is not known, and not to
// repeat it under a new key.
func TestIC63_FreshKeyFromAModel(t *testing.T) {
	f, tools := setUp(t, nil)
	f.approve(tools, "order-8472")
	f.provider.Script(providertest.DropReply())
	f.provider.ScriptLookup(providertest.Status(503, ""))
	connect, _ := f.overHTTP(tools, never)
	c := connect()
	first, text := f.mustAsk(c, "pay_order", order("order-8472"))
	if first.Status != "unknown" || !strings.Contains(text, "unknown") || !strings.Contains(text, "Do not repeat it under a new request, key or purpose") {
		t.Errorf("%q", text)
	}
	res, text := f.mustAsk(c, "pay_order", map[string]any{"order_id": "order-8472", "idempotency_key": "k2"})
	if res.Status != "refused" || !strings.Contains(text, "do not repeat it under a new request") || !strings.Contains(text, "operation_status") {
		t.Errorf("%q", text)
	}
	if res, _ = f.mustAsk(c, "pay_order", order("order-8472")); res.Operation != first.Operation {
		t.Errorf("another operation: %+v", res)
	}
	f.charges(1)
	f.oneKey()
}

// IC-64: a flow is resumed, and meanwhile the order costs something else: the payment that there is is told, nothing is
// sent, and its result is accepted by asking for it.
func TestIC64_OrderChangedMeanwhile(t *testing.T) {
	f, tools := setUp(t, nil)
	f.approve(tools, "order-8472")
	connect, _ := f.overHTTP(tools, never)
	c := connect()
	first, _ := f.mustAsk(c, "pay_order", order("order-8472"))
	for _, amount := range []int{1200, 2500} {
		if _, err := tools.db.ExecContext(t.Context(), `UPDATE orders SET amount = ? WHERE id = 'order-8472'`, amount); err != nil {
			t.Fatal(err)
		}
		f.approve(tools, "order-8472") // even so
		res, text := f.mustAsk(c, "pay_order", order("order-8472"))
		if res.Status != "succeeded" || res.Reason != "order changed" || res.Next != settle.NextWaitPerson || res.Operation != first.Operation || res.Receipt != nil {
			t.Errorf("%q %+v", text, res)
		}
		if res, _ = f.mustAsk(c, "operation_status", order("order-8472")); res.Receipt == nil || res.Receipt.Amount != 1999 {
			t.Errorf("%+v", res)
		}
	}
	f.charges(1)
}

// IC-65: no layer between model and provider can drop the key, since it is made behind all of them: a call that is repeated by
// the client, the transport or the model carries the same one.
func TestIC65_TheKeyIsMadeBehindTheTool(t *testing.T) {
	f, tools := setUp(t, nil)
	f.approve(tools, "order-8472")
	f.provider.Script(providertest.StatusAfter(502, ""), providertest.StatusAfter(502, ""))
	f.provider.ScriptLookup(providertest.Empty(), providertest.Empty(), providertest.Empty(), providertest.Empty())
	lost := 0
	connect, _ := f.overHTTP(tools, func() bool { lost++; return lost <= 2 })
	for range 2 {
		if _, _, err := f.ask(connect(), "pay_order", order("order-8472")); err == nil {
			t.Error("the reply was not lost")
		}
	}
	f.mustAsk(connect(), "pay_order", order("order-8472"))
	f.charges(1)
	f.oneKey()
}

// IC-66: the model's own words are no part of what is paid: reworded it is the same call.
func TestIC66_RewordedReason(t *testing.T) {
	f, tools := setUp(t, nil)
	f.approve(tools, "order-8472")
	connect, _ := f.overHTTP(tools, never)
	c := connect()
	first, _ := f.mustAsk(c, "pay_order", map[string]any{"order_id": "order-8472", "reason": "for task A"})
	for _, reason := range []string{"for task A, as agreed", "", "amount: 10.00", strings.Repeat("x", 500)} {
		res, _ := f.mustAsk(c, "pay_order", map[string]any{"order_id": "order-8472", "reason": reason})
		if res.Receipt == nil || *res.Receipt != *first.Receipt || res.Operation != first.Operation {
			t.Errorf("%q: %+v", reason, res)
		}
	}
	var n int
	if err := tools.db.QueryRowContext(t.Context(), `SELECT count(*) FROM said WHERE order_id = 'order-8472'`).Scan(&n); err != nil || n != 5 {
		t.Errorf("%d reasons are kept, %v", n, err)
	}
	f.charges(1)
}

// A client that stops waiting cancels its call, not the payment.
func TestClientGivesUp(t *testing.T) {
	f, tools := setUp(t, nil)
	f.approve(tools, "order-8472")
	arrived, release := make(chan struct{}), make(chan struct{})
	f.onRequest = sync.OnceFunc(func() { close(arrived) })
	f.provider.Script(providertest.HangAfter(release))
	connect, _ := f.overHTTP(tools, never)
	ctx, cancel := context.WithCancel(t.Context())
	c := connect()
	called := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "pay_order", Arguments: order("order-8472")})
		called <- err
	}()
	<-arrived
	cancel()
	if err := <-called; err == nil {
		t.Error("the call was answered")
	}
	close(release)
	<-f.succeeded
	if res, _ := f.mustAsk(connect(), "operation_status", order("order-8472")); res.Receipt == nil {
		t.Errorf("%+v", res)
	}
	f.charges(1)
}

// After a payment that certainly failed only a person can allow another one.
func TestAnotherTryNeedsAPerson(t *testing.T) {
	f, tools := setUp(t, nil)
	f.approve(tools, "order-8472")
	f.provider.Script(providertest.Decline("insufficient_funds"))
	connect, _ := f.overHTTP(tools, never)
	c := connect()
	first, _ := f.mustAsk(c, "pay_order", order("order-8472"))
	if first.Status != "failed" || first.Next != settle.NextShowFailure {
		t.Errorf("%+v", first)
	}
	for range 2 {
		if res, _ := f.mustAsk(c, "pay_order", order("order-8472")); res.Status != "failed" || res.Operation != first.Operation {
			t.Errorf("%+v", res)
		}
	}
	f.charges(0)
	f.approve(tools, "order-8472")
	for range 2 {
		if res, _ := f.mustAsk(c, "pay_order", order("order-8472")); res.Status != "succeeded" || res.Operation == first.Operation {
			t.Errorf("%+v", res)
		}
	}
	f.approve(tools, "order-8472") // nothing to replace any more
	if res, _ := f.mustAsk(c, "pay_order", order("order-8472")); res.Status != "succeeded" {
		t.Errorf("%+v", res)
	}
	f.charges(1)
}
