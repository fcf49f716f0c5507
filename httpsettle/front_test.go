package httpsettle_test

import (
	"cmp"
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

type (
	handler = httpsettle.Handler[pt.Payment, pt.Receipt]
	options = httpsettle.HandlerOptions[pt.Receipt]
)

// front is the endpoint of a shop with a provider behind it, in a bubble where time is free.
type front struct {
	*rig.Rig
	p *rig.Process
	h http.Handler
	// op is how the endpoint finds the operation. Tests may replace it.
	op   httpsettle.OperationFunc[pt.Payment]
	spec spec
}

// principal is who the tests are.
func principal(r *http.Request) (string, error) {
	user := r.Header.Get("Authorization")
	if user == "" {
		return "", errors.New("nobody")
	}
	return user, nil
}

// order takes the subject from the query, and the request from the body.
func order(r *http.Request, body []byte) (settle.Operation[pt.Payment], error) {
	op := settle.Operation[pt.Payment]{
		Subject: r.URL.Query().Get("order"), Purpose: "purchase", Replaces: r.URL.Query().Get("replaces"),
	}
	if op.Subject == "" {
		op.Subject = "order-1"
	}
	return op, httpsettle.Decode(body, &op.Request)
}

func front1(t testing.TB, r *rig.Rig, o *options, x *settle.ExecutorOptions[pt.Payment, pt.Receipt]) *front {
	t.Helper()
	f := &front{Rig: r, p: r.StartWith(nil, x), op: order}
	f.serve(t, o)
	return f
}

func (f *front) serve(t testing.TB, o *options) {
	t.Helper()
	h, err := httpsettle.NewHandler(f.p.Engine, f.p.Charges, principal,
		func(r *http.Request, body []byte) (settle.Operation[pt.Payment], error) { return f.op(r, body) }, o)
	rig.OK(t, err)
	f.h = h
	d := httpsettle.Description{
		Result: json.RawMessage(`{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}`),
		Problems: []httpsettle.Problem{
			{Status: 400, Type: "https://shop.example/otp", Title: "wrong code"},
			{Status: 409, Type: "https://shop.example/stock"},
			{Status: 402},
		},
	}
	if o != nil {
		d.Keys, d.TypeBase = o.Keys, o.TypeBase
	}
	raw, err := httpsettle.OpenAPI(d)
	rig.OK(t, err)
	f.spec = parseSpec(t, raw)
}

func bubble(t *testing.T, o *options, body func(t *testing.T, f *front)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(t, front1(t, rig.New(t, memstore.New(nil), nil), o, nil)) })
}

// got is an answer.
type got struct {
	code   int
	header http.Header
	raw    string
	httpsettle.Status
	Problem httpsettle.Problem
}

// slug is the last part of the type.
func (g got) slug() string {
	typ := g.Type
	if g.code >= 400 {
		typ = g.Problem.Type
	}
	return typ[strings.LastIndexByte(typ, '#')+1:]
}

// said is the answer without the operation's id, which is random and may have any digits in it.
func (g got) said() string {
	return strings.NewReplacer(cmp.Or(g.Problem.Operation, "-"), "", cmp.Or(g.Operation, "-"), "").Replace(g.raw)
}

// call is one request.
type call struct {
	method, path, user, key, prefer, body string
	ctx                                   context.Context //nolint:containedctx // of the request
}

const body100 = `{"amount":100,"currency":"EUR"}`

// post is a request of ann for 1 EUR.
func post(key string) call {
	return call{method: "POST", path: "/operations", user: "ann", key: `"` + key + `"`, body: body100}
}

func (c call) request(t testing.TB) *http.Request {
	ctx := c.ctx
	if ctx == nil {
		ctx = t.Context()
	}
	r := httptest.NewRequestWithContext(ctx, c.method, c.path, strings.NewReader(c.body))
	for name, v := range map[string]string{"Authorization": c.user, "Idempotency-Key": c.key, "Prefer": c.prefer} {
		if v != "" && v != `""` {
			r.Header.Set(name, v)
		}
	}
	if c.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// do makes the request and holds the answer against the OpenAPI document.
func (f *front) do(c call) got {
	f.T.Helper()
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, c.request(f.T))
	path := "/operations"
	if c.method == "GET" {
		path += "/{id}"
	}
	if err := f.spec.answer(c.method, path, w.Code, w.Header(), w.Body.Bytes()); err != nil {
		f.T.Errorf("%s %s: %v\n%s", c.method, c.path, err, w.Body)
	}
	return read(f.T, w)
}

func read(t testing.TB, w *httptest.ResponseRecorder) got {
	t.Helper()
	g := got{code: w.Code, header: w.Header(), raw: w.Body.String()}
	var err error
	if w.Code >= 400 {
		err = json.Unmarshal(w.Body.Bytes(), &g.Problem)
	} else {
		err = json.Unmarshal(w.Body.Bytes(), &g.Status)
	}
	if err != nil {
		t.Errorf("the answer is no JSON: %v %q", err, w.Body)
	}
	return g
}

// want makes the request and expects status and type.
func (f *front) want(c call, code int, slug string) got {
	f.T.Helper()
	g := f.do(c)
	if g.code != code || g.slug() != slug {
		f.T.Fatalf("%s %s: %d %q, want %d %q\n%s", c.method, c.path, g.code, g.slug(), code, slug, g.raw)
	}
	return g
}

// look asks for the status of an operation.
func look(user, id, prefer string) call {
	return call{method: "GET", path: "/operations/" + id, user: user, prefer: prefer}
}

// behind makes the request in the background.
func (f *front) behind(c call) func() got {
	return rig.Background(func() got { return f.do(c) })
}

func after(d time.Duration) { rig.After(d) }
