package settle

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
)

// Foreign is something that undid an effect and that no operation of settle is: a refund made in
// the provider's dashboard, a chargeback of a part. It is kept in the ledger of the
// operation that it undoes, and counts there like a compensation (I9).
type Foreign struct {
	// Effect is what was undone: Operation, and Ref if the operation has several effects.
	Effect Effect
	// Ref is the provider's reference of the refund itself, by which it counts once. Required.
	Ref string
	// Fact is Applied, or Reversed if it came undone again, which frees the amount.
	Fact Fact
	// Amount is what was undone; zero, or another unit than the effect's: all of it.
	Amount Amount
	// Actor, Reason and Evidence are required, each a text of at most 1024 bytes; they are kept
	// in the history. Actor defaults to that of WithActor, and cannot be another.
	Actor, Reason, Evidence string
}

// errMoved: the parent is not the one that was looked at.
var errMoved = errors.New("settle: the record moved")

// RecordForeign counts what a person found undone elsewhere. Events do the same by themselves, see
// Event.Parent. The same reference again changes nothing. ErrConflict if an operation
// owns the reference and ErrPending while a compensation of the effect may turn out to own it, both with its id;
// ErrNoEffect if the operation has no such effect. What exceeds the effect is recorded, and alarmed.
func (e *Engine) RecordForeign(ctx context.Context, f Foreign) (Record, error) {
	const do = "record foreign"
	bad := func(field, why string) error { return invalid(do, "", "Foreign."+field, why) }
	f.Actor = cmp.Or(f.Actor, ActorOf(ctx))
	for field, v := range map[string]string{"Actor": f.Actor, "Reason": f.Reason, "Evidence": f.Evidence} {
		if v == "" || !keepable(v) {
			return Record{}, bad(field, "required: text of at most 1024 bytes")
		}
	}
	if err := checkName("Ref", f.Ref, MaxRef); err != nil {
		return Record{}, bad("Ref", err.Error())
	}
	if f.Fact != Applied && f.Fact != Reversed {
		return Record{}, bad("Fact", "Applied or Reversed")
	}
	if why := f.Amount.problem(); why != "" {
		return Record{}, bad("Amount", why)
	}
	var may permit
	asked := false
	for range 16 {
		parent, err := e.get(ctx, ByID(f.Effect.Operation))
		if err != nil {
			return Record{}, e.storeError(do, "", f.Effect.Operation, err)
		}
		refuse := func(sentinel error, id string) (Record, error) {
			return parent, &Error{Do: do, Kind: parent.Kind, ID: id, State: parent.State, Err: sentinel}
		}
		effect, ok := parent.undoneBy(f.Effect.Ref)
		if !ok {
			return refuse(ErrNoEffect, parent.ID)
		}
		if !asked {
			line := foreignLine(effect, f.Ref, f.Fact, f.Amount)
			may, err = e.permitFor(ctx, do, &parent, f.Actor, Ask{
				Action: ActionForeign, Fact: f.Fact, Undoes: Effect{Operation: parent.ID, Ref: effect.Ref, Amount: line.Amount},
			})
			if err != nil {
				return parent, err
			}
			asked = true
		}
		owner, err := e.owns(ctx, &parent, f.Ref)
		switch {
		case err != nil:
			return parent, e.storeError(do, parent.Kind, parent.ID, err)
		case owner != "":
			return refuse(ErrConflict, owner)
		}
		if owner, err = e.mayOwn(ctx, &parent, effect.Ref); err != nil {
			return parent, e.storeError(do, parent.Kind, parent.ID, err)
		} else if owner != "" {
			return refuse(ErrPending, owner)
		}
		out, err := e.count(ctx, do, &parent, foreignLine(effect, f.Ref, f.Fact, f.Amount), may.signed(&edit{
			entry: Entry{Source: SourcePerson, Actor: f.Actor, Note: f.Reason + " — " + f.Evidence},
		}))
		if !errors.Is(err, errMoved) {
			return *out, err
		}
	}
	return Record{}, &Error{Do: do, ID: f.Effect.Operation, Err: ErrStore, Code: "contention"}
}

// undoneBy finds the effect that something says to have undone, whatever is known of it.
func (r *Record) undoneBy(ref string) (Effect, bool) {
	var hits []Reference
	for _, x := range r.references() {
		if x.Rank.order() >= RankDisputed.order() && (ref == "" || x.Ref == ref) {
			hits = append(hits, x)
		}
	}
	if len(hits) != 1 {
		return Effect{}, false
	}
	return r.effect(hits[0]), true
}

// foreignLine is the ledger line of what was undone elsewhere.
func foreignLine(effect Effect, ref string, fact Fact, amount Amount) Posting {
	p := Posting{Ref: effect.Ref, External: ref, Amount: amount, Status: PostingDone}
	if amount.IsZero() || amount.Unit != effect.Amount.Unit {
		p.Amount = effect.Amount
	}
	if fact == Reversed {
		p.Status = PostingUndone
	}
	return p
}

// counted returns ledger with p in it: a line for each reference, with the most that was said of
// it, whatever came first (I7).
func counted(ledger []Posting, p Posting) []Posting {
	i := slices.IndexFunc(ledger, func(x Posting) bool { return x.External == p.External })
	if i < 0 {
		return append(ledger, p)
	}
	x := &ledger[i]
	if p.Status == PostingUndone {
		x.Status = PostingUndone
	}
	if x.Amount.less(p.Amount) {
		x.Amount = p.Amount
	}
	return ledger
}

// attributed returns ledger without the foreign lines that turn out to be c's own: its effect counts
// once, as c's (T-23).
func attributed(ledger []Posting, c *Record) []Posting {
	return slices.DeleteFunc(ledger, func(p Posting) bool {
		return p.External != "" && slices.ContainsFunc(c.References, func(x Reference) bool { return x.Ref == p.External })
	})
}

// count puts a foreign line into the ledger of r, as r was read: if it has moved since, a compensation
// may have begun that owns the reference, and the answer is errMoved.
func (e *Engine) count(ctx context.Context, do string, r *Record, p Posting, ed *edit) (*Record, error) {
	return e.update(ctx, do, r, func(next *Record) (*edit, error) {
		if next.Version != r.Version {
			return nil, errMoved
		}
		next.Ledger = counted(next.Ledger, p)
		ed := *ed
		ed.now, ed.dueIn, ed.later = next.AsOf, Keep, true
		ed.entry.Ref, ed.entry.Code, ed.entry.Disposition = p.External, "elsewhere_"+string(p.Status), DispositionApplied
		return &ed, nil
	})
}

// owns returns the id of the compensation of parent's kind that owns the provider's reference ref, also if
// its kind is made in other processes only.
func (e *Engine) owns(ctx context.Context, parent *Record, ref string) (string, error) {
	e.mu.Lock()
	kinds := slices.Collect(maps.Keys(e.kinds))
	e.mu.Unlock()
	for _, p := range parent.Ledger {
		kinds = append(kinds, p.Kind)
	}
	slices.Sort(kinds)
	for _, k := range slices.Compact(kinds) {
		if k == "" {
			continue
		}
		r, err := e.get(ctx, ByRef(parent.Account, k, ref))
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return "", err
		default:
			return r.ID, nil
		}
	}
	return "", nil
}

// mayOwn returns the id of a compensation of parent's effect ref that was perhaps sent and is not settled:
// an effect without a name may be its own.
func (e *Engine) mayOwn(ctx context.Context, parent *Record, ref string) (string, error) {
	for _, p := range parent.postings(ref) {
		if p.Status != PostingOpen || p.Operation == "" {
			continue
		}
		child, err := e.get(ctx, ByID(p.Operation))
		if err != nil {
			return "", err
		}
		if child.mayHaveLeft() && !child.State.Settled() {
			return child.ID, nil
		}
	}
	return "", nil
}

// elsewhere takes in an event about something that undid an effect and that no operation owns. done
// is false if it must wait: the effect is not known here, a compensation of it may turn out to be what the
// event speaks of, or nobody here can read it.
func (e *Engine) elsewhere(ctx context.Context, ev *Event, inbox Write) (out Record, done bool, err error) {
	for range 16 {
		parent, err := e.matching(ctx, &Event{Account: ev.Account, Ref: ev.Parent})
		if err != nil || parent == nil {
			return Record{}, false, err
		}
		rep, err := e.readUndo(ctx, parent, ev)
		ref := cmp.Or(rep.ev.ref, ev.Ref)
		effect, ok := parent.undoneBy(ev.Parent)
		if err != nil || ref == "" || !ok {
			return *parent, false, nil //nolint:nilerr // was noticed; the event stays
		}
		for _, ask := range []func() (string, error){
			func() (string, error) { return e.owns(ctx, parent, ref) },
			func() (string, error) { return e.mayOwn(ctx, parent, effect.Ref) },
		} {
			if id, err := ask(); err != nil || id != "" {
				if err != nil {
					err = e.storeError("observe", EventKind, inbox.Record.ID, err)
				}
				return *parent, false, err
			}
		}
		taken := inbox
		taken.Record.applied()
		taken.Entry.To, taken.Entry.Disposition, taken.Entry.Note = taken.Record.State, DispositionApplied, parent.ID
		switch rep.ev.fact {
		case Applied, Reversed:
			ed := &edit{inbox: &taken, entry: Entry{Source: SourceEvent, Note: taken.Record.ID}}
			out, err := e.count(ctx, "observe", parent, foreignLine(effect, ref, rep.ev.fact, rep.ev.terms.Amount), ed)
			if errors.Is(err, errMoved) {
				continue
			}
			return *out, err == nil, err
		case Declined, Underway, NeedsAction:
			// Nothing is undone by it, or not yet: then the provider will say so again.
			err := e.keep(ctx, taken)
			return *parent, err == nil, err
		case Unclear, NotSent, NotApplied, NotFound:
		}
		return *parent, false, nil
	}
	return Record{}, false, nil
}

// keep stores an event that changes nothing else.
func (e *Engine) keep(ctx context.Context, inbox Write) error {
	recs, err := e.commit(ctx, Change{ID: newToken(), Writes: []Write{inbox}}, e.opts.StoreTimeout)
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		return &seenError{conflict.Existing}
	case err != nil:
		return e.storeError("observe", EventKind, inbox.Record.ID, err)
	}
	e.report(ctx, &inbox, &recs[0])
	return nil
}

// readUndo has the kinds that undo parent's read the event; the first that it speaks for.
func (e *Engine) readUndo(ctx context.Context, parent *Record, ev *Event) (reply, error) {
	e.mu.Lock()
	kinds := slices.Sorted(maps.Keys(e.kinds))
	e.mu.Unlock()
	for _, name := range kinds {
		k := e.kind(name)
		if k.undoes() != parent.Kind || k.account() != parent.Account {
			continue
		}
		rep, err := k.event(ctx, *ev)
		switch {
		case errors.Is(err, ErrNotForKind):
		case err != nil:
			e.obs.Notice(ctx, Notice{Event: EventNoAnswer, Kind: name, Operation: parent.ID, Code: "event"})
			return reply{}, err
		case rep.ev.fact != Unclear:
			return rep, nil
		}
	}
	return reply{}, nil
}

// misnamed reports that ev speaks of a compensation of another effect than r is.
func (r *Record) misnamed(ev *Event) bool {
	return r.Undoes.Ref != "" && ev.Parent != "" && r.Undoes.Ref != ev.Parent
}
