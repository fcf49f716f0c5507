package settle

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// handClock is a Clock that is moved by hand.
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

// disagree is the moment at which, since a, the monotonic clock has gone on by mono and the wall clock by wall.
// No function of package time makes such a Time, so its monotonic reading is set by hand.
func disagree(t *testing.T, a time.Time, mono, wall time.Duration) time.Time {
	t.Helper()
	b := a.Add(wall)
	raw := (*struct { // as in package time; checked below
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&b))
	raw.ext += int64(mono - wall)
	require.Equal(t, mono, b.Sub(a), "package time keeps its readings in another way now")
	require.Equal(t, wall, b.Round(0).Sub(a.Round(0)))
	return b
}

// TestT28_SuspendedMachine: a virtual machine stood still for a minute in mid-claim. Its monotonic clock
// did too, wall time did not: the claim is over.
func TestT28_SuspendedMachine(t *testing.T) {
	clock := &handClock{now: time.Now()}
	c := heldClaim(clock, time.Millisecond)
	require.True(t, c.mayStart())
	start := clock.now
	clock.now = disagree(t, start, time.Second, time.Minute)
	assert.False(t, c.mayStart())
	assert.Equal(t, time.Minute, elapsed(start, clock.now))
}

// TestT28_WallClockSetBack: somebody sets the wall clock back by an hour; the monotonic clock goes on, and ends
// the claim in time.
func TestT28_WallClockSetBack(t *testing.T) {
	clock := &handClock{now: time.Now()}
	c := heldClaim(clock, time.Millisecond)
	start := clock.now
	clock.now = disagree(t, start, 20*time.Second, -time.Hour)
	assert.True(t, c.mayStart())
	assert.Equal(t, t0.Add(20*time.Second), c.early())
	clock.now = disagree(t, start, 28*time.Second, -time.Hour)
	assert.False(t, c.mayStart())
	assert.Equal(t, 28*time.Second, elapsed(start, clock.now))

	clock.now = start.Round(0).Add(-time.Hour) // a Clock of the application's that has wall time only
	assert.Equal(t, t0, c.early(), "never earlier than the grant")
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
