package storetest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// bent is a store in memory of which some methods were replaced; nil is the store's own.
// What replaces one calls the embedded store, which is sound.
type bent struct {
	*memstore.Store
	get     func(ctx context.Context, by settle.Index) (settle.Record, error)
	commit  func(ctx context.Context, c settle.Change) ([]settle.Record, error)
	claim   func(ctx context.Context, c settle.Claim) ([]settle.Record, error)
	renew   func(ctx context.Context, id, token string, lease time.Duration) error // one claim of a renewal
	batch   func(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error)
	list    func(ctx context.Context, q settle.Query) ([]settle.Record, error)
	history func(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error)
	version func(ctx context.Context, id string) (settle.Record, error)

	mu   sync.Mutex // for what a mutant remembers
	seen map[string]struct{}
}

// sound is a bent store with nothing bent yet: each method is one to build on.
func sound(m *memstore.Store) *bent {
	b := &bent{Store: m, seen: map[string]struct{}{}, get: m.Get, commit: m.Commit, claim: m.Claim, list: m.List, history: m.History, version: m.Version}
	b.renew = func(ctx context.Context, id, token string, lease time.Duration) error {
		return renew(ctx, m, id, token, lease)
	}
	b.batch = func(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
		out := make([]error, len(held))
		for i, h := range held {
			out[i] = b.renew(ctx, h.ID, h.Token, lease)
			if out[i] != nil && !errors.Is(out[i], settle.ErrClaimLost) {
				return nil, out[i]
			}
		}
		return out, nil
	}
	return b
}

func (b *bent) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	return b.get(ctx, by)
}

func (b *bent) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	return b.commit(ctx, c)
}

func (b *bent) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	return b.claim(ctx, c)
}

func (b *bent) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	return b.batch(ctx, held, lease)
}

func (b *bent) List(ctx context.Context, q settle.Query) ([]settle.Record, error) {
	return b.list(ctx, q)
}

func (b *bent) History(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
	return b.history(ctx, id, after, limit)
}

func (b *bent) Version(ctx context.Context, id string) (settle.Record, error) {
	return b.version(ctx, id)
}

// stored is the record as it is.
func (b *bent) stored(id string) (settle.Record, bool) {
	r, err := b.Store.Get(context.Background(), settle.ByID(id))
	return r, err == nil
}

// everything is all records as they are.
func (b *bent) everything() []settle.Record {
	rs, _ := b.Store.List(context.Background(), settle.Query{Limit: 1 << 20})
	return rs
}

// remember makes f's accesses to what a mutant remembers safe.
func (b *bent) remember(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// commits replaces Commit.
func commits(f func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error)) func(*bent) {
	return func(b *bent) {
		b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) { return f(b, ctx, c) }
	}
}

// writes spoils each write on its way in.
func writes(f func(b *bent, w *settle.Write)) func(*bent) {
	return func(b *bent) {
		next := b.commit
		b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
			c.Writes = slices.Clone(c.Writes)
			for i := range c.Writes {
				f(b, &c.Writes[i])
			}
			return next(ctx, c)
		}
	}
}

// records spoils each record on its way out.
func records(f func(b *bent, r *settle.Record)) func(*bent) {
	return func(b *bent) {
		get, commit, claim, list := b.get, b.commit, b.claim, b.list
		all := func(rs []settle.Record, err error) ([]settle.Record, error) {
			for i := range rs {
				f(b, &rs[i])
			}
			var c *settle.ConflictError
			if errors.As(err, &c) {
				f(b, &c.Existing)
			}
			return rs, err
		}
		b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) {
			r, err := get(ctx, by)
			if err == nil {
				f(b, &r)
			}
			return r, err
		}
		b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) { return all(commit(ctx, c)) }
		b.claim = func(ctx context.Context, c settle.Claim) ([]settle.Record, error) { return all(claim(ctx, c)) }
		b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) { return all(list(ctx, q)) }
	}
}

// answers spoils what Commit answers.
func answers(f func(b *bent, c settle.Change, rs []settle.Record, err error) ([]settle.Record, error)) func(*bent) {
	return func(b *bent) {
		next := b.commit
		b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
			rs, err := next(ctx, c)
			return f(b, c, rs, err)
		}
	}
}

// handed spoils what Claim answers.
func handed(f func(b *bent, c settle.Claim, rs []settle.Record) []settle.Record) func(*bent) {
	return func(b *bent) {
		next := b.claim
		b.claim = func(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
			rs, err := next(ctx, c)
			return f(b, c, rs), err
		}
	}
}

// entries spoils histories: f gets all entries of an operation, in order.
func entries(f func(b *bent, id string, all []settle.Entry) []settle.Entry) func(*bent) {
	return func(b *bent) {
		b.history = func(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
			all, err := b.Store.History(ctx, id, 0, 1<<20)
			if err != nil {
				return nil, err
			}
			var out []settle.Entry
			for _, x := range f(b, id, all) {
				if x.Seq > after && len(out) < limit {
					out = append(out, x)
				}
			}
			return out, nil
		}
	}
}

// both bends twice.
func both(f, g func(*bent)) func(*bent) { return func(b *bent) { f(b); g(b) } }

// await lets others run until they did what ready tells, or long enough.
func await(ready func() bool) {
	for n := 0; n < 1000 && !ready(); n++ {
		runtime.Gosched()
	}
}

// oneByOne makes each write of c a step of its own, under the same id.
func oneByOne(ctx context.Context, b *bent, c settle.Change, between func()) ([]settle.Record, error) {
	var out []settle.Record
	for i := range c.Writes {
		if i > 0 && between != nil {
			between()
		}
		one := settle.Change{ID: c.ID, Writes: c.Writes[i : i+1]}
		if i == len(c.Writes)-1 {
			one.Hook = c.Hook
		}
		rs, err := b.Store.Commit(ctx, one)
		if err != nil {
			return nil, err
		}
		out = append(out, rs...)
	}
	return out, nil
}
