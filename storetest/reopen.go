package storetest

import (
	"errors"
	"time"

	"github.com/settle-go/settle"
)

func reopenCases() []testCase {
	return []testCase{
		{clause: "S7", name: "records", proves: "every field, name and history entry is there on a second handle", run: reopenRecords, needs: needsReopen},
		{clause: "S7", name: "claims", proves: "claims and schedules hold across handles", run: reopenClaims, needs: needsReopen},
		{clause: "S7", name: "change_ids", proves: "a second handle knows the changes that the first applied", run: reopenChanges, needs: needsReopen},
		{clause: "S7", name: "names", proves: "names that one handle gave are taken for the other", run: reopenNames, needs: needsReopen},
		{clause: "S1", name: "two_handles_one_key", proves: "of many who create one key on two handles one wins", run: handlesOneKey, needs: needsReopen},
		{clause: "S1", name: "two_handles_lost_update", proves: "a counter that is raised on two handles loses no update", run: handlesLostUpdate, needs: needsReopen},
		{clause: "S31", name: "two_handles_claim_storm", proves: "claimers on two handles hand out every record once", run: handlesClaimStorm, needs: needsReopen},
	}
}

// other is e on a second handle.
func (e *env) other() *env {
	o := &env{store: e.reopen(), reopen: e.reopen, begin: e.begin}
	o.n.Store(1 << 40) // ids of its own
	return o
}

func reopenRecords(t tester, e *env) {
	w := dueIn(create(e.full()), time.Hour)
	w.Entry = e.fullEntry()
	full := e.commit(t, w)[0]
	plain := e.create(t, func(r *settle.Record) { r.Hold = "held" })
	plain.Code = "updated"
	plain = e.commit(t, update(plain))[0]
	o := e.other()
	for _, r := range []settle.Record{full, plain} {
		o.everywhere(t, r)
		sameEntries(t, o.history(t, r.ID), e.history(t, r.ID))
	}
	// And the other way, on a handle that was open before.
	late := o.create(t)
	e.everywhere(t, late)
}

func reopenClaims(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	o := e.other()
	same(t, "the claimed record", o.read(t, r.ID), r)
	if got := o.claim(t, time.Hour, 10); len(got) != 0 {
		t.Errorf("the second handle handed out a claimed record")
	}
	if err := renew(t.Context(), o.store, r.ID, r.Token, 2*time.Hour); err != nil {
		t.Errorf("Renew on the second handle failed: %v", err)
	}
	if err := renew(t.Context(), o.store, r.ID, o.uuid(), 2*time.Hour); !errors.Is(err, settle.ErrClaimLost) {
		t.Errorf("Renew on the second handle: got error %v, want ErrClaimLost", err)
	}
	ready := e.due(t, 0)
	o.untilDue(t, ready.ID)
	if got := o.claim(t, time.Hour, 10); len(got) != 1 || got[0].ID != ready.ID {
		t.Errorf("the second handle handed out %d records, want the one that is due", len(got))
	}
}

func reopenChanges(t tester, e *env) {
	old := e.create(t)
	c := e.change(create(e.record()), update(old))
	first := e.apply(t, c)
	o := e.other()
	for i, r := range o.apply(t, c) {
		same(t, "the record of the repeat", r, first[i])
	}
	if n := len(o.history(t, old.ID)); n != 2 {
		t.Errorf("the history has %d entries, want 2", n)
	}
}

func reopenNames(t tester, e *env) {
	r := e.create(t, func(r *settle.Record) {
		r.Hold = "held"
		r.References = []settle.Reference{{Ref: "pi_1"}}
	})
	o := e.other()
	o.refused(t, o.change(create(o.record(func(n *settle.Record) { n.Key = r.Key }))), keyOf(&r), r.ID)
	o.refused(t, o.change(create(o.record(func(n *settle.Record) { n.Hold = "held" }))), settle.ByHold(scope, "held"), r.ID)
	gone, next := o.replace(r)
	o.commit(t, update(gone), create(next))
	e.owns(t, keyOf(&r), next.ID)
	e.owns(t, settle.ByRef(account, kind, "pi_1"), r.ID)
	e.refused(t, e.change(update(r)), settle.Index{}, r.ID)
}

func handlesOneKey(t tester, e *env) {
	handles := []settle.Store{e.store, e.other().store}
	for range 5 {
		oneKeyOn(t, e, handles)
	}
}

func handlesLostUpdate(t tester, e *env) {
	lostUpdateOn(t, e, []settle.Store{e.store, e.other().store})
}

func handlesClaimStorm(t tester, e *env) {
	claimStormOn(t, e, []settle.Store{e.store, e.other().store})
}
