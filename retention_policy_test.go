package settle

import (
	"testing"
	"time"
)

// I14: the rule of retention, for one record at a time.
func TestI14_WhatMayBePruned(t *testing.T) {
	const age = time.Hour
	now := time.Unix(1_700_000_000, 0).UTC()
	posting := func(s PostingStatus) func(*Record) {
		return func(r *Record) { r.Ledger = []Posting{{Operation: "x", Status: s}} }
	}
	consequence := func(c Consequence) func(*Record) { return func(r *Record) { r.Consequence = c } }
	for name, x := range map[string]struct {
		change func(r *Record)
		want   bool
	}{
		"settled for the age":        {func(*Record) {}, true},
		"a moment younger":           {func(r *Record) { r.UpdatedAt = now.Add(-age + time.Microsecond) }, false},
		"failed":                     {func(r *Record) { r.State = StateFailed }, true},
		"canceled":                   {func(r *Record) { r.State = StateCanceled }, true},
		"compensated":                {func(r *Record) { r.State = StateCompensated }, true},
		"created":                    {func(r *Record) { r.State = StateCreated }, false},
		"submitting":                 {func(r *Record) { r.State = StateSubmitting }, false},
		"unknown":                    {func(r *Record) { r.State = StateUnknown }, false},
		"processing":                 {func(r *Record) { r.State = StateProcessing }, false},
		"action required":            {func(r *Record) { r.State = StateActionRequired }, false},
		"in review":                  {func(r *Record) { r.State = StateReview }, false},
		"due":                        {func(r *Record) { r.Due = now }, false},
		"to be looked at":            {func(r *Record) { r.Wake = true }, false},
		"its hook is due":            {consequence(ConsequenceDue), false},
		"its hook is set aside":      {consequence(ConsequenceAside), false},
		"its hook is done":           {consequence(ConsequenceDone), true},
		"failed, with a hook":        {func(r *Record) { r.State, r.Consequence = StateFailed, ConsequenceArmed }, true},
		"a compensation wished":      {posting(PostingWished), false},
		"a compensation open":        {posting(PostingOpen), false},
		"a compensation done":        {posting(PostingDone), true},
		"a compensation freed":       {posting(PostingFreed), true},
		"a compensation undone":      {posting(PostingUndone), true},
		"pruned":                     {func(r *Record) { r.Request, r.Result, r.PrunedAt = nil, nil, now }, false},
		"a result after it":          {func(r *Record) { r.Request, r.PrunedAt = nil, now }, true},
		"a request alone":            {func(r *Record) { r.Result = nil }, true},
		"an event":                   {func(r *Record) { r.Kind = EventKind }, true},
		"an event, pruned":           {func(r *Record) { r.Kind, r.PrunedAt = EventKind, now }, false},
		"an empty request, not none": {func(r *Record) { r.Request, r.Result = Payload{}, nil }, true},
	} {
		r := Record{
			Kind: "charge", State: StateSucceeded, Request: Payload("{}"), Result: Payload("{}"), UpdatedAt: now.Add(-age), AsOf: now,
		}
		x.change(&r)
		if got := r.prunable(age); got != x.want {
			t.Errorf("%s: prunable is %v, want %v", name, got, x.want)
		}
	}
	for age, want := range map[time.Duration]time.Duration{
		time.Minute: time.Minute, time.Hour: 6 * time.Minute, 10 * 24 * time.Hour: 24 * time.Hour, 10000 * 24 * time.Hour: 7 * 24 * time.Hour,
	} {
		if got := retentionEvery(age); got != want {
			t.Errorf("a store with an age of %v is looked through every %v, want %v", age, got, want)
		}
	}
}

// A first success after retention brings its result; one that was known brings nothing back.
func TestI14_ResultsAfterRetention(t *testing.T) {
	for _, known := range []bool{false, true} {
		r := Record{State: StateFailed, Terms: Terms{Amount: Minor(5, "EUR")}, PrunedAt: time.Unix(1, 0)}
		if known {
			r.References = []Reference{{Ref: "a", Rank: RankSucceeded}}
		}
		r.apply(evidence{source: SourceEvent, fact: Applied, ref: "a", terms: Terms{Amount: Minor(5, "EUR")}, result: Payload("{}")})
		if got := r.Result != nil; got == known {
			t.Errorf("known before: %v, and the result is kept: %v", known, got)
		}
	}
}
