package sim

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
)

// The flags of a long run, and to play a seed again: -seeds=1 -seed=4711.
var (
	seedCount = flag.Int("seeds", 0, "play that many seeds; 0 plays a few")
	seedFirst = flag.Uint64("seed", 0, "the first seed; 0 draws one for long runs")
	seedTime  = flag.Duration("simtime", 0, "play seeds for that long")
)

// seedFew is how many seeds an ordinary test run plays.
const seedFew = 40

// TestSeedSimulation holds the invariants in seeded simulations.
func TestSeedSimulation(t *testing.T) {
	first, count := *seedFirst, *seedCount
	long := count > 0 || *seedTime > 0
	switch {
	case first == 0 && long:
		first = rand.Uint64N(1 << 40)
	case first == 0:
		first = 1
	}
	if count == 0 {
		count = seedFew
	}
	t.Logf("seeds from %d", first)
	began := time.Now()
	states := map[settle.State]int{}
	var n, events, pruned int
	more := func() bool {
		if *seedTime > 0 {
			return time.Since(began) < *seedTime
		}
		return n < count
	}
	for ; more() && !t.Failed(); n++ {
		r := SeedPlay(t, SeedMake(first+uint64(n)), false)
		events, pruned = events+r.Events, pruned+r.Pruned
		for s, k := range r.States {
			states[s] += k
		}
		if r.Broken != "" {
			t.Errorf("seed %d: %s", r.Plan.Seed, r.Broken)
			t.Log(SeedShrink(t, r.Plan).Story())
		}
	}
	took := time.Since(began)
	t.Logf("%d schedules, %d events, %.0f schedules per second", n, events, float64(n)/took.Seconds())
	t.Logf("  pruned: %d", pruned)
	if pruned == 0 && n >= seedFew && !t.Failed() {
		t.Error("retention removed nothing")
	}
	for _, s := range slices.Sorted(maps.Keys(states)) {
		t.Logf("  ended %s: %d", s, states[s])
	}
}

// TestSeedSameTrace: a seed is the same run every time, whatever the order in which
// goroutines are scheduled.
func TestSeedSameTrace(t *testing.T) {
	n := 12
	if *seedCount > 0 {
		n = *seedCount
	}
	first := max(*seedFirst, 1)
	for seed := first; seed < first+uint64(n); seed++ {
		a, b := SeedPlay(t, SeedMake(seed), true), SeedPlay(t, SeedMake(seed), true)
		if len(a.Trace) < 5 {
			t.Errorf("seed %d: the trace has %d lines", seed, len(a.Trace))
		}
		if a.Hash() == b.Hash() {
			continue
		}
		for i := range a.Trace {
			if i >= len(b.Trace) || a.Trace[i] != b.Trace[i] {
				t.Fatalf("seed %d: line %d is once\n%s\nand once\n%s", seed, i, a.Trace[i], slices.Concat(b.Trace, []string{"(nothing)"})[min(i, len(b.Trace))])
			}
		}
		t.Fatalf("seed %d: the second trace is longer", seed)
	}
}

// TestSeedFindsDefects: the simulation bites. Each defect of the world around the engine breaks
// an invariant within a bounded number of seeds.
func TestSeedFindsDefects(t *testing.T) {
	const bound = 2000
	for _, d := range SeedDefects() {
		t.Run(string(d), func(t *testing.T) {
			first := max(seedFinders[d], 1)
			if *seedCount > 0 {
				first = 1
			}
			for n := range uint64(bound) {
				r := SeedPlay(t, d.apply(SeedMake(first+n)), false)
				if r.Broken != "" && SeedPlay(t, SeedMake(first+n), false).Broken == "" {
					t.Logf("found after %d seeds by seed %d: %s", n+1, r.Plan.Seed, r.Broken)
					return
				}
			}
			t.Fatalf("not found in %d seeds", bound)
		})
	}
}

// seedFinders are seeds near to one that finds the defect, so that an ordinary test run
// need not look for long; `make sim` looks from the first seed.
var seedFinders = map[SeedDefect]uint64{
	SeedTokenIgnored: 2650, SeedHookOutside: 199, SeedWindowTooLong: 34, SeedVersionIgnored: 28, SeedPrunesTooMuch: 19,
}
