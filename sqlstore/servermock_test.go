package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// Answers that servers rarely give, for both of their dialects.

type pgError string

func (e pgError) Error() string    { return "ERROR (SQLSTATE " + string(e) + ")" }
func (e pgError) SQLState() string { return string(e) }

// myError has the shape of that of go-sql-driver/mysql.
type myError struct{ Number uint16 }

func (e *myError) Error() string { return fmt.Sprint("Error ", e.Number) }

// server is a dialect under the mock.
type server struct {
	name                          string
	d                             Dialect
	insert, update, claim, lookup string
	stale, other                  error // told to start again: a serialization failure or deadlock
	busy, duplicate, mute         error
}

func mockServers() []server {
	return []server{
		{
			"postgres", PostgreSQL(), "INSERT INTO settle_operation", "UPDATE settle_operation o SET state", "WITH c AS", "SELECT write_id",
			pgError("40001"), pgError("40P01"), pgError("55P03"), pgError("23505"), errors.New("nothing known"),
		},
		{
			"mysql", MySQL(), "INSERT INTO settle_operation", "UPDATE settle_operation SET updated_at", "SELECT o.id", "SELECT write_id",
			&myError{1213}, &myError{1020}, &myError{1205}, &myError{1062}, errors.New("nothing known"),
		},
	}
}

func onServers(t *testing.T, test func(t *testing.T, v server)) {
	t.Helper()
	t.Parallel()
	for _, v := range mockServers() {
		t.Run(v.name, func(t *testing.T) { test(t, v) })
	}
}

// open is a store whose statements are expected in order.
func (v server) open(t *testing.T) (*Store, sqlmock.Sqlmock) {
	t.Helper()
	db, mock, err := sqlmock.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	keep, err := db.Conn(t.Context()) // sqlmock forgets a database whose last connection is closed
	require.NoError(t, err)
	t.Cleanup(func() { _ = keep.Close() })
	s := newStore(db, v.d, &Options{LockWait: 500 * time.Millisecond, Unprepared: true})
	s.plain = true
	return s, mock
}

// write expects a writing statement with an answer: hit, or without effect.
func (v server) write(mock sqlmock.Sqlmock, text string, err error, hit bool) {
	if v.d.answer == answerRow {
		rows := sqlmock.NewRows([]string{"updated_at", "due"})
		if hit {
			rows.AddRow(int64(7), nil)
		}
		e := mock.ExpectQuery(text)
		if err != nil {
			e.WillReturnError(err)
		} else {
			e.WillReturnRows(rows)
		}
		return
	}
	id := int64(0)
	if hit {
		id = 7
	}
	e := mock.ExpectExec(text)
	if err != nil {
		e.WillReturnError(err)
	} else {
		e.WillReturnResult(sqlmock.NewResult(id, 1)) // the count is not looked at
	}
}

func noRows() *sqlmock.Rows { return sqlmock.NewRows([]string{"x"}) }

// columns are those of a record that is read.
func (v server) columns() []string {
	all := []string{"version", "token", "due", "created_at", "updated_at", "body"}
	if v.d.packer != nil {
		all = append(all, "fixed", "id", "scope", "kind", "key", "subject", "purpose", "account", "state")
	}
	return append(all, "request", "result", "now")
}

// row is r with that token, and as the other columns hold it.
func (v server) row(t *testing.T, r settle.Record, due any) []driver.Value {
	t.Helper()
	body, err := settle.EncodeRecord(r)
	require.NoError(t, err)
	out := []driver.Value{r.Version, []byte(r.Token), due, int64(7), int64(7), body}
	if v.d.packer != nil {
		out = append(out, []byte{}) // all is in the body
		for _, name := range []string{r.ID, r.Scope, r.Kind, r.Key, r.Subject, r.Purpose, r.Account, string(r.State)} {
			out = append(out, []byte(name))
		}
	}
	return append(out, nil, nil, int64(8))
}

// record expects the reading of a record, or that there is none.
func (v server) record(t *testing.T, mock sqlmock.Sqlmock, r *settle.Record) {
	t.Helper()
	rows := sqlmock.NewRows(v.columns())
	if r != nil {
		rows.AddRow(v.row(t, *r, nil)...)
	}
	mock.ExpectQuery("SELECT .* FROM settle_operation o WHERE").WillReturnRows(rows)
}

func bump() settle.Change {
	c := change()
	c.Writes[0].IfVersion, c.Writes[0].Record.Version = 1, 1
	c.Writes[0].Record.CreatedAt = instant(7)
	return c
}

// TestServerStatementLost (I15, IC-03, IC-22): the only statement of a change ends in an error that says nothing: the write id tells.
func TestServerStatementLost(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		for _, c := range []settle.Change{change(), bump()} {
			text := v.insert
			if c.Writes[0].IfVersion > 0 {
				text = v.update
			}
			made := c.Writes[0].Record
			made.Version = c.Writes[0].IfVersion + 1
			for name, stored := range map[string]*sqlmock.Rows{"done": writeID("c1"), "not done": noRows(), "somebody else's": writeID("c2")} {
				t.Run(fmt.Sprint(name, " ", made.Version), func(t *testing.T) {
					s, mock := v.open(t)
					v.write(mock, text, v.mute, false)
					mock.ExpectQuery(v.lookup).WillReturnError(errIO) // nobody answers at first
					mock.ExpectQuery(v.lookup).WillReturnRows(stored)
					if name == "done" {
						v.record(t, mock, &made)
					}
					out, err := s.Commit(t.Context(), c)
					if name == "done" {
						require.NoError(t, err)
						assert.Equal(t, made.Version, out[0].Version)
					} else {
						require.ErrorIs(t, err, v.mute)
						assert.NotErrorIs(t, err, settle.ErrConflict)
						assert.NotErrorIs(t, err, settle.ErrUncommitted)
					}
					require.NoError(t, mock.ExpectationsWereMet())
				})
			}
		}
		t.Run("and nobody ever answers", func(t *testing.T) {
			s, mock := v.open(t)
			s.opts.LockWait = 20 * time.Millisecond
			v.write(mock, v.insert, v.mute, false)
			_, err := s.Commit(t.Context(), change())
			require.ErrorIs(t, err, v.mute)
			assert.Contains(t, err.Error(), "unknown")
		})
		t.Run("and the caller is gone", func(t *testing.T) {
			s, mock := v.open(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			mock.MatchExpectationsInOrder(true)
			if v.d.answer == answerRow {
				mock.ExpectQuery(v.insert).WillDelayFor(time.Hour).WillReturnRows(noRows())
			} else {
				mock.ExpectExec(v.insert).WillDelayFor(time.Hour).WillReturnResult(sqlmock.NewResult(7, 1))
			}
			time.AfterFunc(5*time.Millisecond, cancel)
			_, err := s.Commit(ctx, change())
			require.ErrorIs(t, err, context.Canceled)
			assert.NotErrorIs(t, err, settle.ErrConflict)
			assert.NotErrorIs(t, err, sql.ErrTxDone)
		})
	})
}

// TestServerBadConn (IC-03): database/sql repeats a statement whose connection was bad, also one that was carried out: it then meets its own work.
func TestServerBadConn(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		s, mock := v.open(t)
		v.write(mock, v.insert, driver.ErrBadConn, false) // carried out
		repeated := error(nil)
		if v.d.answer == answerStamp {
			repeated = v.duplicate
		}
		v.write(mock, v.insert, repeated, false)
		// A transaction finds out why.
		mock.ExpectBegin()
		v.write(mock, v.insert, repeated, false)
		mock.ExpectRollback()
		mock.ExpectQuery(v.lookup).WillReturnRows(writeID("c1"))
		made := change().Writes[0].Record
		made.Version = 1
		v.record(t, mock, &made)
		out, err := s.Commit(t.Context(), change())
		require.NoError(t, err)
		assert.EqualValues(t, 1, out[0].Version)
		require.NoError(t, mock.ExpectationsWereMet())
	})
}

// TestServerStartsAgain (IC-25, IC-26): a deadlock or serialization failure, of a statement or of COMMIT, starts the whole transaction again, hook included.
func TestServerStartsAgain(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		for _, cause := range []error{v.stale, v.other} {
			t.Run(cause.Error(), func(t *testing.T) {
				s, mock := v.open(t)
				// The statement by itself, then the transaction's statement, then its COMMIT.
				v.write(mock, v.insert, cause, false)
				mock.ExpectBegin()
				v.write(mock, v.insert, cause, false)
				mock.ExpectRollback()
				mock.ExpectBegin()
				v.write(mock, v.insert, nil, true)
				mock.ExpectCommit().WillReturnError(cause)
				mock.ExpectBegin()
				v.write(mock, v.insert, nil, true)
				mock.ExpectCommit()
				out, err := s.Commit(t.Context(), change())
				require.NoError(t, err)
				assert.EqualValues(t, 1, out[0].Version)
				require.NoError(t, mock.ExpectationsWereMet())
			})
		}
		t.Run("of the hook", func(t *testing.T) {
			s, mock := v.open(t)
			for range restarts {
				mock.ExpectBegin()
				v.write(mock, v.insert, nil, true)
				mock.ExpectRollback()
			}
			c, runs := change(), 0
			c.Hook = func(context.Context, settle.Tx) error { runs++; return fmt.Errorf("stock: %w", v.stale) }
			_, err := s.Commit(t.Context(), c)
			var hook *settle.HookError
			require.ErrorAs(t, err, &hook, "it keeps the hook's error in the end (I11)")
			require.ErrorIs(t, err, v.stale)
			assert.NotErrorIs(t, err, errRestart)
			assert.Equal(t, restarts, runs)
			require.NoError(t, mock.ExpectationsWereMet())
		})
		t.Run("for ever", func(t *testing.T) {
			s, mock := v.open(t)
			s.opts.LockWait = 10 * time.Millisecond
			mock.MatchExpectationsInOrder(false)
			for range 200 {
				mock.ExpectBegin()
				v.write(mock, v.insert, v.stale, false)
				mock.ExpectRollback()
			}
			_, err := s.Commit(t.Context(), change())
			require.ErrorIs(t, err, errRestart)
			assert.NotErrorIs(t, err, settle.ErrConflict)
		})
	})
}

// TestServerCommit (IC-22, IC-24): COMMIT ends in an error: the write id tells, on another connection; what the database says that it did not do is not asked for.
func TestServerCommit(t *testing.T) {
	hooked := func() settle.Change {
		c := change()
		c.Hook = func(context.Context, settle.Tx) error { return nil }
		return c
	}
	onServers(t, func(t *testing.T, v server) {
		for name, cause := range map[string]error{
			"lost": v.mute, "bad connection": driver.ErrBadConn, "ended": sql.ErrTxDone, "canceled": context.Canceled,
			"became a rollback": errors.New("commit unexpectedly resulted in rollback"),
		} {
			for _, done := range []bool{true, false} {
				if done && name == "became a rollback" {
					continue
				}
				t.Run(fmt.Sprint(name, " ", done), func(t *testing.T) {
					s, mock := v.open(t)
					mock.ExpectBegin()
					v.write(mock, v.insert, nil, true)
					mock.ExpectQuery(v.lookup).WillReturnRows(writeID("c1")) // after the hook
					mock.ExpectCommit().WillReturnError(cause)
					if done {
						mock.ExpectQuery(v.lookup).WillReturnRows(writeID("c1"))
						made := change().Writes[0].Record
						made.Version = 1
						v.record(t, mock, &made)
					} else {
						mock.ExpectQuery(v.lookup).WillReturnRows(noRows())
					}
					out, err := s.Commit(t.Context(), hooked())
					if done {
						require.NoError(t, err)
						assert.Len(t, out, 1)
					} else {
						require.Error(t, err)
						assert.NotErrorIs(t, err, sql.ErrTxDone)
						assert.NotErrorIs(t, err, settle.ErrConflict)
						assert.NotErrorIs(t, err, settle.ErrUncommitted)
					}
					require.NoError(t, mock.ExpectationsWereMet())
				})
			}
		}
	})
}

// TestServerBusy: a lock could not be had in time: nothing was done, and the error says so (S6).
func TestServerBusy(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		s, mock := v.open(t)
		v.write(mock, v.insert, v.busy, false)
		_, err := s.Commit(t.Context(), change())
		require.ErrorIs(t, err, settle.ErrUncommitted)

		mock.ExpectBegin()
		v.write(mock, v.insert, v.busy, false)
		mock.ExpectRollback()
		c := change()
		c.Hook = func(context.Context, settle.Tx) error { return nil }
		_, err = s.Commit(t.Context(), c)
		require.ErrorIs(t, err, settle.ErrUncommitted)
		require.ErrorIs(t, err, v.busy)

		v.renewal(mock, v.busy)
		require.ErrorIs(t, renew(t.Context(), s, "op-1", "t", time.Minute), settle.ErrUncommitted)
		require.NoError(t, mock.ExpectationsWereMet())
	})
}

// TestServerDuplicate: a name is taken: the owner is read when the transaction is over; a driver whose errors have no code gives an error, not a conflict.
func TestServerDuplicate(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		for _, c := range []settle.Change{change(), bump()} {
			text, was := v.insert, c.Writes[0].IfVersion
			if was > 0 {
				text = v.update
			}
			t.Run(fmt.Sprint("version ", was), func(t *testing.T) {
				s, mock := v.open(t)
				v.write(mock, text, v.duplicate, false)
				mock.ExpectBegin()
				v.write(mock, text, v.duplicate, false)
				mock.ExpectRollback()
				mock.ExpectQuery(v.lookup).WillReturnRows(noRows())
				own, owner := c.Writes[0].Record, c.Writes[0].Record
				own.Version = was
				owner.ID, owner.Version = "op-2", 3
				if was > 0 {
					v.record(t, mock, &own)
					v.record(t, mock, &own) // by id
				} else {
					v.record(t, mock, nil) // by id
				}
				v.record(t, mock, &owner) // by key
				_, err := s.Commit(t.Context(), c)
				var conflict *settle.ConflictError
				require.ErrorAs(t, err, &conflict)
				assert.Equal(t, settle.IndexKey, conflict.Index.Name)
				assert.Equal(t, "op-2", conflict.Existing.ID)
				require.NoError(t, mock.ExpectationsWereMet())
			})
		}
		t.Run("no code", func(t *testing.T) {
			s, mock := v.open(t)
			v.write(mock, v.insert, errors.New("duplicate key"), false)
			mock.ExpectQuery(v.lookup).WillReturnRows(noRows())
			_, err := s.Commit(t.Context(), change())
			require.ErrorContains(t, err, "duplicate key")
			assert.NotErrorIs(t, err, settle.ErrConflict)
			require.NoError(t, mock.ExpectationsWereMet())
		})
	})
}

// TestServerClaim (I15): of a claim whose answer is lost the token tells.
func TestServerClaim(t *testing.T) {
	claim := settle.Claim{Kinds: []string{"k"}, Token: "mine", Lease: time.Minute, Limit: 1}
	onServers(t, func(t *testing.T, v server) {
		columns := append([]string{"id"}, v.columns()...)
		row := func(version int64) *sqlmock.Rows {
			r := settle.Record{ID: "op-1", Kind: "k", Version: version, Token: "mine"}
			return sqlmock.NewRows(columns).AddRow(append([]driver.Value{[]byte("op-1")}, v.row(t, r, int64(9))...)...)
		}
		for name, cause := range map[string]error{"lost": v.mute, "bad connection": driver.ErrBadConn} {
			for _, done := range []bool{true, false} {
				t.Run(fmt.Sprint(name, " ", done), func(t *testing.T) {
					s, mock := v.open(t)
					if v.d.claimDue != "" {
						mock.ExpectQuery(v.claim).WillReturnError(cause)
						if done {
							mock.ExpectQuery("SELECT o.id").WillReturnRows(row(5))
						} else {
							mock.ExpectQuery("SELECT o.id").WillReturnRows(sqlmock.NewRows(columns))
							if errors.Is(cause, driver.ErrBadConn) { // certain: again
								mock.ExpectQuery(v.claim).WillReturnRows(row(5))
							}
						}
					} else {
						mock.ExpectQuery("SELECT 1 FROM settle_operation o WHERE o.due").WillReturnRows(sqlmock.NewRows([]string{"1"}).AddRow(1))
						mock.ExpectBegin()
						mock.ExpectQuery(v.claim).WillReturnRows(row(4))
						mock.ExpectExec("UPDATE settle_operation SET token").WillReturnResult(sqlmock.NewResult(0, 0))
						mock.ExpectCommit().WillReturnError(cause)
						rows := sqlmock.NewRows([]string{"1"})
						if done {
							rows.AddRow(1)
						}
						mock.ExpectQuery("SELECT 1 FROM settle_operation WHERE id").WithArgs([]byte("op-1"), []byte("mine")).WillReturnRows(rows)
					}
					out, err := s.Claim(t.Context(), claim)
					require.NoError(t, mock.ExpectationsWereMet())
					again := v.d.claimDue != "" && errors.Is(cause, driver.ErrBadConn)
					if !done && !again {
						require.Error(t, err)
						assert.NotErrorIs(t, err, settle.ErrClaimLost)
						return
					}
					require.NoError(t, err)
					require.Len(t, out, 1)
					assert.EqualValues(t, 5, out[0].Version)
				})
			}
		}
	})
}
