package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/settle-go/settle"
)

func hookCases() []testCase {
	return []testCase{
		{clause: "S27", name: "sees_writes", proves: "the hook sees the change's writes through its Tx, by every name", run: hookSees},
		{clause: "S27", name: "commits_with", proves: "what the hook writes through its Tx commits with the change", run: hookCommits},
		{clause: "S27", name: "fails", proves: "a failing hook leaves nothing, of the change and of its own writes, and its error is found", run: hookFails},
		{clause: "S27", name: "panics", proves: "a hook that panics leaves nothing, is a *HookError to the caller, and is in nobody's way afterwards", run: hookPanics},
		{clause: "S27", name: "not_after_refusal", proves: "the hook does not run when the change is refused", run: hookNotAfterRefusal},
		{clause: "S26", name: "no_hook_again", proves: "a repeat of an applied change does not run the hook", run: hookNotAgain},
		{clause: "S26", name: "hook_again_after_failure", proves: "a change whose hook failed was not applied: the repeat runs it", run: hookAfterFailure},
		{clause: "S27", name: "conflict_inside", proves: "a conflict of the hook's own write is told to it, with the record that is in the way", run: hookConflict},
		{clause: "S27", name: "unseen_by_others", proves: "nobody else sees the change while its hook runs", run: hookUnseen},
		{clause: "S27", name: "together", proves: "hooks of many writers on one record lose no update", run: hooksTogether},
	}
}

func (e *env) hooked(hook func(ctx context.Context, tx settle.Tx) error, ws ...settle.Write) settle.Change {
	c := e.change(ws...)
	c.Hook = hook
	return c
}

func hookSees(t tester, e *env) {
	old := e.create(t)
	untouched := e.create(t)
	next := old
	next.Code, next.References = "new", []settle.Reference{{Ref: "pi_1"}}
	fresh := e.record()
	ran := false
	got := e.apply(t, e.hooked(func(ctx context.Context, tx settle.Tx) error {
		ran = true
		for _, by := range next.Names() {
			r, err := tx.Get(ctx, by)
			if err != nil || r.ID != old.ID || r.Code != "new" || r.Version != old.Version+1 || r.AsOf.IsZero() {
				t.Errorf("the hook's Get by %s: got version %d of %q and error %v, want the record as written", name(by), r.Version, r.ID, err)
			}
			scribbleRecord(r)
		}
		if r, err := tx.Get(ctx, keyOf(&fresh)); err != nil || r.ID != fresh.ID {
			t.Errorf("the hook's Get of the created record: got %q and error %v", r.ID, err)
		}
		if r, err := tx.Get(ctx, settle.ByID(untouched.ID)); err != nil || r.ID != untouched.ID {
			t.Errorf("the hook's Get of another record: got %q and error %v", r.ID, err)
		}
		if _, err := tx.Get(ctx, settle.ByHold(scope, "nobody's")); !errors.Is(err, settle.ErrNotFound) {
			t.Errorf("the hook's Get of a free name: got error %v, want ErrNotFound", err)
		}
		return nil
	}, update(next), create(fresh)))
	if !ran {
		t.Fatalf("the hook did not run")
	}
	same(t, "the stored record", e.read(t, old.ID), got[0])
	if got[0].Code != "new" || got[1].ID != fresh.ID {
		t.Errorf("the records are not those that were written")
	}
}

func hookCommits(t tester, e *env) {
	r, other, child := e.create(t), e.create(t), e.record()
	// The Tx's change has an id of its own, the same on every run of the hook (I15).
	inner := e.change(create(child), update(other))
	r.Code = "succeeded"
	outer := e.hooked(func(ctx context.Context, tx settle.Tx) error {
		out, err := tx.Commit(ctx, inner)
		if err != nil {
			return err
		}
		if len(out) != 2 || out[0].Version != 1 || out[1].Version != other.Version+1 {
			t.Errorf("the hook's Commit returned %d records, want the two as written", len(out))
		}
		got, err := tx.Get(ctx, keyOf(&child))
		if err != nil || got.ID != child.ID {
			t.Errorf("the hook does not see what it wrote: got %q and error %v", got.ID, err)
		}
		return nil
	}, update(r))
	got := e.apply(t, outer)
	if len(got) != 1 || got[0].ID != r.ID {
		t.Errorf("Commit returned %d records, want those of the change alone", len(got))
	}
	e.owns(t, keyOf(&child), child.ID)
	if v := e.read(t, other.ID).Version; v != other.Version+1 {
		t.Errorf("the record that the hook wrote has version %d, want %d", v, other.Version+1)
	}
	for _, id := range []string{child.ID, other.ID} {
		h := e.history(t, id)
		if len(h) == 0 || h[len(h)-1].Write != inner.ID {
			t.Errorf("the last of %d history entries is not that of the hook's change", len(h))
		}
	}
}

func hookFails(t tester, e *env) {
	r, other, child, fresh := e.due(t, time.Hour), e.create(t), e.record(), e.record()
	failure := errors.New("out of stock")
	next, moved := r, other
	next.Code, next.References, moved.Code = "never", []settle.Reference{{Ref: "pi_1"}}, "never"
	c := e.hooked(func(ctx context.Context, tx settle.Tx) error {
		if _, err := tx.Commit(ctx, e.change(create(child), dueIn(update(moved), 0))); err != nil {
			return err
		}
		return failure
	}, dueIn(update(next), 0), create(fresh))
	_, err := e.store.Commit(t.Context(), c)
	var h *settle.HookError
	if !errors.As(err, &h) || !errors.Is(err, failure) {
		t.Errorf("got error %v, want a *HookError that wraps the hook's", err)
	}
	same(t, "the record", e.read(t, r.ID), r)
	same(t, "the record that the hook wrote", e.read(t, other.ID), other)
	for _, by := range append(child.Names(), fresh.Names()...) {
		e.none(t, by)
	}
	e.none(t, settle.ByRef(account, kind, "pi_1"))
	for id, n := range map[string]int{r.ID: 1, other.ID: 1, child.ID: 0, fresh.ID: 0} {
		if got := len(e.history(t, id)); got != n {
			t.Errorf("a history has %d entries, want %d", got, n)
		}
	}
	if got := e.claim(t, time.Hour, 10); len(got) != 0 {
		t.Errorf("the failed change left %d records due", len(got))
	}
	// The evidence commits without the hook (I11), and nothing is in the way.
	c = e.change(c.Writes...)
	e.apply(t, c)
	e.commit(t, create(child), update(moved))
}

func hookPanics(t tester, e *env) {
	r, child := e.create(t), e.record()
	next := r
	next.Code = "never"
	c := e.hooked(func(ctx context.Context, tx settle.Tx) error {
		if _, err := tx.Commit(ctx, e.change(create(child))); err != nil {
			return err
		}
		panic("out of stock")
	}, update(next))
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("the panic of the hook came through Commit")
			}
		}()
		_, err = e.store.Commit(t.Context(), c)
		return err
	}()
	var h *settle.HookError
	if !errors.As(err, &h) {
		t.Errorf("got error %v, want a *HookError", err)
	}
	same(t, "the record", e.read(t, r.ID), r)
	if n := len(e.history(t, r.ID)); n != 1 {
		t.Errorf("the history has %d entries, want 1", n)
	}
	for _, by := range child.Names() {
		e.none(t, by)
	}
	e.apply(t, e.change(c.Writes...))
}

func hookNotAfterRefusal(t tester, e *env) {
	r := e.create(t)
	e.commit(t, update(r))
	hook := func(context.Context, settle.Tx) error {
		t.Errorf("the hook of a refused change ran")
		return nil
	}
	e.refused(t, e.hooked(hook, update(r)), settle.Index{}, r.ID)
	e.refused(t, e.hooked(hook, create(e.record()), create(r)), settle.ByID(r.ID), r.ID)
}

func hookNotAgain(t tester, e *env) {
	r := e.create(t)
	child := e.record()
	inner := e.change(create(child))
	again := false
	c := e.hooked(func(ctx context.Context, tx settle.Tx) error {
		if again {
			t.Errorf("the hook ran for a change that was applied before")
		}
		_, err := tx.Commit(ctx, inner)
		return err
	}, update(r))
	first := e.apply(t, c)[0]
	again = true
	same(t, "the record of the repeat", e.apply(t, c)[0], first)
	if n := len(e.history(t, child.ID)); n != 1 {
		t.Errorf("the record of the hook has %d entries, want 1", n)
	}
}

func hookAfterFailure(t tester, e *env) {
	r := e.create(t)
	fail := true
	c := e.hooked(func(context.Context, settle.Tx) error {
		if fail {
			return errors.New("not now")
		}
		return nil
	}, update(r))
	if _, err := e.store.Commit(t.Context(), c); err == nil {
		t.Errorf("the failing hook's change succeeded")
	}
	fail = false
	if got := e.apply(t, c)[0]; got.Version != r.Version+1 {
		t.Errorf("the repeat returned version %d, want %d", got.Version, r.Version+1)
	}
}

func hookConflict(t tester, e *env) {
	r, owner := e.create(t), e.create(t)
	child := e.record(func(x *settle.Record) { x.Key = owner.Key })
	c := e.hooked(func(ctx context.Context, tx settle.Tx) error {
		_, err := tx.Commit(ctx, e.change(create(child)))
		var x *settle.ConflictError
		if !errors.As(err, &x) || x.Index != keyOf(&owner) || x.Existing.ID != owner.ID {
			t.Errorf("the hook's Commit: got error %v, want a conflict over the key", err)
		}
		return err
	}, update(r))
	_, err := e.store.Commit(t.Context(), c)
	var h *settle.HookError
	if !errors.As(err, &h) {
		t.Errorf("got error %v, want a *HookError", err)
	}
	same(t, "the record", e.read(t, r.ID), r)
	e.none(t, settle.ByID(child.ID))
}

func hookUnseen(t tester, e *env) {
	r, fresh := e.create(t), e.record()
	next := r
	next.Code = "not yet"
	e.apply(t, e.hooked(func(ctx context.Context, tx settle.Tx) error {
		// A store may answer with what was there before, or let others wait.
		look, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		within(t, func() string {
			if got, err := e.store.Get(look, settle.ByID(r.ID)); err == nil && got.Version != r.Version {
				return "another reader sees the updated record while the hook runs"
			}
			if _, err := e.store.Get(look, keyOf(&fresh)); err == nil {
				return "another reader sees the created record while the hook runs"
			}
			return ""
		})
		return nil
	}, update(next), create(fresh)))
	e.owns(t, keyOf(&fresh), fresh.ID)
}

func hooksTogether(t tester, e *env) {
	const writers, each = 4, 5
	total := e.create(t)
	var own []settle.Record
	for range writers {
		own = append(own, e.create(t))
	}
	parallel(writers, func(i int) {
		r := own[i]
		for n := 0; n < each; {
			got, err := e.store.Commit(t.Context(), e.hooked(func(ctx context.Context, tx settle.Tx) error {
				sum, err := tx.Get(ctx, settle.ByID(total.ID))
				if err != nil {
					return err
				}
				sum.Tries++
				_, err = tx.Commit(ctx, e.change(update(sum)))
				return err
			}, update(r)))
			switch {
			case err == nil && len(got) == 1:
				r = got[0]
				n++
			case err == nil:
				t.Errorf("Commit returned %d records for 1 write", len(got))
				return
			case t.Context().Err() != nil:
				t.Errorf("a writer came to no end: %v", err)
				return
			default: // the change with its hook is tried again, from what is stored now
				if now, err := e.store.Get(t.Context(), settle.ByID(r.ID)); err == nil {
					n += int(now.Version - r.Version)
					r = now
				}
			}
		}
	})
	sum := e.read(t, total.ID)
	writes := 0
	for _, r := range own {
		writes += int(e.read(t, r.ID).Version - r.Version)
	}
	if sum.Tries != writes || int(sum.Version-total.Version) != writes {
		t.Errorf("%d changes committed and their hooks counted %d in %d writes", writes, sum.Tries, sum.Version-total.Version)
	}
}
