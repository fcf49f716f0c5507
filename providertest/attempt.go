package providertest

import (
	"context"
	"regexp"
	"runtime/debug"
	"sync"
	"time"

	"github.com/settle-go/settle"
)

// submit makes one attempt.
func (e *env) submit(t tester, w *world, c call) result {
	t.Helper()
	return e.await(t, "Submit", e.start(t.Context(), w, func(ctx context.Context) (settle.Observation[struct{}], error) {
		return w.submit(ctx, c)
	}))
}

// lookup asks once.
func (e *env) lookup(t tester, w *world, c call) result {
	t.Helper()
	return e.await(t, "Lookup", e.start(t.Context(), w, func(ctx context.Context) (settle.Observation[struct{}], error) {
		return w.lookup(ctx, c)
	}))
}

// executed submits and needs to see the effect.
func (e *env) executed(t tester, w *world, c call) result {
	t.Helper()
	r := e.submit(t, w, c)
	if !r.seen() {
		t.Fatalf("sample request %d, served without a fault, ended with %s; want Applied (or Underway)", c.n, r)
	}
	if n := w.local.Effects(c.id); n != 1 {
		t.Fatalf("after one request that was served without a fault Local.Effects(Call.ID) is %d, want 1: "+
			"the own reference does not reach the provider, or the harness does not count by it", n)
	}
	return r
}

// start makes a call of the adapter in a goroutine of its own.
func (e *env) start(ctx context.Context, w *world, f func(context.Context) (settle.Observation[struct{}], error)) <-chan result {
	mark := w.mark()
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if v := recover(); v != nil {
				r.panicked = string(debug.Stack())
				r.err = nil
			}
			r.creates, r.asks = w.sent(mark)
			done <- r
		}()
		r.obs, r.err = f(ctx)
		r.fact = r.obs.Fact
	}()
	return done
}

// machineWord is what Observation.Code may be.
var machineWord = regexp.MustCompile(`^[A-Za-z0-9_.:-]{0,64}$`)

// await waits for a call, and checks what holds for every one.
func (e *env) await(t tester, what string, done <-chan result) result {
	t.Helper()
	timer := time.NewTimer(e.patience)
	defer timer.Stop()
	select {
	case r := <-done:
		if r.panicked != nil {
			t.Fatalf("%s panicked (rule: %s)\n%v", what, rules["panics"], r.panicked)
		}
		if r.err == nil && !machineWord.MatchString(r.obs.Code) {
			t.Errorf("%s reports the code %q, which is no machine word of at most 64 characters from A-Za-z0-9_.:-", what, r.obs.Code)
		}
		return r
	case <-timer.C:
		t.Fatalf("%s does not return", what)
		return result{}
	}
}

// cue is a context that ends when it is told to, as if by its deadline.
type cue struct {
	done chan struct{}
	mu   sync.Mutex
	err  error
}

func newCue() *cue { return &cue{done: make(chan struct{})} }

func (c *cue) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

// Deadline is far away: the test decides.
func (c *cue) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

// Done implements context.Context.
func (c *cue) Done() <-chan struct{} { return c.done }

// Value implements context.Context.
func (c *cue) Value(any) any { return nil }

// Err implements context.Context.
func (c *cue) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// signal waits for something to happen in the proxy or the adapter to return early.
func (e *env) signal(t tester, what string, happened <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(e.patience)
	defer timer.Stop()
	select {
	case <-happened:
	case <-timer.C:
		t.Fatalf("waiting in vain for: %s", what)
	}
}
