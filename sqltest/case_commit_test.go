package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// decisive begins the statement that makes a step durable, by its name.
func decisive(d database) map[string]string {
	if d.name == "PostgreSQL" {
		return map[string]string{"create": "WITH w", "outcome": "WITH w", "renew": "WITH w", "claim": "WITH c", "hooked": "COMMIT"}
	}
	return map[string]string{
		"create": "INSERT INTO settle_operation", "outcome": "COMMIT", "renew": "UPDATE settle_operation SET due", "claim": "COMMIT", "hooked": "COMMIT",
	}
}

// TestIC22_LostCommitAnswerOnServers (IC-22, I15): the answer to what makes a step durable is lost,
// before or after the server carried it out, with the caller still there or gone. The error never
// says that it failed, or that somebody else won; and the same step again tells what happened and
// makes it happen once.
func TestIC22_LostCommitAnswerOnServers(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		db, s, f := d.faulty(t, d.fresh(t), nil)
		text := decisive(d)
		n := 0
		for _, cause := range []error{errLost, driver.ErrBadConn, context.Canceled, sql.ErrTxDone} {
			for i := range 4 {
				carriedOut, gone := i&1 > 0, i&2 > 0
				n++
				key := fmt.Sprint(n)
				name := fmt.Sprintf("%v/carried out %v/caller gone %v", cause, carriedOut, gone)
				lose := func(step string) (context.Context, context.CancelFunc) {
					ctx, cancel := context.WithCancel(t.Context())
					hit := false
					f.set(func(got string, done bool) error {
						if hit || done != carriedOut || !strings.HasPrefix(strings.TrimSpace(got), text[step]) {
							return nil
						}
						hit = true
						if gone {
							cancel()
						}
						return cause
					})
					return ctx, cancel
				}
				// commit sees a change through, and returns what its first try said.
				commit := func(step string, c settle.Change) settle.Record {
					ctx, cancel := lose(step)
					defer cancel()
					out, err := s.Commit(ctx, c)
					f.set(nil)
					w := &c.Writes[0]
					now := int64(stored(t, db, d, w.Record.ID))
					if err != nil {
						assert.NotErrorIs(t, err, settle.ErrConflict, "%s %s", name, step)
						assert.NotErrorIs(t, err, settle.ErrNotFound)
						assert.NotErrorIs(t, err, settle.ErrUncommitted)
						assert.NotErrorIs(t, err, sql.ErrTxDone)
						if gone {
							assert.ErrorIs(t, err, context.Canceled, "%s %s", name, step)
						}
						if carriedOut && !gone {
							t.Errorf("%s %s: carried out, and the error is %v", name, step, err)
						}
					} else {
						assert.Equal(t, w.IfVersion+1, now, "%s %s: success, and another connection does not see it", name, step)
					}
					if carriedOut {
						assert.Equal(t, w.IfVersion+1, now, "%s %s", name, step)
					}
					again, err := s.Commit(t.Context(), c)
					require.NoError(t, err, "%s %s", name, step)
					require.Equal(t, w.IfVersion+1, again[0].Version)
					if out != nil {
						assert.Equal(t, out[0].UpdatedAt, again[0].UpdatedAt)
					}
					h, err := s.History(t.Context(), w.Record.ID, 0, 0)
					require.NoError(t, err)
					assert.Len(t, h, int(w.IfVersion)+1, "%s %s", name, step)
					return again[0]
				}
				r := commit("create", create(key))
				ctx, cancel := lose("renew")
				err := renew(ctx, s, r.ID, r.Token, time.Hour)
				cancel()
				f.set(nil)
				assert.NotErrorIs(t, err, settle.ErrClaimLost, name)
				require.NoError(t, renewFree(t, s, r), name)
				commit("outcome", outcome(r))

				hooked := create("hooked" + key)
				hooked.Hook = func(context.Context, settle.Tx) error { return nil }
				hooked.Writes[0].DueIn = 0
				r = commit("hooked", hooked)

				ctx, cancel = lose("claim")
				claimed, err := s.Claim(ctx, settle.Claim{Kinds: []string{"charge"}, Token: "mine" + key, Lease: time.Minute, Limit: 5})
				cancel()
				f.set(nil)
				now, getErr := s.Get(t.Context(), settle.ByID(r.ID))
				require.NoError(t, getErr)
				switch {
				case err == nil && len(claimed) > 0:
					assert.Equal(t, "mine"+key, now.Token, "%s: claimed, and another connection does not see it", name)
					assert.Equal(t, now.Version, claimed[0].Version)
				case carriedOut && !gone:
					t.Errorf("%s: the claim was carried out, and its answer is %v", name, err)
				}
				assert.LessOrEqual(t, now.Version, int64(2), "%s: claimed twice", name)
				require.NoError(t, run(db, d.text(`DELETE FROM settle_operation WHERE id = ?`), []byte(r.ID)))
				if d.name == "PostgreSQL" {
					require.NoError(t, run(db, `DELETE FROM settle_due`))
				}
			}
		}
	})
}

// TestIC22_NothingIsSentBeforeItIsDurable (IC-22, I1): whatever becomes of the answer to the first commit of an
// Execute, the provider is called at most once, and only when another connection sees the operation.
func TestIC22_NothingIsSentBeforeItIsDurable(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		dsn := d.fresh(t)
		_, s, f := d.faulty(t, dsn, nil)
		other, err := sql.Open(d.driver, dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = other.Close() })
		during := func(_ context.Context, c *settle.Call[areq]) {
			if stored(t, other, d, c.ID) == 0 {
				t.Errorf("sent %s before it was stored", c.Subject)
			}
		}
		for i := range 8 {
			p := newPayments(t, s, nil, during)
			carriedOut, gone, bad := i&1 > 0, i&2 > 0, i&4 > 0
			cause := errLost
			if bad {
				cause = driver.ErrBadConn
			}
			subject := fmt.Sprint("order-", i)
			ctx, cancel := context.WithCancel(t.Context())
			hit := false
			f.set(func(got string, done bool) error {
				got = strings.TrimSpace(got)
				first := strings.HasPrefix(got, "WITH w") || strings.HasPrefix(got, "INSERT INTO settle_operation")
				if hit || done != carriedOut || !first {
					return nil
				}
				hit = true
				if gone {
					cancel()
				}
				return cause
			})
			_, err := p.Execute(ctx, pay(subject))
			cancel()
			f.set(nil)
			if err != nil {
				assert.NotErrorIs(t, err, settle.ErrFailed, subject)
				if gone {
					assert.ErrorIs(t, err, context.Canceled, subject)
				}
			}
			require.NoError(t, p.engine.Drain(t.Context()))
			assert.LessOrEqual(t, p.calls(subject), 1)
			// The same operation again ends in success, or in one that is under way: never in a second request.
			before := p.calls(subject)
			p = newPayments(t, s, nil, during)
			_, err = p.Execute(t.Context(), pay(subject))
			if err != nil {
				assert.NotErrorIs(t, err, settle.ErrFailed, subject)
			}
			sent := before + p.calls(subject)
			assert.LessOrEqual(t, sent, 1)
			if err == nil {
				assert.Equal(t, 1, sent, subject)
			}
		}
	})
}

// TestIC23_CanceledOnServers (IC-23): a context that ends before COMMIT, after the automatic rollback, or while COMMIT
// is on the wire. (a) and (b) leave nothing, of (c) a second look tells. The error matches
// context.Canceled and never sql.ErrTxDone.
func TestIC23_CanceledOnServers(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		db, s, f := d.faulty(t, d.fresh(t), nil)
		for i, name := range []string{"before", "after the rollback", "on the wire", "on the wire, done"} {
			ctx, cancel := context.WithCancel(t.Context())
			c := create(fmt.Sprint(i))
			c.Hook = func(context.Context, settle.Tx) error { return nil }
			switch i {
			case 0:
				c.Hook = func(context.Context, settle.Tx) error { cancel(); return nil }
			case 1:
				c.Hook = func(_ context.Context, tx settle.Tx) error {
					cancel()
					for errors.Is(sqlstore.Tx(tx).QueryRowContext(t.Context(), `SELECT 1`).Scan(new(int)), nil) {
						continue // until database/sql has rolled back
					}
					return nil
				}
			default:
				f.set(func(text string, done bool) error {
					if text == "COMMIT" && done == (i == 3) {
						cancel()
						return context.Canceled
					}
					return nil
				})
			}
			_, err := s.Commit(ctx, c)
			f.set(nil)
			require.ErrorIs(t, err, context.Canceled, name)
			assert.NotErrorIs(t, err, sql.ErrTxDone, name)
			assert.NotErrorIs(t, err, settle.ErrUncommitted, name)
			want := 0
			if i == 3 {
				want = 1
			}
			assert.Equal(t, want, stored(t, db, d, c.Writes[0].Record.ID), name)
			cancel()
			out, err := s.Commit(t.Context(), create(fmt.Sprint(i)))
			require.NoError(t, err)
			assert.EqualValues(t, 1, out[0].Version)
		}
	})
}

// lying answers a COMMIT that became a rollback as if it had committed.
type lying struct{ driver.Driver }

func (l lying) Open(name string) (driver.Conn, error) {
	c, err := l.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return lyingConn{c.(realConn)}, nil
}

type lyingConn struct{ realConn }

func (c lyingConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.realConn.BeginTx(ctx, o)
	return lyingTx{tx}, err
}

type lyingTx struct{ driver.Tx }

func (t lyingTx) Commit() error {
	if err := t.Tx.Commit(); err != nil && !strings.Contains(err.Error(), "rollback") {
		return err
	}
	return nil
}

// TestIC24_CommitThatRollsBack (IC-24): in PostgreSQL a statement of the hook fails, the hook does not say so, and
// COMMIT is answered by ROLLBACK. Nothing reports success that a second connection cannot see,
// whatever the driver makes of that answer.
func TestIC24_CommitThatRollsBack(t *testing.T) {
	t.Parallel()
	for name, real := range map[string]driver.Driver{
		"pgx": stdlib.GetDefaultDriver(), "pq": &pq.Driver{}, "a driver that takes it for success": lying{stdlib.GetDefaultDriver()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := postgresDatabase()
			d.real = real
			db, s, _ := d.faulty(t, d.fresh(t), nil)
			require.NoError(t, run(db, `CREATE TABLE inbox (id text PRIMARY KEY)`))
			require.NoError(t, run(db, `INSERT INTO inbox VALUES ('seen')`))
			swallow := func(ctx context.Context, tx settle.Tx) error {
				q := sqlstore.Tx(tx)
				if _, err := q.ExecContext(ctx, `INSERT INTO inbox VALUES ('new')`); err != nil {
					return err
				}
				_, err := q.ExecContext(ctx, `INSERT INTO inbox VALUES ('seen')`)
				assert.ErrorContains(t, err, "23505")
				_, err = q.ExecContext(ctx, `UPDATE inbox SET id = id`)
				assert.ErrorContains(t, err, "25P02")
				return nil
			}
			var hook *settle.HookError
			c := create("1")
			c.Hook = swallow
			_, err := s.Commit(t.Context(), c)
			require.ErrorAs(t, err, &hook)
			_, err = s.Commit(t.Context(), settle.Change{ID: "no write", Hook: swallow})
			require.ErrorAs(t, err, &hook)
			assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM inbox`))
			assert.Zero(t, count(t, db, `SELECT count(*) FROM settle_operation`))

			// A refused name in the application's own transaction does not spoil it: a savepoint.
			_, err = s.Commit(t.Context(), create("1"))
			require.NoError(t, err)
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			known := create("2")
			known.Writes[0].Record.Key = created("1").Key
			_, err = s.In(tx).Commit(t.Context(), known)
			_ = conflictOf(t, err)
			_, err = tx.ExecContext(t.Context(), `INSERT INTO inbox VALUES ('after')`)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			assert.Equal(t, 2, count(t, db, `SELECT count(*) FROM inbox`))
		})
	}
}

// renewFree renews once nobody has the record locked: a server may need a moment to see that a session ended whose caller
// is gone, and until then Renew, which waits for no lock, says ErrUncommitted (store.go, Renew) and nothing else.
func renewFree(t *testing.T, s settle.Store, r settle.Record) (err error) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		if err = renew(t.Context(), s, r.ID, r.Token, time.Hour); !errors.Is(err, settle.ErrUncommitted) {
			return err
		}
	}
	return err
}
