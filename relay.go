package settle

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	feedTries      = 10               // how often a poison message is tried before it is set aside
	publishTimeout = 10 * time.Second // for one message
	pauseMost      = time.Minute      // how soon at the latest it is tried again whether anything can be delivered
	feedPage       = 100              // entries of history that are read at a time
)

// outage is what a process knows about its Publisher. While nothing can be delivered, no rows are claimed, so that it costs
// nothing and uses up nobody's tries; one row after each pause finds out.
type outage struct {
	mu       sync.Mutex
	failures int
	until    time.Time
}

// over notes that a message was delivered.
func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures = 0
}

// failed notes that nothing can be delivered now; those that were under way together count once.
func (o *outage) failed(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures > 0 && now.Before(o.until) {
		return
	}
	o.failures++
	o.until = now.Add(min(jitter(backoff(o.failures)), pauseMost))
}

// left is how long the pause still lasts. probing: the last thing that was heard is that nothing can be delivered.
func (o *outage) left(now time.Time) (pause time.Duration, probing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(0, o.until.Sub(now)), o.failures > 0
}

// relay is the part of Run that publishes. It has slots of its own: a broker that is slow or down holds up no operation,
// and a backlog of operations no message.
func (e *Engine) relay(ctx context.Context) {
	slots := make(chan struct{}, e.opts.Concurrency)
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.feedWake:
		case <-timer.C:
		}
		if e.isDraining() {
			return
		}
		pause, probing := e.outage.left(e.opts.Clock.Now())
		if pause > 0 {
			timer.Reset(min(pause, e.opts.PollInterval))
			continue
		}
		n, err := e.claimFeed(ctx, probing, slots, &wg)
		wait := e.opts.PollInterval
		switch {
		case err != nil:
			failures++
			e.obs.Notice(ctx, Notice{Event: EventStoreError, Kind: FeedKind, Code: "claim"})
			wait = max(wait, backoff(failures))
		case n > 0:
			failures, wait = 0, 0
		default:
			failures = 0
		}
		timer.Reset(jitter(wait))
	}
}

// claimFeed claims as many due rows as there are free slots and starts publishing for them; when probing one, and it waits for that.
func (e *Engine) claimFeed(ctx context.Context, probing bool, slots chan struct{}, wg *sync.WaitGroup) (int, error) {
	free := 0
	select {
	case slots <- struct{}{}: // wait for one slot at least
		free++
	case <-ctx.Done():
		return 0, nil
	}
	for full := probing; !full && free < cap(slots); {
		select {
		case slots <- struct{}{}:
			free++
		default:
			full = true
		}
	}
	defer func() {
		for range free {
			<-slots
		}
	}()
	c := e.newClaim()
	sctx, cancel := e.storeCtx(ctx)
	recs, err := e.store.Claim(sctx, Claim{Kinds: []string{FeedKind}, Token: c.token, Lease: e.opts.Lease, Limit: free})
	cancel()
	if err != nil {
		return 0, err
	}
	for _, r := range recs {
		mine := *c
		mine.granted(r.AsOf)
		if !e.begin() {
			continue // draining: its lease ends by itself
		}
		free--
		wg.Go(func() {
			defer func() { e.end(); <-slots }()
			fresh(&r)
			err := e.workFeed(context.WithoutCancel(ctx), &r, &mine)
			if err != nil && !errors.Is(err, ErrClaimLost) {
				e.obs.Notice(ctx, Notice{Event: EventStoreError, Kind: FeedKind, Operation: r.Subject, Code: "work"})
			}
		})
	}
	if probing {
		wg.Wait()
	}
	return len(recs), nil
}

// workFeed delivers what is queued for the operation whose place a claim handed out.
func (e *Engine) workFeed(ctx context.Context, place *Record, c *claim) error {
	if place.State == StateReview {
		return e.mindFeed(ctx, place, c)
	}
	hctx, kp := e.keepAlive(ctx, place, c)
	defer kp.stop()
	var done int64
	var why failed
	for range 16 {
		sctx, cancel := e.storeCtx(ctx)
		op, err := e.store.Get(sctx, ByID(place.Subject)) // as it is stored: only its feed changes
		cancel()
		if err != nil {
			return err
		}
		stored := op.Feed.Done
		op.Feed.Done = max(stored, done)
		if why == failedNot {
			if why, err = e.publish(ctx, hctx, kp, &op); err != nil {
				return err
			}
		}
		done = op.Feed.Done
		if err := e.note(ctx, place, c, op, done > stored, why); !errors.Is(err, errMoved) {
			return err
		}
		// There may be another transition: it is this claim's, too.
	}
	return ErrClaimLost // it moves and moves; the lease ends, and somebody goes on
}

// failed is why publishing stopped.
type failed string

const (
	failedNot    failed = ""
	failedPoison failed = "poison"
	failedOutage failed = "outage"
)

// publish delivers the transitions of op that are not delivered, in order, and notes in op how far it came.
func (e *Engine) publish(ctx, hctx context.Context, kp *keeper, op *Record) (failed, error) {
	m := messages{op: op, prior: op.Feed.Done}
	for after := m.after(); ; {
		sctx, cancel := e.storeCtx(ctx)
		entries, err := e.store.History(sctx, op.ID, after, feedPage)
		cancel()
		if err != nil {
			return failedNot, err
		}
		for _, x := range entries {
			after = x.Seq
			msg, ok := m.add(x)
			if !ok {
				continue
			}
			if kp.left() <= 0 || hctx.Err() != nil {
				return failedNot, ErrClaimLost // a later message is the next holder's (I5)
			}
			why := e.hand(ctx, hctx, msg)
			if why != failedNot && hctx.Err() != nil {
				return failedNot, ErrClaimLost // which is why it was not delivered
			}
			if why != failedNot {
				return why, nil
			}
			op.Feed.Done = x.Seq
		}
		if len(entries) < feedPage {
			op.Feed.Done = max(op.Feed.Done, op.Feed.Last)
			return failedNot, nil
		}
	}
}

// hand gives one message to the Publisher, and says what came of it.
func (e *Engine) hand(ctx, hctx context.Context, m Message) failed {
	_, err := e.call(hctx, publishTimeout, func(ctx context.Context) (reply, error) { return reply{}, e.opts.Publisher.Publish(ctx, m) }, nil)
	n := Notice{Event: EventPublishError, Kind: m.Kind, Operation: m.Operation, From: m.From, To: m.To, Version: m.Sequence}
	switch {
	case err == nil:
		e.outage.over()
		return failedNot
	case errors.Is(err, ErrPoison), errors.Is(err, errPanic):
		n.Code = string(failedPoison)
		e.obs.Notice(ctx, n)
		return failedPoison
	case hctx.Err() != nil:
		return failedOutage
	}
	e.outage.failed(e.opts.Clock.Now())
	n.Code = string(failedOutage)
	e.obs.Notice(ctx, n)
	return failedOutage
}

// note stores how far the feed of op has come, in one step with when and by whom it goes on. errMoved: op was written since it was
// read, and nothing was stored.
func (e *Engine) note(ctx context.Context, place *Record, c *claim, op Record, moved bool, why failed) error {
	next, x := place.fork(), Entry{From: place.State, Source: SourceWorker, Disposition: DispositionControl, Note: "published"}
	next.Token = ""
	var in time.Duration
	next.after(why, moved, c.late(), e.opts.ReviewWithin)
	switch {
	case why == failedNot:
		op.Feed.Row, in = place.Version+1, Never
	case next.State == StateReview:
		in, x.Code, x.Alarms = e.opts.ReviewWithin+time.Second, ReasonPoison, []string{AlarmReview}
	case why == failedPoison:
		in = jitter(backoff(next.Tries))
	default:
		in = min(backoff(next.Waits), pauseMost) / 2 // before the pause of this process is over: another may be better off
	}
	if why != failedNot {
		x.Note = string(why)
	}
	x.To = next.State
	var writes []Write
	if moved || why == failedNot {
		writes = append(writes, Write{
			Record: op, IfVersion: op.Version, DueIn: Keep,
			Entry: Entry{From: op.State, To: op.State, Source: SourceWorker, Disposition: DispositionControl, Note: "published"},
		})
	}
	writes = append(writes, Write{Record: next, IfVersion: place.Version, IfToken: c.token, DueIn: in, Entry: x})
	recs, err := e.commit(ctx, Change{ID: newToken(), Writes: writes}, e.opts.StoreTimeout)
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict) && conflict.Existing.ID == op.ID:
		return errMoved
	case errors.As(err, &conflict):
		return ErrClaimLost
	case err != nil:
		return err
	}
	for i := range writes {
		e.report(ctx, &writes[i], &recs[i])
	}
	return nil
}

// after decides what becomes of the place of an operation after publishing: at rest, tried again, or before a person.
func (r *Record) after(why failed, moved bool, now time.Time, within time.Duration) {
	if moved {
		r.Tries, r.Waits = 0, 0 // the next message has tries of its own
	}
	switch why {
	case failedNot:
		r.References, r.State = []Reference{{Rank: RankSucceeded}}, StateSucceeded
		r.Tries, r.Waits = 0, 0
	case failedOutage:
		r.Waits++ // no try: it says nothing about the message
	case failedPoison:
		if r.Tries++; r.Tries >= feedTries {
			r.Review, r.State = &Review{Reason: ReasonPoison, Since: micros(now), Deadline: micros(now.Add(within))}, StateReview
		}
	}
}
