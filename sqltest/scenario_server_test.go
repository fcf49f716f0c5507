package sqltest

import (
	"testing"

	"github.com/settle-go/settle/internal/publiccase"
	"github.com/settle-go/settle/internal/scenario"
)

// traces plays them all, of which one is a product of times that is played whole by make test-life.
func traces(t *testing.T, open scenario.Open) {
	t.Helper()
	if everyWay {
		scenario.RunTraces(t, open)
		return
	}
	scenario.RunTracesThin(t, open)
}

func TestPostgresTraces(t *testing.T) {
	t.Parallel()
	traces(t, retimedPG(t).open)
}

func TestMySQLTraces(t *testing.T) {
	t.Parallel()
	traces(t, retimedMySQL(t).open)
}

func TestPostgresCompensations(t *testing.T) {
	t.Parallel()
	scenario.RunCompensations(t, retimedPG(t).open)
}

func TestMySQLCompensations(t *testing.T) {
	t.Parallel()
	scenario.RunCompensations(t, retimedMySQL(t).open)
}

func TestPostgresCases(t *testing.T) {
	t.Parallel()
	scenario.RunCases(t, retimedPG(t).open)
}

func TestMySQLCases(t *testing.T) {
	t.Parallel()
	scenario.RunCases(t, retimedMySQL(t).open)
}

// lifeCases are those of package publiccase about what becomes of an effect later: lookups, windows, tombstones. The rest
// of them runs on servers by make test-full.
var lifeCases = []string{"IC-47", "IC-51", "IC-53", "IC-54"}

func TestPostgresLifeCases(t *testing.T) {
	t.Parallel()
	publiccase.RunSome(t, retimedPG(t).open, lifeCases...)
}

func TestMySQLLifeCases(t *testing.T) {
	t.Parallel()
	publiccase.RunSome(t, retimedMySQL(t).open, lifeCases...)
}
