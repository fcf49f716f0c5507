package storetest

import (
	"errors"
	"time"

	"github.com/settle-go/settle"
)

func createCases() []testCase {
	return []testCase{
		{clause: "S10", name: "not_found", proves: "an empty store has none of the names, and says so with ErrNotFound", run: notFound},
		{clause: "S10", name: "found_by_every_name", proves: "a record is found by its id, key, intent, hold and references", run: foundByEveryName},
		{clause: "S20", name: "create", proves: "the store sets version, times and due of a new record, whatever the caller put there", run: createSets},
		{clause: "S20", name: "create_due", proves: "Due is the store's time plus DueIn, to the microsecond, or never", run: createDue},
		{clause: "S28", name: "order_of_writes", proves: "the records come back in the order of the writes", run: orderOfWrites},
		{clause: "S26", name: "create_again", proves: "the same change again is success, with the record as it is now", run: createAgain},
		{clause: "S26", name: "update_again", proves: "a repeated update is success, though its version is old by then, and writes nothing", run: updateAgain},
		{clause: "S26", name: "many_again", proves: "a repeated change of many writes returns all of its records, in order", run: manyAgain},
		{clause: "S23", name: "same_id", proves: "creating a record whose id exists, by another change, is a conflict over the id", run: sameID},
		{clause: "S23", name: "first_name_counts", proves: "of several names that others have, the first in the order of Names is told", run: firstNameCounts},
	}
}

func notFound(t tester, e *env) {
	r := e.record(func(r *settle.Record) {
		r.Hold = "hold"
		r.References = []settle.Reference{{Ref: "pi_1"}}
	})
	for _, by := range r.Names() {
		e.none(t, by)
	}
	e.commit(t, create(r))
	other := e.record(func(r *settle.Record) {
		r.Hold = "hold-2"
		r.References = []settle.Reference{{Ref: "pi_2"}}
	})
	for _, by := range other.Names() {
		e.none(t, by)
	}
}

func foundByEveryName(t tester, e *env) {
	r := e.record(func(r *settle.Record) {
		r.Hold = "hold"
		r.References = []settle.Reference{{Ref: ""}, {Ref: "pi_1"}, {Ref: "pi_2", Foreign: true}, {Ref: "pi_3"}}
	})
	for _, by := range r.Names() {
		e.none(t, by) // nor is it remembered that there was none
	}
	r = e.commit(t, create(r))[0]
	e.create(t)
	names := r.Names()
	if len(names) != 6 {
		t.Fatalf("the record has %d names, want 6", len(names))
	}
	for _, by := range names {
		same(t, "Get by "+name(by), e.get(t, by), r)
	}
	e.none(t, settle.ByRef(account, kind, "pi_2"))
	e.none(t, settle.ByRef(account, kind, ""))
}

func createSets(t tester, e *env) {
	r := e.record(func(r *settle.Record) {
		r.Version, r.CreatedAt, r.UpdatedAt, r.AsOf, r.Due = 77, latest, moment, latest, latest
	})
	got := e.commit(t, create(r))[0]
	if got.Version != 1 {
		t.Errorf("Version is %d, want 1", got.Version)
	}
	if got.AsOf.IsZero() || got.AsOf.Equal(latest) {
		t.Errorf("AsOf is %v, want the store's time", got.AsOf)
	}
	if !got.CreatedAt.Equal(got.AsOf) || !got.UpdatedAt.Equal(got.AsOf) {
		t.Errorf("CreatedAt is %v and UpdatedAt %v, want both AsOf, %v", got.CreatedAt, got.UpdatedAt, got.AsOf)
	}
	if !got.Due.IsZero() {
		t.Errorf("Due is %v, want never", got.Due)
	}
	want := r
	want.Version, want.CreatedAt, want.UpdatedAt, want.AsOf, want.Due = 1, got.AsOf, got.AsOf, got.AsOf, time.Time{}
	same(t, "the returned record", got, want)
	same(t, "the stored record", e.read(t, r.ID), want)
}

func createDue(t tester, e *env) {
	for _, d := range []time.Duration{0, time.Microsecond, 1234567 * time.Microsecond, time.Hour, settle.Forever} {
		r := e.due(t, d)
		if want := r.AsOf.Add(d.Truncate(time.Microsecond)); !r.Due.Equal(want) {
			t.Errorf("DueIn %v: Due is %v, want AsOf + DueIn, %v", d, r.Due, want)
		}
		same(t, "the stored record", e.read(t, r.ID), r)
	}
	if r := e.due(t, settle.Never); !r.Due.IsZero() {
		t.Errorf("DueIn Never: Due is %v, want zero", r.Due)
	}
}

func orderOfWrites(t tester, e *env) {
	old := e.create(t)
	a, b, c := e.record(), e.record(), e.record()
	old.Code = "changed"
	got := e.commit(t, create(c), create(a), update(old), create(b))
	for i, id := range []string{c.ID, a.ID, old.ID, b.ID} {
		if got[i].ID != id {
			t.Errorf("record %d is %s, want %s", i, got[i].ID, id)
		}
		same(t, "the stored record", e.read(t, id), got[i])
	}
}

func createAgain(t tester, e *env) {
	c := e.change(create(e.record()))
	first := e.apply(t, c)[0]
	again := e.apply(t, c)[0]
	same(t, "the record of the repeat", again, first)
	first.Code = "moved on"
	now := e.commit(t, update(first))[0]
	later := e.apply(t, c)[0]
	same(t, "the record of a later repeat", later, now)
	if n := len(e.history(t, first.ID)); n != 2 {
		t.Errorf("the history has %d entries, want 2", n)
	}
}

func updateAgain(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	r.Code = "first"
	c := e.change(ifToken(update(r), r.Token))
	r = e.apply(t, c)[0]
	r.Code, r.Token = "second", ""
	now := e.commit(t, dueIn(update(r), time.Hour))[0]
	same(t, "the record of the repeat", e.apply(t, c)[0], now)
	same(t, "the stored record", e.read(t, r.ID), now)
	if n := len(e.history(t, r.ID)); n != 3 {
		t.Errorf("the history has %d entries, want 3", n)
	}
}

func manyAgain(t tester, e *env) {
	a, b := e.create(t), e.record()
	a.Code = "first"
	c := e.change(update(a), create(b))
	a = e.apply(t, c)[0]
	a.Code = "second"
	a = e.commit(t, update(a))[0]
	b = e.read(t, b.ID)
	got := e.apply(t, c)
	same(t, "record 0 of the repeat", got[0], a)
	same(t, "record 1 of the repeat", got[1], b)
	if n := len(e.history(t, a.ID)); n != 3 {
		t.Errorf("the history has %d entries, want 3", n)
	}
}

func sameID(t tester, e *env) {
	r := e.create(t)
	e.refused(t, e.change(create(r)), settle.ByID(r.ID), r.ID)
	other := e.record(func(o *settle.Record) { o.ID = r.ID })
	e.refused(t, e.change(create(other)), settle.ByID(r.ID), r.ID)
	e.none(t, settle.ByKey(other.Scope, other.Kind, other.Key))
}

func firstNameCounts(t tester, e *env) {
	byID, byKey, byIntent := e.create(t), e.create(t), e.create(t)
	byHold := e.create(t, func(r *settle.Record) { r.Hold = "held" })
	byRef := e.create(t, func(r *settle.Record) { r.References = []settle.Reference{{Ref: "pi_1"}} })
	byRef2 := e.create(t, func(r *settle.Record) { r.References = []settle.Reference{{Ref: "pi_2"}} })
	// Each row takes one more name than the one after it; its first owner counts.
	take := []struct {
		owner settle.Record
		index settle.Index
		edit  func(r *settle.Record)
	}{
		{byID, settle.ByID(byID.ID), func(r *settle.Record) { r.ID = byID.ID }},
		{byKey, settle.ByKey(scope, kind, byKey.Key), func(r *settle.Record) { r.Key = byKey.Key }},
		{byIntent, settle.ByIntent(scope, kind, byIntent.Subject, byIntent.Purpose), func(r *settle.Record) { r.Subject = byIntent.Subject }},
		{byHold, settle.ByHold(scope, "held"), func(r *settle.Record) { r.Hold = "held" }},
		{byRef, settle.ByRef(account, kind, "pi_1"), func(r *settle.Record) { r.References = append(r.References, settle.Reference{Ref: "pi_1"}) }},
		{byRef2, settle.ByRef(account, kind, "pi_2"), func(r *settle.Record) { r.References = append(r.References, settle.Reference{Ref: "pi_2"}) }},
	}
	for i := range take {
		r := e.record()
		for _, x := range take[i:] {
			x.edit(&r)
		}
		e.refused(t, e.change(create(r)), take[i].index, take[i].owner.ID)
	}
	if r, err := e.store.Get(t.Context(), settle.ByHold(scope, "nobody's")); !errors.Is(err, settle.ErrNotFound) {
		t.Errorf("Get of a free hold: got record %q and error %v, want ErrNotFound", r.ID, err)
	}
}
