package settle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"
)

// The words of Record.Withdrawn that the engine writes by itself.
const (
	WithdrawnExpired = "send_before_passed"
	WithdrawnParent  = "nothing_to_undo" // the operation that it compensates turned out to have no effect
)

// errBarred: the compensation must not be sent, its effect is not confirmed now (I8).
var errBarred = errors.New("settle: the effect to undo is not confirmed")

// Compensate undoes a confirmed effect of an operation of the kind that this executor
// undoes, as an operation of its own with every property of one: its subject is made
// from the effect, and the reason is its purpose, so that the same call again is the same
// compensation. The next try after a refused one is Execute with Undoes, the reason as
// Purpose, and Replaces. Its amount, from Adapter.Terms, is reserved in the commit that reads
// the parent; terms without an amount undo the whole effect.
//
// Of an operation that is not settled the wish is stored, and the error matches
// ErrWaiting; it starts by itself when the effect is confirmed and is canceled when
// there turns out to be none. Of one of which nothing was sent, that one is
// canceled: ErrNoEffect. ErrExceeds if more would be undone than was done (of both the error
// has the id of the operation that would be undone),
// ErrNotFound for an unknown id (undo an intent that may never have been registered with Cancel).
func (x *Executor[Req, Res]) Compensate(ctx context.Context, effect Effect, reason string, req Req) (Outcome[Res], error) {
	return x.Execute(ctx, Operation[Req]{Undoes: Effect{Operation: effect.Operation, Ref: effect.Ref}, Purpose: reason, Request: req})
}

// undoSubject derives the subject of a compensation: with the reason as purpose and
// the kind as method it makes the key of (parent, reference, method, reason).
func undoSubject(u Undo) string {
	switch s := u.Operation + "/" + u.Ref; {
	case u.Ref == "":
		return u.Operation
	case len(s) <= MaxSubject:
		return s
	default:
		h := sha256.Sum256([]byte(u.Ref))
		return u.Operation + "/sha256:" + hex.EncodeToString(h[:])
	}
}

// target finds the effect of parent that u names: found is false if there is none
// now, and ambiguous says that u must name one of several.
func (r *Record) target(u Undo) (e Effect, found, ambiguous bool) {
	var hits []Reference
	for _, ref := range r.references() {
		if ref.Rank == RankSucceeded && (u.Ref == "" || u.Ref == ref.Ref) {
			hits = append(hits, ref)
		}
	}
	switch len(hits) {
	case 0:
		return r.effect(Reference{Ref: u.Ref, Terms: r.Terms}), false, false // as asked, with what is wished
	case 1:
		return r.effect(hits[0]), true, false
	}
	return Effect{Operation: r.ID}, false, true
}

// undoing reads the parent of a compensation and says whether the compensation may be
// sent now: barred is nil, or what to do instead.
func (e *Engine) undoing(ctx context.Context, r *Record) (Effect, *decision, error) {
	parent, err := e.get(ctx, ByID(r.Undoes.Operation))
	if err != nil {
		return Effect{}, nil, e.storeError("read the parent", r.Kind, r.ID, err)
	}
	effect, barred := r.barred(&parent)
	return effect, barred, nil
}

// barred says what a compensation of parent undoes, and what to do instead of sending it; nil: nothing (I8).
func (r *Record) barred(parent *Record) (Effect, *decision) {
	effect, found, ambiguous := parent.target(r.Undoes)
	switch {
	case found && effect.gone() && !r.mayHaveLeft():
		return effect, &decision{do: actCancel, reason: WithdrawnParent}
	case found:
		return effect, nil
	case ambiguous:
		return effect, &decision{do: actReview, reason: ReasonAmbiguous}
	case parent.State.Settled() && !r.mayHaveLeft():
		return effect, &decision{do: actCancel, reason: WithdrawnParent}
	}
	return effect, &decision{do: actWait, in: backoff(r.Tries + 1)}
}

// rederives reports whether a compensation that nobody has sent may take t for its terms: those
// for the effect as it is confirmed by now. Only the amount of a whole one follows the effect (I2).
func (r *Record) rederives(t Terms, effect Effect) bool {
	if r.Undoes.Operation == "" || t.Account != r.Terms.Account {
		return false
	}
	return t.Amount.Equal(r.Terms.Amount) && effect.Ref != "" || r.Undoes.Whole && t.Amount.Equal(effect.Amount)
}

// gone reports that e is wholly undone already: by others, for who has not been sent.
func (e Effect) gone() bool {
	return !e.Amount.IsZero() && !e.Returned.less(e.Amount)
}

func (r *Record) mayHaveLeft() bool {
	return slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return !a.harmless() })
}

// related computes the writes on other records that belong into the same step as
// cur becoming next: the parent's ledger for a compensation, and the waiting
// compensations of an operation that settles. It may change next's ledger. parent is that of a
// compensation if it was read already, else nil.
func (e *Engine) related(ctx context.Context, on committer, cur, next, parent *Record, now time.Time) ([]Write, error) {
	var out []Write
	if next.Undoes.Operation != "" {
		w, err := e.postToParent(ctx, on, cur, next, parent, now)
		if err != nil {
			return nil, err
		}
		if w != nil {
			out = append(out, *w)
		}
	}
	if len(next.Ledger) > 0 {
		ws, err := e.wakeWishes(ctx, on, next, now)
		if err != nil {
			return nil, err
		}
		out = append(out, ws...)
	}
	return out, nil
}

// postToParent brings the parent's ledger in step with its compensation. The parent's
// version guards the reservation, and every attempt: it is only committed while
// the effect is confirmed (I8, I9).
func (e *Engine) postToParent(ctx context.Context, on committer, cur, next, read *Record, now time.Time) (*Write, error) {
	starts := next.lastAttempt() > cur.lastAttempt()
	state := next.compute(true)
	if cur.Version > 0 && state == cur.State && !starts && slices.EqualFunc(cur.References, next.References, sameEvidence) {
		return nil, nil
	}
	if read == nil {
		r, err := e.getOn(ctx, on, ByID(next.Undoes.Operation))
		if err != nil {
			return nil, err
		}
		read = &r
	}
	parent := read
	w := &Write{Record: parent.fork()}
	pn := &w.Record
	pn.Ledger = attributed(pn.Ledger, next)
	effect, found, _ := pn.target(next.Undoes)
	first := !cur.mayHaveLeft()
	switch {
	case starts && !found, starts && first && next.outdated(effect):
		return nil, errBarred
	}
	if starts && next.Undoes.Ref == "" {
		next.Undoes.Ref = effect.Ref // from now on it is this effect
	}
	if now.IsZero() {
		now = parent.AsOf
	}
	i := slices.IndexFunc(pn.Ledger, func(p Posting) bool { return p.Operation == next.ID })
	posted := i >= 0
	if !posted {
		p, err := reserve(effect, next)
		if err != nil {
			return nil, err
		}
		if !found && parent.State.Settled() {
			return nil, &Error{Do: "compensate", Kind: next.Kind, ID: parent.ID, State: parent.State, Err: ErrNoEffect}
		}
		pn.Ledger = append(pn.Ledger, p)
		i = len(pn.Ledger) - 1
	}
	p := &pn.Ledger[i]
	if found && first {
		p.Amount = p.wanted(effect)
	}
	status, ref := postingOf(next, state, found), cmp.Or(next.Undoes.Ref, p.Ref)
	if status == PostingOpen && p.Status == PostingWished && !next.mayHaveLeft() && !pn.fits(effect, *p) {
		status = PostingWished // it cannot start, so it covers nothing (I9)
	}
	amount := next.undone(p.Amount)
	same := p.Status == status && p.Ref == ref && p.Amount.Equal(amount)
	if posted && same && !starts && len(pn.Ledger) == len(parent.Ledger) {
		return nil, nil
	}
	if starts && !pn.fits(effect, *p) {
		return nil, exceeds(next, parent.ID, "more than is left of the effect")
	}
	p.Status, p.Ref, p.Amount = status, ref, amount
	ed := &edit{now: now, dueIn: Keep, later: true, entry: Entry{Source: SourceWorker, Ref: p.Ref, Code: string(status), Note: "ledger"}}
	e.conclude(nil, parent, w, ed, false)
	return w, nil
}

// outdated reports that the terms of a compensation that is about to be sent for the first time are
// those of the whole of an effect that is another by now.
func (r *Record) outdated(effect Effect) bool {
	return r.Undoes.Whole && !r.Terms.Amount.IsZero() && !r.Terms.Amount.Equal(effect.Amount)
}

// wanted is what an unsent compensation asks for, now that the effect is known.
func (p Posting) wanted(effect Effect) Amount {
	if p.Whole {
		return effect.Amount
	}
	return p.Amount
}

func sameEvidence(a, b Reference) bool {
	return a.Ref == b.Ref && a.Rank == b.Rank && a.Terms.Equal(b.Terms)
}

// undone is what the ledger counts for a compensation: what it asked for, or what is
// confirmed to have been undone, if that is more.
func (r *Record) undone(asked Amount) Amount {
	var total Amount
	for _, x := range r.references() {
		if (x.Rank == RankSucceeded || x.Rank == RankDisputed) && x.Terms.Amount.Unit == asked.Unit {
			total = sum(total, x.Terms.Amount)
		}
	}
	if asked.less(total) {
		return total
	}
	return asked
}

// pin names the effect in ledger lines that were made when it had no name, as soon as it
// has one: a second reference must not make them somebody's else (I9).
func (r *Record) pin() {
	if len(r.Ledger) == 0 {
		return
	}
	named := slices.DeleteFunc(slices.Clone(r.References), func(x Reference) bool { return x.Ref == "" })
	if len(named) != 1 {
		return
	}
	for i := range r.Ledger {
		if p := &r.Ledger[i]; p.Ref == "" && p.Status != PostingWished {
			p.Ref = named[0].Ref
		}
	}
}

// reserve makes the ledger line of a new compensation, if it fits.
func reserve(effect Effect, c *Record) (Posting, error) {
	p := Posting{Operation: c.ID, Kind: c.Kind, Ref: c.Undoes.Ref, Amount: c.Terms.Amount, Status: PostingWished, Reason: c.Purpose, Whole: c.Undoes.Whole}
	refuse := func(sentinel error, why string) (Posting, error) {
		return p, &Error{Do: "compensate", Kind: c.Kind, ID: effect.Operation, Err: sentinel, Cause: because(why)}
	}
	switch {
	case effect.Amount.IsZero() && !p.Amount.IsZero():
		return refuse(ErrInvalid, "the effect has no amount")
	case effect.Amount.IsZero():
		if !effect.Reserved.IsZero() || !effect.Returned.IsZero() || effect.whole {
			return refuse(ErrExceeds, "another compensation undoes it")
		}
		return p, nil
	case p.Amount.IsZero():
		p.Amount = effect.Amount
	case p.Amount.Unit != effect.Amount.Unit:
		return refuse(ErrInvalid, "the amount's unit is not that of the effect")
	}
	if effect.Left().less(p.Amount) {
		return p, exceeds(c, effect.Operation, "more than is left of the effect")
	}
	return p, nil
}

func exceeds(c *Record, parent, why string) error {
	return &Error{Do: "compensate", Kind: c.Kind, ID: parent, Err: ErrExceeds, Cause: because(why)}
}

// fits reports whether p may start: what is undone and what is on its way, p included,
// stay within the confirmed effect, which may be smaller than what was asked for when
// the wish was stored (I9).
func (r *Record) fits(effect Effect, p Posting) bool {
	if !p.Amount.IsZero() && !effect.Amount.IsZero() && p.Amount.Unit != effect.Amount.Unit {
		return false // the effect was accepted in another unit than was asked for
	}
	used := sum(effect.Returned, p.Amount)
	for _, x := range r.postings(effect.Ref) {
		if x.Operation == p.Operation || x.Status != PostingOpen {
			continue
		}
		if effect.Amount.IsZero() {
			return false
		}
		used = sum(used, x.Amount)
	}
	return effect.Amount.IsZero() || !effect.Amount.less(used)
}

// postingOf is how a compensation in this state stands in its parent's ledger.
func postingOf(c *Record, state State, confirmed bool) PostingStatus {
	switch state {
	case StateSucceeded, StateCompensating, StateCompensated:
		return PostingDone
	case StateFailed:
		if slices.ContainsFunc(c.References, func(x Reference) bool { return x.Rank == RankReversed }) {
			return PostingUndone
		}
		return PostingFreed
	case StateCanceled:
		return PostingFreed
	case StateCreated, StateSubmitting, StateUnknown, StateProcessing, StateActionRequired, StateReview:
	}
	if !confirmed && !c.mayHaveLeft() {
		return PostingWished
	}
	return PostingOpen
}

// wakeWishes starts the compensations that waited for next to be confirmed, and
// cancels them when it turns out to have no effect; in the same commit. One that was
// canceled for that reason starts after all when the operation revives (T-41).
func (e *Engine) wakeWishes(ctx context.Context, on committer, next *Record, now time.Time) ([]Write, error) {
	state := next.compute(true)
	if !state.Settled() {
		return nil, nil
	}
	var out []Write
	for i := range next.Ledger {
		p := &next.Ledger[i]
		effect, found, ambiguous := next.target(Undo{Operation: next.ID, Ref: p.Ref})
		if p.Status != PostingWished && (p.Status != PostingFreed || !found) {
			continue
		}
		want := *p
		if found {
			want.Amount = p.wanted(effect)
		}
		fits := next.fits(effect, want)
		if p.Status == PostingFreed && !fits {
			continue // what it would undo is taken (T-24)
		}
		child, err := e.getOn(ctx, on, ByID(p.Operation))
		if err != nil {
			return nil, err
		}
		w := Write{Record: child.fork()}
		cn := &w.Record
		ed := &edit{now: now, dueIn: Keep, entry: Entry{Source: SourceWorker, Note: "parent_failed"}}
		switch {
		case p.Status == PostingFreed && (child.Withdrawn != WithdrawnParent || child.ReplacedBy != ""):
			continue // it failed by itself, or is tried again already
		case ambiguous:
			if child.Review != nil || child.Claimed() {
				continue
			}
			ed.entry.Note, ed.entry.Code = "parent_confirmed", ReasonAmbiguous
			cn.Review = &Review{Reason: ReasonAmbiguous, Since: micros(now)}
		case found && !fits:
			if child.Review != nil || child.Claimed() {
				continue
			}
			ed.entry.Note, ed.entry.Code = "parent_confirmed", ReasonExceeds
			cn.Review = &Review{Reason: ReasonExceeds, Since: micros(now)}
		case found:
			cn.Withdrawn, ed.entry.Note, ed.dueIn, ed.look = "", "parent_confirmed", 0, true
			p.Status, p.Amount, p.Ref = PostingOpen, want.Amount, cmp.Or(effect.Ref, p.Ref)
			cn.Undoes.Ref = p.Ref // from now on it is this effect, whatever else turns up
		default:
			cn.Withdrawn = WithdrawnParent
			p.Status = PostingFreed
		}
		if ed.now.IsZero() {
			ed.now = child.AsOf
		}
		e.conclude(nil, &child, &w, ed, false)
		out = append(out, w)
	}
	return out, nil
}
