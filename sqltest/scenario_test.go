package sqltest

import (
	"path/filepath"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
)

// openScenario is opened in a bubble: SQLite's clock is that of the process.
func openScenario(t testing.TB) settle.Store {
	s, _ := openFile(t, filepath.Join(t.TempDir(), "settle.db"))
	return s
}

func TestSQLiteTraces(t *testing.T) {
	t.Parallel()
	scenario.RunTraces(t, openScenario)
}

func TestSQLiteInvariants(t *testing.T) {
	t.Parallel()
	scenario.RunInvariants(t, openScenario)
}

func TestSQLiteLedgerModel(t *testing.T) {
	t.Parallel()
	seed := crashSeed(t)
	t.Logf("seed %d", seed)
	scenario.RunLedgerModel(t, openScenario, seed, 1, 30)
}

func TestSQLiteCases(t *testing.T) {
	t.Parallel()
	scenario.RunCases(t, openScenario)
}

func TestSQLiteAuthority(t *testing.T) {
	t.Parallel()
	scenario.RunAuthority(t, openScenario)
}

func TestSQLiteSealed(t *testing.T) {
	t.Parallel()
	scenario.RunSealed(t, openScenario)
}

func TestSQLiteReports(t *testing.T) {
	t.Parallel()
	scenario.RunReports(t, openScenario)
}

func TestSQLiteCompensations(t *testing.T) {
	t.Parallel()
	scenario.RunCompensations(t, openScenario)
}

func TestSQLiteEvents(t *testing.T) {
	t.Parallel()
	scenario.RunEvents(t, openScenario)
}
