package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// OpenStore makes an empty store whose clock is that of the synctest bubble in which it is
// called.
type OpenStore func(t testing.TB) settle.Store

// What the requests of every scenario hold and nothing may print (I16).
const (
	secretInvoice = "SECRET-invoice-4711"
	secretToken   = "SECRET-token-4711"
)

// sceneWorld is one provider and one store with the processes that share them.
type sceneWorld struct {
	t        *testing.T
	scene    *Scene
	defect   *crashDefect
	provider *providertest.Provider
	raw      settle.Store // as it is; the oracle reads here
	store    settle.Store // as the processes see it
	reader   *settle.Engine
	parcels  *settle.Executor[providertest.Payment, providertest.Receipt]
	began    time.Time
	plan     func(*sceneCall) Fault // faults of any call, called one at a time; nil: none
	trace    func(line string)      // nil: nobody reads along; called from many goroutines

	mu        sync.Mutex
	procs     map[string]*sceneProc
	order     []string // names of processes
	n         int      // calls so far
	labels    map[string]string
	names     map[string]string // of keys
	claims    map[string]int64  // rows handed out by Store.Claim, which leave no history
	answers   []sceneAnswer
	cleared   map[string]time.Time // when a person recorded that no request had an effect
	events    map[string]*sceneEvent
	doubled   map[string]bool // operations whose effect somebody else repeated
	books     *sceneBooks
	undos     []sceneUndo
	capture   string // the charge that is captured once a lookup has found it
	problems  []string
	log       bytes.Buffer
	downUntil time.Time // the store
	parcelsN  int
	hookBad   int // runs of the hook that still fail
	loose     sync.WaitGroup
}

// sceneAnswer is what came back to the process for one create request.
type sceneAnswer struct {
	req      providertest.Request
	at       time.Time
	harmless bool // the answer says that the request did nothing, and it came
}

// sceneProc is a process: an engine with the kinds "charge", "refund" and "void".
type sceneProc struct {
	w      *sceneWorld
	name   string
	engine *settle.Engine
	charge *settle.Executor[providertest.Payment, providertest.Receipt]
	refund *settle.Executor[providertest.Refund, providertest.Receipt]
	void   *settle.Executor[providertest.Void, providertest.Receipt]
	dead   bool // under w.mu
	faults []*sceneFault
	runs   []chan struct{} // workers that may still work
}

// sceneFault is a fault that a scenario asks for.
type sceneFault struct {
	site   string
	fault  Fault
	always bool
	spent  bool
}

// newSceneWorld is called inside of a bubble.
func newSceneWorld(t *testing.T, s *Scene, open OpenStore, defect *crashDefect) *sceneWorld {
	if defect == nil {
		defect = &crashDefect{}
	}
	keys := s.keys
	if defect.provider != nil {
		defect.provider(&keys)
	}
	w := &sceneWorld{
		t: t, scene: s, defect: defect, provider: providertest.New(&keys), raw: open(t), began: time.Now(),
		procs: map[string]*sceneProc{}, labels: map[string]string{}, claims: map[string]int64{},
		cleared: map[string]time.Time{}, events: map[string]*sceneEvent{}, doubled: map[string]bool{},
	}
	w.store = w.raw
	if defect.store != nil {
		w.store = defect.store(w.raw)
	}
	var err error
	if w.reader, err = settle.Open(w.raw, nil); err != nil {
		t.Fatal(err)
	}
	// Parcels are only ever stored: no worker has their kind.
	w.parcels, err = settle.New(w.reader, "parcel", providertest.ChargeAdapter(w.provider, s.promise), nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// proc returns the process of that name, made at its first mention.
func (w *sceneWorld) proc(name string) *sceneProc {
	w.mu.Lock()
	p := w.procs[name]
	w.mu.Unlock()
	if p != nil {
		return p
	}
	p = &sceneProc{w: w, name: name}
	log := slog.New(slog.NewTextHandler(sceneLog{w}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	// One operation at a time, so that traces are in one order. A worker is told when to look.
	p.engine, err = settle.Open(&sceneStore{p}, &settle.Options{
		Concurrency: 1, PollInterval: 100 * time.Hour, OrphanAfter: 30 * time.Minute, Retention: w.scene.retains, Logger: log,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	promise := w.scene.promise
	if w.defect.promise != nil {
		w.defect.promise(&promise)
	}
	api := providertest.API(&sceneAPI{p})
	charge := providertest.ChargeAdapter(api, promise)
	charge.EventFunc = providertest.ReadEvent(providertest.KindCharge)
	if w.defect.adapter != nil {
		w.defect.adapter(&charge, api)
	}
	opts := &settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{}
	if w.scene.hook {
		opts.OnSuccess = p.ship
	}
	if p.charge, err = settle.New(p.engine, "charge", charge, opts); err != nil {
		w.t.Fatal(err)
	}
	refund := providertest.RefundAdapter(api, promise)
	refund.EventFunc = providertest.ReadEvent(providertest.KindRefund)
	ro := &settle.ExecutorOptions[providertest.Refund, providertest.Receipt]{Undoes: "charge"}
	if p.refund, err = settle.New(p.engine, "refund", refund, ro); err != nil {
		w.t.Fatal(err)
	}
	void := providertest.VoidAdapter(api, promise)
	void.EventFunc = providertest.ReadEvent(providertest.KindVoid)
	p.void, err = settle.New(p.engine, "void", void, &settle.ExecutorOptions[providertest.Void, providertest.Receipt]{Undoes: "charge"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.procs[name] = p
	w.order = append(w.order, name)
	return p
}

// ship is the hook: it stores a parcel, another one on each run that commits.
func (p *sceneProc) ship(ctx context.Context, tx settle.Tx, out settle.Outcome[providertest.Receipt]) error {
	w := p.w
	_, err := sceneThrough(p, &sceneCall{Site: siteHook, kind: sceneHook}, func() (string, error) {
		w.mu.Lock()
		w.parcelsN++
		n, bad := w.parcelsN, w.hookBad > 0
		if bad {
			w.hookBad--
		}
		w.mu.Unlock()
		_, err := w.parcels.RegisterTx(ctx, tx, settle.Operation[providertest.Payment]{
			Scope: out.Scope, Subject: out.ID, Purpose: fmt.Sprintf("run-%d", n), Request: providertest.Payment{Amount: 1, Currency: "EUR"},
		})
		if err == nil && bad {
			err = errSceneHook
		}
		return "parcel for " + w.label(out.ID), err
	})
	return err
}

// run plays the steps. strict: a step that cannot be done, or an expectation that does not
// hold, is a problem; without it the script goes on as well as it can after a fault.
func (w *sceneWorld) run(strict bool, before func(line string)) {
	for _, line := range w.scene.lines {
		if before != nil {
			before(line)
		}
		if err := w.step(line); err != nil && strict {
			w.problem("%q: %v", line, err)
		}
		synctest.Wait()
	}
}

// close ends the processes and waits for what they still do.
func (w *sceneWorld) close() {
	w.mu.Lock()
	order := slices.Clone(w.order)
	w.mu.Unlock()
	w.loose.Wait()
	for _, name := range order {
		p := w.procs[name]
		for _, done := range p.runs {
			<-done
		}
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
		if err := p.engine.Drain(ctx); err != nil {
			w.problem("process %s does not drain: %v", name, err)
		}
		cancel()
	}
}

// anyDue reports whether a worker that asks now is handed something.
func (w *sceneWorld) anyDue(kinds []string) bool {
	recs, err := w.raw.List(context.Background(), settle.Query{})
	return err != nil || slices.ContainsFunc(recs, func(r settle.Record) bool {
		return slices.Contains(kinds, r.Kind) && !r.Due.IsZero() && !r.Due.After(r.AsOf)
	})
}

func (w *sceneWorld) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// say adds a line to the trace.
func (w *sceneWorld) say(who, format string, args ...any) {
	if w.trace == nil {
		return
	}
	at := time.Since(w.began).Truncate(time.Millisecond).String()
	w.trace(fmt.Sprintf("%8s  %s  %s", at, who, fmt.Sprintf(format, args...)))
}

// label is the short name of an operation: op1 for the first that is mentioned, and so on.
func (w *sceneWorld) label(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id == "" {
		return ""
	}
	if w.labels[id] == "" {
		what, n := "op", 1
		if strings.HasPrefix(id, "ev_") {
			what = "event"
		}
		for _, l := range w.labels {
			if strings.HasPrefix(l, what) {
				n++
			}
		}
		w.labels[id] = fmt.Sprintf("%s%d", what, n)
		if id == settle.RetentionKind {
			w.labels[id] = "place"
		}
	}
	return w.labels[id]
}

// id is the operation with a short name.
func (w *sceneWorld) id(label string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, l := range w.labels {
		if l == label {
			return id, nil
		}
	}
	return "", fmt.Errorf("no operation %s", label)
}

func (p *sceneProc) alive() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return !p.dead
}

func (p *sceneProc) die() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.dead = true
}

// sceneLog keeps what engines log.
type sceneLog struct{ w *sceneWorld }

func (l sceneLog) Write(b []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.log.Write(b)
}

var (
	errSceneBroken = errors.New("sim: connection broken")
	errSceneGone   = errors.New("sim: the process is gone")
	errSceneHook   = errors.New("sim: the hook fails")
)
