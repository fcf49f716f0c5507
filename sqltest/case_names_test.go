package sqltest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// TestIC27_Names (IC-27, IC-36): names that a collation folds, pads or cuts are two names on every database: as keys, subjects,
// purposes, holds, references, scopes and kinds. What is stored is exact.
func TestIC27_Names(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		_, s := d.open(t, d.fresh(t), nil)
		names := []string{
			"api_4qD329Bz", "api_4qd329bz", "café", "cafe", "cafe ", "cafe\t", "STRASSE", "straße", "strasse", "a\x00b", "a\x00", "a", "A",
			strings.Repeat("k", 43), strings.Repeat("k", 42) + "K", strings.Repeat("😀", 63) + "abc", strings.Repeat("😀", 63) + "abd", "a%", "a_",
			"'; DROP TABLE settle_operation; --", `a\`, `a\\`,
		}
		short := func(s string) string { return s[:min(len(s), settle.MaxKind)] }
		at := func(i int) settle.Record {
			r := created(fmt.Sprint(i))
			n := names[i]
			r.Key, r.Subject, r.Purpose, r.Hold = n, n, n[:min(len(n), settle.MaxPurpose)], n
			r.References = []settle.Reference{{Ref: n, Rank: settle.RankSucceeded}}
			return r
		}
		for i, name := range names {
			_, err := s.Commit(t.Context(), settle.Change{ID: fmt.Sprint("c", i), Writes: []settle.Write{{Record: at(i), DueIn: settle.Never}}})
			require.NoError(t, err, "%q", name)
		}
		for i, name := range names {
			want := at(i)
			for _, by := range want.Names() {
				r, err := s.Get(t.Context(), by)
				require.NoError(t, err, "%q by %s", name, by.Name)
				assert.Equal(t, want.ID, r.ID, "%q by %s", name, by.Name)
				assert.Equal(t, name, r.Key)
			}
		}
		// Tenants and kinds.
		for i, pair := range [][2]string{{"Tenant", "tenant"}, {"café", "cafe"}, {"t ", "t"}} {
			for k, name := range pair {
				r := created(fmt.Sprint("t", i, k))
				r.Scope, r.Kind, r.Key, r.Subject = name, short(name), "same", "same"
				_, err := s.Commit(t.Context(), settle.Change{ID: r.ID, Writes: []settle.Write{{Record: r, DueIn: settle.Never}}})
				require.NoError(t, err, "%q", name)
			}
			for k, name := range pair {
				r, err := s.Get(t.Context(), settle.ByKey(name, short(name), "same"))
				require.NoError(t, err)
				assert.Equal(t, created(fmt.Sprint("t", i, k)).ID, r.ID)
				out, err := s.List(t.Context(), settle.Query{Scope: name})
				require.NoError(t, err)
				assert.Len(t, out, 1)
			}
		}
	})
}

// TestIC31_TooLong (IC-31, IC-34): a key that is too long, or holds a control character, is refused alike on every database
// before it gets there; and what a database itself refuses is an error, never a conflict, and is never cut.
func TestIC31_TooLong(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		db, s := d.open(t, d.fresh(t), nil)
		p := newPayments(t, s, nil, nil)
		long := strings.Repeat("k", 299)
		for _, key := range []string{long + "a", long + "b", "a\x00b", strings.Repeat("😀", 64)} {
			op := pay("order")
			op.Key = key
			_, err := p.Execute(t.Context(), op)
			require.ErrorIs(t, err, settle.ErrInvalid)
		}
		assert.Zero(t, p.calls("order"))
		assert.Zero(t, count(t, db, `SELECT count(*) FROM settle_operation`))

		// Past the core's checks.
		for i, end := range []string{"a", "b"} {
			c := create(fmt.Sprint(i))
			c.Writes[0].Record.Key = long + end
			_, err := s.Commit(t.Context(), c)
			if err != nil {
				assert.NotErrorIs(t, err, settle.ErrConflict)
				assert.NotErrorIs(t, err, settle.ErrNotFound)
				continue
			}
			got, err := s.Get(t.Context(), settle.ByKey("tenant-1", "charge", long+end))
			require.NoError(t, err)
			assert.Equal(t, c.Writes[0].Record.ID, got.ID)
		}
		if d.name == "MySQL" {
			assert.Zero(t, count(t, db, `SELECT count(*) FROM settle_operation`))
		}
	})
}

type note struct {
	Note string
	Raw  []byte
}

// TestIC34_NUL (IC-34): NULs in a request and a result reach the provider and come back byte for byte.
func TestIC34_NUL(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		dsn := d.fresh(t)
		_, s := d.open(t, dsn, nil)
		want := note{Note: "a\x00b\u2028\ufffd", Raw: []byte{0, 1, 0xff, 0}}
		var got []note
		exec := func(s settle.Store) (settle.Outcome[note], error) {
			e, err := settle.Open(s, nil)
			require.NoError(t, err)
			x, err := settle.New(e, "note", settle.Adapter[note, note]{
				Promise:   acontract(),
				TermsFunc: func(settle.Operation[note]) settle.Terms { return settle.Terms{} },
				SubmitFunc: func(_ context.Context, c *settle.Call[note]) (settle.Observation[note], error) {
					_ = c.Key()
					got = append(got, c.Request)
					return settle.Observation[note]{Fact: settle.Applied, Ref: "n_1", Result: want}, nil
				},
			}, nil)
			require.NoError(t, err)
			return x.Execute(t.Context(), settle.Operation[note]{Scope: "s", Subject: "o", Purpose: "p", Request: want})
		}
		first, err := exec(s)
		require.NoError(t, err)
		_, other := d.open(t, dsn, nil)
		second, err := exec(other)
		require.NoError(t, err)
		assert.Equal(t, []note{want}, got)
		for _, out := range []settle.Outcome[note]{first, second} {
			r, ok := out.Result()
			assert.True(t, ok)
			assert.Equal(t, want, r)
		}

		for i, p := range []settle.Payload{{0}, []byte("a\x00b"), []byte(`{"note":"a\u0000b"}`), []byte("\xff\xfe\x00'\\"), {}} {
			c := create(fmt.Sprint(i))
			c.Writes[0].Record.Request, c.Writes[0].Record.Result = p, p
			_, err := s.Commit(t.Context(), c)
			require.NoError(t, err)
			r, err := other.Get(t.Context(), settle.ByID(c.Writes[0].Record.ID))
			require.NoError(t, err)
			assert.Equal(t, []byte(p), []byte(r.Request))
			assert.Equal(t, []byte(p), []byte(r.Result))
		}
	})
}

// TestIC29_Instants (IC-29, IC-30): instants are kept in microseconds and never rounded: a lease has its stated length, what is due
// now is due at once, the last moment of a year stays in it; and the record that a commit returns is the one that
// everybody reads, byte for byte.
func TestIC29_Instants(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		dsn := d.fresh(t)
		_, s := d.open(t, dsn, nil)
		_, other := d.open(t, dsn, nil)
		last := time.Date(2026, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
		c := create("1")
		c.Writes[0].Record.Attempts[0].Start = last
		c.Writes[0].Record.RetryAt = last
		c.Writes[0].DueIn = time.Second
		out, err := s.Commit(t.Context(), c)
		require.NoError(t, err)
		same := func(want settle.Record) settle.Record {
			got, err := other.Get(t.Context(), settle.ByID(want.ID))
			require.NoError(t, err)
			a, err := settle.EncodeRecord(want)
			require.NoError(t, err)
			b, err := settle.EncodeRecord(got)
			require.NoError(t, err)
			assert.Equal(t, string(a), string(b))
			at := got.AsOf
			got.AsOf = want.AsOf
			assert.Equal(t, want, got)
			got.AsOf = at
			return got
		}
		got := same(out[0])
		assert.Equal(t, last, got.Attempts[0].Start)
		assert.Equal(t, last, got.RetryAt)
		assert.Equal(t, time.Second, got.Due.Sub(got.UpdatedAt))
		out, err = s.Commit(t.Context(), outcome(out[0]))
		require.NoError(t, err)
		same(out[0])

		c = create("2")
		c.Writes[0].DueIn = 0
		out, err = s.Commit(t.Context(), c)
		require.NoError(t, err)
		same(out[0])
		assert.Equal(t, out[0].UpdatedAt, out[0].Due)
		claimed, err := other.Claim(t.Context(), settle.Claim{Kinds: []string{"charge"}, Token: "x", Lease: time.Second, Limit: 1})
		require.NoError(t, err)
		require.Len(t, claimed, 1, "due at once")
		assert.Equal(t, time.Second, claimed[0].Due.Sub(claimed[0].AsOf))
		same(claimed[0])
	})
}

// TestBatchNames (IC-36): what is exact for one change is in a batch, whose parameters are texts.
func TestBatchNames(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		r := d.dammed(t, d.fresh(t), nil)
		names := []string{`a"b`, `a\`, `\x61`, `\\`, `"`, `{,}`, "NULL", "'", "a\x00", "\x7f", "\x01\x1f", "ÿ\xff"}
		round := 0
		at := func(i int) settle.Change {
			c := create(fmt.Sprint("n", round, "-", i))
			n := &c.Writes[0].Record
			n.Scope, n.Key, n.Subject, n.Purpose, n.Hold, n.Request = fmt.Sprint("s", round), names[i], names[i], names[i], names[i], settle.Payload(names[i])
			return c
		}
		got := r.batch(t, func() (all []settle.Change) {
			round++
			for i := range names {
				all = append(all, at(i))
			}
			return all
		}, nil, nil)
		for i, name := range names {
			require.NoError(t, got[i].err, "%q", name)
			want := at(i).Writes[0].Record
			for _, by := range want.Names() {
				r, err := r.store.Get(t.Context(), by)
				require.NoError(t, err, "%q by %s", name, by.Name)
				assert.Equal(t, []string{want.ID, name, name, name, name, name}, []string{r.ID, r.Key, r.Subject, r.Purpose, r.Hold, string(r.Request)})
			}
		}
	})
}
