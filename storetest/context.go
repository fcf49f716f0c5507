package storetest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

func contextCases() []testCase {
	return []testCase{
		{clause: "S5", name: "done_before", proves: "a call whose context is done before it begins is an error and does nothing", run: doneBefore},
		{clause: "S5", name: "done_within", proves: "a call whose context ends while it runs is done whole or not at all", run: doneWithin},
		{clause: "S6", name: "read_back", proves: "after any error, the same change again tells what happened and makes it happen once", run: readBack},
	}
}

func doneBefore(t tester, e *env) {
	leased := e.claimed(t, time.Hour)
	ready := e.due(t, 0)
	e.untilDue(t, ready.ID)
	fresh := e.record()
	next := ready
	next.Code = "never"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hooked := e.change(update(next))
	hooked.Hook = func(context.Context, settle.Tx) error {
		t.Errorf("the hook ran")
		return nil
	}
	for what, call := range map[string]func() error{
		"Commit of a creation": func() error { _, err := e.store.Commit(ctx, e.change(create(fresh))); return err },
		"Commit of an update":  func() error { _, err := e.store.Commit(ctx, e.change(update(next))); return err },
		"Commit with a hook":   func() error { _, err := e.store.Commit(ctx, hooked); return err },
		"Get":                  func() error { _, err := e.store.Get(ctx, settle.ByID(ready.ID)); return err },
		"List":                 func() error { _, err := e.store.List(ctx, settle.Query{}); return err },
		"History":              func() error { _, err := e.store.History(ctx, ready.ID, 0, 1); return err },
		"Renew":                func() error { return renew(ctx, e.store, leased.ID, leased.Token, 9*time.Hour) },
		"Claim": func() error {
			_, err := e.store.Claim(ctx, settle.Claim{Kinds: []string{kind}, Token: e.uuid(), Lease: time.Hour, Limit: 1})
			return err
		},
	} {
		err := call()
		if err == nil {
			t.Errorf("%s under a done context succeeded", what)
		}
		if told(err) {
			t.Errorf("%s under a done context: got error %v, want one that says nothing about the record", what, err)
		}
	}
	for _, by := range fresh.Names() {
		e.none(t, by)
	}
	same(t, "the record that was due", e.read(t, ready.ID), ready)
	same(t, "the claimed record", e.read(t, leased.ID), leased)
	if n := len(e.history(t, ready.ID)); n != 1 {
		t.Errorf("the history has %d entries, want 1", n)
	}
}

// cut runs f under a context that ends about n steps of the scheduler later.
func cut(ctx context.Context, n int, f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			runtime.Gosched()
		}
		cancel()
	}()
	f(ctx)
	<-done
}

func doneWithin(t tester, e *env) {
	count := e.create(t)
	for i := range 60 {
		fresh := e.record()
		next := count
		next.Tries++
		c := e.change(create(fresh), update(next))
		var err error
		cut(t.Context(), i, func(ctx context.Context) { _, err = e.store.Commit(ctx, c) })
		// A step that was cut off may still be landing: only what stays half done is wrong.
		for try := 0; ; try++ {
			now := e.read(t, count.ID)
			entries := len(e.history(t, fresh.ID))
			_, got := e.store.Get(t.Context(), keyOf(&fresh))
			if got != nil && !errors.Is(got, settle.ErrNotFound) {
				t.Fatalf("Get failed: %v", got)
			}
			created, updated := got == nil, e.wrote(t, count.ID, c.ID)
			if created == updated && created == (entries == 1) && (created || err != nil) {
				count = now
				break
			}
			if try == 1000 {
				t.Fatalf("a change that was cut off, with error %v, created: %v, with %d entries, updated: %v; want all or nothing",
					err, created, entries, updated)
			}
		}
		if errors.Is(err, settle.ErrUncommitted) && e.wrote(t, count.ID, c.ID) {
			t.Fatalf("a change that answered ErrUncommitted was made (S6)")
		}
		if told(err) && !errors.Is(err, settle.ErrConflict) { // a former one landed late
			t.Fatalf("the change failed: %v", err)
		}
	}
}

// wrote reports whether the change wrote the record, as the history tells.
func (e *env) wrote(t tester, id, change string) bool {
	t.Helper()
	return slices.ContainsFunc(e.history(t, id), func(x settle.Entry) bool { return x.Write == change })
}

func readBack(t tester, e *env) {
	count := e.create(t)
	for i := range 40 {
		next := count
		next.Tries++
		c := e.change(create(e.record()), update(next))
		var first error
		cut(t.Context(), i/2, func(ctx context.Context) { _, first = e.store.Commit(ctx, c) })
		got, err := persist(t.Context(), e.store, c)
		if err != nil {
			t.Fatalf("the repeat of a change that answered %v failed: %v", first, err)
		}
		if len(got) != 2 || got[1].Tries != next.Tries || got[1].Version != count.Version+1 {
			t.Fatalf("the repeat did not return the records as they are")
		}
		if n := len(e.history(t, count.ID)); int64(n) != got[1].Version {
			t.Fatalf("after the repeat the history has %d entries at version %d", n, got[1].Version)
		}
		count = got[1]
	}
}
