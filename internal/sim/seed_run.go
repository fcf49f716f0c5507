package sim

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

// SeedResult is what a run found.
type SeedResult struct {
	Plan    *SeedPlan
	Broken  string   // which invariant does not hold, and how; empty: all do
	Trace   []string // every call, answer and transition, if asked for
	Events  int      // calls, answers and actions
	Pruned  int      // records whose request and result were removed
	Elapsed time.Duration
	States  map[settle.State]int // how the operations ended
}

// Hash is the trace in eight bytes.
func (r *SeedResult) Hash() uint64 {
	h := fnv.New64a()
	for _, l := range r.Trace {
		_, _ = h.Write([]byte(l + "\n"))
	}
	return h.Sum64()
}

// SeedPlay plays a plan in a bubble of its own.
func SeedPlay(t *testing.T, plan *SeedPlan, trace bool) *SeedResult {
	t.Helper()
	out := &SeedResult{Plan: plan}
	synctest.Test(t, func(t *testing.T) {
		w := newSeedRun(t, plan, out, trace)
		w.play()
	})
	return out
}

// seedRun is one run. Its processes are goroutines that really run; each of their calls
// to the store or the provider waits for its turn, and only one thing happens at a time:
// when nothing can run any more, the scheduler makes the next thing happen. So a run does not depend on
// how goroutines are scheduled.
type seedRun struct {
	t        *testing.T
	plan     *SeedPlan
	out      *SeedResult
	trace    bool
	began    time.Time
	truth    *memstore.Store // what is really stored
	store    settle.Store    // what processes call: the truth, or a store with a defect
	provider *providertest.Provider
	work     sync.WaitGroup // callers and workers
	ctx      context.Context
	cancel   context.CancelFunc
	kick     chan struct{} // something waits for its turn

	mu       sync.Mutex
	arrivals []*seedCall
	answers  []seedTold
	tries    map[string]int // to commit a change
	broken   string
	over     bool

	// Touched by the scheduler only.
	queue   seedQueue
	events  int
	parcels int
	procs   []*seedProc        // by slot
	all     []*seedProc        // dead ones too
	faults  []*SeedAction      // that wait for a call of anybody
	outages map[string]seedOut // by call
	serial  int                // of the last process
	quiet   bool               // no faults any more
	model   *seedModel
	net     *seedNet
}

// seedTold is something that a goroutine outside of the scheduler has learned.
type seedTold struct {
	label string
	then  func()
}

// seedOut is a fault that lasts.
type seedOut struct {
	fault string
	until time.Duration
}

// seedEvent is something that happens at a time.
type seedEvent struct {
	at time.Duration
	n  int
	do func()
}

type seedQueue []*seedEvent

func (q seedQueue) Len() int { return len(q) }
func (q seedQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q seedQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *seedQueue) Push(x any)   { *q = append(*q, x.(*seedEvent)) }
func (q *seedQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

func newSeedRun(t *testing.T, plan *SeedPlan, out *SeedResult, trace bool) *seedRun {
	w := &seedRun{
		t: t, plan: plan, out: out, trace: trace, began: time.Now(), truth: memstore.New(nil),
		kick: make(chan struct{}, 1), tries: map[string]int{}, outages: map[string]seedOut{}, serial: 100,
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.store = plan.Defect.store(w.truth)
	w.model = newSeedModel(w)
	w.net = newSeedNet(w)
	return w
}

// play runs the plan to its end.
func (w *seedRun) play() {
	for i := range w.plan.World.Procs {
		w.procs = append(w.procs, w.start(i, i, &seedClock{w: w}))
	}
	for _, a := range w.plan.Actions {
		w.at(a.At, func() { w.act(a) })
	}
	w.at(w.plan.World.Horizon, w.calm)
	func() {
		defer func() {
			if p := recover(); p != nil {
				w.fail("panic: %v\n%s", p, debug.Stack())
			}
		}()
		w.loop()
		if !w.failed() {
			w.model.final()
		}
	}()
	w.end()
	w.out.Elapsed = time.Since(w.began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out.Broken = w.broken
}

// loop makes things happen, one at a time, until nothing is left to happen.
func (w *seedRun) loop() {
	for {
		synctest.Wait()
		w.admit()
		if len(w.queue) == 0 || w.failed() {
			return
		}
		if left := w.queue[0].at - w.now(); left > 0 {
			timer := time.NewTimer(left)
			select {
			case <-timer.C:
			case <-w.kick:
			}
			timer.Stop()
			continue
		}
		heap.Pop(&w.queue).(*seedEvent).do()
		if w.events++; w.events > 300_000 {
			w.fail("I10: no end after %d events", w.events)
		}
	}
}

// end lets every goroutine of the run go: whatever it calls, nobody answers.
func (w *seedRun) end() {
	w.mu.Lock()
	w.over = true
	for _, c := range w.arrivals {
		c.give(seedAnswer{err: errSeedGone})
	}
	w.mu.Unlock()
	for _, p := range w.all {
		p.kill()
	}
	w.cancel()
	w.work.Wait()
	for _, p := range w.all { // what goes on behind callers' backs
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
		if err := p.engine.Drain(ctx); err != nil {
			w.fail("a process does not drain: %v", err)
		}
		cancel()
	}
}

func (w *seedRun) now() time.Duration { return time.Since(w.began) }

// at makes do happen at a time.
func (w *seedRun) at(t time.Duration, do func()) {
	w.out.Events++
	heap.Push(&w.queue, &seedEvent{at: t, n: w.out.Events, do: do})
}

// in makes do happen after a time.
func (w *seedRun) in(d time.Duration, do func()) { w.at(w.now()+d, do) }

// fail notes the first invariant that does not hold.
func (w *seedRun) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == "" {
		w.broken = fmt.Sprintf("at %v: ", w.now()) + fmt.Sprintf(format, args...)
	}
}

func (w *seedRun) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken != ""
}

// log adds a line to the trace.
func (w *seedRun) log(format string, args ...any) {
	if w.trace {
		w.out.Trace = append(w.out.Trace, fmt.Sprintf("%14s ", w.now())+fmt.Sprintf(format, args...))
	}
}

// noise is a number that depends on the seed and what it is for, and on nothing else.
func (w *seedRun) noise(parts ...int) uint64 {
	x := w.plan.Seed
	for _, p := range parts {
		x = seedMix(x + uint64(p)*0x9e3779b97f4a7c15)
	}
	return x
}

// span is noise as a duration in [a, b).
func (w *seedRun) span(a, b time.Duration, parts ...int) time.Duration {
	return a + time.Duration(w.noise(parts...)%uint64(b-a))
}

// seedMix is the mixing step of splitmix64.
func seedMix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// errSeedGone is what a dead process gets, errSeedBroken one whose call was lost.
var (
	errSeedGone   = errors.New("sim: the process is gone")
	errSeedBroken = errors.New("sim: connection broken")
)

// seedCall is a call of a process that waits for its turn.
type seedCall struct {
	p     *seedProc
	kind  string        // seedCommit, …
	label func() string // tells calls apart that arrive together
	begin func(*seedCall)
	n     int // of the process's calls
	done  chan seedAnswer
	left  bool // the caller has given up; guarded by seedRun.mu
}

type seedAnswer struct {
	v   any
	err error
}

func (c *seedCall) give(a seedAnswer) {
	select {
	case c.done <- a:
	default:
	}
}

// call has begin called by the scheduler, and waits for the answer as long as ctx lets it.
func (w *seedRun) call(ctx context.Context, c *seedCall) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.done = make(chan seedAnswer, 1)
	w.mu.Lock()
	if w.over || c.p.gone {
		w.mu.Unlock()
		return nil, errSeedGone
	}
	w.arrivals = append(w.arrivals, c)
	c.p.pending = append(c.p.pending, c)
	w.mu.Unlock()
	w.nudge()
	select {
	case a := <-c.done:
		return a.v, a.err
	case <-ctx.Done():
		w.mu.Lock()
		c.left = true
		w.mu.Unlock()
		return nil, ctx.Err()
	}
}

func (w *seedRun) nudge() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// admit takes what has arrived since the last event, in an order that does not depend on
// how goroutines were scheduled.
func (w *seedRun) admit() {
	w.mu.Lock()
	calls, told := w.arrivals, w.answers
	w.arrivals, w.answers = nil, nil
	w.mu.Unlock()
	slices.SortStableFunc(told, func(a, b seedTold) int { return strings.Compare(a.label, b.label) })
	for _, x := range told {
		x.then()
	}
	if len(calls) > 1 {
		slices.SortStableFunc(calls, func(a, b *seedCall) int {
			return cmp.Or(a.p.serial-b.p.serial, strings.Compare(a.kind, b.kind), strings.Compare(a.label(), b.label()))
		})
	}
	for _, c := range calls {
		c.p.calls++
		c.n = c.p.calls
		c.begin(c)
	}
}

// deliver hands the answer of c out after d, later if the process is stalled then.
func (w *seedRun) deliver(c *seedCall, d time.Duration, a seedAnswer) {
	w.in(d, func() {
		if until := c.p.stalled; until > w.now() {
			w.deliver(c, until-w.now(), a)
			return
		}
		c.p.settled(c)
		c.give(a)
	})
}
