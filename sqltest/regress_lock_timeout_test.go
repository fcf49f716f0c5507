package sqltest

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/settle-go/settle"
)

// TestRegress_LockTimeoutLeaks: how long the application's own statements wait is its own affair, after
// RegisterTx too.
func TestRegress_LockTimeoutLeaks(t *testing.T) {
	t.Parallel()
	db, s := openPG(t, "pgx", pgSchema(t), nil)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	for _, want := range []string{"0", "7s"} {
		_, err = tx.ExecContext(t.Context(), `SET LOCAL lock_timeout = '`+want+`'`)
		must(t, err)
		_, err = s.In(tx).Commit(t.Context(), create(want))
		must(t, err)
		_, err = s.In(tx).Commit(t.Context(), settle.Change{ID: "bad", Writes: []settle.Write{{Record: created(want)}}})
		_ = conflictOf(t, err)
		var got string
		must(t, tx.QueryRowContext(t.Context(), `SELECT current_setting('lock_timeout')`).Scan(&got))
		assert.Equal(t, want, got)
	}
	must(t, tx.Rollback())
}
