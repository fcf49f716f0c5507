package memstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(testing.TB) settle.Store { return New(nil) },
		// Memory has one handle; what survives a process is not shown by this.
		Reopen: func(_ testing.TB, s settle.Store) settle.Store { return s },
		Begin:  begin,
	})
}

type coarse struct{}

func (coarse) Now() time.Time { return time.Now().Truncate(15 * time.Millisecond) }

// TestConformanceOnACoarseClock shows that the suite does not need a clock that
// tells two calls apart.
func TestConformanceOnACoarseClock(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: every case that waits for the clock waits longer")
	}
	storetest.Run(t, storetest.Harness{
		Open: func(testing.TB) settle.Store { return New(&Options{Clock: coarse{}}) },
	})
}

func begin(t testing.TB, s settle.Store) (settle.Tx, func() error, func() error) {
	m := s.(*Store)
	if err := m.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	x := m.begin()
	m.mu.Unlock()
	end := func(good bool) func() error {
		return func() error {
			x.end(good)
			return nil
		}
	}
	return x, end(true), end(false)
}

func record(n int) settle.Record {
	return settle.Record{
		ID: fmt.Sprintf("%08d", n), Scope: "s", Kind: "k", Key: fmt.Sprint(n), Subject: fmt.Sprint(n), Purpose: "p",
		State: settle.StateCreated, Request: settle.Payload("{}"),
	}
}

func step(id string, hook func(context.Context, settle.Tx) error, ws ...settle.Write) settle.Change {
	return settle.Change{ID: id, Writes: ws, Hook: hook}
}

func create(n int) settle.Write { return settle.Write{Record: record(n), DueIn: settle.Never} }

func missing(t *testing.T, s settle.Store, n int) {
	t.Helper()
	for _, by := range new(record(n)).Names() {
		if _, err := s.Get(t.Context(), by); !errors.Is(err, settle.ErrNotFound) {
			t.Errorf("Get by %s: got error %v, want ErrNotFound", by.Name, err)
		}
	}
}

// TestMalformed: what the core never sends is an error and writes nothing.
func TestMalformed(t *testing.T) {
	s := New(nil)
	long := strings.Repeat("x", maxIdentity+1)
	with := func(edit func(w *settle.Write)) settle.Change {
		w := create(1)
		edit(&w)
		return step("c", nil, w)
	}
	for name, c := range map[string]settle.Change{
		"Change.ID":       step("", nil, create(1)),
		"Change.Writes":   step("c", nil),
		"Record.ID":       with(func(w *settle.Write) { w.Record.ID = "" }),
		"Record.Scope":    with(func(w *settle.Write) { w.Record.Scope = long }),
		"Record.Kind":     with(func(w *settle.Write) { w.Record.Kind = long }),
		"Record.Key":      with(func(w *settle.Write) { w.Record.Key = long }),
		"Record.Subject":  with(func(w *settle.Write) { w.Record.Subject = long }),
		"Record.Purpose":  with(func(w *settle.Write) { w.Record.Purpose = long }),
		"Record.Hold":     with(func(w *settle.Write) { w.Record.Hold = long }),
		"Write.IfVersion": with(func(w *settle.Write) { w.IfVersion = -1 }),
		"Write.IfToken":   with(func(w *settle.Write) { w.IfToken = "t" }),
		"Write.DueIn":     with(func(w *settle.Write) { w.DueIn = -3 }),
	} {
		_, err := s.Commit(t.Context(), c)
		var e *settle.Error
		if !errors.As(err, &e) || !errors.Is(err, settle.ErrInvalid) || len(e.Fields) != 1 || e.Fields[0] != name {
			t.Errorf("%s: got error %v, want ErrInvalid naming it", name, err)
		}
	}
	missing(t, s, 1)
	if _, err := s.Claim(t.Context(), settle.Claim{Kinds: []string{"k"}, Lease: time.Second, Limit: 1}); !errors.Is(err, settle.ErrInvalid) {
		t.Errorf("Claim without a token: got error %v, want ErrInvalid", err)
	}
	if err := renew(t.Context(), s, "x", "t", 0); !errors.Is(err, settle.ErrInvalid) {
		t.Errorf("Renew for no time: got error %v, want ErrInvalid", err)
	}
	u := create(1)
	u.IfVersion = 1
	if _, err := s.Commit(t.Context(), step("c", nil, u)); !errors.Is(err, settle.ErrNotFound) {
		t.Errorf("update of nothing: got error %v, want ErrNotFound", err)
	}
}

// TestHookPanics: a panic in the hook undoes the change, does not leak its
// value, and leaves the store usable (S27, I16).
func TestHookPanics(t *testing.T) {
	s := New(nil)
	for _, p := range []any{errors.New("secret"), "secret", struct{ s string }{"secret"}} {
		_, err := s.Commit(t.Context(), step("c", func(ctx context.Context, tx settle.Tx) error {
			if _, err := tx.Commit(ctx, step("d", nil, create(2))); err != nil {
				return err
			}
			panic(p)
		}, create(1)))
		var h *settle.HookError
		if !errors.As(err, &h) || strings.Contains(h.Err.Error(), "secret") || !strings.Contains(h.Err.Error(), fmt.Sprintf("%T", p)) {
			t.Errorf("got error %v (%v), want a *HookError that names the type only", err, errors.Unwrap(err))
		}
		missing(t, s, 1)
		missing(t, s, 2)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Commit(t.Context(), step("c", func(context.Context, settle.Tx) error {
			runtime.Goexit()
			return nil
		}, create(1)))
	}()
	<-done
	missing(t, s, 1)
	if _, err := s.Commit(t.Context(), step("c", nil, create(1))); err != nil {
		t.Errorf("the same change without the hook: %v", err)
	}
}

// TestTxEnds: a Tx is no way around the lock once its transaction is over.
func TestTxEnds(t *testing.T) {
	s := New(nil)
	var kept settle.Tx
	if _, err := s.Commit(t.Context(), step("c", func(_ context.Context, tx settle.Tx) error {
		kept = tx
		return nil
	}, create(1))); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Get(t.Context(), settle.ByID(record(1).ID)); err == nil {
		t.Error("Get through an ended Tx succeeded")
	}
	if _, err := kept.Commit(t.Context(), step("d", nil, create(2))); err == nil {
		t.Error("Commit through an ended Tx succeeded")
	}
	missing(t, s, 2)
}

// TestTxRefusal: a change that is refused inside a transaction leaves nothing of
// itself, and the rest commits.
func TestTxRefusal(t *testing.T) {
	s := New(nil)
	err := s.InTx(t.Context(), func(tx settle.Tx) error {
		if _, err := tx.Commit(t.Context(), step("c", nil, create(1))); err != nil {
			return err
		}
		if _, err := tx.Commit(t.Context(), step("d", nil, create(2), create(1))); !errors.Is(err, settle.ErrConflict) {
			t.Errorf("got error %v, want a conflict", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), settle.ByID(record(1).ID)); err != nil {
		t.Errorf("what was written before the refusal: %v", err)
	}
	missing(t, s, 2)
	if err := s.InTx(t.Context(), func(tx settle.Tx) error {
		_, _ = tx.Commit(t.Context(), step("e", nil, create(3)))
		return context.Canceled
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want that of the function", err)
	}
	missing(t, s, 3)
}

// TestWaitingForAHook: callers wait for a hook no longer than their context
// (S5) and no longer than a lock may be waited for, also in a synctest bubble,
// where a hook that sleeps takes no time.
func TestWaitingForAHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		go func() {
			_, _ = s.Commit(t.Context(), step("c", func(context.Context, settle.Tx) error {
				time.Sleep(time.Minute)
				return nil
			}, create(1)))
		}()
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Get(ctx, settle.ByID(record(1).ID)); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("got error %v after %v, want the context's after a second", err, time.Since(start))
		}
		if _, err := s.Get(t.Context(), settle.ByID(record(1).ID)); !errors.Is(err, settle.ErrUncommitted) || time.Since(start) != time.Second+lockWait {
			t.Errorf("got error %v after %v, want ErrUncommitted after a second and %v", err, time.Since(start), lockWait)
		}
		time.Sleep(time.Minute - lockWait - 2*time.Second)
		if _, err := s.Get(t.Context(), settle.ByID(record(1).ID)); err != nil || time.Since(start) != time.Minute {
			t.Errorf("got error %v after %v, want the record after a minute", err, time.Since(start))
		}
	})
}

type frozen struct{ t time.Time }

func (f *frozen) Now() time.Time { return f.t }

// TestClock: the given clock alone decides, in whole microseconds; leases end at
// their end, not after it.
func TestClock(t *testing.T) {
	c := &frozen{time.Date(2026, 1, 1, 0, 0, 0, 1999, time.FixedZone("x", 3600))}
	s := New(&Options{Clock: c})
	w := create(1)
	w.DueIn = 0
	rs, err := s.Commit(t.Context(), step("c", nil, w))
	if err != nil {
		t.Fatal(err)
	}
	want := time.Date(2025, 12, 31, 23, 0, 0, 1000, time.UTC)
	if rs[0].AsOf != want || rs[0].Due != want {
		t.Errorf("AsOf is %v and Due %v, want %v", rs[0].AsOf, rs[0].Due, want)
	}
	claim := settle.Claim{Kinds: []string{"k"}, Token: "t", Lease: time.Minute, Limit: 1}
	if rs, err = s.Claim(t.Context(), claim); err != nil || len(rs) != 1 {
		t.Fatalf("Claim returned %d records and error %v", len(rs), err)
	}
	c.t = c.t.Add(time.Minute - time.Microsecond)
	if err := renew(t.Context(), s, rs[0].ID, "t", time.Minute); err != nil {
		t.Errorf("Renew in the last microsecond of the lease: %v", err)
	}
	c.t = c.t.Add(time.Minute)
	if err := renew(t.Context(), s, rs[0].ID, "t", time.Minute); !errors.Is(err, settle.ErrClaimLost) {
		t.Errorf("Renew at the end of the lease: got error %v, want ErrClaimLost", err)
	}
	if rs, err = s.Claim(t.Context(), claim); err != nil || len(rs) != 1 {
		t.Errorf("Claim at the end of the lease returned %d records and error %v, want 1", len(rs), err)
	}
}

// TestSettledRowsCostNothing: the queues hold what has a Due and nothing else,
// however often it moved.
func TestSettledRowsCostNothing(t *testing.T) {
	s := New(nil)
	for i := range 100 {
		w := create(i)
		w.DueIn = time.Hour
		for v := range 5 {
			w.IfVersion = int64(v)
			if v == 4 && i%10 != 0 {
				w.DueIn = settle.Never
			}
			if _, err := s.Commit(t.Context(), step(fmt.Sprint(i, v), nil, w)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(*s.due["k"]); n != 10 {
		t.Errorf("the queue holds %d rows, want the 10 that have a Due", n)
	}
	if len(s.undo) != 0 {
		t.Errorf("%d changes are kept for an undo", len(s.undo))
	}
}

// renew renews one claim.
func renew(ctx context.Context, s settle.Store, id, token string, lease time.Duration) error {
	said, err := s.Renew(ctx, []settle.Held{{ID: id, Token: token}}, lease)
	if err != nil {
		return err
	}
	return said[0]
}
