package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

func listCases() []testCase {
	return []testCase{
		{clause: "S50", name: "empty", proves: "an empty store lists nothing, without an error", run: listEmpty},
		{clause: "S50", name: "filters", proves: "every filter, alone and with others, selects exactly what matches", run: listFilters},
		{clause: "S50", name: "states", proves: "records are selected by their state as of the last write", run: listStates},
		{clause: "S50", name: "overdue", proves: "Overdue selects what has been due for longer than that, claimed before or not", run: listOverdue},
		{clause: "S50", name: "pages", proves: "pages cover everything once, in ascending order of id, whatever the order of creation", run: listPages},
		{clause: "S50", name: "default_limit", proves: "without a limit a page has 100 records", run: listDefaultLimit},
		{clause: "S25", name: "entry", proves: "every field of an entry comes back exactly, with the write's version, id and time", run: entryFields},
		{clause: "S25", name: "change_id", proves: "each write of a change leaves an entry with the change's id in its own record's history", run: entryOfEachWrite},
		{clause: "S25", name: "never_changed", proves: "later writes, claims and renewals leave earlier entries as they were", run: entriesNeverChange},
		{clause: "S60", name: "gapless", proves: "the history has one entry for each write, in order of version", run: historyGapless},
		{clause: "S60", name: "pages", proves: "pages of a history cover it once", run: historyPages},
		{clause: "S60", name: "own_operation", proves: "the history of one operation has nothing of another's", run: historyOwn},
	}
}

func ids(rs []settle.Record) []string {
	out := []string{}
	for _, r := range rs {
		out = append(out, r.ID)
	}
	return out
}

// lists checks that q selects the records with those ids, in order of id.
func (e *env) lists(t tester, q settle.Query, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := ids(e.list(t, q)); !slices.Equal(got, want) {
		t.Errorf("List(%+v): got %q, want %q", q, got, want)
	}
}

func listEmpty(t tester, e *env) {
	e.lists(t, settle.Query{})
	e.lists(t, settle.Query{Scope: scope, Kind: kind, Subject: "order", States: settle.States(), Overdue: time.Second, Limit: 5})
	e.create(t)
	e.lists(t, settle.Query{Scope: "tenant-2"})
}

func listFilters(t tester, e *env) {
	type row struct{ id, scope, kind, subject string }
	var rows []row
	for _, s := range []string{"a", "A", "ab"} {
		for _, k := range []string{"pay", "refund"} {
			for _, x := range []string{"order", "order "} {
				r := e.create(t, func(r *settle.Record) { r.Scope, r.Kind, r.Subject = s, k, x })
				rows = append(rows, row{r.ID, s, k, x})
			}
		}
	}
	for _, s := range []string{"", "a", "A", "ab", "b"} {
		for _, k := range []string{"", "pay", "refund", "Pay"} {
			for _, x := range []string{"", "order", "order ", "ord"} {
				var want []string
				for _, r := range rows {
					if (s == "" || s == r.scope) && (k == "" || k == r.kind) && (x == "" || x == r.subject) {
						want = append(want, r.id)
					}
				}
				e.lists(t, settle.Query{Scope: s, Kind: k, Subject: x}, want...)
			}
		}
	}
}

func listStates(t tester, e *env) {
	by := map[settle.State]string{}
	for _, s := range settle.States() {
		by[s] = e.create(t, func(r *settle.Record) { r.State = s }).ID
	}
	for _, s := range settle.States() {
		e.lists(t, settle.Query{States: []settle.State{s}}, by[s])
	}
	e.lists(t, settle.Query{States: []settle.State{settle.StateReview, settle.StateFailed}, Scope: scope}, by[settle.StateReview], by[settle.StateFailed])
	r := e.read(t, by[settle.StateUnknown])
	r.State = settle.StateReview
	e.commit(t, update(r))
	e.lists(t, settle.Query{States: []settle.State{settle.StateUnknown}})
	e.lists(t, settle.Query{States: []settle.State{settle.StateReview}}, by[settle.StateReview], r.ID)
}

func listOverdue(t tester, e *env) {
	e.create(t)
	e.due(t, time.Hour)
	leased := e.claimed(t, time.Microsecond)
	a := e.due(t, 0)
	settled := e.due(t, 0)
	e.commit(t, dueIn(update(settled), settle.Never))
	e.until(t, a.ID, func(r settle.Record) bool {
		return r.AsOf.Sub(r.Due) > 10*time.Microsecond && r.AsOf.Sub(leased.Due) > 10*time.Microsecond
	})
	e.lists(t, settle.Query{Overdue: time.Microsecond}, a.ID, leased.ID)
	e.lists(t, settle.Query{Overdue: time.Microsecond, Scope: "tenant-2"})
	e.lists(t, settle.Query{Overdue: time.Microsecond, After: leased.ID}, a.ID)
	e.lists(t, settle.Query{Overdue: time.Microsecond, Limit: 1}, leased.ID)
	e.lists(t, settle.Query{Overdue: time.Hour})
}

func listPages(t tester, e *env) {
	// Ids whose order is not that of creation, nor of their low bits.
	var want, odd []string
	for i := range 23 {
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i*i*2654435761), 1000-i)
		if i%3 == 0 {
			odd = append(odd, id)
		}
		e.create(t, func(r *settle.Record) {
			r.ID = id
			r.Scope = []string{"odd", "even", "even"}[i%3]
		})
		want = append(want, id)
	}
	slices.Sort(want)
	slices.Sort(odd)
	for _, limit := range []int{1, 5, 22, 23, 24, 1000} {
		for _, x := range []struct {
			q    settle.Query
			want []string
		}{{settle.Query{Limit: limit}, want}, {settle.Query{Scope: "odd", Limit: limit}, odd}} {
			var got []string
			for q := x.q; ; {
				page := ids(e.list(t, q))
				got = append(got, page...)
				if len(page) > limit {
					t.Fatalf("a page of limit %d has %d records", limit, len(page))
				}
				if len(page) < limit || len(got) > len(want) {
					break
				}
				q.After = page[len(page)-1]
			}
			if !slices.Equal(got, x.want) {
				t.Errorf("pages of %d of scope %q: got %q, want %q", limit, x.q.Scope, got, x.want)
			}
		}
	}
	// After need not be the id of a record.
	if got := ids(e.list(t, settle.Query{After: want[4][:35] + "f", Limit: 1})); len(got) != 1 || got[0] < want[4] {
		t.Errorf("after an id between two records List returned %q", got)
	}
	e.lists(t, settle.Query{After: want[22]})
}

func listDefaultLimit(t tester, e *env) {
	var ws []settle.Write
	for range 105 {
		ws = append(ws, create(e.record()))
	}
	e.commit(t, ws...)
	first := ids(e.list(t, settle.Query{}))
	if len(first) != 100 {
		t.Fatalf("List without a limit returned %d records of 105, want 100", len(first))
	}
	if rest := ids(e.list(t, settle.Query{After: first[99]})); len(rest) != 5 {
		t.Errorf("the page after that has %d records, want 5", len(rest))
	}
}

// fullEntry returns an entry in which every field is set that the store does
// not set itself.
func (e *env) fullEntry() settle.Entry {
	return settle.Entry{
		From: settle.StateUnknown, To: settle.StateSucceeded, Fact: settle.Applied, Source: settle.SourceLookup, Attempt: 7,
		Disposition: settle.DispositionRevived, Ref: "pi_1 Ü", Code: text, Actor: text, Rule: text, Note: text + text,
		Alarms: []string{settle.AlarmDuplicate, settle.AlarmMismatch, "", text},
	}
}

func entryFields(t tester, e *env) {
	before := e.create(t)
	w := create(e.record())
	w.Entry = e.fullEntry()
	// What the store sets itself is not the caller's to say.
	w.Entry.Seq, w.Entry.Operation, w.Entry.Write, w.Entry.At = 99, before.ID, "of the caller", latest
	c := e.change(w)
	r := e.apply(t, c)[0]
	got := e.history(t, r.ID)
	if len(got) != 1 {
		t.Fatalf("the history has %d entries, want 1", len(got))
	}
	want := w.Entry
	want.Seq, want.Operation, want.Write, want.At = 1, r.ID, c.ID, got[0].At
	sameEntries(t, got, []settle.Entry{want})
	after := e.read(t, r.ID)
	if got[0].At.Before(before.AsOf) || got[0].At.After(after.AsOf) {
		t.Errorf("the entry's time is %v, want one between %v and %v", got[0].At, before.AsOf, after.AsOf)
	}
	// And an empty one.
	plain := e.create(t)
	if got := e.history(t, plain.ID); len(got) != 1 || len(got[0].Alarms) != 0 || got[0].Note != "" {
		t.Errorf("the history of a plain creation is not one plain entry")
	}
}

func entryOfEachWrite(t tester, e *env) {
	a, b := e.create(t), e.record()
	wa, wb := update(a), create(b)
	wa.Entry.Note, wb.Entry.Note = "of a", "of b"
	c := e.change(wa, wb)
	e.apply(t, c)
	ha, hb := e.history(t, a.ID), e.history(t, b.ID)
	if len(ha) != 2 || ha[1].Write != c.ID || ha[1].Seq != 2 || ha[1].Note != "of a" || ha[1].Operation != a.ID {
		t.Errorf("the updated record's history lacks the entry of the change")
	}
	if len(hb) != 1 || hb[0].Write != c.ID || hb[0].Seq != 1 || hb[0].Note != "of b" || hb[0].Operation != b.ID {
		t.Errorf("the created record's history lacks the entry of the change")
	}
}

func entriesNeverChange(t tester, e *env) {
	w := dueIn(create(e.record()), 0)
	w.Entry = e.fullEntry()
	r := e.commit(t, w)[0]
	first := e.history(t, r.ID)
	e.untilDue(t, r.ID)
	r = e.claimOne(t, time.Hour)
	if err := renew(t.Context(), e.store, r.ID, r.Token, 2*time.Hour); err != nil {
		t.Fatalf("Renew failed: %v", err)
	}
	for i := range 4 {
		r.State, r.Tries = settle.StateUnknown, i
		r = e.commit(t, update(r))[0]
		stale := r
		stale.Version--
		if _, err := e.store.Commit(t.Context(), e.change(update(stale))); err == nil {
			t.Errorf("a write with an old version succeeded")
		}
		h := e.history(t, r.ID)
		if len(h) != i+2 {
			t.Fatalf("the history has %d entries, want %d", len(h), i+2)
		}
		sameEntries(t, h[:len(first)], first)
		first = h
	}
}

func historyGapless(t tester, e *env) {
	r := e.create(t)
	var want []string
	for _, x := range e.history(t, r.ID) {
		want = append(want, x.Write)
	}
	for i := range 12 {
		r.Tries = i
		w := update(r)
		w.Entry.Attempt = i
		c := e.change(w)
		want = append(want, c.ID)
		r = e.apply(t, c)[0]
	}
	h := e.history(t, r.ID)
	if len(h) != len(want) {
		t.Fatalf("the history has %d entries, want %d", len(h), len(want))
	}
	for i, x := range h {
		if x.Seq != int64(i+1) || x.Write != want[i] || i > 0 && x.At.Before(h[i-1].At) {
			t.Errorf("entry %d has Seq %d and write %s, want %d and %s, in order of time", i, x.Seq, x.Write, i+1, want[i])
		}
	}
}

func historyPages(t tester, e *env) {
	r := e.due(t, 0)
	e.untilDue(t, r.ID)
	r = e.claimOne(t, time.Hour) // a gap after the first entry
	for range 10 {
		r = e.commit(t, update(r))[0]
	}
	want := e.history(t, r.ID)
	for _, limit := range []int{1, 3, 11, 50} {
		var got []settle.Entry
		for after := int64(0); len(got) <= len(want); {
			page, err := e.store.History(t.Context(), r.ID, after, limit)
			if err != nil {
				t.Fatalf("History failed: %v", err)
			}
			if len(page) > limit {
				t.Errorf("a page of limit %d has %d entries", limit, len(page))
			}
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			after = page[len(page)-1].Seq
		}
		sameEntries(t, got, want)
	}
	page, err := e.store.History(t.Context(), r.ID, 2, 1) // 2 is the claim: it has no entry
	if err != nil || len(page) != 1 || page[0].Seq != 3 {
		t.Errorf("the page after the claim has %d entries and error %v, want that of version 3", len(page), err)
	}
}

func historyOwn(t tester, e *env) {
	a, b := e.create(t), e.create(t)
	b = e.commit(t, update(b))[0]
	for _, x := range []struct {
		id string
		n  int
	}{{a.ID, 1}, {b.ID, 2}} {
		h := e.history(t, x.id)
		if len(h) != x.n {
			t.Errorf("the history has %d entries, want %d", len(h), x.n)
		}
		for _, y := range h {
			if y.Operation != x.id {
				t.Errorf("the history of %s has an entry of %s", x.id, y.Operation)
			}
		}
	}
}
