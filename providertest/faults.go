package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNoReply is what a caller in process gets when the connection broke: the
// effect may or may not exist. Over HTTP the connection is reset instead.
var ErrNoReply = errors.New("providertest: no reply")

// ErrUnreadable says that a reply arrived and could not be understood: the
// effect may or may not exist.
var ErrUnreadable = errors.New("providertest: unreadable reply")

// Codes of faults that the provider gives by itself.
const (
	CodeInFlight      = "idempotency_key_in_use" // 409
	CodeKeyReused     = "idempotency_key_reused" // 400
	CodeAlreadyExists = "already_exists"         // 409, with ExistingID
	CodeRateLimited   = "rate_limited"           // 429
	CodeInvalid       = "invalid_request"        // 400
	CodeNotFound      = "not_found"              // 404
	CodeAmountExceeds = "amount_exceeds"         // 402: more than is left of the charge
	CodeNotRefundable = "not_refundable"         // 402: the charge did not succeed, or is voided
	CodeNotVoidable   = "not_voidable"           // 402: captured, refunded, voided or not succeeded
	CodeStorage       = "storage"                // 500: Options.Path could not be written
)

// Fault is an answer that arrived and is no success.
type Fault struct {
	Status     int           `json:"status"` // as in HTTP
	Code       string        `json:"code,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	ExistingID string        `json:"existing_id,omitempty"` // the object that the key already made
	ObjectID   string        `json:"object_id,omitempty"`   // the failed object that a decline left
}

// Error implements error.
func (f *Fault) Error() string {
	return fmt.Sprintf("providertest: provider answered %d %s", f.Status, f.Code)
}

func (f *Fault) clone() *Fault {
	if f == nil {
		return nil
	}
	c := *f
	return &c
}

// hold is a place where a request waits.
type hold struct {
	on      bool
	release <-chan struct{}
	after   time.Duration
}

// deadline is when a hold from the given time ends by itself; zero if never.
func (h hold) deadline(from time.Time) time.Time {
	if h.after <= 0 {
		return time.Time{}
	}
	return from.Add(h.after)
}

func (h hold) wait(ctx context.Context) error {
	if !h.on {
		return nil
	}
	var timer <-chan time.Time
	if h.after > 0 {
		t := time.NewTimer(h.after)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-h.release:
		return nil
	default:
	}
	select {
	case <-h.release:
		return nil
	case <-timer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	forCreate = 1 << iota
	forLookup
)

// Step says how one request is served. Make one with the functions below, for
// create requests unless they say otherwise, and combine several with And.
type Step struct {
	name string
	use  int

	lost   bool   // network: never arrives
	late   hold   // network: arrives when released
	front  *Fault // front door
	exists bool   // front door: names what exists

	before  hold // execution
	status  ObjectStatus
	decline string
	stored  *Fault
	lie     Lie
	turns   []turnAfter

	hang    hold // reply
	after   *Fault
	noReply bool
	garbled bool

	empty     bool // lookups
	pageFails int
}

// String names the step, for messages of tests.
func (s Step) String() string {
	if s.name == "" {
		return "OK"
	}
	return s.name
}

// And adds what another step does. Where both say something about the same
// thing, the other wins.
func (s Step) And(other Step) Step {
	if s.name == "" || s.name == "OK" {
		s.name = other.name
	} else {
		s.name += "+" + other.String()
	}
	if s.use == 0 {
		s.use = forCreate | forLookup
	}
	s.use &= other.use
	s.lost = s.lost || other.lost
	s.exists = s.exists || other.exists
	s.noReply = s.noReply || other.noReply
	s.garbled = s.garbled || other.garbled
	s.empty = s.empty || other.empty
	for _, h := range []struct{ to, from *hold }{{&s.late, &other.late}, {&s.before, &other.before}, {&s.hang, &other.hang}} {
		if h.from.on {
			*h.to = *h.from
		}
	}
	for _, f := range []struct{ to, from **Fault }{{&s.front, &other.front}, {&s.stored, &other.stored}, {&s.after, &other.after}} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
	if other.status != "" {
		s.status = other.status
	}
	if other.decline != "" {
		s.decline = other.decline
	}
	if other.pageFails != 0 {
		s.pageFails = other.pageFails
	}
	s.lie = s.lie.and(other.lie)
	s.turns = append(slices.Clone(s.turns), other.turns...)
	return s
}

// OK serves the request normally. For creates and lookups.
func OK() Step { return Step{name: "OK", use: forCreate | forLookup} }

// DropRequest loses the request: no effect, no reply. For creates and lookups.
func DropRequest() Step {
	return Step{name: "DropRequest", use: forCreate | forLookup, lost: true}
}

// DropReply serves the request and loses the reply. For creates and lookups.
func DropReply() Step { return Step{name: "DropReply", use: forCreate | forLookup, noReply: true} }

// Garbled serves the request and answers with something that is no JSON. For
// creates and lookups.
func Garbled() Step { return Step{name: "Garbled", use: forCreate | forLookup, garbled: true} }

// ApplyLater swallows the request: the caller gets no reply, and the request
// reaches the provider, as an ordinary request under its key, only when release
// is closed. Combined with HangAfter(nil) the caller waits until it gives up.
func ApplyLater(release <-chan struct{}) Step {
	return Step{name: "ApplyLater", use: forCreate, late: hold{on: true, release: release}}
}

// ApplyAfter is ApplyLater with a time on the provider's clock.
func ApplyAfter(d time.Duration) Step {
	return Step{name: fmt.Sprintf("ApplyAfter(%v)", d), use: forCreate, late: hold{on: true, after: d}}
}

// Status answers with an error before anything is executed, and stores nothing
// under the key: a load balancer's 503, a 401. For creates and lookups.
func Status(status int, code string) Step {
	return Step{name: fmt.Sprintf("Status(%d)", status), use: forCreate | forLookup, front: &Fault{Status: status, Code: code}}
}

// RateLimit answers 429 before anything is executed. For creates and lookups.
func RateLimit(retryAfter time.Duration) Step {
	return Step{name: "RateLimit", use: forCreate | forLookup, front: &Fault{Status: 429, Code: CodeRateLimited, RetryAfter: retryAfter}}
}

// InFlight answers 409, as if the key's first request were still running.
func InFlight() Step {
	return Step{name: "InFlight", use: forCreate, front: &Fault{Status: 409, Code: CodeInFlight}}
}

// KeyReused answers 400, as if the key were known with other parameters.
func KeyReused() Step {
	return Step{name: "KeyReused", use: forCreate, front: &Fault{Status: 400, Code: CodeKeyReused}}
}

// AlreadyExists answers 409 with the id of the newest object of this key, or
// else of this kind and reference, or else of nothing; it executes nothing.
func AlreadyExists() Step { return Step{name: "AlreadyExists", use: forCreate, exists: true} }

// HangBefore executes the request when release is closed, whether or not its
// caller still waits. With nil it never does. On a lookup it delays the reading.
func HangBefore(release <-chan struct{}) Step {
	return Step{name: "HangBefore", use: forCreate | forLookup, before: hold{on: true, release: release}}
}

// Slow is HangBefore for a duration. It waits on a real timer, or that of a
// synctest bubble, so it belongs with the default Options.Now.
func Slow(d time.Duration) Step {
	return Step{name: fmt.Sprintf("Slow(%v)", d), use: forCreate | forLookup, before: hold{on: true, after: d}}
}

// HangAfter serves the request, then holds the reply back until release is
// closed or the caller gives up; the key is no longer in flight meanwhile. On a
// lookup it holds back what was read. With nil it waits for the caller.
func HangAfter(release <-chan struct{}) Step {
	return Step{name: "HangAfter", use: forCreate | forLookup, hang: hold{on: true, release: release}}
}

// StatusStored answers a new request with an error, without effect, and stores
// the error under the key unless Options.CacheOnlySuccess: a later request under
// the key gets it again.
func StatusStored(status int, code string) Step {
	return Step{name: fmt.Sprintf("StatusStored(%d)", status), use: forCreate, stored: &Fault{Status: status, Code: code}}
}

// StatusAfter executes the request and then answers with an error, whatever came
// of it. For a new request that was applied the error is stored under the key,
// unless Options.CacheOnlySuccess; else what is stored stays as it is.
func StatusAfter(status int, code string) Step {
	return Step{name: fmt.Sprintf("StatusAfter(%d)", status), use: forCreate, after: &Fault{Status: status, Code: code}}
}

// Decline refuses a new request for good with 402 and leaves a failed object.
// The refusal is stored under the key unless Options.CacheOnlySuccess.
func Decline(code string) Step {
	return Step{name: "Decline(" + code + ")", use: forCreate, decline: code}
}

// Processing accepts a new request, to be ended by Finish or Fail.
func Processing() Step { return Step{name: "Processing", use: forCreate, status: StatusProcessing} }

// ActionRequired accepts a new request that waits for the customer; Finish or
// Fail end it.
func ActionRequired() Step {
	return Step{name: "ActionRequired", use: forCreate, status: StatusActionRequired}
}

// SucceedAfter accepts a new request and lets it succeed by itself, that long
// afterwards on the provider's clock.
func SucceedAfter(d time.Duration) Step {
	return Step{
		name: fmt.Sprintf("SucceedAfter(%v)", d), use: forCreate, status: StatusProcessing,
		turns: []turnAfter{{d, turn{Status: StatusSucceeded}}},
	}
}

// FailAfter accepts a new request and lets it fail by itself, that long afterwards:
// a bank transfer that bounces after days.
func FailAfter(d time.Duration, code string) Step {
	return Step{
		name: fmt.Sprintf("FailAfter(%v)", d), use: forCreate, status: StatusProcessing,
		turns: []turnAfter{{d, turn{Status: StatusFailed, Code: code}}},
	}
}

// ReverseAfter lets what succeeded come undone by itself, that long after the request
// was executed: a refund that bounces, a charge taken back by the bank.
func ReverseAfter(d time.Duration) Step {
	return Step{
		name: fmt.Sprintf("ReverseAfter(%v)", d), use: forCreate,
		turns: []turnAfter{{d, turn{Status: StatusReversed}}},
	}
}

// WrongAmount applies a new request and reports another amount from then on, in
// replies, lookups and events. The ledger keeps what was asked.
func WrongAmount(amount int64) Step {
	return Step{name: "WrongAmount", use: forCreate, lie: Lie{Amount: &amount}}
}

// WrongCurrency is WrongAmount for the currency.
func WrongCurrency(currency string) Step {
	return Step{name: "WrongCurrency", use: forCreate, lie: Lie{Currency: &currency}}
}

// WrongAccount is WrongAmount for the account.
func WrongAccount(account string) Step {
	return Step{name: "WrongAccount", use: forCreate, lie: Lie{Account: &account}}
}

// Empty answers a lookup with "not found" although the object exists. For
// lookups only.
func Empty() Step { return Step{name: "Empty", use: forLookup, empty: true} }

// PageFails answers 429 when page n (1 is the first) of a list is asked for. It
// stays in the script until then and lets other pages pass. For lookups only. With
// And it fails otherwise: PageFails(2).And(Status(500, "")), PageFails(2).And(DropReply()).
func PageFails(n int) Step {
	return Step{name: fmt.Sprintf("PageFails(%d)", n), use: forLookup, pageFails: n}
}
