package sqltest

import (
	"testing"

	"github.com/settle-go/settle/internal/scenario"
)

func TestPostgresTraces(t *testing.T) {
	t.Parallel()
	scenario.RunTraces(t, retimedPG(t).open)
}

func TestMySQLTraces(t *testing.T) {
	t.Parallel()
	scenario.RunTraces(t, retimedMySQL(t).open)
}
