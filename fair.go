package settle

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Rate is how many operations of a kind Run starts in any span of a length.
type Rate struct {
	Count int           // at most 10000; 0: no limit
	Per   time.Duration // defaults to 1 second
}

const maxRate = 10_000

// pace holds the last starts of a kind with a rate: at most Count in any Per, however it is cut.
type pace struct {
	rate   Rate
	starts []time.Time // the last Count, oldest first
}

// allowed is how many may start at now.
func (w *pace) allowed(now time.Time) int {
	i := 0
	for i < len(w.starts) && elapsed(w.starts[i], now) >= w.rate.Per {
		i++
	}
	w.starts = w.starts[i:]
	return w.rate.Count - len(w.starts)
}

// next is how long it takes until one may start.
func (w *pace) next(now time.Time) time.Duration {
	if len(w.starts) < w.rate.Count {
		return 0
	}
	return max(0, w.rate.Per-elapsed(w.starts[0], now))
}

func (w *pace) start(now time.Time, n int) {
	for range n {
		w.starts = append(w.starts, now)
	}
}

// lane is a kind as Run sees it.
type lane struct {
	kind    string
	own     bool // it has a limit of its own, so it is claimed by itself
	room    int  // how many more may be worked now, by its own limits
	running int
}

// crowd is what decides who comes next: a pure value.
type crowd struct {
	slots  int            // of Run
	lanes  []lane         // in order of kind
	scopes map[string]int // operations under way, by scope
	turn   int            // how many claims were made: who was first is last
	held   bool           // a kind has no room by its own limits
}

// share is how many slots one kind or scope may take while another one waits. Beyond it, it gets what
// nobody else wants.
func (c *crowd) share() int { return max(1, c.slots/4) }

// most is how many one claim of a round may bring, so that nobody whom the round lets in gets more than a share
// by it: all of them may be of the one who has most already.
func (c *crowd) most(x round) int {
	has := 0
	if x.scopes {
		for _, n := range c.scopes {
			if n < c.share() {
				has = max(has, n)
			}
		}
	}
	if x.kinds {
		for _, l := range c.lanes {
			if l.running < c.share() {
				has = max(has, l.running)
			}
		}
	}
	return c.share() - has
}

// ask is one claim that Run makes.
type ask struct {
	kinds  []string
	except []string
	most   int
}

// round says whom a round of claims leaves out: kinds and scopes that have their share.
type round struct{ kinds, scopes bool }

// rounds are made one after the other, while slots are free: somebody who has nothing yet comes first.
func rounds() []round { return []round{{true, true}, {false, true}, {true, false}, {false, false}} }

// asks lists the claims of a round, in the order in which they are made.
func (c *crowd) asks(x round) []ask {
	var except []string
	if x.scopes {
		for scope, n := range c.scopes {
			if n >= c.share() {
				except = append(except, scope)
			}
		}
		slices.Sort(except)
	}
	var out []ask
	var rest []string
	for _, l := range c.lanes {
		switch {
		case x.kinds && l.running >= c.share() && len(c.lanes) > 1:
		case !l.own:
			rest = append(rest, l.kind)
		case l.room > 0:
			out = append(out, ask{kinds: []string{l.kind}, except: except, most: l.room})
		}
	}
	if len(rest) > 0 {
		out = append(out, ask{kinds: rest, except: except, most: c.slots})
	}
	if len(out) > 1 {
		n := c.turn % len(out)
		out = slices.Concat(out[n:], out[:n])
	}
	return out
}

// leavesOut names the kinds and scopes that a round leaves out, "" if it leaves out nobody.
func (c *crowd) leavesOut(x round) string {
	var out []string
	for _, l := range c.lanes {
		if x.kinds && l.running >= c.share() && len(c.lanes) > 1 {
			out = append(out, "kind "+l.kind)
		}
	}
	for scope, n := range c.scopes {
		if x.scopes && n >= c.share() {
			out = append(out, "scope "+scope)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// workload is what the Runs of an engine work on.
type workload struct {
	mu     sync.Mutex
	kinds  map[string]int
	scopes map[string]int
	paces  map[string]*pace
	turn   int
	full   bool // a kind with a limit of its own had more that was due
	alone  map[round]alone
}

// alone is when a round found that nobody waits but those that it left out.
type alone struct {
	out string
	at  time.Time
}

func newWorkload() *workload {
	return &workload{kinds: make(map[string]int), scopes: make(map[string]int), paces: make(map[string]*pace), alone: make(map[round]alone)}
}

func (w *workload) crowd(kinds []kind, slots int, now time.Time) *crowd {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &crowd{slots: slots, scopes: make(map[string]int, len(w.scopes)), turn: w.turn}
	w.turn++
	for s, n := range w.scopes {
		c.scopes[s] = n
	}
	for _, k := range kinds {
		most, rate := k.limits()
		l := lane{kind: k.name(), own: most > 0 || rate.Count > 0, room: slots, running: w.kinds[k.name()]}
		if most > 0 {
			l.room = min(l.room, most-l.running)
		}
		if rate.Count > 0 {
			if w.paces[l.kind] == nil {
				w.paces[l.kind] = &pace{rate: rate}
			}
			l.room = min(l.room, w.paces[l.kind].allowed(now))
		}
		c.held = c.held || l.room <= 0
		c.lanes = append(c.lanes, l)
	}
	c.lanes = append(c.lanes, lane{kind: EventKind, room: slots, running: w.kinds[EventKind]})
	return c
}

// begin counts operations that were handed out.
func (w *workload) begin(recs []Record, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range recs {
		w.kinds[r.Kind]++
		w.scopes[r.Scope]++
		if x := w.paces[r.Kind]; x != nil {
			x.start(now, 1)
		}
	}
}

// end takes one back. It reports whether a kind with a limit of its own waits for that.
func (w *workload) end(r *Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for m, k := range map[*map[string]int]string{&w.kinds: r.Kind, &w.scopes: r.Scope} {
		if (*m)[k]--; (*m)[k] == 0 {
			delete(*m, k)
		}
	}
	return w.full
}

// tokens is how long it takes until a kind that is held back by its rate alone may go on.
func (w *workload) tokens(now time.Time, otherwise time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.paces {
		if d := x.next(now); d > 0 {
			otherwise = min(otherwise, d)
		}
	}
	return otherwise
}

// wasAlone reports whether a round that left out the same ones has lately found nobody else. It costs a look
// at everything that waits, so it is not made again for a while.
func (w *workload) wasAlone(x round, out string, now time.Time, within time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.alone[x]
	return was.out == out && elapsed(was.at, now) < within
}

func (w *workload) noteAlone(x round, out string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alone[x] = alone{out, now}
}

func (w *workload) setFull(full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = full
}
