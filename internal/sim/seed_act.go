package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
)

const seedScope = "shop"

// seedOrder is what everybody asks for with an order; variant 1 drifted, 2 differs in what
// does not count.
func seedOrder(order, variant int) scenario.Charge {
	op := scenario.Charge{
		Scope: seedScope, Subject: fmt.Sprintf("order-%d", order), Purpose: "purchase",
		Request: scenario.Payment{Amount: 1999, Currency: "EUR", Invoice: "R-2041"},
	}
	switch variant {
	case 1:
		op.Request.Amount = 1500
	case 2:
		op.Request.Token = "another"
	}
	return op
}

// act makes an action happen.
func (w *seedRun) act(a SeedAction) {
	if w.quiet {
		return
	}
	if a.Do == seedOutage {
		w.outages[a.Call] = seedOut{fault: a.Fault, until: w.now() + a.For}
		w.log("%s", a.what())
		return
	}
	if a.Proc == seedAnybody {
		w.faults = append(w.faults, &a)
		return
	}
	p := w.procs[a.Proc]
	switch a.Do {
	case seedFault, seedHookFails:
		p.faults = append(p.faults, &a)
		return
	case seedStall, seedSuspend:
		p.stall(a.For)
		if a.Do == seedSuspend {
			p.clock.suspend(a.For)
			w.in(a.For, p.clock.resume)
		}
	case seedJump:
		p.clock.jump(a.For)
	case seedRestart:
		p.kill()
		w.in(a.For, func() {
			if !w.quiet {
				w.serial++
				w.procs[a.Proc] = w.start(a.Proc, w.serial, p.clock)
				w.log("p%d starts again", a.Proc)
			}
		})
	case seedWork:
		w.working(a, w.now()+a.For)
	case seedRetain:
		w.retaining(a, w.now()+a.For)
	case seedReverse:
		w.net.reverse(a)
	case seedExecute, seedReplace, seedRegister, seedCancel, seedCompensate, seedResolve, seedReconcile, seedRedrive, seedObserve, seedRefresh,
		seedResolveAll, seedReport:
		w.log("%s", a.what())
		w.ask(p, a)
		return
	case seedOutage: // of everybody, above
	}
	w.log("%s", a.what())
}

// working polls now and every a.Every, until until.
func (w *seedRun) working(a SeedAction, until time.Duration) {
	if w.quiet || w.now() > until {
		return
	}
	w.procs[a.Proc].poll()
	w.in(a.Every, func() { w.working(a, until) })
}

// ask makes a caller, or a person, ask for something in a process.
func (w *seedRun) ask(p *seedProc, a SeedAction) {
	live, found := w.model.live(a.Order)
	intent := seedOrder(a.Order, 0).Intent()
	var do func(context.Context) error // returns what the caller was told
	var check func()
	switch a.Do {
	case seedExecute, seedReplace:
		op := seedOrder(a.Order, a.Arg)
		if a.Do == seedReplace {
			if !found || live.State != settle.StateFailed && live.State != settle.StateCanceled {
				return
			}
			op.Replaces = live.ID
		}
		do = func(ctx context.Context) error {
			out, err := p.charge.Execute(ctx, op)
			check = func() { w.model.told(out, err, op.Request.Amount) }
			return err
		}
	case seedRegister:
		do = func(ctx context.Context) error {
			_, err := p.charge.Register(ctx, seedOrder(a.Order, a.Arg))
			return err
		}
	case seedCancel:
		do = func(ctx context.Context) error { return p.charge.Cancel(ctx, intent, "changed mind") }
	case seedCompensate:
		reason, amount := seedUndo(a.Arg)
		if !found {
			return
		}
		do = func(ctx context.Context) error {
			out, err := p.refund.Compensate(ctx, settle.Effect{Operation: live.ID}, reason, amount)
			check = func() { w.model.told(out, err, 0) }
			return err
		}
	case seedResolve:
		id, d, ok := w.model.decide(a)
		if !ok {
			return
		}
		said := seedSaid{id: seedLast(&w.model.ops[id].last)}
		do = func(ctx context.Context) error {
			_, err := p.engine.Resolve(context.WithValue(ctx, seedSaidKey{}, said), id, d)
			return err
		}
	case seedResolveAll:
		ids, said, d := w.model.decideAll(a)
		do = func(ctx context.Context) (err error) {
			for _, x := range p.engine.ResolveAll(context.WithValue(ctx, seedSaidKey{}, said), ids, d) {
				err = cmp.Or(err, x.Err)
			}
			return err
		}
	case seedReport:
		lines := w.net.report()
		do = func(ctx context.Context) error {
			found, err := p.compare(ctx, lines)
			check = func() {
				for _, f := range found {
					w.model.found(f)
				}
			}
			return err
		}
	case seedReconcile:
		if !found {
			return
		}
		do = func(ctx context.Context) error { _, err := p.engine.Reconcile(ctx, live.ID); return err }
	case seedRedrive:
		if !found {
			return
		}
		do = func(ctx context.Context) error {
			return p.engine.Redrive(ctx, live.ID, settle.By{Actor: "ann", Reason: "mended"})
		}
	case seedObserve:
		if !found {
			return
		}
		ev, ok := w.net.event(live)
		if a.Arg > 0 || !ok {
			ev = settle.Event{Account: live.Account, ID: fmt.Sprintf("evt-%d-%d", a.Order, a.Arg), Type: "charge.changed", Operation: live.ID, Payload: settle.Payload("{}")}
		}
		do = func(ctx context.Context) error { _, err := p.engine.Observe(ctx, ev); return err }
	case seedRefresh:
		if !found {
			return
		}
		do = func(ctx context.Context) error { _, err := p.engine.Refresh(ctx, live.ID); return err }
	case seedFault, seedStall, seedJump, seedSuspend, seedRestart, seedHookFails, seedReverse, seedWork, seedRetain, seedOutage:
		return
	}
	w.work.Go(func() {
		ctx := p.ctx
		if a.For > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.For)
			defer cancel()
		}
		err := do(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.over || p.gone {
			return
		}
		line := fmt.Sprintf("p%d %s order-%d is told: %s", p.slot, a.Do, a.Order, seedVerdict(err))
		w.answers = append(w.answers, seedTold{label: line, then: func() {
			w.log("%s", line)
			if check != nil {
				check()
			}
		}})
		w.nudge()
	})
}

// seedSaidKey holds a seedSaid, the last attempt that a person knew of, by operation: one who reads in the answer of
// the first step that there is another by now does not go on.
type seedSaidKey struct{}

type seedSaid map[string]int

// seedVerdict is what a caller was told, without ids.
func seedVerdict(err error) string {
	var own *settle.Error
	if errors.As(err, &own) {
		return fmt.Sprintf("%v %s %s", own.Err, own.State, own.Code)
	}
	return seedShort(err)
}

// seedUndo is a reason to compensate and how much.
func seedUndo(arg int) (string, scenario.Refund) {
	reason := []string{"returned", "broken"}[arg%2]
	switch arg / 2 {
	case 1:
		return reason, scenario.Refund{Amount: 500, Currency: "EUR"}
	case 2:
		return reason, scenario.Refund{Amount: 1600, Currency: "EUR"}
	}
	return reason, scenario.Refund{}
}

// calm ends the faults: what was late still comes, nothing new goes wrong, and one healthy
// worker that has every kind and hook goes on for as long as there is something to do.
func (w *seedRun) calm() {
	w.log("the faults end")
	w.quiet = true
	for _, p := range w.procs {
		p.faults, p.stalled = nil, w.now()
	}
	w.faults, w.outages = nil, nil
	w.serial++
	healthy := w.start(w.plan.World.Procs, w.serial, &seedClock{w: w})
	w.procs = append(w.procs, healthy)
	w.tend(healthy, 0)
}

// tend polls whenever something is due, until all is settled, or waits for a person and has
// been looked into again.
func (w *seedRun) tend(p *seedProc, polls int) {
	next, rest := w.model.next()
	switch {
	case rest && w.now() > w.plan.World.Horizon+w.plan.World.Promise.ProcessingLimit+4*time.Hour,
		next < 0 && w.now() > w.plan.World.Horizon+time.Hour: // longer than anything that is still on its way
		w.retire(p)
		return
	case next < 0:
		w.in(5*time.Minute, func() { w.tend(p, polls+1) })
		return
	case polls > 3000:
		w.fail("I10: after %d polls something is still to be done: %s", polls, w.model.open())
		return
	}
	w.at(max(next+time.Millisecond, w.now()+100*time.Millisecond), func() {
		p.poll()
		w.in(50*time.Millisecond, func() { w.tend(p, polls+1) })
	})
}
