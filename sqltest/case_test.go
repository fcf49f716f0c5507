package sqltest

import (
	"testing"

	"github.com/settle-go/settle/internal/publiccase"
)

// SQLite's clock is the process's, so that hours of a bubble pass for it too.
func TestSQLitePublicCases(t *testing.T) {
	t.Parallel()
	publiccase.Run(t, openScenario)
}
