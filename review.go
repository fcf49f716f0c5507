package settle

import (
	"cmp"
	"context"
	"time"
)

// Assignment names who is to decide an operation in review.
type Assignment struct {
	// Actor, who assigns, and Reason are required, each a text of at most 1024 bytes; they
	// are kept in the history. Actor defaults to that of WithActor, and cannot be another.
	Actor, Reason string
	// Owner is who is to decide: a person, a team, a queue. Required, a text of at most MaxOwner bytes.
	Owner string
	// Within is the owner's time to decide, from now on by the store's clock: an instant
	// that one host's clock made would be judged by another's (I13). At most a year; 0 leaves the
	// deadline as it is. A review that was overdue is not any more, and is alarmed again.
	Within time.Duration
}

// MaxOwner bounds Assignment.Owner, in bytes.
const MaxOwner = 255

// maxWithin bounds Assignment.Within: a review without an end is one that nobody will decide (I10).
const maxWithin = 365 * 24 * time.Hour

// Assign gives the review of an operation, or of an event, an owner, and on request a new
// deadline. It decides nothing and needs no executor: whoever owns it, evidence still ends the
// review, and so does anybody's Resolve. ErrSettled if the operation is settled, ErrPending if it is
// open and automation still works on it, ErrNotFound, ErrInvalid: nothing was changed. ErrStore: it
// may have been; assigning again is safe.
func (e *Engine) Assign(ctx context.Context, id string, a Assignment) (Record, error) {
	r, err := e.get(ctx, ByID(id))
	if err != nil {
		return Record{}, e.storeError("assign", "", id, err)
	}
	a.Actor = cmp.Or(a.Actor, ActorOf(ctx))
	bad := func(field, why string) error { return invalid("assign", r.Kind, field, why) }
	for field, v := range map[string]string{"Actor": a.Actor, "Reason": a.Reason} {
		if v == "" || !keepable(v) {
			return r, bad(field, "required: text of at most 1024 bytes")
		}
	}
	if a.Owner == "" || len(a.Owner) > MaxOwner || !keepable(a.Owner) {
		return r, bad("Owner", "required: text of at most 255 bytes")
	}
	if a.Within < 0 || a.Within > maxWithin {
		return r, bad("Within", "must be between 0 and a year")
	}
	may, err := e.permitFor(ctx, "assign", &r, a.Actor, Ask{Action: ActionAssign})
	if err != nil {
		return r, err
	}
	out, err := e.update(ctx, "assign", &r, func(next *Record) (*edit, error) {
		ed, err := assigned(next, a)
		return may.signed(ed), err
	})
	return *out, err
}

// assigned applies a to next.
func assigned(next *Record, a Assignment) (*edit, error) {
	if next.State != StateReview {
		err, why := ErrPending, "it is not in review"
		if next.State.Settled() {
			err, why = ErrSettled, "there is nothing to decide"
		}
		return nil, &Error{Do: "assign", Kind: next.Kind, ID: next.ID, State: next.State, Err: err, Cause: because(why)}
	}
	ed := &edit{now: next.AsOf, dueIn: Keep, entry: Entry{
		Source: SourcePerson, Code: CodeAssigned, Actor: a.Actor, Note: a.Owner + " — " + a.Reason,
	}}
	if next.Review == nil { // conclude adds the rest
		next.Review = &Review{Reason: reviewReason(next), Since: next.AsOf}
	}
	v := next.Review
	v.Owner = a.Owner
	if a.Within > 0 {
		v.Deadline, v.Overdue = micros(next.AsOf.Add(a.Within)), false
		if next.Due.IsZero() || next.Due.After(v.Deadline) {
			ed.dueIn = a.Within // the deadline is noticed when it comes; a claimed row's due stays its holder's
		}
	}
	return ed, nil
}

// CodeAssigned is the code of the history entry that Assign leaves; its note is the owner and the reason.
const CodeAssigned = "assigned"

// Resolution is what became of one operation in ResolveAll.
type Resolution struct {
	ID     string
	Record Record // as Resolve returns it
	Err    error  // nil: the decision is recorded
}

// ResolveAll records one decision about many operations, each on its own, as Resolve does: a
// refusal of one says nothing about the others. The answers come in the order of ids, each id once.
// Ref and Terms speak of one effect, so with more than one id they are ErrInvalid for all. When
// ctx ends the rest are left as they are, with ErrPending and ctx's error.
func (e *Engine) ResolveAll(ctx context.Context, ids []string, d Decision) []Resolution {
	var out []Resolution
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, Resolution{ID: id})
		}
	}
	for i := range out {
		x := &out[i]
		switch {
		case len(out) > 1 && (d.Ref != "" || !d.Terms.IsZero()):
			x.Err = &Error{Do: "resolve", ID: x.ID, Err: ErrInvalid, Fields: []string{"Ref", "Terms"}, Cause: because("they speak of one operation's effect")}
		case len(out) > 1 && d.SeenAttempt != 0:
			x.Err = &Error{Do: "resolve", ID: x.ID, Err: ErrInvalid, Fields: []string{"SeenAttempt"}, Cause: because("it speaks of one operation")}
		case ctx.Err() != nil:
			x.Err = &Error{Do: "resolve", ID: x.ID, Err: ErrPending, Cause: ctx.Err()}
		default:
			x.Record, x.Err = e.Resolve(ctx, x.ID, d)
		}
	}
	return out
}
