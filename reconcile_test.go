package settle

import (
	"fmt"
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
func review(reason string) decision { return decision{do: actReview, reason: reason} }
func (d decision) String() string {
	switch d.do {
	case actWait:
		return "wait " + d.in.String()
	case actReview:
		return "review " + d.reason
	case actSend, actLookup, actCancel, actDone:
	}
	return string(d.do)
}

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
	points := 0
	tree := decisionTree(grid, func(p []int) string {
		s := gridAt(p, Authoritative)
		d := decide(s)
		points++
		if problem := unsafe(s, d); problem != "" {
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

func where(p []int) string {
	var out string
	for i, d := range grid {
		out += d.name + "=" + d.values[p[i]] + " "
	}
	return out
}

// unsafe says which invariant d breaks. It is written from the design, not from decide.
func unsafe(s situation, d decision) string {
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
		assert.Contains(t, unsafe(c.s, c.d), c.want)
		assert.Equal(t, c.want == "", unsafe(c.s, c.d) == "", c.want)
	}
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
		{"3: not before quiet", situationOf(loud(), noLookup), wait(testGrace)},
		{"3: unless concurrent requests are safe", situationOf(loud(), noLookup, concurrentSafe), decision{do: actSend}},
		{"3: not while the provider wants peace", situationOf(func() *Record {
			r := open()
			r.RetryAt = t0.Add(3 * time.Hour)
			return r
		}(), noLookup), wait(time.Hour)},
		{"4: a lookup beside a loud attempt", situationOf(loud(), saw(lookedNothing)), wait(time.Second)},
		{"4: quiet before the next backoff: look then", situationOf(func() *Record {
			r := loud()
			r.ResumedAt = t0.Add(2*time.Hour - time.Minute)
			return r
		}(), saw(lookedNothing), tries(8)), wait(testGrace)},
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
			assert.Empty(t, unsafeUnlessDone(c.s, decide(c.s)))
		})
	}
}

func unsafeUnlessDone(s situation, d decision) string {
	if s.record.State.Settled() {
		return ""
	}
	return unsafe(s, d)
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
	}{{end, wait(testGrace)}, {end.Add(testGrace - time.Microsecond), wait(time.Millisecond)}, {end.Add(testGrace), decision{do: actSend}}} {
		assert.Equal(t, c.want, decide(situationOf(r, noLookup, func(s *situation) { s.early, s.late = c.now, c.now })), c.now)
	}
	r.AsOf = r.AsOf.Add(time.Hour)
	r.endOpen()
	assert.Equal(t, end, r.Attempts[0].End, "a later claim does not move it (T-37)")
}

// TestT11_NoResendWhileOneIsRunning: without a lookup the second worker waits for quiet,
// unless the provider guards concurrent requests under one key.
func TestT11_NoResendWhileOneIsRunning(t *testing.T) {
	assert.Equal(t, wait(testGrace), decide(situationOf(operation(running(1)), noLookup)))
	assert.Equal(t, decision{do: actSend}, decide(situationOf(operation(running(1)), noLookup, concurrentSafe)))
	assert.Equal(t, wait(testGrace), decide(situationOf(operation(try(1, FateOpen), running(2)), noLookup)), "every open attempt must be quiet")
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
	assert.Equal(t, wait(testGrace), decide(situationOf(r, noLookup, at(12*time.Hour))))
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
	assert.Equal(t, wait(testGrace), decide(situationOf(r, noLookup, at(20*time.Minute))))
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
	want := []time.Duration{1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for n, d := range want {
		assert.Equal(t, d*time.Second, backoff(n), "try %d", n)
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
