package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// These tests are about answers that a real file rarely gives. Package
// sqltest has the real ones.

type codeError int

func (codeError) Error() string { return "code" }
func (e codeError) Code() int   { return int(e) }

var errIO = codeError(10)

// mocked is a store whose statements are expected by their beginning.
func mocked(t *testing.T) (*Store, sqlmock.Sqlmock) {
	t.Helper()
	db, mock, err := sqlmock.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	// sqlmock forgets a database whose last connection is closed: keep one.
	keep, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = keep.Close() })
	return newStore(db, SQLite(), &Options{LockWait: 500 * time.Millisecond, AcceptUnsafe: true, Unprepared: true}), mock
}

func change() settle.Change {
	return settle.Change{ID: "c1", Writes: []settle.Write{{Record: settle.Record{ID: "op-1", Scope: "s", Kind: "k", Key: "key", Subject: "a", Purpose: "b"}}}}
}

func expectWrite(mock sqlmock.Sqlmock) {
	mock.ExpectBegin()
	mock.ExpectExec("UPDATE settle_schema").WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectExec("INSERT INTO settle_operation").WillReturnResult(sqlmock.NewResult(7, 1))
}

func writeID(id string) *sqlmock.Rows {
	return sqlmock.NewRows([]string{"write_id"}).AddRow([]byte(id))
}

func TestMockBegin(t *testing.T) {
	t.Parallel()
	t.Run("fails", func(t *testing.T) {
		s, mock := mocked(t)
		mock.ExpectBegin().WillReturnError(errIO)
		_, err := s.Commit(t.Context(), change())
		require.ErrorIs(t, err, errIO)
		require.NoError(t, mock.ExpectationsWereMet())
	})
	t.Run("busy, then free", func(t *testing.T) {
		s, mock := mocked(t)
		mock.ExpectBegin().WillReturnError(codeError(sqliteBusy))
		mock.ExpectBegin()
		mock.ExpectExec("UPDATE settle_schema").WillReturnError(codeError(sqliteBusy))
		mock.ExpectRollback()
		mock.ExpectBegin()
		mock.ExpectExec("UPDATE settle_schema").WillReturnError(codeError(sqliteLocked | 1<<8))
		mock.ExpectRollback()
		expectWrite(mock)
		mock.ExpectCommit()
		out, err := s.Commit(t.Context(), change())
		require.NoError(t, err)
		assert.EqualValues(t, 1, out[0].Version)
		require.NoError(t, mock.ExpectationsWereMet())
	})
	t.Run("busy for ever", func(t *testing.T) {
		s, mock := mocked(t)
		s.opts.LockWait = 30 * time.Millisecond
		mock.MatchExpectationsInOrder(false)
		for range 50 {
			mock.ExpectBegin().WillReturnError(codeError(sqliteBusy))
		}
		mock.ExpectQuery("SELECT 1 WHERE EXISTS").WillReturnRows(sqlmock.NewRows([]string{"1"}))
		_, err := s.Commit(t.Context(), change())
		require.ErrorIs(t, err, settle.ErrUncommitted)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("stale connections", func(t *testing.T) {
		s, mock := mocked(t)
		mock.ExpectBegin().WillReturnError(driver.ErrBadConn)
		mock.ExpectBegin().WillReturnError(driver.ErrBadConn)
		expectWrite(mock)
		mock.ExpectCommit()
		_, err := s.Commit(t.Context(), change())
		require.NoError(t, err)
	})
	t.Run("stale for ever", func(t *testing.T) {
		s, mock := mocked(t)
		for range restarts {
			mock.ExpectBegin().WillReturnError(driver.ErrBadConn)
		}
		_, err := s.Commit(t.Context(), change())
		require.Error(t, err)
		assert.NotErrorIs(t, err, driver.ErrBadConn, "a caller's database/sql must not repeat it")
	})
}

// TestMockCommitLost: the connection breaks after COMMIT was sent (I15).
func TestMockCommitLost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stored *sqlmock.Rows
		want   error
	}{
		"committed":       {writeID("c1"), nil},
		"not committed":   {sqlmock.NewRows([]string{"write_id"}), errIO},
		"somebody else's": {writeID("c2"), errIO},
	} {
		t.Run(name, func(t *testing.T) {
			s, mock := mocked(t)
			expectWrite(mock)
			mock.ExpectCommit().WillReturnError(errIO)
			mock.ExpectQuery("SELECT write_id").WithArgs([]byte("op-1")).WillReturnRows(tt.stored)
			_, err := s.Commit(t.Context(), change())
			if tt.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tt.want)
			}
			require.NoError(t, mock.ExpectationsWereMet())
		})
	}
	t.Run("and nobody answers at first", func(t *testing.T) {
		s, mock := mocked(t)
		expectWrite(mock)
		mock.ExpectCommit().WillReturnError(driver.ErrBadConn)
		mock.ExpectQuery("SELECT write_id").WillReturnError(errIO)
		mock.ExpectQuery("SELECT write_id").WillReturnRows(writeID("c1"))
		_, err := s.Commit(t.Context(), change())
		require.NoError(t, err)
	})
	t.Run("and nobody ever answers", func(t *testing.T) {
		s, mock := mocked(t)
		s.opts.LockWait = 30 * time.Millisecond
		expectWrite(mock)
		mock.ExpectCommit().WillReturnError(errIO)
		_, err := s.Commit(t.Context(), change())
		require.ErrorIs(t, err, errIO)
		assert.Contains(t, err.Error(), "unknown")
	})
	t.Run("of a change that leaves no trace", func(t *testing.T) {
		s, mock := mocked(t)
		s.opts.LockWait = 10 * time.Millisecond
		mock.ExpectBegin()
		mock.ExpectExec("UPDATE settle_schema").WillReturnResult(sqlmock.NewResult(0, 0))
		mock.ExpectCommit().WillReturnError(errIO)
		_, err := s.Commit(t.Context(), settle.Change{ID: "c", Hook: func(context.Context, settle.Tx) error { return nil }})
		require.ErrorIs(t, err, errIO)
		assert.Contains(t, err.Error(), "unknown")
	})
}

// TestMockBadConnection: after a statement it is certain that nothing was
// committed, so the transaction starts again (IC-03).
func TestMockBadConnection(t *testing.T) {
	t.Parallel()
	s, mock := mocked(t)
	mock.ExpectBegin()
	mock.ExpectExec("UPDATE settle_schema").WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectExec("INSERT INTO settle_operation").WillReturnError(driver.ErrBadConn)
	mock.ExpectRollback()
	expectWrite(mock)
	mock.ExpectQuery("SELECT write_id").WillReturnRows(writeID("c1")) // after the hook
	mock.ExpectCommit()
	calls := 0
	c := change()
	c.Hook = func(context.Context, settle.Tx) error { calls++; return nil }
	_, err := s.Commit(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, 1, calls)
	require.NoError(t, mock.ExpectationsWereMet())
}

func TestMockRollback(t *testing.T) {
	t.Parallel()
	s, mock := mocked(t)
	mock.ExpectBegin()
	mock.ExpectExec("UPDATE settle_schema").WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectExec("INSERT INTO settle_operation").WillReturnError(errIO)
	mock.ExpectRollback().WillReturnError(errors.New("no transaction is active"))
	_, err := s.Commit(t.Context(), change())
	require.ErrorIs(t, err, errIO)
	require.NoError(t, mock.ExpectationsWereMet())
	assert.Positive(t, s.db.Stats().OpenConnections, "the connection was closed")
}

// TestMockCanceled (IC-23): the caller goes before COMMIT is sent, or while it
// is under way.
func TestMockCanceled(t *testing.T) {
	t.Parallel()
	t.Run("before", func(t *testing.T) {
		s, mock := mocked(t)
		ctx, cancel := context.WithCancel(t.Context())
		expectWrite(mock)
		mock.ExpectRollback()
		c := change()
		c.Hook = func(context.Context, settle.Tx) error { cancel(); return nil }
		_, err := s.Commit(ctx, c)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, mock.ExpectationsWereMet())
	})
	t.Run("under way", func(t *testing.T) {
		s, mock := mocked(t)
		ctx, cancel := context.WithCancel(t.Context())
		expectWrite(mock)
		mock.ExpectQuery("SELECT write_id").WillReturnRows(writeID("c1")) // after the hook
		mock.ExpectCommit().WillReturnError(sql.ErrTxDone)
		mock.ExpectQuery("SELECT write_id").WillReturnRows(sqlmock.NewRows([]string{"write_id"}))
		c := change()
		c.Hook = func(context.Context, settle.Tx) error { time.AfterFunc(0, cancel); return nil }
		_, err := s.Commit(ctx, c)
		require.Error(t, err)
		assert.NotErrorIs(t, err, sql.ErrTxDone)
	})
	t.Run("while waiting for the gate", func(t *testing.T) {
		s, mock := mocked(t)
		s.gate <- struct{}{}
		mock.ExpectQuery("SELECT 1 WHERE EXISTS").WillReturnRows(sqlmock.NewRows([]string{"1"}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := s.Commit(ctx, change())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = s.Commit(t.Context(), change())
		require.ErrorIs(t, err, settle.ErrUncommitted)
	})
}

// TestMockClaim: the token that is stored says who has the claim (I15).
func TestMockClaim(t *testing.T) {
	t.Parallel()
	body, err := settle.EncodeRecord(settle.Record{ID: "op-1", Kind: "k"})
	require.NoError(t, err)
	due := func() *sqlmock.Rows {
		return sqlmock.NewRows([]string{"id", "version", "token", "due", "created_at", "updated_at", "body", "request", "result"}).
			AddRow([]byte("op-1"), 4, []byte(""), 1, 1, 1, body, nil, nil)
	}
	for name, stored := range map[string]bool{"claimed": true, "not claimed": false} {
		t.Run(name, func(t *testing.T) {
			s, mock := mocked(t)
			mock.ExpectQuery("SELECT 1 FROM settle_operation").WillReturnRows(sqlmock.NewRows([]string{"1"}).AddRow(1))
			mock.ExpectBegin()
			mock.ExpectExec("UPDATE settle_schema").WillReturnResult(sqlmock.NewResult(0, 0))
			mock.ExpectQuery("SELECT o.id").WillReturnRows(due())
			mock.ExpectExec("UPDATE settle_operation SET token").
				WithArgs([]byte("mine"), sqlmock.AnyArg(), int64(5), []byte("op-1"), int64(4)).
				WillReturnResult(sqlmock.NewResult(0, 0)) // the count decides nothing
			mock.ExpectCommit().WillReturnError(errIO)
			rows := sqlmock.NewRows([]string{"1"})
			if stored {
				rows.AddRow(1)
			}
			mock.ExpectQuery("SELECT 1 FROM settle_operation WHERE id").WithArgs([]byte("op-1"), []byte("mine")).WillReturnRows(rows)
			out, err := s.Claim(t.Context(), settle.Claim{Kinds: []string{"k"}, Token: "mine", Lease: time.Minute, Limit: 1})
			require.NoError(t, mock.ExpectationsWereMet())
			if !stored {
				require.ErrorIs(t, err, errIO)
				return
			}
			require.NoError(t, err)
			require.Len(t, out, 1)
			assert.EqualValues(t, 5, out[0].Version)
		})
	}
}

// TestMockConnectionMadeReady: once for each connection.
func TestMockConnectionMadeReady(t *testing.T) {
	t.Parallel()
	s, mock := mocked(t)
	s.opts.AcceptUnsafe = false
	mock.ExpectQuery("PRAGMA synchronous").WillReturnRows(sqlmock.NewRows([]string{"s"}).AddRow(1))
	mock.ExpectExec("PRAGMA synchronous = FULL").WillReturnResult(sqlmock.NewResult(0, 0))
	for range 3 {
		expectWrite(mock)
		mock.ExpectCommit()
	}
	for range 3 {
		_, err := s.Commit(t.Context(), change())
		require.NoError(t, err)
	}
	require.NoError(t, mock.ExpectationsWereMet())
}

func TestMockReads(t *testing.T) {
	t.Parallel()
	s, mock := mocked(t)
	mock.ExpectQuery("SELECT .* FROM settle_operation").WillReturnError(codeError(sqliteBusy))
	mock.ExpectQuery("SELECT .* FROM settle_operation").WillReturnRows(sqlmock.NewRows([]string{"version"}))
	_, err := s.Get(t.Context(), settle.ByID("x"))
	require.ErrorIs(t, err, settle.ErrNotFound)
	mock.ExpectQuery("SELECT .* FROM settle_operation").WillReturnError(errIO)
	_, err = s.Get(t.Context(), settle.ByKey("a", "b", "c"))
	require.ErrorIs(t, err, errIO)
	mock.ExpectQuery("SELECT .* FROM settle_operation").WillReturnError(errIO)
	_, err = s.List(t.Context(), settle.Query{})
	require.ErrorIs(t, err, errIO)
	mock.ExpectQuery("SELECT .* FROM settle_operation").WillReturnError(errIO)
	_, err = s.History(t.Context(), "x", 0, 0)
	require.ErrorIs(t, err, errIO)
	_, err = s.Get(t.Context(), settle.Index{Name: "secret"})
	require.ErrorIs(t, err, settle.ErrInvalid)
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	s, mock := mocked(t)
	for _, c := range []settle.Change{
		{}, {ID: "c", Writes: []settle.Write{{}}}, {ID: "c", Writes: []settle.Write{{Record: settle.Record{ID: "x"}, IfVersion: -1}}},
	} {
		_, err := s.Commit(t.Context(), c)
		require.ErrorIs(t, err, settle.ErrInvalid)
	}
	out, err := s.Commit(t.Context(), settle.Change{ID: "nothing"})
	require.NoError(t, err)
	assert.Empty(t, out)
	_, err = s.Claim(t.Context(), settle.Claim{Kinds: []string{"k"}, Limit: 1, Lease: 1})
	require.ErrorIs(t, err, settle.ErrInvalid)
	require.ErrorIs(t, renew(t.Context(), s, "x", "t", 0), settle.ErrInvalid)
	require.ErrorIs(t, renew(t.Context(), s, "x", "", 1), settle.ErrClaimLost)
	require.NoError(t, mock.ExpectationsWereMet())
}

func TestDSN(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "file:/a%20b/x%3F.db?_pragma=busy_timeout%285000%29&_pragma=journal_mode%28WAL%29&_pragma=synchronous%28FULL%29"+
		"&_pragma=wal_autocheckpoint%284000%29&_txlock=immediate", DSN("/a b/x?.db"))
}

// renew renews one claim.
func renew(ctx context.Context, s settle.Store, id, token string, lease time.Duration) error {
	said, err := s.Renew(ctx, []settle.Held{{ID: id, Token: token}}, lease)
	if err != nil {
		return err
	}
	return said[0]
}
