package settle

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is kept of several observations that say the same in other words: always the same, whichever came first.

// TestAttemptKeepsItsFirstEnd: an end is replaced by one that says more, not by one that says the same.
func TestAttemptKeepsItsFirstEnd(t *testing.T) {
	for _, fact := range []Fact{NotSent, NotApplied, Declined} {
		r := operation(running(1))
		first, second := replyTo(1, fact, ""), replyTo(1, fact, "")
		first.code, second.code = "first", "second"
		r.apply(first)
		r.apply(second)
		assert.Equal(t, "first", r.Attempts[0].Code, fact)
	}
	// A person who says that nothing was applied closes open attempts, and rewrites none that ended.
	r := operation(try(1, FateOpen), try(2, FateNotApplied), try(3, FateRefused), try(4, FateNotSent))
	for i := range r.Attempts {
		r.Attempts[i].Code = "own"
	}
	r.apply(evidence{source: SourcePerson, fact: NotApplied, code: "ann"})
	assert.Equal(t, []string{"ann", "own", "own", "own"}, []string{r.Attempts[0].Code, r.Attempts[1].Code, r.Attempts[2].Code, r.Attempts[3].Code})
	assert.Equal(t, FateNotApplied, r.Attempts[0].Fate)
	assert.Equal(t, FateNotSent, r.Attempts[3].Fate)
}

// TestClosedAttempts: what spoke for a whole attempt counts as its refusal only while it says nothing better itself.
func TestClosedAttempts(t *testing.T) {
	for own, want := range map[Fate]Fate{
		FateOpen: FateRefused, FateUnderway: FateRefused, FateNotSent: FateNotSent, FateNotApplied: FateNotApplied, FateRefused: FateRefused, FateApplied: FateApplied,
	} {
		assert.Equal(t, want, Attempt{Fate: own, Closed: true}.Ended(), own)
		assert.Equal(t, own, Attempt{Fate: own}.Ended(), own)
	}
}

// TestReversalSaysWhy: a reversal with a word of its own replaces the one that was there, one without leaves it.
func TestReversalSaysWhy(t *testing.T) {
	for _, code := range []string{"", "bounced"} {
		r := operation(try(1, FateApplied))
		r.Code, r.Message = "before", "as it was"
		ev := eventOf(Reversed, "A")
		ev.code, ev.message = code, "account closed"
		r.apply(ev)
		if code == "" {
			assert.Equal(t, "before", r.Code)
			assert.Equal(t, "as it was", r.Message)
		} else {
			assert.Equal(t, code, r.Code)
			assert.Equal(t, "account closed", r.Message)
		}
	}
}

// TestTermsOfAReference: the terms seen with the highest rank are kept, and a reversal's count for nothing beside those of the
// success; of two with one rank always the same ones.
func TestTermsOfAReference(t *testing.T) {
	small, large := Terms{Amount: Minor(100, "EUR")}, Terms{Amount: Minor(900, "EUR")}
	require.Less(t, small.text(), large.text())
	of := func(fact Fact, terms Terms) evidence {
		ev := eventOf(fact, "A")
		ev.terms = terms
		return ev
	}
	for name, c := range map[string]struct {
		all  []evidence
		want Terms
	}{
		"a success before a decline":       {[]evidence{of(Applied, large), of(Declined, small)}, large},
		"a success after a decline":        {[]evidence{of(Declined, small), of(Applied, large)}, large},
		"two of one rank, larger first":    {[]evidence{of(Declined, large), of(Declined, small)}, small},
		"two of one rank, smaller first":   {[]evidence{of(Declined, small), of(Declined, large)}, small},
		"a reversal's beside a success's":  {[]evidence{of(Applied, large), of(Reversed, small)}, large},
		"a reversal's before a success's":  {[]evidence{of(Reversed, small), of(Applied, large)}, large},
		"a reversal's beside a decline's":  {[]evidence{of(Declined, large), of(Reversed, small)}, large},
		"a reversal's before a decline's":  {[]evidence{of(Reversed, small), of(Declined, large)}, large},
		"a reversal's and nothing else":    {[]evidence{of(Reversed, small)}, small},
		"none, then some":                  {[]evidence{of(Applied, Terms{}), of(Declined, small)}, small},
		"some, then none of a higher rank": {[]evidence{of(Declined, small), of(Applied, Terms{})}, small},
	} {
		r := operation(try(1, FateOpen))
		r.Terms = large
		for _, ev := range c.all {
			r.apply(ev)
		}
		require.Len(t, r.References, 1, name)
		assert.Equal(t, c.want.text(), r.References[0].Terms.text(), name)
	}
}

// TestVerdictsCode: a verdict quotes the provider's word for a failure, the reason of a review, and nothing else.
func TestVerdictsCode(t *testing.T) {
	for name, c := range map[string]struct {
		r    Record
		code string
		err  error
	}{
		"failed":                {Record{State: StateFailed, Code: "card_declined"}, "card_declined", ErrFailed},
		"unknown":               {Record{State: StateUnknown, Code: "card_declined"}, "", ErrUnknown},
		"unknown with a review": {Record{State: StateUnknown, Code: "x", Review: &Review{Reason: ReasonNoKeys}}, "", ErrUnknown},
		"review":                {Record{State: StateReview, Code: "x", Review: &Review{Reason: ReasonNoKeys}}, ReasonNoKeys, ErrReview},
	} {
		err := c.r.Err()
		require.ErrorIs(t, err, c.err, name)
		var own *Error
		require.ErrorAs(t, err, &own, name)
		assert.Equal(t, c.code, own.Code, name)
	}
}

// TestEffectsThatWere: effects are what was confirmed at some time, reversed or not.
func TestEffectsThatWere(t *testing.T) {
	r := operation(try(1, FateOpen))
	for ref, fact := range map[string]Fact{"A": Applied, "B": Declined, "C": Reversed, "D": Underway} {
		r.apply(eventOf(fact, ref))
	}
	var refs []string
	for _, e := range r.Effects() {
		refs = append(refs, e.Ref)
	}
	assert.Equal(t, []string{"A", "C"}, refs)
}
