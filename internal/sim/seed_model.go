package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// seedModel knows what is stored and what has left, and holds the invariants against it
// after every step. The scheduler alone calls it, except applied.
type seedModel struct {
	w   *seedRun
	ops map[string]*seedOp // by id
	ids []string           // in order of creation
}

// seedOp is one operation as the model knows it.
type seedOp struct {
	alias   string
	n       int
	last    settle.Record // as of the last step
	claims  int64         // that left no entry
	seen    []settle.Entry
	started map[int]time.Time // attempts: the store's time of the commit that made each
	leased  map[int]time.Duration
	first   providertest.Request // the first request that left
	left    map[int]int          // requests by attempt
	window  time.Duration        // when the provider first served a request; negative: not yet
}

func newSeedModel(w *seedRun) *seedModel { return &seedModel{w: w, ops: map[string]*seedOp{}} }

func (m *seedModel) alias(id string) string {
	if op := m.ops[id]; op != nil {
		return op.alias
	}
	return "?"
}

// commit is a commit of a process: made by the store that processes see, then checked
// against what is really stored.
func (m *seedModel) commit(p *seedProc, c settle.Change, tries int) ([]settle.Record, error) {
	c.Writes = slices.Clone(c.Writes)
	for i := range c.Writes {
		m.schedule(&c.Writes[i])
	}
	recs, err := m.w.store.Commit(context.WithValue(context.Background(), seedTriesKey{}, tries), c)
	for i := range c.Writes {
		m.written(p, c, &c.Writes[i])
	}
	return recs, err
}

// schedule replaces the time of the next look, which the engine spreads by chance, by one
// that depends on the seed. When a row is looked at decides nothing.
func (m *seedModel) schedule(w *settle.Write) {
	if w.DueIn <= 0 || w.Record.Token != "" {
		return
	}
	if w.DueIn > 26*time.Hour {
		m.w.fail("I10: scheduled in %v", w.DueIn)
	}
	n := len(m.ids)
	if op := m.ops[w.Record.ID]; op != nil {
		n = op.n
	}
	x := int(m.w.noise(n, int(w.IfVersion), 7) % 4)
	base := 500 * time.Millisecond << min(w.Record.Tries+x, 9)
	if w.Record.State == settle.StateReview {
		base = 20 * time.Minute
	}
	w.DueIn = m.w.span(base, 2*base, n, int(w.IfVersion), 8)
}

// written checks one write of a change.
func (m *seedModel) written(p *seedProc, c settle.Change, w *settle.Write) {
	id := w.Record.ID
	now, err := m.w.truth.Get(context.Background(), settle.ByID(id))
	if err != nil {
		return // not stored
	}
	op := m.ops[id]
	if op == nil {
		op = m.add(now)
	}
	old := op.last
	if now.Version == old.Version {
		return
	}
	entries, _ := m.w.truth.History(context.Background(), id, old.Version, 100)
	if now.Version != old.Version+1 || len(entries) != 1 || entries[0].Seq != now.Version {
		m.w.fail("I12: %s went from version %d to %d with %d entries", op.alias, old.Version, now.Version, len(entries))
		return
	}
	e := entries[0]
	op.seen = append(op.seen, e)
	note := e.Note
	if m.ops[note] != nil { // an event says which operation it was about, by its id, which is another each time
		note = m.alias(note)
	}
	m.w.log("  p%d %s v%d: %s→%s %s %s %s%s", p.slot, op.alias, now.Version, e.From, e.To, e.Source, e.Fact, note, seedAlarms(e.Alarms))
	loose := []settle.State{settle.StateUnknown, settle.StateSubmitting}
	if e.To != now.State || e.From != old.State && (!slices.Contains(loose, e.From) || !slices.Contains(loose, old.State)) {
		m.w.fail("I12: %s: entry %d says %s→%s, the records %s→%s", op.alias, e.Seq, e.From, e.To, old.State, now.State)
	}
	op.last = now
	m.fixed(op, &old, &now)
	m.claimed(op, &old, &now, w)
	m.scheduled(op, &now)
	m.evidence(op, &old, &now)
	m.truthful(op, &now)
	m.undone(op, &now)
	m.pruned(op, &old, &now, &e)
	if e.Source == settle.SourcePerson && e.Fact == settle.NotApplied {
		m.w.net.forgive(id)
		op.window = -1
	}
	if c.Hook != nil || now.Consequence == settle.ConsequenceDone && old.Consequence != settle.ConsequenceDone {
		m.fulfilled(op, &now)
	}
}

func seedAlarms(a []string) string {
	if len(a) == 0 {
		return ""
	}
	return fmt.Sprint(" ", a)
}

// add makes the operation of a record known.
func (m *seedModel) add(r settle.Record) *seedOp {
	alias := fmt.Sprintf("%s-%s", r.Kind, r.Subject)
	if r.Kind == "charge" {
		alias = r.Subject
	} else if parent := m.ops[r.Undoes.Operation]; parent != nil {
		alias = fmt.Sprintf("refund(%s, %s)", parent.alias, r.Purpose)
	}
	if r.Generation > 0 {
		alias += fmt.Sprintf("#%d", r.Generation)
	}
	op := &seedOp{
		alias: alias, n: len(m.ids), started: map[int]time.Time{}, leased: map[int]time.Duration{}, left: map[int]int{}, window: -1,
	}
	m.ops[r.ID] = op
	m.ids = append(m.ids, r.ID)
	return op
}

// claim is Store.Claim for a process.
func (m *seedModel) claim(p *seedProc, c settle.Claim) ([]settle.Record, error) {
	recs, err := m.w.store.Claim(context.Background(), c)
	for _, r := range recs {
		op := m.ops[r.ID]
		old := op.last
		op.last, _ = m.w.truth.Get(context.Background(), settle.ByID(r.ID))
		op.claims++
		m.w.log("  p%d claims %s v%d", p.slot, op.alias, r.Version)
		if old.Token != "" && old.Due.After(op.last.AsOf) {
			m.w.fail("I5: %s is claimed while another claim is live", op.alias)
		}
		if op.last.Version != old.Version+1 {
			m.w.fail("I12: a claim took %s from version %d to %d", op.alias, old.Version, op.last.Version)
		}
	}
	return recs, err
}

// renew is Store.Renew for a process.
func (m *seedModel) renew(_ *seedProc, held []settle.Held, lease time.Duration) ([]error, error) {
	said, err := m.w.store.Renew(context.Background(), held, lease)
	for i, h := range held {
		op := m.ops[h.ID]
		old := op.last
		op.last, _ = m.w.truth.Get(context.Background(), settle.ByID(h.ID))
		if err == nil && said[i] == nil && (old.Token != h.Token || !old.Due.After(op.last.AsOf)) {
			m.w.fail("I5: a dead claim on %s was renewed", op.alias)
		}
	}
	return said, err
}

// live is the operation of an order's intent.
func (m *seedModel) live(order int) (settle.Record, bool) {
	in := seedOrder(order, 0).Intent()
	r, err := m.w.truth.Get(context.Background(), settle.ByIntent(in.Scope, "charge", in.Subject, in.Purpose))
	return r, err == nil
}

// orderOf is the order that an operation is about, or -1.
func (m *seedModel) orderOf(id string) int {
	op := m.ops[id]
	if op == nil {
		return -1
	}
	subject := op.last.Subject
	if up := m.ops[op.last.Undoes.Operation]; up != nil {
		subject = up.last.Subject
	}
	var n int
	if _, err := fmt.Sscanf(subject, "order-%d", &n); err != nil {
		return -1
	}
	return n
}

// decide is an honest person's decision about an order, or a refund of it.
func (m *seedModel) decide(a SeedAction) (string, settle.Decision, bool) {
	d := settle.Decision{Actor: "ana", Reason: "looked into it", Evidence: "dashboard"}
	var id string
	for _, x := range m.ids {
		op := m.ops[x]
		if op.last.State.Settled() || m.orderOf(x) != a.Order {
			continue
		}
		if id == "" || op.last.State == settle.StateReview {
			id = x
		}
	}
	if id == "" {
		return "", d, false
	}
	op := m.ops[id]
	effects, undone := m.w.net.effects(id)
	undecided := false
	for _, o := range m.w.net.objects(id) {
		switch o.Status {
		case providertest.StatusSucceeded, providertest.StatusReversed, providertest.StatusVoided:
			d.Ref = o.ID
		case providertest.StatusProcessing, providertest.StatusActionRequired:
			undecided = true
		case providertest.StatusFailed:
		}
	}
	switch {
	case effects > undone:
		d.Fact = settle.Applied
	case effects > 0:
		d.Fact = settle.Reversed
	case undecided || m.w.net.flying(id) || a.Arg == 3 || op.last.State == settle.StateCreated:
		d.Resume = true
	case a.Arg == 2:
		d.Fact = settle.NotApplied
	default:
		d.Fact = settle.Declined
	}
	m.w.log("ana says of %s: %s %s", op.alias, d.Fact, d.Ref)
	return id, d, true
}
