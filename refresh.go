package settle

import (
	"context"
	"errors"
)

// Refreshed is what Refresh learned.
type Refreshed struct {
	// Record is the operation as it is now.
	Record Record
	// Fact is what the provider said: NotFound if it knows of no such effect, which proves nothing
	// by itself and changes nothing; Unclear if it gave no answer, and if nobody was asked, since no request
	// was ever made.
	Fact Fact
}

// Refresh asks the provider what it says about one operation now, a settled one too, and merges the
// answer like any other: a charge that was reversed unseen becomes that, and what is confirmed stays so.
// It makes one lookup and never sends. It needs no claim, and disturbs none. Calls for one operation in this process
// share the lookup.
//
// A read, not a verdict: ask Record.Err. ErrNotFound; ErrInvalid if the kind is not made on this engine, if its
// contract has no lookup, or if it is configured for another account than the operation's (I2): nobody was asked.
// ErrPending with the context's error when ctx ends first: the answer is merged all the same. ErrStore: it may not have been merged.
func (e *Engine) Refresh(ctx context.Context, id string) (Refreshed, error) {
	const do = "refresh"
	r, err := e.get(ctx, ByID(id))
	if err != nil {
		return Refreshed{}, e.storeError(do, "", id, err)
	}
	refuse := func(field, why string) (Refreshed, error) {
		return Refreshed{Record: r}, &Error{Do: do, Kind: r.Kind, ID: id, State: r.State, Err: ErrInvalid, Fields: []string{field}, Cause: because(why)}
	}
	k := e.kind(r.Kind)
	switch {
	case k == nil:
		return refuse("kind", "not made on this engine")
	case k.contract().Lookup == NoLookup:
		return refuse("Contract.Lookup", "there is nobody to ask")
	case r.Account != k.account():
		return refuse("Contract.Account", "the operation is of another account")
	case len(r.Attempts) == 0 && len(r.References) == 0:
		return Refreshed{Record: r}, nil
	}
	asked := r.Clone() // the lookup may outlast the call
	land, err := e.inFlight(ctx, "look "+id, func(ctx context.Context, fl *flight) (*Record, bool, error) {
		out, said, err := e.lookOnce(ctx, do, k, &asked)
		fl.said = said
		return out, false, err
	})
	out := Refreshed{Record: land.record, Fact: land.said}
	if out.Record.ID == "" {
		out.Record = r
	}
	switch {
	case errors.Is(err, ErrDraining):
		err = &Error{Do: do, Kind: r.Kind, ID: id, State: r.State, Err: ErrDraining}
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		err = &Error{Do: do, Kind: r.Kind, ID: id, State: r.State, Err: ErrPending, Cause: ctx.Err()}
	}
	return out, err
}

// lookOnce makes one lookup of r without a claim and merges what it says. The error is the store's.
func (e *Engine) lookOnce(ctx context.Context, do string, k kind, r *Record) (*Record, Fact, error) {
	var undo Effect
	if r.Undoes.Operation != "" {
		var err error
		if undo, _, err = e.undoing(ctx, r); err != nil {
			return r, Unclear, err
		}
	}
	merge := func(ctx context.Context, rep reply) (*Record, Fact, error) {
		switch rep.ev.fact {
		case Unclear, NotSent, NotApplied: // a lookup cannot speak for an attempt
			return new(r.Clone()), Unclear, nil
		case Applied, Declined, Underway, NeedsAction, NotFound, Reversed:
		}
		rep.ev.source, rep.ev.began = SourceLookup, r.AsOf
		out, err := e.merge(ctx, do, r, rep.ev, nil, 0)
		if err == nil {
			e.Wake()
		}
		return out, rep.ev.fact, err
	}
	rep, err := e.call(ctx, k.contract().Deadline,
		func(ctx context.Context) (reply, error) { return k.lookup(ctx, r, undo) },
		func(rep reply, err error) {
			if err == nil && rep.ev.fact != NotFound {
				_, _, _ = merge(context.WithoutCancel(ctx), rep)
			}
		})
	if err != nil {
		e.obs.Notice(ctx, Notice{Event: EventNoAnswer, Kind: r.Kind, Operation: r.ID, Code: noAnswer(ctx, err)})
		return new(r.Clone()), Unclear, nil // a late answer is merged into r
	}
	return merge(ctx, rep)
}
