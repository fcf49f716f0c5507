package httpsettle_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
	"github.com/settle-go/settle/internal/rig"
)

// bank is a provider that can have an effect and lose the reply.
type bank struct {
	*httptest.Server
	mu     sync.Mutex
	posts  []string // key and body of each
	lose   bool     // the next reply
	onLose func()
	answer http.HandlerFunc // nil: 200 {}
}

func newBank(t *testing.T) *bank {
	b := new(bank)
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(b.serve))
	b.EnableHTTP2 = false
	b.Start()
	t.Cleanup(b.Close)
	return b
}

func (b *bank) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	if r.Method != http.MethodGet {
		b.posts = append(b.posts, r.Header.Get("Idempotency-Key")+" "+string(body))
	}
	lose, hook, answer := b.lose, b.onLose, b.answer
	b.lose = false
	b.mu.Unlock()
	switch {
	case lose:
		if hook != nil {
			hook()
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	case answer != nil:
		answer(w, r)
	default:
		_, _ = io.WriteString(w, "{}")
	}
}

func (b *bank) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.posts...)
}

func request(t *testing.T, method, url, key, body string) *http.Request {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = bytes.NewReader([]byte(body))
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, in)
	rig.OK(t, err)
	req.Header.Set("Authorization", "Bearer s3cret")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return req
}

// client has a transport of its own, with kept-alive connections.
func client(t *testing.T, o httpsettle.ClientOptions) *httpsettle.Client {
	t.Helper()
	if o.Transport == nil {
		tr := &http.Transport{}
		t.Cleanup(tr.CloseIdleConnections)
		o.Transport = tr
	}
	c, err := httpsettle.NewClient(&o)
	rig.OK(t, err)
	return c
}

// warm leaves a kept-alive connection behind.
func warm(t *testing.T, c *httpsettle.Client, url string) {
	t.Helper()
	_, err := c.Do(request(t, "GET", url, "", ""))
	rig.OK(t, err)
}

func noAnswer(t *testing.T, err error) *httpsettle.NoAnswer {
	t.Helper()
	var n *httpsettle.NoAnswer
	if !errors.As(err, &n) {
		t.Fatalf("%v is no NoAnswer", err)
	}
	if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "http://") {
		t.Errorf("the error shows credentials or the URL: %v", err)
	}
	return n
}

// IC-04: net/http resends a request with a key when a kept-alive connection dies. With keys that is one attempt of two
// copies with the same bytes; without keys it does not happen.
func TestIC04_HiddenResend(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys       bool
		key, body  string
		posts      int
		refused    bool
		wantAnswer bool
	}{
		"keys":                              {keys: true, key: "k1", body: "pay", posts: 2, wantAnswer: true},
		"keys, no body":                     {keys: true, key: "k1", posts: 2, wantAnswer: true},
		"no keys":                           {body: "pay", posts: 1},
		"no keys, no body":                  {posts: 1},
		"no keys, but the header":           {key: "k1", body: "pay", posts: 1}, // a reference under that name, which must not get lost (IC-65)
		"no keys, but the header, no body":  {key: "k1", refused: true},
		"no keys, a body of unknown length": {body: "chunked", posts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t)
			x := client(t, httpsettle.ClientOptions{Keys: c.keys})
			warm(t, x, b.URL)
			b.lose = true
			req := request(t, "POST", b.URL+"/pay?api_key=s3cret", c.key, c.body)
			if c.body == "chunked" {
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader(c.body)), -1
			}
			a, err := x.Do(req)
			posts := b.seen()
			if len(posts) != c.posts {
				t.Fatalf("%d posts, want %d: %q", len(posts), c.posts, posts)
			}
			switch {
			case c.wantAnswer:
				rig.OK(t, err)
				if posts[0] != posts[1] || posts[0] != c.key+" "+c.body || a.Copies != 2 || a.Fact != settle.Applied {
					t.Errorf("%q %+v", posts, a)
				}
			case c.refused:
				if !noAnswer(t, err).NotSent {
					t.Errorf("%+v", err)
				}
			default:
				if n := noAnswer(t, err); n.NotSent || n.Copies != 1 {
					t.Errorf("%+v", n)
				}
				if posts[0] != c.key+" "+c.body {
					t.Errorf("%q", posts)
				}
			}
		})
	}
}

// IC-04: the hidden second copy meets a closed door, and the error is that of a refused dial: it proves nothing.
func TestIC04_RefusedResendIsNotNotSent(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	x := client(t, httpsettle.ClientOptions{Keys: true})
	warm(t, x, b.URL)
	b.onLose = func() { _ = b.Listener.Close() }
	b.lose = true
	_, err := x.Do(request(t, "POST", b.URL, "k1", "pay"))
	n := noAnswer(t, err)
	if len(b.seen()) != 1 || !errors.Is(err, syscall.ECONNREFUSED) || n.Class != "dial" {
		t.Fatalf("the case is gone: the error should be that of a refused dial, and is %v", err)
	}
	if n.NotSent {
		t.Error("the first copy had its effect")
	}
	obs, done, err := httpsettle.Observe[int](nil, err)
	if err == nil || !done {
		t.Errorf("%+v", obs)
	}
}

// What is provably not sent, and what is not (IC-06).
func TestIC06_NotSent(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	rig.OK(t, err)
	closed := l.Addr().String()
	rig.OK(t, l.Close())
	b := newBank(t)
	hangs := newBank(t)
	arrived := make(chan struct{}, 8)
	hangs.answer = func(_ http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-r.Context().Done() }
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	dial := func(f func(ctx context.Context) (net.Conn, error)) http.RoundTripper {
		return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return f(ctx) }}
	}
	for name, c := range map[string]struct {
		url       string
		transport http.RoundTripper
		class     string
		notSent   bool
		cancel    bool
	}{
		"nobody listens": {url: "http://" + closed, class: "dial", notSent: true},
		"no such name": {url: "http://bank.invalid", class: "dns", notSent: true, transport: dial(func(context.Context) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "bank.invalid", IsNotFound: true}}
		})},
		"unknown certificate": {url: secure.URL, class: "tls", notSent: true},
		"no TLS there":        {url: strings.Replace(b.URL, "http:", "https:", 1), class: "connection", notSent: true},
		"deadline while dialing": {url: b.URL, class: "canceled", notSent: true, cancel: true, transport: dial(func(ctx context.Context) (net.Conn, error) {
			arrived <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})},
		"canceled while it is served": {url: hangs.URL, class: "canceled", cancel: true},
		// A transport that asks nobody for a connection proves nothing, whatever it says.
		"a transport of its own": {url: b.URL, class: "dial", transport: roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Net: "quic", Err: syscall.ECONNREFUSED}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			x := client(t, httpsettle.ClientOptions{Transport: c.transport})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.cancel {
				go func() { <-arrived; cancel() }()
			}
			_, err := x.Do(request(t, "POST", c.url+"/?key=s3cret", "", "pay").WithContext(ctx))
			n := noAnswer(t, err)
			if n.NotSent != c.notSent || n.Class != c.class && n.Class != "tls" {
				t.Errorf("%+v, want %v %s: %v", n, c.notSent, c.class, errors.Unwrap(err))
			}
			obs, done, err := httpsettle.Observe[int](nil, err)
			if (err == nil && obs.Fact == settle.NotSent) != c.notSent || !done {
				t.Errorf("%+v %v", obs, err)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What each status proves: what the table says, and nothing where it says nothing.
func TestStatuses(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	status, body := 200, "{}"
	b.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Location", b.URL+"/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	x := client(t, httpsettle.ClientOptions{MaxBody: 64, Statuses: map[int]settle.Fact{
		422: settle.Declined, 429: settle.NotApplied, 202: settle.Underway, 503: settle.NotApplied, 404: settle.NotFound,
	}})
	for _, c := range []struct {
		status int
		fact   settle.Fact
		done   bool
		answer bool
	}{
		{200, settle.Applied, false, true},
		{201, settle.Applied, false, true},
		{202, settle.Underway, false, true},
		{301, settle.Unclear, true, true},
		{302, settle.Unclear, true, true},
		{303, settle.Unclear, true, true},
		{307, settle.Unclear, true, true},
		{308, settle.Unclear, true, true},
		{400, settle.Unclear, true, true},
		{404, settle.NotFound, true, true},
		{409, settle.Unclear, true, true},
		{422, settle.Declined, true, true},
		{429, settle.NotApplied, true, true},
		{500, "", true, false},
		{502, "", true, false},
		{503, settle.NotApplied, true, true}, // documented by this provider
	} {
		status = c.status
		before := len(b.seen())
		a, err := x.Do(request(t, "POST", b.URL, "", "pay"))
		obs, done, err := httpsettle.Observe[int](a, err)
		if (err == nil) != c.answer || obs.Fact != c.fact || done != c.done {
			t.Errorf("%d: %+v %v %v", c.status, obs, done, err)
		}
		if err != nil {
			if n := noAnswer(t, err); n.Status != c.status || n.After != 7*time.Second || n.NotSent {
				t.Errorf("%d: %+v", c.status, n)
			}
		} else if obs.RetryAfter != 7*time.Second {
			t.Errorf("%d: %+v", c.status, obs)
		}
		if n := len(b.seen()) - before; n != 1 {
			t.Errorf("%d: %d requests, want 1: a redirect is not followed", c.status, n)
		}
	}
	status, body = 200, strings.Repeat("x", 65)
	if n := noAnswer(t, second2(x.Do(request(t, "POST", b.URL, "", "pay")))); n.NotSent || n.Class != "body" {
		t.Errorf("a body that is too long: %+v", n)
	}
	body = body[1:]
	if a, err := x.Do(request(t, "POST", b.URL, "", "pay")); err != nil || len(a.Body) != 64 {
		t.Errorf("%v", err)
	}
}

func second2(_ *httpsettle.Answer, err error) error { return err }

// Below somebody else's http.Client, which follows redirects and knows nothing of this.
func TestTransportStopsRedirects(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/moved" {
			http.Redirect(w, r, b.URL+"/moved", http.StatusTemporaryRedirect)
		}
	}
	tr := &httpsettle.Transport{Base: &http.Transport{}, Resend: true}
	t.Cleanup(tr.CloseIdleConnections)
	sdk := &http.Client{Transport: tr}
	res, err := sdk.Do(request(t, "POST", b.URL, "k1", "pay"))
	rig.OK(t, err)
	_ = res.Body.Close()
	if res.StatusCode != 307 || len(b.seen()) != 1 {
		t.Errorf("%d, %d requests", res.StatusCode, len(b.seen()))
	}
	res, err = sdk.Do(request(t, "GET", b.URL, "", "")) // a question may be redirected, if its client wants to
	rig.OK(t, err)
	_ = res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("%d", res.StatusCode)
	}
}

// The caller's request is left as it is.
func TestTransportLeavesTheRequest(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	tr := &httpsettle.Transport{Base: &http.Transport{}}
	t.Cleanup(tr.CloseIdleConnections)
	req := request(t, "POST", b.URL, "k1", "pay")
	res, err := tr.RoundTrip(req)
	rig.OK(t, err)
	_ = res.Body.Close()
	if req.GetBody == nil || req.Header.Get("Idempotency-Key") != "k1" {
		t.Error("the request was changed")
	}
}

func TestNewClientRefuses(t *testing.T) {
	t.Parallel()
	for status, fact := range map[int]settle.Fact{
		500: settle.Declined, 502: settle.Applied, 503: settle.NotFound, 504: settle.NotSent, 200: settle.Declined, 201: settle.NotApplied,
		302: settle.Applied, 307: settle.Declined, 404: settle.Reversed, 100: settle.Unclear, 600: settle.NotApplied, 402: "paid",
	} {
		if _, err := httpsettle.NewClient(&httpsettle.ClientOptions{Statuses: map[int]settle.Fact{status: fact}}); err == nil {
			t.Errorf("a %d was taken for %q", status, fact)
		}
	}
	if _, err := httpsettle.NewClient(nil); err != nil {
		t.Error(err)
	}
}
