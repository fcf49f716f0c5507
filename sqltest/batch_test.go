package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// TestBatchAnswersEach: in one batch a creation, an outcome with a reference, an outcome of version 3, and changes that are refused: for a
// key, an intent, a hold, a version, a token, an unknown record, a reference of another one, and twice the same reference. Every caller gets
// what it would get alone, and those that are not refused are not written one by one.
func TestBatchAnswersEach(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		r := d.dammed(t, d.fresh(t), nil)
		ctx := t.Context()
		commit := func(c settle.Change) settle.Record {
			out, err := r.store.Commit(ctx, c)
			require.NoError(t, err)
			return out[0]
		}
		round := 0
		var key func(s string) string
		type expected struct {
			name  string
			index settle.IndexName // of a conflict; "-": of the version
			err   error
		}
		var want []expected
		changes := func() (all []settle.Change) {
			round++
			key = func(s string) string { return fmt.Sprint(s, round) }
			want = nil
			add := func(c settle.Change, e expected) { all, want = append(all, c), append(want, e) }
			owner := create(key("owner"))
			owner.Writes[0].Record.Hold = key("hold")
			commit(outcome(commit(owner)))
			fresh := func(s string) settle.Record { return commit(create(key(s))) }

			add(create(key("a")), expected{name: "creation"})
			add(create(key("b")), expected{name: "creation"})
			add(outcome(fresh("c")), expected{name: "outcome"})
			add(outcome(commit(outcome(fresh("d")))), expected{name: "outcome of version 3"})
			kept := outcome(fresh("e"))
			kept.Writes[0].DueIn = settle.Keep
			add(kept, expected{name: "due is kept"})

			c := create(key("f"))
			c.Writes[0].Record.Key = "key-" + key("owner")
			add(c, expected{"key", settle.IndexKey, settle.ErrConflict})
			c = create(key("g"))
			c.Writes[0].Record.Subject = "order-" + key("owner")
			add(c, expected{"intent", settle.IndexIntent, settle.ErrConflict})
			c = create(key("h"))
			c.Writes[0].Record.Hold = key("hold")
			add(c, expected{"hold", settle.IndexHold, settle.ErrConflict})
			c = outcome(fresh("i"))
			c.Writes[0].IfVersion = 3
			add(c, expected{"version", "-", settle.ErrConflict})
			c = outcome(fresh("j"))
			c.Writes[0].IfToken = "another"
			add(c, expected{"token", "-", settle.ErrConflict})
			c = outcome(fresh("k"))
			c.Writes[0].Record.ID = created(key("nobody")).ID
			c.ID += "n"
			add(c, expected{"unknown", "", settle.ErrNotFound})
			c = outcome(fresh("l"))
			c.Writes[0].Record.References[0].Ref = "pi_key-" + key("owner")
			add(c, expected{"reference", settle.IndexRef, settle.ErrConflict})
			return all
		}
		got := r.batch(t, changes, nil, nil)
		refused := 0
		for i, e := range want {
			if e.err == nil {
				if assert.NoError(t, got[i].err, e.name) {
					stored, err := r.store.Get(ctx, settle.ByID(got[i].out[0].ID))
					require.NoError(t, err)
					stored.AsOf, got[i].out[0].AsOf = time.Time{}, time.Time{}
					assert.Equal(t, stored, got[i].out[0], e.name)
					h, err := r.store.History(ctx, stored.ID, 0, 0)
					require.NoError(t, err)
					assert.Len(t, h, int(stored.Version), e.name)
				}
				continue
			}
			refused++
			require.ErrorIs(t, got[i].err, e.err, e.name)
			if e.index != "" {
				index := strings.TrimPrefix(string(e.index), "-")
				assert.Equal(t, index, string(conflictOf(t, got[i].err).Index.Name), e.name)
			}
		}
		for _, s := range []string{"c", "d", "e"} {
			owner, err := r.store.Get(ctx, settle.ByRef(created("").Account, "charge", "pi_key-"+key(s)))
			require.NoError(t, err)
			assert.Equal(t, created(key(s)).ID, owner.ID)
		}
		if d.name == "PostgreSQL" {
			alone := r.count(func(text string) bool {
				return writes(text) && text != "BEGIN" && !strings.Contains(text, "w, unnest(")
			})
			assert.LessOrEqual(t, alone, 2*refused, "those that are refused, each in a transaction of its own")
		}
		noneOpen(t, r.db)
	})
}

// TestBatchOfRivals: callers that want one key, one reference, one version, and one change twice, in one batch: one of each has it.
func TestBatchOfRivals(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		r := d.dammed(t, d.fresh(t), nil)
		round := 0
		got := r.batch(t, func() (all []settle.Change) {
			round++
			same := created(fmt.Sprint("same", round))
			var versions []settle.Record
			for i := range 6 {
				out, err := r.store.Commit(t.Context(), create(fmt.Sprint("v", round, "-", i)))
				require.NoError(t, err)
				versions = append(versions, out[0])
			}
			for i := range 3 { // one intent and key, of three ids
				c := create(fmt.Sprint("k", round, "-", i))
				c.Writes[0].Record.Key, c.Writes[0].Record.Subject = same.Key, same.Subject
				all = append(all, c)
			}
			for i := range 3 { // one reference, of three records
				c := outcome(versions[i])
				c.Writes[0].Record.References[0].Ref = fmt.Sprint("pi_same", round)
				all = append(all, c)
			}
			for i := range 6 { // one version: three that bring a reference each, and three that bring none
				c := outcome(versions[4+i/3])
				c.ID += fmt.Sprint("own", i)
				if c.Writes[0].Record.References[0].Ref = fmt.Sprint("pi_own", round, "-", i); i > 2 {
					c.Writes[0].Record.References = nil
				}
				all = append(all, c)
			}
			for i := range 3 { // one version, and one reference
				c := outcome(versions[3])
				c.ID += fmt.Sprint(i)
				all = append(all, c)
			}
			twice := create(fmt.Sprint("twice", round))
			return append(all, twice, twice)
		}, nil, nil)
		for i := 0; i < 15; i += 3 {
			won := 0
			for _, a := range got[i : i+3] {
				if a.err == nil {
					won++
				} else {
					require.ErrorIs(t, a.err, settle.ErrConflict)
				}
			}
			assert.Equal(t, 1, won, i)
		}
		require.NoError(t, errors.Join(got[15].err, got[16].err), "S26")
		noneOpen(t, r.db)
	})
}

// TestBatchAnswerLost (I15, IC-03, IC-22): the answer of what commits a batch is lost, or it never arrives: every caller learns that its
// change is made, and it is made once.
func TestBatchAnswerLost(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		decisive := "COMMIT"
		if d.name == "PostgreSQL" {
			decisive = "w, unnest("
		}
		for _, cause := range []error{errLost, driver.ErrBadConn, context.Canceled, sql.ErrTxDone} {
			t.Run(cause.Error(), func(t *testing.T) {
				r := d.dammed(t, d.fresh(t), nil)
				round, hits := 0, 0
				var mu sync.Mutex
				got := r.batch(t, func() (all []settle.Change) {
					round++
					for i := range 6 {
						c := create(fmt.Sprint(round, "-", i))
						if i > 3 {
							out, err := r.store.Commit(t.Context(), c)
							require.NoError(t, err)
							c = outcome(out[0])
						}
						all = append(all, c)
					}
					return all
				}, nil, func(text string) error {
					mu.Lock()
					defer mu.Unlock()
					if !strings.Contains(text, decisive) || hits == 2 { // the batch of one before it, too
						return nil
					}
					hits++
					return cause
				})
				assert.Positive(t, hits)
				for i, a := range got {
					require.NoError(t, a.err)
					h, err := r.store.History(t.Context(), a.out[0].ID, 0, 0)
					require.NoError(t, err)
					assert.Len(t, h, map[bool]int{false: 1, true: 2}[i > 3])
				}
				noneOpen(t, r.db)
			})
		}
	})
}

// TestBatchCanceled: a caller that gives up does not take its neighbors with it.
func TestBatchCanceled(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		r := d.dammed(t, d.fresh(t), nil)
		n := 0
		var lone answered
		got := r.batch(t, func() (all []settle.Change) {
			for range 4 {
				n++
				all = append(all, create(fmt.Sprint(n)))
			}
			return all
		}, func() {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				lone.out, lone.err = r.store.Commit(ctx, create(fmt.Sprint("gone", n)))
				close(done)
			}()
			for range 100 {
				runtime.Gosched()
			}
			cancel()
			<-done // while all others are held
		}, nil)
		require.ErrorIs(t, lone.err, context.Canceled)
		for _, a := range got {
			require.NoError(t, a.err)
		}
		assert.Zero(t, stored(t, r.db, d, created(fmt.Sprint("gone", n)).ID))
		noneOpen(t, r.db)
	})
}

// TestBatchPastALock: a row that a transaction of the application has locked, and a name that one is about to take, hold up their own
// callers and not the neighbors.
func TestBatchPastALock(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		dsn := d.fresh(t)
		r := d.dammed(t, dsn, &sqlstore.Options{LockWait: time.Minute})
		other, appStore := d.open(t, dsn, nil)
		round := 0
		for _, name := range []string{"row", "name"} {
			var tx *sql.Tx
			var free sync.WaitGroup
			free.Add(4)
			var mu sync.Mutex
			var before []string
			got := r.batch(t, func() (all []settle.Change) {
				if tx != nil {
					require.NoError(t, tx.Rollback())
				}
				round++
				key := fmt.Sprint(name, round)
				var err error
				out, err := r.store.Commit(t.Context(), create("locked"+key))
				require.NoError(t, err)
				tx, err = other.BeginTx(context.Background(), nil)
				require.NoError(t, err)
				c := outcome(out[0])
				if name == "row" {
					var v int
					require.NoError(t, tx.QueryRowContext(t.Context(), d.text(`SELECT version FROM settle_operation WHERE id = ? FOR UPDATE`),
						[]byte(out[0].ID)).Scan(&v))
				} else {
					c = create("taken" + key)
					_, err := appStore.In(tx).Commit(t.Context(), create("taken"+key))
					require.NoError(t, err)
				}
				all = append(all, c)
				for i := range 4 {
					all = append(all, create(fmt.Sprint(key, "-", i)))
				}
				return all
			}, func() {
				// The neighbors are seen from outside while the lock is held; then it is let go.
				ctx := t.Context()
				go func() {
					defer func() { _ = tx.Rollback() }()
					for i := range 4 {
						id := created(fmt.Sprint(name, round, "-", i)).ID
						for v := 0; v == 0; runtime.Gosched() {
							err := other.QueryRowContext(ctx, d.text(`SELECT version FROM settle_operation WHERE id = ?`), []byte(id)).Scan(&v)
							if err != nil && !errors.Is(err, sql.ErrNoRows) {
								return
							}
						}
						mu.Lock()
						before = append(before, id)
						mu.Unlock()
					}
				}()
			}, func(string) error { return nil })
			for _, a := range got {
				require.NoError(t, a.err, name)
			}
			mu.Lock()
			assert.Len(t, before, 4, "%s: the neighbors waited for the lock", name)
			mu.Unlock()
		}
		noneOpen(t, r.db)
	})
}

// TestBatchKilled: the server ends the session of a batch that waits for a lock: its callers get through all the same.
func TestBatchKilled(t *testing.T) {
	t.Parallel()
	d := postgresDatabase()
	dsn := d.fresh(t)
	app := fmt.Sprint("settle_killed_", schemaNumber.Add(1), "_", time.Now().UnixNano())
	r := d.dammed(t, dsn+"&application_name="+app, &sqlstore.Options{LockWait: time.Minute})
	other := d.connect(t, dsn)
	killed := 0
	for round := 0; killed == 0 && round < 30; round++ { // it may have given up its wait before it is seen
		var tx *sql.Tx
		var done chan struct{}
		try := 0
		got := r.batch(t, func() (all []settle.Change) {
			if tx != nil {
				require.NoError(t, tx.Rollback())
			}
			try++
			key := fmt.Sprint(round, "-", try)
			out, err := r.store.Commit(t.Context(), create("locked"+key))
			require.NoError(t, err)
			tx, err = other.BeginTx(context.Background(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), `SELECT 1 FROM settle_operation WHERE id = $1 FOR UPDATE`, []byte(out[0].ID))
			require.NoError(t, err)
			all = append(all, outcome(out[0]))
			for i := range 4 {
				all = append(all, create(fmt.Sprint(key, "-", i)))
			}
			return all
		}, func() {
			done = make(chan struct{})
			ctx := t.Context()
			go func() {
				defer close(done)
				defer func() { _ = tx.Rollback() }()
				var waiting int
				for began := time.Now(); waiting == 0 && time.Since(began) < 10*time.Second; { // any wait, of the batch or of who went by itself
					_ = other.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`, app).
						Scan(&waiting)
				}
				_ = other.QueryRowContext(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
					WHERE application_name = $1 AND wait_event_type = 'Lock' AND query LIKE '%w, unnest(%'`, app).Scan(&killed)
			}()
		}, func(string) error { return nil })
		<-done
		for _, a := range got {
			require.NoError(t, a.err)
			h, err := r.store.History(t.Context(), a.out[0].ID, 0, 0)
			require.NoError(t, err)
			assert.Len(t, h, int(a.out[0].Version))
		}
	}
	assert.Equal(t, 1, killed)
	noneOpen(t, r.db)
}

// TestCallersShareCommitsOnServers: 64 callers of two processes, all with operations of their own and some that they share: every caller
// gets the answer of its own change, one has each shared name, and most changes are not alone in their transaction.
func TestCallersShareCommitsOnServers(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		const callers, each = 32, 6
		dsn := d.fresh(t)
		handles := []*reservoir{d.dammed(t, dsn, &sqlstore.Options{LockWait: time.Minute}), d.dammed(t, dsn, &sqlstore.Options{LockWait: time.Minute})}
		var all sync.WaitGroup
		var mu sync.Mutex
		won := map[string]int{}
		for h, r := range handles {
			for i := range callers {
				all.Go(func() {
					ctx := context.Background()
					for j := range each {
						own := fmt.Sprintf("%d-%d-%d", h, i, j)
						c := create(own)
						out, err := r.store.Commit(ctx, c)
						if !assert.NoError(t, err) {
							return
						}
						again, err := r.store.Commit(ctx, c) // S26
						if !assert.NoError(t, err) {
							return
						}
						assert.Equal(t, out[0].UpdatedAt, again[0].UpdatedAt)
						_, err = r.store.Commit(ctx, outcome(out[0]))
						assert.NoError(t, err)
						shared := create(fmt.Sprint("shared-", own))
						shared.Writes[0].Record.Key, shared.Writes[0].Record.Subject = fmt.Sprint("shared-", j), fmt.Sprint("shared-", (i+j)%7)
						switch _, err := r.store.Commit(ctx, shared); {
						case err == nil:
							mu.Lock()
							won[shared.Writes[0].Record.Key]++
							mu.Unlock()
						case !errors.Is(err, settle.ErrConflict):
							assert.NoError(t, err)
						}
					}
				})
			}
		}
		all.Wait()
		require.NotEmpty(t, won)
		for key, n := range won {
			assert.Equal(t, 1, n, key)
		}
		db := handles[0].db
		const operations = 2 * callers * each
		assert.Equal(t, operations+len(won), count(t, db, `SELECT count(*) FROM settle_operation`))
		assert.Equal(t, operations, count(t, db, `SELECT count(*) FROM settle_operation WHERE version = 2`))
		assert.Equal(t, operations, references(t, db, d))
		for _, r := range handles {
			assert.Positive(t, r.batches())
			noneOpen(t, r.db)
		}
	})
}

// TestPlansOfABatch: the statement that writes many finds its rows by index on an empty table, on one that grew without the server
// having looked, with a plan made while it was empty, and on a large one.
func TestPlansOfABatch(t *testing.T) {
	t.Parallel()
	d := postgresDatabase()
	dsn := d.fresh(t)
	l := listening{d.real, new(sync.Mutex), map[string][]any{}}
	heard := d
	heard.real = l
	_, s, _ := heard.faulty(t, dsn, &sqlstore.Options{Unprepared: true})
	batch := func() (text string, args []any) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for text, args := range l.seen {
			if strings.Contains(text, "w, unnest(") {
				return text, args
			}
		}
		return "", nil
	}
	text, args := "", []any(nil)
	for n := 0; text == ""; n++ {
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				_, err := s.Commit(context.Background(), create(fmt.Sprint(n, "-", i)))
				assert.NoError(t, err)
			})
		}
		all.Wait()
		text, args = batch()
	}
	for i, a := range args {
		args[i] = "'" + strings.ReplaceAll(a.(string), "'", "''") + "'"
	}
	execute := "EXECUTE batch (" + strings.Trim(strings.ReplaceAll(fmt.Sprint(args), "' '", "', '"), "[]") + ")"

	db := d.connect(t, d.fresh(t))
	db.SetMaxOpenConns(1)
	own := d.store(t, db, nil)
	require.NoError(t, run(db, "PREPARE batch AS "+text))
	check := func(when string) {
		t.Helper()
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			require.NoError(t, run(db, "SET plan_cache_mode = "+mode))
			plan, wrong := wholeTable(t, db, d, execute, nil)
			assert.Empty(t, wrong, "%s, %s\n%s", when, mode, plan)
			assert.Contains(t, plan, "settle_operation_pkey")
		}
	}
	check("empty")
	out, err := own.Commit(t.Context(), create("settled"))
	require.NoError(t, err)
	_, err = own.Commit(t.Context(), outcome(out[0]))
	require.NoError(t, err)
	pour(t, db, d, 20_000)
	check("grown")
	require.NoError(t, run(db, "DEALLOCATE batch"))
	require.NoError(t, run(db, "PREPARE batch AS "+text))
	check("not analyzed")
	for _, table := range []string{"settle_operation", "settle_reference", "settle_history"} {
		require.NoError(t, run(db, "ANALYZE "+table))
	}
	check("analyzed")
}

// TestBatchOnEveryDriver: 64 callers of each driver and mode, also behind a proxy that gives every transaction another session (IC-37):
// each gets its answer, and rows share transactions.
func TestBatchOnEveryDriver(t *testing.T) {
	t.Parallel()
	unprepared := &sqlstore.Options{Unprepared: true}
	for name, c := range map[string]struct {
		driver, params string
		opts           *sqlstore.Options
		sessions       int
	}{
		"pgx":                {driver: "pgx"},
		"pgx, serializable":  {driver: "pgx", params: "&default_transaction_isolation=serializable"},
		"pgx, simple":        {driver: "pgx", params: "&default_query_exec_mode=simple_protocol", opts: unprepared},
		"pq":                 {driver: "postgres"},
		"pooler, pgx exec":   {driver: "pgx", params: "&default_query_exec_mode=exec", opts: unprepared, sessions: 2},
		"pooler, pq, binary": {driver: "postgres", params: "&binary_parameters=yes", opts: unprepared, sessions: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgSchema(t)
			if c.sessions > 0 {
				dsn = pooled(t, dsn, c.sessions)
			}
			db, s := openPG(t, c.driver, dsn+c.params, c.opts)
			db.SetMaxOpenConns(20)
			const callers, each = 64, 3
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for j := range each {
						r := created(fmt.Sprintf("%d-%d", i, j))
						// What a driver could take for the syntax of an array, or of a text.
						r.Subject, r.Purpose, r.Request = `{"a",NULL}\'`+r.Key, `pur"pose`, settle.Payload("\x00\\x41'\",{}\n"+r.Key)
						out, err := s.Commit(context.Background(), settle.Change{ID: "c" + r.Key, Writes: []settle.Write{{Record: r, DueIn: time.Hour}}})
						if !assert.NoError(t, err) {
							return
						}
						out, err = s.Commit(context.Background(), outcome(out[0]))
						if !assert.NoError(t, err) {
							return
						}
						assert.Equal(t, r.Request, out[0].Request)
						got, err := s.Get(context.Background(), settle.ByIntent(r.Scope, r.Kind, r.Subject, r.Purpose))
						if assert.NoError(t, err) {
							out[0].AsOf, got.AsOf = time.Time{}, time.Time{}
							assert.Equal(t, got, out[0])
						}
					}
				})
			}
			all.Wait()
			const rows = callers * each
			assert.Equal(t, rows, count(t, db, `SELECT count(*) FROM settle_operation WHERE version = 2`))
			assert.Zero(t, count(t, db, `SELECT count(*) FROM settle_due`))
			assert.Less(t, count(t, db, `SELECT count(DISTINCT xmin::text) FROM settle_operation`), rows)
		})
	}
}
