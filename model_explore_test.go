package settle

import (
	"fmt"
	"slices"
	"strings"
)

// graph is what an exploration found: every state once, by the shortest way to it.
type graph struct {
	m           *model
	parent      []int32
	by          []move
	resting     []bool
	cut         int // states at which the bounds stopped a next attempt
	transitions int
	deepest     int
	from, to    []int32 // moves that no fault, caller or person makes
	breach      *breach
	at          int32           // where it is
	ends        map[digest]bool // of those that the bounds cut off: whether they come to rest
}

// successor is a state and the move that leads to it.
type successor struct {
	by move
	w  *world
}

// explore visits every state that can be reached, breadth first, until one breaks an invariant or
// there are more than limit.
func (m *model) explore(limit int) *graph {
	g := &graph{m: m, ends: map[digest]bool{}}
	first := m.initial()
	seen := map[digest]int32{m.digest(first): 0}
	g.parent, g.by, g.resting = []int32{-1}, []move{{}}, []bool{true}
	type entry struct {
		w  *world
		id int32
	}
	for level := []entry{{first, 0}}; len(level) > 0; g.deepest++ {
		var next []entry
		for _, at := range level {
			var heard []successor
			for _, x := range m.moves(at.w) {
				g.transitions++
				w := m.do(at.w, x)
				m.check(w)
				d := m.digest(w)
				id, known := seen[d]
				broken := m.breaks()
				if !known || broken {
					id = int32(len(g.parent))
					seen[d] = id
					g.parent, g.by, g.resting = append(g.parent, at.id), append(g.by, x), append(g.resting, m.rests(w))
					next = append(next, entry{w, id})
				}
				if broken {
					g.breach, g.at = m.bad, id
					return g
				}
				if !x.faulty(at.w) && id != at.id {
					g.from, g.to = append(g.from, at.id), append(g.to, id)
				}
				if x.do == hears || x.do == records || x.do == tells {
					heard = append(heard, successor{x, w})
				}
			}
			if m.confluent(at.w, heard); m.breaks() {
				g.breach, g.at = m.bad, at.id
				return g
			}
			for i := range at.w.procs {
				if p := &at.w.procs[i]; p.at == planned && p.r.lastAttempt() >= m.attempts {
					g.cut++
				}
			}
			if len(g.parent) > limit {
				g.breach, g.at = &breach{"bounds", fmt.Sprintf("more than %d states", limit)}, at.id
				return g
			}
		}
		level = next
	}
	return g
}

func (m *model) initial() *world {
	w := &world{left: budget{crashes: m.crashes, stumbles: m.stumbles, stalls: m.stalls, renewals: m.renewals}}
	if m.reverses {
		w.left.reversals = 1
	}
	if m.cancels {
		w.left.cancels = 1
	}
	if m.person {
		w.left.persons = 1
	}
	m.w = w
	return w
}

// stuck lists the states from which no way without faults, callers and persons leads to rest (I10).
func (g *graph) stuck() []int32 {
	back := make([][]int32, len(g.parent))
	for i := range g.from {
		back[g.to[i]] = append(back[g.to[i]], g.from[i])
	}
	good := make([]bool, len(g.parent))
	reach := func(i int32) { // and everything from which it is reached
		todo := []int32{i}
		good[i] = true
		for len(todo) > 0 {
			i := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for _, j := range back[i] {
				if !good[j] {
					good[j] = true
					todo = append(todo, j)
				}
			}
		}
	}
	for i, ok := range g.resting {
		if ok && !good[i] {
			reach(int32(i))
		}
	}
	var out []int32
	for i := len(good) - 1; i >= 0; i-- { // the deepest first: they are where the bounds cut
		switch {
		case good[i]:
		case g.finishes(g.replay(int32(i))):
			reach(int32(i))
		default:
			out = append(out, int32(i))
		}
	}
	slices.Reverse(out)
	return out
}

// finishes goes on without faults and without the bound of attempts, a state that the bounds cut off.
func (g *graph) finishes(w *world) (ok bool) {
	g.m.unbound = true
	var way []digest
	defer func() {
		g.m.unbound = false
		for _, d := range way {
			g.ends[d] = ok
		}
	}()
	for range 500 {
		d := g.m.digest(w)
		if g.ends[d] || g.m.rests(w) {
			return true
		}
		way = append(way, d)
		ms := slices.DeleteFunc(g.m.moves(w), func(x move) bool { return x.faulty(w) })
		if len(ms) == 0 {
			return false
		}
		best := ms[0]
		for _, x := range ms { // whatever there is to do before time passes
			if best.do == ticks || best.do == lands && best.b > x.b && x.do == lands {
				best = x
			}
		}
		w = g.m.do(w, best)
	}
	return false
}

// path is the moves that lead to a state.
func (g *graph) path(id int32) []move {
	var out []move
	for ; g.parent[id] >= 0; id = g.parent[id] {
		out = append(out, g.by[id])
	}
	slices.Reverse(out)
	return out
}

func (g *graph) replay(id int32) *world {
	w := g.m.initial()
	for _, x := range g.path(id) {
		w = g.m.do(w, x)
	}
	return w
}

// trace tells how a state is reached.
func (g *graph) trace(id int32) string {
	var b strings.Builder
	w := g.m.initial()
	for n, x := range g.path(id) {
		text := x.tell(w)
		w = g.m.do(w, x)
		var states []string
		for i := range w.rows {
			if w.rows[i] != nil {
				states = append(states, string(g.m.row(w, i).State))
			}
		}
		fmt.Fprintf(&b, "%3d. t=%-2d %s (%s)\n", n+1, w.now, text, strings.Join(states, ", "))
	}
	return b.String()
}
