//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// findings is everything that is known when all is over: from the provider, from the
// database, and from the callers.
type findings struct {
	ops       int
	effects   []providertest.Object    // of the provider's ledger
	records   []settle.Record          // all of the store
	settledIn map[string]time.Duration // by record: from registration to settled
	shipments map[string]int           // by subject
	orders    map[string]int           // by subject: rows committed together with an operation
	said      map[int][]string         // what callers were told of an operation
}

// judged counts what must not be, and holds a line for each.
type judged struct {
	duplicates, lost, unsettled, wrong, inReview int
	lines                                        []string
	ages                                         []time.Duration
}

func (j *judged) ok() bool { return j.duplicates+j.lost+j.unsettled+j.wrong == 0 }

// judge holds everything against the provider's ledger. An effect belongs to the operation
// whose amount it has, whatever key or reference it came with.
func judge(f findings) *judged {
	j := &judged{}
	effects := map[int64][]providertest.Object{}
	for _, o := range f.effects {
		effects[o.Amount] = append(effects[o.Amount], o)
	}
	records := map[string][]settle.Record{}
	for _, r := range f.records {
		records[r.Subject] = append(records[r.Subject], r)
	}
	add := func(n *int, op int, format string, args ...any) {
		*n++
		j.lines = append(j.lines, fmt.Sprintf("%s: ", subject(op))+fmt.Sprintf(format, args...))
	}
	for n := range f.ops {
		s := subject(n)
		had := effects[amount(n)]
		delete(effects, amount(n))
		if len(had) > 1 {
			add(&j.duplicates, n, "%d effects, with keys %q and %q", len(had), had[0].Key, had[1].Key)
		}
		found := records[s]
		delete(records, s)
		if len(f.said[n]) == 0 {
			add(&j.lost, n, "no caller ever got an answer")
		}
		if len(found) != 1 {
			if len(found) > 1 {
				add(&j.wrong, n, "%d records", len(found))
			} else {
				add(&j.lost, n, "callers were told %q, there are %d effects and no record", f.said[n], len(had))
			}
			continue
		}
		r := found[0]
		switch state := r.State; {
		case state == settle.StateReview:
			j.inReview++
		case !state.Settled():
			add(&j.unsettled, n, "still %s, with %d effects", state, len(had))
		case state == settle.StateSucceeded && len(had) == 0:
			add(&j.lost, n, "succeeded, and the provider knows nothing of it")
		case state != settle.StateSucceeded && len(had) > 0:
			add(&j.wrong, n, "%s, and the effect exists", state)
		}
		if slices.Contains(f.said[n], saidDone) && len(had) == 0 {
			add(&j.lost, n, "a caller was told that it is done")
		}
		if slices.Contains(f.said[n], saidFailed) && len(had) > 0 {
			add(&j.wrong, n, "a caller was told that it failed, and the effect exists")
		}
		if ships, want := f.shipments[s], btoi(r.State == settle.StateSucceeded); ships != want {
			add(&j.wrong, n, "%s, and shipped %d times", r.State, ships)
		}
		if n%3 == 2 && f.orders[s] != 1 {
			add(&j.wrong, n, "its row was committed %d times", f.orders[s])
		}
		if r.State.Settled() {
			j.ages = append(j.ages, f.settledIn[r.ID])
		}
	}
	for a, had := range effects {
		add(&j.wrong, int(a)-1000, "%d effects of an operation that nobody asked for", len(had))
	}
	for s, found := range records {
		j.wrong += len(found)
		j.lines = append(j.lines, s+": a record that nobody asked for")
	}
	slices.Sort(j.ages)
	return j
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// age is a quantile of the time from registration to settled.
func (j *judged) age(q float64) time.Duration {
	if len(j.ages) == 0 {
		return 0
	}
	return j.ages[min(int(q*float64(len(j.ages))), len(j.ages)-1)].Round(time.Millisecond)
}

// TestOracle: each thing that can be wrong is found, and nothing else.
func TestOracle(t *testing.T) {
	t.Parallel()
	object := func(n int) providertest.Object { return providertest.Object{Amount: amount(n)} }
	good := func() findings {
		f := findings{ops: 3, shipments: map[string]int{}, orders: map[string]int{subject(2): 1}, said: map[int][]string{}}
		for n := range f.ops {
			f.effects = append(f.effects, object(n))
			f.records = append(f.records, settle.Record{ID: subject(n), Subject: subject(n), State: settle.StateSucceeded})
			f.shipments[subject(n)] = 1
			f.said[n] = []string{saidStored}
		}
		return f
	}
	for _, c := range []struct {
		name                               string
		spoil                              func(f *findings)
		duplicates, lost, unsettled, wrong int
	}{
		{"all is well", func(*findings) {}, 0, 0, 0, 0},
		{"an effect twice", func(f *findings) { f.effects = append(f.effects, object(1)) }, 1, 0, 0, 0},
		{"success without effect", func(f *findings) { f.effects = f.effects[1:] }, 0, 1, 0, 0},
		{"told of success without effect", func(f *findings) {
			f.effects, f.said[0], f.records[0].State = f.effects[1:], []string{saidDone}, settle.StateReview
			f.shipments[subject(0)] = 0
		}, 0, 1, 0, 0},
		{"a record lost", func(f *findings) { f.records = f.records[1:] }, 0, 1, 0, 0},
		{"a record twice", func(f *findings) { f.records = append(f.records, f.records[0]) }, 0, 0, 0, 1},
		{"never answered", func(f *findings) { f.said[1] = nil }, 0, 1, 0, 0},
		{"left open", func(f *findings) { f.records[0].State = settle.StateUnknown; f.shipments[subject(0)] = 0 }, 0, 0, 1, 0},
		{"failed with effect", func(f *findings) { f.records[0].State = settle.StateFailed; f.shipments[subject(0)] = 0 }, 0, 0, 0, 1},
		{"told of failure with effect", func(f *findings) { f.said[0] = []string{saidFailed} }, 0, 0, 0, 1},
		{"shipped twice", func(f *findings) { f.shipments[subject(0)] = 2 }, 0, 0, 0, 1},
		{"never shipped", func(f *findings) { delete(f.shipments, subject(0)) }, 0, 0, 0, 1},
		{"operation without its row", func(f *findings) { delete(f.orders, subject(2)) }, 0, 0, 0, 1},
		{"an effect out of nowhere", func(f *findings) { f.effects = append(f.effects, object(7)) }, 0, 0, 0, 1},
		{"a record out of nowhere", func(f *findings) { f.records = append(f.records, settle.Record{Subject: "x"}) }, 0, 0, 0, 1},
		{"in review", func(f *findings) { f.records[0].State = settle.StateReview; f.shipments[subject(0)] = 0 }, 0, 0, 0, 0},
	} {
		f := good()
		c.spoil(&f)
		j := judge(f)
		if j.duplicates != c.duplicates || j.lost != c.lost || j.unsettled != c.unsettled || j.wrong != c.wrong {
			t.Errorf("%s: %d duplicates, %d lost, %d unsettled, %d wrong: %q", c.name, j.duplicates, j.lost, j.unsettled, j.wrong, j.lines)
		}
	}
}
