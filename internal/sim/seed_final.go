package sim

import (
	"context"
	"reflect"
	"slices"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// final checks what is left when everything has come to rest.
func (m *seedModel) final() {
	m.w.out.States = map[settle.State]int{}
	live := map[string]int{} // effects of an order that were not undone
	for _, id := range m.ids {
		op := m.ops[id]
		r, err := m.w.truth.Get(context.Background(), settle.ByID(id))
		if err != nil {
			m.w.fail("I14: %s is gone", op.alias)
			return
		}
		m.w.log("%s ends %s v%d", op.alias, r.State, r.Version)
		if r.Kind == settle.RetentionKind {
			m.history(op, &r)
			continue
		}
		m.w.out.States[r.State]++
		if !r.State.Settled() && !m.waits(&r) {
			m.w.fail("I10: %s is still %s", op.alias, r.State)
		}
		m.truthful(op, &r)
		m.known(op, &r)
		m.history(op, &r)
		m.ledger(op, &r)
		if n := m.parcels(id); n > 1 || (r.Consequence == settle.ConsequenceDone) != (n == 1) ||
			r.State == settle.StateSucceeded && (r.Consequence == settle.ConsequenceArmed || r.Consequence == settle.ConsequenceDue) {
			m.w.fail("I11: %s is %s, its consequence is %q and was committed %d times", op.alias, r.State, r.Consequence, n)
		}
		if effects, undone := m.w.net.effects(id); r.Kind == "charge" {
			if live[r.Subject] += effects - undone; live[r.Subject] > 1 {
				m.w.fail("%s has %d effects", r.Subject, live[r.Subject])
			}
		}
	}
}

// known: with a lookup, what happened is known in the end; a person is asked only
// about what nobody can find out, or what is not as it was asked for.
func (m *seedModel) known(op *seedOp, r *settle.Record) {
	if r.State != settle.StateReview || m.w.plan.World.Promise.Lookup == settle.NoLookup || m.w.plan.Defect != "" {
		return
	}
	for _, o := range m.w.net.objects(r.ID) {
		told, err := m.w.provider.Get(context.Background(), o.ID)
		asAsked := err == nil && settle.Minor(told.Amount, told.Currency).Equal(r.Terms.Amount)
		if o.Status == providertest.StatusSucceeded && asAsked && r.Withdrawn == "" && r.ReplacedBy == "" {
			m.w.fail("%s is in review for %s, and its effect %s can be looked up", op.alias, r.Review.Reason, o.ID)
		}
	}
}

// history: nothing was taken back or added in between (I12).
func (m *seedModel) history(op *seedOp, r *settle.Record) {
	entries, err := m.w.truth.History(context.Background(), r.ID, 0, 100_000)
	if err != nil || !slices.EqualFunc(entries, op.seen, func(a, b settle.Entry) bool { return reflect.DeepEqual(a, b) }) {
		m.w.fail("I12: the history of %s was changed", op.alias)
	}
	if int64(len(entries))+op.claims != r.Version {
		m.w.fail("I12: %s has version %d, %d entries and %d claims", op.alias, r.Version, len(entries), op.claims)
	}
	for i, e := range entries {
		if i > 0 && e.At.Before(entries[i-1].At) {
			m.w.fail("I12: entry %d of %s is older than the one before", e.Seq, op.alias)
		}
	}
}

// ledger: an operation's ledger says of each compensation what became of it (I9).
func (m *seedModel) ledger(op *seedOp, r *settle.Record) {
	if r.Undoes.Operation == "" {
		return
	}
	parent, err := m.w.truth.Get(context.Background(), settle.ByID(r.Undoes.Operation))
	if err != nil {
		return
	}
	i := slices.IndexFunc(parent.Ledger, func(p settle.Posting) bool { return p.Operation == r.ID })
	if i < 0 {
		m.w.fail("I9: %s is not in the ledger of its parent", op.alias)
		return
	}
	var want []settle.PostingStatus
	switch r.State {
	case settle.StateSucceeded, settle.StateCompensating, settle.StateCompensated:
		want = []settle.PostingStatus{settle.PostingDone}
	case settle.StateFailed:
		want = []settle.PostingStatus{settle.PostingFreed, settle.PostingUndone}
	case settle.StateCanceled:
		want = []settle.PostingStatus{settle.PostingFreed}
	case settle.StateCreated, settle.StateSubmitting, settle.StateUnknown, settle.StateProcessing, settle.StateActionRequired, settle.StateReview:
		want = []settle.PostingStatus{settle.PostingOpen, settle.PostingWished}
	}
	if !slices.Contains(want, parent.Ledger[i].Status) {
		m.w.fail("I9: %s is %s and its line in the ledger is %q", op.alias, r.State, parent.Ledger[i].Status)
	}
}
