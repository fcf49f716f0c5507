package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
)

// Harness says how to get at the store under test.
type Harness struct {
	// Open returns a handle on a new, empty, isolated store; it cleans up with t.
	// Required.
	Open func(t testing.TB) settle.Store
	// Reopen returns a second handle on the data behind s, as another process would
	// have. Nil skips the cases that need one.
	Reopen func(t testing.TB, s settle.Store) settle.Store
	// Begin opens a transaction of the application on s, of which tx is the store's
	// view; commit or rollback ends it. Nil skips the cases that need one.
	Begin func(t testing.TB, s settle.Store) (tx settle.Tx, commit, rollback func() error)
	// Skip names cases that the store is known not to pass, each with a reason
	// that is printed.
	Skip map[string]string
}

// Run checks the store, one subtest for each case, named clause/case.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("storetest: Harness.Open is required")
	}
	for _, name := range slices.Sorted(maps.Keys(h.Skip)) {
		if !slices.Contains(Cases(), name) {
			t.Errorf("storetest: Harness.Skip names %q, which is no case", name)
		}
	}
	var skipped []string
	for _, c := range allCases() {
		reason := c.reason(h)
		if reason != "" {
			skipped = append(skipped, c.id()+": "+reason)
		}
		t.Run(c.id(), func(t *testing.T) {
			if reason != "" {
				t.Skip(reason)
			}
			e := &env{store: h.Open(t)}
			if _, ok := e.store.(settle.Versioner); !ok && c.needs == needsVersion {
				skipped = append(skipped, c.id()+": the store is no settle.Versioner")
				t.Skip("the store is no settle.Versioner")
			}
			if h.Reopen != nil {
				e.reopen = func() settle.Store { return h.Reopen(t, e.store) }
			}
			if h.Begin != nil {
				e.begin = func() (settle.Tx, func() error, func() error) { return h.Begin(t, e.store) }
			}
			c.check(t, e)
		})
	}
	if len(skipped) > 0 {
		t.Logf("storetest: NOT checked:\n\t%s", strings.Join(skipped, "\n\t"))
	}
}

// Cases lists the cases by name, e.g. "S21/version_differs", in the order in
// which Run runs them.
func Cases() []string {
	var out []string
	for _, c := range allCases() {
		out = append(out, c.id())
	}
	return out
}

// tester is all that a case sees of its test, so that it can run against a
// recorder too. Fatalf must not return.
type tester interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// testCase is one case: the clause it checks, its name, and what a store that
// passes it has shown.
type testCase struct {
	clause string
	name   string
	proves string
	run    func(t tester, e *env)
	needs  need
}

// need says what a case wants of the harness beside Open, or of the store.
type need int

const (
	needsReopen need = iota + 1
	needsBegin
	needsVersion // that the store is a settle.Versioner
)

func allCases() []testCase {
	return slices.Concat(
		createCases(), versionCases(), updateCases(), claimCases(), valueCases(), nameCases(), listCases(),
		contextCases(), faultCases(), hookCases(), txCases(), raceCases(), reopenCases(),
	)
}

func (c *testCase) id() string { return c.clause + "/" + c.name }

// reason is why c is not run, or "".
func (c *testCase) reason(h Harness) string {
	switch {
	case c.needs == needsReopen && h.Reopen == nil:
		return "no Harness.Reopen"
	case c.needs == needsBegin && h.Begin == nil:
		return "no Harness.Begin"
	}
	return h.Skip[c.id()]
}

// patience bounds a case, so that a store that blocks fails instead of hanging;
// standstill is how long the store's clock may show one and the same time.
const (
	patience   = time.Minute
	standstill = 10 * time.Second
)

// check runs c on a fresh store.
func (c *testCase) check(t tester, e *env) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c.run(&reporter{tester: t, c: c, ctx: ctx}, e)
}

// reporter puts the clause in front of a case's first failure.
type reporter struct {
	tester
	c    *testCase
	ctx  context.Context
	said atomic.Bool
}

func (r *reporter) Context() context.Context { return r.ctx }

func (r *reporter) Errorf(format string, args ...any) {
	r.Helper()
	r.tester.Errorf("%s", r.text(format, args))
}

func (r *reporter) Fatalf(format string, args ...any) {
	r.Helper()
	r.tester.Fatalf("%s", r.text(format, args))
}

func (r *reporter) text(format string, args []any) string {
	text := fmt.Sprintf(format, args...)
	if r.said.Swap(true) {
		return r.c.id() + ": " + text
	}
	return fmt.Sprintf("%s: %s\n\tclause %s: %s\n\tthe case: %s", r.c.id(), text, r.c.clause, clauses[r.c.clause], r.c.proves)
}
