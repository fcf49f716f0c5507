package settle

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
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
	var looked time.Time
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
			e.noticeOverdue(ctx)
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
		}
		timer.Reset(jitter(wait))
	}
}

func (e *Engine) isDraining() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.draining
}

// sweep claims as many due records as there are free slots and starts working them.
func (e *Engine) sweep(ctx context.Context, slots chan struct{}, wg *sync.WaitGroup) (int, error) {
	e.mu.Lock()
	kinds := slices.Sorted(maps.Keys(e.kinds))
	e.mu.Unlock()
	if len(kinds) == 0 {
		return 0, nil
	}
	kinds = append(kinds, EventKind)
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
	give := func(n int) {
		for range n {
			<-slots
		}
	}
	if e.isDraining() { // while it waited for the slot
		give(free)
		return 0, nil
	}
	c := e.newClaim()
	sctx, cancel := e.storeCtx(ctx)
	recs, err := e.store.Claim(sctx, Claim{Kinds: kinds, Token: c.token, Lease: e.opts.Lease, Limit: free})
	cancel()
	if err != nil {
		give(free) // rows claimed without our knowing come due again when the lease ends
		return 0, err
	}
	give(free - len(recs))
	for _, r := range recs {
		own := *c
		own.granted(r.AsOf)
		if !e.begin() {
			give(1)
			continue // draining: its lease ends by itself
		}
		wg.Go(func() {
			defer func() { e.end(); <-slots }()
			e.workClaimed(context.WithoutCancel(ctx), fresh(r), &own)
		})
	}
	return len(recs), nil
}

// workClaimed works one record that Store.Claim handed out.
func (e *Engine) workClaimed(ctx context.Context, r Record, c *claim) {
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
func (e *Engine) lookAgain(ctx context.Context, k kind, r Record, c *claim) error {
	hctx, kp := e.keepAlive(ctx, r, c)
	defer kp.stop()
	var undo Effect
	if r.Undoes.Operation != "" {
		var err error
		if undo, _, err = e.undoing(ctx, &r); err != nil {
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
		return &edit{now: c.late(), dueIn: Never, ifToken: c.token, looked: asked, entry: Entry{Source: SourceWorker, Note: "looked"}}, nil
	})
	return err
}

// noticeOverdue reports operations that are due and that nobody claims: a kind that
// no process has, or too few workers.
func (e *Engine) noticeOverdue(ctx context.Context) {
	sctx, cancel := e.storeCtx(ctx)
	defer cancel()
	recs, err := e.store.List(sctx, Query{Overdue: overdueAfter, Limit: 100})
	if err != nil {
		e.obs.Notice(ctx, Notice{Event: EventStoreError, Code: "list"})
		return
	}
	for _, r := range recs {
		if r.Kind == RetentionKind {
			continue // nobody waits for it
		}
		n := Notice{Event: EventOverdue, Kind: r.Kind, Operation: r.ID, To: r.State, Version: r.Version, Age: r.AsOf.Sub(r.Due)}
		if !own(r.Kind) && e.kind(r.Kind) == nil {
			n.Code = "kind_not_made_here"
		}
		e.obs.Notice(ctx, n)
	}
}
