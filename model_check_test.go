package settle

import (
	"fmt"
	"slices"
)

// The invariants, checked on the model's worlds. None of them asks decide or compute what is right:
// the provider's truth and the stored evidence are the judges.

// checkWrite judges a write that the store is about to make (I5).
func (m *model) checkWrite(cur *Record, x *Write) {
	if !cur.Claimed() || x.IfToken == cur.Token {
		return
	}
	if x.Record.lastAttempt() > cur.lastAttempt() {
		m.fail("I5", "somebody else's claim is live, and an attempt is added")
	}
	if x.DueIn != Keep && !x.Record.State.Settled() && !cur.State.Settled() {
		m.fail("I5", "somebody else's claim is live, and its schedule is moved")
	}
}

// checkSend judges a request that is about to leave.
func (m *model) checkSend(i int) {
	w, p := m.w, &m.w.procs[i]
	row := m.row(m.w, p.row)
	n := p.c.attempt
	a := row.attempt(n)
	if n == 0 || a == nil {
		m.fail("I1", "a request leaves and its attempt is not on record")
		return
	}
	home := m.kinds[0][charge].account()
	if there := (modelKind{m: m, proc: i, row: p.row}).reaches(); there != home || row.Account != home {
		m.fail("I2", "a request leaves for another account")
	}
	if p.r.ProviderKey != row.ProviderKey || string(p.r.Request) != string(row.Request) {
		m.fail("I2", "a request leaves with another key or body")
	}
	if a.Fate != FateOpen {
		m.fail("I5", "a request leaves for an attempt that has ended")
	}
	if row.Claimed() && row.Token != p.c.token {
		m.fail("I5", "a request leaves under a claim that somebody else has")
	}
	if w.now >= m.ticks(a.Start)+m.lease {
		m.fail("I5", "a request leaves after the lease under which its attempt was committed")
	}
	if slices.ContainsFunc(w.reqs, func(q request) bool { return q.row == p.row && q.attempt == n }) {
		m.fail("I2", "one attempt leaves twice")
	}
	m.checkResend(p, row)
	if p.row != charge {
		m.checkUndo(p)
	}
}

// reaches is the account at which a process's requests arrive.
func (k modelKind) reaches() string {
	f := k.m.promise().Account
	if k.m.moved && k.proc == 1 {
		f.Region = "elsewhere"
	}
	return f.String()
}

// checkAsk judges a lookup.
func (m *model) checkAsk(i int) {
	if (modelKind{m: m, proc: i}).reaches() != m.kinds[0][charge].account() {
		m.fail("I2", "another account is asked")
	}
}

// checkResend: what may have left is sent again in the window only, after quiet or where that is safe (I6).
func (m *model) checkResend(p *proc, row *Record) {
	first := -1
	for _, a := range row.Attempts {
		if a.N >= p.c.attempt || a.harmless() {
			continue
		}
		if first < 0 {
			first = m.ticks(a.Start)
		}
	}
	switch {
	case first < 0:
	case m.window == 0:
		m.fail("I6", "sent again to a provider that honours no keys")
	case m.window > 0 && m.w.now+provDeadline+provSettle > first+m.window:
		m.fail("I6", "sent again, and it may arrive when the key is forgotten")
	case !m.safe && slices.ContainsFunc(m.w.reqs, func(q request) bool {
		return q.row == p.row && (q.at == flying || q.at == under)
	}):
		m.fail("I6", "sent again while another request of it is on its way")
	}
}

// checkUndo: only a confirmed effect is undone (I8), and never more of it than there is (I9).
func (m *model) checkUndo(p *proc) {
	parent := m.row(m.w, charge)
	if !slices.ContainsFunc(parent.References, func(x Reference) bool { return x.Rank == RankSucceeded }) {
		m.fail("I8", "a compensation leaves for an effect that is "+string(parent.State))
	}
	var total int64
	for row := 1; row <= len(m.refunds); row++ {
		if m.w.rows[row] == nil {
			continue
		}
		r := m.row(m.w, row)
		if row == p.row || r.mayHaveLeft() && r.State != StateFailed && r.State != StateCanceled {
			total += m.amount(row).Value.IntPart()
		}
	}
	if total > effectCents {
		m.fail("I9", fmt.Sprintf("a compensation leaves that makes %d of %d", total, effectCents))
	}
}

// check judges a state that was reached.
func (m *model) check(w *world) {
	for i, stored := range w.rows {
		if stored == nil {
			continue
		}
		r := m.row(w, i)
		m.checkTruth(w, i, r)
		m.checkSchedule(w, r)
	}
}

// checkTruth: what is settled is so (I4). An effect that exists is not denied, and none that never was is claimed.
func (m *model) checkTruth(w *world, i int, r *Record) {
	op := w.ops[i]
	exists := op.effects > op.reversed
	switch r.State {
	case StateFailed, StateCanceled, StateCreated:
		if exists {
			m.fail("I4", string(r.State)+", and the effect exists")
		}
		if op.result == Underway && r.State != StateCreated {
			m.fail("I4", string(r.State)+", and the provider works on it")
		}
	case StateSucceeded, StateCompensating, StateCompensated:
		if op.effects == 0 {
			m.fail("I4", string(r.State)+", and there was never an effect")
		}
		if r.State == StateCompensated && w.ops[1].effects+w.ops[2].effects == 0 {
			m.fail("I8", "compensated, and nothing was undone")
		}
	case StateSubmitting, StateUnknown, StateProcessing, StateActionRequired, StateReview:
	}
}

// checkSchedule: claimed, due at a known time, or in review with a deadline (I10).
func (m *model) checkSchedule(w *world, r *Record) {
	switch {
	case r.State.Settled():
		if r.Token != "" && !r.Wake {
			m.fail("I10", "settled, and still claimed")
		}
	case r.Due.IsZero():
		m.fail("I10", string(r.State)+", and never due")
	case m.ticks(r.Due) > w.now+max(m.lease, 5):
		m.fail("I10", string(r.State)+", and due in the distant future")
	case r.State == StateReview && (r.Review == nil || r.Review.Reason == "" || r.Review.Deadline.IsZero()):
		m.fail("I10", "in review without a reason or a deadline")
	}
}

// rests reports whether every row is settled or waits for a person.
func (m *model) rests(w *world) bool {
	for i, stored := range w.rows {
		if stored == nil {
			continue
		}
		r := m.row(w, i)
		asked := i != charge && m.row(w, charge).State == StateReview // it waits for what the person says
		if !r.State.Settled() && r.State != StateReview && !asked {
			return false
		}
	}
	return true
}

// confluent: of every two observations that wait, the order does not matter (I7).
func (m *model) confluent(w *world, heard []successor) {
	for a, x := range heard {
		for _, y := range heard[:a] {
			one := m.known(m.do(x.w, y.by))
			two := m.known(m.do(y.w, x.by))
			m.bad = nil
			if one != two {
				m.fail("I7", fmt.Sprintf("if %s, and then %s: %s; in the other order: %s", x.by.tell(w), y.by.tell(w), one, two))
				return
			}
		}
	}
}

// known is what the evidence says.
func (m *model) known(w *world) string {
	b := make([]byte, 0, 128)
	for i := range w.rows {
		if w.rows[i] == nil {
			continue
		}
		r := *m.row(w, i)
		r.Progress, r.Ledger = nil, nil // advice, and what was decided on the way
		if r.Withdrawn == WithdrawnParent {
			r.Withdrawn = ""
		}
		b = append(b, r.compute(false)...)
		for _, ref := range r.References {
			b = append(append(append(append(b, ' '), ref.Ref...), ':'), ref.Rank...)
		}
		for _, a := range r.Attempts {
			b = append(append(b, " attempt:"...), a.Ended()...)
		}
		b = append(b, ';')
	}
	return string(b)
}
