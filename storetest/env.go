package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settle-go/settle"
)

// env is what a case works on: a store of its own, and helpers that end the
// case when the store does not do the ordinary thing.
type env struct {
	store  settle.Store
	reopen func() settle.Store
	begin  func() (tx settle.Tx, commit, rollback func() error)
	n      atomic.Int64
}

// uuid returns a new id, the same ones in every run.
func (e *env) uuid() string { return uuidOf(e.n.Add(1)) }

func uuidOf(n int64) string { return fmt.Sprintf("5e771e00-0000-4000-8000-%012x", n) }

const (
	scope   = "tenant-1"
	kind    = "payment"
	account = "acme/acct-1//live"
)

// record returns a plain record that was never stored, with names of its own.
func (e *env) record(edit ...func(*settle.Record)) settle.Record {
	n := e.n.Add(1)
	r := settle.Record{
		ID: uuidOf(n), Scope: scope, Kind: kind,
		Key: fmt.Sprintf("key-%d", n), Subject: fmt.Sprintf("order-%d", n), Purpose: "purchase",
		Account: account, Request: settle.Payload(`{"order":1}`), State: settle.StateCreated,
	}
	for _, f := range edit {
		f(&r)
	}
	return r
}

func entry() settle.Entry {
	return settle.Entry{To: settle.StateCreated, Source: settle.SourceCaller, Disposition: settle.DispositionControl}
}

// create and update are the ordinary writes: due never, and due as it was.
func create(r settle.Record) settle.Write {
	return settle.Write{Record: r, DueIn: settle.Never, Entry: entry()}
}

func update(r settle.Record) settle.Write {
	return settle.Write{Record: r, IfVersion: r.Version, DueIn: settle.Keep, Entry: entry()}
}

func dueIn(w settle.Write, d time.Duration) settle.Write {
	w.DueIn = d
	return w
}

func ifToken(w settle.Write, token string) settle.Write {
	w.IfToken = token
	return w
}

func (e *env) change(ws ...settle.Write) settle.Change {
	return settle.Change{ID: e.uuid(), Writes: ws}
}

// commit makes the writes, which nothing stands against.
func (e *env) commit(t tester, ws ...settle.Write) []settle.Record {
	t.Helper()
	return e.apply(t, e.change(ws...))
}

func (e *env) apply(t tester, c settle.Change) []settle.Record {
	t.Helper()
	out, err := e.store.Commit(t.Context(), c)
	if err != nil {
		t.Fatalf("Commit of %d writes failed: %v", len(c.Writes), err)
	}
	if len(out) != len(c.Writes) {
		t.Fatalf("Commit returned %d records for %d writes", len(out), len(c.Writes))
	}
	return out
}

// create stores a new record, never due.
func (e *env) create(t tester, edit ...func(*settle.Record)) settle.Record {
	t.Helper()
	return e.commit(t, create(e.record(edit...)))[0]
}

// due stores a new record that is due after d.
func (e *env) due(t tester, d time.Duration, edit ...func(*settle.Record)) settle.Record {
	t.Helper()
	return e.commit(t, dueIn(create(e.record(edit...)), d))[0]
}

// claimed stores a new record and claims it.
func (e *env) claimed(t tester, lease time.Duration) settle.Record {
	t.Helper()
	r := e.due(t, 0)
	e.untilDue(t, r.ID)
	got := e.claimOne(t, lease)
	if got.ID != r.ID {
		t.Fatalf("Claim of the only due record returned another")
	}
	return got
}

// claimOne claims the record of the ordinary kind that is due first.
func (e *env) claimOne(t tester, lease time.Duration) settle.Record {
	t.Helper()
	got := e.claim(t, lease, 1)
	if len(got) != 1 {
		t.Fatalf("Claim returned %d records, want 1", len(got))
	}
	return got[0]
}

// claim claims records of the ordinary kind under a fresh token.
func (e *env) claim(t tester, lease time.Duration, limit int, kinds ...string) []settle.Record {
	t.Helper()
	if len(kinds) == 0 {
		kinds = []string{kind}
	}
	out, err := e.store.Claim(t.Context(), settle.Claim{Kinds: kinds, Token: e.uuid(), Lease: lease, Limit: limit})
	if err != nil {
		t.Fatalf("Claim failed: %v", err)
	}
	return out
}

func (e *env) get(t tester, by settle.Index) settle.Record {
	t.Helper()
	r, err := e.store.Get(t.Context(), by)
	if err != nil {
		t.Fatalf("Get by %s failed: %v", name(by), err)
	}
	return r
}

// read returns the record with the id.
func (e *env) read(t tester, id string) settle.Record {
	t.Helper()
	return e.get(t, settle.ByID(id))
}

// none checks that no record has the name.
func (e *env) none(t tester, by settle.Index) {
	t.Helper()
	if r, err := e.store.Get(t.Context(), by); !errors.Is(err, settle.ErrNotFound) {
		t.Errorf("Get by %s: got record %q and error %v, want ErrNotFound", name(by), r.ID, err)
	}
}

// owns checks that the record with the id is found under the name.
func (e *env) owns(t tester, by settle.Index, id string) {
	t.Helper()
	r, err := e.store.Get(t.Context(), by)
	if err != nil || r.ID != id {
		t.Errorf("Get by %s: got record %q and error %v, want record %q", name(by), r.ID, err, id)
	}
}

func (e *env) list(t tester, q settle.Query) []settle.Record {
	t.Helper()
	out, err := e.store.List(t.Context(), q)
	if err != nil {
		t.Fatalf("List failed: %v", err)
	}
	return out
}

// history returns all entries of an operation.
func (e *env) history(t tester, id string) []settle.Entry {
	t.Helper()
	out, err := e.store.History(t.Context(), id, 0, 10_000)
	if err != nil {
		t.Fatalf("History failed: %v", err)
	}
	return out
}

// conflict checks that err is a conflict over the index with that record.
func conflict(t tester, err error, index settle.Index, id string) *settle.ConflictError {
	t.Helper()
	var c *settle.ConflictError
	if !errors.As(err, &c) {
		t.Fatalf("got error %v, want a *ConflictError", err)
	}
	if !errors.Is(err, settle.ErrConflict) {
		t.Errorf("the *ConflictError does not match ErrConflict")
	}
	if c.Index != index {
		t.Errorf("the conflict names %s, want %s", name(c.Index), name(index))
	}
	if c.Existing.ID != id {
		t.Errorf("the conflict shows record %q, want %q", c.Existing.ID, id)
	}
	return c
}

// refused checks that c is a conflict and that nothing of it was written: not
// the records that it names, not their histories, nothing new.
func (e *env) refused(t tester, c settle.Change, index settle.Index, id string) {
	t.Helper()
	type was struct {
		r       settle.Record
		err     error
		history []settle.Entry
	}
	look := func(id string) was {
		r, err := e.store.Get(t.Context(), settle.ByID(id))
		if err != nil && !errors.Is(err, settle.ErrNotFound) {
			t.Fatalf("Get failed: %v", err)
		}
		return was{r, err, e.history(t, id)}
	}
	before := make([]was, len(c.Writes))
	for i, w := range c.Writes {
		before[i] = look(w.Record.ID)
	}
	owner := e.read(t, id)
	_, err := e.store.Commit(t.Context(), c)
	got := conflict(t, err, index, id)
	same(t, "the conflict's Existing", got.Existing, owner)
	for i, w := range c.Writes {
		after := look(w.Record.ID)
		if errors.Is(before[i].err, settle.ErrNotFound) {
			if after.err == nil {
				t.Errorf("write %d of the refused change created its record", i)
			}
		} else {
			same(t, fmt.Sprintf("after the refused change, record %d", i), after.r, before[i].r)
		}
		sameEntries(t, after.history, before[i].history)
	}
	same(t, "after the refused change, the owner", e.read(t, id), owner)
}

// untilDue polls the store until its own clock has passed the record's Due.
func (e *env) untilDue(t tester, id string) {
	t.Helper()
	e.until(t, id, func(r settle.Record) bool {
		if r.Due.IsZero() {
			t.Fatalf("record %s has no Due", id)
		}
		return !r.Due.After(r.AsOf)
	})
}

// until polls a record until it, or the store's clock, is as awaited.
func (e *env) until(t tester, id string, done func(r settle.Record) bool) settle.Record {
	t.Helper()
	moved, last := time.Now(), time.Time{}
	for {
		r := e.read(t, id)
		if done(r) {
			return r
		}
		if !r.AsOf.Equal(last) {
			moved, last = time.Now(), r.AsOf
		}
		if time.Since(moved) > standstill || t.Context().Err() != nil {
			t.Fatalf("the store's clock does not move on from %v", last)
		}
		runtime.Gosched()
	}
}

// within runs f in a goroutine, reports what it found wrong, and gives up waiting
// for it when the case's time is over: f calls under a context that ends long before.
func within(t tester, f func() string) {
	t.Helper()
	done := make(chan string, 1)
	go func() { done <- f() }()
	select {
	case wrong := <-done:
		if wrong != "" {
			t.Errorf("%s", wrong)
		}
	case <-t.Context().Done():
		t.Errorf("a call did not return when its context was done")
	}
}

// persist makes c and repeats it under the same id while the store gives
// errors that say nothing (S6).
func persist(ctx context.Context, s settle.Store, c settle.Change) ([]settle.Record, error) {
	for {
		out, err := s.Commit(ctx, c)
		if err == nil && len(out) != len(c.Writes) {
			return nil, fmt.Errorf("storetest: Commit returned %d records for %d writes", len(out), len(c.Writes))
		}
		if err == nil || told(err) || ctx.Err() != nil {
			return out, err
		}
		runtime.Gosched()
	}
}

// told reports whether the error is one that the contract lists.
func told(err error) bool {
	var hook *settle.HookError
	return errors.Is(err, settle.ErrConflict) || errors.Is(err, settle.ErrNotFound) ||
		errors.Is(err, settle.ErrClaimLost) || errors.As(err, &hook)
}

// parallel runs f n times at once and waits. f must not call Fatalf.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func name(by settle.Index) string {
	if by.Name == "" {
		return "no index"
	}
	return fmt.Sprintf("%s %q", by.Name, by.Parts)
}

// renew renews one claim.
func renew(ctx context.Context, s settle.Store, id, token string, lease time.Duration) error {
	answers, err := s.Renew(ctx, []settle.Held{{ID: id, Token: token}}, lease)
	if err == nil && len(answers) != 1 {
		return fmt.Errorf("%d answers for one claim", len(answers))
	}
	if err != nil {
		return err
	}
	return answers[0]
}
