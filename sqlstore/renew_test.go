package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

const (
	stillHeld = int64(1) << 40 // an end of a lease, and the time before it
	timeNow   = int64(1) << 39
)

// renewal expects the statements of a renewal of "op-1" under "t", of which the one that writes
// fails with err, if err is set.
func (v server) renewal(mock sqlmock.Sqlmock, err error) {
	if v.d.lockHeld == "" {
		e := mock.ExpectQuery("UPDATE settle_operation o SET due")
		if err != nil {
			e.WillReturnError(err)
		} else {
			e.WillReturnRows(sqlmock.NewRows([]string{"id", "token", "renewed", "still"}).AddRow([]byte("op-1"), []byte("t"), true, true))
		}
		return
	}
	mock.ExpectBegin()
	mock.ExpectQuery("SELECT id, token, due.* FOR UPDATE SKIP LOCKED").WillReturnRows(
		sqlmock.NewRows([]string{"id", "token", "due", "now"}).AddRow([]byte("op-1"), []byte("t"), stillHeld, timeNow))
	e := mock.ExpectExec("UPDATE settle_operation SET due")
	if err != nil {
		e.WillReturnError(err)
		mock.ExpectRollback()
	} else {
		e.WillReturnResult(sqlmock.NewResult(0, 0)) // the count is not looked at (I15)
		mock.ExpectCommit()
	}
}

// TestServerRenews: what a server says that a renewal met, and what it means to the holder: only the
// row itself can say that a claim is lost.
func TestServerRenews(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		t.Run("renewed", func(t *testing.T) {
			s, mock := v.open(t)
			v.renewal(mock, nil)
			require.NoError(t, renew(t.Context(), s, "op-1", "t", time.Minute))
			require.NoError(t, mock.ExpectationsWereMet())
		})
		t.Run("nobody can have it", func(t *testing.T) {
			s, mock := v.open(t)
			said, err := s.Renew(t.Context(), []settle.Held{{ID: "op-1"}, {Token: "t"}}, time.Minute)
			require.NoError(t, err)
			require.ErrorIs(t, said[0], settle.ErrClaimLost)
			require.ErrorIs(t, said[1], settle.ErrClaimLost)
			require.NoError(t, mock.ExpectationsWereMet())
		})
		t.Run("again after a deadlock", func(t *testing.T) {
			s, mock := v.open(t)
			v.renewal(mock, v.stale)
			v.renewal(mock, nil)
			require.NoError(t, renew(t.Context(), s, "op-1", "t", time.Minute))
			require.NoError(t, mock.ExpectationsWereMet())
		})
		for _, cause := range []error{v.mute, sql.ErrTxDone, context.Canceled} {
			t.Run(cause.Error(), func(t *testing.T) {
				s, mock := v.open(t)
				v.renewal(mock, cause)
				said, err := s.Renew(t.Context(), []settle.Held{{ID: "op-1", Token: "t"}}, time.Minute)
				require.Error(t, err)
				assert.Nil(t, said)
				assert.NotErrorIs(t, err, sql.ErrTxDone)
				assert.NotErrorIs(t, err, settle.ErrClaimLost)
				require.NoError(t, mock.ExpectationsWereMet())
			})
		}
	})
}

// TestRenewalsAnswerIsLost: the rows of the one statement, or the answer to the COMMIT, do not arrive.
// The holder learns that nothing is known, and the next renewal tells.
func TestRenewalsAnswerIsLost(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		for _, cause := range []error{v.mute, sql.ErrTxDone, driver.ErrBadConn} {
			t.Run(cause.Error(), func(t *testing.T) {
				s, mock := v.open(t)
				again := false
				if v.d.lockHeld == "" {
					mock.ExpectQuery("UPDATE settle_operation o SET due").WillReturnRows(
						sqlmock.NewRows([]string{"id", "token", "renewed", "still"}).AddRow([]byte("op-1"), []byte("t"), true, true).RowError(0, cause))
				} else {
					mock.ExpectBegin()
					mock.ExpectQuery("FOR UPDATE SKIP LOCKED").WillReturnRows(
						sqlmock.NewRows([]string{"id", "token", "due", "now"}).AddRow([]byte("op-1"), []byte("t"), stillHeld, timeNow))
					mock.ExpectExec("UPDATE settle_operation SET due").WillReturnResult(sqlmock.NewResult(0, 1))
					mock.ExpectCommit().WillReturnError(cause)
				}
				if cause == driver.ErrBadConn { //nolint:errorlint // it is that value
					again = true // which does no harm
					v.renewal(mock, nil)
				}
				err := renew(t.Context(), s, "op-1", "t", time.Minute)
				if again {
					require.NoError(t, err)
				} else {
					require.Error(t, err)
					assert.NotErrorIs(t, err, sql.ErrTxDone)
					assert.NotErrorIs(t, err, settle.ErrClaimLost)
				}
				require.NoError(t, mock.ExpectationsWereMet())
			})
		}
	})
}

// TestRenewalsAnswers: what a server says of each claim.
func TestRenewalsAnswers(t *testing.T) {
	t.Parallel()
	held := []settle.Held{{ID: "a", Token: "t"}, {ID: "b", Token: "t"}, {ID: "c", Token: "t"}}
	servers := mockServers()
	t.Run("postgres", func(t *testing.T) {
		s, mock := servers[0].open(t)
		mock.ExpectQuery("UPDATE settle_operation o SET due").WillReturnRows(sqlmock.NewRows([]string{"id", "token", "renewed", "still"}).
			AddRow([]byte("c"), []byte("t"), false, true).AddRow([]byte(""), []byte(""), false, false).
			AddRow([]byte("b"), []byte("t"), true, true).AddRow([]byte("a"), []byte("t"), false, false))
		said, err := s.Renew(t.Context(), held, time.Minute)
		require.NoError(t, err)
		require.ErrorIs(t, said[0], settle.ErrClaimLost)
		require.NoError(t, said[1])
		require.ErrorIs(t, said[2], settle.ErrUncommitted)
		require.NoError(t, mock.ExpectationsWereMet())
	})
	t.Run("mysql", func(t *testing.T) {
		s, mock := servers[1].open(t)
		mock.ExpectBegin()
		mock.ExpectQuery("FOR UPDATE SKIP LOCKED").WithArgs([]byte("a"), []byte("b"), []byte("c"), []byte(""), []byte(""), []byte(""), []byte(""), []byte("")).
			WillReturnRows(sqlmock.NewRows([]string{"id", "token", "due", "now"}).AddRow([]byte("b"), []byte("t"), stillHeld, timeNow).AddRow([]byte("a"), []byte("x"), stillHeld, timeNow))
		mine := settle.Record{ID: "c", Token: "t"}
		servers[1].record(t, mock, &mine) // no lease
		mock.ExpectExec("UPDATE settle_operation SET due").WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectCommit()
		said, err := s.Renew(t.Context(), held, time.Minute)
		require.NoError(t, err)
		require.ErrorIs(t, said[0], settle.ErrClaimLost)
		require.NoError(t, said[1])
		require.ErrorIs(t, said[2], settle.ErrClaimLost)
		require.NoError(t, mock.ExpectationsWereMet())
	})
}
