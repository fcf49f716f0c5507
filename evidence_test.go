package settle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestI4_NoAnswerChangesNothing: whatever is known, a reply, lookup or event that proves
// nothing, and a lookup that found nothing, leave every bit of the record as it was.
func TestI4_NoAnswerChangesNothing(t *testing.T) {
	rng := seeded(t)
	for range 2000 {
		r := operation(try(1, FateOpen), try(2, FateOpen), running(3))
		for range rng.IntN(5) {
			r.apply(randomEvidence(rng, true))
		}
		for _, fact := range []Fact{Unclear, NotFound} {
			for _, ev := range []evidence{replyTo(3, fact, "A"), replyTo(1, fact, ""), lookupAt(t0.Add(9*time.Hour), fact, "A"), eventOf(fact, "B")} {
				ev.sequence, ev.message, ev.action, ev.terms, ev.result = 99, "text", "do", differs, Payload("x")
				next, _ := after(r, ev)
				next.State = r.State
				require.Equal(t, *r, next, tell([]evidence{ev}))
			}
		}
	}
}

// TestT02_NotSentClosesItsOwnAttemptOnly: proof about attempt 2 says nothing about
// attempt 1, in any order; a Cancel would be refused (the state is not created).
func TestT02_NotSentClosesItsOwnAttemptOnly(t *testing.T) {
	for _, fact := range []Fact{NotSent, NotApplied} {
		r := operation(try(1, FateOpen), try(2, FateOpen))
		out := inAllOrders(t, r, StateUnknown, replyTo(1, Unclear, ""), lookupAt(t0.Add(90*time.Minute), NotFound, ""), replyTo(2, fact, ""))
		assert.True(t, out.mayHaveLeft())
		out.Withdrawn = "the order was given up"
		assert.Equal(t, StateUnknown, out.compute(false), "withdrawing proves nothing")
		_, state := after(r, replyTo(2, fact, ""), eventOf(Applied, "A"))
		assert.Equal(t, StateSucceeded, state, "attempt 1 landed")
	}
}

// TestT03_DeclineWhileAnotherAttemptIsOpen: the provider caches successes only; attempt
// 1 is in flight when attempt 2 is declined.
func TestT03_DeclineWhileAnotherAttemptIsOpen(t *testing.T) {
	r := operation(running(1), try(2, FateOpen))
	declined, state := after(r, replyTo(2, Declined, ""))
	require.Equal(t, StateUnknown, state, "not failed while attempt 1 is open")
	assert.Equal(t, StateSubmitting, declined.compute(true))
	inAllOrders(t, r, StateSucceeded, replyTo(2, Declined, "A"), replyTo(1, Applied, "B"))
}

// TestT04_DeclineEventSettlesNothing: a decline event while the attempt is open does not
// settle, and the lookup after quiet finds the effect that landed later.
func TestT04_DeclineEventSettlesNothing(t *testing.T) {
	for _, ref := range []string{"", "A"} {
		r := operation(try(1, FateOpen))
		_, state := after(r, replyTo(1, Unclear, ""), eventOf(Declined, ref))
		require.Equal(t, StateUnknown, state)
		inAllOrders(t, r, StateSucceeded, replyTo(1, Unclear, ""), eventOf(Declined, ref), lookupAt(t0.Add(3*time.Hour), Applied, "A"))
		inAllOrders(t, r, StateFailed, eventOf(Declined, ref), lookupAt(t0.Add(3*time.Hour), Declined, ref))
	}
}

// TestT06_DeclineEventThenSuccess: whichever is written first, the reply's success stands.
func TestT06_DeclineEventThenSuccess(t *testing.T) {
	inAllOrders(t, operation(running(1)), StateSucceeded, eventOf(Declined, "A"), replyTo(1, Applied, "A"))
	inAllOrders(t, operation(running(1)), StateSucceeded, eventOf(Declined, ""), replyTo(1, Applied, "A"))
}

// TestT07_Orders is T-07, exhaustively.
func TestT07_Orders(t *testing.T) {
	r := operation(try(1, FateOpen))
	t.Run("fail A, ok B", func(t *testing.T) {
		for _, fail := range []evidence{eventOf(Declined, "A"), replyTo(1, Declined, "A"), lookupAt(t0.Add(3*time.Hour), Declined, "A")} {
			out := inAllOrders(t, r, StateSucceeded, fail, eventOf(Applied, "B"))
			assert.Empty(t, out.Alarms(), "a failed try is no effect")
		}
	})
	t.Run("ok A, ok B, rev A", func(t *testing.T) {
		out := inAllOrders(t, r, StateSucceeded, replyTo(1, Applied, "A"), eventOf(Applied, "B"), eventOf(Reversed, "A"))
		assert.Equal(t, []string{AlarmDuplicate}, out.Alarms())
		inAllOrders(t, r, StateSucceeded, eventOf(Applied, "A"), eventOf(Applied, "B"), eventOf(Reversed, "A"))
	})
	t.Run("processing A seq 6, ok B", func(t *testing.T) {
		out := inAllOrders(t, r, StateSucceeded, sequenced(eventOf(Underway, "A"), 6), replyTo(1, Applied, "B"))
		assert.Empty(t, out.Alarms(), "a reference in a report that decides nothing is no effect")
	})
}

// TestT08_Orders is T-08, exhaustively.
func TestT08_Orders(t *testing.T) {
	r := operation(try(1, FateOpen))
	for _, ref := range []string{"", "A"} {
		ok := replyTo(1, Applied, ref)
		out := inAllOrders(t, r, StateSucceeded, mismatched(eventOf(Applied, ref)), ok)
		assert.Equal(t, []string{AlarmMismatch}, out.Alarms(), "a mismatch beside a matching success is alarmed")
		require.Len(t, out.Effects(), 1)
		assert.True(t, out.Effects()[0].Amount.Equal(asked.Amount), "and what counts is what was confirmed")
		inAllOrders(t, r, StateReview, mismatched(replyTo(1, Applied, ref)), eventOf(Declined, ref))
		inAllOrders(t, r, StateReview, mismatched(eventOf(Applied, ref)), replyTo(1, Declined, ref))
		inAllOrders(t, r, StateFailed, eventOf(Reversed, ref), ok)
		inAllOrders(t, r, StateFailed, eventOf(Reversed, ref), ok, mismatched(eventOf(Applied, ref)))
	}
}

// TestT08_ReversedAnswersItsAttempt: the reply to an attempt that says that the effect
// existed and came undone is an answer to that attempt.
func TestT08_ReversedAnswersItsAttempt(t *testing.T) {
	inAllOrders(t, operation(try(1, FateOpen)), StateFailed, replyTo(1, Reversed, "A"), eventOf(Applied, "A"))
}

// TestT09_Orders is T-09, exhaustively: with one sequence action_required wins in both
// orders, and a lookup without answer never makes it unknown.
func TestT09_Orders(t *testing.T) {
	for _, seq := range []int64{0, 5} {
		r := operation(try(1, FateOpen))
		inAllOrders(t, r, StateActionRequired,
			sequenced(eventOf(Underway, "A"), seq), sequenced(eventOf(NeedsAction, "A"), seq),
			lookupAt(t0.Add(3*time.Hour), Unclear, ""), lookupAt(t0.Add(3*time.Hour), NotFound, ""))
	}
	r := operation(try(1, FateOpen))
	inAllOrders(t, r, StateProcessing, sequenced(eventOf(Underway, "A"), 2), sequenced(eventOf(NeedsAction, "A"), 1))
	inAllOrders(t, r, StateActionRequired, sequenced(eventOf(Underway, "A"), 1), sequenced(replyTo(1, NeedsAction, "A"), 2))
}

// TestT20_ReversedParts: a refund that bounced failed, for good, and tells its parent so.
// The parent stays succeeded with what is left.
func TestT20_ReversedParts(t *testing.T) {
	refund := operation(try(1, FateOpen))
	out := inAllOrders(t, refund, StateFailed, replyTo(1, Applied, "R"), eventOf(Reversed, "R"))
	assert.Equal(t, PostingUndone, postingOf(&out, out.State, true))

	parent := operation(try(1, FateApplied))
	parent.apply(eventOf(Applied, "A"))
	undo := func(status PostingStatus) {
		parent.Ledger = []Posting{{Operation: "refund", Ref: "A", Amount: Minor(300, "EUR"), Status: status}}
	}
	undo(PostingDone)
	assert.Equal(t, StateSucceeded, parent.compute(false), "300 of 1000")
	assert.Equal(t, "700 EUR/minor", parent.Effects()[0].Left().String())
	undo(PostingUndone)
	assert.Equal(t, StateSucceeded, parent.compute(false))
	assert.Equal(t, "1000 EUR/minor", parent.Effects()[0].Left().String(), "the amount is freed")
	assert.Equal(t, []string{AlarmUndone}, parent.Alarms())
}

// TestT20_BouncedAfterALostReply: the refund's reply was lost and an event confirmed it.
// When it bounces weeks later, a lookup by the reference tells, and it has failed: the
// attempt that never got its answer was quiet long before that lookup began.
func TestT20_BouncedAfterALostReply(t *testing.T) {
	refund := operation(try(1, FateOpen))
	out := inAllOrders(t, refund, StateFailed,
		replyTo(1, Unclear, ""), eventOf(Applied, "R"), lookupAt(t0.Add(500*time.Hour), Reversed, "R"))
	assert.Equal(t, PostingUndone, postingOf(&out, out.State, true), "its reservation is freed once")
}

// TestT26_EffectOnCanceled: effect evidence on a withdrawn operation goes to review with an
// alarm, and a person who accepts it ends the review.
func TestT26_EffectOnCanceled(t *testing.T) {
	r := operation()
	r.Withdrawn = "x"
	require.Equal(t, StateCanceled, r.compute(false))
	for _, ref := range []string{"", "A"} {
		out := inAllOrders(t, r, StateReview, eventOf(Applied, ref), eventOf(Underway, ref))
		assert.Equal(t, []string{AlarmCanceled}, out.Alarms())
		require.Len(t, out.Effects(), 1)
		assert.True(t, out.Effects()[0].Confirmed, "it can be compensated")
		assert.Equal(t, ReasonCanceled, reviewReason(&out))
		inAllOrders(t, r, StateSucceeded, eventOf(Applied, ref), observed(SourcePerson, Applied, ref))
		inAllOrders(t, r, StateFailed, eventOf(Applied, ref), observed(SourcePerson, Reversed, ref))
	}
}

// TestT34_LookupBesideAnEvent: the lookup's progress stands over an event's of no higher
// sequence, whichever is written first. (That the event asks for another lookup is the
// engine's merge step.)
func TestT34_LookupBesideAnEvent(t *testing.T) {
	inAllOrders(t, operation(try(1, FateOpen)), StateProcessing,
		lookupAt(t0.Add(3*time.Hour), Underway, "A"), eventOf(NeedsAction, "A"))
	inAllOrders(t, operation(try(1, FateOpen)), StateActionRequired,
		lookupAt(t0.Add(3*time.Hour), NeedsAction, "A"), eventOf(Underway, "A"))
	_, state := after(operation(), sequenced(eventOf(Underway, "A"), 9), lookupAt(t0, NeedsAction, "A"))
	assert.Equal(t, StateActionRequired, state, "a lookup replaces whatever was reported")
	_, state = after(operation(), lookupAt(t0, NeedsAction, "A"), sequenced(eventOf(Underway, "A"), 9))
	assert.Equal(t, StateProcessing, state, "what the provider numbered higher came later")
}

// TestT38_DeclineClosesWhatWasQuiet: attempt 1 crashed; attempt 2 is declined. Fails if
// attempt 1 was quiet when attempt 2 began, to the microsecond; else it stays unknown.
func TestT38_DeclineClosesWhatWasQuiet(t *testing.T) {
	a1 := try(1, FateOpen)
	quiet := a1.End.Add(a1.Grace)
	for _, c := range []struct {
		name  string
		began time.Time
		want  State
	}{{"quiet", quiet, StateFailed}, {"a microsecond before", quiet.Add(-time.Microsecond), StateUnknown}} {
		t.Run(c.name, func(t *testing.T) {
			r := operation(a1, Attempt{N: 2, Start: c.began, Grace: testGrace})
			decline := replyTo(2, Declined, "")
			decline.began = c.began
			out := inAllOrders(t, r, c.want, decline, replyTo(1, Unclear, ""))
			assert.Equal(t, c.want == StateFailed, out.Attempts[0].Ended() == FateRefused)

			lookup := lookupAt(c.began, Declined, "")
			inAllOrders(t, operation(a1), c.want, lookup)

			decline.honoured = false // nothing ties attempt 2 to attempt 1
			inAllOrders(t, r, StateUnknown, decline)
			event := eventOf(Declined, "")
			event.began = c.began
			inAllOrders(t, operation(a1), StateUnknown, event)
			report := event
			report.source = SourceReport
			inAllOrders(t, operation(a1), StateUnknown, report)
		})
	}
	t.Run("an attempt without an end is never quiet", func(t *testing.T) {
		inAllOrders(t, operation(running(1)), StateUnknown, lookupAt(t0.Add(1000*time.Hour), Declined, ""))
	})
	t.Run("a person's closes all; Resolve refuses it before quiet", func(t *testing.T) {
		inAllOrders(t, operation(try(1, FateOpen), running(2)), StateFailed, observed(SourcePerson, Declined, ""))
	})
}

// TestT39_ProcessingThenDecline: a final decline ends progress, in both orders.
func TestT39_ProcessingThenDecline(t *testing.T) {
	for _, ref := range []string{"", "A"} {
		inAllOrders(t, operation(try(1, FateOpen)), StateFailed, replyTo(1, Underway, ref), eventOf(Declined, ref))
		inAllOrders(t, operation(try(1, FateOpen)), StateFailed, eventOf(Underway, ref), replyTo(1, Declined, ref))
		inAllOrders(t, operation(), StateFailed, sequenced(eventOf(Underway, ref), 7), eventOf(Declined, ref))
	}
}

// TestT40_ReviewThenDecline: automation stopped, then a late final refusal comes.
func TestT40_ReviewThenDecline(t *testing.T) {
	r := operation(try(1, FateOpen))
	r.Review = &Review{Reason: ReasonWindow}
	require.Equal(t, StateReview, r.compute(false))
	inAllOrders(t, r, StateFailed, replyTo(1, Declined, ""))
	inAllOrders(t, r, StateFailed, lookupAt(t0.Add(3*time.Hour), Declined, "A"), eventOf(Underway, "A"))
	inAllOrders(t, r, StateReview, eventOf(Declined, "A")) // the attempt is still open
	inAllOrders(t, r, StateSucceeded, eventOf(Declined, "A"), eventOf(Applied, "A"))
}

// TestT42_RevivedAfterReplacement (state part): op1 was declined and replaced, then revives.
func TestT42_RevivedAfterReplacement(t *testing.T) {
	r := operation(try(1, FateRefused))
	require.Equal(t, StateFailed, r.compute(false))
	r.ReplacedBy = "op2"
	require.Equal(t, StateFailed, r.compute(false))
	out := inAllOrders(t, r, StateReview, eventOf(Applied, "A"), eventOf(Declined, "A"))
	assert.Equal(t, []string{AlarmReplaced}, out.Alarms())
	assert.Equal(t, ReasonReplaced, reviewReason(&out))
	inAllOrders(t, r, StateSucceeded, eventOf(Applied, "A"), observed(SourcePerson, Applied, "A"))
	inAllOrders(t, r, StateFailed, eventOf(Applied, "A"), observed(SourcePerson, Reversed, "A"))
}

// TestT43_UnderwayThenNotFound: a lookup's "not found" never leads back to created. The
// trace says unknown; the state table says processing, since "not found" does not
// replace progress (docs/state-machine.md), and the table holds. Without progress the fate
// alone keeps it unknown.
func TestT43_UnderwayThenNotFound(t *testing.T) {
	r := operation(try(1, FateOpen))
	out := inAllOrders(t, r, StateProcessing, replyTo(1, Underway, ""), lookupAt(t0.Add(3*time.Hour), NotFound, ""))
	for _, live := range []bool{false, true} {
		assert.NotContains(t, []State{StateCreated, StateFailed, StateCanceled}, out.compute(live))
	}
	out.Progress = nil
	assert.Equal(t, StateUnknown, out.compute(false))
	out.Withdrawn = "x"
	assert.Equal(t, StateUnknown, out.compute(false), "and cannot be canceled")
}

// TestPersonNotApplied_ClosesEveryAttempt: a person who proved that no request had an effect
// brings the operation back to created, whatever had been reported on the way, and
// even then a success is believed.
func TestPersonNotApplied_ClosesEveryAttempt(t *testing.T) {
	r := operation(try(1, FateOpen), try(2, FateUnderway))
	r.apply(replyTo(2, Underway, "A"))
	out, state := after(r, observed(SourcePerson, NotApplied, ""))
	require.Equal(t, StateCreated, state)
	assert.False(t, out.mayHaveLeft())
	assert.Nil(t, out.Progress)
	_, state = after(&out, eventOf(Applied, "A"))
	assert.Equal(t, StateSucceeded, state)
}

// TestDeclineThenSuccess_AndBack: a decline may be followed by success, and success is
// never undone by a late decline, by reference or without one, from any source.
func TestDeclineThenSuccess_AndBack(t *testing.T) {
	declines := []evidence{
		eventOf(Declined, "A"), eventOf(Declined, ""), replyTo(1, Declined, "A"), replyTo(1, Declined, ""),
		lookupAt(t0.Add(9*time.Hour), Declined, "A"), observed(SourcePerson, Declined, "A"), observed(SourceReport, Declined, "B"),
	}
	for _, d := range declines {
		for _, ok := range []evidence{eventOf(Applied, "A"), replyTo(1, Applied, "A"), lookupAt(t0.Add(9*time.Hour), Applied, "A"), eventOf(Applied, "")} {
			inAllOrders(t, operation(try(1, FateOpen)), StateSucceeded, d, ok)
			inAllOrders(t, operation(try(1, FateOpen), running(2)), StateSucceeded, d, ok)
		}
	}
}

// TestAccepted: a person ends a disputed effect with Applied (as it is) or Reversed.
func TestAccepted(t *testing.T) {
	disputed := mismatched(replyTo(1, Applied, "A"))
	r := operation(try(1, FateOpen))
	out := inAllOrders(t, r, StateSucceeded, disputed, observed(SourcePerson, Applied, "A"))
	assert.Equal(t, []string{AlarmMismatch}, out.Alarms())
	inAllOrders(t, r, StateFailed, disputed, observed(SourcePerson, Reversed, "A"))
	inAllOrders(t, r, StateReview, disputed, mismatched(eventOf(Applied, "A")))
}

// TestRanksAndFates: the orders by which the higher counts, each step of them.
func TestRanksAndFates(t *testing.T) {
	ranks := []Rank{RankKnown, RankFailed, RankDisputed, RankSucceeded, RankReversed}
	raise := map[Rank]evidence{
		RankKnown: eventOf(Underway, "A"), RankFailed: eventOf(Declined, "A"), RankDisputed: mismatched(eventOf(Applied, "A")),
		RankSucceeded: eventOf(Applied, "A"), RankReversed: eventOf(Reversed, "A"),
	}
	for i, low := range ranks {
		for j, high := range ranks {
			out, _ := after(operation(), raise[low], raise[high])
			assert.Equal(t, ranks[max(i, j)], out.References[0].Rank, "%q then %q", low, high)
		}
	}
	fates := []Fate{FateOpen, FateUnderway, FateNotSent, FateNotApplied, FateRefused, FateApplied}
	facts := []Fact{Unclear, Underway, NotSent, NotApplied, Declined, Applied}
	for i := range fates {
		for j := range fates {
			out, _ := after(operation(try(1, FateOpen)), replyTo(1, facts[i], "A"), replyTo(1, facts[j], "A"))
			assert.Equal(t, fates[max(i, j)], out.Attempts[0].Fate, "%q then %q", facts[i], facts[j])
		}
	}
	assert.False(t, Attempt{Fate: FateOpen}.harmless())
	assert.True(t, Attempt{Fate: FateNotSent}.harmless() && Attempt{Fate: FateNotApplied}.harmless())
	assert.False(t, Attempt{Fate: FateRefused}.harmless() || Attempt{Fate: FateApplied}.harmless() || Attempt{Fate: FateUnderway}.harmless())
}

// TestReversedByAPerson: a disputed effect of which the reply was lost. The person who
// says that it was undone ends the operation; nobody is asked again, nothing is sent again.
func TestReversedByAPerson(t *testing.T) {
	r := operation(try(1, FateOpen))
	r.apply(mismatched(eventOf(Applied, "A")))
	r.State = r.compute(false)
	require.Equal(t, StateReview, r.State)
	r.Review = &Review{Reason: ReasonDisputed}
	out, state := after(r, observed(SourcePerson, Reversed, "A"))
	assert.Equal(t, StateFailed, state, "attempts: %+v", out.Attempts)
	_, state = after(operation(running(1)), observed(SourcePerson, Reversed, "A"))
	assert.Equal(t, StateUnknown, state, "a request that may still land is not closed by it")
}

// TestReferences_AnotherNameMovesNoCompensation: an effect without a name had its only
// name filled in, and was undone under that. When a report names another reference, the
// compensation still counts, or the effect could be undone twice (I9).
func TestReferences_AnotherNameMovesNoCompensation(t *testing.T) {
	r := operation(try(1, FateOpen))
	r.apply(replyTo(1, Applied, "")) // no reference
	r.apply(eventOf(Underway, "A"))  // its name
	effect, found, _ := r.target(Undo{Operation: "op"})
	require.True(t, found)
	require.Equal(t, "A", effect.Ref)
	r.Ledger = []Posting{{Operation: "undo", Ref: effect.Ref, Amount: asked.Amount, Status: PostingDone}}
	require.Equal(t, StateCompensated, r.compute(false))
	r.apply(eventOf(Underway, "B"))
	assert.Equal(t, StateCompensated, r.compute(false))
	effect, found, _ = r.target(Undo{Operation: "op"})
	if found {
		assert.True(t, effect.Left().Value.IsZero(), "%s left to undo a second time", effect.Left())
	}
}
