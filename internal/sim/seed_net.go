package sim

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/providertest"
)

// seedNet is what lies between the processes and the provider, and knows what is on its way.
type seedNet struct {
	w    *seedRun
	sent map[string][]*seedRequest // by operation
}

// seedRequest is one request, from when it leaves until its effect can no longer come.
type seedRequest struct {
	req     providertest.Request
	attempt int
	left    time.Duration
	arrived time.Duration // negative: not yet
	served  bool          // it reached what executes requests, not only the front door
	over    bool          // nothing can come of it any more
	void    bool          // a person found out that nothing came of it
}

func newSeedNet(w *seedRun) *seedNet {
	o := w.plan.World.Provider
	n := &seedNet{w: w, sent: map[string][]*seedRequest{}}
	o.OnApply = func(obj providertest.Object) { w.model.applied(obj) }
	w.provider = providertest.New(&o)
	return n
}

type seedAttemptKey struct{}

// seedAdapt has every request carry the number of its attempt, and adds the plan's defect.
func seedAdapt[Req any](w *seedRun, a settle.Adapter[Req, scenario.Receipt]) settle.Adapter[Req, scenario.Receipt] {
	submit := a.SubmitFunc
	a.SubmitFunc = func(ctx context.Context, c *settle.Call[Req]) (settle.Observation[scenario.Receipt], error) {
		obs, err := submit(context.WithValue(ctx, seedAttemptKey{}, c.Attempt), c)
		if err != nil && w.plan.Defect == SeedTimeoutIsRefusal {
			return settle.Observation[scenario.Receipt]{Fact: settle.Declined, Code: "timeout"}, nil
		}
		return obs, err
	}
	return a
}

// seedAPI is the provider as one process sees it.
type seedAPI struct{ p *seedProc }

// Create implements providertest.API.
func (a *seedAPI) Create(ctx context.Context, req providertest.Request) (providertest.Object, error) {
	w := a.p.w
	attempt, _ := ctx.Value(seedAttemptKey{}).(int)
	if w.plan.Defect == SeedKeyPerAttempt && req.Key != "" {
		req.Key += fmt.Sprintf("/%d", attempt)
	}
	c := &seedCall{p: a.p, kind: seedCreate, label: func() string {
		return fmt.Sprintf("%s %d %d", w.model.alias(req.Reference), req.Amount, attempt)
	}}
	c.begin = func(c *seedCall) { w.net.leave(c, req, attempt) }
	v, err := w.call(ctx, c)
	if err != nil {
		return providertest.Object{}, err
	}
	return v.(providertest.Object), nil
}

// Get implements providertest.API.
func (a *seedAPI) Get(ctx context.Context, id string) (providertest.Object, error) {
	return seedAsk(ctx, a.p, id, func() (providertest.Object, error) { return a.p.w.provider.Get(context.Background(), id) })
}

// List implements providertest.API.
func (a *seedAPI) List(ctx context.Context, q providertest.Query) (providertest.Page, error) {
	return seedAsk(ctx, a.p, q.Kind+" "+q.Reference, func() (providertest.Page, error) { return a.p.w.provider.List(context.Background(), q) })
}

// seedAsk makes a lookup in its turn.
func seedAsk[T any](ctx context.Context, p *seedProc, label string, do func() (T, error)) (T, error) {
	c := &seedCall{p: p, kind: seedLookup, label: func() string { return p.w.model.mask(label) }}
	c.begin = func(c *seedCall) {
		w, f := p.w, p.fault(seedLookup)
		there, back := w.net.way(c)
		switch f.Fault {
		case seedSlowReply:
			back += f.For
		case seedStuck, seedStuckAfter:
			p.stall(f.For)
		}
		w.in(there, func() {
			if f.Fault == seed503 {
				w.provider.ScriptLookup(providertest.Status(503, "unavailable"))
			}
			ans := seedAnswer{err: providertest.ErrNoReply}
			if f.Fault != seedLoseRequest && f.Fault != seedHang {
				ans.v, ans.err = do()
			}
			w.log("p%d lookup %s%s: %s", p.slot, w.model.mask(label), seedMet(f), seedShort(ans.err))
			switch f.Fault {
			case seedHang:
				return
			case seedLoseReply:
				ans.err = providertest.ErrNoReply
			}
			w.deliver(c, back, ans)
		})
	}
	v, err := p.w.call(ctx, c)
	if err != nil {
		var none T
		return none, err
	}
	return v.(T), nil
}

// way is how long a request and its reply take.
func (n *seedNet) way(c *seedCall) (there, back time.Duration) {
	return n.w.span(time.Millisecond, 80*time.Millisecond, c.p.serial, c.n, 3),
		n.w.span(time.Millisecond, 80*time.Millisecond, c.p.serial, c.n, 4)
}

// leave is the moment in which a request leaves its process: everything that must be true
// before a request must be true now.
func (n *seedNet) leave(c *seedCall, req providertest.Request, attempt int) {
	w := n.w
	f := c.p.fault(seedCreate)
	if w.plan.Defect == SeedLandsLate && (f.Fault == seedSlow || f.Fault == seedSlowExec) {
		f.For *= 4 // later than the contract says
	}
	r := &seedRequest{req: req, attempt: attempt, left: w.now(), arrived: -1}
	w.log("p%d sends a %s of %d for %s, attempt %d%s", c.p.slot, req.Kind, req.Amount, w.model.alias(req.Reference), attempt, seedMet(f))
	if f.Fault == seedDial {
		err := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		w.deliver(c, time.Millisecond, seedAnswer{err: err})
		return
	}
	w.model.leaves(r)
	n.sent[req.Reference] = append(n.sent[req.Reference], r)
	there, back := n.way(c)
	answer := func(a seedAnswer) { w.deliver(c, back, a) }
	switch f.Fault {
	case seedLoseRequest:
		r.over = true
		w.in(there, func() { answer(seedAnswer{err: providertest.ErrNoReply}) })
		return
	case seedHang:
		r.over = true
		return
	case seedLoseReply:
		answer = func(seedAnswer) { w.deliver(c, back, seedAnswer{err: providertest.ErrNoReply}) }
	case seedSlowReply:
		back += f.For
	case seedSlow:
		there += f.For
	case seedStuck, seedStuckAfter:
		c.p.stall(f.For)
	}
	w.in(there, func() { n.arrive(r, f, answer) })
	if f.Fault == seedDouble && n.foldable() {
		again := *r
		n.sent[req.Reference] = append(n.sent[req.Reference], &again)
		w.in(f.For, func() { n.arrive(&again, SeedAction{}, func(seedAnswer) {}) })
	}
}

// foldable reports whether the provider makes one of two equal requests whenever they come:
// only then a network that doubles them keeps the contract.
func (n *seedNet) foldable() bool {
	o := n.w.plan.World.Provider
	return o.KeyWindow > 0 && o.Concurrent != providertest.ConcurrentUnsafe && !o.CacheOnlySuccess
}

// arrive has the provider serve a request.
func (n *seedNet) arrive(r *seedRequest, f SeedAction, answer func(seedAnswer)) {
	w := n.w
	r.arrived = w.now()
	step, served := seedStep(f, r.req.Amount)
	if served {
		w.model.arrives(r)
	}
	r.served = served
	w.provider.Script(step)
	w.work.Go(func() {
		obj, err := w.provider.Create(context.Background(), r.req)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.over {
			return
		}
		w.answers = append(w.answers, seedTold{label: fmt.Sprintf("%s %d", r.req.Key, r.attempt), then: func() {
			r.over = true
			w.log("provider serves the %s for %s, attempt %d: %s %s", r.req.Kind, w.model.alias(r.req.Reference), r.attempt, obj.Status, seedShort(err))
			if obj.Status == providertest.StatusProcessing || obj.Status == providertest.StatusActionRequired {
				n.undecided(obj, f)
			}
			answer(seedAnswer{v: obj, err: err})
		}})
		w.nudge()
	})
}

// seedStep is how the provider serves a request; served is false if it goes no further than
// the front door.
func seedStep(f SeedAction, amount int64) (step providertest.Step, served bool) {
	switch f.Fault {
	case seedSlowExec:
		return providertest.Slow(f.For), true
	case seed429:
		return providertest.RateLimit(f.For.Truncate(time.Second)), false
	case seed401:
		return providertest.Status(401, "unauthorized"), false
	case seed503:
		return providertest.Status(503, "unavailable"), false
	case seed500After:
		return providertest.StatusAfter(500, "internal"), true
	case seed500Stored:
		return providertest.StatusStored(500, "internal"), true
	case seedDecline:
		return providertest.Decline("stolen_card"), true
	case seedUnderway:
		if f.Arg >= 2 {
			return providertest.ActionRequired(), true
		}
		return providertest.Processing(), true
	case seedWrong:
		return providertest.WrongAmount(amount - 1 - f.For.Milliseconds()%2*(amount/3)), true
	case seedGarbled:
		return providertest.Garbled(), true
	}
	return providertest.OK(), true
}

// undecided ends what the provider has accepted and not decided.
func (n *seedNet) undecided(obj providertest.Object, f SeedAction) {
	w := n.w
	after := f.For
	if w.quiet {
		after = min(after, time.Minute)
	}
	w.in(max(after, time.Second), func() {
		var err error
		if f.Arg%2 == 0 {
			err = w.provider.Finish(obj.ID)
		} else {
			err = w.provider.Fail(obj.ID, "expired_card")
		}
		w.log("provider decides on %s: %s", obj.ID, seedShort(err))
		if now, gerr := w.provider.Get(context.Background(), obj.ID); gerr == nil {
			w.model.applied(now)
		}
	})
}

// reverse takes a success of an order back, as a bank does.
func (n *seedNet) reverse(a SeedAction) {
	kind := providertest.KindCharge
	if a.Arg == 1 {
		kind = providertest.KindRefund
	}
	for _, o := range n.w.provider.Objects() {
		if o.Kind == kind && o.Status == providertest.StatusSucceeded && n.w.model.orderOf(o.Reference) == a.Order {
			_ = n.w.provider.Reverse(o.ID)
			return
		}
	}
}

// flying reports whether something may still come of a request of the operation.
func (n *seedNet) flying(id string) bool {
	return slices.ContainsFunc(n.sent[id], func(r *seedRequest) bool { return !r.over })
}

// objects lists what the provider has made of an operation's requests, as it truly is.
func (n *seedNet) objects(id string) []providertest.Object {
	return slices.DeleteFunc(n.w.provider.Objects(), func(o providertest.Object) bool { return o.Reference != id })
}

// effects counts the effects of an operation, and those of them that were undone.
func (n *seedNet) effects(id string) (effects, undone int) {
	for _, o := range n.w.provider.Ledger() {
		switch {
		case o.Reference != id:
		case o.Status == providertest.StatusReversed, o.Status == providertest.StatusVoided:
			effects, undone = effects+1, undone+1
		case o.Status == providertest.StatusSucceeded:
			effects++
		}
	}
	return effects, undone
}

// mask replaces ids in a text.
func (m *seedModel) mask(s string) string {
	for _, id := range m.ids {
		s = strings.ReplaceAll(s, id, m.ops[id].alias)
	}
	return s
}
