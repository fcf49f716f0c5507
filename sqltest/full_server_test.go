//go:build full

package sqltest

import (
	"testing"

	"github.com/settle-go/settle/internal/publiccase"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/internal/sim"
)

// These suites take minutes on a server and run by `make test-full`. The same ones run on SQLite by `make test-life`, and
// the traces on every database in each run.

func TestPostgresInvariants(t *testing.T) {
	t.Parallel()
	scenario.RunInvariants(t, retimedPG(t).open)
}

func TestMySQLInvariants(t *testing.T) {
	t.Parallel()
	scenario.RunInvariants(t, retimedMySQL(t).open)
}

func TestPostgresPublicCases(t *testing.T) {
	t.Parallel()
	publiccase.Run(t, retimedPG(t).open)
}

func TestMySQLPublicCases(t *testing.T) {
	t.Parallel()
	publiccase.Run(t, retimedMySQL(t).open)
}

func TestPostgresCrashLoop(t *testing.T) {
	t.Parallel()
	serverCrash(t, retimedPG(t))
}

func TestMySQLCrashLoop(t *testing.T) {
	t.Parallel()
	serverCrash(t, retimedMySQL(t))
}

// serverCrashSample is how many runs of the crash loop are made on a server.
const serverCrashSample = 60

func serverCrash(t *testing.T, s *server) {
	t.Helper()
	seed := crashSeed(t)
	t.Logf("seed %d", seed)
	sim.CrashSample(t, s.open, seed, serverCrashSample)
}
