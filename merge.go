package settle

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// claim is this process's right to work on an operation.
type claim struct {
	token     string
	sent, got time.Time // our clock before and after the step that claimed
	asOf      time.Time // the store's clock at that step
	decided   time.Time // our clock at the last decision
	base      time.Time // our clock when the last attempt was decided on: its request starts within one lease of it
	lease     time.Duration
	attempt   int          // the attempt that this claim sends, if any: the only one that it may still end
	ended     *atomic.Bool // a write of the holder gave the claim up
	clock     Clock
}

func (e *Engine) newClaim() *claim {
	now := e.opts.Clock.Now()
	return &claim{token: newToken(), sent: now, base: now, lease: e.opts.Lease, clock: e.opts.Clock, ended: new(atomic.Bool)}
}

// granted notes the store's answer to the step that claimed.
func (c *claim) granted(asOf time.Time) {
	c.asOf, c.got = asOf, c.clock.Now()
}

// margin is how much earlier than the store a holder considers its lease over.
func (c *claim) margin() time.Duration { return c.lease / 10 }

// late is the store's time or somewhat more: for ends and for the key window.
// Whichever of the clocks says more counts: a suspended machine's requests end late.
func (c *claim) late() time.Time { return c.asOf.Add(max(0, elapsed(c.sent, c.clock.Now()))) }

// early is the store's time or somewhat less: for starts, and to judge quiet. Without a
// monotonic reading nobody knows how much time has passed, and none is claimed.
func (c *claim) early() time.Time {
	if c.got == c.got.Round(0) { //nolint:staticcheck // not the instants: whether there is a monotonic reading
		return c.asOf
	}
	return c.asOf.Add(max(0, c.clock.Now().Sub(c.got)))
}

// mayStart reports whether a request of the last committed attempt may still
// start: within the lease under which the attempt was committed, renewals not
// counted, measured from before that commit was decided on, minus a margin (I5, T-28). The
// decision found the key window open for one lease: a process that stands still before the
// commit, and again after it, must not take two (I6, T-12).
func (c *claim) mayStart() bool {
	return elapsed(c.base, c.clock.Now()) < c.lease-c.margin()
}

// edit is what a writer decided about a copy of the current record.
type edit struct {
	entry   Entry
	dueIn   time.Duration // Keep, Never or a duration; overruled when the write settles or unsettles
	ifToken string
	holder  *claim // whose claim ifToken names
	look    bool   // ask for a lookup as soon as the claim, if any, allows
	looked  bool   // a lookup that was asked for has been made
	fulfil  bool   // run the consequence that is due
	later   bool   // leave a consequence to the worker
	now     time.Time
	create  bool
	alarms  []string
	wait    time.Duration // patience with a failing store
	inbox   *Write        // the event that says so
}

// errStop makes update return the current record without writing.
var errStop = errors.New("settle: nothing to write")

// update is the one way to change an operation: decide on a copy, write with
// the version that was read, and on a conflict decide again on the record as it is
// by now. Everything that follows from the new state (schedule, claim, hold,
// consequence, parent and waiting compensations) is in the same step. decide may
// run several times; it must not remember.
//
// cur is not changed, and neither is what comes back: others may be reading both.
func (e *Engine) update(ctx context.Context, do string, cur *Record, decide func(next *Record) (*edit, error)) (*Record, error) {
	k := e.kind(cur.Kind)
	var hookErr *HookError
	const rounds = 64 // each lost round means that somebody else's write was stored
	for range rounds {
		writes := make([]Write, 1)
		next := &writes[0].Record
		*next = cur.fork()
		ed, err := decide(next)
		if errors.Is(err, errStop) {
			return cur, nil
		}
		if err != nil {
			return cur, err
		}
		next.pin()
		related, err := e.related(ctx, e.store, cur, next, nil, ed.now)
		if err != nil {
			return cur, e.storeError(do, cur.Kind, cur.ID, err)
		}
		hook := e.conclude(k, cur, &writes[0], ed, hookErr != nil)
		change := Change{ID: newToken(), Writes: append(writes, related...), Hook: hook}
		if ed.inbox != nil {
			change.Writes = append(change.Writes, *ed.inbox)
		}
		patience := ed.wait
		if patience == 0 {
			patience = e.opts.StoreTimeout
		}
		recs, err := e.commit(ctx, change, patience)
		var conflict *ConflictError
		switch {
		case err == nil:
			out := &recs[0]
			if ed.holder != nil && out.Token != ed.holder.token {
				ed.holder.ended.Store(true)
			}
			for i := range change.Writes {
				e.report(ctx, &change.Writes[i], &recs[i])
			}
			return out, nil
		case errors.As(err, &hookErr):
			// Evidence commits without the hook's writes; the consequence stays due (I11).
			e.obs.Notice(ctx, Notice{Event: EventHookError, Kind: cur.Kind, Operation: cur.ID})
		case errors.As(err, &conflict) && ed.inbox != nil && conflict.Existing.ID == ed.inbox.Record.ID:
			return cur, &seenError{conflict.Existing} // the event was taken in by somebody else
		case errors.As(err, &conflict) && conflict.Index.Name == IndexRef:
			// Evidence is never refused: the reference is written as another's (T-25).
			decide = foreign(decide, conflict.Index.Parts[2], conflict.Existing.ID)
		case errors.As(err, &conflict) && conflict.Existing.ID == cur.ID:
			cur = &conflict.Existing
		case errors.As(err, &conflict):
			// A related record moved; it is read again, and so is this one.
			again, err := e.get(ctx, ByID(cur.ID))
			if err != nil {
				return cur, e.storeError(do, cur.Kind, cur.ID, err)
			}
			cur = &again
		default:
			return cur, e.storeError(do, cur.Kind, cur.ID, err)
		}
	}
	return cur, &Error{Do: do, Kind: cur.Kind, ID: cur.ID, Err: ErrStore, Code: "contention"}
}

// foreign wraps decide so that the reference ref counts as that of the operation owner.
func foreign(decide func(*Record) (*edit, error), ref, owner string) func(*Record) (*edit, error) {
	return func(next *Record) (*edit, error) {
		ed, err := decide(next)
		if err != nil {
			return ed, err
		}
		for i := range next.References {
			if x := &next.References[i]; x.Ref == ref {
				x.Foreign, x.Mismatch, x.Owner = true, true, owner
				if x.Rank == RankSucceeded && !x.Accepted {
					x.Rank = RankDisputed
				}
			}
		}
		return ed, err
	}
}

// conclude completes the write in which cur becomes w.Record: it computes the state and
// everything that follows from it in the same commit, and returns the hook to run in it.
func (e *Engine) conclude(k kind, cur *Record, w *Write, ed *edit, hookFailed bool) func(context.Context, Tx) error {
	next := &w.Record
	w.IfVersion, w.IfToken, w.DueIn, w.Entry = cur.Version, ed.ifToken, ed.dueIn, ed.entry
	if ed.create {
		w.IfVersion = 0
	}
	from, was := cur.State, cur.State
	if ed.create {
		from, was = "", StateCreated
	}
	if !cur.Claimed() && next.Token == cur.Token && ed.ifToken == "" {
		next.Token = "" // the end of a dead claim
	}
	claimed := next.Token != "" && (ed.dueIn > 0 || ed.dueIn == Keep && cur.Token == next.Token)
	next.State = next.compute(claimed)
	state := next.State

	if state == StateReview && next.Review == nil {
		next.Review = &Review{Reason: reviewReason(next), Since: micros(ed.now)}
	}
	if state == StateReview && next.Review.Deadline.IsZero() {
		next.Review.Deadline = micros(ed.now.Add(e.opts.ReviewWithin))
		ed.alarms = append(ed.alarms, AlarmReview)
	}
	if !next.HoldFree && next.Hold != "" && (state == StateFailed || state == StateCanceled || state == StateCompensated) {
		next.HoldFree = true // never taken again, so no later merge can collide (T-25)
	}
	if state == StateCanceled && next.Withdrawn != WithdrawnParent || next.ReplacedBy != "" {
		if next.Consequence == ConsequenceArmed {
			next.Consequence = ConsequenceNone
		}
	}

	var hook func(context.Context, Tx) error
	switch {
	case state.Settled():
		// Settling, by whoever, clears claim and schedule. Whose claim it was may still send what it has committed, until the lease is over.
		if cur.Claimed() && ed.ifToken == "" && !ed.create {
			for i := range next.Attempts {
				if a := &next.Attempts[i]; a.End.IsZero() {
					a.End = cur.Due
				}
			}
		}
		next.Review, next.RetryAt, next.Tries, next.Waits = nil, time.Time{}, 0, 0
		next.Wake = next.Wake && !ed.looked || ed.look
		hook = e.consequence(k, cur, next, w, ed, hookFailed)
	case was.Settled() && !ed.create:
		// A merge that unsettles sets a schedule in the same commit (I10).
		next.Token, w.DueIn = "", 0
		if state == StateReview {
			w.DueIn = reviewInterval
		}
	case cur.Claimed() && next.Token == cur.Token && ed.ifToken == "":
		// Only the holder moves the due of a claimed row; others leave a wake (T-19).
		w.DueIn = Keep
		next.Wake = next.Wake || ed.look
	case ed.look && ed.ifToken == "":
		w.DueIn = 0
	case state == StateReview && was != StateReview && w.DueIn == Keep:
		w.DueIn = reviewInterval
	}

	w.Entry.From, w.Entry.To, w.Entry.Alarms = from, state, append(raised(cur, next), ed.alarms...)
	if w.Entry.Disposition == "" {
		w.Entry.Disposition = disposition(cur, next, w.Entry)
	}
	return hook
}

func disposition(cur, next *Record, x Entry) Disposition {
	switch {
	case x.Fact == NotFound, x.Fact == Unclear && (x.Source == SourceReply || x.Source == SourceLookup):
		return DispositionInconclusive
	case x.Fact == Unclear:
		return DispositionControl
	case cur.State == StateFailed && (next.State == StateSucceeded || next.State == StateCompensating || next.State == StateCompensated):
		return DispositionRevived
	case cur.State.Settled() && cur.State == next.State:
		return DispositionSuperseded
	}
	return DispositionApplied
}

// raised lists the alarms that next has and cur had not.
func raised(cur, next *Record) []string {
	after := next.Alarms()
	if len(after) == 0 {
		return nil
	}
	before := cur.Alarms()
	return slices.DeleteFunc(after, func(a string) bool { return slices.Contains(before, a) })
}

// reviewReason says why evidence alone put r in review.
func reviewReason(r *Record) string {
	for _, ref := range r.references() {
		switch {
		case ref.Rank == RankSucceeded && !ref.Accepted && r.ReplacedBy != "":
			return ReasonReplaced
		case ref.Rank == RankSucceeded && !ref.Accepted && r.Withdrawn != "":
			return ReasonCanceled
		}
	}
	for _, ref := range r.references() {
		if ref.Foreign {
			return ReasonForeign
		}
	}
	return ReasonDisputed
}

// report tells the observer about a write that was stored.
func (e *Engine) report(ctx context.Context, w *Write, r *Record) {
	if e.silent {
		return
	}
	n := Notice{
		Event: EventTransition, Kind: r.Kind, Operation: r.ID, From: w.Entry.From, To: w.Entry.To, Fact: w.Entry.Fact,
		Source: w.Entry.Source, Disposition: w.Entry.Disposition, Attempt: w.Entry.Attempt, Attempts: r.lastAttempt(), Version: r.Version,
		Code: w.Entry.Code, Age: r.AsOf.Sub(r.CreatedAt),
	}
	switch {
	case w.Entry.From != w.Entry.To:
	case w.Entry.Fact != "":
		n.Event = EventEvidence
	default:
		n.Event = EventSchedule
	}
	e.obs.Notice(ctx, n)
	if len(w.Entry.Alarms) > 0 {
		n.Event, n.Alarms = EventAlarm, w.Entry.Alarms
		e.obs.Notice(ctx, n)
	}
}

// merge adds one observation to an operation. It needs no claim; a holder whose
// claim is live also ends its attempt and keeps its schedule (I5, I7). It is the
// step through which replies, lookups, events, reports and people all go.
func (e *Engine) merge(ctx context.Context, do string, r *Record, ev evidence, h *claim, retryAfter time.Duration) (*Record, error) {
	ev.code = cleanCode(ev.code)
	return e.update(ctx, do, r, func(next *Record) (*edit, error) {
		mine := h != nil && next.Token == h.token && next.Claimed()
		at := next.AsOf
		if h != nil {
			at = h.late()
		}
		ev := ev
		ev.at = micros(at)
		before := next.rankOf(ev.ref)
		if mine {
			next.endBefore(h) // first: what was quiet decides what a refusal closes
		}
		next.apply(ev)
		if ev.keyless {
			next.KeyWindow = 0 // it left without the key, as far as anybody knows: never again
		}
		ed := &edit{
			now: ev.at, dueIn: Keep, wait: e.opts.Lease,
			entry: Entry{Source: ev.source, Fact: ev.fact, Attempt: ev.attempt, Ref: ev.ref, Code: ev.code},
		}
		if ev.fact == Unclear {
			ed.entry.Note = "no_answer"
		}
		if ev.inbox != nil {
			ed.inbox, ed.entry.Note = ev.inbox, ev.inbox.Record.ID
		}
		if mine {
			ed.ifToken, ed.holder = h.token, h
			ed.looked = ev.source == SourceLookup && ev.fact != Unclear
		}
		if retryAfter > 0 && (mine || ev.attempt == next.lastAttempt()) {
			next.RetryAt = ev.at.Add(retryAfter)
		}
		if a := next.attempt(ev.attempt); a != nil && a.End.IsZero() && (mine || ev.fact != Unclear) {
			a.End = ev.at // its live holder says so, or the answer does
		}
		if before == RankReversed && ev.fact == Applied {
			// Both orders of {reversed, ok} end reversed; only a lookup can tell whether the
			// effect is back (T-08).
			if ev.source == SourceLookup {
				ed.alarms = append(ed.alarms, AlarmReversal)
			} else {
				ed.look = true
			}
		}
		if ev.source == SourceEvent && (ev.fact == Underway || ev.fact == NeedsAction || ev.fact == Unclear) {
			ed.look = true // advice, or none: the provider knows more than the event says
		}
		ed.look = ed.look && !next.Fingerprint.IsZero() // of a tombstone there is nothing to ask
		return ed, nil
	})
}

func (r *Record) rankOf(ref string) Rank {
	for _, x := range r.References {
		if x.Ref == ref {
			return x.Rank
		}
	}
	return RankKnown
}
