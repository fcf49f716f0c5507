package settle

import (
	"context"
	"errors"
	"time"
)

// Why a call had no effect of its own: the codes of EventPrevented.
const (
	PreventedReplay   = "replay"   // the operation is known: its stored outcome is the answer
	PreventedShared   = "shared"   // another caller in this process has it under way
	PreventedEvent    = "event"    // the provider delivered an event again
	PreventedMismatch = "mismatch" // the operation is known with another request (ErrMismatch)
	PreventedConflict = "conflict" // its key is known with another intent, or the reverse (ErrConflict)
	PreventedHeld     = "held"     // another operation has the hold (ErrHeld)
)

// Tally is how many operations of one kind are in one state.
type Tally struct {
	Kind           string
	State          State // as it is now: where a worker died it is unknown, not submitting
	Count          int64
	Oldest, Newest time.Time // when the first and the last of them was created
	Overdue        int64     // those of them that have been due for longer than was asked, and nobody claimed
	AsOf           time.Time // the store's clock
}

// Tallier is an optional interface of a Store: Tally counts operations by kind and state, in that order, parked and
// merged events (EventKind) among them. overdue is how long a row may be due before it is counted as overdue. It
// changes nothing, and may read every row.
type Tallier interface {
	// Tally counts what is stored. An error says nothing about any operation.
	Tally(ctx context.Context, overdue time.Duration) ([]Tally, error)
}

// prevented tells the observer of a call for an operation that exists: err is how it was refused, nil that it was answered.
func (e *Engine) prevented(ctx context.Context, kind string, r *Record, err error) {
	if e.silent {
		return
	}
	n := Notice{Event: EventPrevented, Kind: kind, Operation: r.ID, To: r.State, Code: PreventedReplay, Version: r.Version, Age: r.AsOf.Sub(r.CreatedAt)}
	switch {
	case err == nil:
	case errors.Is(err, ErrMismatch):
		n.Code = PreventedMismatch
	case errors.Is(err, ErrHeld):
		n.Code = PreventedHeld
	case errors.Is(err, ErrConflict):
		n.Code = PreventedConflict
	default:
		return // the store's trouble, which is told elsewhere
	}
	if err != nil {
		var own *Error
		if errors.As(err, &own) {
			n.Operation, n.To, n.Version, n.Age = own.ID, own.State, 0, 0
		}
	}
	e.obs.Notice(ctx, n)
}

// recovery tells the observer how a pass ended that looked after an operation whose effect may exist.
func (e *Engine) recovery(ctx context.Context, from State, r *Record, err error) {
	if e.silent {
		return
	}
	n := Notice{
		Event: EventRecovery, Kind: r.Kind, Operation: r.ID, From: from, To: r.State, Version: r.Version, Attempts: r.lastAttempt(),
		Age: r.AsOf.Sub(r.CreatedAt),
	}
	if err != nil {
		n.Code = "store"
		if errors.Is(err, ErrClaimLost) {
			n.Code = "claim_lost"
		}
	}
	e.obs.Notice(ctx, n)
}

// tally tells the observer how many operations there are, by kind and state. What was there at the last count and is not
// any more is told too, as none: a gauge would keep its last value.
func (e *Engine) tally(ctx context.Context, t Tallier, told map[tallied]bool) {
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.opts.StoreTimeout)
	defer cancel()
	all, err := t.Tally(sctx, overdueAfter)
	if err != nil {
		e.obs.Notice(ctx, Notice{Event: EventStoreError, Code: "tally"})
		return
	}
	now := make(map[tallied]bool, len(all))
	for _, x := range all {
		if x.Kind == RetentionKind {
			continue
		}
		now[tallied{x.Kind, x.State}] = true
		e.obs.Notice(ctx, Notice{
			Event: EventTally, Kind: x.Kind, To: x.State, Count: x.Count, Overdue: x.Overdue, Age: max(0, x.AsOf.Sub(x.Oldest)),
		})
	}
	for k := range told {
		if !now[k] {
			delete(told, k)
			e.obs.Notice(ctx, Notice{Event: EventTally, Kind: k.kind, To: k.state})
		}
	}
	for k := range now {
		told[k] = true
	}
}

// tallied is what one line of a tally is about.
type tallied struct {
	kind  string
	state State
}

// tallies counts operations for the observer until ctx ends.
func (e *Engine) tallies(ctx context.Context, t Tallier) {
	told := map[tallied]bool{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if e.isDraining() {
			return
		}
		e.tally(ctx, t, told)
		timer.Reset(e.opts.TallyEvery)
	}
}
