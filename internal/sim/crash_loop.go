package sim

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// CrashLoop plays every point of every scenario on stores made by open, a subtest for each
// scenario, and reports how many there were.
func CrashLoop(t *testing.T, open OpenStore) {
	scenes := allScenes(t)
	var calls, runs atomic.Int64
	t.Cleanup(func() { t.Logf("%d scenarios, %d calls, %d runs with a fault", len(scenes), calls.Load(), runs.Load()) })
	for _, s := range scenes {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			points := CrashPoints(t, s, open)
			for _, p := range points {
				crashReport(t, p, open)
			}
			calls.Add(int64(points[len(points)-1].Call))
			runs.Add(int64(len(points)))
			t.Logf("%d calls, %d runs with a fault", points[len(points)-1].Call, len(points))
		})
	}
}

// CrashSample plays n points that seed chooses, for stores on which the whole loop takes too
// long. Each fault at each place comes once before any comes twice.
func CrashSample(t *testing.T, open OpenStore, seed uint64, n int) {
	scenes := allScenes(t)
	var all []CrashPoint
	for _, s := range scenes {
		all = append(all, CrashPoints(t, s, open)...)
	}
	rand.New(rand.NewPCG(seed, seed)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	type pair struct {
		site  string
		fault Fault
	}
	seen := map[pair]bool{}
	var first, rest []CrashPoint
	for _, p := range all {
		if k := (pair{p.Site, p.Fault}); !seen[k] {
			seen[k] = true
			first = append(first, p)
		} else {
			rest = append(rest, p)
		}
	}
	chosen := append(first, rest...)
	chosen = chosen[:min(n, len(chosen))]
	t.Logf("%d of %d runs with a fault, seed %d", len(chosen), len(all), seed)
	for _, p := range chosen {
		crashReport(t, p, open)
	}
}

func crashReport(t *testing.T, p CrashPoint, open OpenStore) {
	t.Helper()
	for _, problem := range CrashAt(t, p, open) {
		t.Error(problem)
	}
}

func allScenes(t *testing.T) []*Scene {
	t.Helper()
	scenes, err := Scenes()
	if err != nil {
		t.Fatal(err)
	}
	return scenes
}
