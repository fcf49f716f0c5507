package settle

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"time"
)

// ProviderAdapter is the seam to one provider's SDK. Each method is one call
// of that SDK. An error from Submit or Lookup means no answer, without exception
// (I4): whatever it wraps, the effect may exist. Declines, "not sent" and
// "not applied" are facts that the adapter returns because it knows them.
//
// Implementations must be safe for concurrent use and must not retry under
// another key; a hidden resend of the same bytes under the same key is one attempt.
//
// One that wraps another may have a method Unwrap that returns it: New checks an [Adapter] inside.
type ProviderAdapter[Req, Res any] interface {
	// Contract states what the provider promises. It is read when the executor is
	// made; a change needs a new process.
	Contract() Contract
	// Terms derives from the operation what the provider will echo. It must be
	// pure: it is derived again before every send, and a different answer is never sent (I2).
	Terms(op Operation[Req]) Terms
	// Submit makes the request, with call.Key() as its idempotency key if the provider
	// honours keys and with call.ID as own reference in the provider's metadata.
	// ctx carries the request's deadline.
	Submit(ctx context.Context, call *Call[Req]) (Observation[Res], error)
	// Lookup asks what became of it: by call.Ref once that is known, before that by
	// key or own reference. It must not have an effect. Not called under NoLookup. It cannot
	// speak for an attempt, so NotSent and NotApplied from it count as Unclear.
	Lookup(ctx context.Context, call *Call[Req]) (Observation[Res], error)
}

// Adapter makes a ProviderAdapter of functions. LookupFunc must be set exactly
// if Promise offers a lookup.
type Adapter[Req, Res any] struct {
	Promise    Contract
	TermsFunc  func(op Operation[Req]) Terms
	SubmitFunc func(ctx context.Context, call *Call[Req]) (Observation[Res], error)
	LookupFunc func(ctx context.Context, call *Call[Req]) (Observation[Res], error)
	EventFunc  func(ctx context.Context, ev Event) (Observation[Res], error) // optional, see EventReader
}

// Contract implements ProviderAdapter.
func (a Adapter[Req, Res]) Contract() Contract { return a.Promise }

// Terms implements ProviderAdapter.
func (a Adapter[Req, Res]) Terms(op Operation[Req]) Terms { return a.TermsFunc(op) }

// Submit implements ProviderAdapter.
func (a Adapter[Req, Res]) Submit(ctx context.Context, c *Call[Req]) (Observation[Res], error) {
	return a.SubmitFunc(ctx, c)
}

// Lookup implements ProviderAdapter.
func (a Adapter[Req, Res]) Lookup(ctx context.Context, c *Call[Req]) (Observation[Res], error) {
	return a.LookupFunc(ctx, c)
}

// ReadEvent implements EventReader.
func (a Adapter[Req, Res]) ReadEvent(ctx context.Context, ev Event) (Observation[Res], error) {
	if a.EventFunc == nil {
		return Observation[Res]{}, nil
	}
	return a.EventFunc(ctx, ev)
}

// incomplete names the function fields that disagree with the promise.
func (a Adapter[Req, Res]) incomplete() string {
	switch {
	case a.TermsFunc == nil:
		return "TermsFunc"
	case a.SubmitFunc == nil:
		return "SubmitFunc"
	case (a.LookupFunc == nil) != (a.Promise.Lookup == NoLookup):
		return "LookupFunc"
	}
	return ""
}

// Contract is what is known about a provider: facts with a source and a date,
// not wishes. New refuses one that cannot be worked with; there are no defaults
// for what only the provider can know.
type Contract struct {
	// Account is where every request goes. Provider is required.
	Account AccountFacts
	// Keys is what the provider does with idempotency keys. Zero: it honours none.
	Keys Keys
	// Lookup is what a lookup's answer is worth.
	Lookup LookupPromise
	// LookupLag is how long an effect may stay invisible to an Eventual lookup. Required for one.
	LookupLag time.Duration
	// SettleDelay is how long after its deadline a request may still land at the
	// provider (queues, retries inside the network). Required; if nobody knows, a minute or more.
	SettleDelay time.Duration
	// Deadline bounds one request or lookup. Required.
	Deadline time.Duration
	// ProcessingLimit is how long the provider may stay undecided before a person
	// looks (days for a bank refund). Defaults to 24 hours.
	ProcessingLimit time.Duration
	// Source and Checked say where the facts come from and when they were read.
	Source, Checked string
}

// AccountFacts name a provider account. All of it binds the operation: a request
// is never repeated in another region or mode, where the provider shares no keys.
type AccountFacts struct{ Provider, Account, Region, Mode string }

// String joins the facts injectively; this text is stored.
func (f AccountFacts) String() string {
	esc := func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "/", `\/`)
	}
	return esc(f.Provider) + "/" + esc(f.Account) + "/" + esc(f.Region) + "/" + esc(f.Mode)
}

// Forever is the window of a provider that never forgets a key.
const Forever = time.Duration(math.MaxInt64)

// Keys is a provider's treatment of idempotency keys.
type Keys struct {
	// Window is for how long the provider is known to honour a key, from its first
	// use; the lower bound of what it documents. Zero: it honours none. Forever is allowed.
	Window time.Duration
	// MaxLen is the longest key it takes, in bytes. Defaults to 255.
	MaxLen int
	// Alphabet lists the characters it takes; empty means printable ASCII. See AlphabetURL, AlphabetUUID.
	Alphabet string
	// ConcurrentSafe: two requests under one key at the same time have one effect.
	ConcurrentSafe bool
}

// LookupPromise is what a lookup's answer is worth.
type LookupPromise string

// The lookup promises. Even an authoritative "not found" settles nothing: the
// request may still be on its way.
const (
	NoLookup      LookupPromise = ""              // there is no way to ask
	Eventual      LookupPromise = "eventual"      // may miss an effect for up to LookupLag
	Authoritative LookupPromise = "authoritative" // sees every effect that exists
)

func (c Contract) withDefaults() Contract {
	if c.ProcessingLimit == 0 {
		c.ProcessingLimit = 24 * time.Hour
	}
	return c
}

// grace is how long after an attempt's end it may still land or stay unseen.
func (c Contract) grace() time.Duration {
	g := c.Deadline + c.SettleDelay
	if c.Lookup == Eventual {
		g += c.LookupLag
	}
	return g
}

// margin is by how much the key window closes early: a request may start at the
// end of its lease, run to its deadline and land after the settle delay (T-12, T-36).
func (c Contract) margin(lease time.Duration) time.Duration {
	return lease + c.Deadline + c.SettleDelay
}

// maxAccount bounds an account as it is stored, in bytes: stores keep as much.
const maxAccount = 512

// problem names the field of c that cannot be worked with, and why.
func (c Contract) problem(lease time.Duration) (field, reason string) {
	switch {
	case c.Account.Provider == "":
		return "Contract.Account", "the provider must be named"
	case len(c.Account.String()) > maxAccount:
		return "Contract.Account", "longer than 512 bytes in all"
	case c.Deadline <= 0:
		return "Contract.Deadline", "required: how long one request may take"
	case c.SettleDelay <= 0:
		return "Contract.SettleDelay", "required: how long a request may land after its deadline"
	case c.ProcessingLimit < 0:
		return "Contract.ProcessingLimit", "negative"
	case c.Lookup != NoLookup && c.Lookup != Eventual && c.Lookup != Authoritative:
		return "Contract.Lookup", "no such promise"
	case c.Lookup == Eventual && c.LookupLag <= 0:
		return "Contract.LookupLag", "required for an eventual lookup"
	case c.LookupLag < 0:
		return "Contract.LookupLag", "negative"
	case c.Keys.Window < 0:
		return "Contract.Keys", "negative window"
	case c.Keys.Window > 0 && c.Keys.Window <= c.margin(lease):
		return "Contract.Keys", "the window must be longer than lease + Deadline + SettleDelay"
	}
	return "", ""
}

// Call is one request or lookup, as handed to an adapter. Everything in it comes
// from the stored record.
type Call[Req any] struct {
	ID                      string // the operation's id: put it into the provider's metadata as own reference
	Scope, Subject, Purpose string
	Request                 Req // zero in a lookup after retention: find the effect by Ref, Key or ID
	Terms                   Terms
	Ref                     string // the provider's reference, once known
	Undoes                  Effect // for compensations: the effect to undo, with its reference
	Attempt                 int    // number of the attempt; not to be used in anything sent

	key  string
	used *atomic.Bool
}

// Key returns the idempotency key: the same bytes on every attempt. It is a
// method so that its use is noticed: an adapter whose contract honours keys and
// that never asks for the key is stopped after its first answer.
func (c *Call[Req]) Key() string {
	if c.used != nil {
		c.used.Store(true)
	}
	return c.key
}

// NewCall makes a Call with a key, for tests of adapters.
func NewCall[Req any](key string, c Call[Req]) *Call[Req] {
	c.key, c.used = key, new(atomic.Bool)
	return &c
}

// Fact is what an observation proves.
type Fact string

// The facts. When in doubt, Unclear.
const (
	// Unclear proves nothing: a 5xx, an unreadable body, "in flight", "key already
	// used", "already exists" without a reference, anything not understood.
	Unclear Fact = ""
	// Applied: the effect exists, as Terms describe it.
	Applied Fact = "applied"
	// Declined: a final refusal of the operation; there is no effect.
	Declined Fact = "declined"
	// NotSent: no byte of this attempt reached the provider (dial refused, no circuit).
	NotSent Fact = "not_sent"
	// NotApplied: the provider answered that this attempt did nothing and that asking
	// again is fine (401, 403, 429, a validation error of the transport).
	NotApplied Fact = "not_applied"
	// Underway: accepted, not decided.
	Underway Fact = "underway"
	// NeedsAction: the customer must act; Action says how.
	NeedsAction Fact = "needs_action"
	// NotFound: a lookup did not see it. Proves nothing by itself.
	NotFound Fact = "not_found"
	// Reversed: a confirmed effect came undone later (a refund that bounced).
	Reversed Fact = "reversed"
)

// Observation is what the provider said, in one fact.
type Observation[Res any] struct {
	Fact Fact
	// Ref is the provider's name of the effect as a whole (the payment, not one try of it).
	// One over MaxRef bytes or with control characters is dropped, the evidence kept.
	Ref string
	// Terms as the provider reports them, unconverted. Required with Applied
	// where Adapter.Terms states an amount or other terms.
	Terms Terms
	// Result is kept with the operation when the fact is Applied; one over MaxResult bytes is not.
	Result Res
	// Code is a machine word of at most 64 characters from A-Za-z0-9_.:-; it may be logged.
	Code string
	// Message is for people; stored, never logged. Cut at 1024 bytes.
	Message string
	// Action is what the customer needs, with NeedsAction (a URL, a client secret); stored, never
	// logged. Cut at 4096 bytes.
	Action string
	// Sequence orders the provider's own non-final reports; 0 if it has none.
	Sequence int64
	// RetryAfter is how long the provider asked to be left alone, with NotApplied; at
	// most 24 hours count.
	RetryAfter time.Duration
}
