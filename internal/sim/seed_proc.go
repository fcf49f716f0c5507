package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/providertest"
)

// seedProc is one process: an engine with the kinds "charge" and "refund".
type seedProc struct {
	w       *seedRun
	slot    int
	serial  int // unique
	engine  *settle.Engine
	charge  *settle.Executor[scenario.Payment, scenario.Receipt]
	refund  *settle.Executor[scenario.Refund, scenario.Receipt]
	clock   *seedClock
	stalled time.Duration // until then nothing gets in or out
	calls   int
	faults  []*SeedAction // that wait for their call, oldest first
	cancel  context.CancelFunc
	ctx     context.Context

	gone    bool        // guarded by seedRun.mu
	pending []*seedCall // likewise
}

// start makes the process of a slot.
func (w *seedRun) start(slot, serial int, clock *seedClock) *seedProc {
	p := &seedProc{w: w, slot: slot, serial: serial, clock: clock}
	p.ctx, p.cancel = context.WithCancel(w.ctx)
	o := w.plan.World.Options
	o.Clock = p.clock
	o.PollInterval = time.Nanosecond // the plan says when workers poll
	var err error
	if p.engine, err = settle.Open(p.view(), &o); err != nil {
		panic(err)
	}
	api := &seedAPI{p: p}
	promise := w.plan.Defect.promise(w.plan.World.Promise)
	co := &settle.ExecutorOptions[scenario.Payment, scenario.Receipt]{}
	if slot >= w.plan.World.Procs || w.plan.World.Hooks[slot] {
		co.OnSuccess = p.hook
	}
	if p.charge, err = settle.New(p.engine, "charge", seedAdapt(w, providertest.ChargeAdapter(api, promise)), co); err != nil {
		panic(err)
	}
	ro := &settle.ExecutorOptions[scenario.Refund, scenario.Receipt]{Undoes: "charge"}
	if p.refund, err = settle.New(p.engine, "refund", seedAdapt(w, providertest.RefundAdapter(api, promise)), ro); err != nil {
		panic(err)
	}
	w.all = append(w.all, p)
	return p
}

// hook is the application's: what it does counts if its transaction commits.
func (p *seedProc) hook(ctx context.Context, tx settle.Tx, out settle.Outcome[scenario.Receipt]) error {
	for i, f := range p.faults {
		if f.Do == seedHookFails {
			p.faults = slices.Delete(p.faults, i, i+1)
			if f.Arg == 1 {
				panic("sim: the hook panics")
			}
			return errSeedBroken
		}
	}
	p.w.parcels++
	n := fmt.Sprintf("parcel-%d", p.w.parcels)
	_, err := tx.Commit(ctx, settle.Change{ID: n, Writes: []settle.Write{{
		Record: settle.Record{ID: n, Scope: seedScope, Kind: seedParcel, Subject: out.ID, Purpose: n}, DueIn: settle.Never,
	}}})
	return err
}

// seedParcel is the kind of what hooks write.
const seedParcel = "parcel"

// kill ends the process: what it has sent is under way, and nothing answers it any more.
func (p *seedProc) kill() {
	p.w.mu.Lock()
	p.gone = true
	pending := p.pending
	p.pending = nil
	p.w.mu.Unlock()
	for _, c := range pending {
		c.give(seedAnswer{err: errSeedGone})
	}
	p.cancel()
}

func (p *seedProc) settled(c *seedCall) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.pending = slices.DeleteFunc(p.pending, func(x *seedCall) bool { return x == c })
}

// stall lets nothing in or out of the process for d.
func (p *seedProc) stall(d time.Duration) { p.stalled = max(p.stalled, p.w.now()+d) }

// fault takes the oldest fault that waits for such a call.
func (p *seedProc) fault(kind string) SeedAction {
	for _, list := range []*[]*SeedAction{&p.faults, &p.w.faults} {
		for i, f := range *list {
			if f.Do == seedFault && f.Call == kind {
				*list = slices.Delete(*list, i, i+1)
				return *f
			}
		}
	}
	if out := p.w.outages[kind]; out.until > p.w.now() {
		c := p.w.plan.World.Promise
		return SeedAction{Fault: out.fault, For: p.w.span(0, (c.Deadline+c.SettleDelay)*9/10, p.serial, p.calls, 9)}
	}
	return SeedAction{}
}

// poll lets the process's worker claim once, and work what it gets. A Run polls by a
// timer with jitter, which would be chance: each poll gets a Run of its own, which ends
// after its first claim.
func (p *seedProc) poll() { p.run(&seedTick{}) }

func (p *seedProc) run(tick *seedTick) {
	ctx, cancel := context.WithCancel(context.WithValue(p.ctx, seedTickKey{}, tick))
	tick.ctx, tick.cancel = ctx, cancel
	p.w.work.Go(func() {
		defer cancel()
		if err := p.engine.Run(ctx); err != nil {
			p.w.fail("Run: %v", err)
		}
	})
}

type seedTickKey struct{}

// seedTick is the one poll of a Run.
type seedTick struct {
	used    bool            // by the one goroutine that makes such claims
	retains bool            // it looks for what is old and works nothing
	ctx     context.Context // of the Run
	cancel  context.CancelFunc
}

// seedClock is the clock of a host: its wall clock may be set; its monotonic one stands
// still while the host is suspended.
type seedClock struct {
	w      *seedRun
	mu     sync.Mutex
	wall   time.Duration // against the truth
	asleep time.Duration // how long the monotonic clock stood still
	since  time.Time     // when it stopped; zero: it runs
	until  time.Time
	back   time.Time // when the wall clock was last put back
}

// apart is how far suspensions lie from a wall clock that is put back. Of both at once, within one lease, neither clock shows a
// trace, and no rule of a process can: what holds then is the store's lease and the provider's key.
const apart = time.Hour

// Now implements settle.Clock.
func (c *seedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	mono := now
	if !c.since.IsZero() {
		mono = c.since
	}
	return scenario.Forge(c.w.t, now.Add(c.wall), mono.Sub(c.w.began)-c.asleep+24*time.Hour)
}

func (c *seedClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); d < 0 {
		if !c.since.IsZero() || now.Sub(c.until) < apart {
			return
		}
		c.back = now
	}
	c.wall += d
}

// suspend stops the monotonic clock for d.
func (c *seedClock) suspend(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.back.IsZero() && now.Sub(c.back) < apart {
		return
	}
	if c.since.IsZero() {
		c.since = now
	}
	if end := now.Add(d); end.After(c.until) {
		c.until = end
	}
}

// resume lets it go on if its suspension is over.
func (c *seedClock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.since.IsZero() || c.until.After(now) {
		return
	}
	c.asleep += now.Sub(c.since)
	c.since = time.Time{}
}
