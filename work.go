package settle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// take claims one record for this process if nobody has it. prepare may change
// the copy that is written. The claim is nil if somebody else was first or there is
// nothing left to do.
func (e *Engine) take(ctx context.Context, do string, r *Record, prepare func(next *Record)) (*Record, *claim, error) {
	c := e.newClaim()
	out, err := e.update(ctx, do, r, func(next *Record) (*edit, error) {
		if next.Claimed() || next.State.Settled() {
			return nil, errStop
		}
		c.sent = e.opts.Clock.Now()
		c.base = c.sent
		next.Token = c.token
		next.endOpen()
		if prepare != nil {
			prepare(next)
		}
		return &edit{now: next.AsOf, dueIn: e.opts.Lease, entry: Entry{Source: SourceWorker, Note: "claim"}}, nil
	})
	if err != nil || out.Token != c.token || !out.Claimed() {
		return out, nil, err
	}
	c.granted(out.AsOf)
	return out, c, nil
}

// endOpen notes that the attempts of a former holder ended in time by now: their
// requests started within a lease that is over (T-10, T-37).
func (r *Record) endOpen() {
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.End.IsZero() {
			a.End = r.AsOf
		}
	}
}

// endBefore does the same for a holder that was handed the record by Store.Claim,
// which writes nothing but the claim: its first write stores these ends.
func (r *Record) endBefore(c *claim) {
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.N != c.attempt && a.End.IsZero() {
			a.End = c.asOf
		}
	}
}

// ended is r with those ends: r itself if it has them already, since others may be reading it.
func (r *Record) ended(c *claim) *Record {
	if !slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.N != c.attempt && a.End.IsZero() }) {
		return r
	}
	out := r.fork()
	out.endBefore(c)
	return &out
}

func (r *Record) lastAttempt() int {
	if len(r.Attempts) == 0 {
		return 0
	}
	return r.Attempts[len(r.Attempts)-1].N
}

// addAttempt appends the attempt that is about to be sent. Old ones that nothing depends
// on are dropped from the record (the history has them): a provider that is down or
// undecided for weeks must not grow it without bound.
func (r *Record) addAttempt(start time.Time, grace time.Duration) Attempt {
	const kept = 8
	a := Attempt{N: r.lastAttempt() + 1, Start: micros(start), Grace: grace}
	spent, left := 0, r.mayHaveLeft()
	for _, x := range r.Attempts {
		if x.spent() {
			spent++
		}
	}
	if !left {
		r.Tries, r.Waits = 0, 0 // tries to recover are counted from the first open attempt
	}
	out := r.Attempts[:0]
	first := true // the first that may have left opens the key window: it stays
	for _, x := range r.Attempts {
		opens := first && !x.harmless()
		first = first && !opens
		if spent > kept && x.spent() && !opens {
			spent--
			continue
		}
		out = append(out, x)
	}
	r.Attempts = append(out, a)
	r.RetryAt = time.Time{}
	return a
}

// spent reports whether a newer attempt makes a redundant: it is harmless, or the provider
// says that it works on it, which the newer one was told, too.
func (a Attempt) spent() bool { return a.harmless() || a.Fate == FateUnderway }

// pass works one claimed operation until it is settled, scheduled or in review.
// read is not nil if the current attempt is committed already and shall be sent now: its
// operation as read back from its stored form. It returns the record as it is then; an error means that the store did not record what happened.
func (e *Engine) pass(ctx context.Context, k kind, r *Record, c *claim, read any) (*Record, error) {
	if read != nil || !r.mayHaveLeft() {
		return e.passOver(ctx, k, r, c, read)
	}
	from := r.compute(false)
	out, err := e.passOver(ctx, k, r, c, nil)
	e.recovery(ctx, from, out, err)
	return out, err
}

func (e *Engine) passOver(ctx context.Context, k kind, r *Record, c *claim, read any) (*Record, error) {
	hctx, kp := e.keepAlive(ctx, r, c)
	defer kp.stop()
	var seen looked
	var sent bool
	ready := read != nil
	for {
		live := kp.left() > 0 && hctx.Err() == nil && r.Token == c.token
		if ready && !live {
			// The attempt is on record and will not be sent: say so, whoever has the claim (T-28).
			r, err := e.unsent(ctx, k, r, c, "claim_lost")
			if err == nil {
				err = e.lostError(hctx, r)
			}
			return r, err
		}
		if r.Token != c.token {
			return r, e.lostError(hctx, r)
		}
		if !live {
			return e.reread(ctx, hctx, r)
		}
		r = r.ended(c)
		if r.Undoes.Operation != "" {
			own := *r // next may derive its terms
			r = &own
		}
		undo, d, err := e.next(ctx, k, r, c, ready, seen, sent)
		if err != nil {
			return r, err
		}
		switch d.do {
		case actDone:
			return r, nil
		case actSend:
			if !ready {
				var committed bool
				r, committed, err = e.commitAttempt(ctx, k, r, c)
				switch {
				case errors.Is(err, ErrExceeds):
					r, _, err = e.release(ctx, r, c, decision{do: actReview, reason: ReasonExceeds})
					return r, err
				case err != nil:
					return r, err
				}
				if !committed {
					continue // somebody decided otherwise in between
				}
				kp.touched(c.base)
				ready = true // the next turn sends it, if the claim still stands
				continue
			}
			if r, err = e.send(ctx, hctx, k, r, c, undo, read); err != nil {
				return r, err
			}
			ready, sent, read = false, true, nil
		case actUnsend:
			if r, err = e.unsent(ctx, k, r, c, "parent_not_confirmed"); err != nil {
				return r, err
			}
			ready, sent, read = false, true, nil
		case actLookup:
			if r, seen, err = e.ask(ctx, hctx, k, r, c, undo); err != nil {
				return r, err
			}
		case actWait, actReview, actCancel:
			var moved bool
			if r, moved, err = e.release(ctx, r, c, d); err != nil || !moved {
				return r, err
			}
			// Somebody wrote in between: decide again on what is there now.
		}
	}
}

// next asks decide, after looking at what only the process and the parent know. A wish, which could not
// know the effect when it was made, gets its terms now.
func (e *Engine) next(ctx context.Context, k kind, r *Record, c *claim, ready bool, seen looked, sent bool) (Effect, decision, error) {
	contract := k.contract()
	var undo Effect
	var barred *decision
	if r.Undoes.Operation != "" {
		var err error
		if undo, barred, err = e.undoing(ctx, r); err != nil {
			return undo, decision{}, err
		}
	}
	switch {
	case ready && barred != nil:
		return undo, decision{do: actUnsend}, nil
	case ready:
		return undo, decision{do: actSend}, nil
	}
	c.decided = e.opts.Clock.Now()
	s := situation{
		contract: contract, record: r, early: c.early(), late: c.late(), lease: c.lease, escalateAfter: k.escalateAfter(),
		sameAccount: r.Account == k.account(), mute: k.mute(), pruned: !r.PrunedAt.IsZero(), sealed: r.Request.Sealed(), looked: seen, sent: sent,
	}
	if s.sameAccount && !r.State.Settled() && !s.pruned && !s.sealed {
		terms, err := k.deriveTerms(r, undo)
		if err == nil && !r.mayHaveLeft() && r.rederives(terms, undo) {
			r.Terms = terms // of a wish, which could not know the effect yet; commitAttempt stores them
		}
		s.sameAccount = err == nil && terms.Equal(r.Terms)
	}
	d := decide(s)
	if d.do == actSend && barred != nil {
		d = *barred // never for an effect that is not confirmed at this moment (I8)
	}
	return undo, d, nil
}

// commitAttempt makes the next attempt durable before anything is sent (I1). Only a
// holder whose claim is live can (I5).
func (e *Engine) commitAttempt(ctx context.Context, k kind, r *Record, c *claim) (*Record, bool, error) {
	var n int
	var ours bool
	out, err := e.update(ctx, "send", r, func(next *Record) (*edit, error) {
		ours = false
		if next.Token != c.token || !next.Claimed() || next.Version != r.Version {
			return nil, errStop // lost, or the record moved: decide again
		}
		next.endBefore(c)
		if !next.mayHaveLeft() {
			next.Terms = r.Terms
		}
		a := next.addAttempt(c.early(), k.contract().grace())
		n, ours = a.N, true
		ed := &edit{now: c.late(), dueIn: c.lease, ifToken: c.token, entry: Entry{Source: SourceWorker, Attempt: a.N, Note: "attempt"}}
		return ed, nil
	})
	if errors.Is(err, errBarred) {
		now, err := e.get(ctx, ByID(r.ID)) // the parent moved; the next decision sees how
		return &now, false, err
	}
	if err != nil || !ours {
		return out, false, err
	}
	c.base, c.attempt = c.decided, n
	return out, true, nil
}

// send makes the request of the last committed attempt and merges what came back.
func (e *Engine) send(ctx, hctx context.Context, k kind, r *Record, c *claim, undo Effect, read any) (*Record, error) {
	switch {
	case !c.mayStart():
		return e.unsent(ctx, k, r, c, "lease_over")
	case !r.SendBefore.IsZero() && !c.late().Before(r.SendBefore):
		return e.unsent(ctx, k, r, c, "send_before")
	case k.mute():
		return e.unsent(ctx, k, r, c, ReasonMute)
	}
	n := r.lastAttempt()
	ev := answerOf(k, r, c)
	used := new(atomic.Bool) // Call.Key was asked for
	record := func(ctx context.Context, c *claim, rep reply, err error) (*Record, error) {
		out := ev
		if err == nil {
			out = rep.ev
			out.source, out.attempt, out.began, out.honoured = ev.source, ev.attempt, ev.began, ev.honoured
			e.proveNothing(ctx, r, n, out.fact)
		} else {
			out.code = noAnswer(hctx, err)
			e.obs.Notice(ctx, Notice{Event: EventNoAnswer, Kind: r.Kind, Operation: r.ID, Attempt: n, Code: out.code})
		}
		// A request without the key: nothing is sent again for it, and its refusal speaks for
		// nothing but itself. A panic came before the request, as a rule.
		if out.honoured && !used.Load() {
			out.honoured = false
			out.keyless = out.fact != NotSent && out.fact != NotApplied && !errors.Is(err, errPanic)
		}
		return e.merge(ctx, "record", r, out, c, rep.retryAfter)
	}
	rep, err := e.call(hctx, k.contract().Deadline,
		func(ctx context.Context) (reply, error) { return k.submit(ctx, r, undo, n, read, used) },
		func(rep reply, err error) {
			if err == nil {
				_, _ = record(context.WithoutCancel(ctx), nil, rep, nil)
			}
		})
	return record(ctx, c, rep, err)
}

// proveNothing tells the observer of an answer that proves nothing: the adapter says so, and a caller who counts
// calls without an answer must not miss it.
func (e *Engine) proveNothing(ctx context.Context, r *Record, attempt int, f Fact) {
	if f == Unclear {
		e.obs.Notice(ctx, Notice{Event: EventNoAnswer, Kind: r.Kind, Operation: r.ID, Attempt: attempt, Code: "unclear"})
	}
}

// answerOf prepares the evidence of the current attempt's answer.
func answerOf(k kind, r *Record, c *claim) evidence {
	n := r.lastAttempt()
	if c.attempt > 0 {
		n = c.attempt
	}
	ev := evidence{source: SourceReply, attempt: n, honoured: k.contract().Keys.Window > 0 && r.KeyWindow > 0}
	if a := r.attempt(n); a != nil {
		ev.began = a.Start
	}
	return ev
}

// unsent closes the current attempt, which was committed and will not be sent.
func (e *Engine) unsent(ctx context.Context, k kind, r *Record, c *claim, code string) (*Record, error) {
	ev := answerOf(k, r, c)
	ev.fact, ev.code = NotSent, code
	return e.merge(ctx, "send", r, ev, c, 0)
}

// ask makes one lookup and merges what came back.
func (e *Engine) ask(ctx, hctx context.Context, k kind, r *Record, c *claim, undo Effect) (*Record, looked, error) {
	ev := evidence{source: SourceLookup, began: c.early()}
	record := func(ctx context.Context, c *claim, rep reply, err error) (*Record, looked, error) {
		out, seen := ev, lookedFound
		if err == nil {
			out = rep.ev
			out.source, out.began = SourceLookup, ev.began
			e.proveNothing(ctx, r, 0, out.fact)
		} else {
			out.code = noAnswer(hctx, err)
			e.obs.Notice(ctx, Notice{Event: EventNoAnswer, Kind: r.Kind, Operation: r.ID, Code: out.code})
		}
		switch out.fact {
		case NotFound:
			seen = lookedNothing
		case Unclear, NotSent, NotApplied:
			out.fact, seen = Unclear, lookedFailed // a lookup cannot speak for an attempt
		case Applied, Declined, Underway, NeedsAction, Reversed:
		}
		after, err := e.merge(ctx, "record", r, out, c, rep.retryAfter)
		return after, seen, err
	}
	rep, err := e.call(hctx, k.contract().Deadline,
		func(ctx context.Context) (reply, error) { return k.lookup(ctx, r, undo) },
		func(rep reply, err error) {
			if err == nil && rep.ev.fact != NotFound {
				_, _, _ = record(context.WithoutCancel(ctx), nil, rep, nil)
			}
		})
	return record(ctx, c, rep, err)
}

// call runs one adapter call under its deadline, in a goroutine of its own: an
// adapter that ignores its context must not keep the claim for ever. late gets an
// answer that came after call stopped waiting. It is merged like any other observation, not as
// the holder's: who holds the claim has gone on, perhaps to an attempt that this answer must not end (I5).
func (e *Engine) call(ctx context.Context, deadline time.Duration, f func(context.Context) (reply, error), late func(reply, error)) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	a := &answer{err: errPanic, there: make(chan struct{})} // stays so if f panics or ends its goroutine
	go func() {
		defer cancel()
		defer func() {
			if p := recover(); p != nil {
				a.rep, a.err = reply{}, errPanic
			}
			if a.taken.CompareAndSwap(false, true) {
				close(a.there)
				return
			}
			defer e.end()
			if late != nil {
				late(a.rep, a.err)
			}
		}()
		a.rep, a.err = f(ctx)
	}()
	select {
	case <-a.there:
		return a.rep, a.err
	case <-ctx.Done():
	}
	// Give the adapter a moment to notice and to tell what it knows.
	t := time.NewTimer(lateGrace)
	defer t.Stop()
	select {
	case <-a.there:
		return a.rep, a.err
	case <-t.C:
	}
	e.hold() // Drain waits for the straggler too
	if a.taken.CompareAndSwap(false, true) {
		return reply{}, context.Cause(ctx)
	}
	e.end()
	<-a.there
	return a.rep, a.err
}

// answer is what an adapter's call comes to.
type answer struct {
	rep   reply
	err   error
	taken atomic.Bool   // by whoever is first: the call's end, or who waits for it and gives up
	there chan struct{} // closed when the call ended in time
}

// lateGrace is how long a call may outlast its context before it is left alone.
const lateGrace = 250 * time.Millisecond

var (
	errPanic = errors.New("settle: the adapter panicked")
	errEmpty = errors.New("settle: the adapter returned an unknown fact")
)

// noAnswer classifies why there was no answer, in words that may be logged.
func noAnswer(hctx context.Context, err error) string {
	switch {
	case errors.Is(err, errPanic):
		return "panic"
	case errors.Is(context.Cause(hctx), ErrClaimLost):
		return "claim_lost"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "error"
}

// release ends a holder's claim with a schedule, a review or a cancellation. If
// the claim is not its any more, or the record settled, there is nothing to end.
// moved: nothing was written, since the record is not the one that was decided on.
func (e *Engine) release(ctx context.Context, r *Record, c *claim, d decision) (out *Record, moved bool, err error) {
	out, err = e.update(ctx, "release", r, func(next *Record) (*edit, error) {
		moved = next.Version != r.Version
		if moved || next.Token != c.token || next.State.Settled() {
			return nil, errStop
		}
		next.endBefore(c)
		now := c.late()
		ed := &edit{now: now, ifToken: c.token, holder: c, entry: Entry{Source: SourceWorker, Note: string(d.do)}}
		if !next.Claimed() {
			return nil, errStop
		}
		next.Token = ""
		switch d.do {
		case actReview:
			next.Review = &Review{Reason: d.reason, Since: micros(now)}
			ed.dueIn, ed.entry.Code = jitter(reviewInterval), d.reason
			if next.Wake {
				ed.dueIn = 0
			}
		case actCancel:
			next.Withdrawn = cmp.Or(d.reason, WithdrawnExpired)
			ed.entry.Code = next.Withdrawn
		case actWait, actSend, actLookup, actDone, actUnsend:
			next.Tries++
			if d.quiet {
				next.Waits++
			}
			ed.dueIn = jitter(d.in)
			if next.Wake {
				ed.dueIn = 0
			}
		}
		next.Wake = false
		ed.minds(next)
		return ed, nil
	})
	return out, moved, err
}

// minds notices, when its deadline comes, that nobody decided about next (I10).
func (ed *edit) minds(next *Record) {
	v := next.Review
	switch {
	case v == nil || next.State != StateReview || v.Overdue || v.Deadline.IsZero():
	case ed.now.Before(v.Deadline):
		ed.dueIn = min(ed.dueIn, v.Deadline.Sub(ed.now)+time.Second)
	default:
		v.Overdue = true
		ed.alarms = append(ed.alarms, AlarmOverdue)
	}
}

// reread returns the record as it is now, after the claim on it was lost.
func (e *Engine) reread(ctx, hctx context.Context, r *Record) (*Record, error) {
	out, err := e.get(ctx, ByID(r.ID))
	if err != nil {
		return r, e.storeError("read", r.Kind, r.ID, err)
	}
	return &out, e.lostError(hctx, &out)
}

// lostError lets a renewal's error reach the caller of an operation that is
// still open.
func (e *Engine) lostError(hctx context.Context, r *Record) error {
	cause := context.Cause(hctx)
	if cause == nil || errors.Is(cause, context.Canceled) || r.State.Settled() {
		return nil
	}
	return &Error{Do: "work", Kind: r.Kind, ID: r.ID, State: r.State, Err: verdictOr(r.verdict(), ErrPending), Cause: cause}
}

func verdictOr(err, other error) error {
	if err == nil {
		return other
	}
	return err
}
