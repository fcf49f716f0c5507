package settle

import "time"

// outcome is what the provider does with a request that it takes for a new one.
type outcome byte

const (
	applies      outcome = iota
	declines             // for good
	accepts              // underway
	throttled            // not applied, and not remembered
	appliesLater         // a first try of the customer fails, which an event tells; then it applies
)

// honoured reports whether a request of this row that arrives now is taken for the one that
// the provider remembers.
func (m *model) honoured(w *world, row int) bool {
	op := &w.ops[row]
	return m.window != 0 && op.known && (m.window < 0 || w.now < op.first+m.window)
}

// outcomes lists what may become of a request that arrives.
func (m *model) outcomes(w *world, q *request) []outcome {
	if m.honoured(w, q.row) && q.at == flying {
		return []outcome{applies} // whatever it was
	}
	out := []outcome{applies, declines}
	if m.underway {
		out = append(out, accepts)
	}
	if m.throttles {
		out = append(out, throttled)
	}
	if m.events && q.row == charge {
		out = append(out, appliesLater)
	}
	return out
}

// land lets request i arrive, or finish where requests take their time.
func (m *model) land(w *world, i int, o outcome) {
	q := &w.reqs[i]
	op := &w.ops[q.row]
	switch {
	case q.at == flying && m.honoured(w, q.row):
		q.at, q.answer = done, op.result
		return
	case q.at == flying && m.window != 0 && !m.safe:
		q.at = under
		return
	}
	q.at = done
	switch o {
	case throttled:
		q.answer = NotApplied
		return
	case declines:
		q.answer = Declined
		m.tell(w, q.row, Declined, "")
		if m.forgetsDeclines {
			op.result = Declined
			return
		}
	case accepts:
		q.answer = Underway
	case appliesLater:
		m.tell(w, q.row, Declined, "try")
		q.answer = Applied
	case applies:
		q.answer = Applied
	}
	if q.answer == Applied {
		m.effect(w, q.row)
	}
	op.known, op.first, op.result = true, w.now, q.answer
}

// effect is the moment at which the provider does it.
func (m *model) effect(w *world, row int) {
	w.ops[row].effects++
	if w.ops[row].effects > 1 {
		m.fail("I6", "a second effect of one operation")
	}
	m.tell(w, row, Applied, m.ref(row))
}

func (m *model) ref(row int) string { return "AXY"[row : row+1] }

func (m *model) tell(w *world, row int, f Fact, ref string) {
	n := news{row, f, ref}
	for _, x := range w.facts {
		if x == n {
			return
		}
	}
	if m.events {
		w.facts = append(w.facts, n)
	}
}

// decides ends what the provider was undecided about.
func (m *model) decides(w *world, row int, f Fact) {
	w.ops[row].result = f
	if f == Applied {
		m.effect(w, row)
		return
	}
	m.tell(w, row, Declined, m.ref(row))
}

// reverse undoes an effect: a refund bounces, a payment is taken back.
func (m *model) reverse(w *world, row int) {
	w.ops[row].reversed++
	m.tell(w, row, Reversed, m.ref(row))
	w.left.reversals--
}

// truthNow is what an authoritative lookup says.
func (m *model) truthNow(w *world, row int) (Fact, string) {
	op := &w.ops[row]
	switch {
	case op.effects > op.reversed:
		return Applied, m.ref(row)
	case op.effects > 0:
		return Reversed, m.ref(row)
	case op.result == Declined:
		return Declined, ""
	case op.result == Underway:
		return Underway, m.ref(row)
	}
	return NotFound, ""
}

// expire ends what did not arrive in time.
func (m *model) expire(w *world) {
	for i := range w.reqs {
		q := &w.reqs[i]
		if q.at == flying && w.now >= q.sent+provDeadline+provSettle {
			q.at = astray
		}
	}
}

// mayTick reports whether time may pass: what is running at the provider ends in time.
func (m *model) mayTick(w *world) bool {
	for i := range w.reqs {
		if q := &w.reqs[i]; q.at == under && w.now+1 >= q.sent+provDeadline+provSettle {
			return false
		}
	}
	return true
}

// tidy forgets requests whose end nobody waits for.
func (w *world) tidy() {
	kept := w.reqs[:0]
	for _, q := range w.reqs {
		if q.proc >= 0 || q.at == flying || q.at == under {
			kept = append(kept, q)
		}
	}
	w.reqs = kept
}

// observed is the evidence of an answer in the form in which adapters give it.
func (m *model) observed(f Fact, row int, ref string) evidence {
	ev := evidence{fact: f}
	switch f {
	case Applied:
		ev.ref, ev.terms, ev.result = ref, Terms{Amount: m.amount(row)}, Payload(`{}`)
	case Reversed, Underway, Declined:
		ev.ref = ref
	case Unclear, NotSent, NotApplied, NeedsAction, NotFound:
	}
	return ev
}

// replied is the evidence of a reply.
func (m *model) replied(f Fact, row int) evidence {
	if f == Declined {
		return m.observed(f, row, "") // the adapter of the model knows a reference of effects only
	}
	return m.observed(f, row, m.ref(row))
}

// amount is what the effect of a row is about.
func (m *model) amount(row int) Amount {
	if row == charge || m.refunds[row-1] == 0 {
		return minor(effectCents)
	}
	return minor(m.refunds[row-1])
}

func ticksOf(n int) time.Duration { return time.Duration(n) * tick }
