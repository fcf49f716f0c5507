package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// payments is an engine on a store, with a provider that counts what it is sent and can look
// whether the operation is stored by then.
type payments struct {
	*settle.Executor[areq, ares]
	engine *settle.Engine

	mu   sync.Mutex
	sent map[string]int // by subject
}

func newPayments(t *testing.T, s settle.Store, opts *settle.Options, during func(ctx context.Context, c *settle.Call[areq])) *payments {
	t.Helper()
	e, err := settle.Open(s, opts)
	require.NoError(t, err)
	p := &payments{engine: e, sent: map[string]int{}}
	p.Executor, err = settle.New(e, "pay", settle.Adapter[areq, ares]{
		Promise: acontract(),
		TermsFunc: func(op settle.Operation[areq]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.N, "EUR")}
		},
		SubmitFunc: func(ctx context.Context, c *settle.Call[areq]) (settle.Observation[ares], error) {
			p.mu.Lock()
			_ = c.Key()
			p.sent[c.Subject]++
			p.mu.Unlock()
			if during != nil {
				during(ctx, c)
			}
			return settle.Observation[ares]{Fact: settle.Applied, Ref: "ch_" + c.Subject, Terms: c.Terms, Result: ares{OK: true}}, nil
		},
	}, nil)
	require.NoError(t, err)
	return p
}

func (p *payments) calls(subject string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[subject]
}

func pay(subject string) settle.Operation[areq] {
	return settle.Operation[areq]{Scope: "s", Subject: subject, Purpose: "p", Request: areq{5}}
}

// works runs the worker until done is closed.
func (p *payments) works(t *testing.T, done <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- p.engine.Run(ctx) }()
	select {
	case <-done:
	case err := <-over:
		t.Fatalf("Run ended: %v", err)
	case <-t.Context().Done():
	}
	cancel()
	if err := <-over; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}

// stored is the version that another process sees, 0 for none.
func stored(t *testing.T, db *sql.DB, d database, id string) int {
	t.Helper()
	var v int
	err := db.QueryRowContext(t.Context(), d.text(`SELECT version FROM settle_operation WHERE id = ?`), []byte(id)).Scan(&v)
	if !errors.Is(err, sql.ErrNoRows) {
		require.NoError(t, err)
	}
	return v
}

// later makes the store's time pass for one record: what was due at an instant is due so much earlier.
func later(t *testing.T, db *sql.DB, d database, id string, micros int64) {
	t.Helper()
	require.NoError(t, run(db, d.text(`UPDATE settle_operation SET due = due - ? WHERE id = ?`), micros, []byte(id)))
	if d.name == "PostgreSQL" {
		require.NoError(t, run(db, d.text(`UPDATE settle_due SET due = due - ? WHERE operation = ?`), micros, []byte(id)))
	}
}
