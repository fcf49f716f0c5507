package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// calls makes one call of each method, by name.
func calls(ctx context.Context, s settle.Store, e *env) map[Op]func() error {
	return map[Op]func() error{
		OpGet:     func() error { _, err := s.Get(ctx, settle.ByID(e.uuid())); return err },
		OpCommit:  func() error { _, err := s.Commit(ctx, e.change(create(e.record()))); return err },
		OpClaim:   func() error { _, err := s.Claim(ctx, settle.Claim{Token: e.uuid(), Lease: 1e9, Limit: 1}); return err },
		OpRenew:   func() error { return renew(ctx, s, e.uuid(), e.uuid(), time.Hour) },
		OpList:    func() error { _, err := s.List(ctx, settle.Query{}); return err },
		OpHistory: func() error { _, err := s.History(ctx, e.uuid(), 0, 1); return err },
	}
}

// counted is a store that counts the calls that reach it.
func counted() (settle.Store, map[Op]int) {
	n := map[Op]int{}
	return Wrap(memstore.New(nil), func(c Call) Fault { n[c.Op]++; return Fault{} }), n
}

// TestWrapBefore, and the tests after it: each fault, at every method.
func TestWrapBefore(t *testing.T) {
	for _, op := range Ops() {
		s, n := counted()
		err := calls(t.Context(), Wrap(s, Always(op, Fault{Before: Fail(errLost)})), &env{})[op]()
		if !errors.Is(err, errLost) || n[op] != 0 {
			t.Errorf("%s: got error %v after %d calls of the store, want the fault's after none", op, err, n[op])
		}
	}
}

func TestWrapAfter(t *testing.T) {
	for _, op := range Ops() {
		s, n := counted()
		err := calls(t.Context(), Wrap(s, Always(op, Fault{After: Fail(errLost)})), &env{})[op]()
		if !errors.Is(err, errLost) || n[op] != 1 {
			t.Errorf("%s: got error %v after %d calls of the store, want the fault's after 1", op, err, n[op])
		}
	}
}

func TestWrapTwice(t *testing.T) {
	for _, op := range Ops() {
		s, n := counted()
		want := calls(t.Context(), memstore.New(nil), &env{})[op]()
		err := calls(t.Context(), Wrap(s, Always(op, Fault{Twice: true})), &env{})[op]()
		if !errors.Is(err, want) || n[op] != 2 {
			t.Errorf("%s: got error %v after %d calls of the store, want %v after 2", op, err, n[op], want)
		}
	}
}

func TestWrapHang(t *testing.T) {
	for name, x := range map[string]Fault{"before": {Before: Hang}, "after": {After: Hang}} {
		for _, op := range Ops() {
			synctest.Test(t, func(t *testing.T) {
				s, n := counted()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				start := time.Now()
				err := calls(ctx, Wrap(s, Always(op, x)), &env{})[op]()
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour {
					t.Errorf("%s, %s: got error %v after %v, want the context's when it is done", op, name, err, time.Since(start))
				}
				if want := map[string]int{"before": 0, "after": 1}[name]; n[op] != want {
					t.Errorf("%s, %s: %d calls of the store, want %d", op, name, n[op], want)
				}
				// A context that is never done would hang its caller for good.
				if err := calls(context.WithoutCancel(ctx), Wrap(s, Always(op, x)), &env{})[op](); err == nil {
					t.Errorf("%s, %s: a hang under a context that is never done succeeded", op, name)
				}
			})
		}
	}
}

// TestWrapAsksThePlan: about every call, once, in order, with its change.
func TestWrapAsksThePlan(t *testing.T) {
	var asked []Op
	s := Wrap(memstore.New(nil), func(c Call) Fault {
		asked = append(asked, c.Op)
		if c.N != len(asked) || (c.Change != nil) != (c.Op == OpCommit) || c.Change != nil && len(c.Change.Writes) != 1 {
			t.Errorf("the plan was asked about call %d, %s, with change %v", c.N, c.Op, c.Change)
		}
		return Fault{}
	})
	e := &env{}
	for _, op := range Ops() {
		_ = calls(t.Context(), s, e)[op]()
	}
	if !slices.Equal(asked, Ops()) {
		t.Errorf("the plan was asked about %v, want %v", asked, Ops())
	}
}

func TestPlans(t *testing.T) {
	x, y := Fault{Twice: true}, Fault{Before: Fail(errLost)}
	plan := Plans(nothing, Nth(OpCommit, 2, x), Nth("", 3, y), Always(OpRenew, x))
	want := []string{"", "", "twice", "twice", "", "before"}
	// The third call is also the second commit: the earlier plan decides, the later one has counted.
	for i, op := range []Op{OpCommit, OpGet, OpCommit, OpRenew, OpCommit} {
		got := plan(Call{Op: op})
		if (want[i] == "twice") != got.Twice || got.Before != nil {
			t.Errorf("call %d, %s: got fault %+v, want %q", i+1, op, got, want[i])
		}
	}
	plan = Plans(Always("", y), Always("", x))
	if got := plan(Call{Op: OpList}); got.Twice || got.Before == nil {
		t.Errorf("of two plans the later one decided")
	}
}

func nothing(Call) Fault { return Fault{} }

// local is a store that says something of its own about its reads.
type local struct {
	settle.Store
	yes bool
}

func (l local) LocalReads() bool { return l.yes }

// TestWrapLocal: a wrapper says what its store says, and can be made to say nothing.
func TestWrapLocal(t *testing.T) {
	m := memstore.New(nil)
	for _, x := range []struct {
		name  string
		store settle.Store
		want  bool
	}{
		{"local", m, true},
		{"local twice wrapped", Wrap(m, nothing), true},
		{"not any more", local{m, false}, false},
		{"says nothing", struct{ settle.Store }{m}, false},
	} {
		if got := Wrap(x.store, nil).(settle.Local).LocalReads(); got != x.want {
			t.Errorf("%s: LocalReads is %v, want %v", x.name, got, x.want)
		}
	}
}

// TestWrapKeepsTheHook: the hook of a wrapped commit gets the store's own Tx.
func TestWrapKeepsTheHook(t *testing.T) {
	e := &env{store: memstore.New(nil)}
	var bare, through settle.Tx
	hook := func(to *settle.Tx) settle.Change {
		return e.hooked(func(_ context.Context, tx settle.Tx) error { *to = tx; return nil }, create(e.record()))
	}
	for to, s := range map[*settle.Tx]settle.Store{&bare: e.store, &through: Wrap(e.store, nothing)} {
		if _, err := s.Commit(t.Context(), hook(to)); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := fmt.Sprintf("%T", bare), fmt.Sprintf("%T", through); a != b {
		t.Errorf("the hook of a wrapped store gets a %s, want %s", b, a)
	}
}
