package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/settle-go/settle"
)

func openFile(t *testing.T, path string) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func fresh(t *testing.T, o *Options) *Store {
	t.Helper()
	s, err := New(openFile(t, filepath.Join(t.TempDir(), "app.db")), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func charge(n int) settle.Record {
	return settle.Record{
		ID: fmt.Sprintf("0192b8f4-7a6c-7000-8000-%012d", n), Scope: "shop", Kind: "charge",
		Subject: fmt.Sprintf("order-%d", n), Purpose: "purchase", Account: "acme/acct-1//live",
		Request: settle.Payload(`{"amount":1999}`), State: settle.StateCreated,
	}
}

func creation(n int) settle.Change {
	return settle.Change{ID: fmt.Sprint("create ", n), Writes: []settle.Write{{Record: charge(n)}}} // due at once
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func version(t *testing.T, s *Store, n int) int64 {
	t.Helper()
	r, err := s.Get(t.Context(), settle.ByID(charge(n).ID))
	if err != nil && !errors.Is(err, settle.ErrNotFound) {
		t.Fatal(err)
	}
	return r.Version
}

var errDisk = errors.New("input/output error")

// A failed commit is looked up, whatever its error (I15): what is not there was not done,
// and the store goes on.
func TestCommitFailsBefore(t *testing.T) {
	s := fresh(t, nil)
	fail := true
	s.commit = func(tx *bbolt.Tx) error {
		if fail {
			return errors.Join(errDisk, tx.Rollback())
		}
		return tx.Commit()
	}
	_, err := s.Commit(t.Context(), creation(1))
	if !errors.Is(err, errDisk) || errors.Is(err, settle.ErrConflict) {
		t.Errorf("got error %v, want that of the disk", err)
	}
	if v := version(t, s, 1); v != 0 {
		t.Errorf("the record has version %d, want none", v)
	}
	fail = false
	must[[]settle.Record](t)(s.Commit(t.Context(), creation(1)))

	fail = true
	claim := settle.Claim{Kinds: []string{"charge"}, Token: "mine", Lease: time.Hour, Limit: 1}
	if _, err := s.Claim(t.Context(), claim); !errors.Is(err, errDisk) {
		t.Errorf("Claim: got error %v, want that of the disk", err)
	}
	fail = false
	got := must[[]settle.Record](t)(s.Claim(t.Context(), claim))
	fail = true
	if err := renew(t.Context(), s, got[0].ID, "mine", 2*time.Hour); !errors.Is(err, errDisk) {
		t.Errorf("Renew: got error %v, want that of the disk", err)
	}
	now := must[settle.Record](t)(s.Get(t.Context(), settle.ByID(got[0].ID)))
	if now.Version != 2 || !now.Due.Equal(got[0].Due) {
		t.Errorf("the record has version %d and is due at %v, want 2 and %v", now.Version, now.Due, got[0].Due)
	}
}

// What is there although its commit failed may be lost with the power. So neither it nor
// its repeat is a success (S7, S26), until the file was opened again.
func TestCommitFailsAfter(t *testing.T) {
	lost := func(tx *bbolt.Tx) error { return errors.Join(tx.Commit(), errDisk) }
	held := func(t *testing.T, s *Store) {
		must[[]settle.Record](t)(s.Commit(t.Context(), creation(1)))
		must[[]settle.Record](t)(s.Claim(t.Context(), settle.Claim{Kinds: []string{"charge"}, Token: "mine", Lease: time.Hour, Limit: 1}))
	}
	for name, c := range map[string]struct {
		before func(*testing.T, *Store)
		call   func(context.Context, *Store) error
	}{
		"Commit": {func(*testing.T, *Store) {}, func(ctx context.Context, s *Store) error {
			_, err := s.Commit(ctx, creation(1))
			return err
		}},
		"Claim": {func(t *testing.T, s *Store) {
			must[[]settle.Record](t)(s.Commit(t.Context(), creation(1)))
		}, func(ctx context.Context, s *Store) error {
			_, err := s.Claim(ctx, settle.Claim{Kinds: []string{"charge"}, Token: "mine", Lease: time.Hour, Limit: 1})
			return err
		}},
		"Renew": {held, func(ctx context.Context, s *Store) error {
			return renew(ctx, s, charge(1).ID, "mine", 2*time.Hour)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t, nil)
			c.before(t, s)
			s.commit = lost
			if err := c.call(t.Context(), s); !errors.Is(err, errDisk) {
				t.Errorf("got error %v, want that of the disk", err)
			}
			s.commit = (*bbolt.Tx).Commit
			if err := c.call(t.Context(), s); !errors.Is(err, errBroken) {
				t.Errorf("the repeat: got error %v, want a refusal", err)
			}
			if _, err := s.Get(t.Context(), settle.ByID("x")); !errors.Is(err, errBroken) {
				t.Errorf("Get: got error %v, want a refusal", err)
			}
			path := s.db.Path()
			if err := s.db.Close(); err != nil {
				t.Fatal(err)
			}
			again := must[*Store](t)(New(openFile(t, path), nil))
			must[[]settle.Record](t)(again.Commit(t.Context(), creation(1))) // S26
			if n := len(must[[]settle.Entry](t)(again.History(t.Context(), charge(1).ID, 0, 10))); n != 1 {
				t.Errorf("the history has %d entries, want 1", n)
			}
		})
	}
}

// What a nil error reported is in the file at once: a copy made while the store is open,
// which is what a killed process leaves, has it (S7).
func TestKilled(t *testing.T) {
	s := fresh(t, nil)
	for n := range 5 {
		must[[]settle.Record](t)(s.Commit(t.Context(), creation(n)))
		left := filepath.Join(t.TempDir(), "left.db")
		if err := os.WriteFile(left, must[[]byte](t)(os.ReadFile(s.db.Path())), 0o600); err != nil {
			t.Fatal(err)
		}
		again := must[*Store](t)(New(openFile(t, left), nil))
		if v := version(t, again, n); v != 1 {
			t.Errorf("after the kill record %d has version %d, want 1", n, v)
		}
	}
}

// A database that may lose what it reported is refused, at the start and later (I1).
func TestUnsafe(t *testing.T) {
	s := fresh(t, nil)
	for _, set := range []*bool{&s.db.NoSync, &s.db.NoGrowSync} {
		*set = true
		if _, err := New(s.db, nil); err == nil {
			t.Error("New accepted a database that does not sync")
		}
		if _, err := s.Commit(t.Context(), creation(1)); err == nil {
			t.Error("Commit went on with a database that does not sync")
		}
		*set = false
	}
	must[[]settle.Record](t)(s.Commit(t.Context(), creation(1)))
}

// A file of another format is left alone.
func TestFormat(t *testing.T) {
	s := fresh(t, nil)
	if err := s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(root)).Put([]byte("format"), []byte("2"))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := New(s.db, nil); err == nil {
		t.Error("New accepted a file of another format")
	}
}

// A writer waits for the application's transaction no longer than its context (S5) and
// LockWait allow, and gives back the lock that it gets too late.
func TestLockWait(t *testing.T) {
	s := fresh(t, &Options{LockWait: time.Millisecond})
	tx := must[*bbolt.Tx](t)(s.db.Begin(true))
	if _, err := s.Commit(t.Context(), creation(1)); !errors.Is(err, settle.ErrUncommitted) {
		t.Errorf("got error %v, want ErrUncommitted", err)
	}
	s.lockWait = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Claim(ctx, settle.Claim{Kinds: []string{"charge"}, Token: "t", Lease: time.Hour, Limit: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want that of the context", err)
	}
	if v := version(t, s, 1); v != 0 { // readers do not wait
		t.Errorf("the record has version %d, want none", v)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	must[[]settle.Record](t)(s.Commit(t.Context(), creation(1)))
	if v := version(t, s, 1); v != 1 {
		t.Errorf("the record has version %d, want 1", v)
	}
}

// The hook writes the application's own buckets in the transaction of the transition: both
// or neither (I11). One that panics, or ends the transaction, is told apart by what is
// there afterwards (S27).
func TestHook(t *testing.T) {
	boom := errors.New("out of stock")
	for name, c := range map[string]struct {
		then func(tx *bbolt.Tx) error
		good bool
	}{
		"succeeds":   {func(*bbolt.Tx) error { return nil }, true},
		"fails":      {func(*bbolt.Tx) error { return boom }, false},
		"panics":     {func(*bbolt.Tx) error { panic("a secret") }, false},
		"rolls back": {func(tx *bbolt.Tx) error { return tx.Rollback() }, false},
		"commits":    {func(tx *bbolt.Tx) error { return tx.Commit() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t, nil)
			ch := creation(1)
			ch.Hook = func(_ context.Context, tx settle.Tx) error {
				raw := tx.Unwrap().(*bbolt.Tx)
				b, err := raw.CreateBucketIfNotExists([]byte("orders"))
				if err != nil {
					return err
				}
				if err := b.Put([]byte("order-1"), []byte("paid")); err != nil {
					return err
				}
				return c.then(raw)
			}
			_, err := s.Commit(t.Context(), ch)
			var hook *settle.HookError
			if errors.As(err, &hook) == c.good || (err == nil) != c.good {
				t.Errorf("got error %v", err)
			}
			if err != nil && bytes.Contains([]byte(err.Error()+hook.Err.Error()), []byte("secret")) {
				t.Errorf("the error quotes the panic: %v", hook.Err)
			}
			paid := false
			if err := s.db.View(func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte("orders"))
				paid = b != nil && string(b.Get([]byte("order-1"))) == "paid"
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if there := version(t, s, 1) == 1; there != c.good || paid != c.good {
				t.Errorf("the record is there: %v, the order is paid: %v, want both %v", there, paid, c.good)
			}
		})
	}
}

// A record that cannot be read does not stand in the way of the others (I10).
func TestUnreadable(t *testing.T) {
	s := fresh(t, nil)
	for n := range 3 {
		must[[]settle.Record](t)(s.Commit(t.Context(), creation(n)))
	}
	if err := s.db.Update(func(tx *bbolt.Tx) error {
		t := step{tx: tx}
		return t.bucket(bucketRecord).Put([]byte(charge(0).ID), []byte("{"))
	}); err != nil {
		t.Fatal(err)
	}
	claim := settle.Claim{Kinds: []string{"charge"}, Token: "mine", Lease: time.Microsecond, Limit: 2}
	if got := must[[]settle.Record](t)(s.Claim(t.Context(), claim)); len(got) != 1 || got[0].ID != charge(1).ID {
		t.Errorf("the first claim handed out %v", got)
	}
	claim.Lease = time.Hour
	if got := must[[]settle.Record](t)(s.Claim(t.Context(), claim)); len(got) == 0 {
		t.Error("the second claim handed out nothing")
	}
	if _, err := s.Get(t.Context(), settle.ByID(charge(0).ID)); !errors.Is(err, settle.ErrCorrupt) {
		t.Errorf("got error %v, want ErrCorrupt", err)
	}
	alone := fresh(t, nil)
	must[[]settle.Record](t)(alone.Commit(t.Context(), creation(0)))
	if err := alone.db.Update(func(tx *bbolt.Tx) error {
		t := step{tx: tx}
		return t.bucket(bucketRecord).Put([]byte(charge(0).ID), []byte("{"))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := alone.Claim(t.Context(), claim); !errors.Is(err, settle.ErrCorrupt) {
		t.Errorf("got error %v, want ErrCorrupt", err)
	}
}

// What the caller does with its payload after a Commit in a transaction of its own, and
// before that transaction commits, is not stored (S3): bbolt copies keys, not values.
func TestCallerKeepsItsMemory(t *testing.T) {
	s := fresh(t, nil)
	tx := must[*bbolt.Tx](t)(s.db.Begin(true))
	c := creation(1)
	c.Writes[0].Record.Result = settle.Payload("result")
	must[[]settle.Record](t)(s.In(tx).Commit(t.Context(), c))
	for _, p := range []settle.Payload{c.Writes[0].Record.Request, c.Writes[0].Record.Result} {
		for i := range p {
			p[i] = 'x'
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r := must[settle.Record](t)(s.Get(t.Context(), settle.ByID(charge(1).ID)))
	if string(r.Request) != `{"amount":1999}` || string(r.Result) != "result" {
		t.Error("the stored payloads are what the caller's memory became")
	}
}

// The clock is read when the lock is there: a writer that waited for it has a time after the
// wait (S4). Whether a goroutine waits already cannot be seen, so it is tried many times.
func TestClockAfterTheWait(t *testing.T) {
	s := fresh(t, nil)
	for n := range 30 {
		tx := must[*bbolt.Tx](t)(s.db.Begin(true))
		got := make(chan settle.Record)
		go func() {
			rs, err := s.Commit(context.WithoutCancel(t.Context()), creation(n))
			if err != nil {
				rs = make([]settle.Record, 1)
			}
			got <- rs[0]
		}()
		for range 100 {
			runtime.Gosched()
		}
		before := clock()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if r := <-got; r.AsOf.Before(before) {
			t.Fatalf("the record was written at %v, while another had the lock until %v", r.AsOf, before)
		}
	}
}

// renew renews one claim.
func renew(ctx context.Context, s settle.Store, id, token string, lease time.Duration) error {
	said, err := s.Renew(ctx, []settle.Held{{ID: id, Token: token}}, lease)
	if err != nil {
		return err
	}
	return said[0]
}
