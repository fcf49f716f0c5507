package sqltest

import (
	"path/filepath"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/publiccase"
)

// SQLite's clock is the process's, so that hours of a bubble pass for it too.
func TestSQLitePublicCases(t *testing.T) {
	t.Parallel()
	publiccase.Run(t, func(t testing.TB) settle.Store {
		s, _ := openFile(t, filepath.Join(t.TempDir(), "settle.db"))
		return s
	})
}
