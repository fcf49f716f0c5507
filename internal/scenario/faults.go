package scenario

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// The calls that a process makes to the outside.
const (
	OpGet     = "store.Get"
	OpCommit  = "store.Commit"
	OpClaim   = "store.Claim"
	OpRenew   = "store.Renew"
	OpList    = "store.List"
	OpHistory = "store.History"
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

// through makes one call as the plan says.
func through[T any](ctx context.Context, f *faults, c Call, do func() (T, error)) (T, error) {
	var none T
	x, alive := f.next(&c)
	if !alive {
		return none, errGone
	}
	stop := func() (T, error) {
		f.kill()
		if x.Panic {
			panic("scenario: the process dies here")
		}
		return none, errGone
	}
	if err := pause(ctx, x.Delay); err != nil {
		return none, err
	}
	switch {
	case x.Kill && x.After == nil:
		return stop()
	case x.Before != nil:
		return none, x.Before
	}
	out, err := do()
	if x.Twice {
		out, err = do()
	}
	if x.Then != nil {
		x.Then()
	}
	if perr := pause(ctx, x.DelayReply); perr != nil {
		return none, perr
	}
	switch {
	case x.Kill:
		return stop()
	case x.After != nil:
		return none, x.After
	case f.gone():
		return none, errGone // killed from outside while the call was under way
	}
	return out, err
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

// store is a settle.Store seen from one process.
type store struct {
	inner settle.Store
	f     *faults
	lab   *Lab
}

func (s *store) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	return through(ctx, s.f, Call{Op: OpGet}, func() (settle.Record, error) { return s.inner.Get(ctx, by) })
}

func (s *store) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	return through(ctx, s.f, Call{Op: OpCommit, Change: &c}, func() ([]settle.Record, error) {
		recs, err := s.inner.Commit(ctx, c)
		if err == nil {
			s.f.mu.Lock()
			defer s.f.mu.Unlock()
			s.f.done = append(s.f.done, c)
		}
		return recs, err
	})
}

func (s *store) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	return through(ctx, s.f, Call{Op: OpClaim}, func() ([]settle.Record, error) {
		recs, err := s.inner.Claim(ctx, c)
		s.lab.noteClaims(recs)
		return recs, err
	})
}

func (s *store) Renew(ctx context.Context, id, token string, lease time.Duration) error {
	_, err := through(ctx, s.f, Call{Op: OpRenew}, func() (struct{}, error) {
		return struct{}{}, s.inner.Renew(ctx, id, token, lease)
	})
	return err
}

func (s *store) List(ctx context.Context, q settle.Query) ([]settle.Record, error) {
	return through(ctx, s.f, Call{Op: OpList}, func() ([]settle.Record, error) { return s.inner.List(ctx, q) })
}

func (s *store) History(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
	return through(ctx, s.f, Call{Op: OpHistory}, func() ([]settle.Entry, error) { return s.inner.History(ctx, id, after, limit) })
}

// LocalReads passes on what the store says about its reads.
func (s *store) LocalReads() bool {
	l, ok := s.inner.(interface{ LocalReads() bool })
	return ok && l.LocalReads()
}

// api is the provider seen from one process.
type api struct {
	inner providertest.API
	f     *faults
}

func (a *api) Create(ctx context.Context, r providertest.Request) (providertest.Object, error) {
	return through(ctx, a.f, Call{Op: OpCreate, Create: &r}, func() (providertest.Object, error) { return a.inner.Create(ctx, r) })
}

func (a *api) Get(ctx context.Context, id string) (providertest.Object, error) {
	return through(ctx, a.f, Call{Op: OpRead}, func() (providertest.Object, error) { return a.inner.Get(ctx, id) })
}

func (a *api) List(ctx context.Context, q providertest.Query) (providertest.Page, error) {
	return through(ctx, a.f, Call{Op: OpFind}, func() (providertest.Page, error) { return a.inner.List(ctx, q) })
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
