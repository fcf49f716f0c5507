package httpsettle_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// IC-05: the provider takes 40 s, the client gives up after 10 and clicks again and again, in the end under the same key.
func TestIC05_ClicksDuringASlowCharge(t *testing.T) {
	t.Parallel()
	bubble(t, &options{Wait: 10 * time.Second}, func(t *testing.T, f *front) {
		f.Promise.Deadline = time.Minute
		f.p = f.Start(nil)
		f.serve(t, &options{Wait: 10 * time.Second})
		f.Provider.Script(pt.Slow(40 * time.Second))
		first := f.want(post("k1"), 202, "in-progress")
		for range 3 {
			g := f.want(post("k1"), 409, "in-progress")
			if g.Problem.Operation != first.Operation || g.Problem.Next != settle.NextWait {
				t.Errorf("%s", g.raw)
			}
		}
		f.Ledger(1, nil)
		after(30 * time.Second)
		f.want(post("k1"), 200, "")
		f.Ledger(1, map[string]int{first.Operation: 1})
	})
}

// IC-06: the charge lands at 31 s, the deadline of the request is 30 s: never a final 4xx. A dial that is refused is
// "not sent", and the next try runs.
func TestIC06_DeadlineIsNoFinalAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		f.Promise.Deadline = 30 * time.Second
		f.p = f.Start(nil)
		f.serve(t, nil)
		f.Provider.Script(pt.Slow(31 * time.Second))
		c := post("k1")
		c.prefer = "wait=30"
		f.Provider.ScriptLookup(pt.Status(500, ""))
		waiting := f.behind(c)
		after(29 * time.Second)
		again := f.want(post("k1"), 409, "in-progress")
		if g := waiting(); g.code != 202 {
			t.Errorf("%d %s", g.code, g.raw)
		}
		f.p.Work()
		after(5 * time.Minute)
		f.want(look("ann", again.Problem.Operation, ""), 200, "")
		if n := f.Provider.Effects(again.Problem.Operation); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// front2 has an adapter that may say something instead of asking the provider.
func front2(t *testing.T, body func(t *testing.T, f *front, say *settle.Observation[pt.Receipt])) {
	synctest.Test(t, func(t *testing.T) {
		var say settle.Observation[pt.Receipt]
		r := rig.New(t, memstore.New(nil), nil)
		f := &front{Rig: r, p: r.Bare(nil), op: order}
		a := pt.ChargeAdapter(f.p.API, r.Promise)
		submit := a.SubmitFunc
		a.SubmitFunc = func(ctx context.Context, c *settle.Call[pt.Payment]) (settle.Observation[pt.Receipt], error) {
			if say.Fact != settle.Unclear {
				return say, nil
			}
			return submit(ctx, c)
		}
		var err error
		f.p.Charges, err = settle.New(f.p.Engine, rig.KindCharge, a, nil)
		rig.OK(t, err)
		f.serve(t, nil)
		body(t, f, &say)
	})
}

// IC-55: what provably had no effect is not stored as the answer; a 429 is tried again after the stated time.
func TestIC55_NotSentIsNotReplayed(t *testing.T) {
	t.Parallel()
	front2(t, func(t *testing.T, f *front, say *settle.Observation[pt.Receipt]) {
		*say = settle.Observation[pt.Receipt]{Fact: settle.NotSent, Code: "circuit_open"}
		for range 2 {
			if g := f.want(post("k1"), 202, "waiting"); g.Next != settle.NextRetry || g.header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s %v", g.raw, g.header)
			}
		}
		*say = settle.Observation[pt.Receipt]{}
		after(time.Minute)
		if g := f.want(post("k1"), 200, ""); g.header.Get("Idempotent-Replayed") != "" {
			t.Error("an answer that nobody gave was replayed")
		}
	})
	bubble(t, nil, func(t *testing.T, f *front) {
		f.Provider.Script(pt.RateLimit(90 * time.Second))
		for range 2 {
			if g := f.want(post("k1"), 202, "waiting"); g.header.Get("Retry-After") != "90" {
				t.Errorf("%v", g.header)
			}
		}
		f.Ledger(1, nil)
		after(90 * time.Second)
		f.want(post("k1"), 200, "")
		f.Ledger(2, nil)
	})
}

// IC-56: the service panics while it mails the receipt, after the charge: the charge stands and is not repeated.
func TestIC56_PanicAfterTheCharge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := true
		f := front1(t, rig.New(t, memstore.New(nil), nil), nil, &settle.ExecutorOptions[pt.Payment, pt.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[pt.Receipt]) error {
				if broken {
					panic("no mail server")
				}
				return nil
			},
		})
		for range 2 {
			g := f.want(post("k1"), 202, "confirmed-unfinished")
			if g.State != settle.StateSucceeded || g.Next != settle.NextWait {
				t.Errorf("%s", g.raw)
			}
		}
		broken = false
		f.p.Work()
		after(time.Hour)
		f.want(post("k1"), 200, "")
		f.Ledger(1, nil)
	})
}

// IC-57: a refusal before anything was stored leaves the key free, and is never replayed. Both places to refuse.
func TestIC57_RefusalLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	wrong := &httpsettle.Problem{Status: 400, Type: "https://shop.example/otp", Title: "wrong code"}
	bubble(t, nil, func(t *testing.T, f *front) {
		f.op = func(r *http.Request, body []byte) (settle.Operation[pt.Payment], error) {
			if r.URL.Query().Get("otp") != "123456" {
				return settle.Operation[pt.Payment]{}, wrong
			}
			return order(r, body)
		}
		c := post("k1")
		c.path += "?otp=000000"
		if g := f.do(c); g.code != 400 || g.Problem.Type != wrong.Type {
			t.Errorf("%d %s", g.code, g.raw)
		}
		c.path = "/operations?otp=123456"
		f.want(c, 200, "")
	})
	synctest.Test(t, func(t *testing.T) {
		ok := false
		f := front1(t, rig.New(t, memstore.New(nil), nil), nil, &settle.ExecutorOptions[pt.Payment, pt.Receipt]{
			Authorize: func(context.Context, settle.Operation[pt.Payment]) error {
				if !ok {
					return wrong
				}
				return nil
			},
		})
		if g := f.do(post("k1")); g.code != 400 || g.Problem.Type != wrong.Type {
			t.Errorf("%d %s", g.code, g.raw)
		}
		ok = true
		c := post("k1") // the corrected request is another one, under the same key
		c.body = `{"amount":200,"currency":"EUR"}`
		f.want(c, 200, "")
		ok = false // its success may falsify the precondition: a replay asks no more
		if g := f.want(c, 200, ""); g.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%v", g.header)
		}
		f.Ledger(1, nil)
	})
}

// IC-58: a business refusal is final, replayed unchanged, and cannot be taken for "in progress".
func TestIC58_BusinessRefusalIsFinal(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		f.Provider.Script(pt.Decline("insufficient_stock"))
		f.p.Work()
		first := f.want(post("k1"), 422, "failed")
		if first.Problem.Code != "insufficient_stock" || first.Problem.Next != settle.NextShowFailure || first.header.Get("Retry-After") != "" {
			t.Errorf("%s %v", first.raw, first.header)
		}
		for range 2 {
			g := f.want(post("k1"), 422, "failed")
			if g.raw != first.raw || g.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s %v", g.raw, g.header)
			}
			after(time.Hour)
		}
		if s := f.want(look("ann", first.Problem.Operation, "wait=9"), 200, "failed"); s.Code != "insufficient_stock" {
			t.Errorf("%s", s.raw)
		}
		f.Ledger(1, map[string]int{first.Problem.Operation: 0})
	})
}

// IC-62: the same request at another process while the first one is at it.
func TestIC62_AnotherProcessIsToldInProgress(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		f.Promise.Deadline = 5 * time.Minute
		f.p = f.Start(&settle.Options{Lease: time.Minute})
		f.serve(t, &options{Wait: 5 * time.Minute})
		other := front1(t, f.Rig, nil, nil)
		f.Provider.Script(pt.Slow(200 * time.Second))
		first := f.behind(post("k1"))
		after(180 * time.Second)
		other.want(post("k1"), 409, "in-progress")
		if g := first(); g.code != 200 {
			t.Errorf("%d %s", g.code, g.raw)
		}
		if g := other.want(post("k1"), 200, ""); g.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%v", g.header)
		}
		f.Ledger(1, nil)
	})
}

// IC-63: a model that makes a new key for each try meets the operation of its intent.
func TestIC63_FreshKeys(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		f.Provider.Script(pt.DropReply())
		f.Provider.ScriptLookup(pt.Status(500, ""))
		first := f.want(post("k1"), 202, "unknown")
		for _, key := range []string{"k2", "k3"} {
			g := f.want(post(key), 409, "operation-exists")
			if g.Problem.Operation != first.Operation || g.Problem.State != settle.StateUnknown || g.Problem.Next != settle.NextWait ||
				g.header.Get("Location") != first.header.Get("Location") || !strings.Contains(g.Problem.Detail, "new key") {
				t.Errorf("%s %v", g.raw, g.header)
			}
		}
		f.Ledger(1, map[string]int{first.Operation: 1})
	})
}

// IC-64: other arguments on resume are a mismatch that leads to the recorded result.
func TestIC64_MismatchLeadsToTheResult(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		first := f.want(post("run-7/step-2"), 200, "")
		for _, b := range []string{`{"amount":100,"currency":"EUR","invoice":"B"}`, `{"amount":120,"currency":"EUR"}`} {
			c := post("run-7/step-2")
			c.body = b
			g := f.want(c, 422, "key-reused")
			if g.Problem.State != settle.StateSucceeded {
				t.Errorf("%s", g.raw)
			}
			id := g.header.Get("Location")[len("./operations/"):]
			if s := f.want(look("ann", id, ""), 200, ""); s.raw != first.raw {
				t.Errorf("%s, want %s", s.raw, first.raw)
			}
		}
		f.Ledger(1, nil)
	})
}

// IC-66: what is declared volatile may be reworded.
func TestIC66_VolatileMembers(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		for i, token := range []string{"a", "b", ""} {
			c := post("task-4")
			c.body = `{"currency":"EUR", "amount":100, "token":"` + token + `"}`
			if g := f.want(c, 200, ""); (g.header.Get("Idempotent-Replayed") == "true") != (i > 0) {
				t.Errorf("%d: %v", i, g.header)
			}
		}
		f.Ledger(1, nil)
	})
}

// IC-43: an OperationFunc gets the bytes that were sent, so that a signature over them can be checked.
func TestIC43_RawBytes(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		c := post("k1")
		c.body = "{ \"amount\" : 100 ,\t\"currency\":\"\\u0045UR\", \"invoice\":\"\\u001B \u2615\"}\n"
		f.op = func(r *http.Request, body []byte) (settle.Operation[pt.Payment], error) {
			if string(body) != c.body {
				return settle.Operation[pt.Payment]{}, errors.New("the body was changed")
			}
			return order(r, body)
		}
		f.want(c, 200, "")
	})
}

// The endpoint below routers: a prefix that is stripped, patterns with values, a path that ends in a slash. Location
// leads to the status each time.
func TestMounts(t *testing.T) {
	t.Parallel()
	r := rig.New(t, memstore.New(nil), nil)
	f := front1(t, r, nil, nil)
	f.op = func(r *http.Request, body []byte) (settle.Operation[pt.Payment], error) {
		op, err := order(r, body)
		op.Subject = strings.ReplaceAll(r.URL.EscapedPath()+"-"+r.PathValue("order"), "/", "-")
		return op, err
	}
	inner := http.NewServeMux()
	inner.Handle("POST /payments", f.h)
	inner.Handle("GET /payments/{id}", f.h)
	mux := http.NewServeMux()
	mux.Handle("/plain/", f.h)
	mux.Handle("/v1/shop/", http.StripPrefix("/v1/shop", inner))
	mux.Handle("/bare/payments", http.StripPrefix("/bare/payments", f.h))
	mux.Handle("/bare/payments/", http.StripPrefix("/bare/payments", f.h))
	mux.Handle("POST /orders/{order}/pay", f.h)
	mux.Handle("GET /orders/{order}/pay/{id}", f.h)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, path := range []string{
		"/plain/", "/plain/a", "/plain/a:b", "/plain/a%2Fb", "/v1/shop/payments", "/bare/payments", "/orders/o%3A17/pay", "/orders/x/pay?expand=a/b",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body100))
		rig.OK(t, err)
		req.Header = http.Header{"Authorization": {"ann"}, "Content-Type": {"application/json"}, "Idempotency-Key": {`"key of ` + path + `"`}}
		res, err := server.Client().Do(req)
		rig.OK(t, err)
		_ = res.Body.Close()
		at, err := res.Location() // resolved against what was requested, as any client does
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %d %v", path, res.StatusCode, err)
		}
		get, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.String(), nil)
		rig.OK(t, err)
		get.Header = http.Header{"Authorization": {"ann"}}
		res, err = server.Client().Do(get)
		rig.OK(t, err)
		_ = res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%s: the status at %s is %d", path, at, res.StatusCode)
		}
	}
}

// FuzzEndpoint: whatever comes, the answer is one that the document has, never a 5xx, and holds no secret of the request.
func FuzzEndpoint(f *testing.F) {
	f.Add("POST", "/operations", `"k"`, "wait=1", "application/json", body100)
	f.Add("POST", "//x/..", `"k";a=1`, "", "application/json; a=b", `{"amount":-1}`)
	f.Add("GET", "/operations/0192aaaa-0000-7000-8000-000000000000", "", `wait="`, "", "")
	f.Add("POST", "/operations?order=%00", `"k"`, "", "application/json", `{"amount":100,"currency":"EUR","invoice":"s3cret-s3cret"}`)
	r := rig.New(f, memstore.New(nil), nil)
	fr := front1(f, r, &options{MaxWait: time.Millisecond, Wait: time.Minute}, nil)
	f.Fuzz(func(t *testing.T, method, path, key, prefer, media, body string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://shop.example", strings.NewReader(body))
		if err != nil {
			return
		}
		req.RequestURI = path
		req.URL.Path, req.URL.RawQuery, _ = strings.Cut(path, "?")
		req.Header = http.Header{"Authorization": {"ann"}, "Idempotency-Key": {key}, "Prefer": {prefer}, "Content-Type": {media}}
		w := httptest.NewRecorder()
		fr.h.ServeHTTP(w, req)
		if w.Code >= 500 || w.Code < 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w.Code == http.StatusMethodNotAllowed {
			return
		}
		if strings.Contains(w.Body.String(), "s3cret") {
			t.Fatalf("the request is echoed: %s", w.Body)
		}
		doc := "/operations"
		if method != http.MethodPost {
			method, doc = http.MethodGet, "/operations/{id}"
		}
		if err := fr.spec.answer(method, doc, w.Code, w.Header(), w.Body.Bytes()); err != nil {
			t.Fatal(err)
		}
		if loc := w.Header().Get("Location"); loc != "" && (!strings.HasPrefix(loc, "./") || strings.ContainsAny(loc, "\r\n")) {
			t.Fatalf("Location %q", loc)
		}
	})
}
