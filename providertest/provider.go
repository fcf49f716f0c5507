package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// Names of operations for Provider.Calls.
const (
	OpCreate = "create" // charges, refunds and voids
	OpGet    = "get"    // by id
	OpLookup = "lookup" // pages of a list
)

// API is what Provider offers in process and Client over HTTP, so that one
// adapter works with both.
type API interface {
	// Create asks for an object. With an error that is no *Fault no answer arrived.
	Create(context.Context, Request) (Object, error)
	// Get reads one object by its id.
	Get(ctx context.Context, id string) (Object, error)
	// List reads one page of those that match.
	List(context.Context, Query) (Page, error)
}

// Request asks for a charge, a refund or a void.
type Request struct {
	Kind      string
	Key       string // the idempotency key; empty sends none
	Reference string
	Parent    string // of a refund or void: the charge
	Account   string
	Amount    int64  // minor units; voids need none
	Currency  string // voids need none
	Extra     map[string]string

	// Body is what arrived: over HTTP its bytes, in process a canonical encoding
	// if it is nil. Callers need not set it.
	Body []byte
	// At is when it arrived. Callers need not set it.
	At time.Time
}

func (r Request) prefix() string {
	switch r.Kind {
	case KindCharge:
		return "ch_"
	case KindRefund:
		return "re_"
	case KindVoid:
		return "vd_"
	}
	return ""
}

func (r Request) clone() Request {
	r.Extra, r.Body = maps.Clone(r.Extra), bytes.Clone(r.Body)
	return r
}

// body is a request on the wire.
type body struct {
	Charge    string            `json:"charge,omitempty"` // of a refund
	Reference string            `json:"reference,omitempty"`
	Account   string            `json:"account,omitempty"`
	Amount    int64             `json:"amount,omitempty"`
	Currency  string            `json:"currency,omitempty"`
	Extra     map[string]string `json:"extra,omitempty"`
}

func (r Request) encode() ([]byte, error) {
	w := body{Reference: r.Reference, Account: r.Account, Amount: r.Amount, Currency: r.Currency, Extra: r.Extra}
	if r.Kind == KindRefund {
		w.Charge = r.Parent
	}
	return json.Marshal(w)
}

// Provider is the fake. It is safe for concurrent use.
type Provider struct {
	o Options

	mu       sync.Mutex
	records  map[string]record
	order    []string       // ids, oldest first
	made     map[string]int // by kind
	sequence int64
	keys     map[keyID]*binding
	flights  map[keyID]*flight
	delayed  []*delayed
	turning  map[string]time.Time // ids of objects that the clock will change, and when
	events   []Event
	stream   stream
	requests []Request
	calls    map[string]int
	script   []Step
	lookups  []Step
	file     *os.File
	broken   error    // of the file
	fire     []Object // for OnApply
}

var _ API = (*Provider)(nil)

// New returns a provider; nil options are allowed. It panics where Open returns
// an error, which needs Options.Path.
func New(o *Options) *Provider {
	p, err := Open(o)
	if err != nil {
		panic(err)
	}
	return p
}

// Open returns a provider with the ledger and the keys that Options.Path holds.
func Open(o *Options) (*Provider, error) {
	p := &Provider{
		records: map[string]record{}, made: map[string]int{}, keys: map[keyID]*binding{},
		flights: map[keyID]*flight{}, calls: map[string]int{}, turning: map[string]time.Time{},
	}
	if o != nil {
		p.o = *o
	}
	if p.o.PageSize <= 0 {
		p.o.PageSize = 100
	}
	if p.o.Path != "" {
		if err := p.load(); err != nil {
			return nil, fmt.Errorf("providertest: ledger %s: %w", p.o.Path, err)
		}
	}
	return p, nil
}

func (p *Provider) now() time.Time {
	if p.o.Now != nil {
		return p.o.Now()
	}
	return time.Now()
}

// lock is how every method starts: what is due takes effect before anything is
// looked at.
func (p *Provider) lock() {
	p.mu.Lock()
	p.land()
}

// unlock calls OnApply for what has been applied, without the lock.
func (p *Provider) unlock() {
	fire := p.fire
	p.fire = nil
	p.mu.Unlock()
	if p.o.OnApply != nil {
		for _, o := range fire {
			p.o.OnApply(o)
		}
	}
}

// Script appends steps for the next create requests. It panics on a step that is
// for lookups only, or on a combination that fits no request.
func (p *Provider) Script(steps ...Step) { p.append(&p.script, forCreate, steps) }

// ScriptLookup appends steps for the next Get and List requests (each page is a
// request). It panics on a step that is for create requests only.
func (p *Provider) ScriptLookup(steps ...Step) { p.append(&p.lookups, forLookup, steps) }

func (p *Provider) append(to *[]Step, use int, steps []Step) {
	for _, s := range steps {
		if s.name != "" && s.use&use == 0 {
			panic("providertest: step " + s.String() + " does not fit this script")
		}
	}
	p.lock()
	defer p.unlock()
	*to = append(*to, steps...)
}

// ScriptLeft is the number of steps that no request, lookup or event has taken.
func (p *Provider) ScriptLeft() int {
	p.lock()
	defer p.unlock()
	return len(p.script) + len(p.lookups) + len(p.stream.script)
}

// ScriptEvents appends deliveries for the next events: each takes one.
func (p *Provider) ScriptEvents(deliveries ...Delivery) {
	p.lock()
	defer p.unlock()
	p.stream.script = append(p.stream.script, deliveries...)
}

// Requests returns every create request in the order of arrival, lost ones
// included.
func (p *Provider) Requests() []Request {
	p.lock()
	defer p.unlock()
	out := slices.Clone(p.requests)
	for i := range out {
		out[i] = out[i].clone()
	}
	return out
}

// Calls counts the requests of an operation: OpCreate, OpGet or OpLookup.
func (p *Provider) Calls(op string) int {
	p.lock()
	defer p.unlock()
	return p.calls[op]
}

// Create serves a request. The error is nil or a *Fault when an answer arrived; it
// is ErrNoReply, ErrUnreadable or the context's own when none did, and then the
// effect may or may not exist.
func (p *Provider) Create(ctx context.Context, req Request) (Object, error) {
	if err := ctx.Err(); err != nil {
		return Object{}, err
	}
	req, step, err := p.arrive(req)
	if err != nil {
		return Object{}, err
	}
	if p.o.OnCreate != nil {
		p.o.OnCreate(req.clone())
	}
	ans, err := p.serve(ctx, req, step)
	if err != nil {
		return Object{}, err
	}
	return reply(ctx, step, ans.object, ans.fault)
}

// arrive notes a request and takes its step.
func (p *Provider) arrive(req Request) (Request, Step, error) {
	if req.Account == "" {
		req.Account = p.o.Account
	}
	req = req.clone()
	if req.Body == nil {
		b, err := req.encode()
		if err != nil {
			return req, Step{}, fmt.Errorf("providertest: encode request: %w", err)
		}
		req.Body = b
	}
	p.lock()
	defer p.unlock()
	req.At = p.now()
	p.requests = append(p.requests, req)
	p.calls[OpCreate]++
	switch {
	case len(p.script) > 0:
		step := p.script[0]
		p.script = p.script[1:]
		return req, step, nil
	case p.o.Choose != nil:
		return req, p.o.Choose(req.clone()), nil
	}
	return req, OK(), nil
}

// serve takes a request up to its answer.
func (p *Provider) serve(ctx context.Context, req Request, step Step) (answer, error) {
	switch {
	case step.lost:
		return answer{}, ErrNoReply
	case step.late.on:
		p.delay(&delayed{req: req, step: step, release: step.late.release, at: step.late.deadline(req.At)})
		if err := step.hang.wait(ctx); err != nil {
			return answer{}, err
		}
		return answer{}, ErrNoReply
	case step.front != nil, step.exists:
		if err := step.before.wait(ctx); err != nil {
			return answer{}, err
		}
		if step.exists {
			return answer{fault: &Fault{Status: 409, Code: CodeAlreadyExists, ExistingID: p.existing(req)}}, nil
		}
		return answer{fault: step.front.clone()}, nil
	}
	run, ans, err := p.enter(ctx, req)
	if err != nil {
		return answer{}, err
	}
	if err := step.before.wait(ctx); err != nil {
		if run != nil {
			p.delay(&delayed{req: req, step: step, run: run, release: step.before.release, at: step.before.deadline(req.At)})
		}
		return answer{}, err
	}
	if ans == nil {
		p.lock()
		a := p.execute(run, req, step, p.now())
		p.unlock()
		ans = &a
	}
	if step.after != nil {
		ans.fault = step.after.clone()
	}
	return *ans, nil
}

// delay leaves a request to land later.
func (p *Provider) delay(d *delayed) {
	p.lock()
	defer p.unlock()
	p.delayed = append(p.delayed, d)
	if d.run != nil { // who waits for it has to watch its release from now on
		d.run.left = d
		close(d.run.changed)
		d.run.changed = make(chan struct{})
	}
}

// reply brings an answer to the caller, or does not.
func reply[T any](ctx context.Context, step Step, v T, f *Fault) (T, error) {
	var none T
	if err := step.hang.wait(ctx); err != nil {
		return none, err
	}
	switch {
	case step.noReply:
		return none, ErrNoReply
	case step.garbled:
		return none, ErrUnreadable
	case f != nil:
		return none, f
	}
	return v, nil
}

// existing is the id of what AlreadyExists names.
func (p *Provider) existing(req Request) string {
	p.lock()
	defer p.unlock()
	if b := p.keys[p.keyID(req)]; b != nil && b.ObjectID != "" {
		return b.ObjectID
	}
	for _, id := range slices.Backward(p.order) {
		r := p.records[id]
		if r.Kind == req.Kind && r.Account == req.Account && r.Reference == req.Reference && r.Reference != "" {
			return id
		}
	}
	return ""
}
