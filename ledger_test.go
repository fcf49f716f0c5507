package settle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func euros(cents int64) Amount { return Minor(cents, "EUR") }

func refundOf(amount Amount) *Record {
	return &Record{ID: "refund", Kind: "refund", Undoes: Undo{Operation: "op", Ref: "A"}, Terms: Terms{Amount: amount}}
}

// TestI8_OnlyConfirmedEffectsAreTargets: only a confirmed effect can be undone, and one of several must be named (I8).
func TestI8_OnlyConfirmedEffectsAreTargets(t *testing.T) {
	for _, c := range []struct {
		name             string
		evs              []evidence
		undo             Undo
		ref              string
		found, ambiguous bool
	}{
		{"nothing", nil, Undo{}, "", false, false},
		{"unknown", []evidence{replyTo(1, Unclear, "")}, Undo{}, "", false, false},
		{"underway", []evidence{eventOf(Underway, "A")}, Undo{Ref: "A"}, "A", false, false},
		{"disputed", []evidence{mismatched(eventOf(Applied, "A"))}, Undo{Ref: "A"}, "A", false, false},
		{"declined", []evidence{eventOf(Declined, "A")}, Undo{Ref: "A"}, "A", false, false},
		{"reversed", []evidence{eventOf(Applied, "A"), eventOf(Reversed, "A")}, Undo{Ref: "A"}, "A", false, false},
		{"the only one", []evidence{eventOf(Applied, "A")}, Undo{}, "A", true, false},
		{"by name", []evidence{eventOf(Applied, "A"), eventOf(Applied, "B")}, Undo{Ref: "B"}, "B", true, false},
		{"another name", []evidence{eventOf(Applied, "A")}, Undo{Ref: "B"}, "B", false, false},
		{"one of two", []evidence{eventOf(Applied, "A"), eventOf(Applied, "B")}, Undo{}, "", false, true},
		{"one of two is gone", []evidence{eventOf(Applied, "A"), eventOf(Applied, "B"), eventOf(Reversed, "B")}, Undo{}, "A", true, false},
		{"no name at all", []evidence{eventOf(Applied, "")}, Undo{}, "", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := after(operation(try(1, FateOpen)), c.evs...)
			e, found, ambiguous := r.target(c.undo)
			assert.Equal(t, c.found, found)
			assert.Equal(t, c.ambiguous, ambiguous)
			assert.Equal(t, c.ref, e.Ref)
			assert.Equal(t, found, e.Confirmed)
			assert.Equal(t, "op", e.Operation)
		})
	}
}

// TestReserve: never more than was done, counting reserved, unknown and completed ones (I9).
func TestReserve(t *testing.T) {
	thing := Effect{Operation: "op", Ref: "A"} // an effect without an amount
	for _, c := range []struct {
		name   string
		effect Effect
		amount Amount
		want   Amount
		err    error
	}{
		{"whole", Effect{Amount: euros(1000)}, Amount{}, euros(1000), nil},
		{"part", Effect{Amount: euros(1000)}, euros(300), euros(300), nil},
		{"exactly what is left", Effect{Amount: euros(1000), Reserved: euros(300), Returned: euros(300)}, euros(400), euros(400), nil},
		{"one cent more", Effect{Amount: euros(1000), Reserved: euros(300), Returned: euros(300)}, euros(401), Amount{}, ErrExceeds},
		{"whole, and a part is reserved", Effect{Amount: euros(1000), Reserved: euros(1)}, Amount{}, Amount{}, ErrExceeds},
		{"another unit", Effect{Amount: euros(1000)}, Minor(1, "USD"), Amount{}, ErrInvalid},
		{"major and minor", Effect{Amount: euros(1000)}, Major(euros(1).Value, "EUR"), Amount{}, ErrInvalid},
		{"a thing", thing, Amount{}, Amount{}, nil},
		{"a part of a thing", thing, euros(1), Amount{}, ErrInvalid},
		{"a thing twice", Effect{whole: true}, Amount{}, Amount{}, ErrExceeds},
		{"overdrawn already", Effect{Amount: euros(1000), Returned: euros(1200)}, euros(1), Amount{}, ErrExceeds},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := reserve(c.effect, refundOf(c.amount))
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				require.NoError(t, err)
				assert.Equal(t, c.want.String(), p.Amount.String())
				assert.Equal(t, PostingWished, p.Status)
				assert.Equal(t, "refund", p.Operation)
			}
		})
	}
}

// TestI9_ReserveUnderAnyMix: whatever lines a ledger has and however often one more is asked
// for, what holds or has the amount never exceeds the effect (I9).
func TestI9_ReserveUnderAnyMix(t *testing.T) {
	rng := seeded(t)
	statuses := []PostingStatus{PostingWished, PostingOpen, PostingDone, PostingFreed, PostingUndone}
	refused := 0
	for range 500 {
		r, _ := after(operation(try(1, FateOpen)), eventOf(Applied, "A"))
		for range 20 {
			e, found, _ := r.target(Undo{Operation: "op"})
			require.True(t, found)
			p, err := reserve(e, refundOf(pick(rng, Amount{}, euros(1+rng.Int64N(600)))))
			if err != nil {
				refused++
				continue
			}
			p.Status = pick(rng, statuses...)
			r.Ledger = append(r.Ledger, p)
			held := int64(0)
			for _, x := range r.Ledger {
				switch x.Status {
				case PostingWished, PostingOpen, PostingDone:
					held += x.Amount.Value.IntPart()
				case PostingFreed, PostingUndone:
				}
			}
			require.LessOrEqual(t, held, int64(1000))
			require.Equal(t, 1000-held, r.Effects()[0].Left().Value.IntPart())
		}
	}
	require.Positive(t, refused)
}

// TestPostingOf: how a compensation stands in its parent's ledger, for each state.
func TestPostingOf(t *testing.T) {
	sent, fresh := operation(try(1, FateOpen)), operation()
	bounced, _ := after(operation(try(1, FateApplied)), eventOf(Reversed, "R"))
	for _, s := range States() {
		want := PostingOpen
		switch s {
		case StateSucceeded, StateCompensating, StateCompensated:
			want = PostingDone
		case StateFailed, StateCanceled:
			want = PostingFreed
		case StateCreated, StateSubmitting, StateUnknown, StateProcessing, StateActionRequired, StateReview:
		}
		assert.Equal(t, want, postingOf(sent, s, true), s)
		assert.Equal(t, want, postingOf(sent, s, false), "%s: it may have left, so the amount stays held", s)
		if want == PostingOpen {
			assert.Equal(t, PostingWished, postingOf(fresh, s, false), s)
			assert.Equal(t, PostingOpen, postingOf(fresh, s, true), s)
		}
	}
	assert.Equal(t, PostingUndone, postingOf(&bounced, StateFailed, true), "was done, and bounced")
}

// TestEffect_Left: what may still be undone.
func TestEffect_Left(t *testing.T) {
	assert.True(t, Effect{}.Left().IsZero())
	e := Effect{Amount: euros(1000), Reserved: euros(200), Returned: euros(300)}
	assert.True(t, e.Left().Equal(euros(500)))
	e.Returned = euros(900)
	assert.Equal(t, "-100 EUR/minor", e.Left().String(), "an excess shows")
}

// TestLedger_AmountThatWasConfirmed: the confirmed amount counts, not the one asked for. A person accepted
// a smaller charge; no more than that can be undone, and undoing that is all of it.
func TestLedger_AmountThatWasConfirmed(t *testing.T) {
	accept := observed(SourcePerson, Applied, "A")
	accept.terms = Terms{}
	r, state := after(operation(try(1, FateOpen)), mismatched(replyTo(1, Applied, "A")), accept)
	require.Equal(t, StateSucceeded, state)
	e, _, _ := r.target(Undo{Operation: "op"})
	assert.Equal(t, "700 EUR/minor", e.Amount.String())
	_, err := reserve(e, refundOf(euros(701)))
	require.ErrorIs(t, err, ErrExceeds)
	r.Ledger = []Posting{{Operation: "refund", Ref: "A", Amount: euros(700), Status: PostingDone}}
	assert.Equal(t, StateCompensated, r.compute(false))
}

// TestLedger_Excess: proven by evidence it is alarmed, never refused (I9, T-24).
func TestLedger_Excess(t *testing.T) {
	r, _ := after(operation(try(1, FateOpen)), replyTo(1, Applied, "A"))
	r.Ledger = []Posting{
		{Operation: "r1", Ref: "A", Amount: euros(1000), Status: PostingDone},
		{Operation: "r2", Ref: "A", Amount: euros(1000), Status: PostingDone},
	}
	assert.Equal(t, []string{AlarmExcess}, r.Alarms())
	assert.Equal(t, StateCompensated, r.compute(false))
	e, _, _ := r.target(Undo{Operation: "op"})
	_, err := reserve(e, refundOf(euros(1)))
	require.ErrorIs(t, err, ErrExceeds)
}

// TestUndoSubject: parent and reference make the subject, and two references never the same one.
func TestUndoSubject(t *testing.T) {
	long := make([]byte, MaxSubject)
	for i := range long {
		long[i] = 'r'
	}
	seen := make(map[string]string)
	for _, ref := range []string{"", "A", "B", "A/B", string(long), string(long[1:])} {
		s := undoSubject(Undo{Operation: "op", Ref: ref})
		assert.LessOrEqual(t, len(s), MaxSubject)
		assert.Empty(t, seen[s])
		seen[s] = ref + "."
	}
	fits := string(long[len("op/"):])
	assert.Equal(t, "op/"+fits, undoSubject(Undo{Operation: "op", Ref: fits}), "the longest that is kept as it is")
	assert.NotContains(t, undoSubject(Undo{Operation: "op", Ref: fits + "r"}), fits)
}

// TestI8_Barred: what a compensation does instead of being sent, by what is known of the effect that it undoes.
func TestI8_Barred(t *testing.T) {
	parent := func(state State, refs ...Reference) *Record {
		return &Record{ID: "op", State: state, Terms: Terms{Amount: euros(1000)}, References: refs}
	}
	ok := func(ref string) Reference {
		return Reference{Ref: ref, Rank: RankSucceeded, Terms: Terms{Amount: euros(1000)}}
	}
	undone := parent(StateCompensated, ok("A"))
	undone.Ledger = []Posting{{Ref: "A", External: "re", Amount: euros(1000), Status: PostingDone}}
	for name, c := range map[string]struct {
		parent *Record
		ref    string
		tries  int
		sent   bool
		want   *decision
	}{
		"confirmed":                       {parent: parent(StateSucceeded, ok("A"))},
		"one of two, named":               {parent: parent(StateSucceeded, ok("A"), ok("B")), ref: "B"},
		"one of two, not named":           {parent: parent(StateSucceeded, ok("A"), ok("B")), want: &decision{do: actReview, reason: ReasonAmbiguous}},
		"undone by others":                {parent: undone, want: &decision{do: actCancel, reason: WithdrawnParent}},
		"undone by others, but sent":      {parent: undone, sent: true},
		"there is none":                   {parent: parent(StateFailed), want: &decision{do: actCancel, reason: WithdrawnParent}},
		"there is none any more, sent":    {parent: parent(StateFailed), sent: true, want: &decision{do: actWait, in: time.Second}},
		"unknown":                         {parent: parent(StateUnknown), want: &decision{do: actWait, in: time.Second}},
		"unknown for the fourth time":     {parent: parent(StateUnknown), tries: 3, want: &decision{do: actWait, in: 8 * time.Second}},
		"another reference was confirmed": {parent: parent(StateUnknown, ok("A")), ref: "B", want: &decision{do: actWait, in: time.Second}},
	} {
		r := &Record{ID: "undo", Undoes: Undo{Operation: "op", Ref: c.ref}, Tries: c.tries}
		if c.sent {
			r.Attempts = []Attempt{{N: 1, Fate: FateOpen}}
		}
		effect, got := r.barred(c.parent)
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, "op", effect.Operation, name)
	}
}

// TestUndoneAmount: the ledger counts what a compensation is confirmed to have undone where that is more than was
// asked for, each reference once, and nothing that failed, came undone again or is in another unit (I9).
func TestUndoneAmount(t *testing.T) {
	at := func(ref string, rank Rank, amount Amount) Reference {
		return Reference{Ref: ref, Rank: rank, Terms: Terms{Amount: amount}}
	}
	for _, c := range []struct {
		name  string
		refs  []Reference
		cents int64
	}{
		{"nothing yet", nil, 500},
		{"as asked", []Reference{at("R", RankSucceeded, euros(500))}, 500},
		{"less", []Reference{at("R", RankSucceeded, euros(300))}, 500},
		{"twice", []Reference{at("R", RankSucceeded, euros(500)), at("S", RankSucceeded, euros(500))}, 1000},
		{"more than asked, disputed", []Reference{at("R", RankDisputed, euros(700))}, 700},
		{"one failed", []Reference{at("R", RankSucceeded, euros(500)), at("S", RankFailed, euros(500))}, 500},
		{"one bounced", []Reference{at("R", RankReversed, euros(900)), at("S", RankSucceeded, euros(500))}, 500},
		{"only known", []Reference{at("R", RankKnown, euros(900))}, 500},
		{"another unit", []Reference{at("R", RankDisputed, Minor(900, "USD"))}, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := refundOf(euros(500))
			r.References = c.refs
			got := r.undone(euros(500))
			assert.True(t, got.Equal(euros(c.cents)), "%v", got)
		})
	}
}

// TestSameEvidence: what of a reference moves its parent's ledger.
func TestSameEvidence(t *testing.T) {
	a := Reference{Ref: "R", Rank: RankSucceeded, Terms: Terms{Amount: euros(500)}}
	for name, change := range map[string]func(*Reference){
		"name":  func(r *Reference) { r.Ref = "S" },
		"rank":  func(r *Reference) { r.Rank = RankReversed },
		"terms": func(r *Reference) { r.Terms.Amount = euros(400) },
	} {
		b := a
		change(&b)
		assert.False(t, sameEvidence(a, b), name)
	}
	assert.True(t, sameEvidence(a, a))
}
