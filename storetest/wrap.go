package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/settle-go/settle"
)

// Op names a method of settle.Store.
type Op string

// The methods of settle.Store.
const (
	OpGet     Op = "Get"
	OpCommit  Op = "Commit"
	OpClaim   Op = "Claim"
	OpRenew   Op = "Renew"
	OpList    Op = "List"
	OpHistory Op = "History"
)

// Ops lists the methods of settle.Store, in the order in which it declares them.
func Ops() []Op { return []Op{OpGet, OpCommit, OpClaim, OpRenew, OpList, OpHistory} }

// Call is one call of a wrapped store, as its plan sees it.
type Call struct {
	N      int // from 1, over all calls of this wrapped store
	Op     Op
	Change *settle.Change // of a Commit, else nil; not to be modified
}

// Fault is what befalls a call. The zero value is none.
type Fault struct {
	// Before runs before the call. If it returns an error, the call is not made and the
	// caller gets that error: it failed before it took effect.
	Before func(ctx context.Context) error
	// Twice makes the call twice, one after the other, and answers what the second said,
	// as a driver does that repeats a call whose answer it has lost.
	Twice bool
	// After runs when the store has answered. If it returns an error, the caller gets that
	// instead of the answer, success or not: it failed after it took effect.
	After func(ctx context.Context) error
}

// Do makes a call as x says. It is what Wrap does, for fakes of what is no store, a
// provider's client for instance.
func Do[T any](ctx context.Context, x Fault, call func() (T, error)) (T, error) {
	var none T
	if x.Before != nil {
		if err := x.Before(ctx); err != nil {
			return none, err
		}
	}
	out, err := call()
	if x.Twice {
		out, err = call()
	}
	if x.After != nil {
		if lost := x.After(ctx); lost != nil {
			return none, lost
		}
	}
	return out, err
}

// Fail is for Fault.Before and Fault.After: the call fails with err.
func Fail(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// Hang is for Fault.Before and Fault.After: the call hangs until its context is done and fails with
// the context's error. Under a context that is never done it fails at once: a
// store that promises settle.Local gets such contexts, and does not hang.
func Hang(ctx context.Context) error {
	if ctx.Done() == nil {
		return errors.New("storetest: a call was to hang under a context that is never done; hide settle.Local from Wrap")
	}
	<-ctx.Done()
	return ctx.Err()
}

// Plan chooses the fault of each call. It is asked about one call of a wrapped store at a
// time and must not call that store. Nil chooses none.
type Plan func(Call) Fault

// Nth plans one fault, at the nth call of a method, counted from 1; "" counts the
// calls of all methods.
func Nth(op Op, n int, x Fault) Plan {
	seen := 0
	return func(c Call) Fault {
		if op != "" && c.Op != op {
			return Fault{}
		}
		if seen++; seen == n {
			return x
		}
		return Fault{}
	}
}

// Always plans the same fault at every call of a method, or of all for "".
func Always(op Op, x Fault) Plan {
	return func(c Call) Fault {
		if op == "" || c.Op == op {
			return x
		}
		return Fault{}
	}
}

// Plans joins plans: all are asked at every call, and the first one that plans a fault
// for it decides.
func Plans(plans ...Plan) Plan {
	return func(c Call) Fault {
		var first Fault
		for _, p := range plans {
			if x := p(c); !first.is() {
				first = x
			}
		}
		return first
	}
}

// is reports whether x is a fault at all.
func (x Fault) is() bool { return x.Before != nil || x.Twice || x.After != nil }

// Wrap returns a store that passes every call on to store and lets befall it what the plan
// says: it can fail before or after it took effect, hang, or be made twice. With a plan
// that plans nothing it is the store itself, all clauses included. It shows what
// users of a store do when its silence is ambiguous (I15); nothing about store.
//
// What a hook does through its Tx is part of the step that it belongs to: the
// plan is not asked about it, and the hook gets the store's own Tx. A hook whose commit is made
// twice runs again only if the first one did not apply (S26). A claim that is made
// twice answers what the second one got: what the first one got stays claimed
// under the token until its lease ends, as after any claim whose answer was lost.
//
// The result is a settle.Versioner if store is one: asking for a version is an OpGet. It has what store says about settle.Local. Execute gives a local store
// contexts that are never done, so a plan with Hang wants a store that is not:
// Wrap(struct{ settle.Store }{store}, plan) hides it. The result is safe for concurrent use.
func Wrap(store settle.Store, plan Plan) settle.Store {
	w := &wrapped{store: store, plan: plan}
	if v, ok := store.(settle.Versioner); ok {
		return &versioned{wrapped: w, versions: v}
	}
	return w
}

// versioned is a wrapped settle.Versioner.
type versioned struct {
	*wrapped
	versions settle.Versioner
}

// Version implements settle.Versioner.
func (v *versioned) Version(ctx context.Context, id string) (settle.Record, error) {
	return Do(ctx, v.fault(Call{Op: OpGet}), func() (settle.Record, error) { return v.versions.Version(ctx, id) })
}

type wrapped struct {
	store settle.Store

	mu   sync.Mutex
	plan Plan
	n    int
}

func (w *wrapped) fault(c Call) Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	c.N = w.n
	if w.plan == nil {
		return Fault{}
	}
	return w.plan(c)
}

// LocalReads implements settle.Local: false is the same as not to implement it.
func (w *wrapped) LocalReads() bool {
	l, ok := w.store.(settle.Local)
	return ok && l.LocalReads()
}

// Get implements settle.Store.
func (w *wrapped) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	return Do(ctx, w.fault(Call{Op: OpGet}), func() (settle.Record, error) { return w.store.Get(ctx, by) })
}

// Commit implements settle.Store.
func (w *wrapped) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	return Do(ctx, w.fault(Call{Op: OpCommit, Change: &c}), func() ([]settle.Record, error) { return w.store.Commit(ctx, c) })
}

// Claim implements settle.Store.
func (w *wrapped) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	return Do(ctx, w.fault(Call{Op: OpClaim}), func() ([]settle.Record, error) { return w.store.Claim(ctx, c) })
}

// Renew implements settle.Store.
func (w *wrapped) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	return Do(ctx, w.fault(Call{Op: OpRenew}), func() ([]error, error) { return w.store.Renew(ctx, held, lease) })
}

// List implements settle.Store.
func (w *wrapped) List(ctx context.Context, q settle.Query) ([]settle.Record, error) {
	return Do(ctx, w.fault(Call{Op: OpList}), func() ([]settle.Record, error) { return w.store.List(ctx, q) })
}

// History implements settle.Store.
func (w *wrapped) History(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
	return Do(ctx, w.fault(Call{Op: OpHistory}), func() ([]settle.Entry, error) { return w.store.History(ctx, id, after, limit) })
}
