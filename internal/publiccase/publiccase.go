// Package publiccase replays failures that were reported in public for other
// systems (double charges, lost replies, stolen leases, stored errors) and checks
// what this library does in a small scenario of the same kind, on any store. The
// subtests carry the ids of the cases. Each case holds the provider's ledger against
// what the library says.
package publiccase

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/settle-go/settle"
)

// cases lists what Run runs, in order of their ids.
var cases = []struct {
	id  string
	run func(suite)
}{
	{"IC-01", oneKeyForEveryRetry},
	{"IC-02", credentialsAreNoIdentity},
	{"IC-05", slowIsNotFailed},
	{"IC-06", deadlineIsNotFailure},
	{"IC-07", numbersDigitForDigit},
	{"IC-08", numbersAsDecimals},
	{"IC-09", bytesOfTheOriginal},
	{"IC-10", timeIsNoIdentity},
	{"IC-11", storedRequestIsSent},
	{"IC-12", amountsUnscaled},
	{"IC-13", malformedBodies},
	{"IC-14", kindsAndTenants},
	{"IC-15", orphanedClaim},
	{"IC-16", lostInsert},
	{"IC-17", finishedButNotStored},
	{"IC-18", staleHeartbeat},
	{"IC-20", failingHeartbeat},
	{"IC-36", longKeys},
	{"IC-47", laggingLookup},
	{"IC-51", keyWindowPassed},
	{"IC-53", compensationFirst},
	{"IC-54", rowBeforeTheCall},
	{"IC-55", notSentIsNotFinal},
	{"IC-56", panicAfterTheCharge},
	{"IC-57", refusalLeavesTheKeyFree},
	{"IC-58", businessRefusalIsFinal},
	{"IC-62", longToolCall},
	{"IC-63", freshKeyFromAModel},
	{"IC-64", resumedWithOtherArguments},
}

// Run runs every case against stores made by open: an empty one per call, whose own
// clock is the time of the goroutine that calls it (in a testing/synctest bubble, the
// bubble's), and which open removes with t.Cleanup.
func Run(t *testing.T, open func(t testing.TB) settle.Store) {
	for _, c := range cases {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			c.run(suite{t, open})
		})
	}
}

// RunSome is Run of the cases with these ids only.
func RunSome(t *testing.T, open func(t testing.TB) settle.Store, ids ...string) {
	t.Helper()
	n := 0
	for _, c := range cases {
		if slices.Contains(ids, c.id) {
			n++
			t.Run(c.id, func(t *testing.T) {
				t.Parallel()
				c.run(suite{t, open})
			})
		}
	}
	if n != len(ids) {
		t.Errorf("%d of the cases %v exist", n, ids)
	}
}

type suite struct {
	t    *testing.T
	open func(t testing.TB) settle.Store
}

// bubble runs a variant in a bubble, where hours pass at once.
func (s suite) bubble(name string, f func(t *testing.T, store settle.Store)) {
	s.t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, s.open(t)) })
	})
}

// wire runs a variant in real time, for real sockets: signals instead of waiting.
func (s suite) wire(name string, f func(t *testing.T, store settle.Store)) {
	s.t.Run(name, func(t *testing.T) { f(t, s.open(t)) })
}
