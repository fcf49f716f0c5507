package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// plain is a DSN without any pragma, as in IC-33.
func plain(tb testing.TB) string { return "file:" + file(tb) }

func create(n string) settle.Change {
	return settle.Change{ID: "create-" + n, Writes: []settle.Write{{
		Record: created(n), DueIn: 30 * time.Second, Entry: settle.Entry{To: settle.StateSubmitting, Source: settle.SourceCaller},
	}}}
}

func outcome(r settle.Record) settle.Change {
	return settle.Change{ID: fmt.Sprintf("outcome-%s-%d", r.ID, r.Version), Writes: []settle.Write{{
		Record: succeeded(r), IfVersion: r.Version, DueIn: settle.Never,
		Entry: settle.Entry{From: r.State, To: settle.StateSucceeded, Fact: settle.Applied, Source: settle.SourceReply, Attempt: 1, Alarms: []string{"a b", "c"}},
	}}}
}

func conflictOf(t *testing.T, err error) *settle.ConflictError {
	t.Helper()
	require.ErrorIs(t, err, settle.ErrConflict)
	var c *settle.ConflictError
	require.ErrorAs(t, err, &c)
	return c
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{"plain": plain(t), "helper": sqlstore.DSN(file(t))} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, dsn, nil)
			before := time.Now().Add(-time.Microsecond)
			out, err := s.Commit(t.Context(), create("1"))
			require.NoError(t, err)
			require.Len(t, out, 1)
			r := out[0]
			assert.EqualValues(t, 1, r.Version)
			assert.Equal(t, r.UpdatedAt, r.CreatedAt)
			assert.Equal(t, r.AsOf.Add(30*time.Second), r.Due)
			assert.WithinRange(t, r.AsOf, before, time.Now())
			for _, by := range r.Names() {
				got, err := s.Get(t.Context(), by)
				require.NoError(t, err, by.Name)
				assert.False(t, got.AsOf.Before(r.AsOf))
				got.AsOf = r.AsOf
				assert.Equal(t, r, got) // IC-30
			}
			out, err = s.Commit(t.Context(), outcome(r))
			require.NoError(t, err)
			got, err := s.Get(t.Context(), settle.ByRef(r.Account, r.Kind, "pi_"+r.Key))
			require.NoError(t, err)
			got.AsOf = out[0].AsOf
			assert.Equal(t, out[0], got)
			assert.Zero(t, got.Due)
			assert.Equal(t, r.CreatedAt, got.CreatedAt)

			h, err := s.History(t.Context(), r.ID, 0, 0)
			require.NoError(t, err)
			require.Len(t, h, 2)
			assert.Equal(t, settle.Entry{
				Seq: 1, Operation: r.ID, Write: "create-1", At: r.CreatedAt, To: settle.StateSubmitting, Source: settle.SourceCaller,
			}, h[0])
			assert.Equal(t, []string{"a b", "c"}, h[1].Alarms)
			h, err = s.History(t.Context(), r.ID, 1, 10)
			require.NoError(t, err)
			require.Len(t, h, 1)
			assert.EqualValues(t, 2, h[0].Seq)
		})
	}
}

func TestPayloadNilAndEmpty(t *testing.T) {
	t.Parallel()
	s := openStore(t, plain(t), nil)
	for i, p := range []settle.Payload{nil, {}, {0}, []byte("\xff\x00'")} {
		c := create(fmt.Sprint(i))
		c.Writes[0].Record.Request, c.Writes[0].Record.Result = p, p
		out, err := s.Commit(t.Context(), c)
		require.NoError(t, err)
		got, err := s.Get(t.Context(), settle.ByID(out[0].ID))
		require.NoError(t, err)
		assert.Equal(t, p == nil, got.Request == nil, "%d", i)
		assert.Equal(t, []byte(p), []byte(got.Request))
		assert.Equal(t, []byte(p), []byte(got.Result))
		assert.Equal(t, out[0].Request == nil, p == nil)
	}
}

// TestIC36LongNames: what is stored is exact, and compared as bytes (IC-27, IC-36).
func TestIC36LongNames(t *testing.T) {
	t.Parallel()
	s := openStore(t, plain(t), nil)
	names := []string{
		strings.Repeat("k", 43), strings.Repeat("k", 42) + "K", strings.Repeat("😀", 63) + "abc", strings.Repeat("😀", 63) + "abd",
		"café", "cafe", "café ", "a\x00b", "a", "'; DROP TABLE settle_operation; --",
	}
	for i, name := range names {
		c := create(fmt.Sprint(i))
		r := &c.Writes[0].Record
		r.Key, r.Subject, r.Purpose, r.Hold = name, name, name, name
		r.References = []settle.Reference{{Ref: name, Rank: settle.RankSucceeded}}
		_, err := s.Commit(t.Context(), c)
		require.NoError(t, err, "%q", name)
	}
	for i, name := range names {
		for _, by := range []settle.Index{
			settle.ByKey("tenant-1", "charge", name), settle.ByIntent("tenant-1", "charge", name, name),
			settle.ByHold("tenant-1", name), settle.ByRef("stripe/acct_1/eu/test", "charge", name),
		} {
			r, err := s.Get(t.Context(), by)
			require.NoError(t, err)
			assert.Equal(t, created(fmt.Sprint(i)).ID, r.ID)
			assert.Equal(t, name, r.Key)
		}
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	s := openStore(t, plain(t), nil)
	one := create("1")
	one.Writes[0].Record.Hold = "h"
	one.Writes[0].Record.References = []settle.Reference{{Ref: "pi"}}
	out, err := s.Commit(t.Context(), one)
	require.NoError(t, err)
	r1 := out[0]
	out, err = s.Commit(t.Context(), create("2"))
	require.NoError(t, err)
	r2 := out[0]

	for name, tt := range map[string]struct {
		change func(w *settle.Write)
		index  settle.IndexName
	}{
		"id":              {func(w *settle.Write) { w.Record.ID = r1.ID }, settle.IndexID},
		"key":             {func(w *settle.Write) { w.Record.Key = r1.Key }, settle.IndexKey},
		"intent":          {func(w *settle.Write) { w.Record.Subject = r1.Subject }, settle.IndexIntent},
		"hold":            {func(w *settle.Write) { w.Record.Hold = "h" }, settle.IndexHold},
		"ref":             {func(w *settle.Write) { w.Record.References = r1.References }, settle.IndexRef},
		"first counts":    {func(w *settle.Write) { w.Record.Subject, w.Record.Key, w.Record.Hold = r1.Subject, r1.Key, "h" }, settle.IndexKey},
		"hold before ref": {func(w *settle.Write) { w.Record.References, w.Record.Hold = r1.References, "h" }, settle.IndexHold},
		"update, key":     {func(w *settle.Write) { w.Record, w.IfVersion = r2.Clone(), 1; w.Record.Key = r1.Key }, settle.IndexKey},
		"update, ref":     {func(w *settle.Write) { w.Record, w.IfVersion = r2.Clone(), 1; w.Record.References = r1.References }, settle.IndexRef},
		"version":         {func(w *settle.Write) { w.Record, w.IfVersion = r1.Clone(), 7 }, ""},
		"token":           {func(w *settle.Write) { w.Record, w.IfVersion, w.IfToken = r1.Clone(), 1, "other" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := create("3")
			c.ID = "try " + name
			tt.change(&c.Writes[0])
			_, err := s.Commit(t.Context(), c)
			got := conflictOf(t, err)
			assert.Equal(t, tt.index, got.Index.Name)
			assert.Equal(t, r1.ID, got.Existing.ID)
			assert.EqualValues(t, 1, got.Existing.Version)
			assert.NotZero(t, got.Existing.AsOf)
			assert.Equal(t, []byte(r1.Request), []byte(got.Existing.Request))
		})
	}
	_, err = s.Get(t.Context(), settle.ByID(created("3").ID))
	require.ErrorIs(t, err, settle.ErrNotFound)
	h, err := s.History(t.Context(), r2.ID, 0, 0)
	require.NoError(t, err)
	assert.Len(t, h, 1)

	// A foreign reference is not owned, so it is in nobody's way.
	c := create("3")
	c.Writes[0].Record.References = []settle.Reference{{Ref: "pi", Foreign: true}}
	_, err = s.Commit(t.Context(), c)
	require.NoError(t, err)
	// An update of a record that is not there.
	c = create("4")
	c.Writes[0].IfVersion = 1
	_, err = s.Commit(t.Context(), c)
	require.ErrorIs(t, err, settle.ErrNotFound)
}

// TestReplace: two writes in order; the second takes what the first gave up (S24).
func TestReplace(t *testing.T) {
	t.Parallel()
	s := openStore(t, plain(t), nil)
	out, err := s.Commit(t.Context(), create("1"))
	require.NoError(t, err)
	old, next := out[0].Clone(), created("2")
	old.ReplacedBy = next.ID
	next.Key, next.Subject, next.Replaces, next.Generation = old.Key, old.Subject, old.ID, 1
	c := settle.Change{ID: "replace", Writes: []settle.Write{
		{Record: old, IfVersion: 1, DueIn: settle.Keep}, {Record: next, DueIn: settle.Never},
	}}
	replaced, err := s.Commit(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, out[0].Due, replaced[0].Due)
	for _, by := range []settle.Index{settle.ByKey(old.Scope, old.Kind, old.Key), settle.ByIntent(old.Scope, old.Kind, old.Subject, old.Purpose)} {
		r, err := s.Get(t.Context(), by)
		require.NoError(t, err)
		assert.Equal(t, next.ID, r.ID)
	}
	// S26: the same change again is success, with nothing written.
	again, err := s.Commit(t.Context(), c)
	require.NoError(t, err)
	require.Len(t, again, 2)
	assert.EqualValues(t, 2, again[0].Version)
	assert.Equal(t, next.ID, again[1].ID)
	// Another change at the old version is not.
	c.ID = "other"
	_, err = s.Commit(t.Context(), c)
	assert.EqualValues(t, "", conflictOf(t, err).Index.Name)
	// Of a change whose second write is refused nothing stays.
	third := created("3")
	_, err = s.Commit(t.Context(), settle.Change{ID: "both", Writes: []settle.Write{
		{Record: third, DueIn: 0}, {Record: old, IfVersion: 1},
	}})
	_ = conflictOf(t, err)
	_, err = s.Get(t.Context(), settle.ByID(third.ID))
	require.ErrorIs(t, err, settle.ErrNotFound)
}

// TestSameChangeAgain is S26 for creations and updates, also after later writes.
func TestSameChangeAgain(t *testing.T) {
	t.Parallel()
	s := openStore(t, plain(t), nil)
	c := create("1")
	calls := 0
	c.Hook = func(context.Context, settle.Tx) error { calls++; return nil }
	out, err := s.Commit(t.Context(), c)
	require.NoError(t, err)
	o := outcome(out[0])
	_, err = s.Commit(t.Context(), o)
	require.NoError(t, err)
	for _, again := range []settle.Change{c, o} {
		out, err := s.Commit(t.Context(), again)
		require.NoError(t, err)
		assert.EqualValues(t, 2, out[0].Version)
	}
	assert.Equal(t, 1, calls)
	h, err := s.History(t.Context(), out[0].ID, 0, 0)
	require.NoError(t, err)
	assert.Len(t, h, 2)
}

func TestHook(t *testing.T) {
	t.Parallel()
	db, s := openBoth(t, plain(t), nil)
	require.NoError(t, run(db, `CREATE TABLE shipment (subject TEXT PRIMARY KEY)`))
	ship := func(ctx context.Context, tx settle.Tx) error {
		r, err := tx.Get(ctx, settle.ByKey("tenant-1", "charge", "key-1"))
		if err != nil {
			return err
		}
		if r.State != settle.StateSucceeded {
			return fmt.Errorf("sees %s", r.State)
		}
		_, err = sqlstore.Tx(tx).ExecContext(ctx, `INSERT INTO shipment VALUES (?)`, r.Subject)
		return err
	}
	out, err := s.Commit(t.Context(), create("1"))
	require.NoError(t, err)

	boom := errors.New("boom")
	o := outcome(out[0])
	o.Hook = func(ctx context.Context, tx settle.Tx) error { return errors.Join(ship(ctx, tx), boom) }
	_, err = s.Commit(t.Context(), o)
	var he *settle.HookError
	require.ErrorAs(t, err, &he)
	require.ErrorIs(t, err, boom)
	assert.Zero(t, count(t, db, `SELECT count(*) FROM shipment`))

	o.Hook = func(ctx context.Context, tx settle.Tx) error { panic(boom) }
	_, err = s.Commit(t.Context(), o)
	require.ErrorAs(t, err, &he)
	assert.NotContains(t, he.Err.Error(), "boom")

	var stale settle.Tx
	o.Hook = func(ctx context.Context, tx settle.Tx) error { stale = tx; return ship(ctx, tx) }
	_, err = s.Commit(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM shipment`))
	_, err = stale.Get(t.Context(), settle.ByID(out[0].ID))
	require.Error(t, err)
	assert.NotErrorIs(t, err, sql.ErrTxDone)

	// A hook may register further operations in the same step.
	c := create("2")
	c.Hook = func(ctx context.Context, tx settle.Tx) error {
		known := create("1")
		known.ID = "another"
		if _, err := tx.Commit(ctx, known); !errors.Is(err, settle.ErrConflict) { // refused, and undone as a whole
			return fmt.Errorf("got %w", err)
		}
		_, err := tx.Commit(ctx, create("3"))
		return err
	}
	_, err = s.Commit(t.Context(), c)
	require.NoError(t, err)
	_, err = s.Get(t.Context(), settle.ByID(created("3").ID))
	require.NoError(t, err)
	// A change of a hook alone.
	_, err = s.Commit(t.Context(), settle.Change{ID: "hook", Hook: func(ctx context.Context, tx settle.Tx) error {
		sqlTx := sqlstore.Tx(tx)
		_, err := sqlTx.ExecContext(ctx, `INSERT INTO shipment VALUES ('x')`)
		return err
	}})
	require.NoError(t, err)
	assert.Equal(t, 2, count(t, db, `SELECT count(*) FROM shipment`))
	noneOpen(t, db)
}

// TestHookEndsTheTransaction: what a hook that misbehaves did is found out by
// reading back (I15).
func TestHookEndsTheTransaction(t *testing.T) {
	t.Parallel()
	db, s := openBoth(t, plain(t), nil)
	c := create("1")
	c.Hook = func(ctx context.Context, tx settle.Tx) error { sqlTx := sqlstore.Tx(tx); return sqlTx.Commit() }
	_, err := s.Commit(t.Context(), c)
	require.NoError(t, err)
	c = create("2")
	c.Hook = func(ctx context.Context, tx settle.Tx) error { sqlTx := sqlstore.Tx(tx); return sqlTx.Rollback() }
	_, err = s.Commit(t.Context(), c)
	require.Error(t, err)
	assert.NotErrorIs(t, err, sql.ErrTxDone)
	_, err = s.Get(t.Context(), settle.ByID(created("2").ID))
	require.ErrorIs(t, err, settle.ErrNotFound)
	noneOpen(t, db)
}

func TestClaim(t *testing.T) {
	t.Parallel()
	db, s := openBoth(t, plain(t), nil)
	for i := range 6 {
		c := create(fmt.Sprint(i))
		c.Writes[0].DueIn = time.Duration(i) * time.Microsecond
		if i == 5 {
			c.Writes[0].Record.Kind = "refund"
		}
		if i == 4 {
			c.Writes[0].DueIn = time.Hour
		}
		_, err := s.Commit(t.Context(), c)
		require.NoError(t, err)
	}
	claim := func(token string, limit int, kinds ...string) []settle.Record {
		out, err := s.Claim(t.Context(), settle.Claim{Kinds: kinds, Token: token, Lease: time.Minute, Limit: limit})
		require.NoError(t, err)
		return out
	}
	assert.Empty(t, claim("a", 10))
	assert.Empty(t, claim("a", 10, "void"))
	assert.Empty(t, claim("a", 0, "charge"))
	out := claim("a", 2, "charge", "void")
	require.Len(t, out, 2)
	for i, r := range out {
		assert.Equal(t, created(fmt.Sprint(i)).ID, r.ID, "earliest first")
		assert.EqualValues(t, 2, r.Version)
		assert.Equal(t, "a", r.Token)
		assert.Equal(t, r.AsOf.Add(time.Minute), r.Due)
		got, err := s.Get(t.Context(), settle.ByID(r.ID))
		require.NoError(t, err)
		assert.True(t, got.Claimed())
		got.AsOf = r.AsOf
		assert.Equal(t, r, got)
		h, err := s.History(t.Context(), r.ID, 0, 0)
		require.NoError(t, err)
		assert.Len(t, h, 1)
	}
	assert.Len(t, claim("b", 10, "refund", "charge"), 3)
	assert.Empty(t, claim("c", 10, "refund", "charge"))

	r := out[0]
	require.NoError(t, renew(t.Context(), s, r.ID, "a", time.Hour))
	got, err := s.Get(t.Context(), settle.ByID(r.ID))
	require.NoError(t, err)
	assert.Equal(t, r.Version, got.Version)
	assert.Greater(t, got.Due.Sub(r.Due), 50*time.Minute)
	require.ErrorIs(t, renew(t.Context(), s, r.ID, "b", time.Hour), settle.ErrClaimLost)
	require.ErrorIs(t, renew(t.Context(), s, "nobody", "a", time.Hour), settle.ErrClaimLost)
	require.NoError(t, run(db, `UPDATE settle_operation SET due = due - 7200000000 WHERE id = ?`, []byte(r.ID)))
	require.ErrorIs(t, renew(t.Context(), s, r.ID, "a", time.Hour), settle.ErrClaimLost, "a dead lease is never revived")
	// S22: nor does it write.
	w := outcome(got)
	w.Writes[0].IfToken = "a"
	_, err = s.Commit(t.Context(), w)
	_ = conflictOf(t, err)
	require.Len(t, claim("d", 10, "charge"), 1)
}

func TestList(t *testing.T) {
	t.Parallel()
	s := openStore(t, plain(t), nil)
	for i := range 120 {
		c := create(fmt.Sprintf("%03d", i))
		if i%2 == 1 {
			c.Writes[0].Record.Scope = "tenant-2"
		}
		if i%3 == 0 {
			c.Writes[0].Record.State = settle.StateReview
		}
		c.Writes[0].DueIn = 0
		_, err := s.Commit(t.Context(), c)
		require.NoError(t, err)
	}
	list := func(q settle.Query) []settle.Record {
		out, err := s.List(t.Context(), q)
		require.NoError(t, err)
		for i := range out {
			assert.True(t, i == 0 || out[i-1].ID < out[i].ID)
			assert.NotZero(t, out[i].AsOf)
		}
		return out
	}
	assert.Len(t, list(settle.Query{}), 100)
	assert.Len(t, list(settle.Query{Limit: 1000}), 120)
	assert.Len(t, list(settle.Query{Scope: "tenant-2", Limit: 1000}), 60)
	assert.Len(t, list(settle.Query{Scope: "tenant-2", Kind: "charge", Subject: "order-007"}), 1)
	assert.Len(t, list(settle.Query{States: []settle.State{settle.StateReview, settle.StateFailed}}), 40)
	assert.Empty(t, list(settle.Query{States: []settle.State{settle.StateFailed}}))
	assert.Empty(t, list(settle.Query{Overdue: time.Hour}))
	assert.Len(t, list(settle.Query{Overdue: time.Microsecond, Limit: 1000}), 120)
	page := list(settle.Query{Limit: 50})
	assert.Len(t, list(settle.Query{After: page[49].ID, Limit: 1000}), 70)
}

// TestOneWinner: many callers of one intent; one creates, all learn the same record.
func TestOneWinner(t *testing.T) {
	t.Parallel()
	db, s := openBoth(t, plain(t), nil)
	db.SetMaxOpenConns(4)
	const callers = 16
	var wg sync.WaitGroup
	won := make([]bool, callers)
	for i := range callers {
		wg.Go(func() {
			c := create(fmt.Sprint(i))
			c.Writes[0].Record.Subject, c.Writes[0].Record.Key = "one", "one"
			_, err := s.Commit(t.Context(), c)
			if err == nil {
				won[i] = true
				return
			}
			var conflict *settle.ConflictError
			if assert.ErrorAs(t, err, &conflict) {
				assert.Equal(t, settle.IndexKey, conflict.Index.Name)
				assert.Equal(t, "one", conflict.Existing.Subject)
			}
		})
	}
	wg.Wait()
	n := 0
	for _, w := range won {
		if w {
			n++
		}
	}
	assert.Equal(t, 1, n)
	assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM settle_operation`))
}

// TestLostUpdate: every increment was seen by who made it.
func TestLostUpdate(t *testing.T) {
	t.Parallel()
	db, s := openBoth(t, plain(t), nil)
	db.SetMaxOpenConns(4)
	out, err := s.Commit(t.Context(), create("1"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := out[0]
			for i := 0; i < 10; {
				r.Tries++
				done, err := s.Commit(t.Context(), settle.Change{ID: fmt.Sprint("w", g, "-", i), Writes: []settle.Write{{Record: r, IfVersion: r.Version, DueIn: settle.Keep}}})
				var c *settle.ConflictError
				switch {
				case err == nil:
					r = done[0]
					i++
				case errors.As(err, &c):
					r = c.Existing
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	r, err := s.Get(t.Context(), settle.ByID(out[0].ID))
	require.NoError(t, err)
	assert.Equal(t, 80, r.Tries)
	assert.EqualValues(t, 81, r.Version)
	h, err := s.History(t.Context(), r.ID, 0, 1000)
	require.NoError(t, err)
	require.Len(t, h, 81)
	for i, e := range h {
		assert.EqualValues(t, i+1, e.Seq)
	}
}

// TestSynctest: the store's clock is the host's, so it runs in a bubble, where
// a lease ends without waiting for it.
func TestSynctest(t *testing.T) {
	t.Parallel()
	dsn := sqlstore.DSN(file(t))
	synctest.Test(t, func(t *testing.T) {
		db, err := sql.Open("sqlite", dsn)
		require.NoError(t, err)
		defer db.Close()
		require.NoError(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.SQLite()))
		s, err := sqlstore.New(db, sqlstore.SQLite(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		out, err := s.Commit(t.Context(), create("1"))
		require.NoError(t, err)
		require.NoError(t, renew(t.Context(), s, out[0].ID, "t1", time.Hour))
		time.Sleep(time.Hour - time.Microsecond)
		require.NoError(t, renew(t.Context(), s, out[0].ID, "t1", time.Hour))
		time.Sleep(time.Hour)
		require.ErrorIs(t, renew(t.Context(), s, out[0].ID, "t1", time.Hour), settle.ErrClaimLost)
		got, err := s.Claim(t.Context(), settle.Claim{Kinds: []string{"charge"}, Token: "x", Lease: time.Minute, Limit: 1})
		require.NoError(t, err)
		require.Len(t, got, 1)
		assert.Equal(t, time.Now().UTC(), got[0].AsOf)
	})
}

func count(t *testing.T, db *sql.DB, q string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), q, args...).Scan(&n))
	return n
}

// noneOpen: no connection of the pool is in a transaction.
func noneOpen(t *testing.T, db *sql.DB) {
	t.Helper()
	require.Eventually(t, func() bool { return db.Stats().InUse == 0 }, 5*time.Second, time.Millisecond)
	var conns []*sql.Conn
	for range db.Stats().OpenConnections {
		c, err := db.Conn(context.Background())
		require.NoError(t, err)
		_, err = c.ExecContext(context.Background(), `BEGIN`)
		assert.NoError(t, err, "a connection came back in a transaction")
		_, _ = c.ExecContext(context.Background(), `ROLLBACK`)
		conns = append(conns, c)
	}
	for _, c := range conns {
		_ = c.Close()
	}
}
