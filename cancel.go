package settle

import (
	"context"
	"errors"
)

// Cancel withdraws an operation of which nothing can have had an effect, and
// leaves a tombstone for an intent that was never registered, so that it is refused
// when it arrives late. Nil: it is canceled, now or before. ErrPending (or one of
// its kind) if a request may have left, ErrSettled if it succeeded or failed,
// ErrReview if a person is deciding. reason is kept in the history; required.
func (x *Executor[Req, Res]) Cancel(ctx context.Context, in Intent, reason string) error {
	in, err := x.intent("cancel", in)
	if err != nil {
		return err
	}
	if err := checkName("reason", reason, MaxPurpose); err != nil {
		return badName("cancel", x.kindOf, "reason", err)
	}
	if !x.e.begin() {
		return &Error{Do: "cancel", Kind: x.kindOf, Err: ErrDraining}
	}
	defer x.e.end()
	for range 16 {
		r, err := x.e.get(ctx, ByIntent(in.Scope, x.kindOf, in.Subject, in.Purpose))
		if err == nil {
			if r.State == StateCanceled && r.Withdrawn != WithdrawnParent {
				return nil
			}
			may, err := x.e.permitFor(ctx, "cancel", &r, "", Ask{Action: ActionCancel})
			if err == nil {
				_, err = x.e.withdraw(ctx, "cancel", &r, reason, may)
			}
			return err
		}
		if !errors.Is(err, ErrNotFound) {
			return x.e.storeError("cancel", x.kindOf, "", err)
		}
		may, err := x.e.permit(ctx, "cancel", Ask{Action: ActionCancel, Kind: x.kindOf, Scope: in.Scope, Subject: in.Subject, Purpose: in.Purpose})
		if err != nil {
			return err
		}
		err = x.e.bury(ctx, x, in, reason, may)
		if !errors.Is(err, ErrConflict) {
			return err
		}
		// Somebody registered it just now: look again.
	}
	return &Error{Do: "cancel", Kind: x.kindOf, Err: ErrStore, Code: "contention"}
}

// bury stores the tombstone of an intent: no request, no fingerprint, canceled.
func (e *Engine) bury(ctx context.Context, k kind, in Intent, reason string, may permit) error {
	w := Write{Record: Record{
		ID: newID(), Scope: in.Scope, Kind: k.name(), Subject: in.Subject, Purpose: in.Purpose,
		Account: k.account(), Withdrawn: reason,
	}}
	blank := Record{State: StateCreated}
	ed := may.signed(&edit{create: true, dueIn: Never, entry: Entry{Source: SourceCaller, Note: reason}})
	e.conclude(k, &blank, &w, ed, false)
	recs, err := e.commit(ctx, Change{ID: newToken(), Writes: []Write{w}}, e.opts.StoreTimeout)
	if err != nil {
		return e.storeError("cancel", k.name(), "", err)
	}
	e.report(ctx, &w, &recs[0])
	return nil
}

// withdraw cancels r if every attempt provably had no effect (T-02).
func (e *Engine) withdraw(ctx context.Context, do string, r *Record, reason string, may permit) (*Record, error) {
	return e.update(ctx, do, r, func(next *Record) (*edit, error) {
		refuse := func(err error) (*edit, error) {
			return nil, &Error{Do: do, Kind: r.Kind, ID: r.ID, State: next.State, Err: err}
		}
		switch {
		case next.State == StateCanceled && next.Withdrawn != WithdrawnParent:
			return nil, errStop
		case next.State == StateCanceled:
			// Canceled with its parent, and would start if that revived: not any more.
		case next.State.Settled():
			return refuse(ErrSettled)
		case next.State == StateCreated && !next.mayHaveLeft():
		default:
			return refuse(verdictOr(next.verdict(), ErrPending))
		}
		next.Withdrawn, next.Token = reason, ""
		return may.signed(&edit{now: next.AsOf, dueIn: Never, entry: Entry{Source: SourceCaller, Note: reason}}), nil
	})
}

// cancelParent handles a compensation of an operation of which nothing was sent: that
// one is canceled, and there is nothing to undo.
func (e *Engine) cancelParent(ctx context.Context, d *draft) error {
	if !d.parent.unsent() {
		return nil
	}
	parent, err := e.withdraw(ctx, d.do, d.parent, d.record.Purpose, permit{actor: d.actor, grant: Grant{Rule: d.permit.grant.Rule}})
	if err != nil {
		if errors.Is(err, ErrPending) || errors.Is(err, ErrSettled) || errors.Is(err, ErrReview) || errors.Is(err, ErrActionRequired) {
			return nil // it was sent in between: the wish waits for its outcome
		}
		return err
	}
	return &Error{Do: d.do, Kind: d.record.Kind, ID: parent.ID, State: parent.State, Err: ErrNoEffect}
}
