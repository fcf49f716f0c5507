package settle

import (
	"slices"
	"time"
)

// Finding is a difference between what the store knows and what exists at the provider, with the
// next step that is safe. The zero value is none.
type Finding struct {
	Kind FindingKind
	// Suggest is what to do about it. Nothing does it by itself.
	Suggest Suggestion
	// Effect is the effect in question, as Compensate takes it and Foreign.Effect names it: the
	// operation and the provider's reference. Operation is empty if there is none. With SuggestForeign it is
	// the effect that was undone.
	Effect Effect
	// State is that of the operation when it was found.
	State State
	// Owner is the id of the operation that owns the reference, with FindingConflict.
	Owner string
	// Line is the number of the report's line, from 0; -1 if no line says so.
	Line int64
	// Reported is that line.
	Reported ReportLine
}

// FindingKind says what differs.
type FindingKind string

// The kinds of findings.
const (
	// FindingDuplicate: the operation has another confirmed effect that is not undone, beside this one.
	FindingDuplicate FindingKind = "duplicate_reference"
	// FindingNoOperation: an effect that no operation has by the names that the line states. It may be that of an
	// operation which is unsettled here and whose reference nobody has told yet.
	FindingNoOperation FindingKind = "no_operation"
	// FindingAbsent: succeeded here, and not in the report that should have it.
	FindingAbsent FindingKind = "absent_there"
	// FindingTerms: account, amount or another of the terms is not what was asked for, or accepted.
	FindingTerms FindingKind = "terms_mismatch"
	// FindingConflict: the line names an operation, and a reference that belongs to another one.
	FindingConflict FindingKind = "reference_conflict"
	// FindingUnwanted: an effect of an operation that was canceled or replaced.
	FindingUnwanted FindingKind = "effect_unwanted"
	// FindingBehind: the report knows what the store does not, and it was not merged: the pass is read only, or the
	// line states too little to confirm the effect.
	FindingBehind FindingKind = "behind_here"
	// FindingRepeated: several lines of the report are about the same effect. Found among the
	// operations that the window checks.
	FindingRepeated FindingKind = "repeated_line"
)

// Suggestion is a safe next step, as a word.
type Suggestion string

// The suggestions.
const (
	// SuggestCompensate: Executor.Compensate or Undo with Finding.Effect, which is confirmed and one too many.
	SuggestCompensate Suggestion = "compensate"
	// SuggestForeign: Engine.RecordForeign with Finding.Effect and the line's reference and amount.
	SuggestForeign Suggestion = "record_foreign"
	// SuggestLookup: ask the provider, by Finding.Effect.Ref, before anything else: a report may be late, or state
	// too little.
	SuggestLookup Suggestion = "lookup"
	// SuggestPerson: no step is safe without somebody who knows more.
	SuggestPerson Suggestion = "person"
)

// ReportLine is one effect as a provider's listing or settlement report states it. A report lists effects
// that exist or existed; tries that failed, fees and payouts are not lines of it.
type ReportLine struct {
	// Kind is the kind of the operation. Empty: one of ReportOptions.Kinds, in their order.
	Kind string
	// Operation is the operation's id, where the provider hands back what the request gave it.
	Operation string
	// Ref is the provider's reference of the effect as a whole. It or Operation is required.
	Ref string
	// Parent is the reference of the effect that this one undoes: of the payment, for a refund.
	Parent string
	// Fact is Applied, or Reversed for an effect that came undone by itself. Empty means Applied.
	Fact Fact
	// Terms as the report states them, unconverted: gross, not net of fees. What it does not state is not compared.
	Terms Terms
	// At is when the report says that it happened. It decides nothing (I13).
	At time.Time
}

func (l *ReportLine) problem() string {
	switch {
	case l.Ref == "" && l.Operation == "":
		return "neither reference nor operation"
	case l.Fact != Unclear && l.Fact != Applied && l.Fact != Reversed:
		return "a report lists effects: Applied or Reversed"
	case l.Terms.Amount.boundless():
		return "an amount of too many digits"
	}
	for field, v := range map[string]string{"Kind": l.Kind, "Operation": l.Operation, "Ref": l.Ref, "Parent": l.Parent} {
		if v != "" {
			if err := checkName(field, v, MaxRef); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

func (l *ReportLine) fact() Fact {
	if l.Fact == Unclear {
		return Applied
	}
	return l.Fact
}

// evidence is what the line says, in the form in which everything is merged.
func (l *ReportLine) evidence() evidence {
	return evidence{source: SourceReport, fact: l.fact(), ref: l.Ref, terms: l.Terms}
}

// contradicts reports whether seen states something else than t, as far as it states anything.
func (t Terms) contradicts(seen Terms) bool {
	if t.Account != "" && seen.Account != "" && t.Account != seen.Account {
		return true
	}
	if !t.Amount.IsZero() && !seen.Amount.IsZero() && !t.Amount.Equal(seen.Amount) {
		return true
	}
	for k, v := range t.Other {
		if w, ok := seen.Other[k]; ok && v != w {
			return true
		}
	}
	return false
}

// teaches reports whether merging line would add to the evidence of r. A line that states too little
// to confirm the effect, and nothing that contradicts it, teaches nothing: merged as it is, it would
// make an effect disputed only because a report has fewer columns than a reply (I4).
func (r *Record) teaches(l *ReportLine) bool {
	x, known := r.reference(l.Ref)
	rank := RankSucceeded
	switch {
	case l.fact() == Reversed:
		rank = RankReversed
	case r.Terms.contradicts(l.Terms):
		if known && (x.Mismatch || x.Accepted) {
			return false
		}
		return true
	case !r.Terms.meets(l.Terms):
		return false
	}
	return !known || x.Rank.order() < rank.order()
}

// reference is what r has seen under ref. A line without one is about the only effect.
func (r *Record) reference(ref string) (Reference, bool) {
	all := r.references()
	if ref == "" && len(all) == 1 {
		return all[0], true
	}
	for _, x := range all {
		if x.Ref == ref {
			return x, true
		}
	}
	return Reference{}, false
}

// extra lists the confirmed effects of r that are not undone, or about to be, beyond the first. The order does
// not depend on which was learned first: whoever acts on two reports must not undo both of two.
func (r *Record) extra() []Reference {
	var live []Reference
	for _, x := range r.references() {
		if x.Rank != RankSucceeded || x.Ref == "" || x.Foreign {
			continue
		}
		if e := r.effect(x); e.whole || !e.Amount.IsZero() && e.Left().Value.Sign() <= 0 {
			continue
		}
		live = append(live, x)
	}
	if len(live) < 2 {
		return nil
	}
	return live[1:]
}

// Findings lists what the record shows by itself: effects that are one too many, terms that differ, references
// of other operations, an event that nobody owns. What it takes a report to see comes from Engine.ReconcileReport.
func (r *Record) Findings() []Finding {
	var out []Finding
	add := func(kind FindingKind, s Suggestion, e Effect, owner string) {
		out = append(out, Finding{Kind: kind, Suggest: s, Effect: e, State: r.State, Owner: owner, Line: -1})
	}
	if r.Kind == EventKind {
		if ev, err := r.event(); err == nil && r.Review != nil && !r.State.Settled() {
			add(FindingNoOperation, SuggestPerson, Effect{Ref: ev.Ref}, "")
		}
		return out
	}
	for _, x := range r.references() {
		switch {
		case x.Foreign:
			add(FindingConflict, SuggestPerson, r.effect(x), x.Owner)
		case x.Mismatch && !x.Accepted:
			add(FindingTerms, SuggestPerson, r.effect(x), "")
		case r.unwanted(x):
			add(FindingUnwanted, SuggestPerson, r.effect(x), "")
		}
	}
	for _, x := range r.extra() {
		add(FindingDuplicate, SuggestCompensate, r.effect(x), "")
	}
	return out
}

func (r *Record) unwanted(x Reference) bool {
	_, open := r.cover(x)
	return x.Rank == RankSucceeded && !x.Accepted && !open && (r.Withdrawn != "" || r.ReplacedBy != "")
}

// judge compares line with r as it is after everything that could be learned from the line was merged. owner is the
// operation that has the line's reference, if that is another one. learned: the line was merged just now.
func (r *Record) judge(l *ReportLine, owner *Record, learned bool) []Finding {
	x, known := r.reference(l.Ref)
	one := func(kind FindingKind, s Suggestion) []Finding {
		e := Effect{Operation: r.ID, Ref: l.Ref}
		if known {
			e = r.effect(x)
		}
		f := Finding{Kind: kind, Suggest: s, Effect: e, State: r.State, Owner: x.Owner, Reported: *l}
		if owner != nil {
			f.Owner = owner.ID
		}
		return []Finding{f}
	}
	asked := r.Terms
	if x.Accepted {
		asked = x.Terms
	}
	switch {
	case owner != nil && owner.ID != r.ID, x.Foreign:
		return one(FindingConflict, SuggestPerson)
	case l.fact() == Applied && asked.contradicts(l.Terms):
		return one(FindingTerms, SuggestPerson)
	case r.teaches(l), !known:
		return one(FindingBehind, SuggestLookup)
	case x.Rank.order() < RankSucceeded.order():
		return one(FindingBehind, SuggestLookup)
	case l.fact() == Applied && r.unwanted(x):
		return one(FindingUnwanted, SuggestPerson)
	}
	var out []Finding
	for _, y := range r.extra() {
		// One that the line has just made a duplicate of is perhaps in no line to come.
		if learned || y.Ref == x.Ref {
			out = append(out, Finding{Kind: FindingDuplicate, Suggest: SuggestCompensate, Effect: r.effect(y), State: r.State, Reported: *l})
		}
	}
	return out
}

// foreignKnown reports whether the ledger of r counts ref as something that undid its effect elsewhere.
func (r *Record) foreignKnown(ref string) bool {
	return slices.ContainsFunc(r.Ledger, func(p Posting) bool { return p.External != "" && p.External == ref })
}
