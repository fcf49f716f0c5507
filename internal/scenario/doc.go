// Package scenario plays the traces that shaped the design, and holds its
// invariants, against real engines: several of them on one store stand for several
// processes, [providertest.Provider] is the provider, and its ledger is the oracle.
//
// Everything runs in testing/synctest bubbles, so leases, quiet times, key windows and
// backoffs really elapse. A store can therefore only take part if its clock is the
// bubble's (time.Now of the bubble, or a clock that follows it).
package scenario

import (
	"testing"

	"github.com/settle-go/settle"
)

// Open makes an empty store for one bubble; it is called inside it.
type Open func(t testing.TB) settle.Store

// scene is one trace or invariant. It opens its own bubbles.
type scene struct {
	name string
	play func(t *testing.T, open Open)
}

// RunTraces plays every trace, each as a subtest named after its id.
func RunTraces(t *testing.T, open func(t testing.TB) settle.Store) { run(t, open, traces(t36)) }

// RunTracesThin plays them with a fifth of the variants of T-36, which is a product of times: for stores on which it takes long.
func RunTracesThin(t *testing.T, open func(t testing.TB) settle.Store) { run(t, open, traces(t36thin)) }

// RunInvariants holds the invariants, each as a subtest named after its number.
func RunInvariants(t *testing.T, open func(t testing.TB) settle.Store) {
	run(t, open, []scene{
		{"I1 identity first", I1},
		{"I2 one identity, one key, one request, one account", I2},
		{"I3 bound request", I3},
		{"I4 no answer is no evidence", I4},
		{"I5 one live claim", I5},
		{"I6 inside the window", I6},
		{"I8 confirm, then compensate", I8},
		{"I10 nothing is stuck", I10},
		{"I11 one consequence", I11},
		{"I12 nothing learned is lost", I12},
		{"I13 no clock of ours decides", I13},
		{"I14 identity outlives data", I14},
		{"I15 the store's silence is ambiguous", I15},
		{"I16 secrets stay in", I16},
	})
}

func run(t *testing.T, open Open, scenes []scene) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) { s.play(t, open) })
	}
}

func traces(t36 func(*testing.T, Open)) []scene {
	return []scene{
		{"T-01 provider keys are injective and unique per account", t01},
		{"T-02 not sent closes its own attempt only", t02},
		{"T-03 a decline does not settle while an older attempt is open", t03},
		{"T-04 a decline event does not settle an open attempt", t04},
		{"T-05 a lost claim's reply is merged as an observation", t05},
		{"T-06 an event while the holder waits", t06},
		{"T-07 duplicates and declines in any order", t07},
		{"T-08 a success of a reversed reference asks for a lookup", t08},
		{"T-09 two reports with one sequence", t09},
		{"T-10 quiet counts from the end of the attempt", t10},
		{"T-11 no resend beside a running request unless that is safe", t11},
		{"T-12 the key window closes early", t12},
		{"T-13 looked up first, however old", t13},
		{"T-14 patience with processing and with registered operations", t14},
		{"T-15 nothing is sent or asked at another account", t15},
		{"T-16 a hook that always fails", t16},
		{"T-17 an event and a completion of one version", t17},
		{"T-18 a commit whose reply is lost is read back", t18},
		{"T-19 only the holder moves due", t19},
		{"T-20 a partial refund bounces", t20},
		{"T-21 a void, then a refund, for one reason", t21},
		{"T-22 a compensation of an unknown operation waits", t22},
		{"T-23 a refund's event before its reply", t23},
		{"T-24 a refund revived beside another", t24},
		{"T-25 evidence for a released hold", t25},
		{"T-26 an effect of a canceled operation", t26},
		{"T-27 an event before its operation is known by that name", t27},
		{"T-28 the deadline counts from before the claim, by any clock", t28},
		{"T-29 a refused precondition reads once more", t29},
		{"T-32 transitions are delivered in order, or not at all", t32},
		{"T-33 a pruned operation is still matched and counted", t33},
		{"T-34 a lookup's answer stands beside a later event", t34},
		{"T-35 volatile fields are refreshed while nothing may have left", t35},
		{"T-36 a request that lands late still lands inside the window", t36},
		{"T-37 quiet follows the real end of the lease", t37},
		{"T-38 a decline closes older attempts that were quiet", t38},
		{"T-39 processing, then a final decline", t39},
		{"T-40 a late refusal ends a review", t40},
		{"T-41 a wish starts when its operation revives", t41},
		{"T-42 revived after it was replaced", t42},
		{"T-43 not found never leads back to created", t43},
		{"T-44 recovered by sending again after an outage", t44},
	}
}
