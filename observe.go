package settle

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
)

// Observe takes in an event whose signature was verified. A nil error means that it is
// durably kept, so the provider may be told so (answer 2xx); after an error it is not, or
// nobody knows: let the provider deliver it again.
//
// The event is kept and its observation merged in one step, once for each (Account, ID). It is
// matched by Event.Operation, else by Event.Ref, among operations of the same account, and
// never by what merely looks like it. If there is no such operation yet, it is parked, and
// workers match it again with backoff for Options.OrphanAfter; then it goes to review. An event for a kind whose
// adapter reads no events only asks for a lookup.
//
// ErrInvalid if the event is none: without account or id, or too large. ErrStore otherwise.
func (e *Engine) Observe(ctx context.Context, ev Event) (Observed, error) {
	if field, err := ev.problem(); err != nil {
		return Observed{}, invalid("observe", EventKind, "Event."+field, err.Error())
	}
	if !e.begin() {
		return Observed{}, &Error{Do: "observe", Kind: EventKind, Err: ErrDraining}
	}
	defer e.end()
	kept, err := ev.record(e.fingerprints.primary())
	if err != nil {
		return Observed{}, invalid("observe", EventKind, "Event", "cannot be kept")
	}
	if was, err := e.get(ctx, ByID(kept.ID)); err == nil {
		return e.seen(ctx, &kept, was)
	} else if !errors.Is(err, ErrNotFound) {
		return Observed{}, e.storeError("observe", EventKind, kept.ID, err)
	}
	op, err := e.matching(ctx, &ev)
	if err != nil {
		return Observed{}, err
	}
	inbox := Write{Record: kept, DueIn: Never, Entry: Entry{Source: SourceEvent, Code: cleanCode(ev.Type), Ref: ev.Ref}}
	if op == nil && ev.Parent != "" || op != nil && !op.misnamed(&ev) {
		out, done, err := e.takeIn(ctx, &ev, op, inbox)
		var seen *seenError
		switch {
		case errors.As(err, &seen):
			return e.seen(ctx, &kept, seen.Existing)
		case err != nil:
			return Observed{}, err
		case done:
			return Observed{Record: out, Event: kept.ID}, nil
		}
	}
	return e.park(ctx, kept, inbox)
}

// takeIn delivers ev to op, or counts it as foreign if there is none.
func (e *Engine) takeIn(ctx context.Context, ev *Event, op *Record, inbox Write) (Record, bool, error) {
	if op == nil {
		return e.elsewhere(ctx, ev, inbox)
	}
	return e.deliver(ctx, ev, *op, inbox)
}

// park keeps an event for later.
func (e *Engine) park(ctx context.Context, kept Record, inbox Write) (Observed, error) {
	inbox.DueIn = jitter(backoff(1))
	inbox.Entry.To, inbox.Entry.Disposition, inbox.Entry.Note = StateCreated, DispositionControl, "parked"
	recs, err := e.commit(ctx, Change{ID: newToken(), Writes: []Write{inbox}}, e.opts.StoreTimeout)
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		return e.seen(ctx, &kept, conflict.Existing)
	case err != nil:
		return Observed{}, e.storeError("observe", EventKind, kept.ID, err)
	}
	e.report(ctx, &inbox, &recs[0])
	return Observed{Event: kept.ID, Parked: true}, nil
}

// seen answers an event that is in the store.
func (e *Engine) seen(ctx context.Context, kept *Record, was Record) (Observed, error) {
	if now, err := kept.event(); err == nil && !e.fingerprints.sameEvent(&was, now.Payload) {
		e.obs.Notice(ctx, Notice{Event: EventAlarm, Kind: EventKind, Operation: was.ID, To: was.State, Alarms: []string{AlarmEventChanged}})
	}
	if !e.silent {
		e.obs.Notice(ctx, Notice{Event: EventPrevented, Kind: EventKind, Operation: was.ID, To: was.State, Code: PreventedEvent})
	}
	out := Observed{Event: was.ID, Duplicate: true, Parked: !was.State.Settled()}
	if ev, err := was.event(); err == nil {
		if op, err := e.matching(ctx, &ev); err == nil && op != nil {
			out.Record = *op
		}
	}
	return out, nil
}

// matching finds the operation that ev names; nil if there is none of its account. An event that says which effect is undone is
// not about an operation that undoes nothing, though it has its id: providers hand the payment's own reference back with
// refunds, too. Nor is it about not, which does not know what it means.
func (e *Engine) matching(ctx context.Context, ev *Event, not ...string) (*Record, error) {
	var names []Index
	if ev.Operation != "" {
		names = append(names, ByID(ev.Operation))
	}
	if ev.Ref != "" {
		e.mu.Lock()
		kinds := slices.Sorted(maps.Keys(e.kinds))
		e.mu.Unlock()
		for _, k := range kinds {
			names = append(names, ByRef(ev.Account, k, ev.Ref))
		}
	}
	for _, name := range names {
		r, err := e.get(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, e.storeError("observe", EventKind, "", err)
		case slices.Contains(not, r.ID) || name.Name == IndexID && ev.Parent != "" && r.Undoes.Operation == "":
		case r.Account == ev.Account && r.Kind != EventKind:
			return &r, nil
		}
	}
	return nil, nil //nolint:nilnil // none is an answer
}

// seenError: the event was kept by somebody else meanwhile.
type seenError struct{ Existing Record }

func (*seenError) Error() string { return "settle: the event is known" }

// deliver merges what ev means for op, together with inbox. done is false if it cannot
// be read here, or now.
func (e *Engine) deliver(ctx context.Context, ev *Event, op Record, inbox Write, not ...string) (out Record, done bool, err error) {
	kept := inbox
	k := e.kind(op.Kind)
	if k == nil {
		return op, false, nil // another process has the kind
	}
	rep, err := k.event(ctx, *ev)
	inbox.Record.applied()
	inbox.Entry.To, inbox.Entry.Disposition, inbox.Entry.Note = inbox.Record.State, DispositionApplied, op.ID
	switch {
	case errors.Is(err, ErrNotForKind):
		if other, err := e.matching(ctx, ev, append(not, op.ID)...); err != nil || other != nil && !other.misnamed(ev) {
			if err != nil {
				return op, false, err
			}
			return e.deliver(ctx, ev, *other, kept, append(not, op.ID)...)
		}
		inbox.Entry.Note = "not_for_kind"
		err := e.keep(ctx, inbox)
		return op, err == nil, err
	case err != nil:
		e.obs.Notice(ctx, Notice{Event: EventNoAnswer, Kind: op.Kind, Operation: op.ID, Code: "event"})
		return op, false, nil
	}
	rep.ev.source, rep.ev.inbox = SourceEvent, &inbox
	if rep.ev.ref == "" {
		rep.ev.ref = ev.Ref
	}
	if rep.ev.sequence == 0 {
		rep.ev.sequence = ev.Sequence
	}
	merged, err := e.merge(ctx, "observe", &op, rep.ev, nil, 0)
	if err == nil {
		e.Wake()
	}
	return *merged, err == nil, err
}

// workEvent matches a parked event again.
func (e *Engine) workEvent(ctx context.Context, r *Record, c *claim) error {
	ev, err := r.event()
	switch {
	case errors.Is(err, ErrSealed) && (r.Review != nil || r.AsOf.Sub(r.CreatedAt) < e.opts.OrphanAfter):
		return e.parkAgain(ctx, r, c) // until the key is back
	case errors.Is(err, ErrSealed):
		return e.setAside(ctx, r, c, ReasonSealed, "")
	case err != nil:
		return e.setAside(ctx, r, c, ReasonUnreadable, "")
	}
	op, err := e.matching(ctx, &ev)
	if err != nil {
		return err
	}
	if op != nil && op.misnamed(&ev) {
		return e.setAside(ctx, r, c, ReasonForeign, op.ID) // what it says is about another's
	}
	if op != nil || ev.Parent != "" {
		next := r.fork()
		next.Token = ""
		inbox := Write{
			Record: next, IfVersion: r.Version, IfToken: c.token, DueIn: Never,
			Entry: Entry{From: r.State, Source: SourceEvent, Code: cleanCode(ev.Type), Ref: ev.Ref},
		}
		_, done, err := e.takeIn(ctx, &ev, op, inbox)
		var seen *seenError
		if errors.As(err, &seen) {
			return ErrClaimLost
		}
		if done || err != nil {
			return err
		}
	}
	if op == nil && r.Review == nil && r.AsOf.Sub(r.CreatedAt) >= e.opts.OrphanAfter {
		return e.setAside(ctx, r, c, ReasonOrphan, "")
	}
	return e.parkAgain(ctx, r, c)
}

// parkAgain leaves a claimed event for later.
func (e *Engine) parkAgain(ctx context.Context, r *Record, c *claim) error {
	_, err := e.update(ctx, "observe", r, func(next *Record) (*edit, error) {
		if next.Token != c.token {
			return nil, errStop
		}
		next.Token = ""
		next.Tries++
		ed := &edit{
			now: c.late(), dueIn: jitter(backoff(next.Tries + 1)), ifToken: c.token,
			entry: Entry{Source: SourceWorker, Disposition: DispositionControl, Note: "parked"},
		}
		ed.minds(next)
		return ed, nil
	})
	return err
}

// setAside puts an event before a person; owner is the operation to which its reference belongs, if that is why.
func (e *Engine) setAside(ctx context.Context, r *Record, c *claim, reason, owner string) error {
	_, err := e.update(ctx, "observe", r, func(next *Record) (*edit, error) {
		if next.Token != c.token {
			return nil, errStop
		}
		next.Token = ""
		next.Review = &Review{Reason: reason, Since: micros(c.late())}
		return &edit{
			now: c.late(), dueIn: reviewInterval, ifToken: c.token,
			entry: Entry{Source: SourceWorker, Disposition: DispositionControl, Code: reason, Note: cmp.Or(owner, reason)},
		}, nil
	})
	return err
}
