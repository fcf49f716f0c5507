package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// atCommit makes the server refuse the COMMIT of the first n transactions that write the table, with the
// error code: a deferred trigger, which counts with a sequence, since that does not roll back.
func atCommit(t *testing.T, db *sql.DB, table, code string, n int) {
	t.Helper()
	refuse := `RAISE EXCEPTION 'at commit' USING ERRCODE = '` + code + `';`
	if code == "" { // the connection is lost instead
		refuse = `PERFORM pg_terminate_backend(pg_backend_pid());`
	}
	require.NoError(t, run(db, `DROP SEQUENCE IF EXISTS tries; CREATE SEQUENCE tries`))
	require.NoError(t, run(db, fmt.Sprintf(`CREATE OR REPLACE FUNCTION refuse_%s() RETURNS trigger AS $$
		BEGIN IF nextval('tries') <= %d THEN %s END IF; RETURN NULL; END $$ LANGUAGE plpgsql`, table, n, refuse)))
	require.NoError(t, run(db, fmt.Sprintf(`DROP TRIGGER IF EXISTS refuse ON %[1]s; CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON %[1]s
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_%[1]s()`, table)))
}

// TestIC25_AtCommit (IC-25): 40001 and 40P01 are definite at COMMIT too: the whole step runs again, its hook included,
// a bounded number of times; a lost connection is what has to be looked up. The provider is called once.
func TestIC25_AtCommit(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01", ""} {
		t.Run("code "+code, func(t *testing.T) {
			t.Parallel()
			d := postgresDatabase()
			dsn := d.fresh(t)
			db, s := d.open(t, dsn, &sqlstore.Options{LockWait: time.Second})
			require.NoError(t, run(db, `CREATE TABLE ledger (id text PRIMARY KEY)`))

			// One statement that commits by itself.
			atCommit(t, db, "settle_operation", code, 1)
			out, err := s.Commit(t.Context(), create("1"))
			if code == "" {
				require.Error(t, err)
				assert.NotErrorIs(t, err, settle.ErrConflict)
				assert.Zero(t, stored(t, db, d, created("1").ID))
				out, err = s.Commit(t.Context(), create("1"))
			}
			require.NoError(t, err)
			atCommit(t, db, "settle_operation", code, 1)
			_, err = s.Commit(t.Context(), outcome(out[0]))
			if code == "" {
				require.Error(t, err)
				_, err = s.Commit(t.Context(), outcome(out[0]))
			}
			require.NoError(t, err)
			assert.Equal(t, 2, stored(t, db, d, created("1").ID))

			// A transaction with a hook.
			require.NoError(t, run(db, `DROP TRIGGER refuse ON settle_operation`))
			atCommit(t, db, "ledger", code, 1)
			runs := 0
			c := create("2")
			c.Hook = func(ctx context.Context, tx settle.Tx) error {
				runs++
				_, err := sqlstore.Tx(tx).ExecContext(ctx, `INSERT INTO ledger VALUES ('2')`)
				return err
			}
			_, err = s.Commit(t.Context(), c)
			if code == "" {
				require.Error(t, err)
				assert.Equal(t, 1, runs, "an unknown outcome runs no hook again")
				assert.Zero(t, count(t, db, `SELECT count(*) FROM ledger`))
				_, err = s.Commit(t.Context(), c)
			}
			require.NoError(t, err)
			assert.Equal(t, 2, runs)
			assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM ledger`))
			h, err := s.History(t.Context(), created("2").ID, 0, 0)
			require.NoError(t, err)
			assert.Len(t, h, 1)

			// For ever: an end, and nothing is stored.
			if code != "" {
				atCommit(t, db, "settle_operation", code, 1_000_000)
				_, err = s.Commit(t.Context(), create("3"))
				require.Error(t, err)
				assert.NotErrorIs(t, err, settle.ErrConflict)
				require.NoError(t, run(db, `DROP TRIGGER refuse ON settle_operation`))
				assert.Zero(t, stored(t, db, d, created("3").ID))
			}

			// An engine calls the provider once, whichever of its commits meets this.
			for first := 1; first <= 2; first++ {
				subject := fmt.Sprint("order-", code, first)
				p := newPayments(t, s, nil, func(context.Context, *settle.Call[areq]) {
					if first == 2 {
						atCommit(t, db, "settle_operation", code, 1)
					}
				})
				if first == 1 {
					atCommit(t, db, "settle_operation", code, 1)
				}
				_, err := p.Execute(t.Context(), pay(subject))
				if err != nil { // of a lost connection: nothing was sent, or the outcome is recorded when asked again
					assert.Empty(t, code, "%v", err)
					_, _ = p.Execute(t.Context(), pay(subject))
				}
				assert.Equal(t, 1, p.calls(subject), "%v", err)
				require.NoError(t, run(db, `DROP TRIGGER IF EXISTS refuse ON settle_operation`))
			}
		})
	}
}

// TestIC25_ApplicationTransaction (IC-25): two transactions of the application, SERIALIZABLE, of which each reads what
// the other writes; the COMMIT of the second fails with 40001, and the whole of it, started again, succeeds.
func TestIC25_ApplicationTransaction(t *testing.T) {
	t.Parallel()
	d := postgresDatabase()
	db, s := d.open(t, d.fresh(t)+"&default_transaction_isolation=serializable", nil)
	begin := func() *sql.Tx {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		assert.Zero(t, countTx(t, tx, `SELECT count(*) FROM settle_operation`))
		return tx
	}
	a, b := begin(), begin()
	_, err := s.In(a).Commit(t.Context(), create("1"))
	require.NoError(t, err)
	_, err = s.In(b).Commit(t.Context(), create("2"))
	require.NoError(t, err)
	require.NoError(t, a.Commit())
	require.ErrorContains(t, b.Commit(), "40001")
	assert.Zero(t, stored(t, db, d, created("2").ID))
	again, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.In(again).Commit(t.Context(), create("2"))
	require.NoError(t, err)
	require.NoError(t, again.Commit())
	assert.Equal(t, 1, stored(t, db, d, created("2").ID))
}

// meet makes two parties wait for each other, once.
type meet struct{ both sync.WaitGroup }

func newMeet() *meet { m := &meet{}; m.both.Add(2); return m }

// TestIC26_Deadlock (IC-25, IC-26): two steps whose hooks lock two rows in opposite orders. The server rolls all of one
// back; it starts again from its first statement. Both rows of a step are there in the end.
func TestIC26_Deadlock(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		db, s := d.open(t, d.fresh(t), nil)
		require.NoError(t, run(db, `CREATE TABLE stock (id INT PRIMARY KEY, n INT)`))
		require.NoError(t, run(db, `CREATE TABLE inbox (id VARCHAR(20) PRIMARY KEY)`))
		require.NoError(t, run(db, `INSERT INTO stock VALUES (1, 0), (2, 0)`))
		m := newMeet()
		var wg sync.WaitGroup
		var mu sync.Mutex
		runs := 0
		for i, order := range [][2]int{{1, 2}, {2, 1}} {
			wg.Go(func() {
				c := create(fmt.Sprint(i))
				first := true
				c.Hook = func(ctx context.Context, tx settle.Tx) error {
					mu.Lock()
					runs++
					mu.Unlock()
					q := sqlstore.Tx(tx)
					if _, err := q.ExecContext(ctx, d.text(`INSERT INTO inbox VALUES (?)`), fmt.Sprint("event-", i)); err != nil {
						return err
					}
					if _, err := q.ExecContext(ctx, d.text(`UPDATE stock SET n = n + 1 WHERE id = ?`), order[0]); err != nil {
						return err
					}
					if first {
						first = false
						m.both.Done()
						m.both.Wait()
					}
					_, err := q.ExecContext(ctx, d.text(`UPDATE stock SET n = n + 1 WHERE id = ?`), order[1])
					return err
				}
				_, err := s.Commit(t.Context(), c)
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		assert.Equal(t, 3, runs, "one of the two ran again")
		assert.Equal(t, 2, count(t, db, `SELECT count(*) FROM inbox`))
		assert.Equal(t, 2, count(t, db, `SELECT count(*) FROM settle_operation`))
		assert.Equal(t, 4, count(t, db, `SELECT sum(n) FROM stock`))
	})
}

// TestIC26_TwoRecords (IC-26): changes of the same two records in opposite orders, again and again. Nobody sees a
// deadlock, and the two always move together.
func TestIC26_TwoRecords(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		dsn := d.fresh(t)
		if d.name == "PostgreSQL" {
			dsn += "&deadlock_timeout=100" // there are many
		}
		db, s := d.open(t, dsn, nil)
		_, other := d.open(t, dsn, nil)
		for _, n := range []string{"1", "2"} {
			_, err := s.Commit(t.Context(), create(n))
			require.NoError(t, err)
		}
		ids := []string{created("1").ID, created("2").ID}
		var wg sync.WaitGroup
		for g, st := range []*sqlstore.Store{s, other, s, other} {
			wg.Go(func() {
				for i := 0; i < 8; {
					c := settle.Change{ID: fmt.Sprint("both ", g, " ", i)}
					for k := range ids {
						r, err := st.Get(t.Context(), settle.ByID(ids[(k+g)%2]))
						if !assert.NoError(t, err) {
							return
						}
						r.Tries++
						c.Writes = append(c.Writes, settle.Write{Record: r, IfVersion: r.Version, DueIn: settle.Keep})
					}
					switch _, err := st.Commit(t.Context(), c); {
					case err == nil:
						i++
					case !assert.ErrorIs(t, err, settle.ErrConflict):
						return
					}
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 33, stored(t, db, d, ids[0]))
		assert.Equal(t, 33, stored(t, db, d, ids[1]))
	})
}

// TestIC26_EndedTransaction (IC-26): MySQL has rolled the application's transaction back over a deadlock, which the
// application did not notice. What the store would write in it would commit at once, without the
// order; so it is refused.
func TestIC26_EndedTransaction(t *testing.T) {
	t.Parallel()
	d := mariaDatabase()
	db, s := d.open(t, d.fresh(t), nil)
	require.NoError(t, run(db, `CREATE TABLE orders (id INT PRIMARY KEY, n INT)`))
	require.NoError(t, run(db, `INSERT INTO orders VALUES (1, 0), (2, 0)`))
	m := newMeet()
	var wg sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	for i, order := range [][2]int{{1, 2}, {2, 1}} {
		wg.Go(func() {
			tx, err := db.BeginTx(t.Context(), nil)
			if !assert.NoError(t, err) {
				return
			}
			_, err = tx.ExecContext(t.Context(), `UPDATE orders SET n = n + 1 WHERE id = ?`, order[0])
			assert.NoError(t, err)
			m.both.Done()
			m.both.Wait()
			_, deadlock := tx.ExecContext(t.Context(), `UPDATE orders SET n = n + 1 WHERE id = ?`, order[1])
			_, err = s.In(tx).Commit(t.Context(), create(fmt.Sprint(i)))
			if deadlock != nil {
				assert.ErrorIs(t, err, settle.ErrRetryTx)
				assert.Zero(t, stored(t, db, d, created(fmt.Sprint(i)).ID), "stored without the order")
				mu.Lock()
				refused++
				mu.Unlock()
				_ = tx.Rollback()
				return
			}
			assert.NoError(t, err)
			assert.NoError(t, tx.Commit())
		})
	}
	wg.Wait()
	assert.Equal(t, 1, refused)
	assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM settle_operation`))
}

// TestIC32_NeighboringKeys (IC-32): many new keys beside each other at once, then one new key for many. On InnoDB a
// locking read of what is not there would take gap locks and deadlock.
func TestIC32_NeighboringKeys(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		dsn := d.fresh(t)
		db, s := d.open(t, dsn, nil)
		if d.name == "MySQL" {
			var level string
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT @@`+mysqlNames(t).isolation).Scan(&level))
			require.Equal(t, "REPEATABLE-READ", level)
		}
		_, other := d.open(t, dsn, nil)
		handles := []*sqlstore.Store{s, other}
		const callers = 16
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				_, err := handles[i%2].Commit(t.Context(), create(fmt.Sprint("n", i)))
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		assert.Equal(t, callers, count(t, db, `SELECT count(*) FROM settle_operation`))

		p := newPayments(t, s, nil, nil)
		q := newPayments(t, other, nil, nil)
		both := []*payments{p, q}
		for i := range callers {
			wg.Go(func() {
				_, err := both[i%2].Execute(t.Context(), pay("one"))
				if err != nil {
					assert.ErrorIs(t, err, settle.ErrInProgress)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 1, p.calls("one")+q.calls("one"))
		assert.Equal(t, callers+1, count(t, db, `SELECT count(*) FROM settle_operation`))
	})
}

// TestIC35_WaitsForTheWinner (IC-35): a creation waits for another one's transaction with the same key, which commits
// after its own snapshot was taken. It gets the winner's record, at every level.
func TestIC35_WaitsForTheWinner(t *testing.T) {
	t.Parallel()
	levels := map[string]func(t *testing.T) (database, string){
		"PostgreSQL read committed": func(t *testing.T) (database, string) { return postgresDatabase(), pgSchema(t) },
		"PostgreSQL repeatable read": func(t *testing.T) (database, string) {
			return postgresDatabase(), pgSchema(t) + "&default_transaction_isolation=repeatable%20read"
		},
		"PostgreSQL serializable": func(t *testing.T) (database, string) {
			return postgresDatabase(), pgSchema(t) + "&default_transaction_isolation=serializable"
		},
		"MySQL repeatable read": func(t *testing.T) (database, string) { d := mariaDatabase(); return d, d.fresh(t) },
		"MySQL serializable": func(t *testing.T) (database, string) {
			d := mariaDatabase()
			return d, dsnWith(t, d.fresh(t), mysqlNames(t).isolation, "'SERIALIZABLE'")
		},
	}
	for name, open := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, dsn := open(t)
			db, s := d.open(t, dsn, &sqlstore.Options{LockWait: 20 * time.Second})
			for i, by := range []string{"key", "intent", "id"} {
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				first := create(fmt.Sprint("first", i))
				_, err = s.In(tx).Commit(t.Context(), first)
				require.NoError(t, err)
				second := create(fmt.Sprint("second", i))
				w, r := &second.Writes[0], &first.Writes[0].Record
				switch by {
				case "key":
					w.Record.Key = r.Key
				case "intent":
					w.Record.Subject = r.Subject
				default:
					w.Record.ID = r.ID
				}
				got := make(chan error, 1)
				go func() { _, err := s.Commit(t.Context(), second); got <- err }()
				waiting(t, db, d)
				require.NoError(t, tx.Commit())
				err = <-got
				c := conflictOf(t, err)
				assert.Equal(t, settle.IndexName(by), c.Index.Name)
				assert.Equal(t, r.ID, c.Existing.ID)
				assert.Equal(t, r.Request, c.Existing.Request)
			}
			// If it rolls back, the other one is the winner.
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = s.In(tx).Commit(t.Context(), create("gone"))
			require.NoError(t, err)
			got := make(chan error, 1)
			go func() { _, err := s.Commit(t.Context(), create("gone")); got <- err }()
			waiting(t, db, d)
			require.NoError(t, tx.Rollback())
			require.NoError(t, <-got)
			assert.Equal(t, 1, stored(t, db, d, created("gone").ID))
		})
	}
}

// waiting returns when a statement of this test's own database waits for a lock.
func waiting(t *testing.T, db *sql.DB, d database) {
	t.Helper()
	// MySQL's table of lock waits stays as it is for those who look often: an insertion that is
	// seen at it twice waits.
	q, times := `SELECT count(*) FROM information_schema.processlist
		WHERE db = DATABASE() AND command IN ('Query', 'Execute') AND info LIKE 'INSERT INTO settle%'`, 2
	if d.name == "PostgreSQL" {
		q, times = `SELECT count(*) FROM pg_locks w JOIN pg_locks h ON h.pid = w.pid
			WHERE NOT w.granted AND h.granted AND h.relation = 'settle_operation'::regclass`, 1
	}
	for seen := 0; seen < times; {
		require.NoError(t, t.Context().Err())
		if count(t, db, q) > 0 {
			seen++
		}
		time.Sleep(5 * time.Millisecond) // between looks, not instead of them
	}
}
