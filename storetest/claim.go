package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

func claimCases() []testCase {
	return []testCase{
		{clause: "S30", name: "earliest_first", proves: "claims hand out what was due first, in that order, whatever the order of creation", run: earliestFirst},
		{clause: "S30", name: "limit", proves: "a claim hands out no more than its limit and leaves the rest", run: claimLimit},
		{clause: "S30", name: "kinds", proves: "a claim hands out the kinds that it names only", run: claimKinds},
		{clause: "S30", name: "except", proves: "a claim leaves the scopes that it names where they are, and they take no room in its limit", run: claimExcept},
		{clause: "S30", name: "not_due", proves: "what is due later, or never, is not handed out", run: notDue},
		{clause: "S31", name: "live_lease", proves: "a claimed record is not handed out again, nor moved by the claims of others", run: liveLease},
		{clause: "S31", name: "two_claimers", proves: "two claimers share no record and together get all", run: twoClaimers},
		{clause: "S31", name: "ended_lease", proves: "a record whose lease has ended is handed out again under the new token", run: endedLease},
		{clause: "S32", name: "sets", proves: "a claim sets token, due and version, and changes nothing else", run: claimSets},
		{clause: "S32", name: "no_entry", proves: "a claim leaves no history entry", run: claimNoEntry},
		{clause: "S40", name: "renew", proves: "a renewal moves the end of the lease, both ways, and nothing else", run: renewMoves},
		{clause: "S40", name: "renewed_is_kept", proves: "a renewed record is not handed out when its first lease would have ended", run: renewedIsKept},
		{clause: "S41", name: "wrong_token", proves: "a renewal under another token is refused and changes nothing", run: renewWrongToken},
		{clause: "S41", name: "not_claimed", proves: "a record that nobody claimed cannot be renewed", run: renewNotClaimed},
		{clause: "S41", name: "ended_lease", proves: "a lease that has ended stays ended, though nobody else claimed", run: renewEnded},
		{clause: "S41", name: "claimed_by_next", proves: "a former holder cannot renew the lease of the next", run: renewClaimedByNext},
		{clause: "S41", name: "given_up", proves: "a claim that its holder ended cannot be renewed", run: renewGivenUp},
		{clause: "S42", name: "each", proves: "claims that are renewed at once are answered one by one, in their order: those that are held are renewed, whatever the others are", run: renewEachAlone},
		{clause: "S42", name: "many", proves: "any number of claims are renewed by one call", run: renewMany},
		{clause: "S42", name: "none", proves: "a renewal of nothing succeeds", run: renewNone},
	}
}

func earliestFirst(t tester, e *env) {
	var all []settle.Record
	for _, ms := range []int{40, 10, 50, 30, 20} {
		all = append(all, e.due(t, time.Duration(ms)*time.Millisecond))
	}
	// The store's clock may be slow or the calls may be: only the Due that it
	// gave each record counts.
	slices.SortStableFunc(all, func(a, b settle.Record) int { return a.Due.Compare(b.Due) })
	e.untilDue(t, all[4].ID)
	var got []string
	for _, r := range slices.Concat(e.claim(t, time.Hour, 2), e.claim(t, time.Hour, 2), e.claim(t, time.Hour, 2)) {
		got = append(got, r.ID)
	}
	if len(got) != len(all) {
		t.Fatalf("three claims handed out %d records, want %d", len(got), len(all))
	}
	due := map[string]time.Time{}
	for _, r := range all {
		due[r.ID] = r.Due
	}
	for i, id := range got {
		if !due[id].Equal(all[i].Due) {
			t.Errorf("record %d that was handed out was due at %v, want %v", i, due[id], all[i].Due)
		}
	}
}

func claimLimit(t tester, e *env) {
	var last settle.Record
	for range 7 {
		last = e.due(t, 0)
	}
	e.untilDue(t, last.ID)
	for i, want := range []int{3, 3, 1, 0} {
		if got := e.claim(t, time.Hour, 3); len(got) != want {
			t.Errorf("claim %d with limit 3 handed out %d records, want %d", i, len(got), want)
		}
	}
}

func claimKinds(t tester, e *env) {
	ids := map[string]string{}
	for _, k := range []string{"payment", "refund", "Payment", "payment2", "void"} {
		r := e.due(t, 0, func(r *settle.Record) { r.Kind = k })
		e.untilDue(t, r.ID)
		ids[k] = r.ID
	}
	if got := e.claim(t, time.Hour, 10, "capture", "pay"); len(got) != 0 {
		t.Errorf("a claim of other kinds handed out %d records", len(got))
	}
	for _, kinds := range [][]string{{"payment"}, {"void", "refund", "void"}} {
		var got, want []string
		for _, r := range e.claim(t, time.Hour, 10, kinds...) {
			got = append(got, r.ID)
		}
		for _, k := range kinds {
			want = append(want, ids[k])
		}
		slices.Sort(got)
		slices.Sort(want)
		if want = slices.Compact(want); !slices.Equal(got, want) {
			t.Errorf("a claim of %q handed out %q, want %q", kinds, got, want)
		}
	}
}

func notDue(t tester, e *env) {
	later, never := e.due(t, time.Hour), e.create(t)
	now := e.due(t, 0)
	e.untilDue(t, now.ID)
	got := e.claim(t, time.Hour, 10)
	if len(got) != 1 || got[0].ID != now.ID {
		t.Errorf("the claim handed out %d records, want the one that is due", len(got))
	}
	same(t, "the record that is due later", e.read(t, later.ID), later)
	same(t, "the record that is never due", e.read(t, never.ID), never)
}

func liveLease(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	for range 3 {
		if got := e.claim(t, time.Hour, 10); len(got) != 0 {
			t.Errorf("a claimed record was handed out again")
		}
	}
	same(t, "the claimed record", e.read(t, r.ID), r)
}

func twoClaimers(t tester, e *env) {
	for range 6 {
		e.untilDue(t, e.due(t, 0).ID)
	}
	a, b := e.claim(t, time.Hour, 3), e.claim(t, time.Hour, 10)
	seen := map[string]bool{}
	for _, r := range append(a, b...) {
		if seen[r.ID] {
			t.Errorf("record %s was handed out twice", r.ID)
		}
		seen[r.ID] = true
	}
	if len(a) != 3 || len(b) != 3 {
		t.Errorf("the claims handed out %d and %d records, want 3 each", len(a), len(b))
	}
}

func endedLease(t tester, e *env) {
	first := e.claimed(t, time.Microsecond)
	e.untilDue(t, first.ID)
	got := e.claim(t, time.Hour, 10)
	if len(got) != 1 || got[0].ID != first.ID {
		t.Fatalf("after the lease ended a claim handed out %d records, want the one", len(got))
	}
	if got[0].Token == first.Token || got[0].Version != first.Version+1 {
		t.Errorf("the second claim has version %d, want %d, and a token of its own", got[0].Version, first.Version+1)
	}
	first.Code = "of the former holder"
	e.refused(t, e.change(ifToken(update(first), first.Token)), settle.Index{}, first.ID)
}

func claimSets(t tester, e *env) {
	r := e.full()
	r.Token = ""
	r = e.commit(t, dueIn(create(r), 0))[0]
	e.untilDue(t, r.ID)
	token := e.uuid()
	got, err := e.store.Claim(t.Context(), settle.Claim{Kinds: []string{kind}, Token: token, Lease: 90 * time.Second, Limit: 5})
	if err != nil || len(got) != 1 {
		t.Fatalf("Claim returned %d records and error %v, want one", len(got), err)
	}
	want := r
	want.Token, want.Version, want.Due = token, r.Version+1, got[0].AsOf.Add(90*time.Second)
	same(t, "the claimed record", got[0], want)
	same(t, "the stored record", e.read(t, r.ID), got[0])
}

func claimNoEntry(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	if n := len(e.history(t, r.ID)); n != 1 {
		t.Errorf("after a claim the history has %d entries, want the 1 of the creation", n)
	}
	r = e.commit(t, ifToken(update(r), r.Token))[0]
	h := e.history(t, r.ID)
	if len(h) != 2 || h[0].Seq != 1 || h[1].Seq != 3 || r.Version != 3 {
		t.Errorf("the history of a creation, a claim and a write has %d entries, want those of versions 1 and 3", len(h))
	}
}

func renewMoves(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	for _, lease := range []time.Duration{2 * time.Hour, time.Minute, 30 * time.Minute} {
		before := e.read(t, r.ID)
		if err := renew(t.Context(), e.store, r.ID, r.Token, lease); err != nil {
			t.Fatalf("Renew by the holder failed: %v", err)
		}
		after := e.read(t, r.ID)
		if after.Due.Before(before.AsOf.Add(lease)) || after.Due.After(after.AsOf.Add(lease)) {
			t.Errorf("Due is %v, want now + %v, between %v and %v", after.Due, lease, before.AsOf.Add(lease), after.AsOf.Add(lease))
		}
		want := r
		want.Due = after.Due
		same(t, "the renewed record", after, want)
	}
	if n := len(e.history(t, r.ID)); n != 1 {
		t.Errorf("renewals left %d history entries", n-1)
	}
	r.Code = "the version that the holder knows still counts"
	e.commit(t, ifToken(update(r), r.Token))
}

func renewedIsKept(t tester, e *env) {
	r := e.due(t, 0)
	// The lease must outlast the way to Renew, however slow the store is; a case
	// that came too late tries again with a longer one.
	for lease := 50 * time.Millisecond; ; lease *= 4 {
		e.untilDue(t, r.ID)
		got := e.claimOne(t, lease)
		err := renew(t.Context(), e.store, r.ID, got.Token, time.Hour)
		if errors.Is(err, settle.ErrClaimLost) && lease < 30*time.Second {
			continue
		}
		if err != nil {
			t.Fatalf("Renew by the holder failed: %v", err)
		}
		e.until(t, r.ID, func(now settle.Record) bool { return !now.AsOf.Before(got.Due) })
		if again := e.claim(t, time.Hour, 10); len(again) != 0 {
			t.Errorf("the renewed record was handed out when its first lease would have ended")
		}
		return
	}
}

func (e *env) lost(t tester, id, token string) {
	t.Helper()
	before := e.read(t, id)
	if err := renew(t.Context(), e.store, id, token, time.Hour); !errors.Is(err, settle.ErrClaimLost) {
		t.Errorf("Renew: got error %v, want ErrClaimLost", err)
	}
	same(t, "after the refused renewal, the record", e.read(t, id), before)
}

func renewWrongToken(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	e.lost(t, r.ID, e.uuid())
	e.lost(t, r.ID, r.Token[:len(r.Token)-1]+"x")
	e.lost(t, r.ID, "")
}

func renewNotClaimed(t tester, e *env) {
	for _, token := range []string{e.uuid(), ""} {
		e.lost(t, e.due(t, time.Hour).ID, token)
		e.lost(t, e.create(t).ID, token)
	}
}

func renewEnded(t tester, e *env) {
	r := e.claimed(t, time.Microsecond)
	e.untilDue(t, r.ID)
	e.lost(t, r.ID, r.Token)
	if got := e.claim(t, time.Hour, 10); len(got) != 1 {
		t.Errorf("after the refused renewal %d records are due, want 1", len(got))
	}
}

func renewClaimedByNext(t tester, e *env) {
	r := e.claimed(t, time.Microsecond)
	e.untilDue(t, r.ID)
	e.claimOne(t, time.Hour)
	e.lost(t, r.ID, r.Token)
}

func renewGivenUp(t tester, e *env) {
	r := e.claimed(t, time.Hour)
	token := r.Token
	r.Token = ""
	r = e.commit(t, dueIn(ifToken(update(r), token), time.Hour))[0]
	e.lost(t, r.ID, token)
	r.Token = token
	r = e.commit(t, dueIn(update(r), settle.Never))[0]
	e.lost(t, r.ID, token) // no Due: no lease
}

func renewEachAlone(t tester, e *env) {
	a, b, c := e.claimed(t, time.Hour), e.claimed(t, time.Hour), e.claimed(t, time.Hour)
	ended := e.claimed(t, time.Microsecond)
	e.untilDue(t, ended.ID)
	free := e.due(t, time.Hour)
	held := func(r settle.Record, token string) settle.Held { return settle.Held{ID: r.ID, Token: token} }
	asked := []settle.Held{
		held(ended, ended.Token), held(c, c.Token), held(a, b.Token),
		{ID: e.uuid(), Token: a.Token},
		held(a, a.Token), held(free, ""),
		held(b, e.uuid()), held(a, a.Token), held(free, free.Token),
		{},
	}
	renewed := []int{1, 4, 7}
	answers, err := e.store.Renew(t.Context(), asked, 3*time.Hour)
	if err != nil || len(answers) != len(asked) {
		t.Fatalf("Renew of %d claims gave %d answers and error %v, want one answer each", len(asked), len(answers), err)
	}
	for i, err := range answers {
		switch want := slices.Contains(renewed, i); {
		case want && err != nil:
			t.Errorf("claim %d is held, and the answer is %v", i, err)
		case !want && !errors.Is(err, settle.ErrClaimLost):
			t.Errorf("claim %d is nobody's, and the answer is %v, want ErrClaimLost", i, err)
		}
	}
	for _, r := range []settle.Record{a, c} {
		now := e.read(t, r.ID)
		if now.Due.Sub(r.Due) < time.Hour {
			t.Errorf("a claim that was renewed among others ends at %v, want two hours after %v", now.Due, r.Due)
		}
		now.Due = r.Due
		same(t, "the record renewed among others", now, r)
	}
	for _, r := range []settle.Record{b, ended, free} {
		same(t, "the record that was not renewed", e.read(t, r.ID), r)
	}
}

func renewMany(t tester, e *env) {
	const n = 300
	var ws []settle.Write
	for range n {
		ws = append(ws, dueIn(create(e.record()), 0))
	}
	rs := e.commit(t, ws...)
	e.untilDue(t, rs[n-1].ID)
	got := e.claim(t, time.Hour, n)
	if len(got) != n {
		t.Fatalf("the claim handed out %d records, want %d", len(got), n)
	}
	held := make([]settle.Held, n)
	for i, r := range got {
		held[i] = settle.Held{ID: r.ID, Token: r.Token}
	}
	answers, err := e.store.Renew(t.Context(), held, 3*time.Hour)
	if err != nil || len(answers) != n {
		t.Fatalf("Renew of %d claims gave %d answers and error %v", n, len(answers), err)
	}
	for i, err := range answers {
		if err != nil {
			t.Fatalf("claim %d of %d: %v", i, n, err)
		}
		if now := e.read(t, held[i].ID); now.Due.Sub(got[i].Due) < time.Hour {
			t.Fatalf("claim %d of %d ends at %v, want two hours after %v", i, n, now.Due, got[i].Due)
		}
	}
}

func renewNone(t tester, e *env) {
	if answers, err := e.store.Renew(t.Context(), nil, time.Hour); err != nil || len(answers) != 0 {
		t.Errorf("Renew of no claim gave %d answers and error %v", len(answers), err)
	}
}

func claimExcept(t tester, e *env) {
	scopes := []string{"a", "b", "A", "ab", "c", "d", "e"}
	ids := map[string][]string{}
	for _, s := range scopes { // those left out are due first
		for range 3 {
			r := e.due(t, 0, func(r *settle.Record) { r.Scope = s })
			e.untilDue(t, r.ID)
			ids[s] = append(ids[s], r.ID)
		}
	}
	claim := func(limit int, except ...string) (got []string) {
		t.Helper()
		c := settle.Claim{Kinds: []string{kind}, Except: except, Token: e.uuid(), Lease: time.Hour, Limit: limit}
		rs, err := e.store.Claim(t.Context(), c)
		if err != nil {
			t.Fatalf("Claim except %q failed: %v", except, err)
		}
		for _, r := range rs {
			got = append(got, r.ID)
		}
		return got
	}
	for i, x := range []struct {
		limit  int
		except []string
		want   []string
	}{
		{2, []string{"a", "b"}, ids["A"][:2]},
		{3, []string{"a"}, ids["b"]},
		{1, []string{"b", "nobody", "c"}, ids["a"][:1]},
		{10, []string{"a", "A", "ab", "c", "d"}, ids["e"]},
		{10, scopes, nil},
		{4, nil, append(ids["a"][1:], ids["A"][2], ids["ab"][0])},
		{10, []string{"a\x00", "ab "}, append(ids["ab"][1:], slices.Concat(ids["c"], ids["d"])...)},
	} {
		if got := claim(x.limit, x.except...); !slices.Equal(got, x.want) {
			t.Errorf("claim %d of %d except %q handed out %q, want %q", i, x.limit, x.except, got, x.want)
		}
	}
}
