package settle

import "fmt"

// move is one step of the model.
type move struct {
	do   deed
	a, b int // process, row, request or event; outcome, view or decision
}

type deed byte

const (
	registers deed = iota
	executes
	compensates
	callsAgain
	withdraws
	resolves
	claims
	turns
	commits
	hears // the reply
	givesUp
	looks
	records
	renews
	crashes
	ticks
	lands
	ends // what was undecided
	undoes
	tells // an event
)

// faulty reports whether a move is of those that stop in the end, or that nothing may wait for: faults,
// callers, persons, and events, which may never come.
func (x move) faulty(w *world) bool {
	switch x.do {
	case executes, registers, compensates, callsAgain, withdraws, resolves, crashes, undoes, tells, renews:
		return true
	case looks:
		return x.b == int(silent)
	case givesUp:
		q := w.waiting(x.a)
		return q.at != astray
	case claims, turns, commits, hears, records, ticks, lands, ends:
	}
	return false
}

var persons = []Decision{
	{Resume: true},
	{Fact: Applied},
	{Fact: Declined},
	{Fact: NotApplied},
}

// moves lists what can happen next.
func (m *model) moves(w *world) []move {
	m.w = w
	out := make([]move, 0, 16)
	add := func(d deed, a, b int) { out = append(out, move{d, a, b}) }
	if w.rows[charge] == nil {
		add(executes, 0, 0)
		add(registers, 0, 0)
		return out
	}
	parent := m.row(w, charge)
	for i := range w.procs {
		m.processMoves(w, i, add)
	}
	for row := range len(m.refunds) + 1 {
		if w.rows[row] == nil {
			if (row == 1 || w.rows[row-1] != nil) && w.procs[0].at == idle {
				add(compensates, row, 0)
			}
			continue
		}
		r := m.row(w, row)
		if m.again && w.procs[0].at == idle && resumable(r) {
			add(callsAgain, 0, row)
		}
		if w.ops[row].result == Underway {
			add(ends, row, int(applies))
			add(ends, row, int(declines))
		}
		if w.left.reversals > 0 && w.ops[row].effects > w.ops[row].reversed {
			add(undoes, row, 0)
		}
		if w.left.persons > 0 && r.State == StateReview {
			m.personMoves(w, row, add)
		}
	}
	if w.left.cancels > 0 && (parent.State == StateCreated || parent.State == StateUnknown) {
		add(withdraws, 0, 0)
	}
	for i := range w.reqs {
		q := &w.reqs[i]
		switch q.at {
		case flying:
			for _, o := range m.outcomes(w, q) {
				add(lands, i, int(o))
			}
		case under:
			for _, o := range m.outcomes(w, q) {
				add(lands, i, int(o))
			}
		case done, astray:
		}
	}
	for i := range w.facts {
		add(tells, i, 0)
	}
	if m.mayTick(w) && (w.left.stalls > 0 || m.unbound || !w.stalls()) {
		add(ticks, 0, 0)
	}
	return out
}

func (m *model) processMoves(w *world, i int, add func(deed, int, int)) {
	p := &w.procs[i]
	switch p.at {
	case idle:
		for row, r := range w.rows {
			if r != nil && !r.Due.IsZero() && m.ticks(r.Due) <= w.now {
				add(claims, i, row)
			}
		}
		return
	case turning:
		add(turns, i, 0)
	case planned:
		if p.r.lastAttempt() < m.attempts || m.unbound {
			add(commits, i, 0)
		}
	case inFlight:
		q := w.waiting(i)
		if q.at == done {
			add(hears, i, 0)
		}
		if w.left.stumbles > 0 || q.at == astray {
			add(givesUp, i, 0)
		}
	case asking:
		add(looks, i, int(sees))
		if m.lookup == Eventual {
			add(looks, i, int(lags))
		}
		if m.flaky && w.left.stumbles > 0 {
			add(looks, i, int(silent))
		}
	case answered:
		add(records, i, 0)
	}
	if w.left.renewals > 0 && !p.again && w.now > p.renewed && m.surelyOurs(p) && p.at != idle {
		add(renews, i, 0)
	}
	if w.left.crashes > 0 {
		add(crashes, i, 0)
	}
}

func (m *model) personMoves(w *world, row int, add func(deed, int, int)) {
	add(resolves, row, 0)
	coming := w.ops[row].result == Underway
	for _, q := range w.reqs {
		coming = coming || q.row == row && (q.at == flying || q.at == under)
	}
	switch {
	case w.ops[row].effects > w.ops[row].reversed:
		add(resolves, row, 1)
	case w.ops[row].effects == 0 && !coming:
		add(resolves, row, 2)
		add(resolves, row, 3)
	}
}

// stalls reports whether a process does nothing although it waits for nobody.
func (w *world) stalls() bool {
	for i := range w.procs {
		if p := &w.procs[i]; p.at != idle && (p.at != inFlight || w.waiting(i).at == done || w.waiting(i).at == astray) {
			return true
		}
	}
	return false
}

// do performs a move on a copy of w.
func (m *model) do(w *world, x move) *world {
	w = w.clone()
	m.w, m.bad = w, nil
	switch x.do {
	case registers, executes:
		m.register(x.do == executes)
	case compensates:
		m.compensate(x.a)
	case callsAgain:
		m.resume(x.a, x.b)
	case withdraws:
		m.cancel()
	case resolves:
		m.resolve(x.a, persons[x.b])
	case claims:
		m.claim(x.a, x.b)
	case turns:
		m.turn(x.a)
	case commits:
		m.commit(x.a)
	case hears:
		m.reply(x.a, w.waiting(x.a).answer)
	case givesUp:
		if w.waiting(x.a).at != astray {
			w.left.stumbles--
		}
		m.reply(x.a, Unclear)
	case looks:
		if view(x.b) == silent {
			w.left.stumbles--
		}
		m.look(x.a, view(x.b))
	case records:
		m.record(x.a)
	case renews:
		m.renew(x.a)
	case crashes:
		m.crash(x.a)
	case ticks:
		if w.stalls() {
			w.left.stalls--
		}
		w.now++
		m.expire(w)
	case lands:
		m.land(w, x.a, outcome(x.b))
	case ends:
		m.decides(w, x.a, []Fact{Applied, Declined}[x.b])
	case undoes:
		m.reverse(w, x.a)
	case tells:
		m.hear(w.facts[x.a])
	}
	w.tidy()
	return w
}

// tell describes a move that is made in w.
func (x move) tell(w *world) string {
	op := func(row int) string { return []string{"the charge", "the refund", "the second refund"}[row] }
	switch x.do {
	case registers:
		return "the caller registers the charge"
	case executes:
		return "the caller executes the charge: process 0 commits it with attempt 1"
	case compensates:
		return "the caller compensates with " + op(x.a)
	case callsAgain:
		return "the caller calls again for " + op(x.b)
	case withdraws:
		return "the caller cancels"
	case resolves:
		d := persons[x.b]
		return fmt.Sprintf("a person resolves %s: %s", op(x.a), map[bool]string{true: "go on", false: string(d.Fact)}[d.Resume])
	case claims:
		return fmt.Sprintf("process %d claims %s", x.a, op(x.b))
	case turns:
		return fmt.Sprintf("process %d takes a turn on %s", x.a, op(w.procs[x.a].row))
	case commits:
		return fmt.Sprintf("process %d commits the next attempt", x.a)
	case hears:
		return fmt.Sprintf("process %d hears %q", x.a, w.waiting(x.a).answer)
	case givesUp:
		return fmt.Sprintf("process %d gets no answer", x.a)
	case looks:
		return fmt.Sprintf("process %d looks it up and %s", x.a, []string{"is told what is there", "does not see it yet", "gets no answer"}[x.b])
	case records:
		return fmt.Sprintf("process %d records the lookup", x.a)
	case renews:
		return fmt.Sprintf("process %d renews its lease", x.a)
	case crashes:
		return fmt.Sprintf("process %d crashes", x.a)
	case ticks:
		return "time passes"
	case lands:
		q := w.reqs[x.a]
		if q.at == under {
			return fmt.Sprintf("attempt %d of %s ends at the provider: %s", q.attempt, op(q.row), outcome(x.b))
		}
		return fmt.Sprintf("attempt %d of %s arrives: %s, unless the provider knows the key", q.attempt, op(q.row), outcome(x.b))
	case ends:
		return fmt.Sprintf("the provider decides about %s: %s", op(x.a), outcome(x.b))
	case undoes:
		return op(x.a) + " comes undone at the provider"
	case tells:
		n := w.facts[x.a]
		return fmt.Sprintf("an event tells of %s: %s %s", op(n.row), n.fact, n.ref)
	}
	return "?"
}

func (o outcome) String() string {
	return []string{"applied", "declined", "underway", "not applied", "applied after a failed try"}[o]
}
