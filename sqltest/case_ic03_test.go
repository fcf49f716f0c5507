package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// ic03Database is one on which IC-03 runs.
type ic03Database struct {
	// open returns a store on a new and empty database, through a driver that can lose answers
	// (openFaultyDriver).
	open func(t *testing.T) (*sqlstore.Store, *faults)
	// bubble: the database's clock is the process's and it waits for no network, so that
	// hours of a testing/synctest bubble pass for it too.
	bubble bool
	// single: a step is one statement, which commits by itself. Then database/sql repeats all of it.
	single bool
}

func ic03Databases() map[string]ic03Database {
	return map[string]ic03Database{
		"SQLite": {bubble: true, open: func(t *testing.T) (*sqlstore.Store, *faults) {
			_, s, f := faultyStore(t)
			return s, f
		}},
		"PostgreSQL": {single: true, open: func(t *testing.T) (*sqlstore.Store, *faults) {
			db, f := openFaultyDriver(t, stdlib.GetDefaultDriver(), pgSchema(t))
			return ic03Store(t, db, sqlstore.PostgreSQL()), f
		}},
		"MySQL": {open: func(t *testing.T) (*sqlstore.Store, *faults) {
			db, f := openFaultyDriver(t, mysql.MySQLDriver{}, mysqlDatabase(t).FormatDSN())
			return ic03Store(t, db, sqlstore.MySQL()), f
		}},
	}
}

func ic03Store(t *testing.T, db *sql.DB, d sqlstore.Dialect) *sqlstore.Store {
	t.Helper()
	require.NoError(t, sqlstore.EnsureSchema(t.Context(), db, d))
	s, err := sqlstore.New(db, d, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ic03Fault makes the driver carry out the n-th statement from now and then report a bad
// connection, once. n counts down over several uses of one fault.
type ic03Fault struct {
	f    *faults
	n    int
	lost string // that statement, "" as long as there were fewer
}

// disturb makes a call to which it happens.
func (x *ic03Fault) disturb(call func()) {
	x.f.set(func(text string, done bool) error {
		if !done {
			return nil
		}
		if x.n--; x.n != 0 {
			return nil
		}
		x.lost = text
		return driver.ErrBadConn
	})
	call()
	x.f.set(nil)
}

// TestIC03_OwnerOfTheRow (IC-03, I5, I15): the calls of a store that a claimant makes. A statement
// was carried out, its driver reports a bad connection, and database/sql repeats it, silently
// or after the store began anew. Whichever statement it is, COMMIT included: whoever
// created with a claim, or claimed what was over, is the owner and knows the row's
// version, which grows by one for each call.
func TestIC03_OwnerOfTheRow(t *testing.T) {
	t.Parallel()
	for name, db := range ic03Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := db.open(t)
			var lost []string
			for n := 1; ; n++ {
				text := ic03Life(t, s, f, fmt.Sprint(n), n)
				if text == "" {
					break
				}
				lost = append(lost, firstLine(text))
			}
			ic03Lost(t, db, lost)
		})
	}
}

// ic03Life is a record's life, in which the answer to the n-th statement is lost.
func ic03Life(t *testing.T, s *sqlstore.Store, f *faults, order string, n int) string {
	t.Helper()
	fault := &ic03Fault{f: f, n: n}
	do := func(what string, call func() error) {
		t.Helper()
		var err error
		fault.disturb(func() { err = call() })
		require.NoErrorf(t, err, "%s, when the answer to %q was lost", what, fault.lost)
	}
	commit := func(what string, r settle.Record, w settle.Write) settle.Record {
		t.Helper()
		w.Record, w.IfVersion = r, r.Version
		var out []settle.Record
		do(what, func() (err error) {
			out, err = s.Commit(t.Context(), settle.Change{ID: what + " " + order, Writes: []settle.Write{w}})
			return err
		})
		require.Len(t, out, 1)
		require.Equalf(t, r.Version+1, out[0].Version, "version after %s, when the answer to %q was lost", what, fault.lost)
		return out[0]
	}

	r := created(order)
	r.Version = 0
	r = commit("creation", r, settle.Write{DueIn: time.Microsecond})
	require.Equal(t, "t"+order, r.Token)
	for { // until the lease is over
		now, err := s.Get(t.Context(), settle.ByID(r.ID))
		require.NoError(t, err)
		if !now.Claimed() {
			break
		}
	}
	var claimed []settle.Record
	do("claim", func() (err error) {
		claimed, err = s.Claim(t.Context(), settle.Claim{Kinds: []string{"charge"}, Token: "mine", Lease: time.Hour, Limit: 5})
		return err
	})
	require.Len(t, claimed, 1, "when the answer to %q was lost", fault.lost)
	require.EqualValues(t, 2, claimed[0].Version)
	do("renewal", func() error { return renew(t.Context(), s, r.ID, "mine", 2*time.Hour) })
	r = claimed[0]
	r.Attempts = append(r.Attempts, settle.Attempt{N: 2, Start: r.AsOf, Grace: time.Minute})
	r = commit("attempt", r, settle.Write{IfToken: "mine", DueIn: settle.Keep})
	require.True(t, r.Claimed() && r.Due.Sub(r.AsOf) > time.Hour, "the renewal is gone")
	r = commit("outcome", succeeded(r), settle.Write{IfToken: "mine", DueIn: settle.Never})

	now, err := s.Get(t.Context(), settle.ByID(r.ID))
	require.NoError(t, err)
	assert.EqualValues(t, 4, now.Version)
	assert.Len(t, now.Attempts, 2)
	h, err := s.History(t.Context(), r.ID, 0, 10)
	require.NoError(t, err)
	var seqs []int64
	for _, x := range h {
		seqs = append(seqs, x.Seq)
	}
	assert.Equal(t, []int64{1, 3, 4}, seqs, "when the answer to %q was lost", fault.lost)
	return fault.lost
}

func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return text
}

// ic03Lost shows what was lost, and that it was not nothing.
func ic03Lost(t *testing.T, db ic03Database, lost []string) {
	t.Helper()
	t.Logf("answers lost, one in each run:\n%s", strings.Join(lost, "\n"))
	assert.GreaterOrEqual(t, len(lost), 5, "one for each step at least")
	if !db.single {
		assert.Contains(t, lost, "COMMIT")
	}
}

// ic03Case is one way in which somebody comes to own an operation and works on it.
type ic03Case struct {
	name string
	// prepare leaves an operation of the order for work, undisturbed.
	prepare func(w *ic03World, order string)
	// work makes it succeed, with one request to the provider.
	work     func(w *ic03World, order string)
	attempts int // after that
}

func ic03Cases() []ic03Case {
	return []ic03Case{
		{
			// The creation takes the claim and holds the attempt. The provider is slow enough for
			// two renewals.
			name:    "created with a claim, and renewed",
			prepare: func(w *ic03World, _ string) { w.r.Provider.Script(pt.Slow(25 * time.Second)) },
			work:    func(w *ic03World, order string) { w.execute(order) }, attempts: 1,
		},
		{
			// The worker runs all the time, and claims what it finds.
			name: "claimed by Run",
			prepare: func(w *ic03World, _ string) {
				if w.worker == nil {
					w.worker = w.r.Start(nil)
					w.worker.Work()
					rig.After(time.Second)
				}
			},
			work: func(w *ic03World, order string) {
				_, err := w.p.Charges.Register(w.t.Context(), rig.Op(order, 100, "EUR"))
				require.NoError(w.t, err)
				rig.After(10 * time.Second) // less than a lease: a claim that was taken for lost comes too late
			},
			attempts: 1,
		},
		{
			// Somebody died with an attempt of which nobody knows. Its lease has ended.
			name: "taken over",
			prepare: func(w *ic03World, order string) {
				dead := w.r.Start(nil)
				resume := dead.Store.StallReplies()
				ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
				defer cancel()
				_, err := dead.Charges.Execute(ctx, rig.Op(order, 100, "EUR"))
				require.ErrorIs(w.t, err, settle.ErrPending)
				dead.Kill()
				resume()
				rig.After(10 * time.Minute)
			},
			work: func(w *ic03World, order string) { w.execute(order) }, attempts: 2,
		},
	}
}

// ic03World is a store, a provider, and a process that works.
type ic03World struct {
	t      *testing.T
	r      *rig.Rig
	f      *faults
	p      *rig.Process
	worker *rig.Process
}

func (w *ic03World) execute(order string) {
	w.t.Helper()
	out, err := w.p.Charges.Execute(w.t.Context(), rig.Op(order, 100, "EUR"))
	require.NoError(w.t, err)
	require.Equal(w.t, w.r.Get(out.ID).Version, out.Version, "the owner does not know the version of the row")
}

// run works one order, and loses the answer to the n-th statement of the work, which
// was carried out. It returns that statement, "" if there were fewer, and the
// record at the end.
func (w *ic03World) run(c *ic03Case, order string, n int) (string, settle.Record) {
	w.t.Helper()
	c.prepare(w, order)
	calls := w.r.Sends()
	fault := &ic03Fault{f: w.f, n: n}
	fault.disturb(func() { c.work(w, order) })

	rec, err := w.r.Store.Get(w.t.Context(), settle.ByIntent(rig.Scope, rig.KindCharge, order, "purchase"))
	require.NoError(w.t, err)
	assert.Equal(w.t, settle.StateSucceeded, rec.State)
	assert.Len(w.t, rec.Attempts, c.attempts)
	assert.Equal(w.t, calls+1, w.r.Sends(), "requests to the provider")
	assert.Equal(w.t, 1, w.r.Provider.Effects(rec.ID), "effects at the provider")
	assert.Empty(w.t, rec.Token)
	h := w.r.History(rec.ID)
	seen := map[int64]bool{}
	for _, x := range h {
		assert.False(w.t, seen[x.Seq], "two entries for version %d", x.Seq)
		seen[x.Seq] = true
	}
	assert.True(w.t, seen[rec.Version] && len(h) > 0 && h[len(h)-1].Seq == rec.Version, "the last version has no entry")
	return fault.lost, rec
}

// TestIC03_CalledOnce (IC-03, I5, I15): the same for an engine and its provider. Versions and
// attempts grow as if nothing had happened, and the provider is called once.
func TestIC03_CalledOnce(t *testing.T) {
	t.Parallel()
	for name, db := range ic03Databases() {
		for _, c := range ic03Cases() {
			if !db.bubble {
				continue
			}
			t.Run(name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, f := db.open(t)
					w := &ic03World{t: t, r: rig.New(t, store, nil), f: f}
					w.r.Promise.Deadline = time.Minute
					w.p = w.r.Start(nil)
					_, undisturbed := w.run(&c, "order-0", 0)
					var lost []string
					for n := 1; ; n++ {
						text, rec := w.run(&c, fmt.Sprint("order-", n), n)
						if text == "" {
							break
						}
						lost = append(lost, firstLine(text))
						assert.Equal(t, undisturbed.Version, rec.Version, "version after the answer to %d, %q, was lost", n, text)
						if t.Failed() {
							t.Fatalf("after the answer to statement %d, %q, was lost", n, text)
						}
					}
					ic03Lost(t, db, lost)
				})
			})
		}
	}
}

// TestIC03_BothForms (IC-03): what the case is about, on a table of its own. An unconditional
// increment is carried out twice, and one that is guarded by the old value seems to have lost,
// with database/sql reporting no error at all.
func TestIC03_BothForms(t *testing.T) {
	t.Parallel()
	for form, c := range map[string]struct {
		update   string
		fence    int
		affected int64
	}{
		"unconditional": {`UPDATE lease SET fence = fence + 1, attempts = attempts + 1`, 6, 1},
		"guarded":       {`UPDATE lease SET fence = fence + 1, attempts = attempts + 1 WHERE fence = 4`, 5, 0},
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			db, f := openFaulty(t, plain(t))
			require.NoError(t, run(db, `CREATE TABLE lease (fence INTEGER, attempts INTEGER)`))
			require.NoError(t, run(db, `INSERT INTO lease VALUES (4, 0)`))
			st, err := db.PrepareContext(t.Context(), c.update)
			require.NoError(t, err)
			defer st.Close()
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			f.once("UPDATE", false, driver.ErrBadConn)
			inTx := tx.StmtContext(t.Context(), st)
			defer inTx.Close()
			res, err := inTx.ExecContext(t.Context())
			require.NoError(t, err, "database/sql hides it")
			n, err := res.RowsAffected()
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			assert.Equal(t, c.affected, n)
			assert.Equal(t, c.fence, count(t, db, `SELECT fence FROM lease`))
		})
	}
}
