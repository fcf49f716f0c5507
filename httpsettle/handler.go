package httpsettle

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/settle-go/settle"
)

// ScopeFunc names the authenticated principal of a request: the scope of its keys and
// operations (settle.Operation.Scope). An error or an empty scope is answered with 401, a *[Problem] as it is: a
// service that cannot tell who asks, because its session store is down, answers 503 and not that the client must log in. The scope
// must come from what was authenticated, never from what the request merely says.
type ScopeFunc func(r *http.Request) (string, error)

// OperationFunc says which operation a request asks for: subject, purpose and request, and what
// else [settle.Operation] offers. Scope and Key are set by the handler, whatever it returns.
// It runs before anything is stored and must not have effects. body is the whole body, within the limit.
//
// An error refuses the request and leaves the key free: a *[Problem] is shown as it is, an error of
// settle as its type, anything else is a 500 whose text is not shown.
type OperationFunc[Req any] func(r *http.Request, body []byte) (settle.Operation[Req], error)

// KeyRule says what a Handler does with the header Idempotency-Key.
type KeyRule string

// The rules.
const (
	// KeyRequired: a request without the header is refused, as the draft says.
	KeyRequired KeyRule = ""
	// KeyOptional: without the header the intent (scope, kind, subject, purpose) is the identity. That
	// is enough for at most one effect; a key says in addition which requests are tries of one.
	KeyOptional KeyRule = "optional"
	// KeyUnused: the identity comes from the request alone, and the header must not be there: a key that
	// is dropped would promise what nobody keeps. For kinds of compensations, which are named by their
	// effect and reason.
	KeyUnused KeyRule = "unused"
)

// HandlerOptions configure a Handler. The zero value and nil are right for many.
type HandlerOptions[Res any] struct {
	// Keys says what to do with the header Idempotency-Key. Defaults to KeyRequired.
	Keys KeyRule
	// BareKeys also takes a key without quotes (letters, digits and _-.:), which many clients send although the
	// draft makes it a structured-field string. With and without quotes it is the same key.
	BareKeys bool
	// MaxBody bounds the request body, in bytes. Defaults to 64 KiB; at most settle.MaxRequest.
	MaxBody int64
	// MediaTypes are accepted for bodies. Defaults to application/json, which no HTML form can send.
	MediaTypes []string
	// Wait is how long a POST waits for the verdict before it is answered with 202, unless the client prefers
	// otherwise. Defaults to 10 seconds.
	Wait time.Duration
	// MaxWait bounds Prefer: wait=n. Defaults to 30 seconds. The server's WriteTimeout must be longer.
	MaxWait time.Duration
	// Poll is how often a waiting GET reads the store. Defaults to 250 milliseconds.
	Poll time.Duration
	// RetryAfter is what clients are asked to wait between questions. Defaults to 1 second.
	RetryAfter time.Duration
	// TypeBase begins the problem types' URIs. Defaults to DefaultTypeBase.
	TypeBase string
	// Challenge is the WWW-Authenticate header of a 401. Defaults to Bearer.
	Challenge string
	// Location makes the URI of an operation's status from the request that made it. Defaults to a relative
	// one: the id below the path that was requested.
	Location func(r *http.Request, id string) string
	// Result makes of a confirmed outcome what the client sees of its result. Defaults to the stored result as it is.
	Result func(out settle.Outcome[Res]) any
}

func (o *HandlerOptions[Res]) defaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Wait, 10*time.Second)
	def(&o.MaxWait, 30*time.Second)
	def(&o.Poll, 250*time.Millisecond)
	def(&o.RetryAfter, time.Second)
	if o.MaxBody <= 0 {
		o.MaxBody = 64 << 10
	}
	o.MaxBody = min(o.MaxBody, settle.MaxRequest)
	if len(o.MediaTypes) == 0 {
		o.MediaTypes = []string{"application/json"}
	}
	if o.TypeBase == "" {
		o.TypeBase = DefaultTypeBase
	}
	if o.Challenge == "" {
		o.Challenge = "Bearer"
	}
}

// Handler serves the operations of one executor over HTTP:
//
//	POST …       does the operation that the request asks for, or says what became of it
//	GET  …/{id}  says how it stands; the last segment of the path is its id
//
// It is safe for concurrent use and works below any router. What a client does with each
// answer is in docs/web-handlers.md. A client that goes away takes nothing with it: the request to the
// provider goes on and its outcome is recorded (engine.Drain waits for it).
type Handler[Req, Res any] struct {
	engine    *settle.Engine
	x         *settle.Executor[Req, Res]
	scope     ScopeFunc
	operation OperationFunc[Req]
	opts      HandlerOptions[Res]
	names     map[string]bool // members that Req declares

	mu    sync.Mutex
	calls map[working]*call[Res] // requests of this process that are being worked on
}

// working is what tells the operations apart that are being worked on. Compensations have no subject of their own: their effect is
// what they are about.
type working struct {
	intent         settle.Intent
	undoes, effect string
}

func workingOn[Req any](op settle.Operation[Req]) working {
	return working{op.Intent(), op.Undoes.Operation, op.Undoes.Ref}
}

// call is one Execute, which outlives the request that started it.
type call[Res any] struct {
	done chan struct{}
	out  settle.Outcome[Res]
	err  error
}

// NewHandler makes the handler of x, an executor made on e. It refuses what is missing and a Keys rule
// that does not exist.
func NewHandler[Req, Res any](e *settle.Engine, x *settle.Executor[Req, Res], scope ScopeFunc, operation OperationFunc[Req],
	opts *HandlerOptions[Res],
) (*Handler[Req, Res], error) {
	if e == nil || x == nil || scope == nil || operation == nil {
		return nil, errors.New("httpsettle: new handler: engine, executor, scope and operation are required")
	}
	h := &Handler[Req, Res]{
		engine: e, x: x, scope: scope, operation: operation,
		names: memberNames[Req](), calls: map[working]*call[Res]{},
	}
	if opts != nil {
		h.opts = *opts
	}
	h.opts.defaults()
	switch h.opts.Keys {
	case KeyRequired, KeyOptional, KeyUnused:
	default:
		return nil, errors.New("httpsettle: new handler: Keys: no such rule")
	}
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler[Req, Res]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Vary", "Prefer") // RFC 7240, section 2
	switch r.Method {
	case http.MethodPost:
		h.post(w, r)
	case http.MethodGet, http.MethodHead:
		h.get(w, r)
	default:
		head.Set("Allow", "GET, HEAD, POST")
		h.refuse(w, typeMethod)
	}
}

// principal is the scope of r; it has answered if there is none.
func (h *Handler[Req, Res]) principal(w http.ResponseWriter, r *http.Request) (string, bool) {
	scope, err := h.scope(r)
	var p *Problem
	if errors.As(err, &p) && p.Status >= 400 && p.Status < 600 {
		h.show(w, p.complete())
		return "", false
	}
	if err != nil || scope == "" {
		w.Header().Set("WWW-Authenticate", h.opts.Challenge)
		h.refuse(w, typeUnauthenticated)
		return "", false
	}
	return scope, true
}

func (h *Handler[Req, Res]) post(w http.ResponseWriter, r *http.Request) {
	scope, ok := h.principal(w, r)
	if !ok {
		return
	}
	key, problem := h.key(r.Header)
	if problem != "" {
		h.refuse(w, problem)
		return
	}
	body, problem := h.body(w, r)
	if problem != "" {
		h.refuse(w, problem)
		return
	}
	op, err := h.operation(r, body)
	if err != nil {
		h.fail(w, r, scope, "", err)
		return
	}
	op.Scope, op.Key = scope, key
	if err := h.owns(r.Context(), scope, op); err != nil {
		h.fail(w, r, scope, key, err)
		return
	}
	wait, asked := parseWait(r.Header)
	if asked {
		wait = min(wait, h.opts.MaxWait)
		w.Header().Set("Preference-Applied", preference(wait))
	} else {
		wait = h.opts.Wait
	}
	// Also if the request's context has ended. It may be that of a middleware's time-out or of a server that shuts down, and then somebody
	// reads the answer: a handler that returns without one has said 200.
	h.answer(w, r, scope, key, h.run(r.Context(), op, wait, asked))
}

// readFor bounds what is asked of the store for an answer after the request's context has ended.
const readFor = 5 * time.Second

// verdict is what became of an operation, as far as is known.
type verdict[Res any] struct {
	out  settle.Outcome[Res]
	err  error
	mine bool // if it is in progress, then for this very request, whose wait ended
}

// run does op, or reports on the one that is being done.
//
// Requests that come while the first is under way do not wait for it, unless they prefer to: they are
// compared with what is stored and told (Idempotency-Key draft, section 2.6). Execute runs on its own,
// without the request's end, so that a duplicate that comes after the first client went away is
// told the same.
func (h *Handler[Req, Res]) run(ctx context.Context, op settle.Operation[Req], wait time.Duration, asked bool) verdict[Res] {
	h.mu.Lock()
	c, busy := h.calls[workingOn(op)]
	if !busy {
		c = &call[Res]{done: make(chan struct{})}
		h.calls[workingOn(op)] = c
		go h.execute(context.WithoutCancel(ctx), op, c)
	}
	h.mu.Unlock()
	if (!busy || asked) && ended(ctx, c.done, wait) && !busy {
		return verdict[Res]{out: c.out, err: c.err}
	}
	// Register compares and reads: what is known now of this very request (I3). Should it come before
	// that Execute's own commit, it stores the operation for it. What ended the request's context does not end this.
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readFor)
	defer cancel()
	rec, err := h.x.Register(rctx, op)
	if err != nil {
		return verdict[Res]{err: err}
	}
	out, err := h.x.Outcome(rec)
	return verdict[Res]{out: out, err: err, mine: !busy}
}

func (h *Handler[Req, Res]) execute(ctx context.Context, op settle.Operation[Req], c *call[Res]) {
	c.err = errPanic
	defer func() {
		_ = recover() // of the application's own code: no answer
		h.mu.Lock()
		delete(h.calls, workingOn(op))
		h.mu.Unlock()
		close(c.done)
	}()
	c.out, c.err = h.x.Execute(ctx, op)
}

var errPanic = errors.New("httpsettle: panic")

// ended waits until done, for at most d, and no longer than ctx.
func ended(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-t.C:
	}
	select {
	case <-done: // both were ready: the answer is worth more
		return true
	default:
		return false
	}
}

// owns checks that what op replaces or undoes is this principal's: what is another's is not found, as if it did not exist.
func (h *Handler[Req, Res]) owns(ctx context.Context, scope string, op settle.Operation[Req]) error {
	for _, id := range []string{op.Replaces, op.Undoes.Operation} {
		if id == "" {
			continue
		}
		if _, err := h.load(ctx, scope, id); err != nil {
			return err
		}
	}
	return nil
}

// load reads a principal's operation, of any kind.
func (h *Handler[Req, Res]) load(ctx context.Context, scope, id string) (settle.Record, error) {
	if !isID(id) {
		return settle.Record{}, &settle.Error{Do: "get", Err: settle.ErrNotFound}
	}
	rec, err := h.engine.Get(ctx, id)
	if err == nil && rec.Scope != scope {
		return settle.Record{}, &settle.Error{Do: "get", Err: settle.ErrNotFound}
	}
	return rec, err
}

// isID reports whether s has the form of an operation's id, so that nothing else reaches the store.
func isID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		if !isLowerHex(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}

func (h *Handler[Req, Res]) get(w http.ResponseWriter, r *http.Request) {
	scope, ok := h.principal(w, r)
	if !ok {
		return
	}
	id := lastSegment(r.URL.Path)
	wait, asked := parseWait(r.Header)
	wait = min(wait, h.opts.MaxWait)
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		rec, err := h.load(r.Context(), scope, id)
		if err != nil {
			h.fail(w, r, scope, "", err)
			return
		}
		out, err := h.x.Outcome(rec)
		if errors.Is(err, settle.ErrInvalid) { // of another kind
			h.refuse(w, typeNotFound)
			return
		}
		if !asked || rec.State.Settled() {
			h.status(w, out, err, asked, wait)
			return
		}
		poll := time.NewTimer(h.opts.Poll)
		select {
		case <-poll.C:
			continue
		case <-limit.C:
		case <-r.Context().Done(): // a time-out above us, perhaps: what is known is the answer
		}
		poll.Stop()
		h.status(w, out, err, true, wait)
		return
	}
}

func (h *Handler[Req, Res]) status(w http.ResponseWriter, out settle.Outcome[Res], err error, asked bool, wait time.Duration) {
	if asked {
		w.Header().Set("Preference-Applied", preference(wait))
	}
	if !out.State.Settled() {
		w.Header().Set("Retry-After", h.retryAfter(out.Record))
	}
	h.write(w, http.StatusOK, mediaJSON, h.resource(out, err))
}

// Status is what a client sees of an operation. It holds no request, and no message of a provider.
type Status struct {
	Operation string       `json:"operation"` // its id
	State     settle.State `json:"state"`
	// Type is the same URI as in problem details; absent exactly if the effect is confirmed and finished.
	Type string `json:"type,omitempty"`
	// Next says what is safe to do now, for programs; Advice says it for people.
	Next   settle.Next `json:"next"`
	Advice string      `json:"advice"`
	// Code is a machine word: a decline code, or why a person must look.
	Code string `json:"code,omitempty"`
	// Action is what the customer needs (a URL), with the state action_required.
	Action string `json:"action,omitempty"`
	// Result is there if the effect is confirmed and its result known.
	Result any `json:"result,omitempty"`
}

func (h *Handler[Req, Res]) resource(out settle.Outcome[Res], err error) Status {
	s := Status{Operation: out.ID, State: out.State, Next: out.Next, Advice: out.Next.Advice()}
	var own *settle.Error
	if errors.As(err, &own) {
		s.Code = own.Code
	}
	if err != nil {
		s.Type = h.opts.TypeBase + entryOf(err).slug
	}
	if out.Progress != nil && out.State == settle.StateActionRequired {
		s.Action = out.Progress.Action
	}
	if _, ok := out.Result(); ok {
		s.Result = json.RawMessage(out.Record.Result)
		if h.opts.Result != nil {
			s.Result = h.opts.Result(out)
		}
	}
	return s
}
