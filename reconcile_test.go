package settle

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The contract of these tests: margin = lease 30 s + deadline 10 s + settle delay 60 s = 100 s.
const (
	testWindow = 24 * time.Hour
	testMargin = testLease + testGrace
)

// situationOf is the common one: keys for a day, an authoritative lookup that is not
// made yet, attempts that started an hour ago.
func situationOf(r *Record, change ...func(*situation)) situation {
	now := t0.Add(2 * time.Hour)
	s := situation{
		contract: Contract{
			Keys: Keys{Window: testWindow}, Lookup: Authoritative, Deadline: 10 * time.Second, SettleDelay: time.Minute,
		}.withDefaults(),
		record: r, early: now, late: now, lease: testLease, escalateAfter: DefaultEscalateAfter, sameAccount: true,
	}
	for _, f := range change {
		f(&s)
	}
	r.State = r.compute(true)
	return s
}

func noLookup(s *situation)         { s.contract.Lookup = NoLookup }
func noKeys(s *situation)           { s.contract.Keys = Keys{} }
func concurrentSafe(s *situation)   { s.contract.Keys.ConcurrentSafe = true }
func otherAccount(s *situation)     { s.sameAccount = false }
func sealedHere(s *situation)       { s.sealed = true }
func muted(s *situation)            { s.mute = true }
func hasSent(s *situation)          { s.sent = true }
func saw(l looked) func(*situation) { return func(s *situation) { s.looked = l } }
func at(d time.Duration) func(*situation) {
	return func(s *situation) { s.early, s.late = t0.Add(d), t0.Add(d) }
}
func tries(n int) func(*situation) { return func(s *situation) { s.record.Tries = n } }
func window(w time.Duration) func(*situation) {
	return func(s *situation) { s.contract.Keys.Window = w }
}

func wait(d time.Duration) decision { return decision{do: actWait, in: d} }

// waitForQuiet is a wait that is no try to recover.
func waitForQuiet(d time.Duration) decision { return decision{do: actWait, in: d, quiet: true} }
func review(reason string) decision         { return decision{do: actReview, reason: reason} }
func (d decision) String() string {
	switch d.do {
	case actWait:
		return "wait " + d.in.String()
	case actReview:
		return "review " + d.reason
	case actSend, actLookup, actCancel, actDone, actUnsend:
	}
	return string(d.do)
}

// TestDecide_Rules has the rules of section 4 one by one, in their order.
func TestDecide_Rules(t *testing.T) {
	open := func() *Record { return operation(try(1, FateOpen)) }
	loud := func() *Record { return operation(running(1)) }
	disputed := func() *Record {
		r := operation(try(1, FateApplied))
		r.apply(mismatched(eventOf(Applied, "A")))
		return r
	}
	reported := func(d time.Duration) *Record {
		r := operation(try(1, FateUnderway))
		r.Progress = &Progress{State: StateProcessing, Since: t0.Add(2*time.Hour - d)}
		return r
	}
	for _, c := range []struct {
		name string
		s    situation
		want decision
	}{
		{"settled: done", situationOf(operation(try(1, FateRefused)), otherAccount), decision{do: actDone}},
		{"1: another account: due for another process", situationOf(open(), otherAccount, tries(2)), wait(4 * time.Second)},
		{"1: review after EscalateAfter", situationOf(open(), otherAccount, tries(3)), review(ReasonAccount)},
		{"1: also before anything was sent", situationOf(operation(), otherAccount), wait(time.Second)},
		{"1: sealed: due for who has the key", situationOf(open(), sealedHere, tries(2)), wait(4 * time.Second)},
		{"1: sealed: review after EscalateAfter", situationOf(open(), sealedHere, tries(3)), review(ReasonSealed)},
		{"1: sealed: also before anything was sent", situationOf(operation(), sealedHere), wait(time.Second)},
		{"1: sealed: in review it stays quiet", situationOf(disputed(), sealedHere, tries(9)), wait(reviewInterval)},
		{"1: another account counts first", situationOf(open(), sealedHere, otherAccount, tries(3)), review(ReasonAccount)},
		{"1: and in review it stays quiet", situationOf(disputed(), otherAccount, tries(9)), wait(reviewInterval)},
		{"2: ask", situationOf(open()), decision{do: actLookup}},
		{"2: whatever the age", situationOf(open(), at(5000*time.Hour), tries(99)), decision{do: actLookup}},
		{"2: in review too", situationOf(disputed()), decision{do: actLookup}},
		{"2: but rarely", situationOf(disputed(), saw(lookedNothing)), wait(reviewInterval)},
		{"2: not when nothing may exist", situationOf(operation()), decision{do: actSend}},
		{"2: not when nothing was applied", situationOf(operation(try(1, FateNotApplied))), decision{do: actSend}},
		{"2: ask about an event of which no request is known", situationOf(func() *Record {
			r := operation()
			r.apply(eventOf(Underway, "A"))
			return r
		}()), decision{do: actLookup}},
		{"3: send again", situationOf(open(), saw(lookedNothing)), decision{do: actSend}},
		{"3: a failed lookup is no reason against it", situationOf(open(), saw(lookedFailed)), decision{do: actSend}},
		{"3: not when it was found", situationOf(open(), saw(lookedFound)), wait(time.Second)},
		{"3: not twice in a pass", situationOf(open(), saw(lookedNothing), hasSent), wait(time.Second)},
		{"3: not before quiet", situationOf(loud(), noLookup), waitForQuiet(testGrace)},
		{"3: unless concurrent requests are safe", situationOf(loud(), noLookup, concurrentSafe), decision{do: actSend}},
		{"3: not while the provider wants peace", situationOf(func() *Record {
			r := open()
			r.RetryAt = t0.Add(3 * time.Hour)
			return r
		}(), noLookup), wait(time.Hour)},
		{"4: a lookup beside a loud attempt", situationOf(loud(), saw(lookedNothing)), waitForQuiet(time.Second)},
		{"4: quiet before the next backoff: look then", situationOf(func() *Record {
			r := loud()
			r.ResumedAt = t0.Add(2*time.Hour - time.Minute)
			return r
		}(), saw(lookedNothing), tries(8)), waitForQuiet(testGrace)},
		{"4: a failed lookup, and no window", situationOf(open(), saw(lookedFailed), window(testMargin)), wait(time.Second)},
		{"4: processing is looked up", situationOf(reported(time.Hour), saw(lookedFound), tries(5)), wait(32 * time.Second)},
		{"4: until the contract's limit", situationOf(reported(24*time.Hour), saw(lookedFound)), review(ReasonProcessing)},
		{"4: escalation ends it", situationOf(open(), saw(lookedFailed), tries(3)), review(ReasonEscalated)},
		{"4: never before three tries", situationOf(open(), saw(lookedFailed), tries(2)), decision{do: actSend}},
		{"5: no keys", situationOf(open(), noLookup, noKeys), review(ReasonNoKeys)},
		{"5: no keys when it was made", situationOf(func() *Record {
			r := open()
			r.KeyWindow = 0
			return r
		}(), noLookup), review(ReasonNoKeys)},
		{"5: the window closed", situationOf(open(), saw(lookedNothing), window(testMargin)), review(ReasonWindow)},
		{"5: SendBefore passed", situationOf(func() *Record {
			r := open()
			r.SendBefore = t0.Add(2 * time.Hour)
			return r
		}(), saw(lookedNothing)), review(ReasonSendBefore)},
		{"5: the adapter is mute", situationOf(open(), saw(lookedNothing), muted), review(ReasonMute)},
		{"first send: not after SendBefore", situationOf(func() *Record {
			r := operation(try(1, FateNotSent))
			r.SendBefore = t0.Add(2 * time.Hour)
			return r
		}()), decision{do: actCancel}},
		{"5: the request was pruned", situationOf(open(), saw(lookedNothing), func(s *situation) { s.pruned = true }), review(ReasonPruned)},
		{"first send: the request was pruned", situationOf(operation(), func(s *situation) { s.pruned = true }), review(ReasonPruned)},
		{"first send: mute", situationOf(operation(), muted), review(ReasonMute)},
		{"first send: no keys are needed", situationOf(operation(), noKeys, noLookup), decision{do: actSend}},
		{"first send: no window opened", situationOf(operation(try(1, FateNotSent)), at(500*time.Hour), tries(99)), decision{do: actSend}},
		{"first send: RetryAfter", situationOf(func() *Record {
			r := operation(try(1, FateNotApplied))
			r.RetryAt = t0.Add(2*time.Hour + 7*time.Second)
			return r
		}()), wait(7 * time.Second)},
		{"first send: backs off", situationOf(operation(try(3, FateNotSent)), hasSent), wait(4 * time.Second)},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, decide(c.s))
			assert.Empty(t, breaksUnlessDone(c.s, decide(c.s)))
		})
	}
}

func breaksUnlessDone(s situation, d decision) string {
	if s.record.State.Settled() {
		return ""
	}
	return breaks(s, d)
}

// TestDecide_AccountChangedWhileProcessing: an operation that the provider was working on
// when the account moved is no exception to I10: after the contract's limit a person is asked.
func TestDecide_AccountChangedWhileProcessing(t *testing.T) {
	r := operation(try(1, FateUnderway))
	r.Progress = &Progress{State: StateProcessing, Since: t0}
	assert.Equal(t, actWait, decide(situationOf(r, otherAccount, at(20*time.Hour), tries(50))).do)
	assert.Equal(t, review(ReasonAccount), decide(situationOf(r, otherAccount, at(25*time.Hour), tries(50))))
}

// TestDecide_NotApplied_IsASafeNewAttempt: a person proved that no request had an effect. What
// the provider once called the payment does not stop the new attempt.
func TestDecide_NotApplied_IsASafeNewAttempt(t *testing.T) {
	for _, ref := range []string{"", "A"} {
		r := operation(try(1, FateOpen))
		r.apply(replyTo(1, Underway, ref))
		r.apply(observed(SourcePerson, NotApplied, ""))
		r.Review = nil
		require.Equal(t, StateCreated, r.compute(false))
		assert.Equal(t, decision{do: actSend}, decide(situationOf(r, noLookup)), "reference %q", ref)
		assert.Equal(t, decision{do: actSend}, decide(situationOf(r, saw(lookedNothing))), "reference %q", ref)
	}
}

// TestT10_QuietCountsFromTheEndInTime: takeover at the lease's end; the settle delay counts from
// there, not from the commit of the attempt.
func TestT10_QuietCountsFromTheEndInTime(t *testing.T) {
	r := operation(Attempt{N: 1, Start: t0, Grace: testGrace})
	r.AsOf = t0.Add(testLease + time.Second)
	r.endOpen() // the claim of the second worker
	end := r.AsOf
	require.Equal(t, end, r.Attempts[0].End)
	for _, c := range []struct {
		now  time.Time
		want decision
	}{{end, waitForQuiet(testGrace)}, {end.Add(testGrace - time.Microsecond), waitForQuiet(time.Millisecond)}, {end.Add(testGrace), decision{do: actSend}}} {
		assert.Equal(t, c.want, decide(situationOf(r, noLookup, func(s *situation) { s.early, s.late = c.now, c.now })), c.now)
	}
	r.AsOf = r.AsOf.Add(time.Hour)
	r.endOpen()
	assert.Equal(t, end, r.Attempts[0].End, "a later claim does not move it (T-37)")
}

// TestT11_NoResendWhileOneIsRunning: without a lookup the second worker waits for quiet,
// unless the provider guards concurrent requests under one key.
func TestT11_NoResendWhileOneIsRunning(t *testing.T) {
	assert.Equal(t, waitForQuiet(testGrace), decide(situationOf(operation(running(1)), noLookup)))
	assert.Equal(t, decision{do: actSend}, decide(situationOf(operation(running(1)), noLookup, concurrentSafe)))
	assert.Equal(t, waitForQuiet(testGrace), decide(situationOf(operation(try(1, FateOpen), running(2)), noLookup)), "every open attempt must be quiet")
}

// TestT12_WindowClosesEarly: not sent when the request could arrive after the key is
// forgotten: lease, deadline and settle delay before the window's end.
func TestT12_WindowClosesEarly(t *testing.T) {
	r := operation(try(1, FateOpen))
	closes := time.Hour + testWindow - testMargin // from t0
	assert.Equal(t, decision{do: actSend}, decide(situationOf(r, noLookup, at(closes-time.Microsecond))))
	assert.Equal(t, review(ReasonWindow), decide(situationOf(r, noLookup, at(closes))))
	r.KeyWindow = time.Hour // the shorter of stored and current contract holds
	assert.Equal(t, review(ReasonWindow), decide(situationOf(r, noLookup)))
	r.KeyWindow = Forever
	assert.Equal(t, review(ReasonWindow), decide(situationOf(r, noLookup, window(time.Hour))))
	assert.Equal(t, decision{do: actSend}, decide(situationOf(r, noLookup, window(Forever), at(10*365*24*time.Hour))))
	late := situationOf(r, noLookup, at(closes-time.Microsecond))
	late.late = t0.Add(closes) // the bounds of the store's time differ: the late one counts
	assert.Equal(t, review(ReasonWindow), decide(late))
}

// TestT13_AskBeforeReview: the key window is long past; ask first, then a person.
func TestT13_AskBeforeReview(t *testing.T) {
	r := operation(try(1, FateOpen))
	for _, n := range []int{0, 3, 100} {
		assert.Equal(t, decision{do: actLookup}, decide(situationOf(r, at(1000*time.Hour), tries(n))))
	}
	assert.Equal(t, review(ReasonWindow), decide(situationOf(r, at(1000*time.Hour), tries(0), saw(lookedNothing))))
}

// TestT14_NoEscalationOfWhatIsNotUnknown: a bank refund in its third day, and an operation
// that was registered while the worker was down, are not escalated after 15 minutes.
func TestT14_NoEscalationOfWhatIsNotUnknown(t *testing.T) {
	r := operation(try(1, FateUnderway))
	r.Progress = &Progress{State: StateProcessing, Since: t0}
	bank := func(s *situation) { s.contract.ProcessingLimit = 5 * 24 * time.Hour }
	assert.Equal(t, wait(5*time.Minute), decide(situationOf(r, bank, at(72*time.Hour), tries(800), saw(lookedFound))))
	assert.Equal(t, wait(5*time.Minute), decide(situationOf(r, bank, noLookup, at(72*time.Hour), tries(800))))
	assert.Equal(t, review(ReasonProcessing), decide(situationOf(r, bank, at(120*time.Hour), tries(800), saw(lookedFound))))
	assert.Equal(t, decision{do: actSend}, decide(situationOf(operation(), at(20*time.Minute), tries(50))))
}

// TestT15_AnotherAccount: nothing is asked or sent here, whatever is known.
func TestT15_AnotherAccount(t *testing.T) {
	for _, r := range []*Record{operation(), operation(running(1)), operation(try(1, FateOpen)), operation(try(1, FateNotSent)), operation(try(1, FateUnderway))} {
		assert.Equal(t, wait(time.Second), decide(situationOf(r, otherAccount)))
		assert.Equal(t, review(ReasonAccount), decide(situationOf(r, otherAccount, tries(3), at(3*time.Hour))))
		r.SendBefore = t0
		assert.Equal(t, wait(time.Second), decide(situationOf(r, otherAccount, tries(0))), "nor canceled: another process knows better")
	}
}

// TestT36_MarginHasTheSettleDelay: attempt 1 was applied; attempt 2 could be sent at the lease's
// end and arrive after the settle delay, when the key is forgotten.
func TestT36_MarginHasTheSettleDelay(t *testing.T) {
	c := Contract{Deadline: 10 * time.Second, SettleDelay: time.Minute, LookupLag: time.Hour, Lookup: Eventual}
	assert.Equal(t, testMargin, c.margin(testLease), "lease + deadline + settle delay")
	assert.Equal(t, testGrace+time.Hour, c.grace(), "an eventual lookup may be late")
	assert.Equal(t, testGrace, Contract{Deadline: 10 * time.Second, SettleDelay: time.Minute, LookupLag: time.Hour, Lookup: Authoritative}.grace())
	r := operation(try(1, FateApplied), try(2, FateOpen)) // the window runs from attempt 1 whatever its end
	assert.Equal(t, review(ReasonWindow), decide(situationOf(r, noLookup, at(time.Hour+testWindow-testMargin))))
	harmless := operation(try(1, FateNotSent), try(2, FateOpen))
	assert.Equal(t, decision{do: actSend}, decide(situationOf(harmless, noLookup, at(time.Hour+testWindow-testMargin))), "proven never sent opens no window (I6)")
}

// TestT37_QuietFollowsTheRealEnd: no end, no quiet, however long ago it started; the lease may have been
// renewed ever since.
func TestT37_QuietFollowsTheRealEnd(t *testing.T) {
	r := operation(running(1))
	assert.Equal(t, waitForQuiet(testGrace), decide(situationOf(r, noLookup, at(12*time.Hour))))
	c := claim{attempt: 1, asOf: t0.Add(12 * time.Hour)}
	r.endBefore(&c)
	assert.True(t, r.Attempts[0].End.IsZero(), "its own holder ends it when it knows")
	c.attempt = 2
	r.endBefore(&c)
	assert.Equal(t, c.asOf, r.Attempts[0].End)
	c.asOf = c.asOf.Add(time.Hour)
	r.endBefore(&c)
	assert.Equal(t, t0.Add(12*time.Hour), r.Attempts[0].End)
}

// TestT40_ReviewThenDecline_Decision: review because nothing safe was left; it asks now and then,
// never sends, and a late refusal ends it.
func TestT40_ReviewThenDecline_Decision(t *testing.T) {
	r := operation(try(1, FateOpen))
	r.Review = &Review{Reason: ReasonWindow}
	assert.Equal(t, decision{do: actLookup}, decide(situationOf(r)))
	assert.Equal(t, wait(reviewInterval), decide(situationOf(r, saw(lookedNothing))))
	assert.Equal(t, wait(reviewInterval), decide(situationOf(r, noLookup, window(Forever))))
	r.apply(lookupAt(t0.Add(3*time.Hour), Declined, ""))
	assert.Equal(t, decision{do: actDone}, decide(situationOf(r)))
}

// TestT44_WorkersWereDown: the process crashed after sending, workers were down for 20
// minutes: sent again under the key, no review, whether there is a lookup or not.
func TestT44_WorkersWereDown(t *testing.T) {
	r := operation(Attempt{N: 1, Start: t0, End: t0.Add(20 * time.Minute), Grace: testGrace})
	now := at(20*time.Minute + testGrace)
	assert.Equal(t, waitForQuiet(testGrace), decide(situationOf(r, noLookup, at(20*time.Minute))))
	assert.Equal(t, decision{do: actSend}, decide(situationOf(r, noLookup, now, tries(1))))
	assert.Equal(t, decision{do: actLookup}, decide(situationOf(r, now)))
	assert.Equal(t, decision{do: actSend}, decide(situationOf(r, now, saw(lookedNothing))))
	assert.Equal(t, review(ReasonEscalated), decide(situationOf(r, noLookup, now, tries(3))), "three tries, and 15 minutes")
}

// TestEscalation: never before three tries and never before EscalateAfter, both counted from the
// first open attempt or from the moment a person let automation go on.
func TestEscalation(t *testing.T) {
	r := operation(try(1, FateRefused), try(2, FateOpen)) // opened at t0+2h
	until := func(d time.Duration) func(*situation) { return at(2*time.Hour + d) }
	is := func(n int, d time.Duration) bool {
		return decide(situationOf(r, saw(lookedFailed), window(testMargin), tries(n), until(d))) == review(ReasonEscalated)
	}
	assert.False(t, is(2, 100*time.Hour))
	assert.False(t, is(3, DefaultEscalateAfter-time.Microsecond))
	assert.True(t, is(3, DefaultEscalateAfter))
	r.ResumedAt = t0.Add(3 * time.Hour)
	assert.False(t, is(3, time.Hour+DefaultEscalateAfter-time.Microsecond))
	assert.True(t, is(3, time.Hour+DefaultEscalateAfter))
}

// TestWindowOpen: its edges, and the two windows that need no arithmetic.
func TestWindowOpen(t *testing.T) {
	for _, c := range []struct {
		first, now     time.Time
		window, margin time.Duration
		want           bool
	}{
		{t0, t0, 0, 0, false},
		{t0, t0, -time.Hour, 0, false},
		{t0, t0.Add(1000000 * time.Hour), Forever, time.Hour, true},
		{time.Time{}, t0, time.Hour, time.Hour, true},
		{t0, t0, time.Hour, 10 * time.Minute, true},
		{t0, t0.Add(50*time.Minute - 1), time.Hour, 10 * time.Minute, true},
		{t0, t0.Add(50 * time.Minute), time.Hour, 10 * time.Minute, false},
		{t0, t0.Add(time.Hour), time.Hour, 10 * time.Minute, false},
		{t0, t0, time.Hour, time.Hour, false},
		{t0, t0.Add(time.Hour), Forever - 1, time.Hour, true},
	} {
		assert.Equal(t, c.want, windowOpen(c.first, c.now, c.window, c.margin), "%v", c)
	}
}

// TestBackoff: doubles from a second to five minutes, and stays there.
func TestBackoff(t *testing.T) {
	want := []int{1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for n, d := range want {
		assert.Equal(t, time.Duration(d)*time.Second, backoff(n), "try %d", n)
	}
	for _, n := range []int{-1 << 62, -1, 1000, 1 << 62} {
		assert.Positive(t, backoff(n))
		assert.LessOrEqual(t, backoff(n), 5*time.Minute)
	}
	seen := make(map[time.Duration]bool)
	for range 200 {
		d := jitter(time.Minute)
		require.GreaterOrEqual(t, d, time.Minute)
		require.LessOrEqual(t, d, 72*time.Second)
		seen[d] = true
	}
	assert.Greater(t, len(seen), 10)
	assert.LessOrEqual(t, jitter(0), time.Duration(1))
}

// TestRecoveryDoc holds docs/recovery.md to the numbers and the reasons of the code.
func TestRecoveryDoc(t *testing.T) {
	data, err := os.ReadFile("docs/recovery.md")
	require.NoError(t, err)
	doc := string(data)
	for _, row := range []string{
		fmt.Sprintf("| backoff before try n | %s, %s, %s, %s … at most %s,", backoff(1), backoff(2), backoff(3), backoff(4), backoff(99)),
		fmt.Sprintf("| `EscalateAfter` | %s from", DefaultEscalateAfter),
		fmt.Sprintf("| tries before an escalation | %d,", minTries),
		fmt.Sprintf("| lookups of an operation in review | every %s |", reviewInterval),
		fmt.Sprintf("| `ReviewWithin`, a person's time before the alarm | %s |", DefaultReviewWithin),
		fmt.Sprintf("| `ProcessingLimit`, unless the contract says otherwise | %s |", Contract{}.withDefaults().ProcessingLimit),
		fmt.Sprintf("with the default lease %s and, say, %s and %s: %s |", DefaultLease, 10*time.Second, time.Minute,
			Contract{Deadline: 10 * time.Second, SettleDelay: time.Minute}.margin(DefaultLease)),
	} {
		assert.Contains(t, doc, row)
	}
	_, table, ok := strings.Cut(doc, "## The reasons of a review")
	require.True(t, ok)
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, m[1])
	}
	source, err := os.ReadFile("reconcile.go")
	require.NoError(t, err)
	var reasons []string
	for _, m := range regexp.MustCompile(`(?m)^\tReason[A-Z]\w+ += "([a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		reasons = append(reasons, m[1])
	}
	require.NotEmpty(t, reasons)
	assert.ElementsMatch(t, reasons, documented)
}

// TestLimitsAreReached: a limit is passed when its time is over, to the microsecond, with a report or without one.
func TestLimitsAreReached(t *testing.T) {
	for name, progress := range map[string]*Progress{"no report": nil, "a report": {State: StateProcessing, Since: t0}} {
		for late, want := range map[time.Duration]bool{24 * time.Hour: true, 24*time.Hour - time.Microsecond: false} {
			r := operation(try(1, FateUnderway))
			r.CreatedAt, r.Progress = t0, progress
			s := situationOf(r, at(late))
			require.Equal(t, 24*time.Hour, s.contract.ProcessingLimit)
			assert.Equal(t, want, r.facts(s).pastProcessing, "%s, %v", name, late)
		}
	}
	for late, want := range map[time.Duration]bool{DefaultEscalateAfter: true, DefaultEscalateAfter - time.Microsecond: false} {
		r := operation(try(1, FateOpen))
		r.CreatedAt, r.Attempts[0].Start = t0, t0
		s := situationOf(r, at(late), tries(minTries))
		assert.Equal(t, want, r.facts(s).escalated, late)
		s = situationOf(r, at(late), tries(minTries-1))
		assert.False(t, r.facts(s).escalated, "never before %d tries", minTries)
	}
}

// TestNoWindowIsNeverOpen (I6): a provider that honours no key has no window, also for what was never sent.
func TestNoWindowIsNeverOpen(t *testing.T) {
	for _, first := range []time.Time{{}, t0, t0.Add(time.Hour)} {
		assert.False(t, windowOpen(first, t0, 0, time.Minute))
		assert.False(t, windowOpen(first, t0, -time.Hour, time.Minute))
	}
	assert.True(t, windowOpen(time.Time{}, t0, time.Hour, time.Minute))
	assert.True(t, windowOpen(t0, t0.Add(59*time.Minute-time.Microsecond), time.Hour, time.Minute))
	assert.False(t, windowOpen(t0, t0.Add(59*time.Minute), time.Hour, time.Minute))
}

// TestJitterOnlyAdds: no wait gets shorter, whether a millisecond or a month, and none by more than a fifth longer.
func TestJitterOnlyAdds(t *testing.T) {
	for _, d := range []time.Duration{0, time.Millisecond, time.Minute, 48 * time.Hour, 30 * 24 * time.Hour} {
		for range 50 {
			got := jitter(d)
			assert.GreaterOrEqual(t, got, d)
			assert.LessOrEqual(t, got, d+d/5)
		}
	}
	assert.Less(t, jitter(Forever), 2*365*24*time.Hour, "and none overflows")
}

// TestT20_ReversedBeforeQuiet: the reply was lost, and the lookup says that the refund came undone while a request may
// still land. Nothing is sent and nobody is asked: it waits until that is over, and then the same answer settles it.
func TestT20_ReversedBeforeQuiet(t *testing.T) {
	r, state := after(operation(try(1, FateOpen)), observed(SourceLookup, Reversed, "A"))
	assert.Equal(t, StateUnknown, state)
	concurrent := func(s *situation) { s.contract.Keys.ConcurrentSafe = true }
	r.Waits = 98
	loud := at(r.Attempts[0].End.Add(testGrace - time.Second).Sub(t0))
	got := decide(situationOf(&r, concurrent, loud, tries(100), saw(lookedFound)))
	assert.Equal(t, actWait, got.do)
	assert.True(t, got.quiet, "it is no try: nothing could be sent")
	assert.LessOrEqual(t, got.in, 5*time.Minute)
}
