package settle

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"
)

// digest is a world without what no future step can tell apart: absolute times, ids, tokens
// and versions, the names of the processes, and ages beyond every limit.
type digest [16]byte

func (m *model) digest(w *world) digest {
	m.w = w
	b := make([]byte, 0, 512)
	for i := range w.rows {
		if w.rows[i] == nil {
			b = append(b, 0)
			continue
		}
		b = m.addRecord(append(b, 1), w.rows[i], true)
		op := &w.ops[i]
		b = append(b, bit(op.known), byte(len(op.result)), byte(op.effects), byte(op.reversed))
		if m.window > 0 && op.known {
			b = append(b, m.age(op.first, m.window))
		}
		if op.result != "" {
			b = append(b, op.result[0])
		}
	}
	one, two := m.addProc(nil, w, 0), m.addProc(nil, w, 1)
	if !m.moved && bytes.Compare(one, two) > 0 && w.rows[charge] != nil {
		one, two = two, one
	}
	b = append(append(b, one...), two...)
	var free [][]byte
	for i := range w.reqs {
		if w.reqs[i].proc < 0 {
			free = append(free, m.addRequest(nil, &w.reqs[i]))
		}
	}
	slices.SortFunc(free, bytes.Compare)
	for _, x := range free {
		b = append(b, x...)
	}
	b = append(b, 0xfe)
	var facts []string
	for _, n := range w.facts {
		facts = append(facts, string(rune('0'+n.row))+string(n.fact)+n.ref)
	}
	slices.Sort(facts)
	for _, f := range facts {
		b = append(append(b, f...), 0)
	}
	l := w.left
	for _, n := range []int{l.crashes, l.stumbles, l.stalls, l.renewals, l.reversals, l.cancels, l.persons} {
		b = append(b, byte(n))
	}
	sum := sha256.Sum256(b)
	return digest(sum[:16])
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// age is how long ago a tick was, up to one after which it does not matter.
func (m *model) age(t, oldest int) byte { return byte(min(m.w.now-t, oldest) + 100) }

func (m *model) addTime(b []byte, t time.Time, oldest int) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return append(b, m.age(m.ticks(t), oldest))
}

// grace is for how long the end of an attempt matters.
func (m *model) grace() int { return provDeadline + provSettle + m.lag }

// addRecord writes what matters of a record; stored: it is the store's, not a process's copy.
func (m *model) addRecord(b []byte, r *Record, stored bool) []byte {
	b = append(b, byte(len(r.Attempts)))
	first := true
	for i := range r.Attempts {
		a := &r.Attempts[i]
		b = append(b, byte(a.Fate.rank()), bit(a.Closed))
		if a.harmless() {
			continue // it opens nothing, and nothing of it is waited for
		}
		if first || a.open() { // the key window, and the first open one
			b = m.addTime(b, a.Start, max(m.window, escalateIn))
		}
		first = false
		if a.Fate.rank() < FateNotSent.rank() {
			b = m.addTime(b, a.End, m.grace())
			for j := i + 1; j < len(r.Attempts); j++ { // whether it was quiet when another began outlives the ages
				b = append(b, bit(a.quiet(r.Attempts[j].Start)))
			}
		}
	}
	for _, x := range r.References {
		b = append(append(b, x.Ref...), 0, byte(x.Rank.order()), bit(x.Mismatch), bit(x.Accepted), bit(x.Foreign))
	}
	b = append(b, 0xff)
	if p := r.Progress; p != nil {
		b = m.addTime(append(append(b, p.State[0]), bit(p.FromLookup)), p.Since, processingIn)
	}
	b = append(b, 0xff)
	for _, p := range r.Ledger {
		s := modelStore{m}
		b = append(append(append(b, byte(s.slot(p.Operation))), p.Ref...), byte(len(p.Status)), p.Status[0])
		b = append(b, byte(p.Amount.Value.IntPart()/100))
	}
	b = append(append(b, 0xff), r.Withdrawn...)
	b = append(append(b, 0), r.Undoes.Ref...)
	b = append(b, 0, bit(r.Review != nil), byte(min(r.Tries-r.Waits, minTries)), bit(r.Wake), bit(r.Token != ""), bit(r.KeyWindow != 0))
	b = append(b, byte(r.Terms.Amount.Value.IntPart()/100))
	b = m.addTime(b, r.ResumedAt, escalateIn)
	if m.underway || m.moved { // else it is counted from an open attempt
		b = m.addTime(b, r.CreatedAt, max(processingIn, escalateIn))
	}
	if !r.SendBefore.IsZero() {
		b = m.addTime(b, r.SendBefore, 0)
	}
	if !stored {
		return append(b, bit(r.Claimed()))
	}
	if r.Due.IsZero() {
		return append(b, 0)
	}
	return append(b, byte(max(0, m.ticks(r.Due)-m.w.now))+1)
}

func (m *model) addProc(b []byte, w *world, i int) []byte {
	p := &w.procs[i]
	b = append(b, byte(p.at))
	if p.at == idle {
		return b
	}
	row := w.rows[p.row]
	b = append(b, byte(p.row), bit(row.Token == p.c.token), bit(p.r.Token == p.c.token), bit(p.r.Version == row.Version))
	if p.r.Version != row.Version {
		b = m.addRecord(b, p.r, false)
	} else {
		b = append(b, bit(p.r.Claimed()))
	}
	b = m.addTime(b, p.c.base, m.lease)
	b = m.addTime(b, p.c.asOf, m.grace())
	if p.at == planned {
		b = m.addTime(b, p.c.decided, m.lease)
	}
	b = append(b, m.age(p.renewed, m.lease), byte(p.c.attempt), bit(p.ready), bit(p.sent), bit(p.again), bit(p.silent))
	b = append(append(b, p.seen...), 0)
	if p.at == answered {
		b = append(append(b, p.answer.fact...), p.answer.ref...)
		for j := range row.Attempts {
			b = append(b, bit(row.Attempts[j].quiet(p.answer.began)))
		}
		for j := range p.r.Attempts {
			b = append(b, bit(p.r.Attempts[j].quiet(p.answer.began)))
		}
	}
	if q := w.waiting(i); q != nil {
		b = m.addRequest(b, q)
	}
	return b
}

func (m *model) addRequest(b []byte, q *request) []byte {
	b = append(b, byte(q.row), byte(q.attempt), byte(q.at))
	if q.at == flying || q.at == under {
		b = append(b, m.age(q.sent, provDeadline+provSettle))
	}
	return append(append(b, q.answer...), 0)
}
