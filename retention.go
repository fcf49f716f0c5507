package settle

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// RetentionKind is the kind of the one record that says how far retention has come. It is
// listed by naming it in Query.Kind.
const RetentionKind = "settle.retention"

// own reports whether kind is one of settle's own, of which no application has an executor.
func own(kind string) bool { return strings.HasPrefix(kind, "settle.") }

const (
	retentionID    = "settle.retention"
	retentionPage  = 100                   // records that are read, and at most pruned, in one step
	retentionSave  = 64                    // pages after which the place is noted
	retentionPause = 20 * time.Millisecond // after each page: the store has other work
)

// retentionEvery is how often everything stored is looked through. A payload is removed
// between one and 1.1 times the age (but no sooner than a minute, nor later than a week, after it).
func retentionEvery(age time.Duration) time.Duration {
	return min(max(age/10, time.Minute), 7*24*time.Hour)
}

// prunable is the rule of retention: whether request and result of r are needed no more (I14).
// They are while it is open or may be looked into, while a hook has not run that is given the
// result, while a transition is not published whose readers want it, and while a compensation of it is open.
func (r *Record) prunable(age time.Duration) bool {
	switch {
	case !r.State.Settled(), !r.Due.IsZero(), r.Wake, r.AsOf.Sub(r.UpdatedAt) < age:
		return false
	case r.Consequence == ConsequenceDue, r.Consequence == ConsequenceAside, r.Feed.Pending():
		return false
	case r.Kind == EventKind:
		return r.PrunedAt.IsZero()
	}
	open := func(p Posting) bool { return p.Status == PostingWished || p.Status == PostingOpen }
	return (r.Request != nil || r.Result != nil) && !slices.ContainsFunc(r.Ledger, open)
}

// prune takes the payloads out of r. Of an event it leaves the names by which it was matched.
func (r *Record) prune() {
	r.PrunedAt, r.Result = r.AsOf, nil
	var k keptEvent
	if r.Kind != EventKind || json.Unmarshal(r.Request, &k) != nil {
		r.Request = nil
		return
	}
	k.Payload = nil
	r.Request, _ = json.Marshal(k) //nolint:errchkjson // it was read from JSON
}

// retain is the part of Run that removes payloads. One record with a claim and a due time, like
// any operation's, has the place: so one process of all looks through the store, another goes on when it dies, and
// nothing is looked through twice (I10). It ends with ctx.
func (e *Engine) retain(ctx context.Context) {
	every := retentionEvery(e.opts.Retention)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := e.retainOnce(ctx, every); err != nil && !errors.Is(err, ErrClaimLost) {
			e.obs.Notice(ctx, Notice{Event: EventStoreError, Kind: RetentionKind, Operation: retentionID, Code: "retention"})
		}
		timer.Reset(jitter(min(every, time.Minute)))
	}
}

// retainOnce looks through the store if it is time to and nobody else does.
func (e *Engine) retainOnce(ctx context.Context, every time.Duration) error {
	if !e.begin() {
		return nil
	}
	defer e.end()
	r, c, err := e.claimRetention(ctx)
	if err != nil || c == nil {
		return err
	}
	hctx, kp := e.keepAlive(context.WithoutCancel(ctx), &r, c)
	defer kp.stop()
	after := string(r.Request)
	pause := time.NewTimer(retentionPause)
	defer pause.Stop()
	for n := 1; ; n++ {
		if kp.left() <= 0 || hctx.Err() != nil {
			return ErrClaimLost
		}
		next, err := e.prunePage(ctx, after)
		if err != nil {
			return errors.Join(err, e.notePlace(ctx, &r, c, after, every/10, true))
		}
		if next == "" {
			return e.notePlace(ctx, &r, c, "", jitter(every), true)
		}
		after = next
		if n%retentionSave == 0 {
			sent := e.opts.Clock.Now()
			if err := e.notePlace(ctx, &r, c, after, c.lease, false); err != nil {
				return err
			}
			kp.touched(sent)
		}
		pause.Reset(retentionPause)
		select {
		case <-pause.C:
		case <-hctx.Done():
		case <-ctx.Done():
			return e.notePlace(ctx, &r, c, after, 0, true)
		}
		if e.isDraining() {
			return e.notePlace(ctx, &r, c, after, 0, true)
		}
	}
}

// claimRetention claims the record that has the place; the claim is nil if it is not due. The first
// process that looks for it makes it.
func (e *Engine) claimRetention(ctx context.Context) (Record, *claim, error) {
	for made := false; ; made = true {
		c := e.newClaim()
		sctx, cancel := e.storeCtx(ctx)
		recs, err := e.store.Claim(sctx, Claim{Kinds: []string{RetentionKind}, Token: c.token, Lease: e.opts.Lease, Limit: 1})
		cancel()
		switch {
		case err != nil:
			return Record{}, nil, err
		case len(recs) > 0:
			c.granted(recs[0].AsOf)
			fresh(&recs[0])
			return recs[0], c, nil
		case made:
			return Record{}, nil, nil
		}
		if _, err := e.get(ctx, ByID(retentionID)); !errors.Is(err, ErrNotFound) {
			return Record{}, nil, err
		}
		first := Record{ID: retentionID, Scope: "settle", Kind: RetentionKind, Subject: "retention", Purpose: "retention", State: StateCreated}
		w := Write{Record: first, Entry: Entry{To: StateCreated, Source: SourceWorker, Disposition: DispositionControl, Note: "retention"}}
		var conflict *ConflictError
		if _, err := e.commit(ctx, Change{ID: newToken(), Writes: []Write{w}}, e.opts.StoreTimeout); err != nil && !errors.As(err, &conflict) {
			return Record{}, nil, err
		}
	}
}

// notePlace stores how far the pass has come: the id of the last record that was looked at. It ends the
// claim unless the pass goes on.
func (e *Engine) notePlace(ctx context.Context, r *Record, c *claim, after string, in time.Duration, ends bool) error {
	next := r.fork()
	next.Request = Payload(after)
	if ends {
		next.Token = ""
	}
	w := Write{
		Record: next, IfVersion: r.Version, IfToken: c.token, DueIn: in,
		Entry: Entry{From: StateCreated, To: StateCreated, Source: SourceWorker, Disposition: DispositionControl, Note: "retention"},
	}
	recs, err := e.commit(ctx, Change{ID: newToken(), Writes: []Write{w}}, e.opts.StoreTimeout)
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		return ErrClaimLost
	case err != nil:
		return err
	}
	*r = recs[0]
	return nil
}

// prunePage looks at the records after an id and prunes, in one step, those that are to be pruned. It
// returns the last id that it saw, "" at the end.
func (e *Engine) prunePage(ctx context.Context, after string) (string, error) {
	sctx, cancel := e.storeCtx(ctx)
	page, err := e.store.List(sctx, Query{After: after, Limit: retentionPage})
	cancel()
	if err != nil {
		return "", err
	}
	var ws []Write
	for i := range page {
		r := &page[i]
		if fresh(r); !r.prunable(e.opts.Retention) {
			continue
		}
		next := r.fork()
		next.prune()
		ws = append(ws, Write{
			Record: next, IfVersion: r.Version, DueIn: Never,
			Entry: Entry{From: r.State, To: r.State, Source: SourceWorker, Disposition: DispositionControl, Note: "pruned"},
		})
	}
	if err := e.commitPruned(ctx, ws); err != nil {
		return "", err
	}
	if len(page) < retentionPage {
		return "", nil
	}
	return page[len(page)-1].ID, nil
}

// commitPruned commits ws without those whose record has moved since it was read: it is not old any more.
func (e *Engine) commitPruned(ctx context.Context, ws []Write) error {
	for len(ws) > 0 {
		recs, err := e.commit(ctx, Change{ID: newToken(), Writes: ws}, e.opts.StoreTimeout)
		var conflict *ConflictError
		if errors.As(err, &conflict) {
			n := len(ws)
			ws = slices.DeleteFunc(ws, func(w Write) bool { return w.Record.ID == conflict.Existing.ID })
			if len(ws) < n {
				continue
			}
		}
		if err != nil {
			return err
		}
		for i := range ws {
			e.report(ctx, &ws[i], &recs[i])
		}
		return nil
	}
	return nil
}
