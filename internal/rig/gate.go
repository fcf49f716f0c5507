package rig

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// ErrDown is what a store that cannot be reached says.
var ErrDown = errors.New("rig: the store cannot be reached")

// Gate is one process's way to the store. While it is stalled calls wait, whatever
// their context says, and go through when it is over, as packets do that were
// held up; replies can be stalled alone.
type Gate struct {
	store settle.Store

	mu      sync.Mutex
	dead    bool
	down    bool
	calls   chan struct{} // not nil: calls wait until it is closed
	replies chan struct{}
	commit  func(settle.Change) error
}

// Cut makes every call fail without reaching the store, until Mend.
func (g *Gate) Cut() { g.set(func() { g.down = true }) }

// Mend ends Cut.
func (g *Gate) Mend() { g.set(func() { g.down = false }) }

// Stall holds up calls on their way to the store until the returned function is called.
func (g *Gate) Stall() (resume func()) {
	c := make(chan struct{})
	g.set(func() { g.calls = c })
	return sync.OnceFunc(func() {
		g.set(func() { g.calls = nil })
		close(c)
	})
}

// StallReplies lets calls through and holds up what the store says.
func (g *Gate) StallReplies() (resume func()) {
	c := make(chan struct{})
	g.set(func() { g.replies = c })
	return sync.OnceFunc(func() {
		g.set(func() { g.replies = nil })
		close(c)
	})
}

// BeforeCommit runs f before each change reaches the store, outside of every lock; an error
// keeps it from getting there.
func (g *Gate) BeforeCommit(f func(settle.Change) error) { g.set(func() { g.commit = f }) }

func (g *Gate) kill() { g.set(func() { g.dead = true }) }

func (g *Gate) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

func (g *Gate) enter(ctx context.Context) (context.Context, error) {
	g.mu.Lock()
	calls := g.calls
	g.mu.Unlock()
	if calls != nil {
		<-calls
		ctx = context.WithoutCancel(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead || g.down {
		return ctx, ErrDown
	}
	return ctx, nil
}

func (g *Gate) leave() error {
	g.mu.Lock()
	replies := g.replies
	g.mu.Unlock()
	if replies != nil {
		<-replies
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return ErrDown
	}
	return nil
}

func through[T any](ctx context.Context, g *Gate, f func(context.Context) (T, error)) (T, error) {
	var none T
	ctx, err := g.enter(ctx)
	if err != nil {
		return none, err
	}
	v, err := f(ctx)
	if e := g.leave(); e != nil {
		return none, e
	}
	return v, err
}

// Get implements settle.Store.
func (g *Gate) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	return through(ctx, g, func(ctx context.Context) (settle.Record, error) { return g.store.Get(ctx, by) })
}

// Commit implements settle.Store.
func (g *Gate) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	return through(ctx, g, func(ctx context.Context) ([]settle.Record, error) {
		g.mu.Lock()
		before := g.commit
		g.mu.Unlock()
		if before != nil {
			if err := before(c); err != nil {
				return nil, err
			}
		}
		return g.store.Commit(ctx, c)
	})
}

// Claim implements settle.Store.
func (g *Gate) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	return through(ctx, g, func(ctx context.Context) ([]settle.Record, error) { return g.store.Claim(ctx, c) })
}

// Renew implements settle.Store.
func (g *Gate) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	return through(ctx, g, func(ctx context.Context) ([]error, error) { return g.store.Renew(ctx, held, lease) })
}

// List implements settle.Store.
func (g *Gate) List(ctx context.Context, q settle.Query) ([]settle.Record, error) {
	return through(ctx, g, func(ctx context.Context) ([]settle.Record, error) { return g.store.List(ctx, q) })
}

// History implements settle.Store.
func (g *Gate) History(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
	return through(ctx, g, func(ctx context.Context) ([]settle.Entry, error) { return g.store.History(ctx, id, after, limit) })
}

// Tally implements settle.Tallier, where the store does.
func (g *Gate) Tally(ctx context.Context, overdue time.Duration) ([]settle.Tally, error) {
	t, ok := g.store.(settle.Tallier)
	if !ok {
		return nil, ErrDown
	}
	return through(ctx, g, func(ctx context.Context) ([]settle.Tally, error) { return t.Tally(ctx, overdue) })
}

// line is one process's way to the provider. When the process is dead nothing leaves it,
// and nothing comes back.
type line struct {
	api  providertest.API
	once sync.Once
	dead chan struct{}
}

func (l *line) kill() { l.once.Do(func() { close(l.dead) }) }

func call[T any](ctx context.Context, l *line, f func(context.Context) (T, error)) (T, error) {
	var none T
	select {
	case <-l.dead:
		<-ctx.Done()
		return none, ctx.Err()
	default:
	}
	v, err := f(ctx)
	select {
	case <-l.dead:
		<-ctx.Done()
		return none, ctx.Err()
	default:
		return v, err
	}
}

// Create implements providertest.API.
func (l *line) Create(ctx context.Context, r providertest.Request) (providertest.Object, error) {
	return call(ctx, l, func(ctx context.Context) (providertest.Object, error) { return l.api.Create(ctx, r) })
}

// Get implements providertest.API.
func (l *line) Get(ctx context.Context, id string) (providertest.Object, error) {
	return call(ctx, l, func(ctx context.Context) (providertest.Object, error) { return l.api.Get(ctx, id) })
}

// List implements providertest.API.
func (l *line) List(ctx context.Context, q providertest.Query) (providertest.Page, error) {
	return call(ctx, l, func(ctx context.Context) (providertest.Page, error) { return l.api.List(ctx, q) })
}

// Version implements settle.Versioner, where the store does.
func (g *Gate) Version(ctx context.Context, id string) (settle.Record, error) {
	v, ok := g.store.(settle.Versioner)
	if !ok {
		return settle.Record{}, ErrDown
	}
	return through(ctx, g, func(ctx context.Context) (settle.Record, error) { return v.Version(ctx, id) })
}
