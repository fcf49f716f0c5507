package providertest

import (
	"math"
	"time"
)

// Forever as Options.KeyWindow makes the provider honor keys without end.
const Forever time.Duration = math.MaxInt64

// Drift says what happens when a key comes back with other parameters.
type Drift string

// The ways to treat a known key that arrives with other parameters.
const (
	// DriftDetect answers 400 with CodeKeyReused. It is the default.
	DriftDetect Drift = ""
	// DriftIgnore answers as if the parameters were those of the first request,
	// even when the first was another kind of request.
	DriftIgnore Drift = "ignore"
	// DriftNew makes key and parameters together the identity: changed parameters
	// are a new effect.
	DriftNew Drift = "new"
)

// Replay says how a finished request is answered when its key comes again.
type Replay string

// The ways to answer a finished request's key.
const (
	// ReplayStored repeats the first answer, errors included, although the object
	// may have moved on. It is the default.
	ReplayStored Replay = ""
	// ReplayCurrent answers with the object as it is now.
	ReplayCurrent Replay = "current"
	// ReplayNames answers 409 with CodeAlreadyExists and the object's id, whatever
	// became of that object.
	ReplayNames Replay = "names"
)

// Concurrent says what a request meets whose key is in flight.
type Concurrent string

// The ways to treat a key whose first request is still being executed.
const (
	// ConcurrentGuard answers 409 with CodeInFlight. It is the default.
	ConcurrentGuard Concurrent = ""
	// ConcurrentWait waits for the first request and then replays it.
	ConcurrentWait Concurrent = "wait"
	// ConcurrentUnsafe executes both.
	ConcurrentUnsafe Concurrent = "unsafe"
)

// Options configure a Provider. The zero value, and nil, are a provider that
// honors no keys; with a KeyWindow alone it treats keys as Stripe's API v1 does.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Account is that of requests and lookups that name none. Keys are scoped by
	// account, and by nothing else.
	Account string

	// KeyWindow is how long a key is honored, counted from its first use: zero
	// means not at all, Forever without end.
	KeyWindow time.Duration
	// KeyMaxLen refuses longer keys with 400 and CodeInvalid; zero means no limit.
	KeyMaxLen int
	// Drift, Replay and Concurrent say how keys are honored.
	Drift      Drift
	Replay     Replay
	Concurrent Concurrent
	// CacheOnlySuccess stores no refusal and no error under a key: the same key
	// is executed afresh until it has an effect, and from then on answered with
	// that effect.
	CacheOnlySuccess bool

	// Async accepts every request as StatusProcessing, to be ended by
	// Provider.Finish or Provider.Fail.
	Async bool
	// LookupLag is how long a new object is invisible to List and Find. Get by id
	// sees it at once.
	LookupLag time.Duration
	// PageSize limits a page of List; zero means 100.
	PageSize int

	// Path names a file of JSON lines to which the ledger and its keys are
	// written through (fsync) before any reply, and from which they are read
	// back. Empty means memory only.
	Path string

	// Choose picks the step of a create request for which the script has none;
	// nil means OK. It must not call the provider.
	Choose func(Request) Step
	// OnCreate is called when a create request has arrived, before its step runs.
	OnCreate func(Request)
	// OnLookup is called when a Get (which sets Query.ID) or a List has arrived.
	OnLookup func(Query)
	// OnApply is called when a request has made an object, before its reply.
	// For a delayed request that is within the call that found it due.
	OnApply func(Object)
}
