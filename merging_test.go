package settle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// core is everything that decides: what I7 says is independent of the order of evidence.
// Progress and texts are advice and left aside.
type core struct {
	State  State
	Live   State // under a live claim
	Ranks  string
	Alarms []string
	Terms  string
	Fates  string
}

func coreOf(r Record) core {
	r = r.Clone()
	r.Progress = nil
	c := core{State: r.compute(false), Live: r.compute(true), Alarms: r.Alarms()}
	for _, x := range r.References {
		c.Ranks += fmt.Sprintf("%q %q mismatch=%v accepted=%v; ", x.Ref, x.Rank, x.Mismatch, x.Accepted)
		c.Terms += fmt.Sprintf("%q %s; ", x.Ref, x.Terms.Amount)
	}
	for _, a := range r.Attempts {
		c.Fates += fmt.Sprintf("#%d %q; ", a.N, a.Fate)
	}
	return c
}

// randomEvidence draws from everything that an adapter, an event or a person can report
// about an operation with three attempts.
func randomEvidence(rng *rand.Rand, progress bool) evidence {
	facts := []Fact{Unclear, Applied, Applied, Declined, Reversed, NotFound}
	if progress {
		facts = append(facts, Underway, NeedsAction)
	}
	ref := pick(rng, "", "A", "A", "B")
	var ev evidence
	switch rng.IntN(6) {
	case 0, 1, 2:
		ev = replyTo(1+rng.IntN(3), pick(rng, append(facts, NotSent, NotApplied)...), ref)
		ev.honoured = rng.IntN(3) > 0
	case 3:
		ev = lookupAt(t0.Add(time.Duration(30+rng.IntN(300))*time.Minute), pick(rng, facts...), ref)
	case 4:
		ev = observed(pick(rng, SourceEvent, SourceReport), pick(rng, facts...), ref)
	default:
		ev = observed(SourcePerson, pick(rng, Applied, Declined, Reversed), ref)
		ev.terms = pick(rng, Terms{}, matches, differs, little)
		return ev
	}
	if ev.fact == Applied {
		ev.terms = pick(rng, matches, matches, differs, little, Terms{})
	}
	if rng.IntN(4) == 0 {
		ev.terms = pick(rng, matches, differs, little)
	}
	ev.sequence = int64(rng.IntN(4))
	return ev
}

// TestI7_EvidenceMerges: any order, repetition and split over sources of a set of
// observations ends in the same state, references, fates and alarms. What an attempt's
// own reply, a lookup and a person may close depends on instants, which are fixed here:
// they are control decisions.
func TestI7_EvidenceMerges(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	controls := []func(*Record){
		func(*Record) {}, func(r *Record) { r.Withdrawn = "x" }, func(r *Record) { r.ReplacedBy = "y" },
		func(r *Record) { r.Review = &Review{Reason: ReasonWindow} },
	}
	for round := range 8000 {
		r := operation(try(1, FateOpen), try(2, FateOpen), running(3))
		if rng.IntN(4) == 0 {
			r.Attempts = r.Attempts[:rng.IntN(4)]
		}
		controls[rng.IntN(len(controls))](r)
		if rng.IntN(2) == 0 {
			r.Ledger = []Posting{{Operation: "undo", Ref: pick(rng, "", "A", "B"), Amount: Minor(100, "EUR"), Status: pick(rng, PostingOpen, PostingDone)}}
		}
		evs := make([]evidence, 1+rng.IntN(5))
		for i := range evs {
			evs[i] = randomEvidence(rng, true)
		}
		first, _ := after(r, evs...)
		want := coreOf(first)
		for range 4 {
			order := slices.Clone(evs)
			for range rng.IntN(4) {
				order = append(order, pick(rng, evs...)) // repeated, as late as may be
			}
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			got, _ := after(r, order...)
			require.Equal(t, want, coreOf(got), "round %d:\n%s\n%s", round, tell(evs), tell(order))
		}
	}
}

// TestI7_FatesDoNotDependOnOrder: a refusal closes an attempt that was quiet before or after
// that attempt's own late answer; its fate is the same.
func TestI7_FatesDoNotDependOnOrder(t *testing.T) {
	for _, own := range []Fact{Underway, NotSent, NotApplied} {
		for _, refusal := range []evidence{lookupAt(t0.Add(9*time.Hour), Declined, "A"), replyTo(2, Declined, ""), observed(SourcePerson, Declined, "A")} {
			var fates []Fate
			permutations([]evidence{replyTo(1, own, ""), refusal}, func(evs []evidence) {
				out, state := after(operation(try(1, FateOpen), try(2, FateOpen)), append(evs, replyTo(2, Declined, ""))...)
				require.Equal(t, StateFailed, state)
				fates = append(fates, out.Attempts[0].Fate)
			})
			assert.Equal(t, fates[0], fates[1], "%s of attempt 1, and a refusal by %s", own, refusal.source)
		}
	}
}

// TestI7_TermsDoNotDependOnOrder: the amount that counts, from which compensations are
// reserved (I9), is the same in every order: that of the highest rank that named one.
func TestI7_TermsDoNotDependOnOrder(t *testing.T) {
	bare := observed(SourcePerson, Applied, "A") // a person accepts and names no amount
	bare.terms = Terms{}
	less := eventOf(Applied, "A") // disputed, and before the match in the order of texts
	less.terms = little
	reversed := mismatched(eventOf(Reversed, "A"))
	refused := mismatched(eventOf(Declined, "A"))
	empty := eventOf(Declined, "A")
	underway := eventOf(Underway, "A")
	underway.terms = little
	for _, evs := range [][]evidence{
		{bare, mismatched(eventOf(Applied, "A")), eventOf(Applied, "A")},
		{bare, less, eventOf(Applied, "A")},
		{reversed, eventOf(Applied, "A")},
		{reversed, mismatched(eventOf(Applied, "A"))},
		{underway, empty, refused},
	} {
		amounts := make(map[string]string)
		states := make(map[State]string)
		permutations(evs, func(order []evidence) {
			out, _ := after(operation(), order...)
			amounts[out.References[0].Terms.Amount.String()] = tell(order)
			out.Ledger = []Posting{{Operation: "undo", Ref: "A", Amount: Minor(100, "EUR"), Status: PostingDone}}
			states[out.compute(false)] = tell(order)
		})
		assert.Len(t, amounts, 1, "%v", amounts)
		assert.Len(t, states, 1, "with 100 undone: %v", states)
	}
}

// TestI7_AnySourceWillDo: whether a fact about a reference comes as a reply, from a lookup, by an event,
// in a report or from a person, once its attempt is answered the state is the same.
func TestI7_AnySourceWillDo(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	sources := []Source{SourceReply, SourceLookup, SourceEvent, SourceReport}
	for round := range 5000 {
		r := operation(try(1, FateUnderway))
		evs := make([]evidence, 1+rng.IntN(4))
		for i := range evs {
			evs[i] = observed(SourceEvent, pick(rng, Applied, Declined, Reversed), pick(rng, "A", "B"))
			if evs[i].fact == Applied {
				evs[i].terms = pick(rng, matches, differs)
			}
		}
		out, want := after(r, evs...)
		for range 4 {
			split := slices.Clone(evs)
			for i := range split {
				split[i].source, split[i].began = pick(rng, sources...), t0.Add(5*time.Hour)
				if split[i].source == SourceReply {
					split[i].attempt, split[i].honoured = 1, true
				}
			}
			got, state := after(r, split...)
			require.Equal(t, want, state, "round %d:\n%s\n%s", round, tell(evs), tell(split))
			require.Equal(t, coreOf(out).Ranks, coreOf(got).Ranks)
		}
	}
}

// TestI7_ProgressDecidesNothing: with and without the reports that decide nothing, what
// decides is the same: references of rank known apart, which are no effects.
func TestI7_ProgressDecidesNothing(t *testing.T) {
	rng := seeded(t)
	for range 5000 {
		r := operation(try(1, FateOpen), running(2))
		var evs, bare []evidence
		for range 1 + rng.IntN(5) {
			ev := randomEvidence(rng, true)
			evs = append(evs, ev)
			if ev.fact != Underway && ev.fact != NeedsAction || ev.attempt > 0 { // a reply's also ends its attempt
				bare = append(bare, ev)
			}
		}
		with, without := mustAfter(r, evs), mustAfter(r, bare)
		settledBy := func(r Record) State { return r.compute(false) }
		with.Progress, without.Progress = nil, nil
		if slices.ContainsFunc(with.References, func(x Reference) bool { return x.Ref == "" }) {
			continue // whether evidence without a name has one home depends on how many names are known
		}
		require.Equal(t, settledBy(without).Settled(), settledBy(with).Settled(), tell(evs))
	}
}

func mustAfter(r *Record, evs []evidence) Record {
	out, _ := after(r, evs...)
	return out
}

// TestAlarms_OnlyRise: no evidence takes an alarm back.
func TestAlarms_OnlyRise(t *testing.T) {
	rng := seeded(t)
	for range 5000 {
		r := operation(try(1, FateOpen), try(2, FateOpen), running(3))
		r.Withdrawn = pick(rng, "", "x")
		for range 6 {
			before := r.Alarms()
			ev := randomEvidence(rng, true)
			r.apply(ev)
			require.Subset(t, r.Alarms(), before, tell([]evidence{ev}))
		}
	}
}

// TestFork_SharesNothingThatMerging changes: a decision works on a fork, and when its write
// loses a race the record that it was made from must be what the store said.
func TestFork_SharesNothingThatMergingChanges(t *testing.T) {
	rng := seeded(t)
	for range 3000 {
		r := operation(try(1, FateOpen), try(2, FateOpen), running(3))
		r.Ledger = []Posting{{Operation: "undo", Ref: "A", Amount: asked.Amount, Status: PostingOpen}}
		for range rng.IntN(4) {
			r.apply(randomEvidence(rng, true))
		}
		before, fork := r.Clone(), r.fork()
		require.Equal(t, before, fork)
		for range 1 + rng.IntN(3) {
			fork.apply(randomEvidence(rng, true))
		}
		fork.apply(observed(SourcePerson, NotApplied, ""))
		fork.endOpen()
		fork.addAttempt(t0, testGrace)
		fork.Ledger[0].Status = PostingDone
		require.Equal(t, before, *r)
	}
}
