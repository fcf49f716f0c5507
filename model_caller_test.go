package settle

// register is Engine.create for the charge, with a claim as by Execute or without as by Register.
func (m *model) register(claims bool) {
	c := m.promise()
	d := &draft{do: "execute", finish: func(int) {}, record: Record{
		Scope: "shop", Kind: "charge", Subject: "order-1", Purpose: "purchase", Account: m.kindOf(0, charge).account(),
		Request: Payload(`{}`), Fingerprint: Fingerprint{Sum: "f"}, Terms: Terms{Amount: m.amount(charge)}, KeyWindow: c.Keys.Window,
	}}
	if m.window != 0 {
		d.record.ProviderKey = "key-1"
	}
	if m.deadline {
		d.record.SendBefore = m.instant().Add(sendBeforeIn * tick)
	}
	r, cl, _, err := m.e.create(m.ctx, m.e.store, m.kindOf(0, charge), d, claims)
	if err != nil {
		panic(err)
	}
	if claims {
		m.begin(0, charge, *r, cl, true)
	}
}

// compensate mirrors Executor.begin for a compensation; the rest is Engine.create.
func (m *model) compensate(row int) {
	parent := m.row(m.w, charge)
	undo := Undo{Operation: parent.ID}
	_, _, ambiguous := parent.target(undo)
	d := &draft{do: "compensate", finish: func(int) {}, ambiguous: ambiguous, record: Record{
		Scope: "shop", Kind: "refund", Subject: undoSubject(undo), Purpose: "AXY"[row : row+1], Account: m.kindOf(0, row).account(),
		Undoes: undo, Request: Payload(`{}`), Fingerprint: Fingerprint{Sum: "f"}, KeyWindow: m.promise().Keys.Window,
	}}
	if m.refunds[row-1] > 0 {
		d.record.Terms.Amount = minor(m.refunds[row-1])
	}
	if m.seed == reservationIgnored {
		d.record.Terms.Amount = minor(1)
	}
	r, cl, met, err := m.e.create(m.ctx, m.e.store, m.kindOf(0, row), d, true)
	if err != nil || met || cl == nil {
		return // refused: nothing to undo, or it would be too much; or it is a wish
	}
	m.begin(0, row, *r, cl, true)
}

// resume mirrors Engine.resume: the caller calls again.
func (m *model) resume(i, row int) {
	r := m.row(m.w, row).fork()
	if !resumable(&r) {
		return
	}
	claimed, c, err := m.e.take(m.ctx, "execute", &r, nil)
	if err != nil || c == nil {
		return
	}
	m.begin(i, row, *claimed, c, false)
}

func resumable(r *Record) bool {
	due := !r.Due.IsZero() && !r.Due.After(r.AsOf)
	untried := r.State == StateCreated && !r.RetryAt.After(r.AsOf)
	return !r.State.Settled() && r.State != StateReview && !r.Claimed() && (due || untried)
}

func (m *model) cancel() {
	_, _ = m.e.withdraw(m.ctx, "cancel", m.row(m.w, charge), "changed_mind", permit{})
	m.w.left.cancels--
}

// resolve is Engine.Resolve of a person who knows the truth.
func (m *model) resolve(row int, d Decision) {
	r := m.row(m.w, row)
	_, _ = m.e.update(m.ctx, "resolve", r, func(next *Record) (*edit, error) { return m.e.resolved(next, d, r.lastAttempt()) })
	m.w.left.persons--
}

// hear merges an event.
func (m *model) hear(n news) {
	ev := m.observed(n.fact, n.row, n.ref)
	ev.source = SourceEvent
	m.merge(n.row, m.row(m.w, n.row), ev, nil)
}
