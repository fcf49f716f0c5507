package sqltest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// wrongClock is a process's clock that is wrong by so much.
type wrongClock time.Duration

func (s wrongClock) Now() time.Time { return time.Now().Add(time.Duration(s)) }

// sweeps counts the claims that found nothing.
type sweeps struct {
	settle.Store
	mu    sync.Mutex
	empty int
	seen  chan struct{} // closed after three
}

func (s *sweeps) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	out, err := s.Store.Claim(ctx, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && len(out) == 0 {
		if s.empty++; s.empty == 3 {
			close(s.seen)
		}
	}
	return out, err
}

// TestIC19_SkewedClocks (IC-19, I13): two processes, one 25 seconds ahead of the database and one behind, and a lease of 20 seconds. The one
// ahead steals nothing from a healthy holder; when the holder's lease has ended by the database's clock, the one behind takes over.
func TestIC19_SkewedClocks(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		dsn := d.fresh(t)
		db, slow := d.open(t, dsn, nil)
		_, store := d.open(t, dsn, nil)
		fast := &sweeps{Store: store, seen: make(chan struct{})}
		within, release := make(chan struct{}), make(chan struct{})
		holder := newPayments(t, slow, &settle.Options{Lease: 20 * time.Second, Clock: wrongClock(-25 * time.Second)}, func(_ context.Context, c *settle.Call[areq]) {
			if c.Subject == "held" {
				close(within)
				<-release
			}
		})
		ahead := newPayments(t, fast, &settle.Options{Lease: 20 * time.Second, Clock: wrongClock(25 * time.Second)}, nil)
		done := make(chan error, 1)
		go func() { _, err := holder.Execute(t.Context(), pay("held")); done <- err }()
		<-within
		_, err := ahead.Execute(t.Context(), pay("held"))
		require.ErrorIs(t, err, settle.ErrInProgress)
		// A second holder, which is dead but whose lease is not over.
		r, err := ahead.Register(t.Context(), pay("left"))
		require.NoError(t, err)
		dead, err := slow.Claim(t.Context(), settle.Claim{Kinds: []string{"pay"}, Token: "dead", Lease: 20 * time.Second, Limit: 5})
		require.NoError(t, err)
		require.Len(t, dead, 1)
		assert.Equal(t, 20*time.Second, dead[0].Due.Sub(dead[0].AsOf))
		ahead.works(t, fast.seen)
		assert.Zero(t, ahead.calls("held"))
		assert.Zero(t, ahead.calls("left"))
		require.NoError(t, renew(t.Context(), slow, r.ID, "dead", 20*time.Second), "its lease was healthy all the time")
		close(release)
		require.NoError(t, <-done)
		assert.Equal(t, 1, holder.calls("held")+ahead.calls("held"))

		later(t, db, d, r.ID, 20_000_000)
		require.ErrorIs(t, renew(t.Context(), slow, r.ID, "dead", 20*time.Second), settle.ErrClaimLost)
		sent := make(chan struct{})
		behind := newPayments(t, slow, &settle.Options{Clock: wrongClock(-25 * time.Second)}, func(_ context.Context, c *settle.Call[areq]) {
			if c.Subject == "left" {
				close(sent)
			}
		})
		behind.works(t, sent)
		assert.Equal(t, 1, behind.calls("left"))
	})
}

// TestIC21_ClaimsOneEach (IC-21): fifty due rows, no statistics, a planner that may only loop, and eight workers that claim one each at a time. No
// claim gets more than it asked for, each row has one owner, and none is leased that nobody was given.
func TestIC21_ClaimsOneEach(t *testing.T) {
	t.Parallel()
	for name, params := range map[string]string{
		"nested loop": "&enable_hashjoin=off&enable_mergejoin=off&enable_material=off&enable_memoize=off",
		"no index":    "&enable_indexscan=off&enable_bitmapscan=off&enable_indexonlyscan=off&enable_hashjoin=off&enable_mergejoin=off",
		"merge":       "&enable_hashjoin=off&enable_nestloop=off&plan_cache_mode=force_generic_plan&jit=off",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := postgresDatabase()
			db, s := d.open(t, d.fresh(t)+params, nil)
			const rows, workers = 50, 8
			claimEach(t, s, rows, workers)
			assert.Equal(t, rows, count(t, db, `SELECT count(*) FROM settle_operation WHERE token <> '' AND version = 2`))
			assert.Equal(t, rows, count(t, db, `SELECT count(DISTINCT token) FROM settle_operation`))
		})
	}
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		d := mariaDatabase()
		db, s := d.open(t, d.fresh(t), nil)
		claimEach(t, s, 50, 8)
		assert.Equal(t, 50, count(t, db, `SELECT count(DISTINCT token) FROM settle_operation WHERE version = 2`))
	})
}

func claimEach(t *testing.T, s *sqlstore.Store, rows, workers int) {
	t.Helper()
	c := settle.Change{ID: "due"}
	for i := range rows {
		c.Writes = append(c.Writes, create(fmt.Sprint(i)).Writes[0])
		c.Writes[i].DueIn, c.Writes[i].Record.Token = 0, ""
	}
	_, err := s.Commit(t.Context(), c)
	require.NoError(t, err)
	var mu sync.Mutex
	owner := map[string]string{}
	var left atomic.Int64
	left.Store(int64(rows))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := 0; left.Load() > 0 && t.Context().Err() == nil; n++ {
				token := fmt.Sprint("w", w, "-", n)
				got, err := s.Claim(t.Context(), settle.Claim{Kinds: []string{"charge"}, Token: token, Lease: time.Hour, Limit: 1})
				if !assert.NoError(t, err) || !assert.LessOrEqual(t, len(got), 1) {
					return
				}
				mu.Lock()
				for _, r := range got {
					left.Add(-1)
					assert.Empty(t, owner[r.ID], "handed out twice")
					owner[r.ID] = token
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, token := range owner {
		r, err := s.Get(t.Context(), settle.ByID(id))
		require.NoError(t, err)
		assert.Equal(t, token, r.Token)
	}
	assert.Len(t, owner, rows)
}

// TestIC28_NothingChanged (IC-28): a server that reports changed rows, not matched ones, says 0 of a renewal that changes nothing. That is not taken
// for a lost claim, and a result that was recorded before is recorded.
func TestIC28_NothingChanged(t *testing.T) {
	t.Parallel()
	for name, found := range map[string]string{"changed rows": "false", "found rows": "true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mariaDatabase()
			db, s := d.open(t, dsnWith(t, d.fresh(t), "clientFoundRows", found), nil)
			out, err := s.Commit(t.Context(), create("1"))
			require.NoError(t, err)
			// As if the clock stood still: the row matches and stays as it is.
			res, err := db.ExecContext(t.Context(), `UPDATE settle_operation SET due = due + 0 * LAST_INSERT_ID(7) WHERE id = ?`, []byte(out[0].ID))
			require.NoError(t, err)
			n, err := res.RowsAffected()
			require.NoError(t, err)
			assert.Equal(t, found == "true", n == 1)
			stamp, err := res.LastInsertId()
			require.NoError(t, err)
			assert.EqualValues(t, 7, stamp, "what the store goes by does not depend on it")
			for range 2 {
				require.NoError(t, renew(t.Context(), s, out[0].ID, "t1", time.Minute))
			}
			require.ErrorIs(t, renew(t.Context(), s, out[0].ID, "other", time.Minute), settle.ErrClaimLost)
			done, err := s.Commit(t.Context(), outcome(out[0]))
			require.NoError(t, err)
			again, err := s.Commit(t.Context(), outcome(out[0]))
			require.NoError(t, err)
			assert.Equal(t, done[0].Version, again[0].Version)
		})
	}
	for _, d := range []database{sqliteDatabase(), postgresDatabase()} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			_, s := d.open(t, d.fresh(t), nil)
			out, err := s.Commit(t.Context(), create("1"))
			require.NoError(t, err)
			for range 2 {
				require.NoError(t, renew(t.Context(), s, out[0].ID, "t1", time.Minute))
			}
			for range 2 {
				done, err := s.Commit(t.Context(), outcome(out[0]))
				require.NoError(t, err)
				assert.EqualValues(t, 2, done[0].Version)
			}
		})
	}
}

// TestIC59_LateCommit (IC-59): of two operations that were registered in transactions of the application, the first is committed last, when a
// worker has done the second already. The worker finds it: progress is kept in each row.
func TestIC59_LateCommit(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		db, s := d.open(t, d.fresh(t), nil)
		sent := map[string]chan struct{}{"first": make(chan struct{}), "second": make(chan struct{})}
		p := newPayments(t, s, nil, func(_ context.Context, c *settle.Call[areq]) { close(sent[c.Subject]) })
		a, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		ra, err := p.RegisterTx(t.Context(), s.In(a), pay("first"))
		require.NoError(t, err)
		b, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		rb, err := p.RegisterTx(t.Context(), s.In(b), pay("second"))
		require.NoError(t, err)
		require.Less(t, ra.ID, rb.ID)
		require.NoError(t, b.Commit())
		p.works(t, sent["second"])
		assert.Zero(t, p.calls("first"))
		require.NoError(t, a.Commit())
		q := newPayments(t, s, nil, func(_ context.Context, c *settle.Call[areq]) { close(sent[c.Subject]) })
		q.works(t, sent["first"])
		assert.Equal(t, 1, q.calls("first"))
		assert.Equal(t, 1, p.calls("second")+q.calls("second"))
	})
}
