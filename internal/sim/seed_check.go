package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/providertest"
)

// fixed: identity, key, account and request never change (I2, I3).
func (m *seedModel) fixed(op *seedOp, old, now *settle.Record) {
	if old.Version == 0 {
		return
	}
	if old.Scope != now.Scope || old.Kind != now.Kind || old.Key != now.Key || old.Subject != now.Subject || old.Purpose != now.Purpose ||
		old.Generation != now.Generation || old.Replaces != now.Replaces || old.ProviderKey != now.ProviderKey || old.Account != now.Account ||
		old.Undoes.Operation != now.Undoes.Operation || !old.CreatedAt.Equal(now.CreatedAt) {
		m.w.fail("I2: the identity of %s changed", op.alias)
	}
	if old.Fingerprint.Sum != now.Fingerprint.Sum {
		m.w.fail("I3: the fingerprint of %s changed", op.alias)
	}
	if !bytes.Equal(old.Request, now.Request) && old.PrunedAt.Equal(now.PrunedAt) && slices.ContainsFunc(old.Attempts, seedMayHaveLeft) {
		m.w.fail("I2: the request of %s changed after it may have left", op.alias)
	}
}

func seedMayHaveLeft(a settle.Attempt) bool {
	return a.Fate != settle.FateNotSent && a.Fate != settle.FateNotApplied
}

// claimed: one live claim, and only its holder adds attempts and moves the schedule (I5).
func (m *seedModel) claimed(op *seedOp, old, now *settle.Record, w *settle.Write) {
	live := old.Token != "" && old.Due.After(now.AsOf)
	holder := live && w.IfToken == old.Token
	last := seedLast(now)
	if last > seedLast(old) {
		if last != seedLast(old)+1 {
			m.w.fail("I1: %s went from attempt %d to %d", op.alias, seedLast(old), last)
		}
		if old.Version > 0 && !holder {
			m.w.fail("I5: attempt %d was added to %s by somebody without a live claim", last, op.alias)
		}
		op.started[last], op.leased[last] = now.AsOf, m.w.plan.World.Options.Lease
		m.confirmed(op, now, "an attempt is committed")
	}
	switch {
	case !live || holder:
	case now.State.Settled(), old.State == settle.StateCreated && now.State == settle.StateCanceled, old.State.Settled():
		// Settling, by whoever, clears claim and schedule.
	case now.Token != old.Token, !now.Due.Equal(old.Due):
		m.w.fail("I5: the claim on %s was touched by somebody else", op.alias)
	}
}

func seedLast(r *settle.Record) int {
	if len(r.Attempts) == 0 {
		return 0
	}
	return r.Attempts[len(r.Attempts)-1].N
}

// scheduled: what is unsettled is claimed, due, or in review with a reason and a deadline (I10).
func (m *seedModel) scheduled(op *seedOp, now *settle.Record) {
	if now.State.Settled() {
		return
	}
	if now.Due.IsZero() {
		m.w.fail("I10: %s is %s and never due", op.alias, now.State)
	}
	if v := now.Review; now.State == settle.StateReview && (v == nil || v.Reason == "" || v.Deadline.IsZero()) {
		m.w.fail("I10: %s is in review without reason or deadline", op.alias)
	}
}

var seedRanks = []settle.Rank{settle.RankKnown, settle.RankFailed, settle.RankDisputed, settle.RankSucceeded, settle.RankReversed}

// evidence only grows (I12): no reference falls, no end of an attempt is taken back.
func (m *seedModel) evidence(op *seedOp, old, now *settle.Record) {
	for _, x := range old.References {
		i := slices.IndexFunc(now.References, func(y settle.Reference) bool { return y.Ref == x.Ref })
		if i < 0 || slices.Index(seedRanks, now.References[i].Rank) < slices.Index(seedRanks, x.Rank) && !now.References[i].Foreign {
			m.w.fail("I12: %s forgot that %s %s", op.alias, x.Ref, x.Rank)
		}
	}
	for _, x := range old.Attempts {
		for _, y := range now.Attempts {
			if x.N == y.N && (x.Fate != "" && y.Fate == "" || !x.End.IsZero() && y.End.IsZero() || x.Closed && !y.Closed) {
				m.w.fail("I12: %s forgot how attempt %d ended", op.alias, x.N)
			}
		}
	}
}

// truthful: what is settled agrees with the provider's ledger (I4).
func (m *seedModel) truthful(op *seedOp, now *settle.Record) {
	if now.Kind == settle.EventKind {
		return // its effect is that it was merged
	}
	effects, undone := m.w.net.effects(now.ID)
	switch now.State {
	case settle.StateSucceeded, settle.StateCompensating, settle.StateCompensated:
		if effects != 1 {
			m.w.fail("I4: %s is %s and has %d effects", op.alias, now.State, effects)
		}
	case settle.StateFailed, settle.StateCanceled:
		if effects > undone {
			m.w.fail("I4: %s is %s and has %d effects", op.alias, now.State, effects)
		}
	case settle.StateCreated:
		if effects > 0 {
			m.w.fail("I4: %s is %s and has %d effects", op.alias, now.State, effects)
		}
	case settle.StateSubmitting, settle.StateUnknown, settle.StateProcessing, settle.StateActionRequired, settle.StateReview:
	}
}

// undone: what is reserved and undone stays within the confirmed effect (I9).
func (m *seedModel) undone(op *seedOp, now *settle.Record) {
	for _, e := range now.Effects() {
		if e.Amount.IsZero() || !e.Confirmed {
			continue
		}
		total := e.Amount.Value.Sub(e.Amount.Value)
		for _, p := range now.Ledger {
			if p.Ref != e.Ref && p.Ref != "" || p.Status != settle.PostingOpen && p.Status != settle.PostingDone {
				continue
			}
			if child := m.ops[p.Operation]; child != nil && seedMismatch(&child.last) {
				continue // what was undone is not what was asked for: recorded, never refused
			}
			total = total.Add(p.Amount.Value)
		}
		if total.GreaterThan(e.Amount.Value) {
			m.w.fail("I9: %s of the effect of %s, which is %s, are being undone", total, op.alias, e.Amount)
		}
	}
}

func seedMismatch(r *settle.Record) bool {
	return slices.ContainsFunc(r.References, func(x settle.Reference) bool { return x.Mismatch })
}

// confirmed: a compensation starts for an effect that is confirmed at that moment (I8).
func (m *seedModel) confirmed(op *seedOp, now *settle.Record, when string) {
	if now.Undoes.Operation == "" {
		return
	}
	parent, err := m.w.truth.Get(context.Background(), settle.ByID(now.Undoes.Operation))
	if err != nil || !slices.ContainsFunc(parent.Effects(), func(e settle.Effect) bool {
		return e.Confirmed && (now.Undoes.Ref == "" || now.Undoes.Ref == e.Ref)
	}) {
		m.w.fail("I8: %s of %s while the effect is not confirmed", when, op.alias)
	}
}

// fulfilled: the consequence is there once, and together with the state that says so (I11).
func (m *seedModel) fulfilled(op *seedOp, now *settle.Record) {
	n := m.parcels(now.ID)
	done := now.Consequence == settle.ConsequenceDone
	if n > 1 || done != (n == 1) {
		m.w.fail("I11: the consequence of %s is %q and was committed %d times", op.alias, now.Consequence, n)
	}
	if done && now.State != settle.StateSucceeded && n == 1 && len(now.Ledger) == 0 {
		m.w.fail("I11: the consequence of %s was committed while it is %s", op.alias, now.State)
	}
}

func (m *seedModel) parcels(id string) int {
	recs, _ := m.w.truth.List(context.Background(), settle.Query{Kind: seedParcel, Subject: id, Limit: 10})
	return len(recs)
}

// leaves checks a request in the moment in which it leaves its process.
func (m *seedModel) leaves(r *seedRequest) {
	op := m.ops[r.req.Reference]
	if op == nil {
		m.w.fail("I1: a %s leaves and is not stored", r.req.Kind)
		return
	}
	now, _ := m.w.truth.Get(context.Background(), settle.ByID(r.req.Reference))
	i := slices.IndexFunc(now.Attempts, func(a settle.Attempt) bool { return a.N == r.attempt })
	if i < 0 {
		m.w.fail("I1: attempt %d of %s leaves and is not stored", r.attempt, op.alias)
		return
	}
	if op.left[r.attempt]++; op.left[r.attempt] > 1 {
		m.w.fail("I1: two requests of %s leave as attempt %d", op.alias, r.attempt)
	}
	// I2: the same bytes under the same key to the same account.
	first := op.first
	if len(op.left) == 1 {
		op.first = r.req
		for id, other := range m.ops {
			if id != now.ID && other.first.Key != "" && other.first.Key == r.req.Key {
				m.w.fail("I2: %s and %s share a provider key", op.alias, other.alias)
			}
		}
	} else if first.Key != r.req.Key || first.Kind != r.req.Kind || first.Amount != r.req.Amount || first.Currency != r.req.Currency ||
		first.Parent != r.req.Parent || first.Account != r.req.Account {
		m.w.fail("I2: attempt %d of %s is another request than the first", r.attempt, op.alias)
	}
	if r.req.Key != now.ProviderKey {
		m.w.fail("I2: attempt %d of %s leaves under another key than is stored", r.attempt, op.alias)
	}
	if !now.Terms.Amount.IsZero() && !now.Terms.Amount.Equal(settle.Minor(r.req.Amount, r.req.Currency)) {
		m.w.fail("I3: %s leaves with %d, stored is %s", op.alias, r.req.Amount, now.Terms.Amount)
	}
	// I5: within the lease under which the attempt was committed.
	if at := time.Now(); at.After(op.started[r.attempt].Add(op.leased[r.attempt])) {
		m.w.fail("I5: attempt %d of %s leaves %v after it was committed, the lease is %v", r.attempt, op.alias, at.Sub(op.started[r.attempt]), op.leased[r.attempt])
	}
	if seedLast(&now) != r.attempt {
		m.w.fail("I5: attempt %d of %s leaves after attempt %d was committed", r.attempt, op.alias, seedLast(&now))
	}
	if r.req.Kind == providertest.KindRefund {
		m.withinEffect(op, &now, r)
	}
}

// withinEffect: what all refunds of a charge together may have undone stays within it (I9),
// and the charge exists (I8).
func (m *seedModel) withinEffect(op *seedOp, now *settle.Record, r *seedRequest) {
	parent := m.ops[now.Undoes.Operation]
	if parent == nil {
		m.w.fail("I8: %s has no parent", op.alias)
		return
	}
	if effects, _ := m.w.net.effects(parent.last.ID); effects == 0 {
		m.w.fail("I8: %s leaves and its parent has no effect", op.alias)
	}
	var total, most int64
	for _, o := range m.w.net.objects(parent.last.ID) {
		if o.ID == r.req.Parent {
			most = o.Amount
		}
	}
	for id, x := range m.ops {
		if x.last.Undoes.Operation != now.Undoes.Operation || id != now.ID && len(x.left) == 0 || x.last.State == settle.StateFailed || x.last.State == settle.StateCanceled {
			continue
		}
		if id == now.ID {
			total += r.req.Amount
		} else {
			total += x.first.Amount
		}
	}
	if total > most {
		m.w.fail("I9: with %s refunds of %d leave for a charge of %d", op.alias, total, most)
	}
}

// arrives checks a request in the moment in which the provider begins to serve it (I6).
func (m *seedModel) arrives(r *seedRequest) {
	op := m.ops[r.req.Reference]
	o, now := m.w.plan.World.Provider, m.w.now()
	if op == nil {
		return
	}
	for _, x := range m.w.net.sent[r.req.Reference] {
		if x.attempt == r.attempt || x.void {
			continue
		}
		if !x.over && o.Concurrent == providertest.ConcurrentUnsafe {
			m.w.fail("I6: attempt %d of %s arrives beside attempt %d", r.attempt, op.alias, x.attempt)
		}
		if x.served && o.KeyWindow == 0 {
			m.w.fail("I6: attempt %d of %s arrives after attempt %d, and no key is honoured", r.attempt, op.alias, x.attempt)
		}
	}
	switch {
	case op.window < 0:
		op.window = now
	case o.KeyWindow > 0 && o.KeyWindow != providertest.Forever && now-op.window >= o.KeyWindow:
		m.w.fail("I6: attempt %d of %s arrives %v after the first, the key is honoured for %v", r.attempt, op.alias, now-op.window, o.KeyWindow)
	}
}

// forgive takes the requests of an operation for such that had no effect: a person said so.
func (n *seedNet) forgive(id string) {
	for _, r := range n.sent[id] {
		r.void = true
	}
}

// applied checks an object that the provider has just made or decided on: one effect at
// most, and none of what is said to have none.
func (m *seedModel) applied(o providertest.Object) {
	if o.Status != providertest.StatusSucceeded {
		return
	}
	effects, _ := m.w.net.effects(o.Reference)
	if effects > 1 {
		m.w.fail("the %s for %s has %d effects", o.Kind, m.alias(o.Reference), effects)
	}
	r, err := m.w.truth.Get(context.Background(), settle.ByID(o.Reference))
	if err == nil && (r.State == settle.StateFailed || r.State == settle.StateCanceled || r.State == settle.StateCreated) {
		m.w.fail("I4: %s is %s and has its effect now", m.alias(o.Reference), r.State)
	}
}

// told checks what a caller was told.
func (m *seedModel) told(out settle.Outcome[scenario.Receipt], err error, amount int64) {
	id := out.ID
	op := m.ops[id]
	if op == nil {
		if err == nil {
			m.w.fail("a caller was told of a success that is not stored")
		}
		return
	}
	effects, undone := m.w.net.effects(id)
	switch {
	case err == nil && (effects != 1 || out.State != settle.StateSucceeded):
		m.w.fail("I4: a caller was told that %s succeeded, it has %d effects", op.alias, effects)
	case err == nil && amount > 0 && !out.Terms.Amount.Equal(settle.Minor(amount, "EUR")):
		m.w.fail("I3: a caller who asked for %d was told that %s succeeded", amount, out.Terms.Amount)
	case (errors.Is(err, settle.ErrFailed) || errors.Is(err, settle.ErrCanceled)) && effects > undone:
		m.w.fail("I4: a caller was told that %s failed, it has %d effects", op.alias, effects)
	}
}

// next is when something is due next, negative if nothing is; rest: whatever is unsettled
// waits for a person.
func (m *seedModel) next() (time.Duration, bool) {
	next, rest := time.Duration(-1), true
	for _, id := range m.ids {
		r := &m.ops[id].last
		if r.Kind == settle.RetentionKind {
			continue // it is due for ever
		}
		waits := m.waits(r)
		if !r.State.Settled() && (!waits || r.Token != "" && r.Due.After(time.Now())) {
			rest = false
		}
		if r.Due.IsZero() {
			continue
		}
		if at := r.Due.Sub(m.w.began); next < 0 || at < next {
			next = at
		}
		rest = rest && waits
	}
	return next, rest
}

// waits reports whether r waits for a person, or to be started by an operation that does.
func (m *seedModel) waits(r *settle.Record) bool {
	if parent := m.ops[r.Undoes.Operation]; r.State == settle.StateCreated && parent != nil {
		return parent.last.State == settle.StateReview
	}
	return r.State == settle.StateReview
}

// open lists what is unsettled.
func (m *seedModel) open() string {
	var out string
	for _, id := range m.ids {
		if op := m.ops[id]; op.last.Kind != settle.RetentionKind && (!op.last.State.Settled() || !op.last.Due.IsZero()) {
			out += fmt.Sprintf("%s is %s (%s), ", op.alias, op.last.State, op.last.Consequence)
		}
	}
	return out
}
