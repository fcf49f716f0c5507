package sim

import (
	"context"
	"slices"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// What people know from the provider: its events, its books, and what they read there of many operations.

// event is the provider's last event about an operation, or about what undoes it.
func (n *seedNet) event(r settle.Record) (settle.Event, bool) {
	for _, e := range slices.Backward(n.w.provider.Events()) {
		undone := func(x settle.Reference) bool { return x.Ref == e.Object.Parent }
		if e.Object.Reference == r.ID || slices.ContainsFunc(r.References, undone) {
			return e.Settle(n.w.plan.World.Promise.Account), true
		}
	}
	return settle.Event{}, false
}

// report lists what has moved money by now.
func (n *seedNet) report() (lines []settle.ReportLine) {
	for _, o := range n.w.provider.Ledger() {
		switch o.Status {
		case providertest.StatusSucceeded, providertest.StatusReversed, providertest.StatusVoided:
			lines = append(lines, bookLine(o))
		case providertest.StatusProcessing, providertest.StatusActionRequired, providertest.StatusFailed:
		}
	}
	return lines
}

// compare holds a report against the store.
func (p *seedProc) compare(ctx context.Context, lines []settle.ReportLine) (found []settle.Finding, err error) {
	_, err = p.engine.ReconcileReport(ctx, bookReport(lines), &settle.ReportOptions{
		Account: p.w.plan.World.Promise.Account.String(), Kinds: []string{"charge", "refund"}, Until: time.Now().Add(-time.Second), Slack: time.Millisecond,
		Concurrency: 1,
		Found: func(_ context.Context, f settle.Finding) error {
			found = append(found, f)
			return nil
		},
	})
	return found, err
}

// found: nothing goes wrong at this provider past settle, so nothing may be reported as an effect that nobody asked for, or as
// a second one.
func (m *seedModel) found(f settle.Finding) {
	if m.w.plan.Defect == "" && (f.Kind == settle.FindingDuplicate || f.Kind == settle.FindingNoOperation) {
		m.w.fail("I4: a report finds %s of %s, and the provider has done nothing twice", f.Kind, m.alias(f.Effect.Operation))
	}
}

// decideAll is what an honest person says at once of all operations that are in review and of which nothing came: that they
// had no effect, or that they go on.
func (m *seedModel) decideAll(a SeedAction) (ids []string, said seedSaid, d settle.Decision) {
	d = settle.Decision{Actor: "ana", Reason: "looked into them", Evidence: "dashboard"}
	switch a.Arg {
	case 0:
		d.Fact = settle.Declined
	case 1:
		d.Fact = settle.NotApplied
	default:
		d.Resume = true
	}
	said = seedSaid{}
	for _, id := range m.ids {
		op := m.ops[id]
		undecided := slices.ContainsFunc(m.w.net.objects(id), func(o providertest.Object) bool { return o.Status != providertest.StatusFailed })
		if op.last.State != settle.StateReview || op.last.Kind == settle.EventKind || !d.Resume && (undecided || m.w.net.flying(id)) {
			continue
		}
		ids = append(ids, id)
		said[id] = seedLast(&op.last)
		m.w.log("ana says of %s: %s", op.alias, d.Fact)
	}
	return ids, said, d
}
