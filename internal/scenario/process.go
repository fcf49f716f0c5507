package scenario

import (
	"context"
	"slices"
	"sync"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// Setup says how a process differs from the ordinary one.
type Setup struct {
	Options settle.Options
	Promise *settle.Contract
	Charge  *settle.ExecutorOptions[Payment, Receipt]
	Refund  *settle.ExecutorOptions[Refund, Receipt]
	Adapter func(*settle.Adapter[Payment, Receipt]) // changes the charge adapter
	API     func(providertest.API) providertest.API // wraps the provider
	Plan    Plan
	NoVoid  bool // the kind "void" is not made
}

// Process is an engine with the kinds "charge", "refund" and "void".
type Process struct {
	Engine  *settle.Engine
	Charge  *settle.Executor[Payment, Receipt]
	Refund  *settle.Executor[Refund, Receipt]
	Void    *settle.Executor[providertest.Void, Receipt]
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
	if p.Engine, err = settle.Open(p.f.store(l), &o); err != nil {
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
	adapter.EventFunc = listens("charge")
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
	refund := providertest.RefundAdapter(p.API, promise)
	refund.EventFunc = listens("refund")
	if p.Refund, err = settle.New(p.Engine, "refund", refund, &ro); err != nil {
		l.T.Fatal(err)
	}
	if !s.NoVoid {
		void := providertest.VoidAdapter(p.API, promise)
		void.EventFunc = listens("void")
		p.Void, err = settle.New(p.Engine, "void", void, &settle.ExecutorOptions[providertest.Void, Receipt]{Undoes: "charge"})
		if err != nil {
			l.T.Fatal(err)
		}
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

// Reconcile has p look into an operation now.
func (p *Process) Reconcile(id string) settle.Record {
	p.lab.T.Helper()
	r, err := p.Engine.Reconcile(p.lab.Ctx, id)
	if err != nil {
		p.lab.T.Fatalf("Reconcile: %v", err)
	}
	return r
}
