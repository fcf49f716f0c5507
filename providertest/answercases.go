package providertest

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/settle-go/settle"
)

func answerCases() []testCase {
	group := func(name, proves, missing string, in func(Answer) bool) testCase {
		return testCase{
			rule: "answers", name: name, proves: proves,
			run: func(t tester, e *env) { e.givenAnswers(t, in) },
			needs: func(e *env) string {
				if !slices.ContainsFunc(e.answers, in) {
					return missing
				}
				return ""
			},
		}
	}
	refusal := func(a Answer) bool { return a.Want == settle.Declined }
	conflict := func(a Answer) bool { return a.Status == http.StatusConflict }
	harmless := func(a Answer) bool { return a.Want == settle.NotApplied }
	return []testCase{
		group("refusals", "each documented refusal is Declined", "no Harness.Answers with Want Declined", refusal),
		group("conflicts", "a 409 is what the provider means by it, and never a failure", "no Harness.Answers with Status 409", conflict),
		group("not_applied", "an answer that rules out an effect says so, with the time to wait", "no Harness.Answers with Want NotApplied", harmless),
		group("others", "every other documented answer is what it proves", "no other Harness.Answers", func(a Answer) bool {
			return !refusal(a) && !conflict(a) && !harmless(a)
		}),
	}
}

// givenAnswers gives the adapter every answer of a group.
func (e *env) givenAnswers(t tester, in func(Answer) bool) {
	t.Helper()
	for _, a := range e.answers {
		if !in(a) {
			continue
		}
		w := e.open()
		c := e.next()
		body := a.Body
		var first result
		if a.Again {
			first = e.executed(t, w, c)
			c.attempt = 2
			body = strings.ReplaceAll(body, "{ref}", first.obs.Ref)
		}
		w.onCreate(func(x *exchange) {
			h := http.Header{"Content-Type": {jsonType}}
			for name, value := range maps.All(a.Header) {
				h.Set(name, value)
			}
			x.write(answered{a.Status, h, []byte(body)})
		})
		r := e.submit(t, w, c)
		switch {
		case a.Want == settle.Unclear && r.noAnswer():
		case r.err != nil || r.fact != a.Want:
			t.Errorf("%q (status %d): the adapter reports %s, want %s", a.Name, a.Status, r, result{fact: a.Want})
		case a.Again && r.seen() && r.obs.Ref != first.obs.Ref:
			t.Errorf("%q: the adapter names the effect %q, it is %q", a.Name, r.obs.Ref, first.obs.Ref)
		case a.RetryAfter > 0 && r.obs.RetryAfter != a.RetryAfter:
			t.Errorf("%q: RetryAfter is %v, the answer says %v", a.Name, r.obs.RetryAfter, a.RetryAfter)
		}
		if a.Status == http.StatusConflict && r.fact == settle.Declined && r.err == nil {
			t.Errorf("%q: a conflict was taken for a refusal; the request it collided with may have had its effect", a.Name)
		}
	}
}
