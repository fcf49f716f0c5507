package settle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grid is everything that decide depends on, as conditions with few values each.
var grid = []dim{
	{"account", []string{"same", "other"}},
	{"in review", []string{"no", "yes"}},
	{"progress", []string{"none", "reported", "reported for ever"}},
	{"attempts", []string{"none", "not sent", "loud", "loud for 20s", "quiet", "quiet+loud", "quiet+not sent", "underway"}},
	{"effort", []string{"young", "young+3 tries", "old", "old+3 tries"}},
	{"lookup", []string{"none", "not made", "found", "nothing", "failed"}},
	{"keys", []string{"none", "open", "open+safe", "forever", "forever+safe", "within margin", "within margin+safe", "forgotten"}},
	{"SendBefore", []string{"none", "passed"}},
	{"adapter mute", []string{"no", "yes"}},
	{"sent", []string{"no", "yes"}},
	{"RetryAt", []string{"none", "in 1h"}},
}

// gridAt builds the situation of one point of the grid.
func gridAt(p []int, lookup LookupPromise) situation {
	v := func(name string) string {
		for i, d := range grid {
			if d.name == name {
				return d.values[p[i]]
			}
		}
		panic(name)
	}
	now := t0.Add(48 * time.Hour)
	s := situationOf(operation(), func(s *situation) { s.early, s.late = now, now })
	r := s.record
	age, effort := 5*time.Minute, v("effort")
	if effort == "old" || effort == "old+3 tries" {
		age = 20 * time.Minute
	}
	if effort == "young+3 tries" || effort == "old+3 tries" {
		r.Tries = 3
	}
	r.CreatedAt = now.Add(-age)
	start := now.Add(-age)
	open := Attempt{N: 1, Start: start, Grace: testGrace}
	ended := open
	ended.End = now.Add(20*time.Second - testGrace)
	quiet := open
	quiet.End = now.Add(-testGrace)
	second := func(a Attempt, f Fate) Attempt {
		a.N, a.Fate = 2, f
		return a
	}
	switch v("attempts") {
	case "not sent":
		r.Attempts = []Attempt{second(quiet, FateNotSent)}
	case "loud":
		r.Attempts = []Attempt{open}
	case "loud for 20s":
		r.Attempts = []Attempt{ended}
	case "quiet":
		r.Attempts = []Attempt{quiet}
	case "quiet+loud":
		r.Attempts = []Attempt{quiet, second(open, FateOpen)}
	case "quiet+not sent":
		r.Attempts = []Attempt{quiet, second(open, FateNotSent)}
	case "underway":
		r.Attempts = []Attempt{second(quiet, FateUnderway)}
	}
	switch v("keys") {
	case "none":
		s.contract.Keys.Window = 0
	case "open", "open+safe":
		s.contract.Keys.Window = age + testMargin + time.Microsecond
	case "forever", "forever+safe":
		s.contract.Keys.Window, r.KeyWindow = Forever, Forever
	case "within margin", "within margin+safe":
		s.contract.Keys.Window = age + testMargin
	case "forgotten":
		s.contract.Keys.Window = age - time.Second
	}
	switch v("keys") {
	case "open+safe", "forever+safe", "within margin+safe":
		s.contract.Keys.ConcurrentSafe = true
	}
	s.contract.Lookup = lookup
	switch v("lookup") {
	case "none":
		s.contract.Lookup = NoLookup
	case "found", "nothing", "failed":
		s.looked = looked(v("lookup"))
	}
	switch v("progress") {
	case "reported":
		r.Progress = &Progress{State: StateProcessing, Since: start}
	case "reported for ever":
		r.Progress = &Progress{State: StateProcessing, Since: now.Add(-s.contract.ProcessingLimit)}
	}
	if v("in review") == "yes" {
		r.Review = &Review{Reason: ReasonEscalated}
	}
	if v("SendBefore") == "passed" {
		r.SendBefore = now
	}
	if v("RetryAt") != "none" {
		r.RetryAt = now.Add(time.Hour)
	}
	s.sameAccount, s.sent, s.mute = v("account") == "same", v("sent") == "yes", v("adapter mute") == "yes"
	r.State = r.compute(true)
	return s
}

// TestDecide_Golden writes the whole recovery table down, and checks on every point of
// it what must hold whatever the rules are.
func TestDecide_Golden(t *testing.T) {
	t.Parallel()
	points := 0
	tree := decisionTree(grid, func(p []int) string {
		s := gridAt(p, Authoritative)
		d := decide(s)
		points++
		if problem := breaks(s, d); problem != "" {
			t.Fatalf("%s: %s at %s", d, problem, where(p))
		}
		if points%7 == 0 { // an eventual lookup differs in grace only, which the attempts carry
			require.Equal(t, d, decide(gridAt(p, Eventual)), where(p))
		}
		switch {
		case d.do == actWait && s.record.State == StateReview && d.in == reviewInterval:
			return "wait (review)"
		case d.do == actWait && d.in == backoff(s.record.Tries+1):
			return "wait (backoff)"
		}
		return d.String()
	})
	t.Logf("%d points", points)
	golden(t, "testdata/recovery/table.txt", tableHead(grid)+tree)
}

// onGrid checks one invariant on every point of the grid, and that the points where it could be broken were there.
func onGrid(t *testing.T, id string, tempting func(s situation, d decision) bool) {
	t.Helper()
	n := 0
	decisionTree(grid, func(p []int) string {
		s := gridAt(p, Authoritative)
		d := decide(s)
		if tempting(s, d) {
			n++
		}
		if problem := breaks(s, d); strings.HasPrefix(problem, id) {
			t.Fatalf("%s: %s at %s", d, problem, where(p))
		}
		return ""
	})
	require.Greater(t, n, 100, "the grid tempts nobody")
}

// TestI2_NothingForAnotherAccount: nothing is asked, sent or canceled for an account that is not ours.
func TestI2_NothingForAnotherAccount(t *testing.T) {
	t.Parallel()
	onGrid(t, "I2", func(s situation, _ decision) bool { return !s.sameAccount })
}

// TestI6_InsideTheWindow: nothing that may have left is sent again before it is quiet, past the window, or
// without keys.
func TestI6_InsideTheWindow(t *testing.T) {
	t.Parallel()
	onGrid(t, "I6", func(s situation, d decision) bool { return d.do == actSend && s.record.mayHaveLeft() })
}

// TestI10_EveryDecisionHasATimeOrAPerson: whatever is decided about an unsettled operation.
func TestI10_EveryDecisionHasATimeOrAPerson(t *testing.T) {
	t.Parallel()
	onGrid(t, "I10", func(_ situation, d decision) bool { return d.do == actWait || d.do == actReview })
}

func where(p []int) string {
	var out string
	for i, d := range grid {
		out += d.name + "=" + d.values[p[i]] + " "
	}
	return out
}

// breaks says which invariant d breaks. It is written from the design, not from decide.
func breaks(s situation, d decision) string {
	r := s.record
	var left, loud bool
	var first time.Time
	for _, a := range r.Attempts {
		if a.Fate == FateNotSent || a.Fate == FateNotApplied {
			continue
		}
		left = true
		if first.IsZero() {
			first = a.Start
		}
		if a.Fate == FateOpen && (a.End.IsZero() || s.early.Before(a.End.Add(a.Grace))) {
			loud = true
		}
	}
	window := min(s.contract.Keys.Window, r.KeyWindow)
	closes := first.Add(window).Add(-s.lease - s.contract.Deadline - s.contract.SettleDelay)
	switch {
	case d.do == actDone:
		return "I10: an unsettled operation is given up"
	case d.do == actWait && d.in <= 0:
		return "I10: no time to look again"
	case d.do == actReview && d.reason == "":
		return "I10: a review without a reason"
	case d.do == actReview && r.Review != nil:
		return "a review is no new review"
	case !s.sameAccount && (d.do == actSend || d.do == actLookup || d.do == actCancel):
		return "I2: something is asked, sent or decided for another account"
	case d.do == actLookup && (s.contract.Lookup == NoLookup || s.looked != lookedNot):
		return "no lookup to make"
	case d.do == actCancel && (left || r.Progress != nil):
		return "canceled, and something may have left"
	case d.do == actCancel && s.late.Before(r.SendBefore):
		return "canceled before its SendBefore"
	case d.do != actSend:
		return ""
	case r.Review != nil:
		return "a review starts to send by itself"
	case s.mute:
		return "I2: sent by an adapter that ignores the key"
	case !r.SendBefore.IsZero() && !s.late.Before(r.SendBefore):
		return "sent after its SendBefore"
	case r.RetryAt.After(s.early):
		return "sent before RetryAt"
	case !left:
		return ""
	case window == 0:
		return "I6: sent again to a provider that honours no keys"
	case window != Forever && !s.late.Before(closes):
		return "I6: sent again when the key may be forgotten"
	case loud && !s.contract.Keys.ConcurrentSafe:
		return "I6: sent again before the former request was quiet"
	case s.contract.Lookup != NoLookup && s.looked == lookedNot:
		return "sent again without asking first"
	case s.looked == lookedFound:
		return "sent again although the provider knows it"
	}
	return ""
}

// TestDecide_GridCanFail: the checks of the grid see each kind of unsafe decision.
func TestDecide_GridCanFail(t *testing.T) {
	send := decision{do: actSend}
	for _, c := range []struct {
		s    situation
		d    decision
		want string
	}{
		{situationOf(operation(try(1, FateOpen)), noLookup), send, ""},
		{situationOf(operation()), decision{do: actDone}, "I10"},
		{situationOf(operation()), wait(0), "I10"},
		{situationOf(operation()), review(""), "I10"},
		{situationOf(operation(), otherAccount), send, "I2"},
		{situationOf(operation(), muted), send, "I2"},
		{situationOf(operation(try(1, FateOpen)), noLookup, noKeys), send, "I6"},
		{situationOf(operation(try(1, FateOpen)), noLookup, window(time.Hour+testMargin)), send, "I6"},
		{situationOf(operation(running(1)), noLookup), send, "I6"},
		{situationOf(operation(try(1, FateOpen))), send, "sent again without"},
		{situationOf(operation(try(1, FateOpen)), saw(lookedFound)), send, "sent again although"},
		{situationOf(operation(try(1, FateOpen))), decision{do: actCancel}, "canceled"},
	} {
		assert.Contains(t, breaks(c.s, c.d), c.want)
		assert.Equal(t, c.want == "", breaks(c.s, c.d) == "", c.want)
	}
}

// TestDecide_IsPure: it changes nothing that it looks at.
func TestDecide_IsPure(t *testing.T) {
	rng := seeded(t)
	for range 2000 {
		p := make([]int, len(grid))
		for i, d := range grid {
			p[i] = rng.IntN(len(d.values))
		}
		s := gridAt(p, Authoritative)
		before := fmt.Sprintf("%#v", s.record.Clone().Attempts)
		copied := s.record.Clone()
		d := decide(s)
		require.Equal(t, before, fmt.Sprintf("%#v", s.record.Attempts))
		require.Equal(t, copied, *s.record)
		require.Equal(t, d, decide(s))
	}
}
