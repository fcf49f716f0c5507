package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// kept lists the records that keep events.
func (w *sceneWorld) kept() (out []settle.Record) {
	for r, err := range w.reader.List(context.Background(), settle.Query{Kind: settle.EventKind}) {
		if err != nil {
			w.problem("list events: %v", err)
			return nil
		}
		out = append(out, r)
	}
	return out
}

// checkLife holds events, reports and what was removed against what was said and promised.
func (w *sceneWorld) checkLife(recs []settle.Record) {
	w.checkEvents(recs)
	w.checkBooks(recs)
	for _, r := range recs {
		w.checkLines(r)
		switch {
		case r.PrunedAt.IsZero():
		case r.Request != nil || r.Result != nil:
			w.problem("%s was pruned and has its request or result", w.label(r.ID))
		case r.Fingerprint.IsZero() || len(r.References) == 0 || r.Account == "" || r.ProviderKey == "" && !w.scene.keyless:
			w.problem("%s was pruned and lost more than request and result (I14)", w.label(r.ID))
		case !r.State.Settled():
			w.problem("%s was pruned and is %s (I14)", w.label(r.ID), r.State)
		}
	}
}

// checkEvents: each acknowledged event is kept, at rest, and merged once at most (I12).
func (w *sceneWorld) checkEvents(recs []settle.Record) {
	merged := map[string]int{}
	for _, r := range recs {
		for x, err := range w.reader.History(context.Background(), r.ID) {
			if err != nil {
				w.problem("history: %v", err)
				return
			}
			if x.Source == settle.SourceEvent {
				merged[x.Note]++
			}
		}
	}
	byID := map[string]settle.Record{}
	for _, r := range w.kept() {
		byID[r.ID] = r
		w.checkHistory(r)
		if merged[r.ID] > 1 {
			w.problem("%s was merged %d times (I12)", w.label(r.ID), merged[r.ID])
		}
		if r.State != settle.StateSucceeded && r.State != settle.StateReview {
			w.problem("%s is still %s when recovery ends (I10)", w.label(r.ID), r.State)
		}
	}
	for _, e := range w.inbox() {
		if _, ok := byID[e.kept]; !ok {
			w.problem("the event %s is not stored", e.event.ID)
		}
	}
}

// checkBooks: a report that came to its end, however often it was begun, told of each difference.
func (w *sceneWorld) checkBooks(recs []settle.Record) {
	b := w.books
	if b == nil {
		return
	}
	if !b.done || b.summary.Lines != int64(len(b.lines)) {
		w.problem("the report ended after %d of %d lines", b.summary.Lines, len(b.lines))
	}
	for _, l := range b.lines {
		known := slices.ContainsFunc(recs, func(r settle.Record) bool {
			return slices.ContainsFunc(r.References, func(x settle.Reference) bool { return x.Ref == l.Ref }) ||
				slices.ContainsFunc(r.Ledger, func(p settle.Posting) bool { return p.External == l.Ref })
		})
		told := fmt.Sprint(settle.FindingNoOperation, " ", w.parentOf(l, recs), " ", l.Ref)
		if !known && !b.found[told] {
			w.problem("the report does not tell of %s, which nobody owns: %v", l.Ref, b.found)
		}
	}
	for id := range w.doubled {
		n := 0
		for _, l := range b.lines {
			if l.Operation == id && b.found[fmt.Sprint(settle.FindingDuplicate, " ", id, " ", l.Ref)] {
				n++
			}
		}
		if n == 0 {
			w.problem("the report does not tell of the second effect of %s: %v", w.label(id), b.found)
		}
	}
}

// parentOf is the operation whose effect l undid.
func (w *sceneWorld) parentOf(l settle.ReportLine, recs []settle.Record) string {
	for _, r := range recs {
		if slices.ContainsFunc(r.References, func(x settle.Reference) bool { return l.Parent != "" && x.Ref == l.Parent }) {
			return r.ID
		}
	}
	return ""
}

// checkLines: what stands in a charge's ledger never exceeds the effect, but by what others did (I9), and each
// refund that was made elsewhere counts once.
func (w *sceneWorld) checkLines(r settle.Record) {
	for _, x := range r.References {
		var theirs int64
		elsewhere := map[string]bool{}
		for _, p := range r.Ledger {
			if p.External == "" || p.Ref != x.Ref && (p.Ref != "" || len(r.References) > 1) {
				continue
			}
			if elsewhere[p.External] {
				w.problem("%s counts %s twice", w.label(r.ID), p.External)
			}
			elsewhere[p.External] = true
			if p.Status == settle.PostingOpen || p.Status == settle.PostingDone {
				theirs += p.Amount.Value.IntPart()
			}
		}
		if ours, limit := heldOf(&r, x.Ref), r.Terms.Amount.Value.IntPart(); ours > limit {
			w.problem("%s: %d of %d are reserved or undone by settle (I9)", w.label(r.ID), ours, limit)
		}
		var paid int64
		for _, o := range w.provider.Ledger() {
			if o.Kind == providertest.KindRefund && o.Parent == x.Ref && o.Status == providertest.StatusSucceeded && o.Reference == "" && elsewhere[o.ID] {
				paid += o.Amount
			}
		}
		if x.Ref != "" && theirs != paid {
			w.problem("%s: %d are counted as undone elsewhere, the provider says %d", w.label(r.ID), theirs, paid)
		}
	}
}
