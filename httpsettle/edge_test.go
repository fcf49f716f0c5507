package httpsettle_test

import (
	"context"
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

// What ends the request's context need not be its client: a time-out of a middleware, a server that shuts down. A handler that
// returns without an answer has answered 200, which means confirmed.
func TestEndedContextIsAnswered(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		release := make(chan struct{})
		f.Provider.Script(pt.HangBefore(release))
		c := post("k1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c.ctx = ctx
		first := f.want(c, 202, "in-progress")
		if first.Operation == "" || first.header.Get("Location") == "" {
			t.Errorf("%s %v", first.raw, first.header)
		}
		l := look("ann", first.Operation, "wait=20")
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.ctx = ctx
		f.want(l, 200, "in-progress")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []call{post("k1"), post("k2"), look("ann", first.Operation, "wait=20"), look("ann", first.Operation, "")} {
			c.ctx = over
			if g := f.do(c); g.code < 202 && g.State == "" {
				t.Errorf("%s %s: %d %q", c.method, c.path, g.code, g.raw)
			}
		}
		close(release)
		synctest.Wait()
		f.want(post("k1"), 200, "")
		f.Ledger(1, nil)
	})
}

// A body that is encoded is not decoded behind the application's back: it is told what is taken (RFC 9110, section 15.5.16).
func TestContentEncoding(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *front) {
		for coding, code := range map[string]int{"gzip": 415, "br, gzip": 415, "identity": 200, " Identity ": 200} {
			r := post("k1").request(t)
			r.Header.Set("Content-Encoding", coding)
			w := httptest.NewRecorder()
			f.h.ServeHTTP(w, r)
			if g := read(t, w); g.code != code || code == 415 && (g.slug() != "media-type" || g.header.Get("Accept-Encoding") != "identity") {
				t.Errorf("%q: %d %s %v", coding, g.code, g.raw, g.header)
			}
		}
	})
}

// A service that cannot tell who asks says so, and not that the client is nobody.
func TestScopeProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := rig.New(t, memstore.New(nil), nil).Start(nil)
		h, err := httpsettle.NewHandler(p.Engine, p.Charges, func(*http.Request) (string, error) {
			return "", &httpsettle.Problem{Status: 503, Title: "no sessions"}
		}, order, nil)
		rig.OK(t, err)
		for _, c := range []call{post("k1"), look("ann", "0192aaaa-0000-7000-8000-000000000000", "")} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, c.request(t))
			if g := read(t, w); g.code != 503 || g.Problem.Title != "no sessions" || g.header.Get("WWW-Authenticate") != "" {
				t.Errorf("%s: %d %s %v", c.method, g.code, g.raw, g.header)
			}
		}
	})
}

// Compensations are named by their effect and reason: two of one reason are two, also while both are under way.
func TestCompensationsOfOneReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rig.New(t, memstore.New(nil), nil)
		p := r.Start(nil)
		var ids []string
		for _, order := range []string{"order-1", "order-2"} {
			op := rig.Op(order, 1999, "EUR")
			op.Scope = "ann"
			out, err := p.Charges.Execute(t.Context(), op)
			rig.OK(t, err)
			ids = append(ids, out.ID)
		}
		h, err := httpsettle.NewHandler(p.Engine, p.Refunds, principal, func(r *http.Request, body []byte) (settle.Operation[pt.Refund], error) {
			op := settle.Operation[pt.Refund]{Undoes: settle.Effect{Operation: r.URL.Query().Get("charge")}, Purpose: "returned"}
			return op, httpsettle.Decode(body, &op.Request)
		}, &options{Keys: httpsettle.KeyUnused})
		rig.OK(t, err)
		refund := func(id string) got {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/refunds?charge="+id, strings.NewReader(`{"amount":1999,"currency":"EUR"}`))
			req.Header = http.Header{"Authorization": {"ann"}, "Content-Type": {"application/json"}}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			return read(t, w)
		}
		release := make(chan struct{})
		r.Provider.Script(pt.HangBefore(release), pt.OK())
		first := rig.Background(func() got { return refund(ids[0]) })
		synctest.Wait()
		if g := refund(ids[1]); g.code != 200 {
			t.Errorf("the second one waits for the first: %d %s", g.code, g.raw)
		}
		if g := refund(ids[0]); g.code != 409 || g.slug() != "in-progress" {
			t.Errorf("a duplicate of the first: %d %s", g.code, g.raw)
		}
		close(release)
		if g := first(); g.code != 200 {
			t.Errorf("%d %s", g.code, g.raw)
		}
		r.Ledger(4, nil)
	})
}
