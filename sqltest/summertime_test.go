package sqltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClockOfALongStatement (S4): on the MySQL family the moment of a statement is that of its start and what has passed since, which is the difference of two
// local times. What passes while it waits for a lock counts; an hour that the clocks are put forward or back meanwhile does not. The session's
// own timestamp stands for the start.
func TestClockOfALongStatement(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ started, off time.Duration }{
		"waited":            {10 * time.Second, 0},
		"summer time began": {time.Hour + 10*time.Second, time.Hour},
		"it ended":          {-time.Hour + 10*time.Second, -time.Hour},
		"half an hour":      {30*time.Minute + 10*time.Second, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := mysqlDatabase(t)
			cfg.Params["timestamp"] = fmt.Sprint(time.Now().Add(-x.started).Unix())
			_, s := openMySQL(t, cfg.FormatDSN(), nil)
			out, err := s.Commit(t.Context(), create("1"))
			require.NoError(t, err)
			assert.WithinDuration(t, time.Now().Add(-x.off), out[0].CreatedAt, 9*time.Second, "the ten seconds count, and nothing else does")
		})
	}
}
