package sqltest

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/settle-go/settle/internal/sim"
)

// crashSample is how many runs of the crash loop are made on SQLite.
const crashSample = 110

// TestSQLiteCrashLoop hits calls of the scenarios of internal/sim with faults, on a file. It
// plays a sample, printed with its seed; SETTLE_CRASH_SEED repeats one, and SETTLE_CRASH=all
// plays every fault at every call.
func TestSQLiteCrashLoop(t *testing.T) {
	t.Parallel()
	if os.Getenv("SETTLE_CRASH") == "all" {
		sim.CrashLoop(t, openScenario)
		return
	}
	seed := crashSeed(t)
	t.Logf("seed %d", seed)
	sim.CrashSample(t, openScenario, seed, crashSample)
}

func crashSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SETTLE_CRASH_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	return seed
}
