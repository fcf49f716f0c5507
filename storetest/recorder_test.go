package storetest

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// world is one store as a harness would open it.
type world struct {
	store  settle.Store
	reopen func() settle.Store
	begin  func() (tx settle.Tx, commit, rollback func() error)
}

// worldOf puts around around a store in memory and its second handle.
func worldOf(m *memstore.Store, around func(settle.Store) settle.Store) world {
	return world{
		store:  around(m),
		reopen: func() settle.Store { return around(m) },
		begin:  func() (settle.Tx, func() error, func() error) { return begin(m) },
	}
}

// begin opens a transaction of a store that only offers a callback for one.
func begin(m *memstore.Store) (tx settle.Tx, commit, rollback func() error) {
	open, end, done := make(chan settle.Tx), make(chan error), make(chan error)
	go func() {
		done <- m.InTx(context.Background(), func(tx settle.Tx) error {
			open <- tx
			return <-end
		})
	}()
	return <-open, func() error { end <- nil; return <-done }, func() error {
		end <- errLost
		if err := <-done; err != errLost { //nolint:errorlint // exactly that error comes back
			return err
		}
		return nil
	}
}

// recorder is a tester that keeps what a case says instead of failing a test.
type recorder struct {
	ctx  context.Context
	mu   sync.Mutex
	said []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// verdict is how a case ended on a store.
type verdict struct {
	said  []string // what it found wrong
	panic string
	late  bool // its time ran out
}

func (v verdict) failed() bool { return len(v.said) > 0 || v.panic != "" || v.late }

// ample bounds a case on a store in memory; none needs a hundredth of it.
const ample = 20 * time.Second

// judge runs a case on a new store.
func judge(ctx context.Context, c testCase, w world) verdict { return judgeWithin(ctx, ample, c, w) }

func judgeWithin(ctx context.Context, limit time.Duration, c testCase, w world) (v verdict) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r := &recorder{ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				v.panic = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		c.check(r, &env{store: w.store, reopen: w.reopen, begin: w.begin})
	}()
	<-done
	v.said, v.late = r.said, ctx.Err() != nil
	return v
}

// caseOf finds a case by its id.
func caseOf(t *testing.T, id string) testCase {
	t.Helper()
	for _, c := range allCases() {
		if c.id() == id {
			return c
		}
	}
	t.Fatalf("no case %s", id)
	return testCase{}
}

// TestFailuresPrintTheClause: the first failure of a case says what it is about, the
// others name it.
func TestFailuresPrintTheClause(t *testing.T) {
	for _, c := range allCases() {
		c.run = func(t tester, _ *env) {
			t.Errorf("the version is %d", 1)
			t.Fatalf("and so on")
		}
		v := judge(t.Context(), c, world{})
		if len(v.said) != 2 {
			t.Fatalf("%s said %d things, want 2", c.id(), len(v.said))
		}
		for _, want := range []string{c.id() + ": the version is 1", "clause " + c.clause + ": " + clauses[c.clause], c.proves} {
			if !strings.Contains(v.said[0], want) {
				t.Errorf("%s: the failure does not say %q:\n%s", c.id(), want, v.said[0])
			}
		}
		if v.said[1] != c.id()+": and so on" {
			t.Errorf("%s: the second failure is %q", c.id(), v.said[1])
		}
	}
}

// TestPanicsAndTimeoutsAreSeen: judge takes neither for a failure that a case found.
func TestPanicsAndTimeoutsAreSeen(t *testing.T) {
	c := testCase{clause: "S1", name: "x", run: func(tester, *env) { panic("broken") }}
	if v := judge(t.Context(), c, world{}); !strings.Contains(v.panic, "broken") || len(v.said) > 0 {
		t.Errorf("a panic was judged %+v", v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.run = func(t tester, _ *env) { cancel(); <-t.Context().Done() }
	if v := judge(ctx, c, world{}); !v.late {
		t.Errorf("a case whose time ran out was judged %+v", v)
	}
}
