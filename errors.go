package settle

import (
	"context"
	"errors"
	"strings"
)

// Outcomes of an operation that is stored. Each says what the caller may
// conclude about the effect; [Error.Next] says what is safe to do. Test with
// [errors.Is], never with ==.
var (
	// ErrPending matches every outcome that is still open: the effect may or may
	// not exist now, and the operation goes on without the caller. Calling again
	// with the same operation is always safe; a new operation never is.
	ErrPending error = &sentinel{text: "not settled yet"}
	// ErrInProgress: somebody works on the operation right now. Matches ErrPending.
	ErrInProgress error = &sentinel{text: "in progress", parent: ErrPending}
	// ErrUnknown: a request may have reached the provider and no answer says how
	// it ended. It is not a failure. Matches ErrPending.
	ErrUnknown error = &sentinel{text: "outcome unknown", parent: ErrPending}
	// ErrProcessing: the provider accepted the request and has not decided.
	// Matches ErrPending.
	ErrProcessing error = &sentinel{text: "processing at the provider", parent: ErrPending}
	// ErrWaiting: stored, and nothing that may have an effect was sent: it waits for
	// its next try, or for the operation it undoes. Matches ErrPending.
	ErrWaiting error = &sentinel{text: "waiting to be sent", parent: ErrPending}
	// ErrActionRequired: the customer must act (Record.Progress.Action says how).
	ErrActionRequired error = &sentinel{text: "customer action required"}
	// ErrReview: a person must decide; the effect may exist.
	ErrReview error = &sentinel{text: "in review"}
	// ErrFailed: confirmed that there is no effect: it was refused, or was done and came undone
	// (NextShowReversal). The next try names this operation in Replaces.
	ErrFailed error = &sentinel{text: "failed"}
	// ErrCanceled: withdrawn before anything could have an effect.
	ErrCanceled error = &sentinel{text: "canceled"}
	// ErrCompensated: the effect was confirmed and is being, or was, undone. Do
	// not fulfil.
	ErrCompensated error = &sentinel{text: "compensated"}
	// ErrConsequence: the effect is confirmed and its result recorded, but the
	// application's hook has not committed yet; the worker runs it again.
	ErrConsequence error = &sentinel{text: "confirmed, consequence still due"}
)

// Refusals of a call. Nothing was sent because of the call that got one, and
// the stored operation, if any, is as it was before.
var (
	// ErrInvalid: the call, an option, a contract or a request is malformed. Nothing was stored.
	ErrInvalid error = &sentinel{text: "invalid"}
	// ErrMismatch: the operation exists with another request. Error.Fields names
	// the members that differ, never their values (I3).
	ErrMismatch error = &sentinel{text: "known operation with another request"}
	// ErrConflict: the key is known with another intent, the intent under another
	// key, or the operation to replace did not fail.
	ErrConflict error = &sentinel{text: "conflicts with an existing operation"}
	// ErrHeld: another live operation has the hold.
	ErrHeld error = &sentinel{text: "held by another operation"}
	// ErrRefused: Authorize or the approval refused; the key is still free.
	ErrRefused error = &sentinel{text: "refused"}
	// ErrNotFound: no such operation.
	ErrNotFound error = &sentinel{text: "not found"}
	// ErrUncommitted: the store could not get at the record in time because a
	// transaction, perhaps the caller's own, holds it. Nothing was sent.
	ErrUncommitted error = &sentinel{text: "locked by an open transaction"}
	// ErrExceeds: the compensation would undo more than was confirmed (I9).
	ErrExceeds error = &sentinel{text: "exceeds the confirmed effect"}
	// ErrNoEffect: there is no confirmed effect to undo.
	ErrNoEffect error = &sentinel{text: "no effect to undo"}
	// ErrSettled: the decision comes too late, the operation is settled.
	ErrSettled error = &sentinel{text: "already settled"}
	// ErrDraining: the engine is shutting down and takes no new work.
	ErrDraining error = &sentinel{text: "draining"}
	// ErrRetryTx: the caller's transaction failed by contention and must be
	// started again from its first statement.
	ErrRetryTx error = &sentinel{text: "transaction must be retried"}
	// ErrStore: the store failed and what it did could not be found out in time.
	// If the call was about an effect, that effect may exist: call again with the
	// same operation.
	ErrStore error = &sentinel{text: "store failed"}
)

// sentinel is comparable by identity only, so == against a wrapped error is
// never true by accident; parent makes errors.Is(err, ErrPending) hold.
type sentinel struct {
	text   string
	parent error
}

func (s *sentinel) Error() string { return "settle: " + s.text }
func (s *sentinel) Unwrap() error { return s.parent }

// Error is the one error type of this package. Err is the sentinel to branch
// on; Cause, if any, is what a store, Authorize or the caller's context said. The text names
// the operation and never holds a request, a result, or what a precondition or a driver
// said, which may quote them (I16): see Explainer. Reach those through Cause, with
// errors.As. What an adapter or a hook said is not kept at all: they log for themselves.
type Error struct {
	Do    string // what was tried: "execute", "cancel", …
	Kind  string // kind of the operation
	ID    string // id of the stored operation that decided, e.g. the one to undo; empty if none exists
	State State  // its state, when known
	Code  string // machine word: a decline code, a review reason, a limit
	// Fields names what is wrong or differs (JSON Pointers or option names), never values.
	Fields []string
	Err    error // the sentinel
	Cause  error // may be nil
	undone bool  // of ErrFailed: the effect was confirmed, and came undone
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("settle: ")
	b.WriteString(e.Do)
	for _, s := range []string{e.Kind, e.ID} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	b.WriteString(": ")
	if e.Err != nil {
		b.WriteString(strings.TrimPrefix(e.Err.Error(), "settle: "))
	}
	if e.Code != "" {
		b.WriteString(": " + e.Code)
	}
	if len(e.Fields) > 0 {
		b.WriteString(": " + strings.Join(e.Fields, ", "))
	}
	if s := explain(e.Cause); s != "" {
		b.WriteString(": " + s)
	}
	return b.String()
}

// because is a cause in this package's own words, which hold no data.
type because string

func (b because) Error() string { return string(b) }

// Explainer is an optional interface of errors, those of stores above all: Explain says
// in words and numbers what happened, and quotes no data. Of other causes Error's text
// shows nothing, since nobody knows what they quote (I16).
type Explainer interface {
	// Explain says what happened, without data.
	Explain() string
}

func explain(err error) string {
	var ex Explainer
	var own because
	var name *nameError
	var req *requestError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &own):
		return string(own)
	case errors.As(err, &ex):
		return ex.Explain()
	case errors.As(err, &name):
		return name.Rule
	case errors.As(err, &req):
		return req.Error()
	case errors.Is(err, ErrClaimLost):
		return "claim lost"
	case errors.Is(err, ErrCorrupt):
		return "stored record is unreadable"
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded.Error()
	case errors.Is(err, context.Canceled):
		return context.Canceled.Error()
	}
	return ""
}

// Unwrap reaches the sentinel and the cause.
func (e *Error) Unwrap() []error {
	out := make([]error, 0, 2)
	if e.Err != nil {
		out = append(out, e.Err)
	}
	if e.Cause != nil {
		out = append(out, e.Cause)
	}
	return out
}

// Next is the safe next action of the caller who got this error.
func (e *Error) Next() Next {
	refusal := errors.Is(e.Err, ErrMismatch) || errors.Is(e.Err, ErrConflict) || errors.Is(e.Err, ErrHeld)
	if refusal && e.State != "" && e.State != StateCreated && !e.State.Settled() {
		return e.State.Next() // what is there is open: first of all, do not start another
	}
	switch {
	case errors.Is(e.Err, ErrActionRequired):
		return NextAskCustomer
	case errors.Is(e.Err, ErrWaiting), errors.Is(e.Err, ErrUncommitted), errors.Is(e.Err, ErrRetryTx),
		errors.Is(e.Err, ErrDraining), errors.Is(e.Err, ErrStore), errors.Is(e.Err, ErrSealed):
		return NextRetry
	case errors.Is(e.Err, ErrPending), errors.Is(e.Err, ErrConsequence):
		return NextWait
	case errors.Is(e.Err, ErrReview):
		return NextWaitPerson
	case errors.Is(e.Err, ErrFailed) && e.undone:
		return NextShowReversal
	case errors.Is(e.Err, ErrFailed):
		return NextShowFailure
	case errors.Is(e.Err, ErrInvalid), errors.Is(e.Err, ErrMismatch), errors.Is(e.Err, ErrConflict),
		errors.Is(e.Err, ErrExceeds), errors.Is(e.Err, ErrNotFound), errors.Is(e.Err, ErrRefused), errors.Is(e.Err, ErrHeld):
		return NextFixRequest
	default:
		return NextStop
	}
}

// badName is the refusal of a name.
func badName(do, kind, field string, err error) *Error {
	if field == "Scope" {
		var name *nameError
		if errors.As(err, &name) && name.Rule == ruleNotEmpty {
			return invalid(do, kind, field, "must be given here or as Options.Scope")
		}
	}
	return &Error{Do: do, Kind: kind, Err: ErrInvalid, Fields: []string{field}, Cause: err}
}

// invalid builds the refusal for a malformed call.
func invalid(do, kind string, field, reason string) *Error {
	return &Error{Do: do, Kind: kind, Err: ErrInvalid, Fields: []string{field}, Cause: because(reason)}
}
