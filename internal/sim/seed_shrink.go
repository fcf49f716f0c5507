package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// SeedShrink takes out of a plan whose run breaks an invariant whatever is not needed
// to break the same one, and returns the traced run of what is left.
func SeedShrink(t *testing.T, plan *SeedPlan) *SeedResult {
	t.Helper()
	first := SeedPlay(t, plan, false)
	if first.Broken == "" {
		return first
	}
	breaks := func(p *SeedPlan) bool { return seedSort(SeedPlay(t, p, false).Broken) == seedSort(first.Broken) }
	for size := max(1, len(plan.Actions)/2); size > 0; {
		smaller := false
		for from := 0; from < len(plan.Actions); {
			if p := plan.without(from, min(from+size, len(plan.Actions))); breaks(p) {
				plan, smaller = p, true
				continue
			}
			from += size
		}
		if size == 1 && !smaller {
			break
		}
		size = max(1, size/2)
	}
	for i := range plan.Actions { // and whatever need not last
		p := *plan
		p.Actions = slices.Clone(plan.Actions)
		if a := &p.Actions[i]; a.Do == seedExecute && a.For > 0 {
			a.For = 0
			if breaks(&p) {
				plan = &p
			}
		}
	}
	return SeedPlay(t, plan, true)
}

// seedSort is which invariant is broken, without when and by what; nothing if none is.
func seedSort(broken string) string {
	if broken == "" {
		return ""
	}
	_, what, _ := strings.Cut(broken, ": ")
	inv, _, ok := strings.Cut(what, ": ")
	if !ok {
		return "other"
	}
	return inv
}

// Story tells what broke, the plan, and the trace.
func (r *SeedResult) Story() string {
	return fmt.Sprintf("seed %d breaks %s\n\n%s\n%s\n", r.Plan.Seed, r.Broken, r.Plan, strings.Join(r.Trace, "\n"))
}
