package settle

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Engine drives the operations of one store, for all kinds made on it with
// [New]. It is safe for concurrent use; any number of engines in any number of
// processes may share a store.
type Engine struct {
	store  Store
	local  bool    // reads of the store cost no round trip
	counts Tallier // nil: the store cannot
	opts   Options
	obs    Observer
	// silent: nobody hears notices, and those that are only measures are not made.
	silent bool

	known        intents
	versions     Versioner // nil: the store is none
	fingerprints fingerprintKeys

	mu       sync.Mutex
	kinds    map[string]kind
	flights  map[string]*flight
	draining bool
	running  int           // background work under way
	idle     chan struct{} // closed when running falls to 0 while draining
	wake     chan struct{} // a nudge for Run: something became due here
	feedWake chan struct{} // and for its part that publishes

	renewals *renewer
	work     *workload
	outage   outage
}

// Options configure an Engine. The zero value and nil are right for most.
type Options struct {
	// Scope is for operations that name none. Defaults to "": each must name its own,
	// so that "order-1" of two tenants are two operations.
	Scope string
	// Lease is how long a claim lasts unless renewed: how soon another process takes
	// over after a crash. Between 1 second and 1 hour. Defaults to 30 seconds.
	Lease time.Duration
	// EscalateAfter is how long automation tries to find out about an operation, from
	// its first open attempt, before a person is asked. Never before three tries.
	// Defaults to 15 minutes.
	EscalateAfter time.Duration
	// ReviewWithin is a person's time to decide before the review is alarmed as
	// overdue. Defaults to 24 hours.
	ReviewWithin time.Duration
	// OrphanAfter is for how long an event that names no known operation is matched again
	// before a person is asked. Defaults to 24 hours.
	OrphanAfter time.Duration
	// Retention is for how long an operation that is settled, and whose compensations are, keeps its
	// request and result; then Run removes them, of events the payload. Everything that names, binds
	// or counts it stays for ever (I14), so a replay is answered as before, without the result.
	// At least one minute. Defaults to 0: everything is kept.
	Retention time.Duration
	// Policy says who may start, undo, cancel or decide what. Defaults to nil: whoever can call may.
	Policy Policy
	// Sealer encrypts requests, results, events, providers' and people's words on their way to the store: see docs/encryption.md for what stays
	// readable. It may be set, and keys rotated, at any time: what was written before is read as it is. Defaults to nil: nothing is sealed.
	Sealer Sealer
	// FingerprintKeys make fingerprints keyed: the first makes new ones, all verify. They may be added, in front, at any time, and
	// must stay as long as operations have fingerprints by them. Defaults to none.
	FingerprintKeys []FingerprintKey
	// PollInterval is how often Run asks the store for due operations when nothing
	// nudges it. Defaults to 1 second.
	PollInterval time.Duration
	// StoreTimeout bounds one step of the store. Defaults to 5 seconds.
	StoreTimeout time.Duration
	// Concurrency is how many operations Run works at a time. Defaults to 16.
	Concurrency int
	// Publisher takes the transitions of operations, see [Publisher]. It is set in every process of a store or in none: one
	// that shall not publish itself has [PublishedElsewhere]. What was settled before there was one is not
	// in the feed; any other operation is from its next transition on. Defaults to nil: no feed, and no cost.
	Publisher Publisher
	// Clock is this process's own time. Defaults to the system's.
	Clock Clock
	// Logger gets notices unless Observer is set. Defaults to nil: silence.
	Logger *slog.Logger
	// Observer gets notices. Defaults to LogObserver(Logger).
	Observer Observer
	// TallyEvery is how often Run has the store, which must be a Tallier, count all operations by kind and state for
	// the Observer (EventTally). That may read every row, so set it in one process, to minutes where there are millions. At least one
	// second. Defaults to 0: never.
	TallyEvery time.Duration
}

// The defaults of Options.
const (
	DefaultLease         = 30 * time.Second
	DefaultEscalateAfter = 15 * time.Minute
	DefaultReviewWithin  = 24 * time.Hour
	DefaultOrphanAfter   = 24 * time.Hour
	DefaultPollInterval  = time.Second
	DefaultStoreTimeout  = 5 * time.Second
	DefaultConcurrency   = 16
)

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Lease, DefaultLease)
	def(&o.EscalateAfter, DefaultEscalateAfter)
	def(&o.ReviewWithin, DefaultReviewWithin)
	def(&o.OrphanAfter, DefaultOrphanAfter)
	def(&o.PollInterval, DefaultPollInterval)
	def(&o.StoreTimeout, DefaultStoreTimeout)
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	return o
}

func (o Options) problem() (field, reason string) {
	switch {
	case o.Lease < time.Second || o.Lease > time.Hour:
		return "Options.Lease", "must be between 1 second and 1 hour"
	case o.EscalateAfter < 0:
		return "Options.EscalateAfter", "negative"
	case o.ReviewWithin < 0:
		return "Options.ReviewWithin", "negative"
	case o.OrphanAfter < 0:
		return "Options.OrphanAfter", "negative"
	case o.Retention < 0 || o.Retention > 0 && o.Retention < time.Minute:
		return "Options.Retention", "must be 0 or at least 1 minute"
	case o.TallyEvery < 0 || o.TallyEvery > 0 && o.TallyEvery < time.Second:
		return "Options.TallyEvery", "must be 0 or at least 1 second"
	case o.PollInterval < 0:
		return "Options.PollInterval", "negative"
	case o.StoreTimeout < 0:
		return "Options.StoreTimeout", "negative"
	case o.Concurrency < 0:
		return "Options.Concurrency", "negative"
	}
	if why := fingerprintKeys(o.FingerprintKeys).problem(); why != "" {
		return "Options.FingerprintKeys", why
	}
	if o.Scope != "" {
		if err := checkName("Options.Scope", o.Scope, MaxScope); err != nil {
			return "Options.Scope", err.Error()
		}
	}
	return "", ""
}

// Open makes an Engine on store. Nil opts are fine. It does no I/O and starts
// nothing; call [Engine.Run] in one goroutine of each process that shall finish
// what callers left behind.
func Open(store Store, opts *Options) (*Engine, error) {
	if v := reflect.ValueOf(store); store == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid("open", "", "store", "nil")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	o = o.withDefaults()
	if field, reason := o.problem(); field != "" {
		return nil, invalid("open", "", field, reason)
	}
	counts, ok := store.(Tallier) // not asked of e.store, which may hide what store can besides
	if o.TallyEvery > 0 && !ok {
		return nil, invalid("open", "", "Options.TallyEvery", "the store cannot count")
	}
	e := &Engine{
		store: store, counts: counts, opts: o, obs: o.Observer,
		kinds: make(map[string]kind), flights: make(map[string]*flight), wake: make(chan struct{}, 1),
		feedWake: make(chan struct{}, 1),
	}
	e.renewals, e.work, e.versions = newRenewer(e), newWorkload(), versionsOf(store, &o)
	if l, ok := store.(Local); ok {
		e.local = l.LocalReads()
	}
	if o.Sealer != nil {
		e.store = &vault{Store: store, lock: lock{o.Sealer}}
	}
	e.fingerprints = fingerprintKeys(o.FingerprintKeys).clone()
	switch {
	case e.obs != nil:
	case o.Logger != nil:
		e.obs = LogObserver(o.Logger)
	default:
		e.obs, e.silent = discard{}, true
	}
	return e, nil
}

// kind is what the non-generic core needs of an Executor: type parameters stop here.
type kind interface {
	name() string
	contract() Contract
	account() string
	undoes() string
	escalateAfter() time.Duration
	covers(f Fingerprint, request []byte) (bool, error)
	deriveTerms(r *Record, undo Effect) (Terms, error)
	submit(ctx context.Context, r *Record, undo Effect, attempt int, read any, used *atomic.Bool) (reply, error)
	lookup(ctx context.Context, r *Record, undo Effect) (reply, error)
	hasHook() bool
	hook(next *Record) func(context.Context, Tx) error
	event(ctx context.Context, ev Event) (reply, error)
	limits() (most int, rate Rate)
	mute() bool // the adapter ignores keys that it should send
}

// reply is an observation of an adapter without its type.
type reply struct {
	ev         evidence
	retryAfter time.Duration
}

func (e *Engine) kind(name string) kind {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kinds[name]
}

func (e *Engine) register(k kind) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.kinds[k.name()]; ok {
		return invalid("new", k.name(), "kind", "already made on this engine")
	}
	e.kinds[k.name()] = k
	return nil
}

// Get reads one operation. A read, not a verdict: its error says nothing about
// the effect; ask Record.Err. ErrNotFound if there is none.
func (e *Engine) Get(ctx context.Context, id string) (Record, error) {
	r, err := e.get(ctx, ByID(id))
	if err != nil {
		return Record{}, e.storeError("get", "", id, err)
	}
	return r, nil
}

// List reads the operations that match q, in ascending order of id (which is
// about the order of creation), page by page, until the caller stops. A state in
// q selects by what the record shows now: an operation whose worker died reads
// unknown, not submitting. Without a limit it lists all.
func (e *Engine) List(ctx context.Context, q Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		wanted := func(State) bool { return true }
		if len(q.States) > 0 {
			set := make(map[State]bool)
			for _, s := range q.States {
				set[s] = true
			}
			wanted = func(s State) bool { return set[s] }
			if set[StateUnknown] && !set[StateSubmitting] {
				q.States = append(append([]State(nil), q.States...), StateSubmitting)
			}
		}
		limit := q.Limit
		q.Limit = 100
		for n := 0; ; {
			page, err := e.store.List(ctx, q)
			if err != nil {
				yield(Record{}, e.storeError("list", q.Kind, "", err))
				return
			}
			for _, r := range page {
				q.After = r.ID
				fresh(&r)
				if own(r.Kind) && q.Kind != r.Kind {
					return // ids of operations are hexadecimal, and those of settle's own records come after all of them
				}
				if !wanted(r.State) {
					continue
				}
				if !yield(r, nil) {
					return
				}
				if n++; limit > 0 && n == limit {
					return
				}
			}
			if len(page) < q.Limit {
				return
			}
		}
	}
}

// History reads everything that was ever observed or decided about an operation,
// in order (I12).
func (e *Engine) History(ctx context.Context, id string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		const page = 100
		var after int64
		for {
			entries, err := e.store.History(ctx, id, after, page)
			if err != nil {
				yield(Entry{}, e.storeError("history", "", id, err))
				return
			}
			for _, x := range entries {
				after = x.Seq
				if !yield(x, nil) {
					return
				}
			}
			if len(entries) < page {
				return
			}
		}
	}
}

// Drain ends the engine for shutdown: later calls get ErrDraining, Run stops
// claiming, and Drain returns when all work under way, also that whose callers
// gave up, is recorded, or with ctx's error when ctx ends first. What it could
// not wait for is taken over by another process when its lease ends.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	if e.idle == nil {
		e.idle = make(chan struct{})
		if e.running == 0 {
			close(e.idle)
		}
	}
	idle := e.idle
	e.mu.Unlock()
	e.Wake()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return &Error{Do: "drain", Err: ErrPending, Cause: ctx.Err()}
	}
}

// begin counts work that Drain waits for; false when draining.
func (e *Engine) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining {
		return false
	}
	e.running++
	return true
}

// hold counts work that goes on inside work that is counted already.
func (e *Engine) hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running++
}

func (e *Engine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running--; e.running == 0 && e.draining {
		close(e.idle)
	}
}

// Wake makes a Run of this engine look for due operations at once, for instance after
// the commit of a transaction with RegisterTx in it. It does not block.
func (e *Engine) Wake() {
	nudge(e.wake)
	nudge(e.feedWake)
}

func nudge(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// storeCtx bounds one step of the store, whatever became of the caller: an
// outcome is recorded although nobody waits for it any more. A local store waits for
// nothing but its own lock, which it bounds itself.
func (e *Engine) storeCtx(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.local {
		return detached(ctx), func() {}
	}
	return context.WithTimeout(detached(ctx), e.opts.StoreTimeout)
}

// detached is ctx without its end, which is ctx itself if it has none.
func detached(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

func (e *Engine) get(ctx context.Context, by Index) (Record, error) {
	ctx, cancel := e.storeCtx(ctx)
	defer cancel()
	r, err := e.store.Get(ctx, by)
	if err != nil {
		return Record{}, err
	}
	fresh(&r)
	return r, nil
}

// fresh makes a record that came from a store ready for decisions: the state is
// computed for AsOf, and an attempt without a start began with the record.
func fresh(r *Record) {
	for i := range r.Attempts {
		if r.Attempts[i].Start.IsZero() {
			r.Attempts[i].Start = r.CreatedAt
		}
	}
	r.State = r.compute(r.Claimed())
}

// commit performs c and finds out what became of it: a store error is followed
// by the same change again, which the store answers with success if the first
// was applied (S26, I15), until patience ends.
func (e *Engine) commit(ctx context.Context, c Change, patience time.Duration) ([]Record, error) {
	start := e.opts.Clock.Now()
	added := e.queue(&c)
	for try := 0; ; try++ {
		sctx, cancel := e.storeCtx(ctx)
		recs, err := e.store.Commit(sctx, c)
		cancel()
		var conflict *ConflictError
		var hook *HookError
		switch {
		case err == nil:
			for i := range recs {
				fresh(&recs[i])
			}
			if added < len(c.Writes) {
				nudge(e.feedWake)
			}
			return recs, nil
		case errors.As(err, &conflict) && c.mended(added, conflict):
			continue
		case errors.As(err, &conflict):
			fresh(&conflict.Existing)
			return nil, err
		case errors.As(err, &hook), errors.Is(err, ErrNotFound), errors.Is(err, ErrRetryTx), errors.Is(err, ErrInvalid):
			return nil, err
		}
		e.obs.Notice(ctx, Notice{Event: EventStoreError, Kind: c.Writes[0].Record.Kind, Operation: c.Writes[0].Record.ID, Code: "commit"})
		if elapsed(start, e.opts.Clock.Now()) >= patience {
			return nil, err
		}
		time.Sleep(min(time.Duration(1<<min(try, 10))*10*time.Millisecond, time.Second))
	}
}

// storeError wraps what a store said, once.
func (e *Engine) storeError(do, kind, id string, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	for _, s := range []error{ErrSealed, ErrNotFound, ErrUncommitted, ErrRetryTx, ErrInvalid, ErrConflict} {
		if errors.Is(err, s) {
			return &Error{Do: do, Kind: kind, ID: id, Err: s, Cause: err}
		}
	}
	return &Error{Do: do, Kind: kind, ID: id, Err: ErrStore, Cause: err}
}

// random is the runtime's generator, seeded by the system and safe for concurrent use:
// ids must never repeat, and need not be secret.
type random struct{}

func (random) Read(p []byte) (int, error) {
	for i := 0; i < len(p); i += 8 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], rand.Uint64())
		copy(p[i:], b[:])
	}
	return len(p), nil
}

// newID is a UUID in order of time: ids page in about the order of creation.
func newID() string { return uuid.Must(uuid.NewV7FromReader(random{})).String() }

// newToken is a random UUID.
func newToken() string {
	var u uuid.UUID
	_, _ = random{}.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // version 4, variant of RFC 9562
	return u.String()
}

// elapsed is the time from a to b by whichever of the monotonic and the wall
// clock says more: a suspended machine's monotonic clock stands still (T-28).
func elapsed(a, b time.Time) time.Duration {
	return max(b.Sub(a), b.Round(0).Sub(a.Round(0)))
}
