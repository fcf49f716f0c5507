package sqltest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// letters is a publisher that hands its messages to a test.
type letters chan settle.Message

func (l letters) Publish(ctx context.Context, m settle.Message) error {
	select {
	case l <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until reads messages until the operation has the state.
func (l letters) until(t *testing.T, id string, to settle.State) (out []settle.Message) {
	t.Helper()
	for {
		select {
		case m := <-l:
			out = append(out, m)
			if m.Operation == id && m.To == to {
				return out
			}
		case <-time.After(time.Minute):
			t.Fatalf("no message says that %s is %s; there were %+v", id, to, out)
		}
	}
}

// TestIC59_FeedOfLateCommits (IC-59): transitions of two transactions of the application, of which the first is committed last, when the second's
// have been published and acted on. The first's come all the same: progress is kept for each operation. On SQLite, where one
// transaction writes at a time, the second one waits.
func TestIC59_FeedOfLateCommits(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		db, s := d.open(t, d.fresh(t), nil)
		out := make(letters)
		p := newPayments(t, s, &settle.Options{Publisher: out, PollInterval: 10 * time.Millisecond, StoreTimeout: time.Minute}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- p.engine.Run(ctx) }()
		defer func() { cancel(); assert.NoError(t, <-over) }()

		a, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		first, err := p.RegisterTx(t.Context(), s.In(a), pay("first"))
		require.NoError(t, err)
		if d.name == "SQLite" {
			require.NoError(t, a.Commit())
		}
		b, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		second, err := p.RegisterTx(t.Context(), s.In(b), pay("second"))
		require.NoError(t, err)
		require.Less(t, first.ID, second.ID)
		require.NoError(t, b.Commit())
		p.engine.Wake()
		if d.name != "SQLite" {
			for _, m := range out.until(t, second.ID, settle.StateSucceeded) {
				assert.Equal(t, second.ID, m.Operation)
			}
			require.NoError(t, a.Commit())
			p.engine.Wake()
		}
		got := map[string]bool{first.ID: false, second.ID: d.name != "SQLite"}
		for !got[first.ID] || !got[second.ID] {
			select {
			case m := <-out:
				got[m.Operation] = got[m.Operation] || m.To == settle.StateSucceeded
			case <-time.After(time.Minute):
				t.Fatalf("published by now: %v", got)
			}
		}
	})
}

// TestIC61_FeedIsInTheTransaction (IC-61): what is queued is in the transaction that made it. Rolled back, there was nothing; committed by a
// process that is gone a moment later, it is delivered by the next one.
func TestIC61_FeedIsInTheTransaction(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		dsn := d.fresh(t)
		db, s := d.open(t, dsn, nil)
		out := make(letters)
		gone := newPayments(t, s, &settle.Options{Publisher: out}, nil) // its worker never runs
		register := func(subject string) settle.Record {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			r, err := gone.RegisterTx(t.Context(), s.In(tx), pay(subject))
			require.NoError(t, err)
			if subject == "undone" {
				require.NoError(t, tx.Rollback())
			} else {
				require.NoError(t, tx.Commit())
			}
			return r
		}
		undone, done := register("undone"), register("done")
		require.Zero(t, stored(t, db, d, "feed_"+undone.ID))
		require.Equal(t, 1, stored(t, db, d, "feed_"+done.ID))

		_, s2 := d.open(t, dsn, nil)
		p := newPayments(t, s2, &settle.Options{Publisher: out, PollInterval: 10 * time.Millisecond}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- p.engine.Run(ctx) }()
		defer func() { cancel(); assert.NoError(t, <-over) }()
		got := out.until(t, done.ID, settle.StateSucceeded)
		var last int64
		for _, m := range got {
			require.Equal(t, done.ID, m.Operation)
			require.Equal(t, last, m.Previous)
			last = m.Sequence
		}
	})
}
