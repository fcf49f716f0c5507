package scenario

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/storetest"
)

// The calls that a process makes to the outside.
const (
	OpGet     = "store." + string(storetest.OpGet)
	OpCommit  = "store." + string(storetest.OpCommit)
	OpClaim   = "store." + string(storetest.OpClaim)
	OpRenew   = "store." + string(storetest.OpRenew)
	OpList    = "store." + string(storetest.OpList)
	OpHistory = "store." + string(storetest.OpHistory)
	OpCreate  = "provider.Create"
	OpRead    = "provider.Get"
	OpFind    = "provider.List"
)

// Call is one call of one process, numbered from 1 over all of its calls.
type Call struct {
	N      int
	Op     string
	Change *settle.Change        // of a commit
	Create *providertest.Request // of a create request
}

// Fault is what befalls a call. The zero value is none.
type Fault struct {
	Before     error         // fails without having been made
	After      error         // made, and the answer is lost
	Twice      bool          // made twice, as by a driver's hidden retry
	Delay      time.Duration // before it is made
	DelayReply time.Duration // after it was made
	Then       func()        // after it was made, before the answer
	// Kill ends the process at this call: before it, or after it where After is set.
	// Its goroutines find that nothing outside answers any more.
	Kill bool
	// Panic with Kill: the call does not even return.
	Panic bool
}

// Plan chooses the fault of each call; nil is none. It must not make calls of the
// same process.
type Plan func(Call) Fault

var (
	errBroken = errors.New("scenario: connection broken")
	errGone   = errors.New("scenario: the process is gone")
)

// faults stands between one process and the outside.
type faults struct {
	mu   sync.Mutex
	plan Plan
	n    int
	dead bool
	hits int
	done []settle.Change // commits that were applied
}

func (f *faults) next(c *Call) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return Fault{}, false
	}
	f.n++
	c.N = f.n
	if f.plan == nil {
		return Fault{}, true
	}
	x := f.plan(*c)
	if x.Before != nil || x.After != nil || x.Kill || x.Twice || x.Delay > 0 || x.DelayReply > 0 || x.Then != nil {
		f.hits++
	}
	return x, true
}

func (f *faults) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
}

func (f *faults) gone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

func (f *faults) set(p Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = p
}

// fault is what the plan says about a call, and whether the process lives to make it.
func (f *faults) fault(c Call) storetest.Fault {
	x, alive := f.next(&c)
	if !alive {
		return storetest.Fault{Before: storetest.Fail(errGone)}
	}
	stop := func() error {
		f.kill()
		if x.Panic {
			panic("scenario: the process dies here")
		}
		return errGone
	}
	return storetest.Fault{
		Before: func(ctx context.Context) error {
			if err := pause(ctx, x.Delay); err != nil {
				return err
			}
			if x.Kill && x.After == nil {
				return stop()
			}
			return x.Before
		},
		Twice: x.Twice,
		After: func(ctx context.Context) error {
			if x.Then != nil {
				x.Then()
			}
			if err := pause(ctx, x.DelayReply); err != nil {
				return err
			}
			switch {
			case x.Kill:
				return stop()
			case f.gone():
				return errGone // killed from outside while the call was under way
			}
			return x.After
		},
	}
}

// pause waits on the bubble's clock.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// store is the lab's store seen from one process.
func (f *faults) store(l *Lab) settle.Store {
	return storetest.Wrap(&witness{Store: l.Store, f: f, lab: l}, func(c storetest.Call) storetest.Fault {
		return f.fault(Call{Op: "store." + string(c.Op), Change: c.Change})
	})
}

// witness notes what a store did for one process, also where the process does not
// learn of it.
type witness struct {
	settle.Store
	f   *faults
	lab *Lab
}

func (w *witness) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	recs, err := w.Store.Commit(ctx, c)
	if err == nil {
		w.f.mu.Lock()
		defer w.f.mu.Unlock()
		w.f.done = append(w.f.done, c)
	}
	return recs, err
}

func (w *witness) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	recs, err := w.Store.Claim(ctx, c)
	w.lab.noteClaims(recs)
	return recs, err
}

// LocalReads passes on what the store says about its reads.
func (w *witness) LocalReads() bool {
	l, ok := w.Store.(settle.Local)
	return ok && l.LocalReads()
}

// api is the provider seen from one process.
type api struct {
	inner providertest.API
	f     *faults
}

func (a *api) Create(ctx context.Context, r providertest.Request) (providertest.Object, error) {
	return storetest.Do(ctx, a.f.fault(Call{Op: OpCreate, Create: &r}), func() (providertest.Object, error) { return a.inner.Create(ctx, r) })
}

func (a *api) Get(ctx context.Context, id string) (providertest.Object, error) {
	return storetest.Do(ctx, a.f.fault(Call{Op: OpRead}), func() (providertest.Object, error) { return a.inner.Get(ctx, id) })
}

func (a *api) List(ctx context.Context, q providertest.Query) (providertest.Page, error) {
	return storetest.Do(ctx, a.f.fault(Call{Op: OpFind}), func() (providertest.Page, error) { return a.inner.List(ctx, q) })
}

// Nth is a plan with one fault, at the nth call of an operation ("": of any).
func Nth(op string, n int, x Fault) Plan {
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

// Always is a plan with the same fault at every call of an operation.
func Always(op string, x Fault) Plan {
	return func(c Call) Fault {
		if c.Op == op {
			return x
		}
		return Fault{}
	}
}

// deaf makes requests that do not end with their context, as an SDK that ignores it.
type deaf struct{ providertest.API }

func (d deaf) Create(ctx context.Context, r providertest.Request) (providertest.Object, error) {
	return d.API.Create(context.WithoutCancel(ctx), r)
}
