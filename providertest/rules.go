package providertest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/settle-go/settle"
)

// rules are what an adapter must keep. A failure prints the rule of its case.
var rules = map[string]string{
	"contract":  "the contract can be worked with and says where its facts come from",
	"key":       "Call.Key goes out byte for byte on every attempt, where the provider looks for it, and the provider honours it as promised (I2)",
	"reference": "Call.ID goes out with every request, so that a lookup can find the effect when no reply came",
	"account":   "requests go to the account that the contract names (I2)",
	"resend":    "nothing is sent again behind settle's back, but the same bytes under the same key (I6)",
	"no_answer": "no answer is no evidence: the adapter returns an error or Unclear (I4)",
	"not_sent":  "NotSent means that no byte left, and nothing else does",
	"answers":   "each documented answer is reported as what it proves",
	"lookup":    "a lookup finds what exists, says NotFound only after it has seen everything, and has no effect",
	"terms":     "Terms report what the provider said, raw and unscaled, never what was asked",
	"context":   "a call returns when its context ends, and its request may have landed all the same",
	"engine":    "an operation with the adapter ends as what happened",
	"secrets":   "no credential appears in an error or an observation (I16)",
	"panics":    "an adapter does not panic, whatever the provider says",
}

// tester is all that a case sees of its test, so that it can run against a
// recorder too. Fatalf must not return.
type tester interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// testCase is one case: the rule it checks, its name, and what an adapter that
// passes it has shown.
type testCase struct {
	rule   string
	name   string
	proves string
	run    func(t tester, e *env)
	// needs says why the case cannot run here, or "".
	needs func(e *env) string
}

func allCases() []testCase {
	return slices.Concat(
		contractCases(), keyCases(), resendCases(), noAnswerCases(), answerCases(), lookupCases(), pageCases(),
		termsCases(), contextCases(), secretCases(), engineCases(),
	)
}

func (c *testCase) id() string { return c.rule + "/" + c.name }

// reason is why c is not run, or "".
func (c *testCase) reason(e *env) string {
	if c.needs != nil {
		if why := c.needs(e); why != "" {
			return why
		}
	}
	return e.skip[c.id()]
}

func (c *testCase) check(t tester, e *env) { c.run(&reporter{tester: t, c: c}, e) }

// reporter puts the rule in front of a case's first failure.
type reporter struct {
	tester
	c    *testCase
	said atomic.Bool
}

// Errorf reports a failure and goes on.
func (r *reporter) Errorf(format string, args ...any) {
	r.Helper()
	r.tester.Errorf("%s", r.text(format, args))
}

// Fatalf reports a failure and ends the case.
func (r *reporter) Fatalf(format string, args ...any) {
	r.Helper()
	r.tester.Fatalf("%s", r.text(format, args))
}

func (r *reporter) text(format string, args []any) string {
	text := fmt.Sprintf(format, args...)
	if r.said.Swap(true) {
		return r.c.id() + ": " + text
	}
	return fmt.Sprintf("%s: %s\n\tthe rule: %s\n\tthe case: %s", r.c.id(), text, rules[r.c.rule], r.c.proves)
}

func needsKeys(e *env) string {
	if e.promise.Keys.Window == 0 {
		return "the contract honours no keys"
	}
	return ""
}

func needsLookup(e *env) string {
	if e.promise.Lookup == settle.NoLookup {
		return "the contract offers no lookup"
	}
	return ""
}

func needsPages(e *env) string {
	if why := needsLookup(e); why != "" {
		return why
	}
	if e.pageSize <= 0 {
		return "no Harness.PageSize"
	}
	return ""
}

// defaultPatience is how long a call may take that nothing holds up, so that an
// adapter which blocks fails instead of hanging.
const defaultPatience = 20 * time.Second
