package settle

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// script is what happens to one process that works alone.
type script struct {
	outcome                   outcome // of its requests
	mute                      bool    // their replies are lost
	view                      view    // of its lookups
	beforeCommit, afterCommit int     // ticks that pass beside the commit of an attempt
	inCall                    int     // ticks that a request takes
}

// plays lets the request of process i arrive, and says what the process hears.
func (m *model) plays(i int) Fact {
	for n := range m.w.reqs {
		for m.w.reqs[n].proc == i && (m.w.reqs[n].at == flying || m.w.reqs[n].at == under) {
			m.land(m.w, n, m.script.outcome)
		}
	}
	m.w.now += m.script.inCall
	f := m.w.waiting(i).answer
	if m.script.mute {
		return Unclear
	}
	return f
}

// alone works process i to the end of its pass, as the model restates it.
func (m *model) alone(i int) {
	for p := &m.w.procs[i]; p.at != idle; {
		switch p.at {
		case turning:
			m.turn(i)
		case planned:
			m.commit(i)
		case inFlight:
			m.reply(i, m.plays(i))
		case asking:
			m.look(i, m.script.view)
		case answered:
			m.record(i)
		case idle:
		}
	}
}

// scripts are all that matter to one pass.
func scripts(lease int) []script {
	var out []script
	for _, o := range []outcome{applies, declines, accepts, throttled} {
		for _, mute := range []bool{false, true} {
			for _, v := range []view{sees, silent} {
				for _, s := range []script{{}, {beforeCommit: lease}, {afterCommit: lease}, {inCall: lease}} {
					s.outcome, s.mute, s.view = o, mute, v
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// TestModel_Conforms holds what the model restates to the engine's own functions: from states of
// each setting, a process that works alone leaves the same world behind, whether Engine.workClaimed,
// Engine.resume and Engine.pass do it or their restatements.
func TestModel_Conforms(t *testing.T) {
	t.Parallel()
	ends := make(map[string]int)
	for _, s := range settings {
		if len(s.refunds) > 1 {
			continue // an engine has one executor for a kind, and the model one for each row
		}
		m := newModel(s, sound)
		for n, w := range m.sample(16) {
			for _, sc := range scripts(s.lease) {
				m.script = sc
				for _, x := range m.startsOf(w) {
					engine, restated := w.clone(), w.clone()
					m.w = engine
					m.genuine(x)
					m.w = restated
					m.restated(x)
					engine.tidy()
					restated.tidy()
					require.Equal(t, m.tellWorld(engine), m.tellWorld(restated), "%s: state %d, %+v, %+v", s.name, n, x, sc)
					require.Equal(t, m.digest(engine), m.digest(restated), "%s: state %d, %+v, %+v", s.name, n, x, sc)
					for i, r := range engine.rows {
						if r != nil && (w.rows[i] == nil || r.Version != w.rows[i].Version) {
							ends[string(m.row(engine, i).State)]++
						}
					}
				}
			}
			m.script = script{}
		}
	}
	t.Logf("states after a pass: %v", ends)
	for _, s := range []State{StateSucceeded, StateFailed, StateUnknown, StateProcessing, StateReview, StateCreated, StateCanceled} {
		require.NotZero(t, ends[string(s)], s)
	}
}

func (m *model) tellWorld(w *world) string {
	out := fmt.Sprintf("t=%d", w.now)
	for i, r := range w.rows {
		if r != nil {
			out += fmt.Sprintf(" %s v%d due %s attempts %+v refs %+v tries %d-%d effects %d", m.row(w, i).State, r.Version, r.Due.Sub(m.wall), r.Attempts, r.References, r.Tries, r.Waits, w.ops[i].effects)
		}
	}
	return out
}

// sample is n states in which both processes are idle, from long walks; always the same ones.
func (m *model) sample(n int) []*world {
	rng := rand.New(rand.NewPCG(8472, uint64(n)))
	out := []*world{m.initial()}
	for len(out) < n {
		w := m.initial()
		for range 2 + rng.IntN(24) {
			ms := m.moves(w)
			if len(ms) == 0 {
				break
			}
			w = m.do(w, ms[rng.IntN(len(ms))])
		}
		if w.procs[0].at == idle && w.procs[1].at == idle && len(m.startsOf(w)) > 0 {
			out = append(out, w)
		}
	}
	return out
}

// startsOf lists the ways in which process 0 can begin to work.
func (m *model) startsOf(w *world) []move {
	var out []move
	if w.rows[charge] == nil {
		return []move{{executes, 0, 0}}
	}
	m.w = w
	for row, r := range w.rows {
		if r != nil && !r.Due.IsZero() && m.ticks(r.Due) <= w.now {
			out = append(out, move{claims, 0, row})
		}
		if r != nil {
			out = append(out, move{callsAgain, 0, row})
		}
	}
	return out
}

func (m *model) restated(x move) {
	if x.do == claims {
		m.claim(0, x.b)
	} else if m.w.rows[x.b] == nil {
		m.register(true)
	} else {
		m.resume(0, x.b)
	}
	m.alone(0)
}

func (m *model) genuine(x move) {
	k := m.kindOf(0, x.b)
	if x.do == claims {
		c := m.e.newClaim()
		r := modelStore{m}.claimRow(x.b, c.token)
		c.granted(r.AsOf)
		fresh(&r)
		m.e.workClaimed(m.ctx, &r, c)
	} else if m.w.rows[x.b] == nil {
		m.register(true)
		p := m.w.procs[0]
		m.w.procs[0] = proc{}
		_, _ = m.e.pass(m.ctx, k, p.r, p.c, "read")
	} else {
		r := m.row(m.w, x.b).fork()
		_, _, _ = m.e.resume(m.ctx, &flight{}, k, &r)
	}
}
