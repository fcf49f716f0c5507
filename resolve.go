package settle

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"
)

// Decision is what a person found out or decided about an operation.
type Decision struct {
	// Actor, Reason and Evidence are required, each a text of at most 1024 bytes; they are
	// kept in the history. Actor defaults to that of WithActor, and cannot be another.
	Actor, Reason, Evidence string
	// Fact: Applied (the effect exists, accepted as it is), Declined (final, no
	// effect), Reversed (the effect was undone), NotApplied (no request had an effect: a
	// safe new attempt follows). Empty with Resume.
	Fact Fact
	// Ref is the provider's reference the fact is about; empty for the only one.
	Ref string
	// Terms are those of the effect, if the person knows them. With Applied they need not be
	// what was asked for: the person accepts the effect as it is.
	Terms Terms
	// Resume lets automation go on, with a new EscalateAfter.
	Resume bool
	// SeenAttempt is the number of the last attempt that the person knew of. If a later one
	// was made, Declined and NotApplied cannot speak for it and are refused with ErrPending. 0: the last one that
	// there is when Resolve reads the record.
	SeenAttempt int
}

// maxNote bounds each text of a decision.
const maxNote = 1024

// Resolve records a person's decision. The person's fact is evidence like any other:
// what the provider says later is still merged. Declined and NotApplied close every
// attempt, so they are refused (ErrPending) while one of them may still land, when one
// is made while Resolve runs, or while somebody works on the operation. ErrSettled if it contradicts what is confirmed.
//
// Of a message of the feed that was set aside (id is that of its record of FeedKind), Resume tries it again and Applied
// goes on behind it.
func (e *Engine) Resolve(ctx context.Context, id string, d Decision) (Record, error) {
	r, err := e.get(ctx, ByID(id))
	if err != nil {
		return Record{}, e.storeError("resolve", "", id, err)
	}
	d.Actor = cmp.Or(d.Actor, ActorOf(ctx))
	bad := func(field, why string) error { return invalid("resolve", r.Kind, field, why) }
	for field, v := range map[string]string{"Actor": d.Actor, "Reason": d.Reason, "Evidence": d.Evidence} {
		if v == "" || !keepable(v) {
			return r, bad(field, "required: text of at most 1024 bytes")
		}
	}
	if d.Ref != "" {
		if err := checkName("Ref", d.Ref, MaxRef); err != nil {
			return r, bad("Ref", err.Error())
		}
	}
	if why := d.Terms.Amount.problem(); why != "" {
		return r, bad("Terms.Amount", why)
	}
	for k, v := range d.Terms.Other {
		if !keepable(k + v) {
			return r, bad("Terms.Other", "text of at most 1024 bytes")
		}
	}
	if !keepable(d.Terms.Account) {
		return r, bad("Terms.Account", "text of at most 1024 bytes")
	}
	switch d.Fact {
	case Applied, Declined, Reversed, NotApplied:
		if d.Resume && d.Fact != NotApplied {
			return r, bad("Resume", "a fact ends the review by itself")
		}
	case Unclear:
		if !d.Resume {
			return r, bad("Fact", "a fact or Resume is required")
		}
	case NotSent, Underway, NeedsAction, NotFound:
		return r, bad("Fact", "not a person's to state")
	default:
		return r, bad("Fact", "no such fact")
	}
	may, err := e.permitFor(ctx, "resolve", &r, d.Actor, Ask{Action: ActionResolve, Fact: d.Fact, Resume: d.Resume})
	if err != nil {
		return r, err
	}
	if r.Kind == FeedKind {
		if d.Fact != Applied && d.Fact != Unclear {
			return r, bad("Fact", "of a message that was set aside: Applied, or Resume")
		}
		return e.resolveFeed(ctx, r, d, may)
	}
	known := r.lastAttempt()
	switch {
	case d.SeenAttempt < 0 || d.SeenAttempt > known:
		return r, bad("SeenAttempt", "there is no such attempt")
	case d.SeenAttempt > 0:
		known = d.SeenAttempt
	}
	out, err := e.update(ctx, "resolve", &r, func(next *Record) (*edit, error) {
		ed, err := e.resolved(next, d, known)
		return may.signed(ed), err
	})
	if err == nil {
		e.Wake()
	}
	return *out, err
}

// resolved applies d to next. known is the last attempt that there was when d was made.
func (e *Engine) resolved(next *Record, d Decision, known int) (*edit, error) {
	refuse := func(err error, why string) (*edit, error) {
		return nil, &Error{Do: "resolve", Kind: next.Kind, ID: next.ID, State: next.State, Err: err, Cause: because(why)}
	}
	now := next.AsOf
	ed := &edit{now: now, dueIn: Keep, entry: Entry{
		Source: SourcePerson, Fact: d.Fact, Ref: d.Ref, Actor: d.Actor, Note: d.Reason + " — " + d.Evidence,
	}}
	closes := d.Fact == Declined || d.Fact == NotApplied
	switch {
	case closes && next.Claimed():
		return refuse(ErrInProgress, "somebody works on it now")
	case closes && next.lastAttempt() > known:
		return refuse(ErrPending, "a request was made meanwhile, which the decision cannot speak for")
	case closes && !next.allQuiet():
		return refuse(ErrPending, "a request may still land")
	case closes && next.State.Settled() && next.State != StateFailed && next.State != StateCanceled,
		d.Fact == NotApplied && next.State.Settled():
		return refuse(ErrSettled, "the effect is confirmed, or there is none")
	case d.Fact == Applied && next.cameUndone() && (d.Ref == "" || next.rankOf(d.Ref) == RankReversed):
		return refuse(ErrSettled, "the effect came undone, and no decision brings it back")
	case d.Resume && d.Fact == Unclear && next.State.Settled():
		return refuse(ErrSettled, "there is nothing to resume")
	}
	if d.Fact != Unclear {
		next.apply(evidence{source: SourcePerson, at: now, fact: d.Fact, ref: d.Ref, terms: d.Terms, code: "person"})
	}
	if d.Resume || d.Fact == NotApplied {
		next.Review, next.ResumedAt, next.Tries, next.Waits = nil, now, 0, 0
		if next.Progress != nil {
			p := *next.Progress
			p.Since = now
			next.Progress = &p
		}
		ed.look = true // due at once, or when the claim ends
	}
	return ed, nil
}

// keepable reports whether s is a text of at most maxNote bytes that every store can keep.
func keepable(s string) bool {
	return len(s) <= maxNote && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

// allQuiet reports whether no attempt can land any more.
func (r *Record) allQuiet() bool {
	for _, a := range r.Attempts {
		if a.open() && !a.quiet(r.AsOf) {
			return false
		}
	}
	return true
}
