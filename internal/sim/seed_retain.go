package sim

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
)

// Request and result grow old: a process removes them, and nothing else may go with them (I14).

// retire has the process look through the store for what is old. As with poll, each look is a Run of its own.
func (p *seedProc) retire() { p.run(&seedTick{retains: true}) }

// retaining looks now and every a.Every, until until.
func (w *seedRun) retaining(a SeedAction, until time.Duration) {
	if w.quiet || w.now() > until {
		return
	}
	w.procs[a.Proc].retire()
	w.in(a.Every, func() { w.retaining(a, until) })
}

// mayClaim reports whether a claim of kinds is the one that this Run is for.
func (t *seedTick) mayClaim(kinds []string) bool {
	place := slices.Equal(kinds, []string{settle.RetentionKind})
	switch {
	case place != t.retains && !t.retains:
		return false
	case place != t.retains:
		<-t.ctx.Done() // this Run works nothing; when it polls again is chance
		return false
	case t.used:
		t.cancel()
		return false
	}
	t.used = true
	return true
}

// committed: who has made the place that says how far retention is, or found it made, claims it at once.
func (t *seedTick) committed(w *settle.Write, err error) {
	var conflict *settle.ConflictError
	if w.Record.Kind == settle.RetentionKind && w.IfVersion == 0 && (err == nil || errors.As(err, &conflict)) {
		t.used = false
	}
}

// page is a page of what is stored, in an order that does not depend on ids, which are random.
func (m *seedModel) page(q settle.Query) ([]settle.Record, error) {
	recs, err := m.w.store.List(context.Background(), q)
	slices.SortStableFunc(recs, func(a, b settle.Record) int { return m.number(a.ID) - m.number(b.ID) })
	return recs, err
}

func (m *seedModel) number(id string) int {
	if op := m.ops[id]; op != nil {
		return op.n
	}
	return -1 // a parcel
}

// pruned: request and result go when they are old and nobody needs them any more, and nothing else goes, neither identity, nor
// evidence, nor the ledger (I14).
func (m *seedModel) pruned(op *seedOp, old, now *settle.Record, e *settle.Entry) {
	if e.Note != "pruned" {
		if !now.PrunedAt.Equal(old.PrunedAt) {
			m.w.fail("I14: %s says that it was pruned by %q", op.alias, e.Note)
		}
		return
	}
	m.w.out.Pruned++
	needed := slices.ContainsFunc(now.Ledger, seedNeeded)
	switch age := now.UpdatedAt.Sub(old.UpdatedAt); {
	case age < m.w.plan.World.Options.Retention:
		m.w.fail("I14: %s was pruned %v after its last change", op.alias, age)
	case !old.State.Settled() || !old.Due.IsZero() || needed || old.Consequence == settle.ConsequenceDue || old.Consequence == settle.ConsequenceAside:
		m.w.fail("I14: %s was pruned while it is %s, due %v, its consequence %q", op.alias, old.State, !old.Due.IsZero(), old.Consequence)
	case now.Result != nil || (now.Request == nil) != (now.Kind != settle.EventKind) || now.PrunedAt.IsZero():
		m.w.fail("I14: %s was pruned, and keeps what it should not, or lost what it should keep", op.alias)
	}
	a, b := old.Clone(), now.Clone()
	for _, r := range []*settle.Record{&a, &b} {
		r.Request, r.Result, r.PrunedAt, r.Version, r.UpdatedAt, r.AsOf = nil, nil, time.Time{}, 0, time.Time{}, time.Time{}
	}
	if !reflect.DeepEqual(a, b) {
		m.w.fail("I14: %s was pruned and lost more than request and result", op.alias)
	}
}

// retire lets everything grow old that has come to rest, has it pruned, and asks for each order and each refund once more: who asks is
// told the same, and nothing is sent (I14).
func (w *seedRun) retire(p *seedProc) {
	age := w.plan.World.Options.Retention
	if age == 0 {
		return
	}
	w.log("everything grows old")
	w.in(age+time.Second, p.retire)
	// The place is due again some minutes after a look that came too early (schedule).
	w.in(age+20*time.Minute, p.retire)
	w.in(age+40*time.Minute, func() {
		for _, id := range slices.Clone(w.model.ids) {
			w.model.repeat(p, w.model.ops[id])
		}
	})
}

// repeat asks again for what is settled.
func (m *seedModel) repeat(p *seedProc, op *seedOp) {
	r := op.last
	if !r.State.Settled() || r.ReplacedBy != "" || r.Kind == settle.EventKind || r.Fingerprint.IsZero() {
		return
	}
	if r.PrunedAt.IsZero() && r.Consequence != settle.ConsequenceAside && !slices.ContainsFunc(r.Ledger, seedNeeded) {
		m.w.fail("I14: %s is %s, nothing needs its request, and it was not pruned", op.alias, r.State)
	}
	var amount int64
	if !r.Undoes.Whole {
		amount = r.Terms.Amount.Value.IntPart()
	}
	sent := len(m.w.net.sent[r.ID])
	m.w.work.Go(func() {
		var out settle.Outcome[scenario.Receipt]
		var err error
		if r.Undoes.Operation != "" {
			req := scenario.Refund{Amount: amount}
			if amount > 0 {
				req.Currency = "EUR"
			}
			out, err = p.refund.Compensate(p.ctx, settle.Effect{Operation: r.Undoes.Operation, Ref: r.Undoes.Ref}, r.Purpose, req)
		} else {
			again := seedOrder(0, 0)
			again.Subject, again.Request.Amount = r.Subject, amount
			out, err = p.charge.Execute(p.ctx, again)
		}
		m.w.mu.Lock()
		defer m.w.mu.Unlock()
		if m.w.over {
			return
		}
		m.w.answers = append(m.w.answers, seedTold{label: "again " + op.alias, then: func() {
			m.w.log("who asks again for %s is told: %s", op.alias, seedVerdict(err))
			m.repeated(op, &r, out.ID, err, sent)
		}})
		m.w.nudge()
	})
}

// repeated holds what who asked again was told against what was stored before.
func (m *seedModel) repeated(op *seedOp, r *settle.Record, id string, err error, sent int) {
	var want *settle.Error
	if id != r.ID || !errors.As(r.Err(), &want) && err != nil || want != nil && !errors.Is(err, want.Err) {
		m.w.fail("I14: who asks again for %s, which is %s, is told %s of %s", op.alias, r.State, seedVerdict(err), m.alias(id))
	}
	if len(m.w.net.sent[r.ID]) != sent {
		m.w.fail("I14: %s was sent again because somebody asked", op.alias)
	}
}

// seedNeeded reports whether a compensation is not at its end, for which request and result of what it undoes are kept.
func seedNeeded(p settle.Posting) bool {
	return p.Status == settle.PostingWished || p.Status == settle.PostingOpen
}
