package settle

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What a line of a report says of an operation, row by row: whether it is merged, and what is found when it was, or when
// the pass is read only.
func TestJudge(t *testing.T) {
	asked := Terms{Account: "acct", Amount: euros(1000), Other: map[string]string{"iban": "DE1"}}
	said := func(f func(*ReportLine)) ReportLine {
		l := ReportLine{Ref: "A", Terms: asked.clone()}
		if f != nil {
			f(&l)
		}
		return l
	}
	ref := func(name string, rank Rank) Reference { return Reference{Ref: name, Rank: rank, Terms: asked} }
	paid := Record{ID: "op", Kind: "charge", Terms: asked, References: []Reference{ref("A", RankSucceeded)}}
	open := Record{ID: "op", Kind: "charge", Terms: asked, Attempts: []Attempt{{N: 1}}}
	with := func(r Record, f func(*Record)) Record {
		r = r.Clone()
		f(&r)
		return r
	}
	two := with(paid, func(r *Record) { r.References = append(r.References, ref("B", RankSucceeded)) })
	undone := func(s PostingStatus) Record {
		return with(two, func(r *Record) { r.Ledger = []Posting{{Operation: "c", Ref: "A", Amount: euros(1000), Status: s}} })
	}
	mismatched := func(l *ReportLine) { l.Terms.Amount = euros(999) }

	for name, c := range map[string]struct {
		r      Record
		owner  *Record
		line   ReportLine
		merge  bool        // the line teaches
		kind   FindingKind // after it was merged
		does   Suggestion
		ref    string
		unread FindingKind // when it was not; empty: as kind
	}{
		"the same":                              {r: paid, line: said(nil)},
		"no account, no iban, no amount":        {r: paid, line: ReportLine{Ref: "A"}},
		"by the operation alone":                {r: paid, line: ReportLine{Operation: "op"}},
		"another amount":                        {r: paid, line: said(mismatched), merge: true, kind: FindingTerms, does: SuggestPerson, ref: "A"},
		"another unit":                          {r: paid, line: said(func(l *ReportLine) { l.Terms.Amount = Minor(1000, "USD") }), merge: true, kind: FindingTerms, does: SuggestPerson, ref: "A"},
		"another account":                       {r: paid, line: said(func(l *ReportLine) { l.Terms.Account = "other" }), merge: true, kind: FindingTerms, does: SuggestPerson, ref: "A"},
		"another iban":                          {r: paid, line: said(func(l *ReportLine) { l.Terms.Other["iban"] = "DE2" }), merge: true, kind: FindingTerms, does: SuggestPerson, ref: "A"},
		"nobody knew":                           {r: open, line: said(nil), merge: true, unread: FindingBehind, does: SuggestLookup, ref: "A"},
		"nobody knew, and it says too little":   {r: open, line: ReportLine{Ref: "A"}, kind: FindingBehind, does: SuggestLookup, ref: "A"},
		"nobody knew, and it is another":        {r: open, line: said(mismatched), merge: true, kind: FindingTerms, does: SuggestPerson, ref: "A"},
		"known as failed":                       {r: with(paid, func(r *Record) { r.References[0].Rank = RankFailed }), line: said(nil), merge: true, unread: FindingBehind, does: SuggestLookup, ref: "A"},
		"came undone":                           {r: paid, line: said(func(l *ReportLine) { l.Fact = Reversed }), merge: true, unread: FindingBehind, does: SuggestLookup, ref: "A"},
		"came undone, known":                    {r: with(paid, func(r *Record) { r.References[0].Rank = RankReversed }), line: said(func(l *ReportLine) { l.Fact = Reversed })},
		"was there, and came undone since":      {r: with(paid, func(r *Record) { r.References[0].Rank = RankReversed }), line: said(nil)},
		"a second effect":                       {r: paid, line: said(func(l *ReportLine) { l.Ref = "B" }), merge: true, kind: FindingDuplicate, does: SuggestCompensate, ref: "B", unread: FindingBehind},
		"a second effect, of a lower name":      {r: paid, line: said(func(l *ReportLine) { l.Ref = "0" }), merge: true, kind: FindingDuplicate, does: SuggestCompensate, ref: "A", unread: FindingBehind},
		"a second effect that says too little":  {r: paid, line: ReportLine{Ref: "B"}, kind: FindingBehind, does: SuggestLookup, ref: "B"},
		"a known duplicate":                     {r: two, line: said(func(l *ReportLine) { l.Ref = "B" }), kind: FindingDuplicate, does: SuggestCompensate, ref: "B"},
		"the one of two that stays":             {r: two, line: said(nil)},
		"a duplicate whose twin is undone":      {r: undone(PostingDone), line: said(func(l *ReportLine) { l.Ref = "B" })},
		"a duplicate whose twin is on its way":  {r: undone(PostingOpen), line: said(func(l *ReportLine) { l.Ref = "B" })},
		"a duplicate whose twin shall be":       {r: undone(PostingWished), line: said(func(l *ReportLine) { l.Ref = "B" })},
		"a duplicate whose twin's undo bounced": {r: undone(PostingUndone), line: said(func(l *ReportLine) { l.Ref = "B" }), kind: FindingDuplicate, does: SuggestCompensate, ref: "B"},
		"accepted as it is":                     {r: with(paid, func(r *Record) { x := &r.References[0]; x.Accepted, x.Terms.Amount = true, euros(999) }), line: said(mismatched)},
		"accepted as another":                   {r: with(paid, func(r *Record) { x := &r.References[0]; x.Accepted, x.Terms.Amount = true, euros(998) }), line: said(mismatched), kind: FindingTerms, does: SuggestPerson, ref: "A"},
		"another's reference":                   {r: open, owner: &Record{ID: "other"}, line: said(nil), kind: FindingConflict, does: SuggestPerson, ref: "A"},
		"another's reference, known":            {r: with(paid, func(r *Record) { r.References[0].Foreign, r.References[0].Owner = true, "other" }), line: said(nil), kind: FindingConflict, does: SuggestPerson, ref: "A"},
		"of a canceled operation":               {r: with(paid, func(r *Record) { r.Withdrawn = "canceled" }), line: said(nil), kind: FindingUnwanted, does: SuggestPerson, ref: "A"},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(r Record, learned bool, kind FindingKind) {
				t.Helper()
				got := r.judge(&c.line, c.owner, learned)
				if kind == "" {
					assert.Empty(t, got)
					return
				}
				if !assert.Len(t, got, 1) {
					return
				}
				want := c.does
				if kind == FindingBehind {
					want = SuggestLookup
				}
				assert.Equal(t, []any{kind, want}, []any{got[0].Kind, got[0].Suggest})
				if kind == c.kind {
					assert.Equal(t, c.ref, got[0].Effect.Ref)
					assert.Equal(t, "op", got[0].Effect.Operation)
				}
				if kind == FindingConflict {
					assert.Equal(t, "other", got[0].Owner)
				}
			}
			merge := c.owner == nil && c.r.teaches(&c.line)
			assert.Equal(t, c.merge, merge, "merged")
			before := c.unread
			if before == "" {
				before = c.kind
			}
			check(c.r, false, before)
			if merge {
				after := c.r.fork()
				after.apply(c.line.evidence())
				check(after, true, c.kind)
				assert.False(t, after.teaches(&c.line), "it teaches no more")
				once := after.fork()
				once.apply(c.line.evidence())
				assert.Equal(t, after.References, once.References, "merged again, it changes nothing (I7)")
			}
		})
	}
}

func TestRecordFindings(t *testing.T) {
	r := Record{
		ID: "op", Kind: "charge", Terms: Terms{Amount: euros(5)}, State: StateSucceeded,
		References: []Reference{
			{Ref: "A", Rank: RankSucceeded},
			{Ref: "B", Rank: RankSucceeded},
			{Ref: "C", Rank: RankDisputed, Mismatch: true},
			{Ref: "D", Rank: RankDisputed, Mismatch: true, Foreign: true, Owner: "other"},
		},
	}
	type found struct {
		kind FindingKind
		does Suggestion
		ref  string
	}
	list := func(r Record) (out []found) {
		for _, f := range r.Findings() {
			assert.EqualValues(t, -1, f.Line)
			out = append(out, found{f.Kind, f.Suggest, f.Effect.Ref})
		}
		return out
	}
	assert.Equal(t, []found{
		{FindingTerms, SuggestPerson, "C"}, {FindingConflict, SuggestPerson, "D"}, {FindingDuplicate, SuggestCompensate, "B"},
	}, list(r))
	assert.Empty(t, list(Record{Kind: "charge", References: r.References[:1]}))
	r.References, r.Withdrawn = r.References[:1], "canceled"
	assert.Equal(t, []found{{FindingUnwanted, SuggestPerson, "A"}}, list(r))

	ev := Event{Account: "a", ID: "evt", Ref: "X"}
	kept, err := ev.record(nil)
	assert.NoError(t, err)
	assert.Empty(t, list(kept), "it is parked, not an orphan yet")
	kept.Review = &Review{Reason: ReasonOrphan}
	kept.State = kept.compute(false)
	assert.Equal(t, []found{{FindingNoOperation, SuggestPerson, "X"}}, list(kept))
}
