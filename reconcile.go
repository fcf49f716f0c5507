package settle

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// The reasons for a review.
const (
	ReasonDisputed   = "disputed"           // an effect exists that is not what was asked for
	ReasonCanceled   = "effect_on_canceled" // an effect of an operation that was withdrawn
	ReasonReplaced   = "effect_on_replaced" // an effect of an operation that was tried again
	ReasonForeign    = "reference_taken"    // the reference belongs to another operation
	ReasonWindow     = "key_window_closed"  // the provider may have forgotten the key
	ReasonNoKeys     = "no_keys"            // no lookup found anything, and the provider honours no keys or a request left without one
	ReasonEscalated  = "escalated"          // automation tried for EscalateAfter
	ReasonAccount    = "account_changed"    // no process is configured for the account of the first attempt
	ReasonProcessing = "processing_limit"   // the provider did not decide within the contract's limit
	ReasonSendBefore = "send_before_passed" // may have been sent, and must not be sent again
	ReasonAmbiguous  = "ambiguous_effect"   // a compensation names none of several effects
	ReasonExceeds    = "exceeds_effect"     // a compensation would undo more than was confirmed
	ReasonMute       = "key_not_sent"       // the adapter ignores the key that it should send
	ReasonSealed     = "sealed"             // the request, or the event, could not be opened for too long
	ReasonPruned     = "request_pruned"     // retention removed the stored request: nothing can be sent again
)

// reviewInterval is how often an operation in review is looked up.
const reviewInterval = time.Hour

// minTries is how many tries to recover come before an escalation, however much
// time has passed: a worker that was down is no reason to ask a person (T-44). A pass that
// could only wait for an attempt to become quiet is no try.
const minTries = 3

type action string

const (
	actSend   action = "send"   // send the stored request under the stored key
	actLookup action = "lookup" // ask the provider
	actWait   action = "wait"   // release the claim, look again later
	actReview action = "review" // stop automation, ask a person
	actCancel action = "cancel" // its SendBefore passed and nothing may have left
	actDone   action = "done"   // settled
	actUnsend action = "unsend" // an attempt is on record and must not be sent
)

// looked is what this pass's lookup said.
type looked string

const (
	lookedNot     looked = ""        // not made yet
	lookedFound   looked = "found"   // the provider told of an effect or a state
	lookedNothing looked = "nothing" // not found: proves nothing
	lookedFailed  looked = "failed"  // no answer
)

// situation is everything the recovery decision depends on.
type situation struct {
	contract      Contract
	record        *Record
	early, late   time.Time // bounds of the store's time
	lease         time.Duration
	escalateAfter time.Duration
	sameAccount   bool   // account and derived terms are those stored (I2)
	mute          bool   // the adapter is known to ignore keys
	pruned        bool   // retention removed the stored request
	sealed        bool   // the stored request cannot be opened here
	looked        looked // in this pass
	sent          bool   // in this pass
}

type decision struct {
	do     action
	in     time.Duration // for actWait, before jitter
	quiet  bool          // for actWait: it could only wait for an attempt to become quiet
	reason string        // for actReview
}

// decide is the rules of docs/recovery.md: what happens to an unsettled operation, in this
// order: account, lookup, send, wait, review. It is pure; its table is golden-tested.
func decide(s situation) decision {
	r := s.record
	if r.State.Settled() {
		return decision{do: actDone}
	}
	facts := r.facts(s)
	wait := backoff(r.Tries + 1)
	inReview := r.State == StateReview

	// 1. Another account: nothing is asked or sent here.
	if !s.sameAccount {
		if !inReview && (facts.escalated || facts.pastProcessing) {
			return decision{do: actReview, reason: ReasonAccount}
		}
		return decision{do: actWait, in: reviewWait(inReview, wait)}
	}
	// Nor without the request, which another process or a key that comes back can open.
	if s.sealed {
		switch {
		case !facts.mayExist && !inReview && !r.SendBefore.IsZero() && !s.late.Before(r.SendBefore):
			return decision{do: actCancel}
		case !inReview && (facts.escalated || facts.pastProcessing):
			return decision{do: actReview, reason: ReasonSealed}
		}
		return decision{do: actWait, in: reviewWait(inReview, wait)}
	}
	// 2. Ask, whatever the age, when there may be something to find.
	if s.contract.Lookup != NoLookup && facts.mayExist && s.looked == lookedNot {
		return decision{do: actLookup}
	}
	if inReview {
		return decision{do: actWait, in: reviewInterval} // evidence settles it; it never sends by itself
	}
	if !facts.mayExist {
		return s.sendFirst()
	}
	// 3. Send the stored request again under the same key.
	expired := !r.SendBefore.IsZero() && !s.late.Before(r.SendBefore)
	limited := facts.escalated || facts.pastProcessing
	if s.looked != lookedFound && !s.sent && !limited && !expired && !s.mute && !s.pruned && facts.open > 0 && facts.windowOpen &&
		(facts.loud == 0 || s.contract.Keys.ConcurrentSafe) {
		if r.RetryAt.After(s.early) {
			return decision{do: actWait, in: max(wait, r.RetryAt.Sub(s.early))}
		}
		return decision{do: actSend}
	}
	// 4. Look again later.
	switch {
	case facts.pastProcessing:
		return decision{do: actReview, reason: ReasonProcessing}
	case r.Progress != nil || facts.open == 0:
		return decision{do: actWait, in: wait} // undecided at the provider: days, for a bank
	case facts.escalated:
		return decision{do: actReview, reason: ReasonEscalated}
	case facts.loud > 0:
		// What the provider told of, and what an open attempt keeps from counting, is not sent again: then, too, it can only wait.
		safe := s.contract.Keys.ConcurrentSafe && facts.windowOpen && s.looked != lookedFound
		if !safe && (s.contract.Lookup == NoLookup || facts.quietIn < wait) {
			wait = max(facts.quietIn, time.Millisecond)
		}
		return decision{do: actWait, in: wait, quiet: !safe && !s.sent}
	case s.looked == lookedFailed, s.looked == lookedFound, s.sent:
		return decision{do: actWait, in: wait}
	}
	// 5. Nothing safe is left.
	switch {
	case s.mute:
		return decision{do: actReview, reason: ReasonMute}
	case s.pruned:
		return decision{do: actReview, reason: ReasonPruned}
	case expired:
		return decision{do: actReview, reason: ReasonSendBefore}
	case s.contract.Keys.Window == 0 || r.KeyWindow == 0:
		return decision{do: actReview, reason: ReasonNoKeys}
	default:
		return decision{do: actReview, reason: ReasonWindow}
	}
}

// sendFirst is the decision for an operation of which nothing can have had an effect:
// no window, no key and no escalation stand against sending it.
func (s situation) sendFirst() decision {
	r := s.record
	switch {
	case !r.SendBefore.IsZero() && !s.late.Before(r.SendBefore):
		return decision{do: actCancel}
	case s.mute:
		return decision{do: actReview, reason: ReasonMute}
	case s.pruned:
		return decision{do: actReview, reason: ReasonPruned}
	case r.RetryAt.After(s.early):
		wait := r.RetryAt.Sub(s.early)
		if s.sent {
			wait = max(wait, backoff(r.lastAttempt())) // a provider may ask for one second for hours
		}
		return decision{do: actWait, in: wait}
	case s.sent:
		return decision{do: actWait, in: backoff(r.lastAttempt())}
	}
	return decision{do: actSend}
}

// standing sums up the attempts for decide.
type standing struct {
	open, loud     int           // attempts without an end; those of them that can still land
	quietIn        time.Duration // until none can
	mayExist       bool          // something may have left, or a reference is known
	windowOpen     bool
	escalated      bool // tried often enough, for long enough, and the provider never said that it works on it
	pastProcessing bool
}

func (r *Record) facts(s situation) standing {
	f := standing{mayExist: r.Progress != nil || slices.ContainsFunc(r.References, func(x Reference) bool { return x.Rank != RankKnown })}
	var first, opened time.Time // first attempt that may have left; first open one
	for _, a := range r.Attempts {
		if a.harmless() {
			continue
		}
		a.Grace = max(a.Grace, s.contract.grace()) // the longer one counts, as of the key window the shorter one
		f.mayExist = true
		if first.IsZero() {
			first = a.Start
		}
		if !a.open() {
			continue
		}
		f.open++
		if opened.IsZero() {
			opened = a.Start
		}
		if !a.quiet(s.early) {
			f.loud++
			end := a.End
			if end.IsZero() {
				end = s.late
			}
			f.quietIn = max(f.quietIn, end.Add(a.Grace).Sub(s.early))
		}
	}
	f.windowOpen = windowOpen(first, s.late, min(s.contract.Keys.Window, r.KeyWindow), s.contract.margin(s.lease))
	since := opened
	if since.IsZero() {
		since = r.CreatedAt
	}
	if r.ResumedAt.After(since) {
		since = r.ResumedAt
	}
	f.escalated = r.Tries-r.Waits >= minTries && s.late.Sub(since) >= s.escalateAfter && r.Progress == nil
	if r.Progress != nil {
		since = r.Progress.Since
		if r.ResumedAt.After(since) {
			since = r.ResumedAt
		}
		f.pastProcessing = s.late.Sub(since) >= s.contract.ProcessingLimit
	} else if f.open == 0 && f.mayExist {
		f.pastProcessing = s.late.Sub(since) >= s.contract.ProcessingLimit
	}
	return f
}

// windowOpen reports whether a request that starts within a lease from now surely
// arrives while the provider still honours a key first used at first (I6, T-12, T-36).
func windowOpen(first, now time.Time, window, margin time.Duration) bool {
	switch {
	case window <= 0:
		return false
	case window == Forever || first.IsZero():
		return true
	}
	return now.Add(margin).Before(first.Add(window))
}

// backoff is the wait before try n: 1 s, 2 s, 4 s … up to 5 minutes.
func backoff(n int) time.Duration {
	return min(time.Second<<max(0, min(n-1, 20)), 5*time.Minute)
}

// jitter adds up to a fifth, so that many operations do not come due at once.
func jitter(d time.Duration) time.Duration {
	d = min(max(d, 0), 365*24*time.Hour)
	return d + time.Duration(rand.Int64N(int64(d)/5+1))
}

func reviewWait(inReview bool, wait time.Duration) time.Duration {
	if inReview {
		return reviewInterval
	}
	return wait
}

// Reconcile looks into one operation now, whether it is due or not: it asks
// the provider, sends again only where that is safe, and returns the record as it
// is then. If somebody else works on it, or it is settled, the record comes back as it is;
// likewise, with ErrInvalid, if its kind is not made on this engine. A read: its error says
// nothing about the effect.
func (e *Engine) Reconcile(ctx context.Context, id string) (Record, error) {
	r, err := e.get(ctx, ByID(id))
	if err != nil {
		return Record{}, e.storeError("reconcile", "", id, err)
	}
	k := e.kind(r.Kind)
	if k == nil {
		return r, &Error{Do: "reconcile", Kind: r.Kind, ID: id, State: r.State, Err: ErrInvalid, Fields: []string{"kind"}, Cause: because("not made on this engine")}
	}
	if r.Claimed() || r.State.Settled() {
		return r, nil
	}
	out, err := e.inFlight(ctx, "work "+id, func(ctx context.Context, fl *flight) (*Record, bool, error) {
		r, c, err := e.take(ctx, "reconcile", &r, nil)
		if err != nil || c == nil {
			return r, false, err
		}
		fl.saw(r)
		r, err = e.pass(ctx, k, r, c, nil)
		return r, false, err
	})
	if errors.Is(err, ErrDraining) {
		return r, &Error{Do: "reconcile", Kind: r.Kind, ID: id, State: r.State, Err: ErrDraining}
	}
	return out.record, err
}
