package httpsettle_test

import (
	"context"
	"encoding/json"
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

func TestReplayIsMarked(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		first := f.want(post("k1"), 200, "")
		if first.header.Get("Idempotent-Replayed") != "" || first.State != settle.StateSucceeded || first.Next != settle.NextDone {
			t.Errorf("%s %v", first.raw, first.header)
		}
		again := f.want(post("k1"), 200, "")
		if again.header.Get("Idempotent-Replayed") != "true" || again.raw != first.raw {
			t.Errorf("the replay is %s %v, the first was %s", again.raw, again.header, first.raw)
		}
		seen := f.want(look("ann", first.Operation, ""), 200, "")
		if seen.raw != first.raw {
			t.Errorf("the status is %s, the answer was %s", seen.raw, first.raw)
		}
		f.Ledger(1, map[string]int{first.Operation: 1})
	})
}

// The draft's own words: 400, 422 (sections 2.6 and 2.7 of the Idempotency-Key draft).
func TestKeyRules(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		f.want(post(""), 400, "key-missing")
		for _, key := range []string{`k1`, `"k1`, `"k1", "k2"`, `" k1"`, `"k1 "`, `"` + strings.Repeat("k", 256) + `"`, `1`, `"ü"`} {
			c := post("")
			c.key = key
			f.want(c, 400, "key-malformed")
		}
		two := post("k1").request(t)
		two.Header.Add("Idempotency-Key", `"k2"`)
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, two)
		if g := read(t, w); g.slug() != "key-malformed" {
			t.Errorf("two keys: %s", g.raw)
		}
		empty := post("")
		empty.key = `"";x`
		f.want(empty, 400, "key-malformed")
		if len(f.All()) != 0 {
			t.Error("something was stored")
		}
		first := f.want(post("k1"), 200, "")
		other := post("k1") // the key with another request
		other.body = `{"amount":2500,"currency":"EUR"}`
		g := f.want(other, 422, "key-reused")
		if len(g.Problem.Fields) != 1 || g.Problem.Fields[0] != "/amount" || strings.Contains(g.said(), "2500") || strings.Contains(g.said(), "100\"") {
			t.Errorf("names, never values: %s", g.raw)
		}
		other = post("k1") // the key with another subject
		other.path += "?order=order-2"
		if g := f.want(other, 422, "key-reused"); g.Problem.Operation != first.Operation || g.header.Get("Location") != "./operations/"+first.Operation {
			t.Errorf("%s %v", g.raw, g.header)
		}
		f.Ledger(1, nil)
	})
	bubble(t, &options{Keys: httpsettle.KeyOptional, BareKeys: true}, func(t *testing.T, f *front) {
		bare := post("")
		bare.key = "8e03978e-40d5"
		first := f.want(bare, 200, "")
		if again := f.want(post("8e03978e-40d5"), 200, ""); again.Operation != first.Operation {
			t.Error("with and without quotes it should be one key")
		}
		f.want(post(""), 200, "") // the intent says which it is
		bare.key = "a b"
		f.want(bare, 400, "key-malformed")
		f.Ledger(1, nil)
	})
	bubble(t, &options{Keys: httpsettle.KeyUnused}, func(t *testing.T, f *front) {
		f.want(post("k1"), 400, "key-malformed")
		f.want(post(""), 200, "")
	})
}

// 409 while the first request is in progress, also after its client has gone; the mismatch is told even then (I3).
func TestInProgressIs409(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		release := make(chan struct{})
		f.Provider.Script(pt.HangBefore(release))
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		c := post("k1")
		c.ctx = ctx
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			f.h.ServeHTTP(httptest.NewRecorder(), c.request(t))
		}()
		synctest.Wait()
		for range 2 {
			g := f.want(post("k1"), 409, "in-progress")
			if g.header.Get("Location") == "" || g.header.Get("Retry-After") != "1" || g.Problem.Next != settle.NextWait {
				t.Errorf("%s %v", g.raw, g.header)
			}
			other := post("k1")
			other.body = `{"amount":200,"currency":"EUR"}`
			f.want(other, 422, "key-reused")
			f.want(post("k2"), 409, "operation-exists")
			if s := f.want(look("ann", g.Problem.Operation, ""), 200, "in-progress"); s.header.Get("Retry-After") != "1" {
				t.Errorf("%v", s.header)
			}
			leave()
			<-gone
			synctest.Wait()
		}
		patient := post("k1")
		patient.prefer = "wait=20"
		waiting := f.behind(patient)
		after(3 * time.Second)
		close(release)
		if g := waiting(); g.code != 200 || g.header.Get("Idempotent-Replayed") != "true" || g.header.Get("Preference-Applied") != "wait=20" {
			t.Errorf("%d %s %v", g.code, g.raw, g.header)
		}
		f.Ledger(1, map[string]int{f.All()[0].ID: 1})
	})
}

// A client that goes away cancels nothing, and its outcome is there for whoever asks.
func TestDisconnectCancelsNothing(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before the effect", "after it"} {
		bubble(t, nil, func(t *testing.T, f *front) {
			release := make(chan struct{})
			step := pt.HangBefore(release)
			if when == "after it" {
				step = pt.HangAfter(release)
			}
			f.Provider.Script(step)
			c := post("k1")
			var leave context.CancelFunc
			c.ctx, leave = context.WithCancel(t.Context())
			gone := make(chan int, 1)
			go func() {
				w := httptest.NewRecorder()
				f.h.ServeHTTP(w, c.request(t))
				gone <- w.Code
			}()
			synctest.Wait()
			leave()
			if code := <-gone; code != 202 { // nobody reads it, or somebody whose patience was cut short
				t.Errorf("%s: %d", when, code)
			}
			close(release)
			synctest.Wait()
			id := f.All()[0].ID
			f.want(look("ann", id, ""), 200, "")
			f.want(post("k1"), 200, "")
			f.Ledger(1, map[string]int{id: 1})
		})
	}
}

// 202, Location and Retry-After for what is not settled, and a status to wait on.
func TestUnsettledIs202(t *testing.T) {
	t.Parallel()
	bubble(t, &options{Wait: 5 * time.Second}, func(t *testing.T, f *front) {
		f.Provider.Script(pt.DropReply())
		f.Provider.ScriptLookup(pt.Status(503, "maintenance"))
		g := f.want(post("k1"), 202, "unknown")
		if g.header.Get("Location") != "./operations/"+g.Operation || g.Next != settle.NextWait || g.Result != nil {
			t.Errorf("%s %v", g.raw, g.header)
		}
		if !strings.Contains(g.Advice, "Do not repeat it under a new request") {
			t.Errorf("the advice invites to pay twice: %q", g.Advice)
		}
		waiting := f.behind(look("ann", g.Operation, "respond-async, wait=25"))
		synctest.Wait()
		f.p.Work()
		if s := waiting(); s.slug() != "" || s.State != settle.StateSucceeded || s.header.Get("Preference-Applied") != "wait=25" {
			t.Errorf("%s %v", s.raw, s.header)
		}
		f.Ledger(1, map[string]int{g.Operation: 1})
	})
	bubble(t, &options{Wait: 5 * time.Second, MaxWait: 7 * time.Second}, func(t *testing.T, f *front) {
		f.Provider.Script(pt.Slow(9 * time.Second))
		start := time.Now()
		g := f.want(post("k1"), 202, "in-progress") // the first request itself, not a duplicate
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("it was answered after %v", d)
		}
		quick := post("k1")
		quick.prefer = "wait=0"
		if g := f.want(quick, 409, "in-progress"); g.header.Get("Preference-Applied") != "wait=0" {
			t.Errorf("%v", g.header)
		}
		s := f.want(look("ann", g.Operation, "wait=1"), 200, "in-progress")
		if s.header.Get("Preference-Applied") != "wait=1" || time.Since(start) != 6*time.Second {
			t.Errorf("%v after %v", s.header, time.Since(start))
		}
		s = f.want(look("ann", g.Operation, "wait=3600"), 200, "")
		if s.header.Get("Preference-Applied") != "wait=7" {
			t.Errorf("%v", s.header)
		}
	})
	bubble(t, nil, func(t *testing.T, f *front) {
		f.Provider.Script(pt.ActionRequired())
		g := f.want(post("k1"), 202, "action-required")
		if g.Action == "" || g.Next != settle.NextAskCustomer || g.header.Get("Retry-After") != "10" {
			t.Errorf("%s %v", g.raw, g.header)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		c := look("ann", g.Operation, "wait=30")
		c.ctx = gone
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, c.request(t)) // the waiting ends with its client
	})
}

// Another principal's operation is not found, by any way to name it; keys are each principal's own.
func TestScopes(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		f.Provider.Script(pt.Decline("card_declined"))
		ann := f.want(post("k1"), 422, "failed")
		id := ann.Problem.Operation
		nobody := f.want(look("bob", "0192aaaa-0000-7000-8000-000000000000", ""), 404, "not-found")
		if g := f.want(look("bob", id, "wait=5"), 404, "not-found"); g.raw != nobody.raw {
			t.Errorf("%s tells more than %s", g.raw, nobody.raw)
		}
		for _, other := range []string{"x", "", id + "0", strings.ToUpper(id), "%00", strings.Repeat("a", 36)} {
			f.want(look("ann", other, ""), 404, "not-found")
		}
		c := post("k2")
		c.user, c.path = "bob", c.path+"?replaces="+id
		if g := f.want(c, 404, "not-found"); g.raw != nobody.raw || g.header.Get("Location") != "" {
			t.Errorf("%s %v", g.raw, g.header)
		}
		c = post("k1")
		c.user = "bob"
		bob := f.want(c, 200, "") // the same key and the same order of another principal
		if bob.Operation == id {
			t.Error("two principals share an operation")
		}
		c = post("k2")
		c.path += "?replaces=" + id
		next := f.want(c, 200, "") // ann's own next try
		f.want(look("ann", id, ""), 200, "failed")
		f.Ledger(3, map[string]int{id: 0, bob.Operation: 1, next.Operation: 1})
		for _, c := range []call{{method: "POST", path: "/operations", body: body100}, {method: "GET", path: "/operations/" + id}} {
			if g := f.want(c, 401, "unauthenticated"); g.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%v", g.header)
			}
		}
	})
}

// The handler decides scope and key, whatever the application's function says; what another kind did is not shown.
func TestScopeAndKeyAreTheHandlers(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		f.op = func(r *http.Request, body []byte) (settle.Operation[pt.Payment], error) {
			op, err := order(r, body)
			op.Scope, op.Key = "bob", "his key"
			return op, err
		}
		g := f.want(post("k1"), 200, "")
		rec := f.Get(g.Operation)
		if rec.Scope != "ann" || rec.Key != "k1" {
			t.Errorf("scope %q key %q", rec.Scope, rec.Key)
		}
		undo, err := f.p.Refunds.Execute(t.Context(), settle.Operation[pt.Refund]{
			Purpose: "returned", Undoes: settle.Effect{Operation: g.Operation},
		})
		rig.OK(t, err)
		f.want(look("ann", undo.ID, ""), 404, "not-found") // of another kind
		f.want(look("ann", g.Operation, ""), 200, "compensated")
		if g := f.want(post("k1"), 410, "compensated"); g.Problem.Next != settle.NextStop {
			t.Errorf("%s", g.raw)
		}
	})
}

func TestBodies(t *testing.T) {
	t.Parallel()
	bubble(t, &options{MaxBody: 64}, func(t *testing.T, f *front) {
		c := post("k1")
		c.body = `{"amount":100,"currency":"` + strings.Repeat("E", 64) + `"}`
		f.want(c, 413, "body-too-large")
		c.body = `{"amount":100,"currency":"EUR","amount":1}`
		f.want(c, 400, "malformed-body")
		c.body = `{"amount":100,"secret":"s3cret"}`
		if g := f.want(c, 400, "malformed-body"); strings.Contains(g.raw, "s3cret") || strings.Contains(g.raw, `"secret`) {
			t.Errorf("the request is echoed: %s", g.raw)
		}
		for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "", ";", "application/jsonp"} {
			r := post("k1").request(t)
			r.Header.Set("Content-Type", ct)
			w := httptest.NewRecorder()
			f.h.ServeHTTP(w, r)
			if g := read(t, w); g.slug() != "media-type" {
				t.Errorf("%q: %s", ct, g.raw)
			}
		}
		r := post("k1").request(t)
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, r)
		if w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
			w := httptest.NewRecorder()
			f.h.ServeHTTP(w, call{method: method, path: "/operations", user: "ann"}.request(t))
			if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD, POST" {
				t.Errorf("%s: %d %v", method, w.Code, w.Header())
			}
		}
		for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Vary": "Prefer"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		f.Ledger(1, nil)
	})
}

// What the application says is shown; what else goes wrong in it is not, and binds no key.
func TestApplicationErrors(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		var say error
		f.op = func(r *http.Request, body []byte) (settle.Operation[pt.Payment], error) {
			if say != nil {
				return settle.Operation[pt.Payment]{}, say
			}
			return order(r, body)
		}
		say = errors.New("dial postgres://user:pw@db: refused")
		if g := f.want(post("k1"), 500, "internal"); strings.Contains(g.raw, "pw") || g.Problem.Next != settle.NextRetry {
			t.Errorf("%s", g.raw)
		}
		say = &httpsettle.Problem{Status: 402}
		if g := f.do(post("k1")); g.Problem.Type != "about:blank" || g.Problem.Title != "Payment Required" {
			t.Errorf("%s", g.raw)
		}
		say = &httpsettle.Problem{Status: 200, Title: "no problem"}
		if g := f.do(call{method: "POST", path: "/operations", user: "ann", key: `"k1"`, body: "{}"}); g.code != 500 {
			t.Errorf("%d %s", g.code, g.raw)
		}
		say = &settle.Error{Do: "read the order", Err: settle.ErrNotFound}
		f.want(post("k1"), 404, "not-found")
		say = nil
		f.want(post("k1"), 200, "")
	})
}

// A panic of the application's own code is no answer, and the next request works.
func TestPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, bad := rig.New(t, memstore.New(nil), nil), true
		f := front1(t, r, nil, &settle.ExecutorOptions[pt.Payment, pt.Receipt]{
			Authorize: func(context.Context, settle.Operation[pt.Payment]) error {
				if bad {
					panic("s3cret")
				}
				return nil
			},
		})
		if g := f.want(post("k1"), 403, "refused"); strings.Contains(g.raw, "s3cret") {
			t.Errorf("%s", g.raw)
		}
		bad = false
		f.want(post("k1"), 200, "")
	})
}

// While the store is down nothing can be said, and the same request later is right.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		id := f.want(post("k1"), 200, "").Operation
		f.p.Store.Cut()
		second := post("k2")
		second.path += "?order=order-2"
		g := f.want(second, 503, "no-verdict")
		if g.header.Get("Retry-After") != "1" || g.Problem.Next != settle.NextRetry || g.Problem.Operation != "" {
			t.Errorf("%s %v", g.raw, g.header)
		}
		f.want(look("ann", id, "wait=5"), 503, "no-verdict")
		f.p.Store.Mend()
		f.want(second, 200, "")
		rig.OK(t, f.p.Drain(t.Context()))
		f.want(post("k3"), 503, "unavailable")
		f.want(look("ann", id, ""), 200, "") // reading goes on
	})
}

// A person decides: 202, never a failure.
func TestReviewIs202(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		f.Provider.Script(pt.WrongAmount(19))
		g := f.want(post("k1"), 202, "review")
		if g.Code != settle.ReasonDisputed || g.Next != settle.NextWaitPerson || g.Result != nil {
			t.Errorf("%s", g.raw)
		}
	})
}

func TestResultFunction(t *testing.T) {
	t.Parallel()
	show := any(map[string]string{"id": "shown"})
	bubble(t, &options{Result: func(settle.Outcome[pt.Receipt]) any { return show }}, func(t *testing.T, f *front) {
		if g := f.want(post("k1"), 200, ""); !strings.Contains(g.raw, `"result":{"id":"shown"}`) {
			t.Errorf("%s", g.raw)
		}
		show = func() {} // no JSON: the effect is confirmed all the same
		if g := f.want(post("k1"), 200, ""); g.Result != nil || g.State != settle.StateSucceeded {
			t.Errorf("%s", g.raw)
		}
	})
}

// The names of members that only the request brought are not shown, and a compensation of another principal's
// operation is not found, whatever its kind.
func TestWhatIsNotShown(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		x := rig.Raw[json.RawMessage, json.RawMessage](f.p, "raw", nil, func([]byte) json.RawMessage { return json.RawMessage(`{"id":"x"}`) })
		h, err := httpsettle.NewHandler(f.p.Engine, x, principal,
			func(_ *http.Request, body []byte) (settle.Operation[json.RawMessage], error) {
				return settle.Operation[json.RawMessage]{Subject: "order-1", Purpose: "raw", Request: body}, nil
			}, nil)
		rig.OK(t, err)
		f.h = h
		f.do(post("k1"))
		c := post("k1")
		c.body = `{"4242424242424242":1}`
		if g := f.want(c, 422, "key-reused"); strings.Contains(g.said(), "4242") || len(g.Problem.Fields) == 0 {
			t.Errorf("%s", g.raw)
		}

		f.serve(t, nil)
		charge := f.want(post("k2"), 200, "").Operation
		refund, err := f.p.Refunds.Execute(t.Context(), settle.Operation[pt.Refund]{
			Purpose: "returned", Undoes: settle.Effect{Operation: charge},
		})
		rig.OK(t, err)
		undo, err := httpsettle.NewHandler(f.p.Engine, f.p.Refunds, principal,
			func(r *http.Request, _ []byte) (settle.Operation[pt.Refund], error) {
				return settle.Operation[pt.Refund]{Purpose: "returned", Undoes: settle.Effect{Operation: r.URL.Query().Get("of")}}, nil
			}, &options{Keys: httpsettle.KeyUnused})
		rig.OK(t, err)
		f.h = undo
		for _, id := range []string{charge, refund.ID, "no-such"} {
			f.want(call{method: "POST", path: "/operations?of=" + id, user: "bob"}, 404, "not-found")
		}
		if g := f.want(call{method: "POST", path: "/operations?of=" + charge, user: "ann"}, 200, ""); g.Operation != refund.ID {
			t.Errorf("%s", g.raw)
		}
	})
}

func TestNewHandlerRefuses(t *testing.T) {
	t.Parallel()
	r := rig.New(t, memstore.New(nil), nil)
	p := r.Start(nil)
	for name, err := range map[string]error{
		"no engine":    second(httpsettle.NewHandler(nil, p.Charges, principal, order, nil)),
		"no executor":  second(httpsettle.NewHandler[pt.Payment, pt.Receipt](p.Engine, nil, principal, order, nil)),
		"no scope":     second(httpsettle.NewHandler(p.Engine, p.Charges, nil, order, nil)),
		"no operation": second(httpsettle.NewHandler(p.Engine, p.Charges, principal, nil, nil)),
		"no such rule": second(httpsettle.NewHandler(p.Engine, p.Charges, principal, order, &options{Keys: "?"})),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func second(_ *handler, err error) error { return err }
