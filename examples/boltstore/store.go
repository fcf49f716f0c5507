// Package boltstore is a settle.Store in a file of go.etcd.io/bbolt: a complete store for
// one process, and the example that docs/store-authors.md walks through.
//
//	db, err := bbolt.Open("/var/lib/app/app.db", 0o600, nil)
//	store, err := boltstore.New(db, nil)
//
// The application's own buckets may live in the same file. In turns a transaction of the
// application into a settle.Tx, so that a business row and an operation commit
// together; the settle.Tx that a hook gets unwraps to its *bbolt.Tx.
//
// bbolt lets one process open a file, one transaction write at a time, and any number
// read beside it. So does the store.
package boltstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/settle-go/settle"
)

// Options are for New. The zero value is right for most.
type Options struct {
	// LockWait is how long a step waits for the write lock before it gives up with
	// settle.ErrUncommitted. Defaults to 5 seconds.
	LockWait time.Duration
}

// Store keeps operations in a bbolt file. It is safe for concurrent use; any number of
// Stores may share one *bbolt.DB.
type Store struct {
	db       *bbolt.DB
	lockWait time.Duration
	broken   atomic.Bool           // see finish
	commit   func(*bbolt.Tx) error // (*bbolt.Tx).Commit but in tests
}

var (
	_ settle.Store = (*Store)(nil)
	_ settle.Local = (*Store)(nil)
	_ settle.Tx    = (*appTx)(nil)
)

// format is stored in the file. A store that finds another one in it leaves it alone.
const format = "1"

// New returns a store on db, and creates its buckets in it if they are missing. db stays
// the application's, which closes it. A database whose commits may not survive a loss
// of power (NoSync, NoGrowSync) is refused.
func New(db *bbolt.DB, opts *Options) (*Store, error) {
	s := &Store{db: db, lockWait: 5 * time.Second, commit: (*bbolt.Tx).Commit}
	if opts != nil && opts.LockWait > 0 {
		s.lockWait = opts.LockWait
	}
	if err := durable(db); err != nil {
		return nil, err
	}
	err := db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(root))
		if err != nil {
			return err
		}
		if have := b.Get([]byte("format")); have != nil && string(have) != format {
			return fmt.Errorf("the file has format %q, this is %q", have, format)
		}
		for _, name := range buckets() {
			if _, err := b.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return b.Put([]byte("format"), []byte(format))
	})
	if err != nil {
		return nil, failed("open", err)
	}
	return s, nil
}

// durable refuses a database that may report a commit which is not on the disk (I1, S7).
func durable(db *bbolt.DB) error {
	if db.NoSync || db.NoGrowSync {
		return errors.New("boltstore: NoSync or NoGrowSync is set: a commit may not survive a loss of power")
	}
	return nil
}

// DB returns the database that New was given.
func (s *Store) DB() *bbolt.DB { return s.db }

// LocalReads implements settle.Local: a read costs no round trip and waits for nobody.
func (s *Store) LocalReads() bool { return true }

// usable refuses a call whose context is done (S5), or that could promise too much (S7).
func (s *Store) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.broken.Load() {
		return errBroken
	}
	return durable(s.db)
}

// begin starts a writing transaction. bbolt waits for its lock for as long as it takes,
// so another goroutine waits, and gives the lock back if it comes too late.
func (s *Store) begin(ctx context.Context) (*step, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	type begun struct {
		tx  *bbolt.Tx
		err error
	}
	got := make(chan begun, 1)
	go func() {
		tx, err := s.db.Begin(true)
		got <- begun{tx, err}
	}()
	wait, cancel := context.WithTimeout(ctx, s.lockWait)
	defer cancel()
	select {
	case b := <-got:
		if b.err != nil {
			return nil, failed("begin", b.err)
		}
		return &step{tx: b.tx, now: clock()}, nil // the clock is read when the lock is there (S4)
	case <-wait.Done():
		go func() {
			if b := <-got; b.err == nil {
				_ = b.tx.Rollback() // nothing was done in it
			}
		}()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: no write lock within %v", settle.ErrUncommitted, s.lockWait)
	}
}

// finish commits what t did; applied tells, in another transaction, whether it is there.
//
// The error of a commit decides nothing (I15): bbolt reports one when the last write to
// the disk failed, after which every reader sees the change and nobody knows whether it
// would survive. So finish looks. What is not there was not done. What is there must
// not be vouched for, by a repeat that finds it either (S7, S26): the store is of no use
// then until the file has been opened again.
func (s *Store) finish(ctx context.Context, t *step, applied func(*step) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.commit(t.tx)
	if err == nil {
		return nil
	}
	if was, looking := s.look(applied); was || looking != nil {
		s.broken.Store(true)
		return failed("outcome of a commit unknown", errors.Join(err, looking))
	}
	return failed("not committed", err)
}

// look asks in a transaction of its own.
func (s *Store) look(ask func(*step) bool) (yes bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		yes = ask(&step{tx: tx})
		return nil
	})
	return yes, err
}

// view runs read in a reading transaction, which sees one state of the file whoever writes.
func (s *Store) view(ctx context.Context, read func(t *step) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.db.View(func(tx *bbolt.Tx) error {
		return read(&step{tx: tx, now: clock()})
	})
}

// clock is the store's time, in whole microseconds (S2, S4).
func clock() time.Time { return time.UnixMicro(time.Now().UnixMicro()).UTC() }

var (
	errBroken = errors.New("boltstore: a commit failed in such a way that the file must be opened again")
	errEnded  = errors.New("boltstore: the transaction has ended")
)

// stepError says what the store was doing when bbolt failed.
type stepError struct {
	doing string
	err   error
}

func failed(doing string, err error) error { return &stepError{doing, err} }

// Error implements error.
func (e *stepError) Error() string { return "boltstore: " + e.doing + ": " + e.err.Error() }

// Unwrap returns what bbolt said.
func (e *stepError) Unwrap() error { return e.err }

// Explain implements settle.Explainer: what bbolt said may quote a path, this quotes nothing.
func (e *stepError) Explain() string { return "boltstore: " + e.doing }

func invalid(what string) error { return fmt.Errorf("%w: boltstore: %s", settle.ErrInvalid, what) }
