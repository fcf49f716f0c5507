package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settle-go/settle"
)

func raceCases() []testCase {
	return []testCase{
		{clause: "S1", name: "one_key", proves: "of many who create one key at once one wins, and the others are shown the winner's record", run: oneKey},
		{clause: "S1", name: "many_keys", proves: "many who create many keys at once make one record of each", run: manyKeys},
		{clause: "S26", name: "one_change", proves: "one change sent many times at once is applied once, and every call succeeds", run: oneChange},
		{clause: "S1", name: "one_version", proves: "of many who update one version at once one wins", run: oneVersion},
		{clause: "S23", name: "one_reference", proves: "of many who own one reference at once, as their first or as a further one, one wins", run: oneReference},
		{clause: "S1", name: "lost_update", proves: "a counter that many writers raise loses no update", run: lostUpdate},
		{clause: "S31", name: "claim_storm", proves: "many claimers at once hand out every record once", run: claimStorm},
		{clause: "S31", name: "claim_against_write", proves: "a claim and a write on one version: one of them wins", run: claimAgainstWrite},
		{clause: "S24", name: "swaps", proves: "names that are handed on under contention always have one owner", run: swaps},
		{clause: "S1", name: "all_methods", proves: "all methods at once, on the same records, keep versions and histories whole", run: allMethods},
	}
}

const crowd = 16

func oneKey(t tester, e *env) {
	for range 5 {
		oneKeyOn(t, e, []settle.Store{e.store})
	}
}

// oneKeyOn lets a crowd, spread over handles, create one key.
func oneKeyOn(t tester, e *env, handles []settle.Store) {
	first := e.record(func(r *settle.Record) { r.Hold = "hold of " + r.ID })
	var mu sync.Mutex
	var winners, seen []string
	parallel(crowd, func(i int) {
		r := e.record(func(r *settle.Record) {
			r.Key, r.Subject, r.Purpose, r.Hold = first.Key, first.Subject, first.Purpose, first.Hold
		})
		_, err := persist(t.Context(), handles[i%len(handles)], e.change(create(r)))
		var c *settle.ConflictError
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			winners = append(winners, r.ID)
		case !errors.As(err, &c):
			t.Errorf("got error %v, want a *ConflictError", err)
		case c.Index != keyOf(&first):
			t.Errorf("the conflict names %s, want the key", name(c.Index))
		default:
			seen = append(seen, c.Existing.ID)
		}
	})
	if len(winners) != 1 {
		t.Fatalf("%d of %d created the key, want 1", len(winners), crowd)
	}
	for _, id := range seen {
		if id != winners[0] {
			t.Errorf("a loser was shown record %s, want the winner's, %s", id, winners[0])
		}
	}
	for _, h := range handles {
		if r, err := h.Get(t.Context(), keyOf(&first)); err != nil || r.ID != winners[0] {
			t.Errorf("the key belongs to %q (error %v), want the winner, %s", r.ID, err, winners[0])
		}
	}
	if n := len(e.history(t, winners[0])); n != 1 {
		t.Errorf("the winner's history has %d entries, want 1", n)
	}
}

func manyKeys(t tester, e *env) {
	const keys = 10
	var made [keys]atomic.Int64
	base := e.record()
	parallel(crowd, func(i int) {
		for n := range keys {
			k := (n + i) % keys
			r := e.record(func(r *settle.Record) { r.Key = fmt.Sprint("key of all ", k) })
			_, err := persist(t.Context(), e.store, e.change(create(r)))
			if err == nil {
				made[k].Add(1)
			} else if !errors.Is(err, settle.ErrConflict) {
				t.Errorf("got error %v, want a *ConflictError", err)
			}
		}
	})
	for k := range keys {
		if n := made[k].Load(); n != 1 {
			t.Errorf("key %d was created %d times, want once", k, n)
		}
		e.get(t, settle.ByKey(base.Scope, base.Kind, fmt.Sprint("key of all ", k)))
	}
	if n := len(e.list(t, settle.Query{})); n != keys {
		t.Errorf("the store has %d records, want %d", n, keys)
	}
}

func oneChange(t tester, e *env) {
	old := e.create(t)
	for range 5 {
		old.Tries++
		fresh := e.record()
		c := e.change(create(fresh), update(old))
		parallel(crowd, func(int) {
			got, err := persist(t.Context(), e.store, c)
			if err != nil || len(got) != 2 || got[1].Tries != old.Tries {
				t.Errorf("one of many calls with the same change: %d records and error %v, want the two as written", len(got), err)
			}
		})
		now := e.read(t, old.ID)
		if now.Version != old.Version+1 || len(e.history(t, old.ID)) != int(now.Version) || len(e.history(t, fresh.ID)) != 1 {
			t.Fatalf("the change was not applied once: version %d, want %d", now.Version, old.Version+1)
		}
		old = now
	}
}

func oneReference(t tester, e *env) {
	for round := range 5 {
		shared := fmt.Sprint("reference of all ", round)
		by := settle.ByRef(account, kind, shared)
		var all [crowd]settle.Record
		for i := range all {
			all[i] = e.create(t)
			if i%2 > 0 {
				all[i].References = []settle.Reference{{Ref: fmt.Sprint("first of ", i, " in ", round)}}
			}
			if i%4 > 1 {
				all[i] = e.commit(t, update(all[i]))[0]
			}
		}
		var mu sync.Mutex
		var winners, seen []string
		parallel(crowd, func(i int) {
			mine := all[i]
			mine.References = append(slices.Clone(mine.References), settle.Reference{Ref: shared})
			_, err := persist(t.Context(), e.store, e.change(update(mine)))
			var c *settle.ConflictError
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				winners = append(winners, mine.ID)
			case !errors.As(err, &c):
				t.Errorf("got error %v, want a *ConflictError", err)
			case c.Index != by:
				t.Errorf("the conflict names %s, want the reference", name(c.Index))
			default:
				seen = append(seen, c.Existing.ID)
			}
		})
		if len(winners) != 1 {
			t.Fatalf("%d of %d own the reference, want 1", len(winners), crowd)
		}
		for _, id := range seen {
			if id != winners[0] {
				t.Errorf("a loser was shown record %s, want the winner's, %s", id, winners[0])
			}
		}
		e.owns(t, by, winners[0])
	}
}

func oneVersion(t tester, e *env) {
	r := e.create(t)
	for range 5 {
		var wins atomic.Int64
		parallel(crowd, func(i int) {
			mine := r
			mine.Code = fmt.Sprint("writer ", i)
			_, err := persist(t.Context(), e.store, e.change(update(mine)))
			var c *settle.ConflictError
			switch {
			case err == nil:
				wins.Add(1)
			case !errors.As(err, &c) || c.Index.Name != "" || c.Existing.Version != r.Version+1:
				t.Errorf("got error %v, want a conflict that shows version %d", err, r.Version+1)
			}
		})
		if n := wins.Load(); n != 1 {
			t.Fatalf("%d of %d writers of version %d succeeded, want 1", n, crowd, r.Version)
		}
		r = e.read(t, r.ID)
	}
}

func lostUpdate(t tester, e *env) { lostUpdateOn(t, e, []settle.Store{e.store}) }

// lostUpdateOn lets writers, spread over handles, raise a counter; every one
// that succeeds must have seen a value that no other saw.
func lostUpdateOn(t tester, e *env, handles []settle.Store) {
	const writers, each = 8, 10
	start := e.create(t)
	var mu sync.Mutex
	var saw []int
	parallel(writers, func(i int) {
		s := handles[i%len(handles)]
		r := start
		for n := 0; n < each; {
			next := r
			next.Tries++
			got, err := persist(t.Context(), s, e.change(update(next)))
			var c *settle.ConflictError
			switch {
			case err == nil:
				mu.Lock()
				saw = append(saw, r.Tries)
				mu.Unlock()
				r = got[0]
				n++
			case errors.As(err, &c) && c.Existing.Version > r.Version:
				r = c.Existing
			default:
				t.Errorf("a writer of version %d failed, or was shown no later one: %v", r.Version, err)
				return
			}
		}
	})
	slices.Sort(saw)
	for i, v := range saw {
		if v != i {
			t.Fatalf("two writers, or none, succeeded from value %d", i)
		}
	}
	end := e.read(t, start.ID)
	if end.Tries != writers*each || end.Version != start.Version+writers*each {
		t.Errorf("the counter is %d at version %d, want %d at %d", end.Tries, end.Version, writers*each, start.Version+writers*each)
	}
	if n := len(e.history(t, start.ID)); n != writers*each+1 {
		t.Errorf("the history has %d entries, want %d", n, writers*each+1)
	}
}

func claimStorm(t tester, e *env) { claimStormOn(t, e, []settle.Store{e.store}) }

func claimStormOn(t tester, e *env, handles []settle.Store) {
	const rows = 60
	var ws []settle.Write
	for range rows {
		ws = append(ws, dueIn(create(e.record()), 0))
	}
	for _, r := range e.commit(t, ws...) {
		e.untilDue(t, r.ID)
	}
	var mu sync.Mutex
	holder := map[string]string{} // record → token
	silent := map[string]bool{}   // tokens of claims that ended in an error: they may have got rows (S6)
	parallel(crowd/2, func(i int) {
		s := handles[i%len(handles)]
		// A claim may come back empty because others are at work on the rest; one
		// that does so again and again was the last.
		for empty := 0; empty < 50 && t.Context().Err() == nil; empty++ {
			token := e.uuid()
			got, err := s.Claim(t.Context(), settle.Claim{Kinds: []string{kind}, Token: token, Lease: time.Hour, Limit: 3})
			mu.Lock()
			if err != nil {
				silent[token] = true
			}
			if err != nil || len(got) > 0 {
				empty = 0
			}
			if len(got) > 3 {
				t.Errorf("a claim with limit 3 handed out %d records", len(got))
			}
			for _, r := range got {
				if other, ok := holder[r.ID]; ok {
					t.Errorf("record %s was handed out to %s and to %s", r.ID, other, token)
					empty = 50 // it may go on so for ever
				}
				if r.Token != token || r.Version != 2 {
					t.Errorf("a claim handed out a record with version %d and another's token: %v, want 2 and its own", r.Version, r.Token != token)
				}
				holder[r.ID] = token
			}
			mu.Unlock()
			runtime.Gosched()
		}
	})
	for _, w := range ws {
		r := e.read(t, w.Record.ID)
		if r.Version != 2 || r.Token != holder[r.ID] && !silent[r.Token] {
			t.Errorf("record %s has version %d and not the token of its only claim", r.ID, r.Version)
		}
	}
}

func claimAgainstWrite(t tester, e *env) {
	for round := range 20 {
		r := e.due(t, 0)
		e.untilDue(t, r.ID)
		var claimed, wrote atomic.Bool
		parallel(2, func(i int) {
			if i == round%2 { // neither always begins
				got, err := e.store.Claim(t.Context(), settle.Claim{Kinds: []string{kind}, Token: e.uuid(), Lease: time.Hour, Limit: 1})
				claimed.Store(err == nil && len(got) == 1)
				return
			}
			_, err := persist(t.Context(), e.store, e.change(dueIn(update(r), settle.Never)))
			wrote.Store(err == nil)
			if err != nil && !errors.Is(err, settle.ErrConflict) {
				t.Errorf("got error %v, want a *ConflictError", err)
			}
		})
		if claimed.Load() && wrote.Load() {
			t.Fatalf("a claim and a write both succeeded on version %d", r.Version)
		}
		now := e.read(t, r.ID)
		if wrote.Load() && (now.Token != "" || !now.Due.IsZero()) || claimed.Load() && now.Token == "" {
			t.Fatalf("the record is not as the winner left it")
		}
	}
}

func swaps(t tester, e *env) {
	const writers, each = 6, 6
	base := e.create(t, func(r *settle.Record) { r.Hold = "held" })
	var done atomic.Int64
	parallel(writers, func(int) {
		for n := 0; n < each; {
			old, err := e.store.Get(t.Context(), keyOf(&base))
			if err != nil {
				// In the middle of a swap there must be an owner all the same.
				if errors.Is(err, settle.ErrNotFound) {
					t.Errorf("for a moment the key belonged to nobody")
					return
				}
				if t.Context().Err() != nil {
					return
				}
				continue
			}
			gone, next := e.replace(old)
			_, err = persist(t.Context(), e.store, e.change(update(gone), create(next)))
			now, again := e.store.Get(t.Context(), keyOf(&base))
			switch {
			case err == nil:
				n++
				done.Add(1)
			case !errors.Is(err, settle.ErrConflict):
				t.Errorf("got error %v, want a *ConflictError", err)
				return
			case again == nil && now.ID == old.ID:
				t.Errorf("a swap was refused though nobody else made one: %v", err)
				return
			}
		}
	})
	last := e.get(t, keyOf(&base))
	if int64(last.Generation) != done.Load() {
		t.Errorf("after %d swaps the owner has generation %d", done.Load(), last.Generation)
	}
	for _, by := range last.Names() {
		e.owns(t, by, last.ID)
	}
	// The chain back to the first is whole.
	for r := last; r.Replaces != ""; {
		was := e.read(t, r.Replaces)
		if was.ReplacedBy != r.ID {
			t.Fatalf("record %s replaces %s, which was replaced by %q", r.ID, was.ID, was.ReplacedBy)
		}
		r = was
	}
}

func allMethods(t tester, e *env) {
	const workers, each = 8, 30
	var all []settle.Record
	for range 4 {
		all = append(all, e.due(t, 0))
	}
	var wins [4]atomic.Int64
	work := func(ctx context.Context, i, n int) error {
		k := (i*7 + n) % len(all)
		r, err := e.store.Get(ctx, settle.ByID(all[k].ID))
		if err != nil {
			return err
		}
		if r.ID != all[k].ID || r.Key != all[k].Key {
			t.Errorf("Get returned another record")
		}
		switch (i + n) % 5 {
		case 0:
			got, err := e.store.Claim(ctx, settle.Claim{Kinds: []string{kind}, Token: e.uuid(), Lease: time.Microsecond, Limit: 2})
			for _, x := range got {
				scribbleRecord(x)
			}
			return err
		case 1:
			if err := renew(ctx, e.store, r.ID, r.Token, time.Microsecond); r.Token != "" && err != nil && !errors.Is(err, settle.ErrClaimLost) {
				return err
			}
		case 2:
			got, err := e.store.List(ctx, settle.Query{Scope: scope})
			if err == nil && len(got) != len(all) {
				t.Errorf("List returned %d records, want %d", len(got), len(all))
			}
			for _, x := range got {
				scribbleRecord(x)
			}
			return err
		case 3:
			h, err := e.store.History(ctx, r.ID, 0, 1000)
			for j, x := range h {
				if j > 0 && x.Seq <= h[j-1].Seq || x.Operation != r.ID {
					t.Errorf("entry %d of the history has Seq %d after %d", j, x.Seq, h[max(j-1, 0)].Seq)
				}
			}
			return err
		default:
			next := r.Clone()
			next.Tries++
			next.Request = append(next.Request, byte(i))
			next.Attempts = append(next.Attempts, settle.Attempt{N: len(next.Attempts) + 1, Start: r.AsOf})
			c := e.change(dueIn(update(next), 0))
			_, err := persist(ctx, e.store, c)
			scribbleRecord(next)
			if err == nil {
				wins[k].Add(1)
			} else if !errors.Is(err, settle.ErrConflict) {
				return err
			}
		}
		return nil
	}
	parallel(workers, func(i int) {
		for n := range each {
			err := work(t.Context(), i, n)
			if told(err) || err != nil && t.Context().Err() != nil {
				t.Errorf("a call failed: %v", err)
				return
			}
		}
	})
	for k, r := range all {
		now := e.read(t, r.ID)
		h := e.history(t, r.ID)
		w := int(wins[k].Load())
		if now.Tries != w || len(now.Attempts) != w || len(now.Request) != len(r.Request)+w || len(h) != w+1 {
			t.Errorf("%d writes left counter %d, %d attempts and %d entries", w, now.Tries, len(now.Attempts), len(h))
		}
		if now.Version < int64(w)+1 || len(h) > 0 && h[len(h)-1].Seq > now.Version {
			t.Errorf("the record has version %d after %d writes, less than that or than its last entry", now.Version, w)
		}
	}
}
