package providertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// call is one call of the adapter under test, without its types.
type call struct {
	n       int // of the sample request
	id, key string
	ref     string
	attempt int
}

// result is what came of a call.
type result struct {
	fact     settle.Fact
	obs      settle.Observation[struct{}] // but for the result
	err      error
	panicked any
	creates  []Sent // requests that it made
	asks     []Sent
}

// noAnswer reports whether the adapter drew no conclusion.
func (r result) noAnswer() bool { return r.err != nil || r.fact == settle.Unclear }

// seen reports whether the adapter saw the effect.
func (r result) seen() bool {
	return r.err == nil && (r.fact == settle.Applied || r.fact == settle.Underway || r.fact == settle.NeedsAction)
}

func (r result) String() string {
	if r.err != nil {
		return fmt.Sprintf("the error %q", r.err)
	}
	if r.fact == settle.Unclear {
		return "unclear"
	}
	return string(r.fact)
}

// subject is an adapter under test, without its types.
type subject interface {
	contract() settle.Contract
	terms(c call) settle.Terms
	submit(ctx context.Context, c call) (settle.Observation[struct{}], error)
	lookup(ctx context.Context, c call) (settle.Observation[struct{}], error)
	accepted() error
	execute(ctx context.Context, c call) (ending, error)
}

// ending is how an operation with the adapter ended, twice.
type ending struct {
	record     settle.Record
	hasResult  bool
	err, again error
}

// typed is the edge at which the type parameters of a harness end.
type typed[Req, Res any] struct {
	adapter settle.ProviderAdapter[Req, Res]
	request func(int) Req
	undoes  func(int) settle.Effect
}

func (s typed[Req, Res]) contract() settle.Contract { return s.adapter.Contract() }

func (s typed[Req, Res]) operation(c call) settle.Operation[Req] {
	op := settle.Operation[Req]{Scope: "providertest", Subject: c.id, Purpose: "sample", Request: s.request(c.n)}
	if s.undoes != nil {
		op.Undoes = s.undoes(c.n)
	}
	return op
}

func (s typed[Req, Res]) terms(c call) settle.Terms { return s.adapter.Terms(s.operation(c)) }

func (s typed[Req, Res]) call(c call) *settle.Call[Req] {
	out := settle.Call[Req]{
		ID: c.id, Scope: "providertest", Subject: c.id, Purpose: "sample", Request: s.request(c.n),
		Terms: s.terms(c), Ref: c.ref, Attempt: max(c.attempt, 1),
	}
	if s.undoes != nil {
		out.Undoes = s.undoes(c.n)
	}
	return settle.NewCall(c.key, out)
}

func (s typed[Req, Res]) submit(ctx context.Context, c call) (settle.Observation[struct{}], error) {
	o, err := s.adapter.Submit(ctx, s.call(c))
	return untyped(o), err
}

func (s typed[Req, Res]) lookup(ctx context.Context, c call) (settle.Observation[struct{}], error) {
	o, err := s.adapter.Lookup(ctx, s.call(c))
	return untyped(o), err
}

func (s typed[Req, Res]) executor() (*settle.Engine, *settle.Executor[Req, Res], error) {
	e, err := settle.Open(memstore.New(nil), nil)
	if err != nil {
		return nil, nil, err
	}
	x, err := settle.New(e, "sample", s.adapter, nil)
	return e, x, err
}

func (s typed[Req, Res]) accepted() error {
	_, _, err := s.executor()
	return err
}

func (s typed[Req, Res]) execute(ctx context.Context, c call) (ending, error) {
	e, x, err := s.executor()
	if err != nil {
		return ending{}, err
	}
	op := s.operation(c)
	var ended ending
	out, err := x.Execute(ctx, op)
	ended.record, ended.err = out.Record, err
	_, ended.hasResult = out.Result()
	_, ended.again = x.Execute(ctx, op)
	return ended, e.Drain(ctx)
}

func untyped[Res any](o settle.Observation[Res]) settle.Observation[struct{}] {
	return settle.Observation[struct{}]{
		Fact: o.Fact, Ref: o.Ref, Terms: o.Terms, Code: o.Code, Message: o.Message, Action: o.Action,
		Sequence: o.Sequence, RetryAfter: o.RetryAfter,
	}
}

// world is one adapter in front of one local provider, with the wire between them.
type world struct {
	*wire
	subject
	local Local
	undo  map[int]settle.Effect
}

// traits are what a harness says of the traffic, without its types.
type traits struct {
	key, reference, account Place
	echo                    Echo
	answers                 []Answer
	pageSize                int
	secrets                 []string
	skip                    map[string]string
}

// env is what a case works with.
type env struct {
	traits
	promise settle.Contract
	// open starts a new world; unreachable makes an adapter whose provider cannot be dialed.
	open        func() *world
	unreachable func() *world
	calls       int
	patience    time.Duration
}

func newEnv[Req, Res any](t testing.TB, h Harness[Req, Res]) *env {
	e := &env{patience: defaultPatience, traits: traits{
		key: h.Key, reference: h.Reference, account: h.Account, echo: h.Echo, answers: h.Answers,
		pageSize: h.PageSize, secrets: h.Secrets, skip: h.Skip,
	}}
	start := func(address func(*wire) Wire) *world {
		local := h.Local(t)
		if local.Handler == nil || local.Effects == nil {
			t.Fatal("providertest: Local.Handler and Local.Effects are required")
		}
		w := &world{wire: newWire(t, local.Handler, h.Creates), local: local, undo: map[int]settle.Effect{}}
		s := typed[Req, Res]{adapter: h.Adapter(t, address(w.wire)), request: h.Request}
		if local.Undoes != nil {
			s.undoes = w.undoes
		}
		w.subject = s
		return w
	}
	e.open = func() *world { return start(func(w *wire) Wire { return w.address(t) }) }
	e.unreachable = func() *world {
		return start(func(*wire) Wire { return unreachable(t) })
	}
	e.promise = e.open().contract()
	return e
}

// undoes makes the effect for sample n once.
func (w *world) undoes(n int) settle.Effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.undo[n]; !ok {
		w.undo[n] = w.local.Undoes(n)
	}
	return w.undo[n]
}

// next is a call of its own: another id, another key. The same case makes the
// same ones in every run.
func (e *env) next() call {
	e.calls++
	id := uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "settle/providertest/%d", e.calls)).String()
	return call{n: e.calls, id: id, key: e.keyOf(e.calls)}
}
