package settle

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Helpers of the tests of the policy: what evidence means (evidence.go) and what happens
// to an operation that is not settled (reconcile.go). All of it is pure; nothing here
// makes an engine work, sleeps or looks at a clock.

var updateGolden = flag.Bool("update", false, "write the golden files of the policy anew")

// golden compares got with a file, and writes it under -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *updateGolden {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
		return
	}
	want, err := os.ReadFile(filepath.Clean(path))
	require.NoError(t, err)
	w, g := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		switch {
		case i >= len(w):
			t.Fatalf("%s:%d: not in the file: %s", path, i+1, g[i])
		case i >= len(g):
			t.Fatalf("%s:%d: only in the file: %s", path, i+1, w[i])
		case w[i] != g[i]:
			t.Fatalf("%s:%d:\n have %s\n want %s\n(-update writes it anew; read the diff)", path, i+1, g[i], w[i])
		}
	}
}

// dim is one condition of a table, with every value it is tried with.
type dim struct {
	name   string
	values []string
}

// decisionTree evaluates f on the whole grid of dims and writes it as a tree: a
// condition that changes nothing is left out, and values with the same subtree share
// a line. So a table over a hundred thousand combinations can be read, and a rule that
// moves changes lines of it.
func decisionTree(dims []dim, f func(at []int) string) string {
	at := make([]int, len(dims))
	var walk func(depth int) string
	walk = func(depth int) string {
		if depth == len(dims) {
			return f(at)
		}
		var subs, names []string
		index := make(map[string]int)
		for i, v := range dims[depth].values {
			at[depth] = i
			sub := walk(depth + 1)
			j, ok := index[sub]
			if !ok {
				j = len(subs)
				index[sub] = j
				subs, names = append(subs, sub), append(names, "")
			} else {
				names[j] += ", "
			}
			names[j] += v
		}
		if len(subs) == 1 {
			return subs[0]
		}
		var b strings.Builder
		for j, sub := range subs {
			b.WriteString(dims[depth].name + ": " + names[j])
			if !strings.Contains(sub, "\n") {
				b.WriteString(" => " + sub + "\n")
				continue
			}
			b.WriteString("\n")
			for line := range strings.Lines(sub) {
				b.WriteString("  " + line)
			}
		}
		return b.String()
	}
	return walk(0)
}

// Store times of the policy's tests.
var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	testLease = 30 * time.Second
	testGrace = 70 * time.Second // request deadline 10 s + settle delay 1 min
)

var (
	asked   = Terms{Account: "acct", Amount: Minor(1000, "EUR")}
	matches = Terms{Account: "acct", Amount: Minor(1000, "EUR")}
	differs = Terms{Account: "acct", Amount: Minor(700, "EUR")}
	little  = Terms{Account: "acct", Amount: Minor(100, "EUR")} // before the others in the order of their texts
)

// operation is a record that asked for 10 euros, with attempts.
func operation(attempts ...Attempt) *Record {
	r := &Record{
		ID: "op", Kind: "charge", Terms: asked, KeyWindow: 24 * time.Hour, Account: "p/acct//", ProviderKey: "k",
		CreatedAt: t0, AsOf: t0, Version: 1, Attempts: attempts,
	}
	r.State = r.compute(false)
	return r
}

// try is attempt n: it started n hours after t0 and ended in time within 20 seconds.
func try(n int, fate Fate) Attempt {
	start := t0.Add(time.Duration(n) * time.Hour)
	return Attempt{N: n, Start: start, End: start.Add(20 * time.Second), Grace: testGrace, Fate: fate}
}

// running is attempt n without an end: its holder may be at work, or dead.
func running(n int) Attempt {
	a := try(n, FateOpen)
	a.End = time.Time{}
	return a
}

func replyTo(n int, fact Fact, ref string) evidence {
	ev := observed(SourceReply, fact, ref)
	ev.attempt, ev.honoured, ev.began = n, true, t0.Add(time.Duration(n)*time.Hour)
	return ev
}

func lookupAt(began time.Time, fact Fact, ref string) evidence {
	ev := observed(SourceLookup, fact, ref)
	ev.began = began
	return ev
}

func eventOf(fact Fact, ref string) evidence { return observed(SourceEvent, fact, ref) }

// observed is evidence with the terms that were asked for, if it confirms something.
func observed(source Source, fact Fact, ref string) evidence {
	ev := evidence{source: source, fact: fact, ref: ref, at: t0.Add(10 * time.Hour), code: "code"}
	if fact == Applied {
		ev.terms = matches
	}
	return ev
}

func mismatched(ev evidence) evidence {
	ev.terms = differs
	return ev
}

func sequenced(ev evidence, n int64) evidence {
	ev.sequence = n
	return ev
}

// after merges evidence into a copy of r, in order, and gives the state without a live claim.
func after(r *Record, evs ...evidence) (Record, State) {
	out := r.Clone()
	for _, ev := range evs {
		out.apply(ev)
	}
	out.State = out.compute(false)
	return out, out.State
}

// permutations calls f with every order of xs.
func permutations[T any](xs []T, f func([]T)) {
	var walk func(k int)
	xs = append([]T(nil), xs...)
	walk = func(k int) {
		if k == len(xs) {
			f(xs)
			return
		}
		for i := k; i < len(xs); i++ {
			xs[k], xs[i] = xs[i], xs[k]
			walk(k + 1)
			xs[k], xs[i] = xs[i], xs[k]
		}
	}
	walk(0)
}

// inAllOrders asserts that every order of evs, also with each piece twice, ends in want,
// and returns the record of one order.
func inAllOrders(t *testing.T, r *Record, want State, evs ...evidence) Record {
	t.Helper()
	var out Record
	permutations(evs, func(order []evidence) {
		var state State
		out, state = after(r, order...)
		require.Equal(t, want, state, "in the order %s", tell(order))
		twice, state := after(r, append(append([]evidence(nil), order...), order...)...)
		require.Equal(t, want, state, "repeated, in the order %s", tell(order))
		require.ElementsMatch(t, out.Alarms(), twice.Alarms(), "in the order %s", tell(order))
	})
	return out
}

// tell writes evidence for people.
func tell(evs []evidence) string {
	var parts []string
	for _, ev := range evs {
		s := fmt.Sprintf("%s says %s", ev.source, ev.fact)
		if ev.fact == Unclear {
			s = fmt.Sprintf("%s without answer", ev.source)
		}
		if ev.attempt > 0 {
			s += fmt.Sprintf(" #%d", ev.attempt)
		}
		if ev.ref != "" {
			s += " " + ev.ref
		}
		if !ev.terms.IsZero() {
			s += " " + ev.terms.Amount.String()
		}
		if ev.sequence > 0 {
			s += fmt.Sprintf(" seq %d", ev.sequence)
		}
		parts = append(parts, s)
	}
	return "{" + strings.Join(parts, "; ") + "}"
}

// seeded makes the random numbers of one test and prints how to have them again.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SETTLE_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err)
	}
	t.Logf("SETTLE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable, not secret
}

func pick[T any](rng *rand.Rand, xs ...T) T { return xs[rng.IntN(len(xs))] }
