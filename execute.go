package settle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// execute is the work behind Execute: create the operation with its first attempt
// in one commit and send, or meet the one that exists.
func (e *Engine) execute(ctx context.Context, fl *flight, k kind, d *draft) (*Record, bool, error) {
	r, c, met, err := e.create(ctx, e.store, k, d, true)
	if err != nil {
		return nil, false, err
	}
	if met {
		return e.resume(ctx, fl, k, r)
	}
	if c == nil {
		e.Wake() // a wish: the worker looks after it
		return r, false, nil
	}
	fl.saw(r)
	r, err = e.pass(ctx, k, r, c, d.read)
	return r, false, err
}

// glance answers a replay with one read, where a read costs no round trip or the intent was
// seen before: ok if the operation is settled, or the call is refused because of what is
// stored. Everything else goes the long way, which finds out again. Of a record that is remembered it reads the version.
func (e *Engine) glance(ctx context.Context, k kind, d *draft) (r *Record, ok bool, err error) {
	if d.record.Replaces != "" || !e.local && !d.seen {
		return nil, false, nil
	}
	e.mu.Lock()
	draining := e.draining
	e.mu.Unlock()
	if draining {
		return nil, true, &Error{Do: d.do, Kind: d.record.Kind, Err: ErrDraining}
	}
	// Nobody is waited for longer than the caller waits: these are reads.
	if !e.local {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.opts.StoreTimeout)
		defer cancel()
	}
	if d.known != nil {
		if r, err = e.still(ctx, d.known); err != nil {
			return nil, false, nil //nolint:nilerr // the long way says what is wrong
		}
	}
	if r == nil {
		now, err := e.store.Get(ctx, ByIntent(d.record.Scope, d.record.Kind, d.record.Subject, d.record.Purpose))
		if err != nil {
			return nil, false, nil //nolint:nilerr // as above
		}
		if fresh(&now); !now.State.Settled() {
			return nil, false, nil
		}
		if r = &now; e.versions != nil {
			e.known.keep(r)
		}
	}
	r, _, err = e.meet(ctx, e.store, k, d, r, Index{})
	return r, true, err
}

// registerOnly stores without claiming.
func (e *Engine) registerOnly(ctx context.Context, k kind, d *draft) (Record, error) {
	r, _, _, err := e.create(ctx, e.store, k, d, false)
	if err != nil {
		return Record{}, err
	}
	e.Wake()
	return *r, nil
}

// resume works an operation that exists: when it is due, or when nothing of it
// was sent and no RetryAfter is pending. Otherwise it only reports.
func (e *Engine) resume(ctx context.Context, fl *flight, k kind, r *Record) (*Record, bool, error) {
	fl.saw(r)
	due := !r.Due.IsZero() && !r.Due.After(r.AsOf)
	untried := r.State == StateCreated && !r.RetryAt.After(r.AsOf)
	if r.State.Settled() || r.State == StateReview || r.Claimed() || !due && !untried {
		return r, true, nil
	}
	sent := r.lastAttempt()
	r, c, err := e.take(ctx, "execute", r, nil)
	if err != nil || c == nil {
		return r, true, err
	}
	fl.saw(r)
	r, err = e.pass(ctx, k, r, c, nil)
	return r, r.lastAttempt() == sent, err
}

// getOn reads from the store, or in the caller's transaction under the caller's context.
func (e *Engine) getOn(ctx context.Context, on committer, by Index) (Record, error) {
	if on == committer(e.store) {
		return e.get(ctx, by)
	}
	r, err := on.Get(ctx, by)
	if err != nil {
		return Record{}, err
	}
	fresh(&r)
	return r, nil
}

// newUndo checks what only matters for a compensation that does not exist yet.
func (e *Engine) newUndo(ctx context.Context, on committer, k kind, d *draft) (*Record, bool, error) {
	twin, err := d.twin, error(nil)
	if twin == nil {
		twin, err = e.twin(ctx, on, d)
	}
	switch {
	case err != nil:
		return nil, false, e.storeError(d.do, d.record.Kind, "", err)
	case twin != nil && twin.Intent() == d.record.Intent() && d.record.Replaces == "":
		r, again, err := e.meet(ctx, on, k, d, twin, Index{})
		return r, !again, err
	case d.ambiguous:
		return nil, false, invalid(d.do, d.record.Kind, "Undoes", "name the reference: the operation has several effects")
	case twin != nil:
		if ok, err := sameRequest(k, twin, d.record.Request); err != nil || !ok {
			err := d.mismatch(twin, err)
			e.prevented(ctx, d.record.Kind, twin, err)
			return nil, false, err
		}
		e.prevented(ctx, d.record.Kind, twin, nil)
		return twin, true, nil
	case on == committer(e.store):
		return nil, false, e.cancelParent(ctx, d)
	}
	return nil, false, nil
}

// undoesUnsent reports that d compensates an operation of which nothing was sent. That one would be
// canceled: not if the compensation exists already, withdrawn perhaps, which its parent's ledger does not show.
func (d *draft) undoesUnsent() bool {
	return d.record.Undoes.Operation != "" && d.parent.unsent()
}

func (r *Record) unsent() bool { return r.State == StateCreated && !r.mayHaveLeft() }

// twin finds a compensation of the same effect by the same kind for the same reason that was
// asked for in another way: with the reference, or before it was known.
func (e *Engine) twin(ctx context.Context, on committer, d *draft) (*Record, error) {
	effect, _, _ := d.parent.target(d.record.Undoes)
	var other *Record
	for _, p := range d.parent.Ledger {
		if p.Kind != d.record.Kind || p.Reason != d.record.Purpose || p.Ref != "" && effect.Ref != "" && p.Ref != effect.Ref {
			continue
		}
		child, err := e.getOn(ctx, on, ByID(p.Operation))
		if err != nil {
			return nil, err
		}
		switch {
		case child.ReplacedBy != "" || child.ID == d.record.Replaces:
		case child.Intent() == d.record.Intent():
			return &child, nil
		case other == nil:
			other = &child
		}
	}
	return other, nil
}

// commitOn commits to the store until it is known what happened, or adds to the
// caller's transaction, whose owner finds out.
func (e *Engine) commitOn(ctx context.Context, on committer, c Change) ([]Record, error) {
	if on == committer(e.store) {
		return e.commit(ctx, c, e.opts.StoreTimeout)
	}
	added := e.queue(&c)
	for {
		recs, err := on.Commit(ctx, c)
		for i := range recs {
			fresh(&recs[i])
		}
		var conflict *ConflictError
		if errors.As(err, &conflict) {
			if c.mended(added, conflict) {
				continue
			}
			fresh(&conflict.Existing)
		}
		return recs, err
	}
}

// committer is the part of a store that creating needs: a Store or a Tx.
type committer interface {
	Get(ctx context.Context, by Index) (Record, error)
	Commit(ctx context.Context, c Change) ([]Record, error)
}

// create stores d, with a claim and its first attempt if claim is set, or finds
// the operation that exists and checks that it is the same (met). A change of which the
// store says nothing certain is repeated under its own id (I15).
func (e *Engine) create(ctx context.Context, on committer, k kind, d *draft, claims bool) (r *Record, c *claim, met bool, err error) {
	checked, blank := false, Record{}
	for range 16 {
		if d.record.Undoes.Operation != "" && d.parent == nil {
			parent, err := e.getOn(ctx, on, ByID(d.record.Undoes.Operation))
			if err != nil {
				return nil, nil, false, e.storeError(d.do, d.record.Kind, d.record.Undoes.Operation, err)
			}
			d.parent = &parent
		}
		if d.replaced == nil && (d.authorize != nil && !checked || d.record.Replaces != "" || d.undoesUnsent()) {
			found, rec, err := e.before(ctx, on, d, &checked)
			if err != nil {
				return nil, nil, false, err
			}
			if found {
				if r, again, err := e.meet(ctx, on, k, d, &rec, Index{}); !again || err != nil {
					return r, nil, true, err
				}
			}
		}
		if d.record.Undoes.Operation != "" {
			if r, met, err := e.newUndo(ctx, on, k, d); met || err != nil {
				return r, nil, met, err
			}
		}
		writes := make([]Write, 1)
		cl := e.birth(k, d, claims, &writes[0])
		related, err := e.related(ctx, on, &blank, &writes[0].Record, d.parent, time.Time{})
		switch {
		case errors.Is(err, errBarred):
			claims = false // the effect is not confirmed: store the wish
			continue
		case err != nil:
			return nil, nil, false, e.storeError(d.do, d.record.Kind, "", err)
		}
		at := 0
		if d.replaced != nil {
			d.replaced.Record.ReplacedBy = writes[0].Record.ID
			writes, at = slices.Insert(writes, 0, *d.replaced), 1
		}
		writes = append(writes, related...)
		recs, err := e.commitOn(ctx, on, Change{ID: newToken(), Writes: writes})
		var conflict *ConflictError
		switch {
		case err == nil:
			if on == committer(e.store) {
				for i := range writes {
					e.report(ctx, &writes[i], &recs[i])
				}
			}
			if cl != nil {
				cl.granted(recs[at].AsOf)
			}
			return &recs[at], cl, false, nil
		case errors.As(err, &conflict) && conflict.Index.Name != "":
			if r, again, err := e.meet(ctx, on, k, d, &conflict.Existing, conflict.Index); !again || err != nil {
				return r, nil, true, err
			}
		case errors.As(err, &conflict):
			d.replaced, d.parent, d.twin = nil, nil, nil // the parent or the replaced operation moved: read and decide again
		default:
			return nil, nil, false, e.storeError(d.do, d.record.Kind, "", err)
		}
	}
	return nil, nil, false, &Error{Do: d.do, Kind: d.record.Kind, Err: ErrStore, Code: "contention"}
}

// before reads what must be known before anything is stored: whether the intent
// exists, and if it does not, whether it may (T-29: the refusal counts only if
// no other caller has created it meanwhile).
func (e *Engine) before(ctx context.Context, on committer, d *draft, checked *bool) (bool, Record, error) {
	find := func() (bool, Record, error) {
		rec, err := e.getOn(ctx, on, ByIntent(d.record.Scope, d.record.Kind, d.record.Subject, d.record.Purpose))
		switch {
		case err == nil:
			return true, rec, nil
		case errors.Is(err, ErrNotFound):
			return false, Record{}, nil
		}
		return false, Record{}, e.storeError(d.do, d.record.Kind, "", err)
	}
	found, rec, err := find()
	if err != nil {
		return false, rec, err
	}
	next := found && d.record.Replaces == rec.ID // the former try; this one does not exist yet
	if d.authorize != nil && !*checked && !found && d.record.Undoes.Operation != "" && d.record.Replaces == "" {
		// The compensation may exist under another spelling: then nothing is asked.
		if d.twin, err = e.twin(ctx, on, d); err != nil || d.twin != nil {
			return false, rec, err
		}
	}
	if d.authorize != nil && !*checked && (!found || next) {
		if err := d.authorize(ctx); err != nil {
			if again, rec, e2 := find(); e2 == nil && again && d.record.Replaces != rec.ID {
				return true, rec, nil
			}
			var own *Error
			if errors.As(err, &own) && errors.Is(own.Err, ErrRefused) {
				return false, rec, err // the approval's, or the policy's
			}
			return false, rec, &Error{Do: d.do, Kind: d.record.Kind, Err: ErrRefused, Cause: err}
		}
		*checked = true
	}
	if !found && d.record.Replaces != "" {
		former, err := e.getOn(ctx, on, ByID(d.record.Replaces))
		if err != nil {
			return false, rec, e.storeError(d.do, d.record.Kind, d.record.Replaces, err)
		}
		return false, rec, d.conflict(&former, "Replaces", "it is no operation of this intent")
	}
	return found, rec, nil
}

// birth makes w the creating write.
func (e *Engine) birth(k kind, d *draft, claims bool, w *Write) *claim {
	w.Record = d.record.fork()
	r := &w.Record
	r.ID = newID()
	ed := &edit{create: true, entry: Entry{Source: SourceCaller, Note: "registered"}}
	if r.Approval != nil {
		ed.entry.Actor = r.Approval.By
	}
	p := d.permit
	p.actor = d.actor
	p.sign(&ed.entry)
	var c *claim
	if claims {
		c = e.newClaim()
		c.attempt = 1
		r.Token = c.token
		r.Attempts = []Attempt{{N: 1, Grace: k.contract().grace()}} // starts when the record does
		ed.dueIn, ed.ifToken, ed.entry.Attempt, ed.entry.Note = e.opts.Lease, "", 1, "attempt"
	} else if r.Undoes.Operation != "" {
		ed.dueIn = backoff(1) // the parent's settling makes it due at once; this is the safety net
	}
	blank := Record{State: StateCreated}
	e.conclude(k, &blank, w, ed, false)
	return c
}

// meet compares a call with the operation that exists. again: the call's own
// operation must now be created, since what stood in its way may be replaced.
func (e *Engine) meet(ctx context.Context, on committer, k kind, d *draft, cur *Record, by Index) (r *Record, again bool, err error) {
	r, again, err = e.compare(ctx, on, k, d, cur, by)
	if !again {
		e.prevented(ctx, d.record.Kind, cmp.Or(r, cur), err)
	}
	return r, again, err
}

func (e *Engine) compare(ctx context.Context, on committer, k kind, d *draft, cur *Record, by Index) (r *Record, again bool, err error) {
	mine := &d.record
	same := cur.Kind == mine.Kind && cur.Intent() == mine.Intent()
	switch {
	case by.Name == IndexHold && !same:
		return nil, false, &Error{Do: d.do, Kind: mine.Kind, ID: cur.ID, State: cur.State, Err: ErrHeld}
	case !same:
		return nil, false, d.conflict(cur, "Key", "the key is known with another intent")
	case mine.Replaces != "" && cur.ID == mine.Replaces:
		return nil, true, e.replace(k, d, cur)
	case mine.Replaces != "" && cur.Replaces != mine.Replaces:
		return nil, false, d.conflict(cur, "Replaces", "another operation of this intent is live")
	case cur.Fingerprint.IsZero():
		return cur, false, nil // a tombstone: canceled, before anything is compared
	case d.givenKey && cur.Key != mine.Key:
		return nil, false, d.conflict(cur, "Key", "the intent is known under another key")
	}
	ok := cur.Fingerprint.Sum == mine.Fingerprint.Sum
	if cur.Fingerprint.Rule != mine.Fingerprint.Rule || !slices.Equal(cur.Fingerprint.Volatile, mine.Fingerprint.Volatile) {
		ok, err = sameRequest(k, cur, mine.Request) // by the rule of the record, not today's
	}
	if err != nil || !ok {
		return nil, false, d.mismatch(cur, err)
	}
	if !cur.mayHaveLeft() && !cur.State.Settled() && !cur.Claimed() && cur.Withdrawn == "" && string(cur.Request) != string(mine.Request) {
		r, err := e.refresh(ctx, on, d, cur)
		return r, false, err
	}
	return cur, false, nil
}

// refresh replaces the volatile members of a request of which nothing may have
// left (T-35): same fingerprint, other bytes.
func (e *Engine) refresh(ctx context.Context, on committer, d *draft, cur *Record) (*Record, error) {
	if on != committer(e.store) {
		return cur, nil // in the caller's transaction it is only read
	}
	return e.update(ctx, d.do, cur, func(next *Record) (*edit, error) {
		if next.mayHaveLeft() || next.State.Settled() || next.Claimed() {
			return nil, errStop
		}
		// Terms that differ are not taken: they were allowed and reserved as they are stored (I2, I9). next derives those of a whole compensation.
		if !next.Undoes.Whole && !next.Terms.Equal(d.record.Terms) {
			return nil, errStop
		}
		next.Request = append(Payload(nil), d.record.Request...)
		return &edit{now: next.AsOf, dueIn: Keep, entry: Entry{Source: SourceCaller, Note: "refreshed"}}, nil
	})
}

// replace prepares the commit in which d takes over the intent of cur: refused
// while cur may still have an effect.
func (e *Engine) replace(k kind, d *draft, cur *Record) error {
	if cur.State != StateFailed && cur.State != StateCanceled {
		return d.conflict(cur, "Replaces", "it did not fail")
	}
	d.finish(cur.Generation + 1)
	w := &Write{Record: cur.fork()}
	w.Record.ReplacedBy = "pending" // create puts the id in; conclude only asks whether there is one
	ed := &edit{now: cur.AsOf, dueIn: Never, entry: Entry{Source: SourceCaller, Note: "replaced"}}
	e.conclude(k, cur, w, ed, false)
	d.replaced = w
	return nil
}

// mismatch is the refusal of another request, and of one of which nobody can tell since the keys are gone.
func (d *draft) mismatch(cur *Record, err error) error {
	what := ErrMismatch
	if errors.Is(err, ErrSealed) {
		what = ErrSealed
	}
	return &Error{Do: d.do, Kind: d.record.Kind, ID: cur.ID, State: cur.State, Err: what, Fields: differing(cur, d), Cause: err}
}

func (d *draft) conflict(cur *Record, field, why string) error {
	return &Error{
		Do: d.do, Kind: d.record.Kind, ID: cur.ID, State: cur.State, Err: ErrConflict, Fields: []string{field}, Cause: because(why),
	}
}
