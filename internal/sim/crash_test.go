package sim

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/settle-go/settle"
)

var (
	crashAll  = flag.Bool("crash.all", false, "play every fault at every call; else a sample")
	crashSeed = flag.Uint64("crash.seed", 0, "the sample's seed; 0 draws one")
)

// crashRuns is how large a sample is: each fault at each kind of call is in it.
const crashRuns = 450

// TestCrashLoop hits calls of the scenarios with faults: a sample, printed with its seed, and with -crash.all (make
// crash) every call of every scenario with every fault.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	crashLoop(t, sceneMemory)
}

// TestCrashLoopRemote does the same on a store whose reads cost a round trip: there a call
// writes before it looks.
func TestCrashLoopRemote(t *testing.T) {
	t.Parallel()
	crashLoop(t, func(t testing.TB) settle.Store { return struct{ settle.Store }{sceneMemory(t)} })
}

func crashLoop(t *testing.T, open OpenStore) {
	t.Helper()
	if *crashAll {
		CrashLoop(t, open)
		return
	}
	seed := *crashSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	CrashSample(t, open, seed, crashRuns)
}
