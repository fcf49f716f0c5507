package scenario

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// Names for the types that every scenario uses.
type (
	Payment = providertest.Payment
	Refund  = providertest.Refund
	Receipt = providertest.Receipt
	Charge  = settle.Operation[Payment]
)

// Lab is one provider and one store with the processes that share them, inside a
// synctest bubble.
type Lab struct {
	T        *testing.T
	Ctx      context.Context
	Store    settle.Store // without faults
	Provider *providertest.Provider
	Promise  settle.Contract // what a process believes of the provider unless told otherwise
	Began    time.Time
	// Lies: the provider gave false evidence on purpose, or stopped answering for good: the final
	// comparison of states with its ledger is left out.
	Lies bool

	reader  *settle.Engine
	mu      sync.Mutex
	procs   []*Process
	gates   []*Gate
	crashes []<-chan error   // what dead processes reported
	claims  map[string]int64 // rows handed out by Store.Claim, which leave no history
}

// Play opens a bubble with a lab and plays trace in it, then holds what is stored
// against the provider's ledger.
func Play(t *testing.T, open Open, po *providertest.Options, trace func(t *testing.T, l *Lab)) {
	synctest.Test(t, func(t *testing.T) {
		if po == nil {
			po = &providertest.Options{KeyWindow: 24 * time.Hour}
		}
		l := &Lab{
			T: t, Ctx: t.Context(), Store: open(t), Provider: providertest.New(po), Promise: providertest.Promise(po),
			Began: time.Now(), claims: map[string]int64{},
		}
		var err error
		if l.reader, err = settle.Open(l.Store, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.close)
		trace(t, l)
		l.close()
		if !t.Failed() {
			l.check()
		}
	})
}

// close ends the processes and waits for what they still do.
func (l *Lab) close() {
	l.mu.Lock()
	procs, gates, crashes := slices.Clone(l.procs), slices.Clone(l.gates), l.crashes
	l.crashes = nil
	l.mu.Unlock()
	for _, g := range gates {
		g.Open()
	}
	for _, c := range crashes {
		if err := <-c; err == nil {
			l.T.Error("a dead process reports success")
		}
	}
	for _, p := range procs {
		p.Stop()
	}
	for _, p := range procs {
		// A drain without end would hang the bubble instead of failing the test.
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
		if err := p.Engine.Drain(ctx); err != nil {
			l.T.Errorf("the engine does not drain: %v", err)
		}
		cancel()
	}
}

func (l *Lab) noteClaims(recs []settle.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range recs {
		l.claims[r.ID]++
	}
}

// Setup says how a process differs from the ordinary one.
type Setup struct {
	Options settle.Options
	Promise *settle.Contract
	Charge  *settle.ExecutorOptions[Payment, Receipt]
	Refund  *settle.ExecutorOptions[Refund, Receipt]
	Adapter func(*settle.Adapter[Payment, Receipt]) // changes the charge adapter
	API     func(providertest.API) providertest.API // wraps the provider
	Plan    Plan
}

// Process is an engine with the kinds "charge" and "refund".
type Process struct {
	Engine  *settle.Engine
	Charge  *settle.Executor[Payment, Receipt]
	Refund  *settle.Executor[Refund, Receipt]
	API     providertest.API // the provider as this process sees it
	lab     *Lab
	f       *faults
	notices recorder
	cancel  context.CancelFunc
	done    chan struct{}
}

// Start makes a process; nil is an ordinary one. Its worker does not run yet.
func (l *Lab) Start(s *Setup) *Process {
	l.T.Helper()
	if s == nil {
		s = &Setup{}
	}
	p := &Process{lab: l, f: &faults{plan: s.Plan}}
	o := s.Options
	p.notices.next = o.Observer
	o.Observer = &p.notices
	var err error
	if p.Engine, err = settle.Open(&store{inner: l.Store, f: p.f, lab: l}, &o); err != nil {
		l.T.Fatal(err)
	}
	inner := providertest.API(l.Provider)
	if s.API != nil {
		inner = s.API(inner)
	}
	p.API = &api{inner: inner, f: p.f}
	promise := l.Promise
	if s.Promise != nil {
		promise = *s.Promise
	}
	adapter := providertest.ChargeAdapter(p.API, promise)
	if s.Adapter != nil {
		s.Adapter(&adapter)
	}
	if p.Charge, err = settle.New(p.Engine, "charge", adapter, s.Charge); err != nil {
		l.T.Fatal(err)
	}
	ro := settle.ExecutorOptions[Refund, Receipt]{}
	if s.Refund != nil {
		ro = *s.Refund
	}
	ro.Undoes = "charge"
	if p.Refund, err = settle.New(p.Engine, "refund", providertest.RefundAdapter(p.API, promise), &ro); err != nil {
		l.T.Fatal(err)
	}
	l.mu.Lock()
	l.procs = append(l.procs, p)
	l.mu.Unlock()
	return p
}

// Work starts the process's worker.
func (p *Process) Work() *Process {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.done = cancel, make(chan struct{})
	go func() {
		defer close(p.done)
		if err := p.Engine.Run(ctx); err != nil {
			p.lab.T.Errorf("Run: %v", err)
		}
	}()
	return p
}

// Stop ends the worker and waits for the work that it has begun.
func (p *Process) Stop() {
	if p.cancel == nil {
		return
	}
	p.cancel()
	<-p.done
	p.cancel = nil
}

// Kill ends the process as a crash does: nothing that it still does reaches anybody.
func (p *Process) Kill() {
	p.f.kill()
	if p.cancel != nil {
		p.cancel() // its loop would otherwise poll a dead store for the rest of the test
	}
}

// Faults changes the plan of a running process.
func (p *Process) Faults(plan Plan) { p.f.set(plan) }

// Hits is how many calls met a fault.
func (p *Process) Hits() int {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.f.hits
}

// Notices lists what this process has told its observer, in order.
func (p *Process) Notices() []settle.Notice { return p.notices.all() }

// Applied lists the changes that this process has committed.
func (p *Process) Applied() []settle.Change {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return slices.Clone(p.f.done)
}

// Alarms lists the alarms that this process has raised, in order.
func (p *Process) Alarms() []string {
	var out []string
	for _, n := range p.notices.all() {
		out = append(out, n.Alarms...)
	}
	return out
}

// recorder keeps notices.
type recorder struct {
	mu   sync.Mutex
	seen []settle.Notice
	next settle.Observer
}

func (o *recorder) Notice(ctx context.Context, n settle.Notice) {
	if o.next != nil {
		o.next.Notice(ctx, n)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, n)
}

func (o *recorder) all() []settle.Notice {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

// Order is the operation that most scenarios are about.
func Order() Charge {
	return Charge{
		Scope: "shop", Subject: "order-17", Purpose: "purchase",
		Request: Payment{Amount: 1999, Currency: "EUR", Invoice: "R-2041"},
	}
}

// Elapse lets time pass and everything settle that is due until then.
func (l *Lab) Elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// At lets time pass until d after the lab was opened.
func (l *Lab) At(d time.Duration) {
	l.T.Helper()
	if left := d - time.Since(l.Began); left >= 0 {
		l.Elapse(left)
		return
	}
	l.T.Fatalf("it is %v already, not yet %v", time.Since(l.Began), d)
}

// Get reads an operation as it is now.
func (l *Lab) Get(id string) settle.Record {
	l.T.Helper()
	r, err := l.reader.Get(context.Background(), id)
	if err != nil {
		l.T.Fatal(err)
	}
	return r
}

// Only is the one charge that exists.
func (l *Lab) Only() settle.Record {
	l.T.Helper()
	recs := l.All("charge")
	if len(recs) != 1 {
		l.T.Fatalf("%d charges stored, want 1", len(recs))
	}
	return recs[0]
}

// All lists the operations of a kind.
func (l *Lab) All(kind string) []settle.Record {
	l.T.Helper()
	var out []settle.Record
	for r, err := range l.reader.List(context.Background(), settle.Query{Kind: kind}) {
		if err != nil {
			l.T.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// History reads an operation's history.
func (l *Lab) History(id string) []settle.Entry {
	l.T.Helper()
	var out []settle.Entry
	for x, err := range l.reader.History(context.Background(), id) {
		if err != nil {
			l.T.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

// Rest lets time pass until the operation is settled or in review, and returns it.
func (l *Lab) Rest(id string, within time.Duration) settle.Record {
	l.T.Helper()
	return l.Until(id, within, func(r settle.Record) bool { return r.State.Settled() || r.State == settle.StateReview })
}

// Until lets time pass until the operation is as wanted, and returns it.
func (l *Lab) Until(id string, within time.Duration, wanted func(settle.Record) bool) settle.Record {
	l.T.Helper()
	step := max(time.Second, within/2000)
	for end := time.Now().Add(within); ; {
		synctest.Wait()
		r := l.Get(id)
		if wanted(r) {
			return r
		}
		if !time.Now().Before(end) {
			l.T.Fatalf("after %v it is still %s; %s", within, r.State, l.story(id))
		}
		time.Sleep(step)
	}
}

// Want checks a state.
func (l *Lab) Want(r settle.Record, s settle.State) {
	l.T.Helper()
	if r.State != s {
		l.T.Fatalf("it is %s, want %s; %s", r.State, s, l.story(r.ID))
	}
}

// Reconcile has p look into an operation now.
func (p *Process) Reconcile(id string) settle.Record {
	p.lab.T.Helper()
	r, err := p.Engine.Reconcile(p.lab.Ctx, id)
	if err != nil {
		p.lab.T.Fatalf("Reconcile: %v", err)
	}
	return r
}

// wantErr checks an error by its sentinel.
func (l *Lab) wantErr(err, want error) {
	l.T.Helper()
	if !errors.Is(err, want) {
		l.T.Fatalf("error %v, want %v", err, want)
	}
}

func (l *Lab) noErr(err error) {
	l.T.Helper()
	if err != nil {
		l.T.Fatal(err)
	}
}

// Requests checks how many create requests have arrived.
func (l *Lab) Requests(want int) []providertest.Request {
	l.T.Helper()
	got := l.Provider.Requests()
	if len(got) != want {
		l.T.Fatalf("%d requests have arrived, want %d", len(got), want)
	}
	return got
}

// Effects checks how often the operation had its effect.
func (l *Lab) Effects(id string, want int) {
	l.T.Helper()
	if got := l.Provider.Effects(id); got != want {
		l.T.Fatalf("%d effects, want %d; %s", got, want, l.story(id))
	}
}

// Asked is how many lookups have arrived.
func (l *Lab) Asked() int {
	return l.Provider.Calls(providertest.OpGet) + l.Provider.Calls(providertest.OpLookup)
}

// crash has a process execute op and die as soon as its request has arrived; it returns
// the record that it left behind.
func (l *Lab) crash(s Setup, op Charge, steps ...providertest.Step) settle.Record {
	l.T.Helper()
	l.Provider.Script(steps...)
	s.Plan = Nth(OpCreate, 1, Fault{Kill: true, After: errGone})
	p := l.Start(&s)
	done := make(chan error, 1)
	go func() {
		_, err := p.Charge.Execute(context.Background(), op)
		done <- err
	}()
	synctest.Wait()
	p.Kill()
	l.mu.Lock()
	l.crashes = append(l.crashes, done)
	l.mu.Unlock()
	l.Requests(1)
	return l.Only()
}

// Gate is a channel that opens once, at the latest when the lab is closed: a request
// that waits at it cannot outlive a test that has failed.
type Gate struct {
	C    chan struct{}
	once sync.Once
}

// Gate makes a closed one.
func (l *Lab) Gate() *Gate {
	g := &Gate{C: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gates = append(l.gates, g)
	return g
}

// Open lets everything pass.
func (g *Gate) Open() { g.once.Do(func() { close(g.C) }) }

// contract returns the lab's contract changed.
func (l *Lab) contract(change func(*settle.Contract)) *settle.Contract {
	c := l.Promise
	change(&c)
	return &c
}

func noLookup(c *settle.Contract) { c.Lookup, c.LookupLag = settle.NoLookup, 0 }
