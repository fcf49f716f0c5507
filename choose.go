package settle

import (
	"context"
	"errors"
	"slices"
)

// Way is one way to undo an effect: a kind of compensations, with the request that it takes. See
// Executor.Way and Executor.Undo.
type Way struct {
	// Kind is the kind of the compensation, by which it is chosen.
	Kind string
	run  func(ctx context.Context, effect Effect, reason string) (Record, error)
}

// Way makes the kind of x, with req, a way to undo effects of the kind that x undoes.
func (x *Executor[Req, Res]) Way(req Req) Way {
	return Way{Kind: x.kindOf, run: func(ctx context.Context, effect Effect, reason string) (Record, error) {
		out, err := x.Compensate(ctx, effect, reason, req)
		return out.Record, err
	}}
}

// Undo compensates an effect of this kind in the one of several ways that fits it now, say by a void
// until the charge is captured and by a refund from then on. It looks the effect up, merges what it
// learns, and has choose name a kind among the ways by it; the compensation is that of
// Executor.Compensate, and so are the errors. Where there is no answer, choose gets a zero observation.
//
// What was chosen for a reason stays chosen, whatever a later lookup says: the same call again is the
// same compensation, until that one failed, or was canceled; then the next call chooses anew. Another
// kind is another operation; the same one again needs Replaces, see Compensate. Calls that choose at the same time end up with one:
// what undoes all of an effect leaves nothing to reserve for the other (I9). ErrRefused if choose names none of the ways.
func (x *Executor[Req, Res]) Undo(ctx context.Context, effect Effect, reason string, choose func(now Observation[Res]) string, ways ...Way) (Record, error) {
	const do = "undo"
	if choose == nil || len(ways) == 0 {
		return Record{}, invalid(do, x.kindOf, "ways", "a choice and something to choose from are required")
	}
	if !x.e.begin() {
		return Record{}, &Error{Do: do, Kind: x.kindOf, Err: ErrDraining}
	}
	defer x.e.end()
	var refusal error
	for range 3 {
		parent, err := x.e.get(ctx, ByID(effect.Operation))
		if err != nil {
			return Record{}, x.e.storeError(do, x.kindOf, effect.Operation, err)
		}
		if parent.Kind != x.kindOf {
			return Record{}, invalid(do, x.kindOf, "effect", "the operation is of another kind")
		}
		way, err := x.chosen(ctx, &parent, effect, reason, ways)
		if err != nil {
			return Record{}, x.e.storeError(do, x.kindOf, parent.ID, err)
		}
		if way == nil && refusal != nil {
			break // nobody else has chosen: it is what it says
		}
		if way == nil {
			if way, err = x.choose(ctx, parent, choose, ways); err != nil {
				return Record{}, err
			}
		}
		r, err := way.run(ctx, effect, reason)
		if !errors.Is(err, ErrExceeds) {
			return r, err
		}
		refusal = err // perhaps by what another caller has chosen meanwhile
	}
	return Record{}, refusal
}

// chosen is the way that was chosen before for this effect and reason, and has not failed; nil if none was.
func (x *Executor[Req, Res]) chosen(ctx context.Context, parent *Record, effect Effect, reason string, ways []Way) (*Way, error) {
	named, _, _ := parent.target(Undo{Operation: parent.ID, Ref: effect.Ref})
	for _, p := range parent.Ledger {
		i := slices.IndexFunc(ways, func(w Way) bool { return w.Kind == p.Kind })
		if i < 0 || p.Reason != reason || p.Ref != "" && named.Ref != "" && p.Ref != named.Ref {
			continue
		}
		child, err := x.e.get(ctx, ByID(p.Operation))
		if err != nil {
			return nil, err
		}
		if child.ReplacedBy == "" && child.State != StateFailed && child.State != StateCanceled {
			return &ways[i], nil
		}
	}
	return nil, nil //nolint:nilnil // none is an answer
}

// choose asks the provider and then choose. Of what was never sent there is nothing to ask.
func (x *Executor[Req, Res]) choose(ctx context.Context, parent Record, choose func(Observation[Res]) string, ways []Way) (*Way, error) {
	now, err := x.consult(ctx, parent)
	if err != nil {
		return nil, err
	}
	kind, err := func() (kind string, err error) {
		defer contain(&err)
		return choose(now), nil
	}()
	i := slices.IndexFunc(ways, func(w Way) bool { return w.Kind == kind })
	if err != nil || i < 0 {
		return nil, &Error{Do: "undo", Kind: x.kindOf, ID: parent.ID, State: parent.State, Err: ErrRefused, Code: "no_way_chosen", Cause: err}
	}
	return &ways[i], nil
}

// consult makes a lookup of r without a claim, and merges the answer like any other. The error is the store's.
func (x *Executor[Req, Res]) consult(ctx context.Context, r Record) (Observation[Res], error) {
	var none Observation[Res]
	if x.promise.Lookup == NoLookup || r.Account != x.home || r.unsent() {
		return none, nil
	}
	ev := evidence{source: SourceLookup, began: r.AsOf}
	answers := make(chan Observation[Res], 1)
	rep, err := x.e.call(context.WithoutCancel(ctx), x.promise.Deadline, func(ctx context.Context) (rep reply, err error) {
		defer contain(&err)
		c, err := x.makeCall(&r, Effect{}, 0, nil)
		if err != nil {
			return reply{}, err
		}
		obs, err := x.adapter.Lookup(ctx, c)
		if err == nil {
			answers <- obs
		}
		return x.read(obs, err)
	}, nil)
	if err != nil {
		x.e.obs.Notice(ctx, Notice{Event: EventNoAnswer, Kind: r.Kind, Operation: r.ID, Code: noAnswer(ctx, err)})
		return none, nil
	}
	obs := <-answers
	switch rep.ev.fact {
	case Unclear, NotSent, NotApplied:
		return none, nil
	case Applied, Declined, Underway, NeedsAction, NotFound, Reversed:
	}
	rep.ev.source, rep.ev.began = ev.source, ev.began
	if _, err := x.e.merge(ctx, "undo", &r, rep.ev, nil, 0); err != nil {
		return none, err
	}
	return obs, nil
}
