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

// The types that every scenario uses.
type (
	// Payment is what a charge asks for.
	Payment = providertest.Payment
	// Refund is what a refund asks for.
	Refund = providertest.Refund
	// Receipt is what both get.
	Receipt = providertest.Receipt
	// Charge is an operation of the kind "charge".
	Charge = settle.Operation[Payment]
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
	crashes []<-chan error // what dead processes reported
	events  int
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

// poll is how often a worker looks in a trace that plays many variants of a long time: less often
// where each look is a round trip.
func (l *Lab) poll() time.Duration {
	if s, ok := l.Store.(settle.Local); ok && s.LocalReads() {
		return settle.DefaultPollInterval
	}
	return 10 * time.Second
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
	return l.Matching(settle.Query{Kind: kind})
}

// Matching lists the records that a query selects.
func (l *Lab) Matching(q settle.Query) []settle.Record {
	l.T.Helper()
	var out []settle.Record
	for r, err := range l.reader.List(context.Background(), q) {
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
	ends := func(r settle.Record) bool { return r.State.Settled() || r.State == settle.StateReview }
	if step := within / 200; l.poll() > time.Second && step > time.Second {
		return l.stepping(id, within, step, ends) // it stays so, and each look is a round trip
	}
	return l.Until(id, within, ends)
}

// Until lets time pass until the operation is as wanted, and returns it.
func (l *Lab) Until(id string, within time.Duration, wanted func(settle.Record) bool) settle.Record {
	l.T.Helper()
	step := time.Second
	if within > 30*time.Minute {
		step = within / 400 // a read each, which is a round trip on a server
	}
	return l.stepping(id, within, step, wanted)
}

// stepping looks at an operation every step.
func (l *Lab) stepping(id string, within, step time.Duration, wanted func(settle.Record) bool) settle.Record {
	l.T.Helper()
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

// wantErr checks an error by its sentinel.
func (l *Lab) wantErr(err, want error) {
	l.T.Helper()
	if !errors.Is(err, want) {
		l.T.Fatalf("error %v, want %v", err, want)
	}
}

// wantID checks that an error names an operation.
func (l *Lab) wantID(err error, id string) {
	l.T.Helper()
	var own *settle.Error
	if !errors.As(err, &own) || own.ID != id {
		l.T.Fatalf("error %v, want one that names %s", err, id)
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
