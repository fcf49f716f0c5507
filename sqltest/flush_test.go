package sqltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// TestCallersShareCommits: what waits for the lock goes in one transaction; every caller gets
// the answer of its own change, the refused ones and those that come twice too.
func TestCallersShareCommits(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 12
	db, s, f := faultyStoreWaiting(t, time.Minute) // thirty callers, and a machine that may be busy
	commits := 0
	f.set(func(text string, done bool) error {
		text = strings.TrimSpace(text)
		if done && (text == "COMMIT") {
			commits++
		}
		return nil
	})
	var all sync.WaitGroup
	var mu sync.Mutex
	won := map[string]int{}
	for i := range callers {
		all.Go(func() {
			ctx := context.Background()
			for j := range each {
				own := fmt.Sprintf("%d-%d", i, j)
				c := create(own)
				out, err := s.Commit(ctx, c)
				if !assert.NoError(t, err) {
					return
				}
				again, err := s.Commit(ctx, c) // S26
				assert.NoError(t, err)
				assert.Equal(t, out[0].Version, again[0].Version)
				_, err = s.Commit(ctx, outcome(out[0]))
				assert.NoError(t, err)
				// All want this one.
				shared := create(fmt.Sprint("shared-", j))
				shared.ID += own
				switch _, err := s.Commit(ctx, shared); {
				case err == nil:
					mu.Lock()
					won[shared.Writes[0].Record.ID]++
					mu.Unlock()
				case !errors.Is(err, settle.ErrConflict):
					assert.NoError(t, err)
				}
			}
		})
	}
	all.Wait()
	f.set(nil)
	require.Len(t, won, each)
	for id, n := range won {
		assert.Equal(t, 1, n, id)
	}
	assert.Equal(t, callers*each+each, count(t, db, `SELECT count(*) FROM settle_operation`))
	assert.Equal(t, callers*each, count(t, db, `SELECT count(*) FROM settle_operation WHERE version = 2`))
	assert.Equal(t, callers*each, count(t, db, `SELECT count(*) FROM settle_reference`))
	assert.Less(t, commits, callers*each, "changes, and refused ones, in transactions")
	noneOpen(t, db)
}
