package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/settle-go/settle"
)

func txCases() []testCase {
	return []testCase{
		{clause: "Tx", name: "commit", proves: "what was written through a Tx is there when its transaction committed", run: txCommit, needs: needsBegin},
		{clause: "Tx", name: "rollback", proves: "what was written through a Tx is gone when its transaction rolled back", run: txRollback, needs: needsBegin},
		{clause: "Tx", name: "own_writes", proves: "a Tx sees its own writes, and later changes build on earlier ones", run: txOwnWrites, needs: needsBegin},
		{clause: "Tx", name: "conflict", proves: "a conflict inside a transaction is told like outside", run: txConflict, needs: needsBegin},
		{clause: "Tx", name: "refused_change", proves: "a refused change leaves nothing in a transaction that commits all the same", run: txGoesOn, needs: needsBegin},
		{clause: "Tx", name: "again", proves: "a change that committed in a transaction is known by its id afterwards", run: txAgain, needs: needsBegin},
		{clause: "Tx", name: "unseen_by_others", proves: "nobody sees what is not committed", run: txUnseen, needs: needsBegin},
		{clause: "Tx", name: "no_hook", proves: "a change with a hook is refused by a Tx", run: txNoHook, needs: needsBegin},
	}
}

func (e *env) end(t tester, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Fatalf("the transaction did not end as told: %v", err)
	}
}

// inTx makes the change in a transaction that is still open, or rolls it back
// and ends the case.
func inTx(t tester, tx settle.Tx, rollback func() error, c settle.Change) []settle.Record {
	t.Helper()
	out, err := tx.Commit(t.Context(), c)
	if err != nil || len(out) != len(c.Writes) {
		_ = rollback()
		t.Fatalf("Commit in a transaction returned %d records and error %v", len(out), err)
	}
	return out
}

func txCommit(t tester, e *env) {
	old := e.create(t)
	fresh := e.full()
	fresh.ReplacedBy = ""
	next := old
	next.Code = "in a transaction"
	tx, commit, rollback := e.begin()
	c := e.change(dueIn(create(fresh), 0), update(next))
	got := inTx(t, tx, rollback, c)
	e.end(t, commit)
	same(t, "the created record", e.read(t, fresh.ID), written(fresh, got[0]))
	same(t, "the updated record", e.read(t, old.ID), written(next, got[1]))
	for _, by := range fresh.Names() {
		e.owns(t, by, fresh.ID)
	}
	for i, id := range []string{fresh.ID, old.ID} {
		h := e.history(t, id)
		if len(h) != i+1 || h[i].Write != c.ID {
			t.Errorf("record %d has %d history entries, want %d, the last of the transaction", i, len(h), i+1)
		}
	}
	e.untilDue(t, fresh.ID)
	if n := len(e.claim(t, time.Hour, 5)); n != 1 {
		t.Errorf("%d records are due, want the one of the transaction", n)
	}
}

func txRollback(t tester, e *env) {
	old := e.create(t, func(r *settle.Record) { r.Hold = "held" })
	gone, next := e.replace(old)
	fresh := e.record()
	tx, _, rollback := e.begin()
	inTx(t, tx, rollback, e.change(update(gone), create(next)))
	inTx(t, tx, rollback, e.change(dueIn(create(fresh), 0)))
	e.end(t, rollback)
	same(t, "the record", e.read(t, old.ID), old)
	for _, by := range old.Names() {
		e.owns(t, by, old.ID)
	}
	for _, by := range append(fresh.Names(), settle.ByID(next.ID)) {
		e.none(t, by)
	}
	if n := len(e.history(t, old.ID)); n != 1 {
		t.Errorf("the history has %d entries, want 1", n)
	}
	if n := len(e.claim(t, time.Hour, 5)); n != 0 {
		t.Errorf("%d records are due after the rollback, want none", n)
	}
	e.commit(t, update(gone), create(next))
	e.commit(t, create(fresh))
}

func txOwnWrites(t tester, e *env) {
	a := e.record()
	tx, commit, rollback := e.begin()
	first := inTx(t, tx, rollback, e.change(create(a)))[0]
	got, err := tx.Get(t.Context(), keyOf(&a))
	if err != nil || got.ID != a.ID {
		t.Errorf("the Tx does not see its own record: got %q and error %v", got.ID, err)
	}
	first.Code = "twice"
	inTx(t, tx, rollback, e.change(update(first)))
	e.end(t, commit)
	if r := e.read(t, a.ID); r.Version != 2 || r.Code != "twice" {
		t.Errorf("the record has version %d and code %q, want that of the second change", r.Version, r.Code)
	}
}

func txConflict(t tester, e *env) {
	owner, stale := e.create(t), e.create(t)
	e.commit(t, update(stale))
	for _, x := range []struct {
		w     settle.Write
		index settle.Index
		id    string
	}{
		{create(e.record(func(r *settle.Record) { r.Key = owner.Key })), keyOf(&owner), owner.ID},
		{create(owner), settle.ByID(owner.ID), owner.ID},
		{update(stale), settle.Index{}, stale.ID},
	} {
		fresh := e.record()
		tx, _, rollback := e.begin()
		_, err := tx.Commit(t.Context(), e.change(create(fresh), x.w))
		e.end(t, rollback)
		_ = conflict(t, err, x.index, x.id)
		e.none(t, settle.ByID(fresh.ID))
	}
}

func txGoesOn(t tester, e *env) {
	owner, first, refused := e.create(t), e.record(), e.record()
	late := e.record(func(r *settle.Record) { r.Key = owner.Key })
	tx, commit, rollback := e.begin()
	inTx(t, tx, rollback, e.change(create(first)))
	_, conflicted := tx.Commit(t.Context(), e.change(create(refused), create(late)))
	err := commit()
	_ = conflict(t, conflicted, keyOf(&owner), owner.ID)
	e.none(t, settle.ByID(refused.ID))
	e.none(t, settle.ByID(late.ID))
	// A database may refuse to commit after a refusal: then nothing is there.
	if err != nil {
		e.none(t, settle.ByID(first.ID))
		return
	}
	e.owns(t, keyOf(&first), first.ID)
	e.commit(t, create(refused))
}

func txAgain(t tester, e *env) {
	c := e.change(create(e.record()))
	tx, commit, rollback := e.begin()
	first := inTx(t, tx, rollback, c)[0]
	if again, err := tx.Commit(t.Context(), c); err != nil || len(again) != 1 || again[0].Version != 1 {
		t.Errorf("the repeat inside the transaction returned %d records and error %v", len(again), err)
	}
	e.end(t, commit)
	same(t, "the record of the repeat afterwards", e.apply(t, c)[0], first)
	if n := len(e.history(t, first.ID)); n != 1 {
		t.Errorf("the history has %d entries, want 1", n)
	}
}

func txUnseen(t tester, e *env) {
	old, fresh := e.create(t), e.record()
	tx, commit, rollback := e.begin()
	inTx(t, tx, rollback, e.change(create(fresh), update(old)))
	// A store may answer with what was there before, or let others wait.
	look, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	within(t, func() string {
		if _, err := e.store.Get(look, keyOf(&fresh)); err == nil {
			return "a record is seen before its transaction committed"
		}
		if r, err := e.store.Get(look, settle.ByID(old.ID)); err == nil && r.Version != old.Version {
			return "an update is seen before its transaction committed"
		}
		return ""
	})
	e.end(t, commit)
	e.owns(t, keyOf(&fresh), fresh.ID)
}

func txNoHook(t tester, e *env) {
	r := e.record()
	tx, _, rollback := e.begin()
	_, err := tx.Commit(t.Context(), e.hooked(func(context.Context, settle.Tx) error {
		t.Errorf("the hook ran")
		return nil
	}, create(r)))
	if err == nil || errors.Is(err, settle.ErrConflict) {
		t.Errorf("Commit of a change with a hook in a transaction: got error %v, want a refusal", err)
	}
	e.end(t, rollback)
	e.none(t, settle.ByID(r.ID))
}
