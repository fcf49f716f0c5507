package settle

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// overdueAfter is how long a row may stay due before it is noticed that nobody claims
// it, and overdueEvery how often that is looked for.
const (
	overdueAfter = time.Minute
	overdueEvery = time.Minute
)

// Run is the worker for every kind made on e, also for those made later: it sends
// what was registered, takes over what was abandoned, looks again at what is due, runs
// consequences, and says which due operations nobody works. It returns nil when ctx
// ends or the engine drains, after the work under way is recorded; call [Engine.Drain]
// with a deadline to bound that. Several may run, in any number of processes.
func (e *Engine) Run(ctx context.Context) error {
	slots := make(chan struct{}, e.opts.Concurrency)
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if e.opts.Retention > 0 {
		wg.Go(func() { e.retain(rctx) })
	}
	if e.relays() {
		wg.Go(func() { e.relay(rctx) })
	}
	if e.opts.TallyEvery > 0 && !e.silent {
		wg.Go(func() { e.tallies(rctx, e.counts) })
	}
	var looked time.Time
	after := "" // where the last look for overdue rows ended
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		case <-timer.C:
		}
		if e.isDraining() {
			return nil
		}
		if now := e.opts.Clock.Now(); looked.IsZero() || elapsed(looked, now) >= overdueEvery {
			looked = now
			after = e.noticeOverdue(ctx, after)
		}
		n, err := e.sweep(ctx, slots, &wg)
		wait := e.opts.PollInterval
		switch {
		case err != nil:
			failures++
			e.obs.Notice(ctx, Notice{Event: EventStoreError, Code: "claim"})
			wait = max(wait, backoff(failures))
		case n > 0:
			failures, wait = 0, 0 // there may be more
		default:
			failures = 0
			wait = e.work.tokens(e.opts.Clock.Now(), wait)
		}
		timer.Reset(jitter(wait))
	}
}

func (e *Engine) isDraining() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.draining
}

// sweep claims as many due records as there are free slots and starts working them. First those come whose
// kind and scope have not their share of the slots yet, then whoever is due: so one kind, or one tenant, with any
// number of rows that were due before holds up no other.
func (e *Engine) sweep(ctx context.Context, slots chan struct{}, wg *sync.WaitGroup) (int, error) {
	kinds := e.allKinds()
	if len(kinds) == 0 {
		return 0, nil
	}
	select {
	case slots <- struct{}{}: // wait for one slot at least
	case <-ctx.Done():
		return 0, nil
	}
	free := 1
fill:
	for free < cap(slots) {
		select {
		case slots <- struct{}{}:
			free++
		default:
			break fill
		}
	}
	defer func() {
		for range free {
			<-slots
		}
	}()
	if e.isDraining() { // while it waited for the slot
		return 0, nil
	}
	done := 0
	for more := true; more && free > 0; {
		more = false
		for _, x := range rounds() {
			n, again, err := e.claimRound(ctx, x, kinds, free, slots, wg)
			free -= n
			done += n
			if err != nil {
				return done, err
			}
			if more = again && n > 0; more || free == 0 {
				break
			}
		}
	}
	return done, nil
}

// claimRound makes the claims of one round. Nobody gets more than a share by one claim, and then it is looked
// again who has how much: slots that come free all at once would else go to whoever was due first.
func (e *Engine) claimRound(ctx context.Context, x round, kinds []kind, free int, slots chan struct{}, wg *sync.WaitGroup) (done int, again bool, err error) {
	now := e.opts.Clock.Now()
	c := e.work.crowd(kinds, cap(slots), now)
	out := c.leavesOut(x)
	if x != (round{}) && (out == "" || e.work.wasAlone(x, out, now, e.opts.PollInterval)) {
		return 0, false, nil
	}
	full := c.held
	for _, a := range c.asks(x) {
		limit := min(a.most, free-done, c.most(x))
		if limit <= 0 {
			break
		}
		n, err := e.claimDue(ctx, a, limit, slots, wg)
		if err != nil {
			return done, false, err
		}
		done += n
		again = again || n == limit
		full = full || n == a.most && len(a.kinds) == 1
	}
	if done == 0 && x != (round{}) {
		e.work.noteAlone(x, out, now)
	}
	e.work.setFull(full)
	return done, again, nil
}

func (e *Engine) allKinds() []kind {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := slices.Collect(maps.Values(e.kinds))
	slices.SortFunc(out, func(a, b kind) int { return strings.Compare(a.name(), b.name()) })
	return out
}

// claimDue makes one claim and starts working what it got. Each takes a slot, and gives it back.
func (e *Engine) claimDue(ctx context.Context, a ask, limit int, slots chan struct{}, wg *sync.WaitGroup) (int, error) {
	c := e.newClaim()
	sctx, cancel := e.storeCtx(ctx)
	recs, err := e.store.Claim(sctx, Claim{Kinds: a.kinds, Except: a.except, Token: c.token, Lease: e.opts.Lease, Limit: limit})
	cancel()
	if err != nil {
		return 0, err // rows claimed without our knowing come due again when the lease ends
	}
	e.work.begin(recs, c.sent)
	for _, r := range recs {
		own := *c
		own.ended = new(atomic.Bool)
		own.granted(r.AsOf)
		finish := func() {
			wake := e.work.end(&r)
			<-slots
			if wake {
				e.Wake()
			}
		}
		if !e.begin() {
			finish()
			continue // draining: its lease ends by itself
		}
		wg.Go(func() {
			defer func() { e.end(); finish() }()
			fresh(&r)
			e.workClaimed(context.WithoutCancel(ctx), &r, &own)
		})
	}
	return len(recs), nil
}

// workClaimed works one record that Store.Claim handed out.
func (e *Engine) workClaimed(ctx context.Context, r *Record, c *claim) {
	k := e.kind(r.Kind)
	var err error
	switch {
	case r.Kind == EventKind:
		err = e.workEvent(ctx, r, c)
	case !r.State.Settled():
		_, err = e.pass(ctx, k, r, c, nil)
	case r.Wake && r.Consequence != ConsequenceDue:
		err = e.lookAgain(ctx, k, r, c)
	default:
		_, err = e.update(ctx, "fulfil", r, func(next *Record) (*edit, error) {
			if next.Token != c.token || !next.State.Settled() {
				return nil, errStop
			}
			return &edit{now: c.late(), dueIn: Never, ifToken: c.token, fulfil: true, entry: Entry{Source: SourceWorker, Note: "consequence"}}, nil
		})
	}
	if err != nil && !errors.Is(err, ErrClaimLost) { // which was noticed already
		e.obs.Notice(ctx, Notice{Event: EventStoreError, Kind: r.Kind, Operation: r.ID, Code: "work"})
	}
}

// lookAgain makes the lookup that was asked for on a settled record.
func (e *Engine) lookAgain(ctx context.Context, k kind, r *Record, c *claim) error {
	hctx, kp := e.keepAlive(ctx, r, c)
	defer kp.stop()
	var undo Effect
	if r.Undoes.Operation != "" {
		var err error
		if undo, _, err = e.undoing(ctx, r); err != nil {
			return err
		}
	}
	asked := k.contract().Lookup == NoLookup // there is nobody to ask
	if !asked && r.Account == k.account() {
		asked = true
		var err error
		if r, _, err = e.ask(ctx, hctx, k, r, c, undo); err != nil {
			return err
		}
	}
	_, err := e.update(ctx, "release", r, func(next *Record) (*edit, error) {
		if next.Token != c.token {
			return nil, errStop
		}
		return &edit{now: c.late(), dueIn: Never, ifToken: c.token, holder: c, looked: asked, entry: Entry{Source: SourceWorker, Note: "looked"}}, nil
	})
	return err
}

// overduePages bounds one look for overdue rows, in pages of overduePage rows.
const (
	overduePages = 10
	overduePage  = 100
)

// noticeOverdue reports operations that are due and that nobody claims: a kind that
// no process has, or too few workers. One look tells of a thousand at most, those after the id after; it returns
// where the next one goes on, so that no row hides behind the others for ever.
func (e *Engine) noticeOverdue(ctx context.Context, after string) string {
	feed := false
	for range overduePages {
		sctx, cancel := e.storeCtx(ctx)
		recs, err := e.store.List(sctx, Query{Overdue: overdueAfter, Limit: overduePage, After: after})
		cancel()
		if err != nil {
			e.obs.Notice(ctx, Notice{Event: EventStoreError, Code: "list"})
			return after
		}
		for _, r := range recs {
			after = r.ID
			if r.Kind == RetentionKind || r.Kind == FeedKind && feed {
				continue // nobody waits for it; one says it for all
			}
			feed = feed || r.Kind == FeedKind
			n := Notice{Event: EventOverdue, Kind: r.Kind, Operation: r.ID, To: r.State, Version: r.Version, Age: r.AsOf.Sub(r.Due)}
			if !own(r.Kind) && e.kind(r.Kind) == nil {
				n.Code = "kind_not_made_here"
			}
			e.obs.Notice(ctx, n)
		}
		if len(recs) < overduePage {
			return ""
		}
	}
	return after
}
