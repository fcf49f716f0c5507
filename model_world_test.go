package settle

import (
	"context"
	"time"

	"github.com/shopspring/decimal"
)

// The protocol model of these files explores every interleaving of two processes, a caller,
// a person, a lossy provider and its events, over the library's own functions on real
// Records; docs/model.md says what it covers. A model supplies what the library gets from
// outside: the clock, the store, the provider, and the order of steps.

// tick is the unit of the model's time. It is longer than every backoff, which thus counts
// as one tick, and the review interval is four.
const tick = 15 * time.Minute

// setting is one configuration: what the provider promises and does, and the bounds.
type setting struct {
	name   string
	lease  int // ticks, at most 4
	window int // ticks; 0: no keys, forgets: -1: never
	safe   bool
	lookup LookupPromise
	lag    int // ticks
	// What the provider does beyond applying and declining.
	forgetsDeclines bool // a declined request leaves its key unused
	underway        bool // may accept and decide later
	throttles       bool // may answer "not applied"
	flaky           bool // lookups may get no answer
	events          bool // tells of effects and refusals by events, too
	reverses        bool // effects may come undone
	// Who else is there.
	moved    bool    // the second process is configured for another account
	refunds  []int64 // the caller compensates, once for each amount; 0: the whole effect
	cancels  bool
	again    bool // the caller calls again
	person   bool
	deadline bool // SendBefore passes
	// Bounds.
	attempts, crashes, stumbles, stalls, renewals int
}

const (
	provDeadline = 1 // ticks
	provSettle   = 1
	escalateIn   = 5
	processingIn = 3
	sendBeforeIn = 3
	charge       = 0 // row numbers; the refunds follow
	maxRows      = 3
	effectCents  = 1000
)

// world is one state of the model.
type world struct {
	now   int              // ticks
	rows  [maxRows]*Record // as stored; never changed in place
	nows  [maxRows]seenAt  // what row has made of them
	ops   [maxRows]truth
	procs [2]proc
	reqs  []request
	facts []news
	left  budget
}

// seenAt is a row with the state that it has at a time.
type seenAt struct {
	of  *Record
	at  int
	row *Record
}

type budget struct{ crashes, stumbles, stalls, renewals, reversals, cancels, persons int }

// truth is what the provider knows of one operation.
type truth struct {
	known    bool // the key was used
	first    int  // when
	result   Fact // Applied, Declined, Underway; of the last use
	effects  int  // ever
	reversed int  // of those
}

// request is one request on its way.
type request struct {
	row, attempt int
	sent         int // tick
	at           stage
	answer       Fact // once it is done
	proc         int  // who waits; -1: nobody
}

type stage byte

const (
	flying stage = iota
	under        // at a provider that does not guard concurrent requests
	done
	astray
)

// news is something that the provider tells by an event, at any time from now on, as often as it likes.
type news struct {
	row  int
	fact Fact
	ref  string
}

type phase byte

const (
	idle     phase = iota
	turning        // about to take a turn of the loop of Engine.pass
	planned        // decided to send, and not committed yet
	inFlight       // its request is on its way
	asking         // a lookup is to be made
	answered       // the lookup's answer is to be recorded
)

// proc is one process: at most one operation in work, in memory only.
type proc struct {
	at          phase
	row         int
	r           *Record // its copy; never changed in place
	c           *claim
	renewed     int  // tick of the last step that moved the lease (keeper.renewed)
	ready, sent bool // of Engine.pass
	seen        looked
	again       bool // Engine.lookAgain, not Engine.pass
	answer      evidence
	silent      bool // the lookup got no answer
}

func (w *world) clone() *world {
	out := *w
	out.reqs = append(make([]request, 0, len(w.reqs)+1), w.reqs...)
	out.facts = append(make([]news, 0, len(w.facts)+1), w.facts...)
	for i := range out.procs {
		p := &out.procs[i]
		if p.c != nil {
			c := *p.c
			p.c = &c
		}
	}
	return &out
}

func (w *world) waiting(i int) *request {
	for n := range w.reqs {
		if w.reqs[n].proc == i {
			return &w.reqs[n]
		}
	}
	return nil
}

// model runs one setting. Not safe for concurrent use: the engine's store and clock are
// those of the world that is being changed.
type model struct {
	setting
	seed  seed
	e     *Engine
	ctx   context.Context
	began time.Time // with a monotonic reading, in whole seconds
	wall  time.Time // the same without
	kinds [2][maxRows]*modelKind
	// unbound lifts the bound of attempts, to see how a state ends that the bounds cut off.
	unbound bool
	w       *world
	bad     *breach
	script  script // of the conformance tests
	only    string // the one breach to look for; empty: any
}

// breach is an invariant that does not hold.
type breach struct{ id, why string }

func (m *model) fail(id, why string) {
	if m.bad == nil || !m.breaks() {
		m.bad = &breach{id, why}
	}
}

// breaks reports whether an invariant broke that is looked for.
func (m *model) breaks() bool {
	return m.bad != nil && (m.only == "" || m.only == m.bad.id+": "+m.bad.why)
}

func newModel(s setting, bad seed) *model {
	m := &model{setting: s, seed: bad, ctx: context.Background()}
	now := time.Now()
	m.began = now.Add(-time.Duration(now.Nanosecond()))
	m.wall = m.began.Round(0).UTC()
	e, err := Open(modelStore{m}, &Options{
		Scope: "shop", Lease: time.Duration(s.lease) * tick, EscalateAfter: escalateIn * tick, ReviewWithin: 2 * tick, Clock: m,
	})
	if err != nil {
		panic(err)
	}
	m.e = e
	for i := range m.kinds {
		for row := range m.kinds[i] {
			m.kinds[i][row] = &modelKind{m: m, proc: i, row: row}
		}
	}
	for _, k := range m.kinds[0][:2] {
		if err := e.register(k); err != nil {
			panic(err)
		}
	}
	return m
}

// Now is the one clock of the model: the store and the processes agree.
func (m *model) Now() time.Time { return m.began.Add(time.Duration(m.w.now) * tick) }

func (m *model) instant() time.Time { return m.wall.Add(time.Duration(m.w.now) * tick) }

// ticks is the tick of an instant that is not zero.
func (m *model) ticks(t time.Time) int { return int(t.Sub(m.wall) / tick) }

// row is a stored record, with its state as of now; not to be changed.
func (m *model) row(w *world, i int) *Record {
	if n := &w.nows[i]; n.of != w.rows[i] || n.at != w.now {
		r := *w.rows[i]
		r.AsOf = m.wall.Add(time.Duration(w.now) * tick)
		r.State = r.compute(r.Claimed())
		*n = seenAt{w.rows[i], w.now, &r}
	}
	return w.nows[i].row
}

func (m *model) promise() Contract {
	c := Contract{
		Account: AccountFacts{Provider: "bank"}, Lookup: m.lookup, LookupLag: time.Duration(m.lag) * tick,
		Deadline: provDeadline * tick, SettleDelay: provSettle * tick, ProcessingLimit: processingIn * tick,
		Keys: Keys{ConcurrentSafe: m.safe},
	}
	switch {
	case m.window < 0 || m.window > 0 && m.seed == windowIgnored:
		c.Keys.Window = Forever
	default:
		c.Keys.Window = time.Duration(m.window) * tick
	}
	return c.withDefaults()
}

func minor(cents int64) Amount {
	if cents == 0 {
		return Amount{}
	}
	return Amount{Value: decimal.NewFromInt(cents), Unit: "EUR/minor"}
}
