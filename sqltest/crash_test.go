package sqltest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/sim"
)

// crashSample is how many runs of the crash loop are made on SQLite.
const crashSample = 110

// TestSQLiteCrashLoop hits calls of the scenarios of internal/sim with faults, on a file. It
// plays a sample, printed with its seed; SETTLE_CRASH_SEED repeats one, and SETTLE_CRASH=all
// plays every fault at every call.
func TestSQLiteCrashLoop(t *testing.T) {
	t.Parallel()
	template := crashTemplate(t)
	open := func(t testing.TB) settle.Store {
		path := filepath.Join(t.TempDir(), "settle.db")
		must(t, os.WriteFile(path, template, 0o600))
		s, _ := openFile(t, path)
		return s
	}
	if os.Getenv("SETTLE_CRASH") == "all" {
		sim.CrashLoop(t, open)
		return
	}
	seed := crashSeed(t)
	t.Logf("seed %d", seed)
	sim.CrashSample(t, open, seed, crashSample)
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

// crashTemplate is a file with the schema in it: making that takes longer than a run.
func crashTemplate(t *testing.T) []byte {
	t.Helper()
	path := file(t)
	s, db := openFile(t, path)
	must(t, s.Close())
	must(t, db.Close())
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}
