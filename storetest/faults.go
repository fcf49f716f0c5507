package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

func faultCases() []testCase {
	return []testCase{
		{clause: "S6", name: "commit_lost", proves: "after a commit whose answer was lost, the same change again tells what happened and makes it happen once", run: commitLost},
		{clause: "S6", name: "refusal_lost", proves: "after a refusal whose answer was lost, the same change again is refused alike", run: refusalLost},
		{clause: "S6", name: "hook_lost", proves: "a hook whose commit's answer was lost takes effect once", run: hookLost},
		{clause: "S6", name: "claim_lost", proves: "after a claim whose answer was lost, the stored token tells who holds the record, and the lease holds and ends like any other", run: claimLost},
		{clause: "S6", name: "renewal_lost", proves: "after a renewal whose answer was lost, another one by the holder settles when the lease ends", run: renewalLost},
		{clause: "S6", name: "any_call", proves: "a caller who repeats changes and reads tokens back gets to the same end, whatever call failed, before or after it took effect, or was made twice", run: anyCall},
	}
}

var errLost = errors.New("storetest: the answer was lost")

// blow is a fault with its name; made says whether the call takes effect.
type blow struct {
	name string
	x    Fault
	made bool
}

// blows are the ways in which a call can fail without a word about what happened.
func blows() []blow {
	return []blow{
		{"not made", Fault{Before: Fail(errLost)}, false},
		{"answer lost", Fault{After: Fail(errLost)}, true},
		{"made twice, answer lost", Fault{Twice: true, After: Fail(errLost)}, true},
	}
}

// lossy is e on a store whose calls fail as planned.
func (e *env) lossy(plan Plan) *env {
	o := &env{store: Wrap(e.store, plan), reopen: e.reopen, begin: e.begin}
	o.n.Store(e.n.Add(1) << 20) // ids of its own
	return o
}

func commitLost(t tester, e *env) {
	for _, b := range blows() {
		old := e.claimed(t, time.Hour)
		old.Code = b.name
		fresh := e.record()
		c := e.change(create(fresh), dueIn(ifToken(update(old), old.Token), settle.Never))
		if _, err := e.lossy(Always(OpCommit, b.x)).store.Commit(t.Context(), c); !errors.Is(err, errLost) {
			t.Fatalf("%s: got error %v, want the fault's", b.name, err)
		}
		if got := e.wrote(t, old.ID, c.ID); got != b.made {
			t.Errorf("%s: the change was applied: %v, want %v", b.name, got, b.made)
		}
		for range 2 {
			got := e.apply(t, c)
			if got[1].Code != b.name || got[1].Version != old.Version+1 || got[0].ID != fresh.ID || got[0].Version != 1 {
				t.Errorf("%s: the repeat did not return the records as they are", b.name)
			}
		}
		if n, m := len(e.history(t, old.ID)), len(e.history(t, fresh.ID)); n != 2 || m != 1 {
			t.Errorf("%s: the histories have %d and %d entries, want 2 and 1", b.name, n, m)
		}
	}
}

func refusalLost(t tester, e *env) {
	owner, stale := e.create(t), e.create(t)
	e.commit(t, update(stale))
	for _, b := range blows() {
		for _, x := range []struct {
			w     settle.Write
			index settle.Index
			id    string
		}{
			{create(e.record(func(r *settle.Record) { r.Key = owner.Key })), keyOf(&owner), owner.ID},
			{update(stale), settle.Index{}, stale.ID},
		} {
			c := e.change(create(e.record()), x.w)
			if _, err := e.lossy(Always(OpCommit, b.x)).store.Commit(t.Context(), c); !errors.Is(err, errLost) {
				t.Fatalf("%s: got error %v, want the fault's", b.name, err)
			}
			e.refused(t, c, x.index, x.id)
			e.none(t, settle.ByID(c.Writes[0].Record.ID))
		}
	}
}

func hookLost(t tester, e *env) {
	for _, b := range blows() {
		r, child := e.create(t), e.record()
		inner := e.change(create(child))
		c := e.hooked(func(ctx context.Context, tx settle.Tx) error {
			_, err := tx.Commit(ctx, inner)
			return err
		}, update(r))
		if _, err := e.lossy(Always(OpCommit, b.x)).store.Commit(t.Context(), c); !errors.Is(err, errLost) {
			t.Fatalf("%s: got error %v, want the fault's", b.name, err)
		}
		if got := len(e.history(t, child.ID)) == 1; got != b.made {
			t.Errorf("%s: the hook took effect: %v, want %v", b.name, got, b.made)
		}
		e.apply(t, c)
		if now := e.read(t, r.ID); now.Version != r.Version+1 || len(e.history(t, child.ID)) != 1 {
			t.Errorf("%s: after the repeat the record has version %d and the hook's %d entries, want %d and 1",
				b.name, now.Version, len(e.history(t, child.ID)), r.Version+1)
		}
	}
}

func claimLost(t tester, e *env) {
	for _, b := range blows() {
		r := e.due(t, 0)
		e.untilDue(t, r.ID)
		c := settle.Claim{Kinds: []string{kind}, Token: e.uuid(), Lease: time.Hour, Limit: 1}
		if _, err := e.lossy(Always(OpClaim, b.x)).store.Claim(t.Context(), c); !errors.Is(err, errLost) {
			t.Fatalf("%s: got error %v, want the fault's", b.name, err)
		}
		now := e.read(t, r.ID)
		if !b.made {
			same(t, b.name+": the record", now, r)
			c.Token = e.uuid()
			if got, err := e.store.Claim(t.Context(), c); err != nil || len(got) != 1 {
				t.Fatalf("%s: the next claim got %d records and error %v, want the one", b.name, len(got), err)
			}
			now = e.read(t, r.ID)
		}
		if now.Token != c.Token || now.Version != r.Version+1 || !now.Due.After(now.AsOf) {
			t.Fatalf("%s: the record has version %d, its token is the claim's: %v; want version %d, the token, and a lease",
				b.name, now.Version, now.Token == c.Token, r.Version+1)
		}
		if got := e.claim(t, time.Hour, 5); len(got) != 0 {
			t.Errorf("%s: the record was handed out again", b.name)
		}
		// Who reads its own token back holds the claim, and can give it up.
		if err := renew(t.Context(), e.store, r.ID, c.Token, 2*time.Hour); err != nil {
			t.Errorf("%s: Renew by the holder failed: %v", b.name, err)
		}
		e.commit(t, dueIn(ifToken(update(now), c.Token), 0))
		e.untilDue(t, r.ID)
		got := e.claim(t, time.Hour, 5)
		if len(got) != 1 || got[0].ID != r.ID {
			t.Fatalf("%s: after the lease was given up a claim handed out %d records, want the one", b.name, len(got))
		}
	}
}

func renewalLost(t tester, e *env) {
	for _, b := range blows() {
		r := e.claimed(t, time.Hour)
		if err := renew(t.Context(), e.lossy(Always(OpRenew, b.x)).store, r.ID, r.Token, 3*time.Hour); !errors.Is(err, errLost) {
			t.Fatalf("%s: got error %v, want the fault's", b.name, err)
		}
		now := e.read(t, r.ID)
		if moved := now.Due.Sub(r.Due) > time.Hour; moved != b.made {
			t.Errorf("%s: the lease was renewed: %v, want %v", b.name, moved, b.made)
		}
		if err := renew(t.Context(), e.store, r.ID, r.Token, 5*time.Hour); err != nil {
			t.Errorf("%s: the next renewal by the holder failed: %v", b.name, err)
		}
		after := e.read(t, r.ID)
		if after.Due.Sub(r.Due) < 3*time.Hour {
			t.Errorf("%s: Due is %v, want the end of the last renewal", b.name, after.Due)
		}
		after.Due = r.Due
		same(t, b.name+": the renewed record", after, r)
	}
}

// life is what an engine does with an operation: it registers, claims, renews, commits under
// its token with a hook, and gives the claim up. Whatever store answers, it only
// goes by what the contract lets it conclude. It returns the changes that it made.
func (e *env) life(t tester) (id, child string, changes []string) {
	t.Helper()
	again := func(what string, f func() error) {
		t.Helper()
		for range 3 {
			err := f()
			if err == nil {
				return
			}
			if told(err) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		t.Fatalf("%s failed again and again", what)
	}
	commit := func(what string, c settle.Change) (out settle.Record) {
		t.Helper()
		changes = append(changes, c.ID)
		again(what, func() error {
			got, err := e.store.Commit(t.Context(), c)
			if err == nil {
				out = got[0]
			}
			return err
		})
		return out
	}
	read := func(id string) (r settle.Record) {
		t.Helper()
		again("Get", func() (err error) { r, err = e.store.Get(t.Context(), settle.ByID(id)); return err })
		return r
	}
	r := commit("the creation", e.change(dueIn(create(e.record()), 0)))
	for r = read(r.ID); r.Due.After(r.AsOf); r = read(r.ID) {
		if t.Context().Err() != nil {
			t.Fatalf("the record does not become due")
		}
	}
	token := e.uuid()
	again("the claim", func() error {
		_, err := e.store.Claim(t.Context(), settle.Claim{Kinds: []string{kind}, Token: token, Lease: time.Hour, Limit: 1})
		if r = read(r.ID); r.Token == token {
			return nil
		}
		return errors.Join(err, errLost)
	})
	again("the renewal", func() error { return renew(t.Context(), e.store, r.ID, token, 2*time.Hour) })
	r.Code = "in progress"
	r = commit("the update", e.change(ifToken(update(r), token)))
	baby := e.record()
	inner := e.change(create(baby))
	r.Code, r.Token = "done", ""
	c := e.change(dueIn(ifToken(update(r), token), settle.Never))
	c.Hook = func(ctx context.Context, tx settle.Tx) error {
		_, err := tx.Commit(ctx, inner)
		return err
	}
	r = commit("the outcome", c)
	again("List", func() error {
		got, err := e.store.List(t.Context(), settle.Query{Kind: kind, Subject: r.Subject})
		if err == nil && (len(got) != 1 || got[0].ID != r.ID) {
			t.Errorf("List returned %d records, want the one", len(got))
		}
		return err
	})
	again("History", func() error {
		_, err := e.store.History(t.Context(), r.ID, 0, 10)
		return err
	})
	return r.ID, baby.ID, changes
}

func anyCall(t tester, e *env) {
	for _, b := range append(blows(), blow{name: "made twice", x: Fault{Twice: true}}) {
		for n, hit := 1, true; hit; n++ {
			hit = false
			what := fmt.Sprintf("call %d %s", n, b.name)
			id, child, changes := e.lossy(func(c Call) Fault {
				if c.N != n {
					return Fault{}
				}
				hit = true
				return b.x
			}).life(t)
			r := e.read(t, id)
			if r.Code != "done" || r.Token != "" || !r.Due.IsZero() || r.Version != 4 {
				t.Errorf("%s: the record ended as %q at version %d, want done at 4, unclaimed and never due", what, r.Code, r.Version)
			}
			var got []string
			for _, x := range e.history(t, id) {
				got = append(got, x.Write)
			}
			if !slices.Equal(got, changes) {
				t.Errorf("%s: the history has the changes %q, want each once: %q", what, got, changes)
			}
			if m := len(e.history(t, child)); m != 1 {
				t.Errorf("%s: what the hook wrote has %d entries, want 1", what, m)
			}
			if left := e.claim(t, time.Hour, 5); len(left) != 0 {
				t.Errorf("%s: %d records are left due", what, len(left))
			}
		}
	}
}
