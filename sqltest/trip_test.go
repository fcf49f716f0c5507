package sqltest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// TestRoundTrips: a first Execute is two statements, a replay in the process that saw the outcome one SELECT, and a replay
// anywhere else two statements.
func TestRoundTrips(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		dsn := d.fresh(t)
		_, s, f := d.faulty(t, dsn, nil)
		executor := func() *settle.Executor[benchRequest, benchReceipt] {
			e, err := settle.Open(s, nil)
			require.NoError(t, err)
			x, err := settle.New(e, "charge", instantProvider(), nil)
			require.NoError(t, err)
			return x
		}
		execute := func(x *settle.Executor[benchRequest, benchReceipt], op settle.Operation[benchRequest], replayed bool, trips int) []string {
			t.Helper()
			var log []string
			f.set(func(text string, done bool) error {
				if !done {
					log = append(log, strings.TrimSpace(text))
				}
				return nil
			})
			out, err := x.Execute(t.Context(), op)
			require.NoError(t, err)
			assert.Equal(t, replayed, out.Replayed)
			f.mu.Lock()
			defer f.mu.Unlock()
			assert.Len(t, log, trips, strings.Join(log, "\n---\n"))
			return log
		}
		x := executor()
		for i := range 4 {
			execute(x, benchOperation(i), false, 2)
		}
		keyed := benchOperation(4)
		keyed.Key = "key-4"
		execute(x, keyed, false, 2)
		for _, op := range []settle.Operation[benchRequest]{benchOperation(1), keyed} {
			for range 2 {
				log := execute(x, op, true, 1)
				assert.True(t, strings.HasPrefix(log[0], "SELECT"), log[0])
			}
			y := executor()
			execute(y, op, true, 2)
			execute(y, op, true, 1)
		}
		changed := benchOperation(1)
		changed.Request.Amount++
		_, err := executor().Execute(t.Context(), changed)
		require.ErrorIs(t, err, settle.ErrMismatch)
		other := keyed
		other.Key = "key-5"
		_, err = executor().Execute(t.Context(), other)
		require.ErrorIs(t, err, settle.ErrConflict)
	})
}
