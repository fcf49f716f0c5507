package sqltest

import (
	"testing"

	"github.com/settle-go/settle/internal/publiccase"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/internal/sim"
)

// wholeRun leaves what takes minutes on a server to runs with SETTLE_FULL=1. The same suites run
// on SQLite, and the traces on every database, in each run.
func wholeRun(t *testing.T) {
	t.Helper()
	if !full() {
		t.Skip("set SETTLE_FULL=1 to run this suite on a server")
	}
}

func TestPostgresTraces(t *testing.T) {
	t.Parallel()
	scenario.RunTraces(t, retimedPG(t).open)
}

func TestMySQLTraces(t *testing.T) {
	t.Parallel()
	scenario.RunTraces(t, retimedMySQL(t).open)
}

func TestPostgresCompensations(t *testing.T) {
	t.Parallel()
	scenario.RunCompensations(t, retimedPG(t).open)
}

func TestMySQLCompensations(t *testing.T) {
	t.Parallel()
	scenario.RunCompensations(t, retimedMySQL(t).open)
}

func TestPostgresReports(t *testing.T) {
	t.Parallel()
	scenario.RunReports(t, retimedPG(t).open)
}

func TestMySQLReports(t *testing.T) {
	t.Parallel()
	scenario.RunReports(t, retimedMySQL(t).open)
}

func TestPostgresCases(t *testing.T) {
	t.Parallel()
	scenario.RunCases(t, retimedPG(t).open)
}

func TestMySQLCases(t *testing.T) {
	t.Parallel()
	scenario.RunCases(t, retimedMySQL(t).open)
}

func TestPostgresInvariants(t *testing.T) {
	t.Parallel()
	wholeRun(t)
	scenario.RunInvariants(t, retimedPG(t).open)
}

func TestMySQLInvariants(t *testing.T) {
	t.Parallel()
	wholeRun(t)
	scenario.RunInvariants(t, retimedMySQL(t).open)
}

func TestPostgresPublicCases(t *testing.T) {
	t.Parallel()
	wholeRun(t)
	publiccase.Run(t, retimedPG(t).open)
}

func TestMySQLPublicCases(t *testing.T) {
	t.Parallel()
	wholeRun(t)
	publiccase.Run(t, retimedMySQL(t).open)
}

// serverCrashSample is how many runs of the crash loop are made on a server.
const serverCrashSample = 60

func serverCrash(t *testing.T, s *server) {
	t.Helper()
	seed := crashSeed(t)
	t.Logf("seed %d", seed)
	sim.CrashSample(t, s.open, seed, serverCrashSample)
}

func TestPostgresCrashLoop(t *testing.T) {
	t.Parallel()
	wholeRun(t)
	serverCrash(t, retimedPG(t))
}

func TestMySQLCrashLoop(t *testing.T) {
	t.Parallel()
	wholeRun(t)
	serverCrash(t, retimedMySQL(t))
}
