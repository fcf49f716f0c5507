package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// SeedPlan is everything that decides a run: a world, and what happens in it when. A run
// is a pure function of it, so an action can be taken out and the rest played again.
type SeedPlan struct {
	Seed    uint64 // also of the noise: how long each call takes
	World   SeedWorld
	Actions []SeedAction
	Defect  SeedDefect
}

// SeedWorld is the setting of a run.
type SeedWorld struct {
	Procs, Orders int
	Local         bool   // the store says that its reads cost nothing
	Hooks         []bool // which processes have the application's hook
	Options       settle.Options
	Provider      providertest.Options
	Promise       settle.Contract // what every process believes of the provider; true unless a defect says otherwise
	Horizon       time.Duration   // until then there are faults
}

// SeedAction is one thing that happens in a run. Which fields count depends on Do.
type SeedAction struct {
	At    time.Duration // since the start
	Do    SeedDo
	Proc  int // a slot, or seedAnybody
	Order int
	Call  string        // of a fault: which call it befalls
	Fault string        // of a fault: what befalls it
	For   time.Duration // a delay, a stall, a jump, a caller's patience
	Every time.Duration // of a worker: how often it polls
	Arg   int           // a variant
}

// seedAnybody is the process of a fault that befalls whoever makes the call.
const seedAnybody = -1

// SeedDo says what an action does.
type SeedDo string

// What happens.
const (
	seedExecute    SeedDo = "execute"     // Arg: 0 as ordered, 1 drifted, 2 volatile part only; For: the caller's patience
	seedReplace    SeedDo = "replace"     // the next try of what failed or was canceled
	seedRegister   SeedDo = "register"    //
	seedCancel     SeedDo = "cancel"      //
	seedCompensate SeedDo = "compensate"  // Arg: which reason and amount
	seedResolve    SeedDo = "resolve"     // a person looks into it, and is right; Arg: how it is put
	seedReconcile  SeedDo = "reconcile"   //
	seedRedrive    SeedDo = "redrive"     //
	seedResolveAll SeedDo = "resolve-all" // a person says the same of all that wait for one, and is right; Arg: 0 to 2, how it is put
	seedReport     SeedDo = "report"      // what the provider's books say by now
	seedObserve    SeedDo = "observe"     // Arg: 0 the provider's last event about the order; more, one that asks for a lookup, so that some come again
	seedRefresh    SeedDo = "refresh"     //
	seedRetain     SeedDo = "retain"      // the process removes what is older than Options.Retention, for For, every Every
	seedWork       SeedDo = "work"        // a worker polls for For, every Every
	seedFault      SeedDo = "fault"       // the next such call of the process meets it
	seedOutage     SeedDo = "outage"      // every such call of everybody meets the fault until For has passed
	seedStall      SeedDo = "stall"       // nothing gets in or out of the process for For
	seedJump       SeedDo = "jump"        // the wall clock of the process is set by For
	seedSuspend    SeedDo = "suspend"     // its monotonic clock misses For
	seedRestart    SeedDo = "restart"     // the process is killed, and started again after For
	seedHookFails  SeedDo = "hook-fails"  // the next run of a hook in the process fails; Arg: 1 panics
	seedReverse    SeedDo = "reverse"     // the provider takes a success of the order back; Arg: 1 its refund's
)

// The calls that a fault can befall.
const (
	seedGet    = "get"
	seedCommit = "commit"
	seedClaim  = "claim"
	seedRenew  = "renew"
	seedCreate = "create" // a request to the provider
	seedLookup = "lookup"
)

// The faults of store calls, lookups and requests.
const (
	seedLoseRequest = "lose-request" // not made, an error at once
	seedLoseReply   = "lose-reply"   // made, and an error
	seedTwice       = "twice"        // made twice, the second answer counts
	seedHang        = "hang"         // not made, no answer
	seedHangAfter   = "hang-after"   // made, no answer
	seedLate        = "late"         // an error at once, and made after For
	seedSlow        = "slow"         // made after For
	seedSlowReply   = "slow-reply"   // made, the answer comes after For
	seedStuck       = "stuck"        // the process stalls for For just before it is made; a request has left by then
	seedStuckAfter  = "stuck-after"  // the process stalls for For just after it was made

	seedSlowExec  = "slow-exec" // arrived at once, has its effect after For
	seedDial      = "dial-refused"
	seed429       = "429"
	seed401       = "401"
	seed503       = "503"
	seed500After  = "500-after"
	seed500Stored = "500-stored"
	seedDecline   = "decline"
	seedUnderway  = "processing" // ends well after For; Arg: 1 badly, 2 needs action first, 3 both
	seedWrong     = "wrong-amount"
	seedGarbled   = "garbled"
	seedDouble    = "double" // the network delivers it again after For
)

// String is one line.
func (a SeedAction) String() string { return fmt.Sprintf("%14s %s", a.At, a.what()) }

// what is the action without its time.
func (a SeedAction) what() string {
	var b strings.Builder
	who := fmt.Sprintf("p%d", a.Proc)
	if a.Proc == seedAnybody {
		who = "any"
	}
	fmt.Fprintf(&b, "%-10s %-3s", a.Do, who)
	switch a.Do {
	case seedExecute, seedReplace, seedRegister, seedCancel, seedCompensate, seedResolve, seedReconcile, seedRedrive, seedObserve, seedRefresh, seedReverse:
		fmt.Fprintf(&b, " order-%d", a.Order)
	case seedFault:
		fmt.Fprintf(&b, " %s of the next %s", a.Fault, a.Call)
	case seedOutage:
		fmt.Fprintf(&b, " %s of every %s", a.Fault, a.Call)
	case seedWork, seedRetain, seedStall, seedJump, seedSuspend, seedRestart, seedHookFails, seedResolveAll, seedReport: // of no order
	}
	if a.For != 0 {
		fmt.Fprintf(&b, " for %s", a.For)
	}
	if a.Every != 0 {
		fmt.Fprintf(&b, " every %s", a.Every)
	}
	if a.Arg != 0 {
		fmt.Fprintf(&b, " (%d)", a.Arg)
	}
	return b.String()
}

// String tells the plan.
func (p *SeedPlan) String() string {
	var b strings.Builder
	w, c := p.World, p.World.Promise
	fmt.Fprintf(&b, "seed %d: %d processes, hooks %v, local store %v, lease %v, store timeout %v, escalate after %v\n",
		p.Seed, w.Procs, w.Hooks, w.Local, w.Options.Lease, w.Options.StoreTimeout, w.Options.EscalateAfter)
	o := w.Provider
	fmt.Fprintf(&b, "provider: keys for %v (promised %v), replay %q, concurrent %q (safe %v), only successes kept %v\n",
		seedWindow(o.KeyWindow), seedWindow(c.Keys.Window), o.Replay, o.Concurrent, c.Keys.ConcurrentSafe, o.CacheOnlySuccess)
	fmt.Fprintf(&b, "contract: lookup %q (lag %v), deadline %v, settle delay %v, processing %v\n", c.Lookup, c.LookupLag, c.Deadline, c.SettleDelay, c.ProcessingLimit)
	if w.Options.Retention > 0 {
		fmt.Fprintf(&b, "requests and results are kept for %v\n", w.Options.Retention)
	}
	if p.Defect != "" {
		fmt.Fprintf(&b, "defect: %s\n", p.Defect)
	}
	for _, a := range p.Actions {
		b.WriteString(a.String() + "\n")
	}
	fmt.Fprintf(&b, "%14s the faults end; one healthy worker goes on\n", w.Horizon)
	return b.String()
}

func seedWindow(d time.Duration) string {
	switch d {
	case 0:
		return "no time"
	case settle.Forever:
		return "ever"
	}
	return d.String()
}

// without is the plan without some of its actions.
func (p *SeedPlan) without(from, to int) *SeedPlan {
	q := *p
	q.Actions = slices.Delete(slices.Clone(p.Actions), from, to)
	return &q
}
