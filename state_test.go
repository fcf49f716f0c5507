package settle

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestState_Rules has one row per rule of the state table, and for each adjoining
// pair of rules one in which both fit: the first row that fits counts.
func TestState_Rules(t *testing.T) {
	ref := func(name string, rank Rank) Reference { return Reference{Ref: name, Rank: rank, Terms: matches} }
	line := func(status PostingStatus, cents int64) Posting {
		return Posting{Operation: "undo", Ref: "A", Amount: Minor(cents, "EUR"), Status: status}
	}
	processing := &Progress{State: StateProcessing}
	review := &Review{Reason: ReasonEscalated}
	for _, c := range []struct {
		name string
		r    Record
		live bool
		want State
	}{
		{"nothing", Record{}, false, StateCreated},
		{"nothing, claimed", Record{}, true, StateCreated},
		{"all not sent or not applied", Record{Attempts: []Attempt{try(1, FateNotSent), try(2, FateNotApplied)}}, true, StateCreated},
		{"the same, withdrawn", Record{Attempts: []Attempt{try(1, FateNotSent)}, Withdrawn: "x"}, false, StateCanceled},
		{"a tombstone", Record{Withdrawn: "x"}, false, StateCanceled},
		{"withdrawn and replaced", Record{Withdrawn: "x", ReplacedBy: "y"}, false, StateCanceled},
		{"an attempt is open", Record{Attempts: []Attempt{try(1, FateOpen)}}, false, StateUnknown},
		{"the same, withdrawn", Record{Attempts: []Attempt{try(1, FateOpen)}, Withdrawn: "x"}, false, StateUnknown},
		{"the same, and another not sent (T-02)", Record{Attempts: []Attempt{try(1, FateOpen), try(2, FateNotSent)}}, false, StateUnknown},
		{"an attempt ended underway", Record{Attempts: []Attempt{try(1, FateUnderway)}}, true, StateUnknown},
		{"the same, withdrawn", Record{Attempts: []Attempt{try(1, FateUnderway)}, Withdrawn: "x"}, false, StateUnknown},
		{"a live claim and an open attempt", Record{Attempts: []Attempt{try(1, FateOpen)}}, true, StateSubmitting},
		{"progress before submitting", Record{Attempts: []Attempt{try(1, FateOpen)}, Progress: processing}, true, StateProcessing},
		{"progress before unknown", Record{Attempts: []Attempt{try(1, FateUnderway)}, Progress: processing}, false, StateProcessing},
		{"progress before canceled", Record{Withdrawn: "x", Progress: processing}, false, StateProcessing},
		{"the customer must act", Record{Progress: &Progress{State: StateActionRequired}}, false, StateActionRequired},
		{"stopped before progress", Record{Progress: processing, Review: review}, false, StateReview},
		{"stopped before submitting", Record{Attempts: []Attempt{try(1, FateOpen)}, Review: review}, true, StateReview},
		{"a reply refused", Record{Attempts: []Attempt{try(1, FateRefused)}}, false, StateFailed},
		{"a reference failed", Record{References: []Reference{ref("A", RankFailed)}}, false, StateFailed},
		{"a reference reversed", Record{References: []Reference{ref("A", RankReversed)}}, false, StateFailed},
		{"a reference only known", Record{References: []Reference{ref("A", RankKnown)}}, false, StateCreated},
		{"failed before stopped (T-40)", Record{References: []Reference{ref("A", RankFailed)}, Review: review}, false, StateFailed},
		{"failed before progress (T-39)", Record{References: []Reference{ref("A", RankFailed)}, Progress: processing}, false, StateFailed},
		{"failed before canceled", Record{References: []Reference{ref("A", RankFailed)}, Withdrawn: "x"}, false, StateFailed},
		{"a reply refused beside one underway", Record{Attempts: []Attempt{try(1, FateUnderway), try(2, FateRefused)}}, false, StateUnknown},
		{"a reference failed beside one underway", Record{References: []Reference{ref("A", RankFailed)}, Attempts: []Attempt{try(1, FateUnderway), try(2, FateRefused)}}, false, StateFailed},
		{"refused, and another is open (T-03)", Record{Attempts: []Attempt{try(1, FateOpen), try(2, FateRefused)}}, false, StateUnknown},
		{"the same, claimed", Record{Attempts: []Attempt{try(1, FateOpen), try(2, FateRefused)}}, true, StateSubmitting},
		{"reversed, and an attempt is open", Record{References: []Reference{ref("A", RankReversed)}, Attempts: []Attempt{try(1, FateOpen)}}, false, StateUnknown},
		{"disputed", Record{References: []Reference{ref("A", RankDisputed)}}, false, StateReview},
		{"disputed before failed", Record{References: []Reference{ref("A", RankDisputed), ref("B", RankFailed)}}, false, StateReview},
		{"disputed before reversed", Record{References: []Reference{ref("A", RankReversed), ref("B", RankDisputed)}}, false, StateReview},
		{"succeeded", Record{References: []Reference{ref("A", RankSucceeded)}}, false, StateSucceeded},
		{"succeeded before disputed", Record{References: []Reference{ref("A", RankSucceeded), ref("B", RankDisputed)}}, false, StateSucceeded},
		{"succeeded before failed", Record{References: []Reference{ref("A", RankFailed), ref("B", RankSucceeded)}, Attempts: []Attempt{try(1, FateRefused)}}, false, StateSucceeded},
		{"succeeded before reversed", Record{References: []Reference{ref("A", RankReversed), ref("B", RankSucceeded)}}, false, StateSucceeded},
		{"succeeded although an attempt is open", Record{References: []Reference{ref("A", RankSucceeded)}, Attempts: []Attempt{try(1, FateOpen)}}, true, StateSucceeded},
		{"succeeded before stopped", Record{References: []Reference{ref("A", RankSucceeded)}, Review: review}, false, StateSucceeded},
		{"succeeded, canceled (T-26)", Record{References: []Reference{ref("A", RankSucceeded)}, Withdrawn: "x"}, false, StateReview},
		{"succeeded, replaced (T-42)", Record{References: []Reference{ref("A", RankSucceeded)}, ReplacedBy: "y"}, false, StateReview},
		{"succeeded, replaced, accepted", Record{References: []Reference{{Ref: "A", Rank: RankSucceeded, Accepted: true}}, ReplacedBy: "y"}, false, StateSucceeded},
		{"two effects, replaced, one accepted", Record{References: []Reference{{Ref: "A", Rank: RankSucceeded, Accepted: true}, ref("B", RankSucceeded)}, ReplacedBy: "y"}, false, StateReview},
		{"reversed, replaced", Record{References: []Reference{ref("A", RankReversed)}, ReplacedBy: "y"}, false, StateFailed},
		{"wholly undone", Record{References: []Reference{ref("A", RankSucceeded)}, Ledger: []Posting{line(PostingDone, 1000)}}, false, StateCompensated},
		{"wholly undone before stray", Record{References: []Reference{ref("A", RankSucceeded)}, Withdrawn: "x", Ledger: []Posting{line(PostingDone, 1000)}}, false, StateCompensated},
		{"being undone", Record{References: []Reference{ref("A", RankSucceeded)}, Ledger: []Posting{line(PostingOpen, 1000)}}, false, StateCompensating},
		{"being undone before stray", Record{References: []Reference{ref("A", RankSucceeded)}, ReplacedBy: "y", Ledger: []Posting{line(PostingOpen, 1000)}}, false, StateCompensating},
		{"partly done, the rest open", Record{References: []Reference{ref("A", RankSucceeded)}, Ledger: []Posting{line(PostingDone, 300), line(PostingOpen, 700)}}, false, StateCompensating},
		{"partly undone (T-20)", Record{References: []Reference{ref("A", RankSucceeded)}, Ledger: []Posting{line(PostingDone, 300)}}, false, StateSucceeded},
		{"only wished", Record{References: []Reference{ref("A", RankSucceeded)}, Ledger: []Posting{line(PostingWished, 1000)}}, false, StateSucceeded},
		{"the compensation failed", Record{References: []Reference{ref("A", RankSucceeded)}, Ledger: []Posting{line(PostingFreed, 1000)}}, false, StateSucceeded},
		{"the compensation bounced (T-20)", Record{References: []Reference{ref("A", RankSucceeded)}, Ledger: []Posting{line(PostingUndone, 1000)}}, false, StateSucceeded},
		{"one of two effects undone", Record{References: []Reference{ref("A", RankSucceeded), ref("B", RankSucceeded)}, Ledger: []Posting{line(PostingDone, 1000)}}, false, StateSucceeded},
		{"one undone, the other being undone", Record{References: []Reference{ref("A", RankSucceeded), ref("B", RankSucceeded)}, Ledger: []Posting{line(PostingDone, 1000), {Ref: "B", Amount: Minor(1000, "EUR"), Status: PostingOpen}}}, false, StateCompensating},
		{"undone, and nothing is confirmed", Record{References: []Reference{ref("A", RankDisputed)}, Ledger: []Posting{line(PostingDone, 1000)}}, false, StateReview},
		{"a virtual machine, undone", Record{References: []Reference{{Ref: "A", Rank: RankSucceeded}}, Ledger: []Posting{{Ref: "A", Status: PostingDone}}}, false, StateCompensated},
		{"a virtual machine, being undone", Record{References: []Reference{{Ref: "A", Rank: RankSucceeded}}, Ledger: []Posting{{Ref: "A", Status: PostingOpen}}}, false, StateCompensating},
		{"a ledger line without a reference is about the only effect", Record{References: []Reference{ref("A", RankSucceeded)}, Ledger: []Posting{{Amount: Minor(1000, "EUR"), Status: PostingDone}}}, false, StateCompensated},
		{"evidence without a reference belongs to the only one", Record{References: []Reference{ref("", RankSucceeded), ref("A", RankReversed)}}, false, StateFailed},
		{"with several it is an entry of its own", Record{References: []Reference{ref("", RankSucceeded), ref("A", RankReversed), ref("B", RankReversed)}}, false, StateSucceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, c.r.compute(c.live))
			assert.Equal(t, c.want, c.r.Clone().computed(c.live), "of a copy")
		})
	}
}

func (r Record) computed(live bool) State { return r.compute(live) }

// TestState_Golden writes the whole table down: compute over every combination of small
// evidence. A change of one rule, or of their order, changes lines of it.
func TestState_Golden(t *testing.T) {
	ref := func(name string, rank Rank) Reference { return Reference{Ref: name, Rank: rank, Terms: matches} }
	type set[T any] []struct {
		name string
		v    T
	}
	refs := set[[]Reference]{
		{"none", nil},
		{"known", []Reference{ref("A", RankKnown)}},
		{"failed", []Reference{ref("A", RankFailed)}},
		{"disputed", []Reference{ref("A", RankDisputed)}},
		{"succeeded", []Reference{ref("A", RankSucceeded)}},
		{"accepted", []Reference{{Ref: "A", Rank: RankSucceeded, Accepted: true, Terms: matches}}},
		{"reversed", []Reference{ref("A", RankReversed)}},
		{"failed+disputed", []Reference{ref("A", RankFailed), ref("B", RankDisputed)}},
		{"failed+succeeded", []Reference{ref("A", RankFailed), ref("B", RankSucceeded)}},
		{"disputed+succeeded", []Reference{ref("A", RankDisputed), ref("B", RankSucceeded)}},
		{"succeeded+succeeded", []Reference{ref("A", RankSucceeded), ref("B", RankSucceeded)}},
		{"accepted+succeeded", []Reference{{Ref: "A", Rank: RankSucceeded, Accepted: true, Terms: matches}, ref("B", RankSucceeded)}},
		{"succeeded+reversed", []Reference{ref("A", RankReversed), ref("B", RankSucceeded)}},
		{"unnamed succeeded", []Reference{ref("", RankSucceeded)}},
		{"unnamed failed+succeeded", []Reference{ref("", RankFailed), ref("A", RankSucceeded)}},
		{"unnamed reversed+succeeded", []Reference{ref("", RankReversed), ref("A", RankSucceeded)}},
	}
	line := func(ref string, status PostingStatus, cents int64) Posting {
		return Posting{Ref: ref, Amount: Minor(cents, "EUR"), Status: status}
	}
	ledgers := set[[]Posting]{
		{"empty", nil},
		{"A wished", []Posting{line("A", PostingWished, 1000)}},
		{"A open", []Posting{line("A", PostingOpen, 1000)}},
		{"A done", []Posting{line("A", PostingDone, 1000)}},
		{"A done in part", []Posting{line("A", PostingDone, 300)}},
		{"A done and open", []Posting{line("A", PostingDone, 300), line("A", PostingOpen, 700)}},
		{"A freed", []Posting{line("A", PostingFreed, 1000)}},
		{"A undone", []Posting{line("A", PostingUndone, 1000)}},
		{"A done+B open", []Posting{line("A", PostingDone, 1000), line("B", PostingOpen, 1000)}},
		{"A and B done", []Posting{line("A", PostingDone, 1000), line("B", PostingDone, 1000)}},
		{"unnamed done", []Posting{line("", PostingDone, 1000)}},
	}
	attempts := set[[]Attempt]{
		{"none", nil},
		{"not sent", []Attempt{try(1, FateNotSent)}},
		{"not applied", []Attempt{try(1, FateNotApplied)}},
		{"open", []Attempt{try(1, FateOpen)}},
		{"underway", []Attempt{try(1, FateUnderway)}},
		{"refused", []Attempt{try(1, FateRefused)}},
		{"applied", []Attempt{try(1, FateApplied)}},
		{"open+not sent", []Attempt{try(1, FateOpen), try(2, FateNotSent)}},
		{"open+refused", []Attempt{try(1, FateOpen), try(2, FateRefused)}},
		{"underway+refused", []Attempt{try(1, FateUnderway), try(2, FateRefused)}},
	}
	controls := set[[2]string]{
		{"none", [2]string{}},
		{"withdrawn", [2]string{"why", ""}},
		{"replaced", [2]string{"", "other"}},
	}
	progress := set[*Progress]{
		{"none", nil},
		{"processing", &Progress{State: StateProcessing}},
		{"action_required", &Progress{State: StateActionRequired}},
	}
	named := func(n int, name func(i int) string) []string {
		var out []string
		for i := range n {
			out = append(out, name(i))
		}
		return out
	}
	no := []string{"no", "yes"}
	dims := []dim{
		{"references", named(len(refs), func(i int) string { return refs[i].name })},
		{"ledger", named(len(ledgers), func(i int) string { return ledgers[i].name })},
		{"attempts", named(len(attempts), func(i int) string { return attempts[i].name })},
		{"control", named(len(controls), func(i int) string { return controls[i].name })},
		{"in review", no},
		{"progress", named(len(progress), func(i int) string { return progress[i].name })},
		{"live claim", no},
	}
	tree := decisionTree(dims, func(at []int) string {
		r := Record{
			Terms: asked, References: refs[at[0]].v, Ledger: ledgers[at[1]].v, Attempts: attempts[at[2]].v,
			Withdrawn: controls[at[3]].v[0], ReplacedBy: controls[at[3]].v[1], Progress: progress[at[5]].v,
		}
		if at[4] == 1 {
			r.Review = &Review{Reason: ReasonEscalated}
		}
		return string(r.compute(at[6] == 1))
	})
	golden(t, "testdata/state/table.txt", tableHead(dims)+tree)
}

// tableHead says what a table was evaluated on.
func tableHead(dims []dim) string {
	var b strings.Builder
	b.WriteString("# Written by go test -run Golden -update. Every combination of the values below; what\n# is not mentioned in a branch does not matter there.\n#\n")
	for _, d := range dims {
		b.WriteString("# " + d.name + ": " + strings.Join(d.values, " | ") + "\n")
	}
	return b.String() + "\n"
}

// TestState_Next: each state has a next action that is right for it, and those words
// that allow another try are given for no state in which an effect may exist.
func TestState_Next(t *testing.T) {
	for _, s := range States() {
		switch s.Next() {
		case NextRetry:
			assert.Equal(t, StateCreated, s)
		case NextShowFailure:
			assert.Equal(t, StateFailed, s)
		case NextDone:
			assert.Equal(t, StateSucceeded, s)
		case NextWait, NextAskCustomer, NextWaitPerson:
			assert.False(t, s.Settled(), s)
		case NextStop:
			assert.True(t, s.Settled(), s)
		case NextFixRequest, NextShowReversal:
			t.Errorf("%s: only a refused call is to be fixed, and only evidence tells of a reversal", s)
		}
		assert.NotEqual(t, Next("").Advice(), "", s)
		r := Record{State: s}
		assert.Equal(t, s == StateSucceeded, r.Err() == nil, "%s: nil means confirmed and nothing else", s)
	}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(States()))), 11)
	assert.Equal(t, NextWait, State("unheard of").Next())
	assert.False(t, State("unheard of").Settled())
}
