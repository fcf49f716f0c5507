package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// seedMaker draws a plan.
type seedMaker struct {
	*rand.Rand
	plan *SeedPlan
}

// SeedMake draws the plan of a seed: the same seed, the same plan.
func SeedMake(seed uint64) *SeedPlan {
	m := &seedMaker{Rand: rand.New(rand.NewPCG(seed, 0x5e77_1e)), plan: &SeedPlan{Seed: seed}}
	m.world()
	m.callers()
	m.workers()
	m.trouble()
	switch m.IntN(16) {
	case 0, 1:
		m.edge()
	case 2:
		m.abandoned()
	default:
		m.books()
	}
	m.retention() // last, so that what it draws changes nothing else
	slices.SortStableFunc(m.plan.Actions, func(a, b SeedAction) int { return cmp.Compare(a.At, b.At) })
	return m.plan
}

// between draws from [a, b), in odd nanoseconds, so that two timers do not meet by chance.
func (m *seedMaker) between(a, b time.Duration) time.Duration {
	if b <= a {
		return a
	}
	return a + time.Duration(m.Int64N(int64(b-a)))
}

func (m *seedMaker) chance(percent int) bool { return m.IntN(100) < percent }

func seedPick[T any](m *seedMaker, of ...T) T { return of[m.IntN(len(of))] }

func (m *seedMaker) world() {
	w := &m.plan.World
	w.Procs, w.Orders = 1+m.IntN(3), 1+m.IntN(2)
	w.Local = m.chance(40)
	for range w.Procs {
		w.Hooks = append(w.Hooks, m.chance(80))
	}
	w.Horizon = m.between(2*time.Minute, 25*time.Minute)
	w.Options = settle.Options{
		Lease:         m.between(4*time.Second, 40*time.Second),
		EscalateAfter: m.between(time.Minute, 15*time.Minute),
		ReviewWithin:  time.Hour,
		StoreTimeout:  m.between(time.Second, 6*time.Second),
		Concurrency:   1 + m.IntN(4),
	}
	o := &w.Provider
	deadline, settled := m.between(2*time.Second, 15*time.Second), m.between(5*time.Second, 90*time.Second)
	margin := w.Options.Lease + deadline + settled
	switch m.IntN(5) {
	case 0: // no keys
	case 1:
		o.KeyWindow = providertest.Forever
	case 2:
		o.KeyWindow = margin + m.between(time.Second, time.Minute)
	default:
		o.KeyWindow = margin + m.between(time.Minute, 30*time.Minute)
	}
	o.Replay = seedPick(m, providertest.ReplayStored, providertest.ReplayStored, providertest.ReplayCurrent, providertest.ReplayNames)
	o.Concurrent = seedPick(m, providertest.ConcurrentGuard, providertest.ConcurrentWait, providertest.ConcurrentUnsafe)
	o.CacheOnlySuccess = m.chance(30)
	switch m.IntN(3) {
	case 0:
		o.LookupLag = m.between(time.Second, time.Minute)
	default:
	}
	w.Promise = providertest.Promise(o)
	w.Promise.Deadline, w.Promise.SettleDelay = deadline, settled
	w.Promise.ProcessingLimit = m.between(30*time.Minute, 3*time.Hour)
	if m.chance(25) {
		w.Promise.Lookup, w.Promise.LookupLag, o.LookupLag = settle.NoLookup, 0, 0
	}
	if o.KeyWindow == 0 {
		o.Concurrent = providertest.ConcurrentUnsafe
	}
}

func (m *seedMaker) add(a SeedAction) { m.plan.Actions = append(m.plan.Actions, a) }

// at draws a moment, earlier ones more often.
func (m *seedMaker) at() time.Duration {
	h := m.plan.World.Horizon
	if m.chance(60) {
		h /= 4
	}
	return m.between(0, h)
}

func (m *seedMaker) callers() {
	w := m.plan.World
	for order := range w.Orders {
		first := m.between(0, 10*time.Second)
		start := SeedAction{At: first, Do: seedExecute, Proc: m.IntN(w.Procs), Order: order}
		if m.chance(25) {
			start.Do = seedRegister
		}
		if m.chance(30) {
			start.For = m.between(time.Millisecond, w.Promise.Deadline)
		}
		m.add(start)
		for range m.IntN(4) {
			a := SeedAction{At: m.at(), Do: seedExecute, Proc: m.IntN(w.Procs), Order: order, Arg: seedPick(m, 0, 0, 0, 1, 2)}
			if m.chance(40) {
				a.At = first + m.between(0, time.Second) // beside the first
			}
			if m.chance(40) {
				a.For = m.between(time.Millisecond, 2*w.Promise.Deadline)
			}
			m.add(a)
		}
		for _, x := range []struct {
			do      SeedDo
			percent int
			args    int
		}{
			{seedRegister, 20, 3},
			{seedCancel, 20, 1},
			{seedCompensate, 45, 6},
			{seedCompensate, 30, 6},
			{seedCompensate, 15, 6},
			{seedReplace, 25, 1},
			{seedReplace, 15, 1},
			{seedResolve, 30, 4},
			{seedResolve, 20, 4},
			{seedReconcile, 30, 1},
			{seedRedrive, 10, 1},
			{seedObserve, 30, 3},
			{seedObserve, 20, 3},
			{seedRefresh, 15, 1},
			{seedReverse, 10, 2},
		} {
			if m.chance(x.percent) {
				m.add(SeedAction{At: m.at(), Do: x.do, Proc: m.IntN(w.Procs), Order: order, Arg: m.IntN(x.args)})
			}
		}
	}
}

// books has people decide about several operations at once, and compare with what the provider reports.
func (m *seedMaker) books() {
	w := m.plan.World
	for _, do := range []SeedDo{seedResolveAll, seedReport, seedReport} {
		if m.chance(20) {
			m.add(SeedAction{At: m.at(), Do: do, Proc: m.IntN(w.Procs), Arg: m.IntN(3)})
		}
	}
}

// retention has requests and results removed, often while their order is not at its end.
func (m *seedMaker) retention() {
	w := &m.plan.World
	if !m.chance(30) {
		return
	}
	w.Options.Retention = m.between(time.Minute, 10*time.Minute)
	for range 1 + m.IntN(2) {
		m.add(SeedAction{At: m.between(0, w.Horizon/2), Do: seedRetain, Proc: m.IntN(w.Procs), For: w.Horizon, Every: m.between(time.Second, time.Minute)})
	}
}

// workers poll at times, so that there are stretches without any.
func (m *seedMaker) workers() {
	w := m.plan.World
	for p := range w.Procs {
		for range m.IntN(3) {
			from := m.at()
			m.add(SeedAction{At: from, Do: seedWork, Proc: p, For: m.between(time.Second, w.Horizon), Every: m.between(500*time.Millisecond, 20*time.Second)})
		}
	}
}

func (m *seedMaker) trouble() {
	w := m.plan.World
	for range m.IntN(9) {
		m.add(m.storeFault())
	}
	for range m.IntN(7) {
		m.add(m.requestFault())
	}
	for range max(0, m.IntN(5)-2) {
		m.add(m.outage())
	}
	for range m.IntN(3) {
		m.add(SeedAction{
			At: m.at(), Do: seedFault, Proc: m.whose(), Call: seedLookup, Fault: seedPick(m, seedLoseRequest, seedLoseReply, seed503, seedHang, seedSlowReply, seedStuck),
			For: m.between(0, 2*w.Promise.Deadline),
		})
	}
	for range m.IntN(4) {
		a := SeedAction{At: m.at(), Proc: m.IntN(w.Procs)}
		switch m.IntN(6) {
		case 0:
			a.Do, a.For = seedStall, m.between(0, 3*w.Options.Lease)
		case 1:
			a.Do, a.For = seedJump, m.between(-2*time.Hour, 2*time.Hour)
		case 2:
			a.Do, a.For = seedJump, m.between(-w.Options.Lease, w.Options.Lease)
		case 3:
			a.Do, a.For = seedSuspend, m.between(0, 2*w.Options.Lease)
		case 4:
			a.Do, a.For = seedRestart, m.between(0, w.Horizon/2)
		case 5:
			a.Do, a.Arg = seedHookFails, m.IntN(2)
		}
		m.add(a)
	}
}

// edge makes the end of a key's window matter: the first reply is lost, nobody can ask, and
// what is sent again takes long to arrive.
func (m *seedMaker) edge() {
	w := &m.plan.World
	c, o := &w.Promise, &w.Provider
	c.Lookup, c.LookupLag, o.LookupLag = settle.NoLookup, 0, 0
	o.KeyWindow = w.Options.Lease + c.Deadline + c.SettleDelay + m.between(time.Second, w.Options.Lease+c.Deadline+c.SettleDelay)
	if o.Concurrent == providertest.ConcurrentUnsafe {
		o.Concurrent = providertest.ConcurrentGuard
	}
	c.Keys.Window, c.Keys.ConcurrentSafe = o.KeyWindow, true
	at := m.between(0, 5*time.Second)
	m.add(SeedAction{Do: seedFault, Proc: seedAnybody, Call: seedCreate, Fault: seedLoseReply})
	m.add(SeedAction{At: at, Do: seedExecute, Proc: m.IntN(w.Procs)})
	m.add(SeedAction{At: at + time.Second, Do: seedOutage, Proc: seedAnybody, Call: seedCreate, Fault: seedPick(m, seedSlow, seedSlowExec), For: w.Horizon})
	m.add(SeedAction{At: at + time.Second, Do: seedWork, Proc: m.IntN(w.Procs), For: w.Horizon, Every: m.between(time.Second, 5*time.Second)})
}

// abandoned makes the end of an attempt matter that nobody recorded: it leaves late in its
// lease, its process dies, and another one takes over while the request is still on its way.
func (m *seedMaker) abandoned() {
	w := &m.plan.World
	c, o := &w.Promise, &w.Provider
	w.Procs, w.Hooks, w.Local = 2, []bool{true, true}, true
	w.Options.Lease = m.between(20*time.Second, 40*time.Second)
	c.Deadline, c.SettleDelay = m.between(2*time.Second, 5*time.Second), m.between(w.Options.Lease/2, w.Options.Lease)
	c.Lookup, c.LookupLag, o.LookupLag = settle.NoLookup, 0, 0
	c.Keys.Window, c.Keys.ConcurrentSafe = settle.Forever, false
	o.KeyWindow, o.Concurrent = providertest.Forever, providertest.ConcurrentUnsafe
	lease := w.Options.Lease
	m.plan.Actions = []SeedAction{
		{Do: seedFault, Call: seedCommit, Fault: seedSlowReply, For: m.between(lease/2, lease*4/5)},
		{Do: seedFault, Call: seedCreate, Fault: seedPick(m, seedSlow, seedSlowExec), For: m.between((c.Deadline+c.SettleDelay)*7/10, (c.Deadline+c.SettleDelay)*9/10)},
		{At: time.Millisecond, Do: seedExecute},
		{At: lease * 9 / 10, Do: seedRestart, For: w.Horizon},
	}
	if m.chance(50) {
		m.add(SeedAction{At: time.Second, Do: seedWork, Proc: 1, For: w.Horizon, Every: m.between(500*time.Millisecond, 2*time.Second)})
		return
	}
	for i := range 30 { // or a caller takes over
		m.add(SeedAction{At: lease + time.Duration(i)*lease/15, Do: seedExecute, Proc: 1})
	}
}

// outage draws a stretch in which one kind of call goes wrong every time.
func (m *seedMaker) outage() SeedAction {
	a := SeedAction{At: m.at(), Do: seedOutage, Proc: seedAnybody, For: m.between(time.Second, m.plan.World.Horizon)}
	switch m.IntN(6) {
	case 0, 1, 2:
		a.Call, a.Fault = seedCreate, seedPick(m, seedLoseReply, seedLoseRequest, seedSlow, seedSlow, seedSlowExec, seed503, seed500After, seed401)
	case 3, 4:
		a.Call, a.Fault = seedLookup, seedPick(m, seedLoseRequest, seed503)
	default:
		a.Call, a.Fault = seedPick(m, seedCommit, seedRenew, seedClaim, seedGet), seedPick(m, seedLoseRequest, seedLoseReply, seedSlowReply)
		a.For = m.between(time.Second, 2*time.Minute)
	}
	return a
}

// whose draws the process that a fault befalls, or anybody.
func (m *seedMaker) whose() int {
	if m.chance(60) {
		return seedAnybody
	}
	return m.IntN(m.plan.World.Procs)
}

func (m *seedMaker) storeFault() SeedAction {
	w := m.plan.World
	a := SeedAction{At: m.at(), Do: seedFault, Proc: m.whose(), Call: seedPick(m, seedCommit, seedCommit, seedCommit, seedCommit, seedClaim, seedRenew, seedRenew, seedGet)}
	if m.chance(40) {
		a.At = m.between(0, 10*time.Second)
	}
	a.Fault = seedPick(m, seedLoseRequest, seedLoseReply, seedLoseReply, seedTwice, seedHang, seedHangAfter, seedLate, seedSlow, seedSlowReply, seedStuck, seedStuckAfter)
	switch a.Fault {
	case seedStuck, seedStuckAfter:
		a.For = m.between(w.Options.Lease/4, 2*w.Options.Lease)
	case seedLate, seedSlow, seedSlowReply:
		a.For = m.between(0, 2*w.Options.Lease)
		if m.chance(60) {
			a.For /= 8
		}
	}
	return a
}

func (m *seedMaker) requestFault() SeedAction {
	w := m.plan.World
	a := SeedAction{At: m.at(), Do: seedFault, Proc: m.whose(), Call: seedCreate}
	if m.chance(60) {
		a.At = 0
	}
	a.Fault = seedPick(m, seedLoseRequest, seedLoseReply, seedLoseReply, seedLoseReply, seedSlow, seedSlow, seedSlowExec, seedSlowExec, seedSlowReply,
		seedDial, seed429, seed401, seed503, seed500After, seed500Stored, seedDecline, seedDecline, seedUnderway, seedUnderway, seedWrong, seedGarbled, seedHang, seedDouble, seedStuck)
	switch a.Fault {
	case seedStuck:
		a.For = m.between(w.Options.Lease/4, 3*w.Options.Lease)
	case seedSlow, seedSlowExec, seedDouble:
		a.For = m.between(0, (w.Promise.Deadline+w.Promise.SettleDelay)*9/10)
	case seedSlowReply:
		a.For = m.between(0, 2*w.Promise.Deadline)
	case seedWrong:
		a.For = time.Duration(m.IntN(2)) * time.Millisecond // how wrong
	case seed429:
		a.For = m.between(0, time.Minute)
	case seedUnderway:
		a.For, a.Arg = m.between(time.Second, 40*time.Minute), m.IntN(4)
	}
	return a
}
