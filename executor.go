package settle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
)

// Executor performs operations of one kind through one adapter. Make one per
// kind and process; it is safe for concurrent use.
type Executor[Req, Res any] struct {
	e       *Engine
	kindOf  string
	adapter ProviderAdapter[Req, Res]
	promise Contract
	home    string // promise.Account as it is stored
	numbers bool   // Req or Res may hold untyped numbers, which must not pass through float64
	opts    ExecutorOptions[Req, Res]
	rule    *hashRule
	shape   *keyShape   // nil if the provider honours no keys
	ignored atomic.Bool // the adapter gave a positive answer without asking for the key
}

// ExecutorOptions configure an Executor. The zero value and nil are right for many.
type ExecutorOptions[Req, Res any] struct {
	// Undoes makes this a kind of compensations: the kind whose effects it undoes.
	Undoes string
	// EscalateAfter overrides that of the engine for this kind.
	EscalateAfter time.Duration
	// Concurrency is how many operations of this kind Run works at a time in this process, of
	// Options.Concurrency that it works in all. Set it for a provider that may hang, so that the other kinds keep
	// their slots. Defaults to 0: no limit of its own.
	Concurrency int
	// Rate is how many operations of this kind Run starts in any span of that length, in this process. An
	// operation that is looked at again counts again. Execute is not held back. Zero: no limit.
	Rate Rate
	// Volatile lists JSON Pointers of request members outside the fingerprint, beside
	// those with the struct tag `settle:"volatile"`.
	Volatile []string
	// Authorize runs before anything is stored, and only while no record of the intent
	// exists: the effect's own success may falsify a precondition later. An error
	// refuses the call (ErrRefused) and leaves the key free. It runs under the
	// context of the first of the callers that share the work, without its deadline.
	Authorize func(ctx context.Context, op Operation[Req]) error
	// OnSuccess runs, within Options.StoreTimeout, in the store's transaction that makes the operation succeeded, once
	// per operation as far as its writes through tx go; it may run again when that
	// transaction does. It must write through tx only and not call settle, RegisterTx on
	// tx excepted. If it fails, the evidence is kept, the call returns
	// ErrConsequence, and the worker runs it again.
	OnSuccess func(ctx context.Context, tx Tx, out Outcome[Res]) error
}

// New makes the executor of a kind on e. It refuses (ErrInvalid) a contract that
// states too little, an adapter whose functions disagree with it, a kind made
// twice, and a request type that cannot be stored. Nil opts are fine.
//
// A kind names what is done with which provider account ("charge", "refund"), in a-z, 0-9, dot,
// underscore and hyphen, a letter first; it is part of every operation's identity and must
// never be renamed while operations exist.
func New[Req, Res any](e *Engine, kind string, a ProviderAdapter[Req, Res], opts *ExecutorOptions[Req, Res]) (*Executor[Req, Res], error) {
	bad := func(field, reason string) error { return invalid("new", kind, field, reason) }
	if e == nil {
		return nil, bad("engine", "nil")
	}
	if a == nil || reflect.ValueOf(a).Kind() == reflect.Pointer && reflect.ValueOf(a).IsNil() {
		return nil, bad("adapter", "nil")
	}
	err := checkKind(kind)
	if err != nil {
		return nil, bad("kind", err.Error())
	}
	x := &Executor[Req, Res]{e: e, kindOf: kind, adapter: a}
	if opts != nil {
		x.opts = *opts
	}
	inner := a
	for {
		w, ok := inner.(interface {
			Unwrap() ProviderAdapter[Req, Res]
		})
		if !ok {
			break
		}
		inner = w.Unwrap()
	}
	if i, ok := inner.(interface{ incomplete() string }); ok {
		switch field := i.incomplete(); field {
		case "":
		case "LookupFunc":
			return nil, bad(field, "must be set exactly if the contract promises a lookup")
		default:
			return nil, bad(field, "must be set")
		}
	}
	x.promise = a.Contract().withDefaults()
	x.home = x.promise.Account.String()
	x.numbers = untyped(reflect.TypeFor[Req](), nil) || untyped(reflect.TypeFor[Res](), nil)
	if field, reason := x.promise.problem(e.opts.Lease); field != "" {
		return nil, bad(field, reason)
	}
	if x.promise.Keys.Window > 0 {
		if x.shape, err = newKeyShape(x.promise.Keys.MaxLen, x.promise.Keys.Alphabet); err != nil {
			return nil, bad("Contract.Keys", err.Error())
		}
	}
	if x.opts.EscalateAfter < 0 {
		return nil, bad("EscalateAfter", "negative")
	}
	if x.opts.Concurrency < 0 {
		return nil, bad("Concurrency", "negative")
	}
	if r := &x.opts.Rate; r.Count < 0 || r.Count > maxRate || r.Per < 0 {
		return nil, bad("Rate", "Count must be between 0 and 10000, and Per not negative")
	} else if r.Per == 0 {
		r.Per = time.Second
	}
	if x.opts.EscalateAfter == 0 {
		x.opts.EscalateAfter = e.opts.EscalateAfter
	}
	if x.opts.Undoes != "" {
		if err = checkKind(x.opts.Undoes); err != nil {
			return nil, bad("Undoes", err.Error())
		}
	}
	tags, err := volatileTags(reflect.TypeFor[Req]())
	if err != nil {
		return nil, bad("request", err.Error())
	}
	if x.rule, err = newHashRule(append(tags, x.opts.Volatile...)); err != nil {
		return nil, bad("Volatile", err.Error())
	}
	x.rule = x.rule.under(e.fingerprints)
	if err := e.register(x); err != nil {
		return nil, err
	}
	return x, nil
}

// Execute does the operation, or reports what became of it. The error is nil if and
// only if the effect is confirmed and its consequence committed; every other
// outcome is an error to branch on with errors.Is, and the outcome is filled all the
// same, refusals excepted. Calling it again with the same operation is always safe.
//
// ctx bounds the waiting, not the effect: when it ends, Execute returns with an
// error that matches ErrPending and the context's error, and the request goes on in the
// background under its own deadline. Callers of one operation in one process share the work.
func (x *Executor[Req, Res]) Execute(ctx context.Context, op Operation[Req]) (Outcome[Res], error) {
	do := "execute"
	if x.opts.Undoes != "" {
		do = "compensate"
	}
	if err := ctx.Err(); err != nil {
		return x.refused(&Error{Do: do, Kind: x.kindOf, Err: ErrPending, Cause: err})
	}
	d, err := x.begin(ctx, x.e.store, do, &op)
	if err != nil {
		return x.refused(err)
	}
	if r, ok, err := x.e.glance(ctx, x, d); ok {
		if err != nil {
			return x.refused(err)
		}
		return x.verdict(do, *r, true)
	}
	if d, err = x.complete(d, op); err != nil {
		return x.refused(err)
	}
	key, by := d.flight(), d.authority()
	var land landing
	for {
		land, err = x.e.inFlight(ctx, key, func(ctx context.Context, fl *flight) (*Record, bool, error) {
			fl.by = by
			return x.e.execute(ctx, fl, x, d)
		})
		if !errors.Is(err, ErrRefused) || land.by == by {
			break
		}
		// Somebody with another authority was refused.
	}
	if land.shared && !x.e.silent {
		x.e.obs.Notice(ctx, Notice{Event: EventPrevented, Kind: x.kindOf, Operation: land.record.ID, To: land.record.State, Code: PreventedShared})
	}
	if err != nil {
		var own *Error
		switch {
		case errors.Is(err, ErrDraining):
			return x.refused(&Error{Do: do, Kind: x.kindOf, Err: ErrDraining})
		case !errors.As(err, &own):
			return x.refused(x.e.storeError(do, x.kindOf, "", err))
		case land.record.ID == "" || !land.record.Fingerprint.mayBe(d.record.Fingerprint):
			if own.Do == "" {
				own.Do, own.Kind = do, x.kindOf
			}
			return x.refused(own)
		}
		if own.Do == "" {
			own.Do = do
		}
		return Outcome[Res]{Record: land.record, Replayed: land.replayed, Next: own.Next()}, own
	}
	if !x.e.local && land.record.State.Settled() {
		x.e.known.note(&land.record)
	}
	return x.verdict(do, land.record, land.replayed)
}

// Register stores the operation and lets the worker send it; it does not wait. A
// read, not a verdict: a nil error says that the operation is stored, now or before,
// with this request.
func (x *Executor[Req, Res]) Register(ctx context.Context, op Operation[Req]) (Record, error) {
	d, err := x.draft(ctx, x.e.store, "register", op)
	if err != nil {
		return Record{}, err
	}
	if !x.e.begin() {
		return Record{}, &Error{Do: "register", Kind: x.kindOf, Err: ErrDraining}
	}
	defer x.e.end()
	return x.e.registerOnly(ctx, x, d)
}

// RegisterTx stores the operation in the caller's own transaction: it commits with
// the caller's rows, or not at all, and the worker sends it after that commit. Get tx
// from the store (sqlstore: Store.In). ErrRetryTx: start the transaction again.
func (x *Executor[Req, Res]) RegisterTx(ctx context.Context, tx Tx, op Operation[Req]) (Record, error) {
	if tx == nil {
		return Record{}, invalid("register", x.kindOf, "tx", "nil")
	}
	on := x.e.inside(tx)
	d, err := x.draft(ctx, on, "register", op)
	if err != nil {
		return Record{}, err
	}
	r, _, _, err := x.e.create(ctx, on, x, d, false)
	if err != nil {
		return Record{}, err
	}
	return *r, nil
}

// Find reads the live operation of an intent. A read, not a verdict. ErrNotFound if
// there is none.
func (x *Executor[Req, Res]) Find(ctx context.Context, in Intent) (Record, error) {
	in, err := x.intent("find", in)
	if err != nil {
		return Record{}, err
	}
	r, err := x.e.get(ctx, ByIntent(in.Scope, x.kindOf, in.Subject, in.Purpose))
	if err != nil {
		return Record{}, x.e.storeError("find", x.kindOf, "", err)
	}
	return r, nil
}

// Outcome is the verdict of a record of this kind, without I/O.
func (x *Executor[Req, Res]) Outcome(r Record) (Outcome[Res], error) {
	if r.Kind != x.kindOf {
		return x.refused(invalid("outcome of", x.kindOf, "kind", "the record is of another kind"))
	}
	return x.verdict("outcome of", r, true)
}

func (x *Executor[Req, Res]) refused(err error) (Outcome[Res], error) {
	out := Outcome[Res]{Next: NextStop}
	var own *Error
	if errors.As(err, &own) {
		out.Next = own.Next()
	}
	return out, err
}

func (x *Executor[Req, Res]) verdict(do string, r Record, replayed bool) (Outcome[Res], error) {
	out := Outcome[Res]{Record: r, Replayed: replayed, Next: r.Next()}
	if len(r.Result) > 0 && !r.Result.Sealed() {
		res := new(Res)
		if err := decodeSafely(r.Result, res, x.numbers); err == nil {
			out.result = res
		}
	}
	if err := r.verdict(); err != nil {
		e := &Error{Do: do, Kind: r.Kind, ID: r.ID, State: r.State, Err: err}
		if r.Request.Sealed() && !r.State.Settled() {
			e.Cause = ErrSealed
		}
		switch {
		case r.State == StateFailed:
			e.Code, e.undone = r.Code, r.cameUndone()
		case r.State == StateReview && r.Review != nil:
			e.Code = r.Review.Reason
		}
		out.Next = e.Next()
		return out, e
	}
	return out, nil
}

// decodeSafely is decodeStored; a type that panics is not decoded.
func decodeSafely(data []byte, into any, numbers bool) (err error) {
	defer contain(&err)
	return decodeStored(data, into, numbers)
}

// decodeStored reads what encodeRequest wrote; numbers decides whether untyped ones
// can occur, which then come as json.Number, digit for digit (IC-07).
func decodeStored(data []byte, into any, numbers bool) error {
	if raw, ok := into.(*json.RawMessage); ok {
		*raw = bytes.Clone(data)
		return nil
	}
	if !numbers {
		return json.Unmarshal(data, into)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return dec.Decode(into)
}

// untyped reports whether a value of type t may hold an interface.
func untyped(t reflect.Type, seen []reflect.Type) bool {
	if slices.Contains(seen, t) {
		return false
	}
	seen = append(seen, t)
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return untyped(t.Elem(), seen)
	case reflect.Map:
		return untyped(t.Key(), seen) || untyped(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if untyped(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
