//go:build full

package sqltest

import (
	"testing"

	"github.com/settle-go/settle/internal/scenario"
)

// What becomes of an effect, on each server, and the invariants on SQLite (`make test-life`, and CI). Each run of `make test` has the traces and
// cases on every database, and all of these suites in memory.

func TestSQLiteInvariants(t *testing.T) {
	t.Parallel()
	scenario.RunInvariants(t, openScenario)
}

func TestPostgresAuthority(t *testing.T) {
	t.Parallel()
	scenario.RunAuthority(t, retimedPG(t).open)
}

func TestMySQLAuthority(t *testing.T) {
	t.Parallel()
	scenario.RunAuthority(t, retimedMySQL(t).open)
}

func TestPostgresSealed(t *testing.T) {
	t.Parallel()
	scenario.RunSealed(t, retimedPG(t).open)
}

func TestMySQLSealed(t *testing.T) {
	t.Parallel()
	scenario.RunSealed(t, retimedMySQL(t).open)
}

func TestSQLiteReports(t *testing.T) {
	t.Parallel()
	scenario.RunReports(t, openScenario)
}

func TestPostgresReports(t *testing.T) {
	t.Parallel()
	scenario.RunReports(t, retimedPG(t).open)
}

func TestMySQLReports(t *testing.T) {
	t.Parallel()
	scenario.RunReports(t, retimedMySQL(t).open)
}

func TestPostgresEvents(t *testing.T) {
	t.Parallel()
	scenario.RunEvents(t, retimedPG(t).open)
}

func TestMySQLEvents(t *testing.T) {
	t.Parallel()
	scenario.RunEvents(t, retimedMySQL(t).open)
}

func TestPostgresLedgerModel(t *testing.T) {
	t.Parallel()
	seed := crashSeed(t)
	t.Logf("seed %d", seed)
	scenario.RunLedgerModel(t, retimedPG(t).open, seed, 1, 30)
}

func TestMySQLLedgerModel(t *testing.T) {
	t.Parallel()
	seed := crashSeed(t)
	t.Logf("seed %d", seed)
	scenario.RunLedgerModel(t, retimedMySQL(t).open, seed, 1, 30)
}

func TestPostgresFeed(t *testing.T) {
	t.Parallel()
	scenario.RunFeed(t, retimedPG(t).open)
}

func TestMySQLFeed(t *testing.T) {
	t.Parallel()
	scenario.RunFeed(t, retimedMySQL(t).open)
}

func TestSQLiteFeed(t *testing.T) {
	t.Parallel()
	scenario.RunFeed(t, openScenario)
}
