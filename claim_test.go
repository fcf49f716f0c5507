package settle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// handClock is a Clock whose monotonic and wall time are moved by hand. Go keeps the
// monotonic reading inside a Time, where no test can set it; adding to a Time with one
// moves both. For a clock that loses it (a suspended machine) the reading is stripped.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time { return c.now }

func (c *handClock) pass(d time.Duration) { c.now = c.now.Add(d) }

func heldClaim(c *handClock, reply time.Duration) *claim {
	e := &Engine{opts: Options{Clock: c, Lease: 30 * time.Second}}
	cl := e.newClaim()
	c.pass(reply)
	cl.granted(t0)
	return cl
}

// TestT28_SlowClaimReply: the reply to the claim takes 25 of 30 seconds. The deadline counts
// from before the claim was sent, less the margin, so 2 seconds are left.
func TestT28_SlowClaimReply(t *testing.T) {
	clock := &handClock{now: time.Now()}
	c := heldClaim(clock, 25*time.Second)
	assert.Equal(t, 3*time.Second, c.margin())
	assert.True(t, c.mayStart())
	assert.Equal(t, t0.Add(25*time.Second), c.late(), "the claim may have been granted as soon as it was sent")
	assert.Equal(t, t0, c.early(), "or just now")
	clock.pass(2*time.Second - 1)
	assert.True(t, c.mayStart())
	clock.pass(1)
	assert.False(t, c.mayStart())
	assert.Equal(t, t0.Add(27*time.Second), c.late())
	assert.Equal(t, t0.Add(2*time.Second), c.early())
}

// TestT28_SuspendedMachine: wall time passed, monotonic time did not. Simulated by stripping the
// monotonic reading: then Sub is wall time, as it is when the two disagree that way.
func TestT28_SuspendedMachine(t *testing.T) {
	clock := &handClock{now: time.Now()}
	c := heldClaim(clock, time.Millisecond)
	require.True(t, c.mayStart())
	clock.now = clock.now.Round(0).Add(time.Minute)
	assert.False(t, c.mayStart())
}

// TestT28_WallClockSetBack: monotonic time goes on, so the claim ends although the wall clock
// says that no time has passed.
func TestT28_WallClockSetBack(t *testing.T) {
	a := time.Now()
	assert.Equal(t, time.Minute, elapsed(a, a.Add(time.Minute)))
	assert.Equal(t, time.Minute, elapsed(a, a.Round(0).Add(time.Minute)), "wall time alone")
	assert.Equal(t, time.Minute, elapsed(a.Round(0), a.Add(time.Minute)), "wall time alone")
	assert.LessOrEqual(t, elapsed(a, a.Round(0).Add(-time.Hour)), time.Duration(0))

	clock := &handClock{now: time.Now()}
	c := heldClaim(clock, time.Millisecond)
	at := clock.now
	clock.now = at.Round(0).Add(-time.Hour) // the clock itself was set back, without monotonic time
	assert.Equal(t, t0, c.early(), "never earlier than the grant")
	assert.False(t, c.early().Before(t0))
	clock.now = at.Add(30 * time.Second)
	assert.False(t, c.mayStart())
}

// TestI5_RenewalsDoNotExtendTheStart: a request starts within the lease under which its attempt
// was committed; only a new commit moves the base, never a renewal or a grant.
func TestI5_RenewalsDoNotExtendTheStart(t *testing.T) {
	clock := &handClock{now: time.Now()}
	c := heldClaim(clock, time.Second)
	clock.pass(20 * time.Second)
	c.granted(t0.Add(20 * time.Second)) // as a renewal's answer would
	clock.pass(7 * time.Second)
	assert.False(t, c.mayStart())
	c.base = clock.Now() // the commit of the next attempt
	assert.True(t, c.mayStart())
}

// TestI13_BoundsHold: whenever inside the round trip the store granted the claim, its time lies
// between early and late, at every later moment (I13).
func TestI13_BoundsHold(t *testing.T) {
	rng := seeded(t)
	for range 1000 {
		clock := &handClock{now: time.Now()}
		trip := time.Duration(rng.Int64N(int64(20 * time.Second)))
		back := time.Duration(rng.Int64N(int64(trip) + 1)) // the answer's way
		c := heldClaim(clock, trip)
		for range 5 {
			store := t0.Add(back).Add(clock.now.Sub(c.got))
			require.False(t, c.early().After(store))
			require.False(t, c.late().Before(store))
			clock.pass(time.Duration(rng.Int64N(int64(10 * time.Second))))
		}
	}
}

// TestMicros: what every store keeps; never later than what was given.
func TestMicros(t *testing.T) {
	assert.True(t, micros(time.Time{}).IsZero())
	in := time.Date(2026, 1, 2, 3, 4, 5, 6789, time.FixedZone("x", 3600))
	assert.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 6000, time.UTC), micros(in))
	assert.Equal(t, micros(in), micros(micros(in)))
}

// TestAddAttempt: numbers go on, old harmless attempts are dropped, those that may have left never
// are; tries to recover count from the first open attempt (I10: T-44).
func TestAddAttempt(t *testing.T) {
	r := operation()
	r.Tries = 9
	r.RetryAt = t0
	a := r.addAttempt(t0.Add(1234*time.Nanosecond), testGrace)
	assert.Equal(t, Attempt{N: 1, Start: t0.Add(time.Microsecond), Grace: testGrace}, a)
	assert.Zero(t, r.Tries)
	assert.True(t, r.RetryAt.IsZero())
	r.Tries = 2
	r.addAttempt(t0, testGrace)
	assert.Equal(t, 2, r.Tries, "attempt 1 is open: the count goes on")
	for i := range 30 {
		r.Attempts[len(r.Attempts)-1].Fate = FateNotSent
		r.addAttempt(t0.Add(time.Duration(i)*time.Second), testGrace)
	}
	assert.LessOrEqual(t, len(r.Attempts), 12)
	assert.Equal(t, 1, r.Attempts[0].N, "it may have left")
	assert.Equal(t, 32, r.lastAttempt())
	assert.True(t, r.mayHaveLeft())
}

// TestContract_Problem: facts that only the provider can know have no default.
func TestContract_Problem(t *testing.T) {
	good := Contract{
		Account: AccountFacts{Provider: "p"}, Deadline: time.Second, SettleDelay: time.Second,
		Keys: Keys{Window: time.Hour}, Lookup: Eventual, LookupLag: time.Second,
	}
	field, _ := good.problem(testLease)
	require.Empty(t, field)
	assert.Equal(t, 24*time.Hour, good.withDefaults().ProcessingLimit)
	for want, change := range map[string]func(c *Contract){
		"Contract.Account":         func(c *Contract) { c.Account.Provider = "" },
		"Contract.Deadline":        func(c *Contract) { c.Deadline = 0 },
		"Contract.SettleDelay":     func(c *Contract) { c.SettleDelay = 0 },
		"Contract.ProcessingLimit": func(c *Contract) { c.ProcessingLimit = -1 },
		"Contract.Lookup":          func(c *Contract) { c.Lookup = "maybe" },
		"Contract.LookupLag":       func(c *Contract) { c.LookupLag = 0 },
		"Contract.Keys":            func(c *Contract) { c.Keys.Window = c.margin(testLease) },
	} {
		c := good
		change(&c)
		field, reason := c.problem(testLease)
		assert.Equal(t, want, field)
		assert.NotEmpty(t, reason)
	}
	c := good
	c.Keys.Window = c.margin(testLease) + 1
	field, _ = c.problem(testLease)
	assert.Empty(t, field, "a microsecond longer than its margin will do (T-12)")
}
