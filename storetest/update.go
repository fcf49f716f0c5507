package storetest

import (
	"errors"
	"time"

	"github.com/settle-go/settle"
)

func updateCases() []testCase {
	return []testCase{
		{clause: "S20", name: "payloads_dropped", proves: "a write without payloads takes the stored ones away, and nothing else: names and history stay", run: payloadsDropped},
		{clause: "S20", name: "update", proves: "an update raises the version by one and keeps CreatedAt", run: updateRaises},
		{clause: "S20", name: "due_kept", proves: "Keep leaves the stored Due, whatever Record.Due says", run: dueKept},
		{clause: "S20", name: "due_kept_after_renew", proves: "Keep does not take back a renewal that the caller has not seen", run: dueKeptAfterRenew},
		{clause: "S20", name: "due_moved", proves: "Due can be moved, cleared and set again", run: dueMoved},
		{clause: "S21", name: "version_older", proves: "a write with a version that was overtaken is refused and changes nothing", run: versionOlder},
		{clause: "S21", name: "version_newer", proves: "a write with a version that does not exist yet is refused and changes nothing", run: versionNewer},
		{clause: "S21", name: "version_after_claim", proves: "a claim fences off writers that read before it", run: versionAfterClaim},
		{clause: "S21", name: "no_record", proves: "updating what does not exist is an error and creates nothing", run: noRecord},
		{clause: "S21", name: "interleaved", proves: "of two writers who read the same version the second is refused and shown the first one's record", run: interleaved},
		{clause: "S22", name: "token_right", proves: "the holder of a live lease can write, and keep or end its claim", run: tokenRight},
		{clause: "S22", name: "token_wrong", proves: "a write under another token is refused, though its version is right", run: tokenWrong},
		{clause: "S22", name: "token_of_nobody", proves: "a write under a token is refused when nobody claimed the record", run: tokenOfNobody},
		{clause: "S22", name: "lease_ended", proves: "a write under a token whose lease has ended is refused, though nobody else claimed", run: leaseEnded},
		{clause: "S22", name: "lease_cleared", proves: "a token on a record that is never due is no live lease", run: leaseCleared},
		{clause: "S21", name: "all_or_nothing", proves: "when a later write is refused for its version, earlier ones of the change leave no trace", run: allOrNothingVersion},
		{clause: "S23", name: "all_or_nothing", proves: "when a later write is refused for a name, earlier ones of the change leave no trace and no name", run: allOrNothingName},
		{clause: "S24", name: "freed_name", proves: "a name that an earlier write gave up can be taken by a later one", run: freedName},
		{clause: "S24", name: "freed_too_late", proves: "a name that only a later write gives up is not free", run: freedTooLate},
		{clause: "S24", name: "taken_within", proves: "a name that an earlier write took is taken for a later one", run: takenWithin},
		{clause: "S24", name: "refused_swap", proves: "a refused change gives back the names that it moved", run: refusedSwap},
		{clause: "S24", name: "many_writes", proves: "a change of a hundred writes is one step", run: manyWrites},
	}
}

func updateRaises(t tester, e *env) {
	r := e.create(t)
	for i := range 5 {
		next := r
		next.Tries = i + 1
		// What the store sets itself is not the caller's to say (S4).
		next.UpdatedAt, next.AsOf = latest, latest
		got := e.commit(t, update(next))[0]
		if got.Version != r.Version+1 {
			t.Errorf("Version is %d, want %d", got.Version, r.Version+1)
		}
		if !got.UpdatedAt.Equal(got.AsOf) || got.UpdatedAt.Before(r.UpdatedAt) || got.UpdatedAt.Equal(latest) {
			t.Errorf("UpdatedAt is %v and AsOf %v, want both the store's time", got.UpdatedAt, got.AsOf)
		}
		if !got.CreatedAt.Equal(r.CreatedAt) {
			t.Errorf("CreatedAt is %v, want %v as at creation", got.CreatedAt, r.CreatedAt)
		}
		next.Version, next.UpdatedAt, next.AsOf = got.Version, got.UpdatedAt, got.AsOf
		same(t, "the returned record", got, next)
		same(t, "the stored record", e.read(t, r.ID), got)
		r = got
	}
}

func dueKept(t tester, e *env) {
	r := e.due(t, time.Hour)
	next := r
	next.Due = latest
	got := e.commit(t, update(next))[0]
	if !got.Due.Equal(r.Due) {
		t.Errorf("Due is %v, want %v as before", got.Due, r.Due)
	}
	same(t, "the stored record", e.read(t, r.ID), got)

	never := e.create(t)
	never.Due = moment
	if got := e.commit(t, update(never))[0]; !got.Due.IsZero() {
		t.Errorf("Due is %v, want never as before", got.Due)
	}
	if got := e.claim(t, time.Hour, 10); len(got) != 0 {
		t.Errorf("%d records are due, want none", len(got))
	}
}

func dueKeptAfterRenew(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	if err := renew(t.Context(), e.store, r.ID, r.Token, 2*time.Hour); err != nil {
		t.Fatalf("Renew failed: %v", err)
	}
	renewed := e.read(t, r.ID)
	r.Code = "written with the Due of before the renewal"
	got := e.commit(t, ifToken(update(r), r.Token))[0]
	if !got.Due.Equal(renewed.Due) {
		t.Errorf("Due is %v, want that of the renewal, %v", got.Due, renewed.Due)
	}
}

func dueMoved(t tester, e *env) {
	r := e.due(t, 0)
	for _, d := range []time.Duration{time.Hour, 0, settle.Never, settle.Keep, time.Minute, settle.Keep} {
		was := r.Due
		r = e.commit(t, dueIn(update(r), d))[0]
		want := r.AsOf.Add(d)
		switch d {
		case settle.Keep:
			want = was
		case settle.Never:
			want = time.Time{}
		}
		if !r.Due.Equal(want) {
			t.Errorf("DueIn %v: Due is %v, want %v", d, r.Due, want)
		}
		same(t, "the stored record", e.read(t, r.ID), r)
		n := 0
		if d == 0 {
			n = 1
			e.untilDue(t, r.ID)
		}
		if got := e.claim(t, time.Hour, 10); len(got) != n {
			t.Fatalf("after DueIn %v %d records are due, want %d", d, len(got), n)
		} else if n == 1 {
			r = got[0]
		}
	}
}

func versionOlder(t tester, e *env) {
	old := e.create(t)
	now := e.commit(t, update(old))[0]
	now = e.commit(t, update(now))[0]
	old.Code = "too late"
	e.refused(t, e.change(update(old)), settle.Index{}, old.ID)
	same(t, "the stored record", e.read(t, old.ID), now)
}

func versionNewer(t tester, e *env) {
	r := e.create(t)
	for _, v := range []int64{2, 3, 1 << 40} {
		w := update(r)
		w.IfVersion, w.Record.Code = v, "too early"
		e.refused(t, e.change(w), settle.Index{}, r.ID)
	}
}

func versionAfterClaim(t tester, e *env) {
	r := e.due(t, 0)
	e.untilDue(t, r.ID)
	e.claimOne(t, time.Hour)
	r.Code = "read before the claim"
	e.refused(t, e.change(update(r)), settle.Index{}, r.ID)
}

func noRecord(t tester, e *env) {
	r := e.record()
	r.Version = 1
	if _, err := e.store.Commit(t.Context(), e.change(update(r))); err == nil {
		t.Errorf("the update of a record that does not exist succeeded")
	}
	for _, by := range r.Names() {
		e.none(t, by)
	}
	a := e.record()
	if _, err := e.store.Commit(t.Context(), e.change(create(a), update(r))); err == nil {
		t.Errorf("a change with an update of a record that does not exist succeeded")
	}
	e.none(t, settle.ByID(a.ID))
}

func interleaved(t tester, e *env) {
	id := e.create(t).ID
	first, second := e.read(t, id), e.read(t, id)
	first.Code, second.Code = "first", "second"
	now := e.commit(t, update(first))[0]
	_, err := e.store.Commit(t.Context(), e.change(update(second)))
	c := conflict(t, err, settle.Index{}, id)
	same(t, "the conflict's Existing", c.Existing, now)
	// Read, merge and decide again: what the conflict shows can be written at once.
	c.Existing.Message = "second"
	got := e.commit(t, update(c.Existing))[0]
	if got.Code != "first" || got.Message != "second" {
		t.Errorf("after both writes the record has %q and %q, want both", got.Code, got.Message)
	}
}

func tokenRight(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	token := r.Token
	r.Code = "in progress"
	r = e.commit(t, ifToken(update(r), token))[0]
	if r.Token != token || !r.Claimed() {
		t.Errorf("after a write that kept it the claim is gone")
	}
	r.Token = ""
	r = e.commit(t, dueIn(ifToken(update(r), token), settle.Never))[0]
	if r.Token != "" || r.Claimed() {
		t.Errorf("after a write that ended it the claim is still there")
	}
	r.Code = "late"
	e.refused(t, e.change(ifToken(update(r), token)), settle.Index{}, r.ID)
}

func tokenWrong(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	r.Code = "of somebody else"
	e.refused(t, e.change(ifToken(update(r), e.uuid())), settle.Index{}, r.ID)
}

func tokenOfNobody(t tester, e *env) {
	r := e.due(t, time.Hour)
	e.refused(t, e.change(ifToken(update(r), e.uuid())), settle.Index{}, r.ID)
}

func leaseEnded(t tester, e *env) {
	r := e.claimed(t, time.Microsecond)
	e.untilDue(t, r.ID)
	r.Code = "too late"
	e.refused(t, e.change(ifToken(update(r), r.Token)), settle.Index{}, r.ID)
	// Without the condition the version alone decides.
	e.commit(t, update(r))
}

func leaseCleared(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	r = e.commit(t, dueIn(ifToken(update(r), r.Token), settle.Never))[0]
	e.refused(t, e.change(ifToken(update(r), r.Token)), settle.Index{}, r.ID)
}

func allOrNothingVersion(t tester, e *env) {
	a, b, fresh := e.create(t), e.create(t), e.record()
	stale := b
	e.commit(t, update(b))
	a.Code, a.References = "never", []settle.Reference{{Ref: "pi_1"}}
	e.refused(t, e.change(create(fresh), dueIn(update(a), 0), update(stale)), settle.Index{}, b.ID)
	for _, by := range fresh.Names() {
		e.none(t, by)
	}
	e.none(t, settle.ByRef(account, kind, "pi_1"))
	if got := e.claim(t, time.Hour, 10); len(got) != 0 {
		t.Errorf("the refused change left %d records due", len(got))
	}
	if got := e.list(t, settle.Query{}); len(got) != 2 {
		t.Errorf("the store lists %d records, want 2", len(got))
	}
	// The refused writes left nothing in the way of the next ones.
	e.commit(t, create(fresh), update(a))
}

func allOrNothingName(t tester, e *env) {
	a := e.create(t)
	owner := e.create(t, func(r *settle.Record) { r.Hold = "held" })
	fresh := e.record(func(r *settle.Record) { r.Hold = "free" })
	late := e.record(func(r *settle.Record) { r.Hold = "held" })
	a.Code = "never"
	e.refused(t, e.change(update(a), create(fresh), create(late)), settle.ByHold(scope, "held"), owner.ID)
	for _, by := range append(fresh.Names(), late.Names()[:3]...) {
		e.none(t, by)
	}
	late.Hold = ""
	e.commit(t, create(fresh), create(late), update(a))
}

// replace returns the writes by which next takes the place of old.
func (e *env) replace(old settle.Record) (gone, next settle.Record) {
	next = old
	next.ID, next.Replaces, next.Generation, next.Version = e.uuid(), old.ID, old.Generation+1, 0
	next.References = nil
	old.ReplacedBy, old.HoldFree = next.ID, true
	return old, next
}

func freedName(t tester, e *env) {
	r := e.create(t, func(r *settle.Record) {
		r.Hold = "held"
		r.References = []settle.Reference{{Ref: "pi_1"}}
	})
	old, next := e.replace(r)
	got := e.commit(t, update(old), create(next))
	for _, by := range next.Names() {
		e.owns(t, by, next.ID)
	}
	e.owns(t, settle.ByID(r.ID), r.ID)
	e.owns(t, settle.ByRef(account, kind, "pi_1"), r.ID)
	if got[0].ReplacedBy != next.ID || got[1].Replaces != r.ID {
		t.Errorf("the two records do not name each other")
	}
	// And once more, from the second to a third.
	old, third := e.replace(got[1])
	e.commit(t, update(old), create(third))
	e.owns(t, settle.ByKey(r.Scope, r.Kind, r.Key), third.ID)
	e.owns(t, settle.ByHold(r.Scope, r.Hold), third.ID)
}

func freedTooLate(t tester, e *env) {
	r := e.create(t)
	old, next := e.replace(r)
	e.refused(t, e.change(create(next), update(old)), settle.ByKey(r.Scope, r.Kind, r.Key), r.ID)
}

func takenWithin(t tester, e *env) {
	a := e.record()
	b := e.record(func(r *settle.Record) { r.Key = a.Key })
	_, err := e.store.Commit(t.Context(), e.change(create(a), create(b)))
	_ = conflict(t, err, settle.ByKey(a.Scope, a.Kind, a.Key), a.ID)
	for _, by := range append(a.Names(), b.Names()...) {
		e.none(t, by)
	}
	e.commit(t, create(b))
	e.owns(t, settle.ByKey(a.Scope, a.Kind, a.Key), b.ID)
}

func refusedSwap(t tester, e *env) {
	r := e.create(t, func(r *settle.Record) { r.Hold = "held" })
	other := e.create(t)
	old, next := e.replace(r)
	stale := other
	e.commit(t, update(other))
	e.refused(t, e.change(update(old), create(next), update(stale)), settle.Index{}, other.ID)
	for _, by := range r.Names() {
		e.owns(t, by, r.ID)
	}
	e.none(t, settle.ByID(next.ID))
	e.commit(t, update(old), create(next))
	e.owns(t, settle.ByHold(scope, "held"), next.ID)
}

func manyWrites(t tester, e *env) {
	var ws []settle.Write
	for range 100 {
		ws = append(ws, create(e.record()))
	}
	taken := e.create(t)
	bad := e.record(func(r *settle.Record) { r.Key = taken.Key })
	e.refused(t, e.change(append(ws[:len(ws):len(ws)], create(bad))...), settle.ByKey(scope, kind, taken.Key), taken.ID)
	for i, r := range e.commit(t, ws...) {
		if r.ID != ws[i].Record.ID || r.Version != 1 {
			t.Fatalf("record %d is %s version %d, want %s version 1", i, r.ID, r.Version, ws[i].Record.ID)
		}
		if _, err := e.store.Get(t.Context(), settle.ByKey(r.Scope, r.Kind, r.Key)); errors.Is(err, settle.ErrNotFound) {
			t.Errorf("record %d was not stored", i)
		}
	}
}

// payloadsDropped is what retention does (I14).
func payloadsDropped(t tester, e *env) {
	for _, dropped := range []struct{ request, result bool }{{true, true}, {true, false}, {false, true}} {
		r := e.full()
		r.Token, r.ReplacedBy, r.HoldFree = "", "", false
		r.Hold += r.ID
		r = e.commit(t, create(r))[0]
		w := update(r)
		if dropped.request {
			w.Record.Request = nil
		}
		if dropped.result {
			w.Record.Result = nil
		}
		w.Record.PrunedAt = r.AsOf
		w.DueIn = settle.Never
		got := e.commit(t, w)[0]
		want := w.Record
		want.Version, want.UpdatedAt, want.AsOf, want.Due = r.Version+1, got.UpdatedAt, got.AsOf, time.Time{}
		same(t, "the record as written without payloads", got, want)
		for _, by := range r.Names() {
			now, err := e.store.Get(t.Context(), by)
			if err != nil {
				t.Fatalf("Get by %s of a record without payloads: %v", by.Name, err)
			}
			want.AsOf = now.AsOf
			same(t, "the record without payloads, read by "+string(by.Name), now, want)
		}
		if n := len(e.history(t, r.ID)); n != 2 {
			t.Errorf("the history has %d entries, want 2", n)
		}
	}
}
