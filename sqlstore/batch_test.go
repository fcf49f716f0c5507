package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// batched has n creations of op-0, op-1, … queue, and then lets them be written. ctxOf may be nil. Only
// one of them at a time talks to the server as long as each is answered by the batch.
func batched(s *Store, n int, ctxOf func(i int) context.Context, expect func()) []error {
	s.flush.crowd, s.flush.running, s.flush.most = 0, 1, 1
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		c := change()
		c.ID, c.Writes[0].Record.ID, c.Writes[0].Record.Subject = fmt.Sprint("c", i), fmt.Sprint("op-", i), fmt.Sprint("subject-", i)
		ctx := context.Background()
		if ctxOf != nil {
			ctx = ctxOf(i)
		}
		all.Go(func() { _, errs[i] = s.Commit(ctx, c) })
		queued(s, i+1)
	}
	expect()
	go s.flushAll()
	all.Wait()
	return errs
}

// queued waits until n changes are.
func queued(s *Store, n int) {
	for have := -1; have != n; runtime.Gosched() {
		s.flush.mu.Lock()
		have = len(s.flush.queue)
		s.flush.mu.Unlock()
	}
}

// batch expects the statements that write the creations of those that are hit, of n; up to COMMIT where there is one.
func (v server) batch(mock sqlmock.Sqlmock, n int, hit ...int) {
	if v.d.flush != "" {
		rows := sqlmock.NewRows([]string{"id", "write_id", "updated_at", "due"})
		for _, i := range hit {
			rows.AddRow([]byte(fmt.Sprint("op-", i)), []byte(fmt.Sprint("c", i)), int64(7), nil)
		}
		mock.ExpectQuery("unnest").WillReturnRows(rows)
		return
	}
	mock.ExpectBegin()
	mock.ExpectExec("JSON_TABLE").WillReturnResult(sqlmock.NewResult(0, int64(n)))
	rows := sqlmock.NewRows([]string{"id", "version", "write_id", "updated_at", "due"})
	for i := range n {
		if slices.Contains(hit, i) {
			rows.AddRow([]byte(fmt.Sprint("op-", i)), int64(1), []byte(fmt.Sprint("c", i)), int64(7), nil)
		}
	}
	mock.ExpectQuery("SKIP LOCKED").WillReturnRows(rows)
}

// fails expects a batch that ends in err.
func (v server) fails(mock sqlmock.Sqlmock, err error) {
	if v.d.flush != "" {
		mock.ExpectQuery("unnest").WillReturnError(err)
		return
	}
	mock.ExpectBegin()
	mock.ExpectExec("JSON_TABLE").WillReturnError(err)
	mock.ExpectRollback()
}

// stored expects the reading back of op-i.
func (v server) stored(t *testing.T, mock sqlmock.Sqlmock, i int) {
	t.Helper()
	id := fmt.Sprint("op-", i)
	mock.ExpectQuery(v.lookup).WithArgs([]byte(id)).WillReturnRows(writeID(fmt.Sprint("c", i)))
	rows := sqlmock.NewRows(v.columns()).AddRow(v.row(t, settle.Record{ID: id, Scope: "s", Kind: "k", Version: 1}, nil)...)
	mock.ExpectQuery("SELECT .* FROM settle_operation o WHERE").WithArgs([]byte(id)).WillReturnRows(rows)
}

func (v server) commits(mock sqlmock.Sqlmock, err error) {
	if v.d.flush == "" {
		mock.ExpectCommit().WillReturnError(err)
	}
}

// TestServerBatch: creations that queue are one transaction, and each caller gets its own answer.
func TestServerBatch(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		s, mock := v.open(t)
		errs := batched(s, 3, nil, func() {
			v.batch(mock, 3, 0, 1, 2)
			v.commits(mock, nil)
		})
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, mock.ExpectationsWereMet())
		assert.Zero(t, s.flush.active)
	})
}

// TestServerBatchRefused: who is not written leaves its neighbors alone, and is told why when they are answered.
func TestServerBatchRefused(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		s, mock := v.open(t)
		errs := batched(s, 3, nil, func() {
			v.batch(mock, 3, 0, 2)
			v.commits(mock, nil)
			mock.ExpectBegin()
			v.write(mock, v.insert, v.duplicate, false)
			mock.ExpectRollback()
			mock.ExpectQuery(v.lookup).WithArgs([]byte("op-1")).WillReturnRows(noRows())
			v.record(t, mock, &settle.Record{ID: "op-1", Version: 4})
		})
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], settle.ErrConflict)
		require.NoError(t, errs[2])
		require.NoError(t, mock.ExpectationsWereMet())
	})
}

// TestServerBatchLost (I15): the answer of what commits a batch is lost. Each of its callers asks for its own write id; one whose
// change is not there makes it once more.
func TestServerBatchLost(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		for name, cause := range map[string]error{"reset": v.mute, "canceled": context.Canceled, "no time": context.DeadlineExceeded} {
			t.Run(name, func(t *testing.T) {
				s, mock := v.open(t)
				mock.MatchExpectationsInOrder(false)
				errs := batched(s, 3, nil, func() {
					if v.d.flush != "" {
						v.fails(mock, cause)
					} else {
						v.batch(mock, 3, 0, 1, 2)
						v.commits(mock, cause)
					}
					v.stored(t, mock, 0)
					mock.ExpectQuery(v.lookup).WithArgs([]byte("op-1")).WillReturnRows(noRows())
					v.write(mock, v.insert, nil, true)
					v.stored(t, mock, 2)
				})
				require.NoError(t, errors.Join(errs...))
				require.NoError(t, mock.ExpectationsWereMet())
			})
		}
		t.Run("and nobody ever answers", func(t *testing.T) {
			s, mock := v.open(t)
			s.opts.LockWait = 50 * time.Millisecond
			errs := batched(s, 2, nil, func() {
				if v.d.flush != "" {
					v.fails(mock, v.mute)
				} else {
					v.batch(mock, 2, 0, 1)
					v.commits(mock, v.mute)
				}
			})
			for _, err := range errs {
				require.ErrorIs(t, err, v.mute)
				assert.ErrorContains(t, err, "unknown")
				assert.NotErrorIs(t, err, settle.ErrConflict)
				assert.NotErrorIs(t, err, settle.ErrUncommitted)
			}
		})
	})
}

// TestServerBatchRestarts: a deadlock or serialization failure starts the whole batch again; if that does not help, each goes by itself.
func TestServerBatchRestarts(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		for _, cause := range []error{v.stale, v.other} {
			t.Run(cause.Error(), func(t *testing.T) {
				s, mock := v.open(t)
				errs := batched(s, 2, nil, func() {
					v.fails(mock, cause)
					v.batch(mock, 2, 0, 1)
					v.commits(mock, nil)
				})
				require.NoError(t, errors.Join(errs...))
				require.NoError(t, mock.ExpectationsWereMet())
			})
			t.Run(cause.Error()+" for ever", func(t *testing.T) {
				s, mock := v.open(t)
				errs := batched(s, 2, nil, func() {
					for range restarts {
						v.fails(mock, cause)
					}
					for range 2 {
						v.write(mock, v.insert, nil, true)
					}
				})
				require.NoError(t, errors.Join(errs...))
				require.NoError(t, mock.ExpectationsWereMet())
			})
		}
	})
}

// TestServerBatchLocked: a batch that needs a lock waits little for it; then each goes by itself, and who needs the lock waits.
func TestServerBatchLocked(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		s, mock := v.open(t)
		mock.MatchExpectationsInOrder(false)
		errs := batched(s, 2, nil, func() {
			v.fails(mock, v.busy)
			v.write(mock, v.insert, nil, true)
			v.write(mock, v.insert, v.busy, false)
		})
		busy := 0
		for _, err := range errs {
			if err != nil {
				require.ErrorIs(t, err, settle.ErrUncommitted)
				busy++
			}
		}
		assert.Equal(t, 1, busy)
		require.NoError(t, mock.ExpectationsWereMet())
	})
}

// TestServerBatchBroken: a server that cannot begin, or is out of space, sends each its own way.
func TestServerBatchBroken(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		s, mock := v.open(t)
		mock.MatchExpectationsInOrder(false)
		errs := batched(s, 2, nil, func() {
			if v.d.flush != "" {
				v.fails(mock, v.mute)
				for i := range 2 { // it may have been the answer that failed
					mock.ExpectQuery(v.lookup).WithArgs([]byte(fmt.Sprint("op-", i))).WillReturnRows(noRows())
				}
			} else {
				for range restarts {
					mock.ExpectBegin().WillReturnError(driver.ErrBadConn)
				}
			}
			for range 2 {
				v.write(mock, v.insert, nil, true)
			}
		})
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, mock.ExpectationsWereMet())
	})
}

// TestServerBatchCanceled: a caller that gives up in the queue is not written, and the others are.
func TestServerBatchCanceled(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		s, mock := v.open(t)
		gone, cancel := context.WithCancel(t.Context())
		errs := batched(s, 3, func(i int) context.Context {
			if i == 1 {
				return gone
			}
			return context.Background()
		}, func() {
			cancel()
			queued(s, 2)
			v.batch(mock, 3, 0, 2)
			v.commits(mock, nil)
		})
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], context.Canceled)
		require.NoError(t, errs[2])
		require.NoError(t, mock.ExpectationsWereMet())
		assert.Zero(t, s.flush.active)
	})
}

// TestServerBatchSlow: who waits in the queue for long goes by itself, past a batch that hangs.
func TestServerBatchSlow(t *testing.T) {
	for _, v := range mockServers() {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, mock := v.open(t)
				s.flush.crowd, s.flush.running, s.flush.most = 0, 1, 1 // a batch that does not end
				began := time.Now()
				v.write(mock, v.insert, nil, true)
				_, err := s.Commit(t.Context(), change())
				require.NoError(t, err)
				assert.Equal(t, queuePatience, time.Since(began))
				require.NoError(t, mock.ExpectationsWereMet())
				assert.Zero(t, s.flush.active)
			})
		})
	}
}

// TestServerLargeGoesAlone: however many others are on their way, a large change is in no batch, which would grow past what a server takes.
func TestServerLargeGoesAlone(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		s, mock := v.open(t)
		s.flush.crowd = 0
		v.write(mock, v.insert, nil, true)
		c := change()
		c.Writes[0].Record.Request = settle.Payload(`"` + strings.Repeat("x", maxShare) + `"`)
		_, err := s.Commit(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, mock.ExpectationsWereMet())
		assert.Zero(t, s.flush.active)
	})
}

// TestServerFewGoAlone: few changes at a time do not wait for each other; none with a hook ever queues.
func TestServerFewGoAlone(t *testing.T) {
	onServers(t, func(t *testing.T, v server) {
		s, mock := v.open(t)
		v.write(mock, v.insert, nil, true)
		_, err := s.Commit(t.Context(), change())
		require.NoError(t, err)
		s.flush.crowd = 0
		mock.ExpectBegin()
		v.write(mock, v.insert, nil, true)
		mock.ExpectQuery(v.lookup).WillReturnRows(writeID("c1")) // after the hook
		mock.ExpectCommit()
		c := change()
		c.Hook = func(context.Context, settle.Tx) error { return nil }
		_, err = s.Commit(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, mock.ExpectationsWereMet())
	})
}
