package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// flushed has n creations wait for the lock together, then lets them have it. Only one of
// them at a time talks to the database, so the order of their statements is that of the queue.
func flushed(t *testing.T, s *Store, n int, ctxOf func(i int) context.Context, expect func()) []error {
	t.Helper()
	s.plain, s.d.taken = true, "" // nobody looks in between
	s.gate <- struct{}{}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		c := change()
		c.ID, c.Writes[0].Record.ID = fmt.Sprint("c", i), fmt.Sprint("op-", i)
		all.Go(func() { _, errs[i] = s.Commit(ctxOf(i), c) })
		for queued := 0; queued <= i; runtime.Gosched() { // so that they queue in order
			s.flush.mu.Lock()
			queued = len(s.flush.queue)
			s.flush.mu.Unlock()
		}
	}
	expect()
	<-s.gate
	all.Wait()
	return errs
}

func patient(context.Context) func(int) context.Context {
	return func(int) context.Context { return context.Background() }
}

func expectFlush(mock sqlmock.Sqlmock) {
	mock.ExpectBegin()
	mock.ExpectExec("UPDATE settle_schema").WillReturnResult(sqlmock.NewResult(0, 0))
}

func expectInsert(mock sqlmock.Sqlmock, id string) *sqlmock.ExpectedExec {
	args := make([]driver.Value, 21)
	for i := range args {
		args[i] = sqlmock.AnyArg()
	}
	args[0] = []byte(id)
	return mock.ExpectExec("INSERT INTO settle_operation").WithArgs(args...)
}

func one() driver.Result { return sqlmock.NewResult(1, 1) }

func TestFlush(t *testing.T) {
	t.Parallel()
	t.Run("one transaction", func(t *testing.T) {
		s, mock := mocked(t)
		errs := flushed(t, s, 3, patient(t.Context()), func() {
			expectFlush(mock)
			for i := range 3 {
				expectInsert(mock, fmt.Sprint("op-", i)).WillReturnResult(one())
			}
			mock.ExpectCommit()
		})
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, mock.ExpectationsWereMet())
	})
	t.Run("a refused member leaves its neighbors alone", func(t *testing.T) {
		s, mock := mocked(t)
		errs := flushed(t, s, 3, patient(t.Context()), func() {
			expectFlush(mock)
			expectInsert(mock, "op-0").WillReturnResult(one())
			expectInsert(mock, "op-1").WillReturnError(codeError(sqliteUnique))
			expectInsert(mock, "op-2").WillReturnResult(one())
			mock.ExpectCommit()
			// and is told why in a transaction of its own
			expectFlush(mock)
			expectInsert(mock, "op-1").WillReturnError(codeError(sqliteUnique))
			mock.ExpectRollback()
			mock.ExpectQuery("SELECT write_id").WillReturnRows(writeID("another"))
			mock.ExpectQuery("SELECT .* FROM settle_operation").WillReturnError(errIO)
		})
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], errIO)
		require.NoError(t, errs[2])
		require.NoError(t, mock.ExpectationsWereMet())
	})
	t.Run("a broken statement sends each on its own way", func(t *testing.T) {
		s, mock := mocked(t)
		mock.MatchExpectationsInOrder(false)
		errs := flushed(t, s, 2, patient(t.Context()), func() {
			expectFlush(mock)
			expectInsert(mock, "op-0").WillReturnResult(one())
			expectInsert(mock, "op-1").WillReturnError(errIO)
			mock.ExpectRollback()
			for i := range 2 {
				expectFlush(mock)
				expectInsert(mock, fmt.Sprint("op-", i)).WillReturnResult(one())
				mock.ExpectCommit()
			}
		})
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, mock.ExpectationsWereMet())
	})
	t.Run("after a lost COMMIT each reads its own write back", func(t *testing.T) {
		s, mock := mocked(t)
		mock.MatchExpectationsInOrder(false)
		errs := flushed(t, s, 2, patient(t.Context()), func() {
			expectFlush(mock)
			expectInsert(mock, "op-0").WillReturnResult(one())
			expectInsert(mock, "op-1").WillReturnResult(one())
			mock.ExpectCommit().WillReturnError(errIO)
			mock.ExpectQuery("SELECT write_id").WithArgs([]byte("op-0")).WillReturnRows(writeID("c0"))
			mock.ExpectQuery("SELECT write_id").WithArgs([]byte("op-1")).WillReturnRows(sqlmock.NewRows([]string{"write_id"}))
		})
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], errIO)
		require.NoError(t, mock.ExpectationsWereMet())
	})
	t.Run("a caller that gives up is not written", func(t *testing.T) {
		s, mock := mocked(t)
		gone, cancel := context.WithCancel(t.Context())
		errs := flushed(t, s, 3, func(i int) context.Context {
			if i == 1 {
				return gone
			}
			return context.Background()
		}, func() {
			cancel()
			for queued := 3; queued > 2; runtime.Gosched() {
				s.flush.mu.Lock()
				queued = len(s.flush.queue)
				s.flush.mu.Unlock()
			}
			expectFlush(mock)
			expectInsert(mock, "op-0").WillReturnResult(one())
			expectInsert(mock, "op-2").WillReturnResult(one())
			mock.ExpectCommit()
		})
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], context.Canceled)
		require.NoError(t, errs[2])
		require.NoError(t, mock.ExpectationsWereMet())
	})
	t.Run("no lock", func(t *testing.T) {
		s, mock := mocked(t)
		s.opts.LockWait = 20 * time.Millisecond
		mock.MatchExpectationsInOrder(false)
		errs := flushed(t, s, 2, patient(t.Context()), func() {
			for range 50 {
				mock.ExpectBegin().WillReturnError(codeError(sqliteBusy))
			}
		})
		for _, err := range errs {
			require.ErrorIs(t, err, settle.ErrUncommitted)
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
		}
	})
}
