package storetest

import (
	"fmt"
	"strings"

	"github.com/settle-go/settle"
)

func nameCases() []testCase {
	out := []testCase{
		{clause: "S2", name: "longest_names", proves: "names of 255 bytes a part are kept apart by their last byte", run: longestNames},
		{clause: "S2", name: "part_boundaries", proves: `("a","bc") and ("ab","c") are two names`, run: partBoundaries},
		{clause: "S2", name: "kinds_of_name", proves: "an id, a key, an intent, a hold and a reference of the same text are five names", run: kindsOfName},
		{clause: "S2", name: "same_name_elsewhere", proves: "the same key, intent, hold or reference in another scope, kind or account is another name", run: sameNameElsewhere},
		{clause: "S10", name: "no_key", proves: "records without a key of the application's are not in each other's way, nor found by an empty key", run: noKey},
		{clause: "S10", name: "replaced", proves: "a replaced record has lost key and intent, and keeps id and references", run: replaced},
		{clause: "S10", name: "hold_released", proves: "a released hold is nobody's and can be taken by another record", run: holdReleased},
		{clause: "S23", name: "hold_not_retaken", proves: "a hold that another took meanwhile cannot be taken again", run: holdNotRetaken},
		{clause: "S23", name: "reference_owned", proves: "a reference that another record owns is a conflict naming it, on updates too", run: referenceOwned},
		{clause: "S23", name: "reference_foreign", proves: "a foreign reference, and evidence without one, are no names", run: referenceForeign},
		{clause: "S23", name: "reference_order", proves: "the references of a record are names whatever their order, and one that is given up is free", run: referenceOrder},
		{clause: "S23", name: "created_and_written", proves: "a change that creates a record and writes it again is refused for a name like any other", run: createdAndWritten},
		{clause: "S23", name: "own_names", proves: "an update is never in conflict with the record's own names", run: ownNames},
	}
	for _, x := range identities {
		out = append(out, testCase{
			clause: "S2", name: "identity_" + x.name,
			proves: "names that differ in one byte only (case, a trailing space, an accent, the normal form) are two " + x.name + " names",
			run:    func(t tester, e *env) { identity(t, e, x.set, x.index) },
		})
	}
	return out
}

// identities are the ways in which a text can be part of a record's identity.
var identities = []struct {
	name  string
	set   func(r *settle.Record, s string)
	index func(r *settle.Record) settle.Index
}{
	{"key", func(r *settle.Record, s string) { r.Key = s }, keyOf},
	{"subject", func(r *settle.Record, s string) { r.Subject = s }, intentOf},
	{"purpose", func(r *settle.Record, s string) { r.Subject, r.Purpose = "order", s }, intentOf},
	{"scope", func(r *settle.Record, s string) { r.Scope, r.Key = s, "key" }, keyOf},
	{"hold", func(r *settle.Record, s string) { r.Hold = s }, func(r *settle.Record) settle.Index { return settle.ByHold(r.Scope, r.Hold) }},
	{
		"reference", func(r *settle.Record, s string) { r.References = []settle.Reference{{Ref: s}} },
		func(r *settle.Record) settle.Index { return settle.ByRef(r.Account, r.Kind, r.References[0].Ref) },
	},
}

func keyOf(r *settle.Record) settle.Index { return settle.ByKey(r.Scope, r.Kind, r.Key) }

func intentOf(r *settle.Record) settle.Index {
	return settle.ByIntent(r.Scope, r.Kind, r.Subject, r.Purpose)
}

// alike are texts that one collation or another takes for the same.
func alike() []string {
	long := strings.Repeat("x", 254)
	return []string{
		"order-8472a", "order-8472A", "ORDER-8472A", "order-8472a ", "order-8472a  ", " order-8472a",
		"order-8472á", "order-8472a\u0301", "order-8472Á", "order-8472å", "order-8472\u212b", "order-8472a\u030a",
		"ß", "ss", "ẞ", "ı", "i", "I", "İ", "ﬁ", "fi", "ａ", "a", "œ", "oe", "µ", "μ", "σ", "ς",
		"1", "01", "1.0", "1e0", "１", "²", "2",
		"%", "_", "*", "a\\", "a\\\\", "a'", "a''", "a-b", "ab", "a\u00adb", "a\u200bb", "a\u200db",
		"😀", "😁", "👩‍🚀", "👩🚀", "か", "カ", "が", "か\u3099",
		long, long + "a", long + "b", long + "B",
	}
}

func identity(t tester, e *env, set func(*settle.Record, string), index func(*settle.Record) settle.Index) {
	ids := map[string]string{}
	for _, s := range alike() {
		r := e.record(func(r *settle.Record) { set(r, s) })
		e.none(t, index(&r))
		if _, err := e.store.Commit(t.Context(), e.change(create(r))); err != nil {
			t.Errorf("the name %q (% x) is refused beside others that differ: %v", s, s, err)
			continue
		}
		ids[s] = r.ID
	}
	for s, id := range ids {
		r := e.record(func(r *settle.Record) { set(r, s) })
		got, err := e.store.Get(t.Context(), index(&r))
		if err != nil || got.ID != id {
			t.Errorf("Get by %s: got record %q and error %v, want %q", name(index(&r)), got.ID, err, id)
			continue
		}
		if index(&got) != index(&r) {
			t.Errorf("the record under %s came back with the name %s", name(index(&r)), name(index(&got)))
		}
		_, err = e.store.Commit(t.Context(), e.change(create(r)))
		_ = conflict(t, err, index(&r), id)
	}
}

func longestNames(t tester, e *env) {
	build := func(end string) settle.Record {
		return e.record(func(r *settle.Record) {
			r.Scope, r.Key, r.Subject, r.Purpose, r.Hold = longest("s"), longest(end), longest(end), longest("p"), longest(end)
			r.References = []settle.Reference{{Ref: longest(end)}}
			r.ProviderKey = strings.Repeat("k", 255)
		})
	}
	a, b := build("a"), build("b")
	e.keeps(t, a)
	e.keeps(t, b)
	for i, by := range a.Names() {
		e.owns(t, by, a.ID)
		e.owns(t, b.Names()[i], b.ID)
	}
	e.refused(t, e.change(create(build("a"))), settle.ByKey(a.Scope, a.Kind, a.Key), a.ID)
}

// apart stores records one by one and checks that none is taken for another.
func (e *env) apart(t tester, edits ...func(*settle.Record)) {
	t.Helper()
	var all []settle.Record
	for _, edit := range edits {
		r := e.record(edit)
		if _, err := e.store.Commit(t.Context(), e.change(create(r))); err != nil {
			t.Errorf("a record is refused beside others whose names differ: %v", err)
			continue
		}
		all = append(all, r)
	}
	for _, r := range all {
		for _, by := range r.Names() {
			e.owns(t, by, r.ID)
		}
	}
}

func partBoundaries(t tester, e *env) {
	for _, sep := range []string{"", "/", ":", "|", "-", ".", " ", ",", "\\"} {
		var edits []func(*settle.Record)
		a, bc, ab, c := "a", "b"+sep+"c", "a"+sep+"b", "c"
		for i, p := range [][2]string{{a, bc}, {ab, c}} {
			other := fmt.Sprint(i, sep) // for the names that are not tried
			edits = append(
				edits,
				func(r *settle.Record) { r.Scope, r.Kind, r.Key = "1"+p[0], p[1], "k"+sep },
				func(r *settle.Record) { r.Scope, r.Kind, r.Key = "2"+sep, p[0], p[1] },
				func(r *settle.Record) { r.Scope, r.Kind, r.Subject, r.Purpose = "3"+p[0], p[1], "s"+sep, "p" },
				func(r *settle.Record) { r.Scope, r.Kind, r.Subject, r.Purpose = "4"+sep, p[0], p[1], "p" },
				func(r *settle.Record) { r.Scope, r.Subject, r.Purpose = "5"+sep, p[0], p[1] },
				func(r *settle.Record) { r.Scope, r.Hold = "6"+p[0], p[1] },
				func(r *settle.Record) {
					r.Scope, r.Account, r.Kind = "7"+other, "7"+p[0], p[1]
					r.References = []settle.Reference{{Ref: "r" + sep}}
				},
				func(r *settle.Record) {
					r.Scope, r.Account, r.Kind = "8"+other, "8"+sep, p[0]
					r.References = []settle.Reference{{Ref: p[1]}}
				},
			)
		}
		e.apart(t, edits...)
	}
}

func kindsOfName(t tester, e *env) {
	same := e.uuid()
	e.apart(
		t,
		func(r *settle.Record) { r.ID = same },
		func(r *settle.Record) { r.Key = same },
		func(r *settle.Record) { r.Subject = same },
		func(r *settle.Record) { r.Subject, r.Purpose = "order", same },
		func(r *settle.Record) { r.Hold = same },
		func(r *settle.Record) { r.References = []settle.Reference{{Ref: same}} },
		// The parts of a key, a hold and a reference of which one text could be made.
		func(r *settle.Record) { r.Scope, r.Kind, r.Key = "x", "x", "x" },
		func(r *settle.Record) { r.Scope, r.Kind, r.Subject, r.Purpose = "x", "x", "x", "x" },
		func(r *settle.Record) { r.Scope, r.Hold = "x", "x" },
		func(r *settle.Record) {
			r.Account, r.Kind, r.References = "x", "x", []settle.Reference{{Ref: "x"}}
		},
	)
}

func sameNameElsewhere(t tester, e *env) {
	with := func(edit func(*settle.Record)) func(*settle.Record) {
		return func(r *settle.Record) {
			r.Key, r.Subject, r.Purpose = "key", "order", "purchase"
			edit(r)
		}
	}
	e.apart(
		t,
		with(func(r *settle.Record) { r.Hold = "hold" }),
		with(func(r *settle.Record) { r.Scope, r.Hold = "tenant-2", "hold" }),
		with(func(r *settle.Record) { r.Kind = "refund" }),
		with(func(r *settle.Record) { r.Key, r.Purpose = "key-2", "deposit" }),
		func(r *settle.Record) { r.References = []settle.Reference{{Ref: "pi_1"}} },
		func(r *settle.Record) {
			r.Account, r.References = "acme/acct-1//test", []settle.Reference{{Ref: "pi_1"}}
		},
		func(r *settle.Record) { r.Kind, r.References = "refund", []settle.Reference{{Ref: "pi_1"}} },
	)
}

func noKey(t tester, e *env) {
	unkeyed := func(r *settle.Record) { r.Key = "" }
	a, b := e.create(t, unkeyed), e.create(t, unkeyed)
	e.none(t, settle.ByKey(scope, kind, ""))
	e.owns(t, intentOf(&a), a.ID)
	e.owns(t, intentOf(&b), b.ID)
	// The intent stands in for the key.
	again := e.record(func(r *settle.Record) { r.Key, r.Subject = "", a.Subject })
	e.refused(t, e.change(create(again)), intentOf(&a), a.ID)
	a.Code = "updated"
	now := e.commit(t, update(a))[0]
	same(t, "the updated record", e.get(t, intentOf(&a)), now)
}

func replaced(t tester, e *env) {
	r := e.create(t, func(r *settle.Record) { r.References = []settle.Reference{{Ref: "pi_1"}} })
	key, intent := keyOf(&r), intentOf(&r)
	r.ReplacedBy = e.uuid()
	r = e.commit(t, update(r))[0]
	e.none(t, key)
	e.none(t, intent)
	e.owns(t, settle.ByID(r.ID), r.ID)
	e.owns(t, settle.ByRef(account, kind, "pi_1"), r.ID)
	next := e.create(t, func(n *settle.Record) { n.Key, n.Subject, n.Purpose = r.Key, r.Subject, r.Purpose })
	e.owns(t, key, next.ID)
	e.owns(t, intent, next.ID)
	// Evidence still comes in on the old one.
	r.Code = "late evidence"
	e.commit(t, update(r))
	e.owns(t, key, next.ID)
}

func holdReleased(t tester, e *env) {
	hold := settle.ByHold(scope, "order-1")
	r := e.create(t, func(r *settle.Record) { r.Hold = "order-1" })
	other := e.record(func(r *settle.Record) { r.Kind, r.Hold = "refund", "order-1" })
	e.refused(t, e.change(create(other)), hold, r.ID)
	r.HoldFree = true
	r = e.commit(t, update(r))[0]
	e.none(t, hold)
	if r.Hold != "order-1" {
		t.Errorf("the record forgot the hold that it had")
	}
	e.commit(t, create(other))
	e.owns(t, hold, other.ID)
}

func holdNotRetaken(t tester, e *env) {
	r := e.create(t, func(r *settle.Record) { r.Hold = "order-1" })
	r.HoldFree = true
	r = e.commit(t, update(r))[0]
	other := e.create(t, func(r *settle.Record) { r.Hold = "order-1" })
	r.HoldFree = false
	e.refused(t, e.change(update(r)), settle.ByHold(scope, "order-1"), other.ID)
}

func referenceOwned(t tester, e *env) {
	a, b := e.create(t), e.create(t)
	ref := []settle.Reference{{Ref: "pi_1", Rank: settle.RankSucceeded}}
	a.References = ref
	a = e.commit(t, update(a))[0]
	e.owns(t, settle.ByRef(account, kind, "pi_1"), a.ID)
	b.References = ref
	e.refused(t, e.change(update(b)), settle.ByRef(account, kind, "pi_1"), a.ID)
	c := e.record(func(r *settle.Record) { r.References = ref })
	e.refused(t, e.change(create(c)), settle.ByRef(account, kind, "pi_1"), a.ID)
	// What the engine does then.
	b.References = []settle.Reference{{Ref: "pi_1", Rank: settle.RankDisputed, Foreign: true}}
	e.commit(t, update(b))
	e.owns(t, settle.ByRef(account, kind, "pi_1"), a.ID)
}

func referenceForeign(t tester, e *env) {
	refs := []settle.Reference{{Ref: "", Rank: settle.RankSucceeded}, {Ref: "pi_1", Foreign: true}}
	e.create(t, func(r *settle.Record) { r.References = refs })
	e.create(t, func(r *settle.Record) { r.References = refs })
	e.none(t, settle.ByRef(account, kind, "pi_1"))
	owner := e.create(t, func(r *settle.Record) { r.References = []settle.Reference{{Ref: "pi_1"}} })
	e.owns(t, settle.ByRef(account, kind, "pi_1"), owner.ID)
	owner.References[0].Foreign = true
	e.commit(t, update(owner))
	e.none(t, settle.ByRef(account, kind, "pi_1"))
}

func referenceOrder(t tester, e *env) {
	refs := func(names ...string) (out []settle.Reference) {
		for _, n := range names {
			out = append(out, settle.Reference{Ref: n})
		}
		return out
	}
	r, other := e.create(t), e.create(t)
	r.References = refs("a", "b", "c")
	r = e.commit(t, update(r))[0]
	for _, step := range []struct{ has, free []string }{
		{has: []string{"b", "a", "c"}},
		{has: []string{"c", "b"}, free: []string{"a"}},
		{has: []string{"d", "c"}, free: []string{"a", "b"}},
		{has: []string{"a", "d", "c", "b"}},
		{has: []string{"b"}, free: []string{"a", "c", "d"}},
		{free: []string{"a", "b", "c", "d"}},
		{has: []string{"a", "b"}},
	} {
		r.References = refs(step.has...)
		r = e.commit(t, update(r))[0]
		for _, name := range step.has {
			by := settle.ByRef(account, kind, name)
			e.owns(t, by, r.ID)
			for _, mine := range [][]string{{name}, {"mine", name}} {
				rival := other
				rival.References = refs(mine...)
				e.refused(t, e.change(update(rival)), by, r.ID)
			}
		}
		for _, name := range step.free {
			e.none(t, settle.ByRef(account, kind, name))
		}
	}
	// It moves to another account with all of them.
	r.Account = "acme/acct-2//test"
	r = e.commit(t, update(r))[0]
	other.References = refs("b", "a")
	other = e.commit(t, update(other))[0]
	for _, name := range []string{"a", "b"} {
		e.owns(t, settle.ByRef(r.Account, kind, name), r.ID)
		e.owns(t, settle.ByRef(account, kind, name), other.ID)
	}
	if n := len(e.list(t, settle.Query{})); n != 2 {
		t.Errorf("the store has %d records, want 2", n)
	}
}

func createdAndWritten(t tester, e *env) {
	ref := []settle.Reference{{Ref: "pi_1"}}
	owner := e.create(t, func(r *settle.Record) { r.References = ref })
	r := e.record()
	next := r
	next.Version, next.References = 1, ref
	e.refused(t, e.change(create(r), update(next)), settle.ByRef(account, kind, "pi_1"), owner.ID)
	e.none(t, settle.ByID(r.ID))
	// The same reference twice is one.
	next.References = []settle.Reference{{Ref: "pi_2"}, {Ref: "pi_2"}}
	e.commit(t, create(r), update(next))
	e.owns(t, settle.ByRef(account, kind, "pi_2"), r.ID)
}

func ownNames(t tester, e *env) {
	r := e.create(t, func(r *settle.Record) {
		r.Hold = "order-1"
		r.References = []settle.Reference{{Ref: "pi_1"}}
	})
	for i := range 3 {
		r.References = append(r.References, settle.Reference{Ref: fmt.Sprint("pi_2", i)})
		r = e.commit(t, update(r))[0]
	}
	r.References = r.References[1:] // dropped one
	r = e.commit(t, update(r))[0]
	for _, by := range r.Names() {
		e.owns(t, by, r.ID)
	}
	e.none(t, settle.ByRef(account, kind, "pi_1"))
}
