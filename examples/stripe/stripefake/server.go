package stripefake

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Options configure a Server. The zero value works.
type Options struct {
	// Secret is the API key that requests must carry; empty accepts any.
	Secret string
	// Now is the server's clock; nil means time.Now. It stamps objects (whole seconds,
	// as Stripe does) and ages keys.
	Now func() time.Time
	// KeyAge is how long a key is remembered. Defaults to 24 hours.
	KeyAge time.Duration
	// ListLag is how long a new object stays invisible to the lists. Retrieving it by id sees it at once.
	ListLag time.Duration
	// PageSize bounds what a list returns at once, below the limit that was asked for. Defaults to 100.
	PageSize int
	// OnEffect, if set, is told of each movement of money, before any reply, with no lock held.
	OnEffect func(Movement)
}

// Server is the API. It is an http.Handler, safe for concurrent use.
type Server struct {
	opts Options
	mux  *http.ServeMux

	mu       sync.Mutex
	keys     map[string]*saved
	intents  []*intent // in the order of creation
	refunds  []*refund
	ledger   []Movement
	events   []Event
	requests []Request
	posts    []Fault // what the next POSTs do
	gets     []Fault
	serial   int
}

// New returns a server with an empty ledger.
func New(o *Options) *Server {
	s := &Server{keys: map[string]*saved{}, mux: http.NewServeMux()}
	if o != nil {
		s.opts = *o
	}
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	s.opts.KeyAge = cmp.Or(s.opts.KeyAge, 24*time.Hour)
	s.opts.PageSize = cmp.Or(s.opts.PageSize, 100)
	s.mux.HandleFunc("POST /v1/payment_intents", s.post(s.createIntent))
	s.mux.HandleFunc("GET /v1/payment_intents", s.get(s.listIntents))
	s.mux.HandleFunc("POST /v1/payment_intents/{id}/cancel", func(w http.ResponseWriter, r *http.Request) {
		s.post(func(url.Values, Fault) execute { return s.cancelIntent(r.PathValue("id")) })(w, r)
	})
	s.mux.HandleFunc("GET /v1/payment_intents/{id}", s.get(s.retrieveIntent))
	s.mux.HandleFunc("POST /v1/refunds", s.post(s.createRefund))
	s.mux.HandleFunc("GET /v1/refunds", s.get(s.listRefunds))
	s.mux.HandleFunc("GET /v1/refunds/{id}", s.get(s.retrieveRefund))
	s.mux.HandleFunc("/", s.get(func(*http.Request, url.Values) answer {
		return refusal(http.StatusNotFound, "invalid_request_error", "", "Unrecognized request URL")
	}))
	return s
}

// Request is one request that arrived, whatever became of it.
type Request struct {
	Method, Path string
	Key          string // the Idempotency-Key
	Body         string // form-encoded
	Header       http.Header
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return // the client is gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.Header().Set("Request-Id", "req_fake")
	s.mu.Lock()
	s.requests = append(s.requests, Request{
		Method: r.Method, Path: r.URL.Path, Key: r.Header.Get("Idempotency-Key"), Body: string(body), Header: r.Header.Clone(),
	})
	s.mu.Unlock()
	s.mux.ServeHTTP(w, r)
}

// Requests returns what arrived, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Posts returns the requests that could have an effect.
func (s *Server) Posts() []Request {
	return slices.DeleteFunc(s.Requests(), func(r Request) bool { return r.Method != http.MethodPost })
}

// get serves a request that has no effect.
func (s *Server) get(handle func(r *http.Request, q url.Values) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f := s.next(&s.gets)
		if f.Lose != Never {
			hangUp(w)
			return
		}
		a := f.early()
		if a == nil {
			a = s.unauthorized(r)
		}
		if a == nil {
			b := handle(r, r.URL.Query())
			a = &b
		}
		a.send(w, f.Garble)
	}
}

func (s *Server) unauthorized(r *http.Request) *answer {
	if s.opts.Secret == "" || r.Header.Get("Authorization") == "Bearer "+s.opts.Secret {
		return nil
	}
	a := refusal(http.StatusUnauthorized, "invalid_request_error", "", "Invalid API Key provided")
	return &a
}

// answer is a status and a body, as they are stored under a key.
type answer struct {
	status int
	header map[string]string
	body   []byte
}

func ok(v any) answer {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of a struct of strings and numbers
	}
	return answer{status: http.StatusOK, body: b}
}

// wireError is the shape of Stripe's errors.
type wireError struct {
	Type          string  `json:"type"`
	Code          string  `json:"code,omitempty"`
	DeclineCode   string  `json:"decline_code,omitempty"`
	Message       string  `json:"message"`
	Param         string  `json:"param,omitempty"`
	PaymentIntent *intent `json:"payment_intent,omitempty"`
}

func fail(status int, e wireError) answer {
	a := ok(map[string]any{"error": e})
	a.status = status
	return a
}

func refusal(status int, typ, code, message string) answer {
	return fail(status, wireError{Type: typ, Code: code, Message: message})
}

func (a *answer) send(w http.ResponseWriter, garble bool) {
	body := a.body
	if garble {
		body = body[:len(body)/2]
	}
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(body)
}
