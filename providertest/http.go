package providertest

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"
)

const maxBody = 1 << 20

// Handler serves the provider over HTTP:
//
//	POST /v1/charges             {"amount", "currency", "reference", "account", "extra"}
//	POST /v1/refunds             the same, and "charge"
//	POST /v1/charges/{id}/void   {"reference", "account", "extra"}
//	GET  /v1/{charges,refunds,voids}/{id}
//	GET  /v1/{charges,refunds,voids}?reference=&key=&account=&cursor=
//	GET  /v1/events?after=       {"events", "next"}: what was delivered, from a number on
//	GET  /ledger                 {"objects", "effects", "duplicates"}, for demos
//
// The key is the header Idempotency-Key. Errors are {"error": {"code",
// "existing_id", "object_id"}}, with Retry-After in seconds. Where a caller in
// process gets ErrNoReply, the connection is reset without an answer; note that
// Go's http.Transport then sends a request with an Idempotency-Key again by
// itself, if the connection had been used before.
func (p *Provider) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/charges", func(w http.ResponseWriter, r *http.Request) { p.post(w, r, KindCharge) })
	mux.HandleFunc("POST /v1/refunds", func(w http.ResponseWriter, r *http.Request) { p.post(w, r, KindRefund) })
	mux.HandleFunc("POST /v1/charges/{id}/void", func(w http.ResponseWriter, r *http.Request) { p.post(w, r, KindVoid) })
	for path, kind := range map[string]string{"charges": KindCharge, "refunds": KindRefund, "voids": KindVoid} {
		mux.HandleFunc("GET /v1/"+path+"/{id}", func(w http.ResponseWriter, r *http.Request) {
			o, err := p.Get(r.Context(), r.PathValue("id"))
			if err == nil && o.Kind != kind {
				err = &Fault{Status: 404, Code: CodeNotFound}
			}
			respond(w, o, err)
		})
		mux.HandleFunc("GET /v1/"+path, func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			page, err := p.List(r.Context(), Query{
				Kind: kind, Account: q.Get("account"), Reference: q.Get("reference"), Key: q.Get("key"), Cursor: q.Get("cursor"),
			})
			respond(w, page, err)
		})
	}
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		after, err := strconv.Atoi(r.URL.Query().Get("after"))
		if s := r.URL.Query().Get("after"); s != "" && (err != nil || after < 0) {
			respond(w, nil, &Fault{Status: 400, Code: CodeInvalid})
			return
		}
		out := wireEvents{Events: p.Deliveries(after)}
		out.Next = after + len(out.Events)
		respond(w, out, nil)
	})
	mux.HandleFunc("GET /ledger", p.ledger)
	return mux
}

func (p *Provider) post(w http.ResponseWriter, r *http.Request, kind string) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		respond(w, nil, &Fault{Status: 400, Code: CodeInvalid})
		return
	}
	var in body
	if err := json.Unmarshal(raw, &in); err != nil && len(bytes.TrimSpace(raw)) > 0 {
		respond(w, nil, &Fault{Status: 400, Code: CodeInvalid})
		return
	}
	parent := in.Charge
	if kind == KindVoid {
		parent = r.PathValue("id")
	}
	o, err := p.Create(r.Context(), Request{
		Kind: kind, Key: r.Header.Get("Idempotency-Key"), Reference: in.Reference, Parent: parent, Account: in.Account,
		Amount: in.Amount, Currency: in.Currency, Extra: in.Extra, Body: raw,
	})
	respond(w, o, err)
}

func (p *Provider) ledger(w http.ResponseWriter, _ *http.Request) {
	out := struct {
		Objects    []Object       `json:"objects"`
		Effects    map[string]int `json:"effects"` // by reference
		Duplicates []string       `json:"duplicates"`
	}{p.Ledger(), map[string]int{}, p.Duplicates()}
	for _, o := range out.Objects {
		if o.Reference != "" {
			out.Effects[o.Reference] = p.Effects(o.Reference)
		}
	}
	respond(w, out, nil)
}

type wireEvents struct {
	Events []Event `json:"events"`
	Next   int     `json:"next"`
}

type wireError struct {
	Error struct {
		Code       string `json:"code"`
		ExistingID string `json:"existing_id,omitempty"`
		ObjectID   string `json:"object_id,omitempty"`
	} `json:"error"`
}

// respond writes an answer, or cuts the connection where none is to arrive.
func respond(w http.ResponseWriter, v any, err error) {
	status := http.StatusOK
	var f *Fault
	switch {
	case errors.As(err, &f):
		var e wireError
		e.Error.Code, e.Error.ExistingID, e.Error.ObjectID = f.Code, f.ExistingID, f.ObjectID
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
		}
		v, status = e, f.Status
	case errors.Is(err, ErrUnreadable):
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><body>Bad gateway")
		return
	case err != nil:
		cut(w)
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs always marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// cut resets the connection.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2: resets the stream
		panic(http.ErrAbortHandler)
	}
	raw := conn
	if t, ok := conn.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	if t, ok := raw.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = raw.Close()
}

// retryAfter reads the header's form in seconds.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}
