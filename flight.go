package settle

import (
	"context"
	"errors"
	"sync/atomic"
)

// flight is work on one operation that the callers of this process share.
type flight struct {
	done     chan struct{}
	last     atomic.Pointer[Record] // as of the last write, for callers that give up
	record   *Record
	replayed bool
	said     Fact // what Refresh was told
	err      error
	by       string // the leader's authority: a refusal of its is no answer to others
	shared   bool   // somebody else waits for it, too; guarded by Engine.mu until it is done
}

// saw notes how far the flight has come. Nobody changes r from now on.
func (f *flight) saw(r *Record) { f.last.Store(r) }

// land hands out the flight's record: to its leader as it is, to followers as copies.
func (f *flight) land(follower bool) landing {
	switch {
	case f.record == nil:
		return landing{replayed: f.replayed || follower, shared: follower, by: f.by, said: f.said}
	case follower:
		return landing{f.record.Clone(), true, true, f.by, f.said}
	case f.shared:
		return landing{f.record.Clone(), f.replayed, false, f.by, f.said} // others copy it now
	}
	return landing{*f.record, f.replayed, false, f.by, f.said}
}

// landing is what a caller takes from a flight.
type landing struct {
	record   Record
	replayed bool
	shared   bool // with an earlier caller
	by       string
	said     Fact
}

// inFlight runs work once for all callers with the same key, on a context that
// outlives them: a caller's context bounds its waiting, not the effect. When it ends,
// the caller gets what is known so far and an error that matches ErrPending and the
// context's; the work goes on and is recorded.
func (e *Engine) inFlight(ctx context.Context, key string, work func(context.Context, *flight) (*Record, bool, error)) (landing, error) {
	e.mu.Lock()
	if e.draining {
		e.mu.Unlock()
		return landing{}, ErrDraining
	}
	fl, follower := e.flights[key]
	if !follower {
		fl = &flight{done: make(chan struct{})}
		e.flights[key] = fl
		e.running++
	}
	fl.shared = fl.shared || follower
	e.mu.Unlock()
	if !follower {
		fly := func() {
			defer func() {
				if p := recover(); p != nil {
					fl.err = &Error{Do: "execute", Err: ErrStore, Cause: errors.New("settle: panic in a store or callback")}
				}
				e.mu.Lock()
				delete(e.flights, key)
				e.mu.Unlock()
				close(fl.done)
				e.end()
			}()
			fl.record, fl.replayed, fl.err = work(detached(ctx), fl)
		}
		if ctx.Done() == nil {
			fly()
		} else {
			go fly()
		}
	}
	select {
	case <-fl.done:
		return fl.land(follower), fl.err
	case <-ctx.Done():
	}
	select {
	case <-fl.done: // both were ready: the answer is worth more
		return fl.land(follower), fl.err
	default:
	}
	gaveUp := &Error{Err: ErrPending, Cause: ctx.Err()}
	if r := fl.last.Load(); r != nil {
		gaveUp.Kind, gaveUp.ID, gaveUp.State = r.Kind, r.ID, r.State
		gaveUp.Err, gaveUp.undone = verdictOr(r.verdict(), ErrPending), r.cameUndone()
		return landing{record: r.Clone()}, gaveUp
	}
	return landing{}, gaveUp
}
