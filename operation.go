package settle

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"
)

// Operation is one intended effect, as the backend names it: "pay order 8472
// once". Two calls with the same scope, kind, subject and purpose are the same
// operation, whenever and from whichever process they come.
type Operation[Req any] struct {
	// Scope is the tenant or account holder; required unless Options.Scope is set.
	Scope string
	// Subject is what the effect is about ("order-8472"). Required, except for
	// compensations, where it is derived.
	Subject string
	// Purpose is why ("purchase"). Required; for a compensation it is the reason. Never count
	// tries in it: that is what Replaces is for.
	Purpose string
	// Key is the application's own idempotency key, if it has one. A known intent
	// under another key is ErrConflict, so a fresh UUID per call cannot pass for a
	// new operation.
	Key string
	// Hold is an optional name (say, the order) of which one operation may be live
	// at a time, across kinds and purposes of one scope. It is taken at registration,
	// released by evidence of no effect, by cancellation or by complete compensation,
	// and never taken again.
	Hold string
	// Replaces is the id of a failed or canceled operation of the same intent, whose
	// next try this is.
	Replaces string
	// Undoes is the effect that this operation compensates; see Executor.Compensate.
	Undoes Effect
	// SendBefore is the instant after which no request starts any more. Zero: none.
	SendBefore time.Time
	// Approval is the decision that allows the operation, if one is needed.
	Approval *Approval
	// Request is handed to the adapter after a round through its stored form.
	Request Req
}

// Intent returns what makes op that operation.
func (op Operation[Req]) Intent() Intent {
	return Intent{Scope: op.Scope, Subject: op.Subject, Purpose: op.Purpose}
}

// Intent names an operation of one kind.
type Intent struct{ Scope, Subject, Purpose string }

// Undo names the effect that a compensation undoes.
type Undo struct {
	Operation string `json:"operation"`
	Ref       string `json:"ref,omitempty"` // empty: the operation's only effect
	// Whole: the request names no amount of its own, so the compensation is of the whole effect,
	// whatever that turns out to be.
	Whole bool `json:"whole,omitempty"`
}

// Effect is one effect of an operation at the provider. As an argument only
// Operation and Ref are read.
type Effect struct {
	Operation, Ref string
	Confirmed      bool
	Amount         Amount // confirmed; zero: an effect without amount
	Reserved       Amount // held by open compensations
	Returned       Amount // undone by completed compensations
	whole          bool   // a compensation without an amount has it all
}

// Left is what may still be undone.
func (e Effect) Left() Amount {
	if e.Amount.IsZero() {
		return Amount{}
	}
	return Amount{Value: e.Amount.Value.Sub(e.Reserved.Value).Sub(e.Returned.Value), Unit: e.Amount.Unit}
}

// Record is an operation as it is stored: identity, evidence, and the state
// computed from them. A Record is a value; changing one changes nothing stored.
// It prints without payloads and keys.
type Record struct {
	// Identity; never changes after the record's creation.
	ID          string // UUID
	Scope       string
	Kind        string
	Key         string // given by the application; empty: the intent is the key
	Subject     string
	Purpose     string
	Generation  int    // 0, or one more than that of the operation it replaces
	Replaces    string // id
	Hold        string
	Undoes      Undo
	ProviderKey string // the exact bytes sent as idempotency key; empty if the provider honours none
	Account     string // the provider account of every request (I2)
	Fingerprint Fingerprint
	Request     Payload // what is sent, always; nil after retention, see PrunedAt
	Terms       Terms
	KeyWindow   time.Duration // contract at creation; the shorter of this and the current one holds
	SendBefore  time.Time
	Approval    *Approval
	CreatedAt   time.Time

	// Evidence; changed by merging only.
	Attempts   []Attempt
	References []Reference
	Progress   *Progress
	Ledger     []Posting
	Result     Payload // of the confirmed effect; nil after retention (PrunedAt) or when nobody reported one
	Code       string  // the last refusal's machine word
	Message    string  // the last refusal's text for people

	// Control decisions.
	Withdrawn   string // why it was canceled; empty: it was not
	ReplacedBy  string // id
	HoldFree    bool   // the hold was released
	Review      *Review
	ResumedAt   time.Time // when a person let automation go on
	Tries       int       // passes since the first open attempt or ResumedAt
	Waits       int       // those of them that could only wait for an attempt to become quiet
	RetryAt     time.Time // the provider asked not to be called before
	Wake        bool      // somebody asked for a look while the row was claimed
	Consequence Consequence
	HookTries   int
	Feed        Feed // how far its transitions have been published

	// Bookkeeping.
	State     State // as of the last write; Engine methods recompute it for AsOf
	Version   int64 // the fencing number; every write and every claim raises it
	Token     string
	Due       time.Time // lease end while claimed, else next action; zero: never
	UpdatedAt time.Time
	PrunedAt  time.Time // when retention removed request and result; zero: they are as they were stored
	AsOf      time.Time // the store's clock when the record was read or written
}

// Consequence is how far the application's OnSuccess hook has come.
type Consequence string

// The consequences.
const (
	ConsequenceNone  Consequence = ""      // no hook
	ConsequenceArmed Consequence = "armed" // runs when the operation succeeds
	ConsequenceDue   Consequence = "due"   // the hook failed, or nobody who has it was there; the worker runs it
	ConsequenceDone  Consequence = "done"  // committed
	ConsequenceAside Consequence = "aside" // gave up after its tries; Redrive runs it again
	ConsequenceNever Consequence = "never" // the effect was wholly undone before it ran: whatever comes later is not fulfilled
)

// Review is an open question to a person.
type Review struct {
	Reason   string    `json:"reason"`
	Owner    string    `json:"owner,omitempty"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
	Overdue  bool      `json:"overdue,omitempty"` // the deadline passed and was alarmed
}

// Claimed reports whether somebody had the right to work on r at AsOf.
func (r *Record) Claimed() bool { return r.Token != "" && r.Due.After(r.AsOf) }

// Intent returns what makes r that operation.
func (r *Record) Intent() Intent {
	return Intent{Scope: r.Scope, Subject: r.Subject, Purpose: r.Purpose}
}

// Effects lists the effects of r that were confirmed at some time, with what
// is left to undo.
func (r *Record) Effects() []Effect {
	var out []Effect
	for _, ref := range r.references() {
		if ref.Rank == RankSucceeded || ref.Rank == RankReversed {
			out = append(out, r.effect(ref))
		}
	}
	return out
}

// Clone returns a copy that shares nothing with r.
func (r Record) Clone() Record {
	r.Request = slices.Clone(r.Request)
	r.Result = slices.Clone(r.Result)
	r.Fingerprint.Volatile = slices.Clone(r.Fingerprint.Volatile)
	r.Attempts = slices.Clone(r.Attempts)
	r.References = slices.Clone(r.References)
	for i := range r.References {
		r.References[i].Terms = r.References[i].Terms.clone()
	}
	r.Ledger = slices.Clone(r.Ledger)
	r.Terms = r.Terms.clone()
	if r.Progress != nil {
		p := *r.Progress
		r.Progress = &p
	}
	if r.Review != nil {
		v := *r.Review
		r.Review = &v
	}
	if r.Approval != nil {
		a := *r.Approval
		r.Approval = &a
	}
	return r
}

// fork returns a copy to decide on: what is ever changed in place is copied, payloads
// and terms, which never are, are shared.
func (r *Record) fork() Record {
	c := *r
	c.Attempts = slices.Clone(r.Attempts)
	c.References = slices.Clone(r.References)
	c.Ledger = slices.Clone(r.Ledger)
	if r.Review != nil {
		v := *r.Review
		c.Review = &v
	}
	return c
}

// Err is the verdict of r: nil if and only if the effect is confirmed and its
// consequence, if there is one, committed.
func (r *Record) Err() error {
	err := r.verdict()
	if err == nil {
		return nil
	}
	code := r.Code
	if r.State == StateReview && r.Review != nil {
		code = r.Review.Reason
	}
	if r.State != StateReview && r.State != StateFailed {
		code = ""
	}
	return &Error{Do: "outcome of", Kind: r.Kind, ID: r.ID, State: r.State, Code: code, Err: err}
}

func (r *Record) verdict() error {
	switch r.State {
	case StateSucceeded:
		switch r.Consequence {
		case ConsequenceDue, ConsequenceAside:
			return ErrConsequence
		case ConsequenceNever:
			return ErrCompensated
		case ConsequenceArmed:
			if r.anyGone() {
				return ErrCompensated
			}
		case ConsequenceNone, ConsequenceDone:
		}
		return nil
	case StateCompensating, StateCompensated:
		return ErrCompensated
	case StateFailed:
		return ErrFailed
	case StateCanceled:
		return ErrCanceled
	case StateReview:
		return ErrReview
	case StateActionRequired:
		return ErrActionRequired
	case StateProcessing:
		return ErrProcessing
	case StateSubmitting:
		return ErrInProgress
	case StateUnknown:
		return ErrUnknown
	case StateCreated:
		if r.Claimed() {
			return ErrInProgress
		}
		return ErrWaiting
	}
	return ErrPending
}

// Next is the safe next action of whoever asks about r. A read, like Err.
func (r *Record) Next() Next {
	if r.cameUndone() {
		return NextShowReversal
	}
	return r.State.Next()
}

// String names r by kind, id, state and version.
func (r Record) String() string {
	if r.ID == "" {
		return "no operation"
	}
	return fmt.Sprintf("%s %s %s v%d", r.Kind, r.ID, r.State, r.Version)
}

// GoString is String: %#v must not print payloads.
func (r Record) GoString() string { return r.String() }

// Format makes every verb print String.
func (r Record) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, r.String()) }

// MarshalJSON shows ids and words only; EncodeRecord is the stored form.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"kind": r.Kind, "operation": r.ID, "state": r.State, "version": r.Version})
}

// LogValue implements [slog.LogValuer] with ids and words only.
func (r Record) LogValue() slog.Value {
	return slog.GroupValue(slog.String("kind", r.Kind), slog.String("operation", r.ID),
		slog.String("state", string(r.State)), slog.Int64("version", r.Version))
}

// Outcome is what a call learned about its operation. It embeds the record and
// prints like it. After a refusal the record is the zero Record: an outcome
// never shows another request's result.
type Outcome[Res any] struct {
	Record
	// Replayed: this call sent nothing; the answer is that of an earlier or a shared
	// request, from the store or by a lookup.
	Replayed bool
	// Next is the caller's safe next action.
	Next   Next
	result *Res
}

// Result is the provider's answer: false unless the effect is confirmed and
// not undone, and its result was reported, is still retained and can be opened: PrunedAt tells whether it was removed, Sealed whether
// its key is gone.
func (o Outcome[Res]) Result() (Res, bool) {
	var zero Res
	if o.result == nil || o.State != StateSucceeded {
		return zero, false
	}
	return *o.result, true
}

// sum adds amounts of one unit; the zero Amount is neutral.
func sum(a, b Amount) Amount {
	if a.IsZero() {
		return b
	}
	if b.IsZero() {
		return a
	}
	return Amount{Value: a.Value.Add(b.Value), Unit: a.Unit}
}

func (a Amount) less(b Amount) bool { return a.Value.Cmp(b.Value) < 0 }
