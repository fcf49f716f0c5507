package sqlstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/settle-go/settle"
)

// maxFlush bounds the members of one transaction, and so what a failed COMMIT has to read back.
const maxFlush = 256

// flusher makes one transaction of changes that had to wait for each other anyway: on a
// database with one write lock, a commit costs the same with many rows in it. A
// change that finds the lock free goes alone and at once. On a server, one that finds no crowd.
type flusher struct {
	mu      sync.Mutex
	queue   []*member
	running int // flushes
	most    int // of them at a time
	active  int // changes on their way, queued ones too
	crowd   int // so many of them make a further one queue, on a server
}

// member is one change in a flush. It is one statement, so that what refuses it leaves the
// others alone.
type member struct {
	a    *attempt
	done chan struct{} // closed when the rest is set
	fate fate
	st   stamp
	out  settle.Record
	err  error
}

type fate int

const (
	left      fate = iota // not written: a transaction of its own finds out why
	alone                 // not written because of others: it goes by itself
	committed             // out is stored
	waited                // err: the lock was not to be had
	unknown               // err: COMMIT answered with it
)

// together commits a with others that wait. Where that does nothing, done is false and a
// transaction of its own finds out why.
func (s *Store) together(ctx context.Context, a *attempt) (out []settle.Record, done bool, err error) {
	m := &member{a: a, done: make(chan struct{})}
	s.flush.mu.Lock()
	s.flush.queue = append(s.flush.queue, m)
	s.flush.active++
	start := s.flush.due()
	if start {
		s.flush.running++
	}
	s.flush.mu.Unlock()
	if start {
		go s.flushAll()
	}
	patience := lookAfter
	if !s.d.local {
		patience = queuePatience
	}
	over := ctx.Done()
	slow := time.NewTimer(patience)
	defer slow.Stop()
	for {
		select {
		case <-m.done:
			if !s.d.local {
				return s.answer(ctx, m)
			}
			switch m.fate {
			case committed:
				return []settle.Record{m.out}, true, nil
			case waited:
				return nil, true, m.err
			case unknown:
				out, err := s.settled(ctx, a.c, []settle.Record{m.out}, m.err)
				return out, true, err
			case left, alone:
			}
			return nil, false, nil
		case <-over:
			if s.flush.withdraw(m) || !s.d.local {
				return nil, true, ended(ctx, "commit") // the others, and what is under way, go on
			}
			over = nil // it is being written, which is short on a file: the answer is known then
		case <-slow.C:
			if !s.d.local {
				if s.flush.withdraw(m) {
					return s.own(ctx, a)
				}
				continue
			}
			if a.values[0].was > 0 || s.d.taken == "" {
				continue
			}
			if err := s.needless(ctx, a.c); err != nil && s.flush.withdraw(m) {
				var known answered
				if errors.As(err, &known) {
					return known.out, true, nil
				}
				return nil, true, err
			}
		}
	}
}

// withdraw takes m out of the queue, unless it is being written.
func (f *flusher) withdraw(m *member) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.queue, m)
	if i < 0 {
		return false
	}
	f.queue = slices.Delete(f.queue, i, i+1)
	f.active--
	return true
}

// flushAll runs until nobody waits.
func (s *Store) flushAll() {
	for !s.flush.idle() {
		var batch []*member
		if s.d.local {
			batch = s.flushLocked()
		} else {
			batch = s.flush.take()
			s.flushBatch(batch)
		}
		s.flush.leave(len(batch))
		for _, m := range batch {
			close(m.done)
		}
	}
}

// flushLocked writes who waits for the lock when it is had.
func (s *Store) flushLocked() []*member {
	t, err := s.begin(context.Background(), "commit", nil)
	batch := s.flush.take()
	switch {
	case errors.Is(err, settle.ErrUncommitted):
		for _, m := range batch {
			m.fate, m.err = waited, err
		}
	case err != nil: // each finds out for itself
	default:
		s.flushOne(t, batch)
		t.close()
	}
	return batch
}

// due reports whether one more flush is of use: the first for anybody, another for a crowd, whose
// statements then run while the server waits for the log of those before.
func (f *flusher) due() bool {
	return f.running == 0 && len(f.queue) > 0 || f.running < f.most && len(f.queue) >= second
}

// idle ends the flushing if nobody waits.
func (f *flusher) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	if !f.due() {
		return true
	}
	f.running++
	return false
}

func (f *flusher) take() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(f.queue), maxFlush)
	batch := slices.Clone(f.queue[:n])
	f.queue = slices.Delete(f.queue, 0, n)
	return batch
}

// flushOne writes the members that can be written and commits.
func (s *Store) flushOne(t *step, batch []*member) {
	ctx := context.Background()
	now := micros()
	some := false
	for _, m := range batch {
		v := m.a.values[0]
		v.at(now, never)
		text, created := s.write(v)
		st, err := s.effect(ctx, t.runner, text, v)
		switch {
		case err != nil && s.class(err) == duplicate, err == nil && !st.hit:
			continue
		case err != nil:
			// A full disk, say: SQLite may have undone all of it. Each finds out for itself.
			for _, m := range batch {
				m.fate = left
			}
			return
		}
		if created == 0 {
			created = st.now
		}
		if m.out, m.err = s.written(v, st, created); m.err != nil {
			m.fate = unknown
			continue
		}
		m.fate, some = committed, true
	}
	if !some {
		return
	}
	if err := t.commit(); err != nil {
		for _, m := range batch {
			if m.fate == committed {
				m.fate, m.err = unknown, err
			}
		}
	}
}
