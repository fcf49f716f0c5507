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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

func faultyStore(t *testing.T) (*sql.DB, *sqlstore.Store, *faults) {
	t.Helper()
	return faultyStoreWaiting(t, 2*time.Second)
}

func faultyStoreWaiting(t *testing.T, lock time.Duration) (*sql.DB, *sqlstore.Store, *faults) {
	t.Helper()
	db, f := openFaulty(t, plain(t))
	require.NoError(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.SQLite()))
	s, err := sqlstore.New(db, sqlstore.SQLite(), &sqlstore.Options{LockWait: lock})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return db, s, f
}

var errLost = errors.New("connection reset by peer")

// TestIC22_LostCommitAnswer (I15, IC-22, IC-23): what became of a COMMIT is found out
// by reading back, whatever it answered and whether or not the caller is
// still there.
func TestIC22_LostCommitAnswer(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{
		"reset": errLost, "bad connection": driver.ErrBadConn, "canceled": context.Canceled, "done": sql.ErrTxDone,
	} {
		for _, carriedOut := range []bool{true, false} {
			for _, gone := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/carried out %v/caller gone %v", name, carriedOut, gone), func(t *testing.T) {
					t.Parallel()
					db, s, f := faultyStore(t)
					lose := func() (context.Context, context.CancelFunc) {
						ctx, cancel := context.WithCancel(t.Context())
						hit := false
						f.set(func(text string, done bool) error {
							if hit || text != "COMMIT" || done != carriedOut {
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
					check := func(err error) {
						t.Helper()
						f.set(nil)
						if carriedOut {
							require.NoError(t, err)
							return
						}
						require.Error(t, err)
						assert.NotErrorIs(t, err, sql.ErrTxDone)
						assert.NotErrorIs(t, err, settle.ErrConflict)
						if gone {
							assert.ErrorIs(t, err, context.Canceled)
						}
						noneOpen(t, db)
					}
					ctx, cancel := lose()
					defer cancel()
					out, err := s.Commit(ctx, create("1"))
					check(err)
					if !carriedOut {
						_, err = s.Get(t.Context(), settle.ByID(created("1").ID))
						require.ErrorIs(t, err, settle.ErrNotFound)
						out, err = s.Commit(t.Context(), create("1"))
						require.NoError(t, err)
					}
					r := out[0]
					assert.EqualValues(t, 1, r.Version)

					ctx, cancel = lose()
					defer cancel()
					check(renew(ctx, s, r.ID, "t1", time.Hour))
					got, err := s.Get(t.Context(), settle.ByID(r.ID))
					require.NoError(t, err)
					assert.Equal(t, carriedOut, got.Due.Sub(r.Due) > time.Minute)

					ctx, cancel = lose()
					defer cancel()
					_, err = s.Commit(ctx, outcome(r))
					check(err)
					got, err = s.Get(t.Context(), settle.ByID(r.ID))
					require.NoError(t, err)
					assert.Equal(t, carriedOut, got.Version == 2)

					c := create("2")
					c.Writes[0].DueIn = 0
					_, err = s.Commit(t.Context(), c)
					require.NoError(t, err)
					ctx, cancel = lose()
					defer cancel()
					claimed, err := s.Claim(ctx, settle.Claim{Kinds: []string{"charge"}, Token: "mine", Lease: time.Minute, Limit: 5})
					check(err)
					if carriedOut {
						require.Len(t, claimed, 1)
					}
					got, err = s.Get(t.Context(), settle.ByID(created("2").ID))
					require.NoError(t, err)
					assert.Equal(t, carriedOut, got.Token == "mine")
				})
			}
		}
	}
}

// TestIC03_HiddenRetry (IC-03): database/sql repeats a statement when the driver
// reports a bad connection, also one that was carried out.
func TestIC03_HiddenRetry(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"BEGIN", "UPDATE settle_schema", "INSERT INTO settle_operation", "INSERT INTO settle_history", "INSERT INTO settle_reference",
		"UPDATE settle_operation SET account", "UPDATE settle_operation SET scope", "UPDATE settle_operation SET token",
		"UPDATE settle_operation SET due", "SELECT",
	} {
		for i := range 4 {
			before, direct := i&1 > 0, i&2 > 0
			t.Run(fmt.Sprint(text, " before ", before, " direct ", direct), func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				if direct {
					ctx = context.WithoutCancel(ctx)
				}
				db, s, f := faultyStore(t)
				again := func() { f.once(text, before, driver.ErrBadConn) }
				again()
				out, err := s.Commit(ctx, create("1"))
				require.NoError(t, err)
				again()
				require.NoError(t, renew(ctx, s, out[0].ID, "t1", time.Minute))
				again()
				out, err = s.Commit(ctx, outcome(out[0]))
				require.NoError(t, err)
				assert.EqualValues(t, 2, out[0].Version)
				c := create("2")
				c.Writes[0].DueIn = 0
				_, err = s.Commit(ctx, c)
				require.NoError(t, err)
				again()
				claimed, err := s.Claim(ctx, settle.Claim{Kinds: []string{"charge"}, Token: "mine", Lease: time.Minute, Limit: 5})
				require.NoError(t, err)
				require.Len(t, claimed, 1)
				got, err := s.Get(t.Context(), settle.ByID(created("2").ID))
				require.NoError(t, err)
				assert.Equal(t, claimed[0].Version, got.Version)
				assert.EqualValues(t, 2, got.Version)
				assert.Equal(t, "mine", got.Token)
				f.set(nil)
				h, err := s.History(t.Context(), out[0].ID, 0, 0)
				require.NoError(t, err)
				assert.Len(t, h, 2)
				noneOpen(t, db)
			})
		}
	}
}

// withSecond has another reference beside the first: that takes more than one statement.
func withSecond(r settle.Record) settle.Change {
	c := outcome(r)
	w := &c.Writes[0]
	w.Record.References = append(w.Record.References, settle.Reference{Ref: "pi_second", Rank: settle.RankFailed})
	return c
}

// TestStatementFails: any error of any statement leaves all of a step or nothing, by one
// statement of its own (the context cannot end) and in a transaction.
func TestStatementFails(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"BEGIN", "UPDATE settle_schema", "INSERT INTO settle_operation", "INSERT INTO settle_reference", "INSERT INTO settle_history",
		"UPDATE settle_operation SET account", "UPDATE settle_operation SET scope", "SELECT version, token", "COMMIT",
	} {
		for _, before := range []bool{true, false} {
			for _, direct := range []bool{true, false} {
				t.Run(fmt.Sprint(text, " before ", before, " direct ", direct), func(t *testing.T) {
					t.Parallel()
					db, s, f := faultyStore(t)
					ctx := t.Context()
					if direct {
						ctx = context.WithoutCancel(ctx)
					}
					var failures []error
					version := func(id string) (v int64) {
						r, err := s.Get(t.Context(), settle.ByID(id))
						if !errors.Is(err, settle.ErrNotFound) {
							require.NoError(t, err)
						}
						return r.Version
					}
					// Each step fails, is all or nothing, and succeeds when repeated.
					step := func(c settle.Change) settle.Record {
						w := &c.Writes[0]
						f.once(text, before, errLost)
						_, err := s.Commit(ctx, c)
						f.set(nil)
						if err != nil {
							failures = append(failures, err)
							assert.Equal(t, w.IfVersion, version(w.Record.ID))
						}
						out, err := s.Commit(ctx, c)
						require.NoError(t, err)
						assert.Equal(t, w.IfVersion+1, version(w.Record.ID))
						return out[0]
					}
					r := step(create("1"))
					r = step(outcome(r))
					r = step(outcome(r)) // its entry has a row of its own
					r = step(withSecond(r))
					h, err := s.History(t.Context(), r.ID, 0, 0)
					require.NoError(t, err)
					assert.Len(t, h, 4)
					for _, ref := range []string{"pi_key-1", "pi_second"} {
						got, err := s.Get(t.Context(), settle.ByRef(r.Account, r.Kind, ref))
						require.NoError(t, err)
						assert.EqualValues(t, 4, got.Version)
					}
					// After COMMIT, and after a statement that is all of its step, reading back answers.
					if !before && (text == "COMMIT" || direct && text == "INSERT INTO settle_operation") {
						assert.Empty(t, failures)
					} else {
						require.ErrorIs(t, errors.Join(failures...), errLost)
					}
					noneOpen(t, db)
				})
			}
		}
	}
}

// TestRollbackFails: the connection is closed, not given back in a transaction.
func TestRollbackFails(t *testing.T) {
	t.Parallel()
	db, s, f := faultyStore(t)
	f.set(func(text string, done bool) error {
		if !done && text == "ROLLBACK" {
			return errLost
		}
		return nil
	})
	c := create("1")
	c.Hook = func(context.Context, settle.Tx) error { return errLost }
	_, err := s.Commit(t.Context(), c)
	require.ErrorIs(t, err, errLost)
	f.set(nil)
	noneOpen(t, db)
	_, err = s.Commit(t.Context(), create("1"))
	require.NoError(t, err)
}

// TestUnknownOutcome: when reading back fails too, the error says that nothing is known.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	_, s, f := faultyStore(t)
	f.set(func(text string, done bool) error {
		if text == "COMMIT" && done || strings.HasPrefix(text, "SELECT write_id") && !done {
			return errLost
		}
		return nil
	})
	_, err := s.Commit(t.Context(), create("1"))
	require.ErrorIs(t, err, errLost)
	assert.Contains(t, err.Error(), "unknown")
	f.set(nil)
	_, err = s.Commit(t.Context(), create("1")) // S26
	require.NoError(t, err)
}

// TestIC23_Canceled: a context that ends before COMMIT leaves nothing, and is what
// the error says.
func TestIC23_Canceled(t *testing.T) {
	t.Parallel()
	db, s, f := faultyStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Commit(ctx, create("1"))
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Get(ctx, settle.ByID("x"))
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.List(ctx, settle.Query{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.History(ctx, "x", 0, 0)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Claim(ctx, settle.Claim{Kinds: []string{"charge"}, Token: "x", Lease: 1, Limit: 1})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, renew(ctx, s, "x", "x", 1), context.Canceled)

	// alone waits until what was given up before has let go of the lock: else the next change shares a
	// transaction with others (TestFlush…), which no single caller's end can stop.
	alone := func() {
		f.set(nil)
		c := create("none")
		c.Hook = func(context.Context, settle.Tx) error { return errors.New("not this one") }
		_, err := s.Commit(t.Context(), c)
		require.Error(t, err)
	}
	for _, text := range []string{"BEGIN", "UPDATE settle_schema", "INSERT INTO settle_operation"} {
		alone()
		ctx, cancel := context.WithCancel(t.Context())
		f.set(func(got string, done bool) error {
			if done && strings.HasPrefix(got, text) {
				cancel()
			}
			return nil
		})
		_, err := s.Commit(ctx, create("1"))
		require.ErrorIs(t, err, context.Canceled, text)
		assert.NotErrorIs(t, err, settle.ErrUncommitted)
	}
	alone()
	ctx, cancel = context.WithCancel(t.Context())
	c := create("1")
	c.Hook = func(context.Context, settle.Tx) error { cancel(); return nil }
	_, err = s.Commit(ctx, c)
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, count(t, db, `SELECT count(*) FROM settle_operation`))
	noneOpen(t, db)
}

// TestNoNeedlessWrites: an idle sweep and a lost claim write nothing and take no lock.
func TestNoNeedlessWrites(t *testing.T) {
	t.Parallel()
	_, s, f := faultyStore(t)
	f.set(nil)
	out, err := s.Claim(t.Context(), settle.Claim{Kinds: []string{"charge"}, Token: "x", Lease: time.Minute, Limit: 1})
	require.NoError(t, err)
	assert.Empty(t, out)
	_, err = s.Get(t.Context(), settle.ByID("x"))
	require.ErrorIs(t, err, settle.ErrNotFound)
	for _, text := range f.log {
		assert.Truef(t, strings.HasPrefix(text, "SELECT"), "%s", text)
	}
}
