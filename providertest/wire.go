package providertest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// wire is the proxy between an adapter and a local provider. It records every
// request, and lets a case decide how each is served.
type wire struct {
	local   http.Handler
	creates func(Sent) bool
	server  *httptest.Server
	// elsewhere makes, once, another host that serves the same provider: where redirects point.
	elsewhere func() *httptest.Server
	// over ends whatever still hangs when the case does.
	over chan struct{}

	mu     sync.Mutex
	log    []logged
	strays []Sent // what arrived elsewhere
	serve  func(*exchange)
}

type logged struct {
	Sent
	creates bool
}

func newWire(t testing.TB, local http.Handler, creates func(Sent) bool) *wire {
	w := &wire{local: local, creates: creates, over: make(chan struct{})}
	if creates == nil {
		w.creates = func(s Sent) bool {
			return s.Method != http.MethodGet && s.Method != http.MethodHead && s.Method != http.MethodOptions
		}
	}
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.handle(rw, r) }))
	w.elsewhere = sync.OnceValue(func() *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			x := newExchange(w, rw, r)
			w.mu.Lock()
			w.strays = append(w.strays, x.sent)
			w.mu.Unlock()
			x.pass()
		}))
		t.Cleanup(s.Close)
		return s
	})
	t.Cleanup(func() {
		close(w.over)
		w.server.Close()
	})
	return w
}

// address is what an adapter gets to see of w.
func (w *wire) address(t testing.TB) Wire {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return Wire{URL: w.server.URL, Transport: diverter{w.server.URL, transport}}
}

// diverter sends every request to the proxy, whatever host it names; a request that
// follows a redirect of the proxy goes where that points.
type diverter struct {
	proxy string
	base  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (d diverter) RoundTrip(r *http.Request) (*http.Response, error) {
	host := strings.TrimPrefix(d.proxy, "http://")
	if r.URL.Host != host && r.Response == nil {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host, r.Host = "http", host, ""
	}
	return d.base.RoundTrip(r)
}

func (w *wire) handle(rw http.ResponseWriter, r *http.Request) {
	x := newExchange(w, rw, r)
	x.creates = w.creates(x.sent)
	w.mu.Lock()
	w.log = append(w.log, logged{x.sent, x.creates})
	serve := w.serve
	w.mu.Unlock()
	if serve == nil {
		serve = (*exchange).pass
	}
	serve(x)
}

// on sets how requests are served from now on; nil passes them through.
func (w *wire) on(serve func(*exchange)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serve = serve
}

// onCreate is on for create requests; others pass.
func (w *wire) onCreate(serve func(*exchange)) {
	w.on(func(x *exchange) {
		if x.creates {
			serve(x)
		} else {
			x.pass()
		}
	})
}

// sent returns the requests since mark: those that create, and the others.
func (w *wire) sent(mark int) (creates, asks []Sent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.log[mark:] {
		if l.creates {
			creates = append(creates, l.Sent)
		} else {
			asks = append(asks, l.Sent)
		}
	}
	return creates, asks
}

func (w *wire) mark() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.log)
}

// strayed counts the create requests that went elsewhere.
func (w *wire) strayed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, s := range w.strays {
		if w.creates(s) {
			n++
		}
	}
	return n
}

// exchange is one request on its way through the proxy, with what can be done to it.
type exchange struct {
	w       *wire
	rw      http.ResponseWriter
	r       *http.Request
	sent    Sent
	creates bool
}

func newExchange(w *wire, rw http.ResponseWriter, r *http.Request) *exchange {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	u := &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	return &exchange{w: w, rw: rw, r: r, sent: Sent{Method: r.Method, URL: u, Header: r.Header.Clone(), Body: b}}
}

// answered is what the local provider answered.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// perform lets the local provider handle the request. The caller's leaving does not stop it.
func (x *exchange) perform() answered {
	rec := httptest.NewRecorder()
	r := x.r.Clone(context.WithoutCancel(x.r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(x.sent.Body))
	x.w.local.ServeHTTP(rec, r)
	return answered{rec.Code, rec.Header(), rec.Body.Bytes()}
}

func (x *exchange) pass() { x.write(x.perform()) }

func (x *exchange) write(a answered) {
	maps.Copy(x.rw.Header(), a.header)
	x.rw.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	x.rw.WriteHeader(a.status)
	_, _ = x.rw.Write(a.body)
}

// answer replies without the provider.
func (x *exchange) answer(status int, contentType, body string) {
	x.write(answered{status, http.Header{"Content-Type": {contentType}}, []byte(body)})
}

// cut breaks the connection.
func (x *exchange) cut() { cut(x.rw) }

// cutShort sends half of a reply and breaks the connection.
func (x *exchange) cutShort(a answered) {
	maps.Copy(x.rw.Header(), a.header)
	x.rw.Header().Set("Content-Length", strconv.Itoa(len(a.body)+1))
	x.rw.WriteHeader(a.status)
	_, _ = x.rw.Write(a.body[:len(a.body)/2])
	_ = http.NewResponseController(x.rw).Flush()
	x.cut()
}

// hang waits until the caller has given up.
func (x *exchange) hang() {
	select {
	case <-x.r.Context().Done():
	case <-x.w.over:
	}
}

// unreachable is an address that nobody listens on, for a provider that is down.
func unreachable(t testing.TB) Wire {
	dead := httptest.NewServer(nil)
	dead.Close()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return Wire{URL: dead.URL, Transport: diverter{dead.URL, transport}}
}

// readings lists what stands at the place in a request.
func (p Place) readings(s Sent) []string {
	if p.none() {
		return nil
	}
	return slices.Clone(p.read(s))
}
