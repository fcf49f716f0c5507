package settle

// What the engine does imperatively is restated here and in model_caller_test.go, each part
// under the name of the function that it mirrors; TestModel_PassConforms and
// TestModel_ResumeConforms hold it to that function. Everything else that a process does is
// the engine's own: take, next, decide, commitAttempt, merge, unsent, release, create, withdraw …

// kindOf is the executor that process i has for a row.
func (m *model) kindOf(i, row int) *modelKind { return m.kinds[i][row] }

// left mirrors keeper.left.
func (m *model) surelyOurs(p *proc) bool {
	if m.seed == leaseIgnored {
		return true
	}
	return p.c.lease-p.c.margin()-ticksOf(m.w.now-p.renewed) > 0
}

// begin mirrors the start of Engine.pass.
func (m *model) begin(i, row int, r Record, c *claim, ready bool) {
	r = r.fork()
	r.endBefore(c)
	m.w.procs[i] = proc{at: turning, row: row, r: &r, c: c, renewed: m.ticks(c.sent), ready: ready}
}

// claim mirrors Engine.sweep and Engine.workClaimed for one row.
func (m *model) claim(i, row int) {
	c := m.e.newClaim()
	r := modelStore{m}.claimRow(row, c.token)
	c.granted(r.AsOf)
	fresh(&r)
	if !r.State.Settled() {
		m.begin(i, row, r, c, false)
		return
	}
	// lookAgain
	p := &m.w.procs[i]
	*p = proc{at: asking, row: row, r: &r, c: c, renewed: m.w.now, again: true}
	k := m.kindOf(i, row)
	if asked := k.contract().Lookup == NoLookup; asked || r.Account != k.account() {
		m.looked(p, asked)
	}
}

// looked mirrors the end of Engine.lookAgain.
func (m *model) looked(p *proc, asked bool) {
	_, _ = m.e.update(m.ctx, "release", p.r, func(next *Record) (*edit, error) {
		if next.Token != p.c.token {
			return nil, errStop
		}
		return &edit{now: p.c.late(), dueIn: Never, ifToken: p.c.token, looked: asked, entry: Entry{Source: SourceWorker, Note: "looked"}}, nil
	})
	*p = proc{}
}

// turn mirrors one turn of the loop of Engine.pass, up to where it waits for somebody.
func (m *model) turn(i int) {
	p := &m.w.procs[i]
	k := m.kindOf(i, p.row)
	r := p.r.fork()
	p.r = &r
	if m.seed == unknownCompensated {
		r.Undoes = Undo{}
	}
	live := m.surelyOurs(p) && (p.r.Token == p.c.token || m.seed == leaseIgnored)
	if p.ready && !live {
		_, _ = m.e.unsent(m.ctx, k, &r, p.c, "claim_lost")
		*p = proc{}
		return
	}
	if p.r.Token != p.c.token && m.seed != leaseIgnored || !live {
		*p = proc{}
		return
	}
	r.endBefore(p.c)
	_, d, err := m.e.next(m.ctx, k, &r, p.c, p.ready, p.seen, p.sent)
	if err != nil {
		*p = proc{}
		return
	}
	switch d.do {
	case actDone:
		*p = proc{}
	case actSend:
		if p.ready {
			m.send(i)
			return
		}
		p.at = planned
	case actUnsend:
		p.learns(m.e.unsent(m.ctx, k, &r, p.c, "parent_not_confirmed"))
		p.ready, p.sent = false, true
	case actLookup:
		p.at = asking
	case actWait, actReview, actCancel:
		m.release(i, d)
	}
}

// release mirrors the last case of Engine.pass.
func (m *model) release(i int, d decision) {
	p := &m.w.procs[i]
	r, moved, err := m.e.release(m.ctx, p.r, p.c, d)
	if err != nil || !moved {
		*p = proc{}
		return
	}
	p.r = r
}

// learns keeps the record that a step returned.
func (p *proc) learns(r *Record, _ error) { p.r = r }

// commit mirrors the first half of the case actSend of Engine.pass: the attempt is stored,
// perhaps long after it was decided.
func (m *model) commit(i int) {
	p := &m.w.procs[i]
	p.at = turning
	if m.seed == unrecorded {
		r := p.r.fork()
		r.addAttempt(p.c.early(), m.promise().grace())
		p.r, p.c.attempt, p.ready = &r, r.lastAttempt(), true
		return
	}
	r, committed, err := m.e.commitAttempt(m.ctx, m.kindOf(i, p.row), p.r, p.c)
	switch {
	case err != nil: // ErrExceeds
		m.release(i, decision{do: actReview, reason: ReasonExceeds})
		*p = proc{}
	case !committed:
		p.r = r
	default:
		p.r, p.ready, p.renewed = r, true, max(p.renewed, m.ticks(p.c.base))
	}
}

// send mirrors Engine.send: the request leaves, unless it is too late for it. Between the
// check and the request no time passes; nothing can hold that for a process.
func (m *model) send(i int) {
	p := &m.w.procs[i]
	k := m.kindOf(i, p.row)
	stop := ""
	switch {
	case !p.c.mayStart() && m.seed != leaseIgnored:
		stop = "lease_over"
	case !p.r.SendBefore.IsZero() && !p.c.late().Before(p.r.SendBefore):
		stop = "send_before"
	}
	if stop != "" {
		p.learns(m.e.unsent(m.ctx, k, p.r, p.c, stop))
		p.ready, p.sent = false, true
		return
	}
	m.checkSend(i)
	p.at = inFlight
	m.w.reqs = append(m.w.reqs, request{row: p.row, attempt: answerOf(k, p.r, p.c).attempt, sent: m.w.now, proc: i})
}

// reply mirrors the end of Engine.send: the answer, or that there is none, is merged.
func (m *model) reply(i int, f Fact) {
	p := &m.w.procs[i]
	q := m.w.waiting(i)
	q.proc = -1
	ev := answerOf(m.kindOf(i, p.row), p.r, p.c)
	got := m.replied(f, p.row)
	got.source, got.attempt, got.began, got.honoured = ev.source, ev.attempt, ev.began, ev.honoured
	switch {
	case f == Unclear && m.seed == silenceFails:
		got.fact, got.code = Declined, "timeout"
	case f == Unclear:
		got.code = "error"
	}
	p.r = m.merge(p.row, p.r, got, p.c)
	p.at, p.ready, p.sent = turning, false, true
}

// merge is Engine.merge, with the design errors that live there.
func (m *model) merge(row int, r *Record, ev evidence, c *claim) *Record {
	switch {
	case m.seed == lateFailureWins && ev.fact == Declined:
		lower := m.row(m.w, row).fork()
		lower.References = nil
		r = &lower
	case m.seed == notFoundProves && ev.source == SourceLookup && ev.fact == NotFound:
		ev.source, ev.fact = SourcePerson, NotApplied
	}
	out, err := m.e.merge(m.ctx, "record", r, ev, c, 0)
	if err != nil {
		m.fail("I12", "evidence was refused: "+err.Error())
	}
	return out
}

// look is the provider's part of Engine.ask.
func (m *model) look(i int, v view) {
	p := &m.w.procs[i]
	p.answer, p.silent = m.seen(p.row, v)
	p.answer.source, p.answer.began = SourceLookup, p.c.early()
	p.at = answered
	m.checkAsk(i)
}

// seen is what a lookup says now.
func (m *model) seen(row int, v view) (ev evidence, noAnswer bool) {
	fact, ref := m.truthNow(m.w, row)
	switch v {
	case sees:
	case lags:
		fact, ref = NotFound, ""
	case silent:
		fact, ref = Unclear, ""
	}
	return m.observed(fact, row, ref), v == silent
}

type view byte

const (
	sees   view = iota
	lags        // an eventual lookup that does not see it yet
	silent      // no answer
)

// record mirrors the end of Engine.ask.
func (m *model) record(i int) {
	p := &m.w.procs[i]
	seen := lookedFound
	switch p.answer.fact {
	case NotFound:
		seen = lookedNothing
	case Unclear, NotSent, NotApplied:
		seen = lookedFailed
	case Applied, Declined, Underway, NeedsAction, Reversed:
	}
	p.r = m.merge(p.row, p.r, p.answer, p.c)
	p.seen, p.answer, p.silent = seen, evidence{}, false
	if p.again {
		m.looked(p, true)
		return
	}
	p.at = turning
}

// renew mirrors renewer.renew, for one claim.
func (m *model) renew(i int) {
	p := &m.w.procs[i]
	if said, err := m.e.store.Renew(m.ctx, []Held{{ID: p.r.ID, Token: p.c.token}}, p.c.lease); err == nil && said[0] == nil {
		p.renewed = m.w.now
	}
	m.w.left.renewals--
}

// crash ends a process: what it knew is gone, its requests go on.
func (m *model) crash(i int) {
	if q := m.w.waiting(i); q != nil {
		q.proc = -1
	}
	m.w.procs[i] = proc{}
	m.w.left.crashes--
}
