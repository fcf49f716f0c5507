package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/settle-go/settle"
)

// mortal is the store as a process sees it that is killed: from then on nothing that it does reaches the database.
type mortal struct {
	settle.Store
	mu   sync.Mutex
	dead chan struct{}
}

func (m *mortal) died() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead == nil {
		m.dead = make(chan struct{})
	}
	return m.dead
}

func (m *mortal) kill() {
	died := m.died()
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-died:
	default:
		close(m.dead)
	}
}

func (m *mortal) alive() error {
	select {
	case <-m.died():
		return errors.New("feed: the process is gone")
	default:
		return nil
	}
}

func (m *mortal) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	return m.Store.Commit(ctx, c)
}

func (m *mortal) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	return m.Store.Claim(ctx, c)
}

func (m *mortal) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	return m.Store.Renew(ctx, held, lease)
}
