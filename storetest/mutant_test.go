package storetest

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// mutant is a store with one defect.
type mutant struct {
	name   string   // the defect
	shared bool     // the defect is memory that is shared, a data race wherever callers are many
	cases  []string // those that must find it; the clause that it breaks is their first one's
	clock  settle.Clock
	bend   func(b *bent)                                           // bends every handle
	second func(b *bent)                                           // bends the second handle only
	tx     func(b *bent, tx settle.Tx, end ends) (settle.Tx, ends) // bends transactions of the application
}

// ends are the two ways in which a transaction ends.
type ends struct{ commit, rollback func() error }

func mutants() []mutant {
	return slices.Concat(
		dueMutants(), versionMutants(), writeMutants(), againMutants(), nameMutants(), takenMutants(), valueMutants(), sharingMutants(),
		claimMutants(), renewMutants(), listMutants(), historyMutants(), contextMutants(), hookMutants(), txMutants(), raceMutants(), reopenMutants(),
	)
}

func (m *mutant) world() world {
	s := memstore.New(&memstore.Options{Clock: m.clock})
	open := func() *bent {
		b := sound(s)
		if m.bend != nil {
			m.bend(b)
		}
		return b
	}
	b := open()
	w := world{
		store:  b,
		reopen: func() settle.Store { return b },
		begin:  func() (settle.Tx, func() error, func() error) { return begin(s) },
	}
	if m.second != nil {
		w.reopen = func() settle.Store {
			o := open()
			m.second(o)
			return o
		}
	}
	if m.tx != nil {
		w.begin = func() (settle.Tx, func() error, func() error) {
			tx, commit, rollback := begin(s)
			tx, end := m.tx(b, tx, ends{commit, rollback})
			return tx, end.commit, end.rollback
		}
	}
	return w
}

// TestSoundStorePasses: the store that the mutants are made of passes every case, so what a
// case finds in a mutant is its defect.
func TestSoundStorePasses(t *testing.T) {
	m := mutant{second: func(*bent) {}, tx: func(_ *bent, tx settle.Tx, end ends) (settle.Tx, ends) { return tx, end }}
	for _, c := range allCases() {
		if v := judge(t.Context(), c, m.world()); v.failed() {
			t.Errorf("%s: %+v", c.id(), v)
		}
	}
}

// TestMutants: every broken store is found by the cases that are about its defect: by what
// they say, not by a panic nor because their time ran out. With -v all cases are
// run and those that find it are listed.
func TestMutants(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if len(m.cases) == 0 {
				t.Error("no case is named")
			}
			for _, id := range m.cases {
				v := judge(t.Context(), caseOf(t, id), m.world())
				switch {
				case v.panic != "":
					t.Errorf("%s panics: %s", id, v.panic)
				case v.late:
					t.Errorf("%s finds nothing in time: %q", id, v.said)
				case !v.failed():
					t.Errorf("%s does not find it", id)
				case !strings.Contains(strings.Join(v.said, "\n"), "clause "+strings.Split(id, "/")[0]+": "): // many callers say it in any order
					t.Errorf("%s does not print its clause: %s", id, v.said[0])
				}
			}
			if testing.Verbose() {
				t.Logf("%s: found by %s", m.name, strings.Join(findings(t, m), " "))
			}
		})
	}
}

// findings runs every case against m and lists those that fail: more than the named ones, since
// most defects are in the way of cases about something else, some of which wait in vain
// and are given up. The two that are about large values only count where they are named, and
// mutants that share memory are spared the cases with many callers: the race detector would
// report the defect and end the test.
func findings(t *testing.T, m mutant) (failed []string) {
	for _, c := range allCases() {
		if m.shared && slices.ContainsFunc(raceCases(), func(r testCase) bool { return r.id() == c.id() }) {
			continue
		}
		large := c.id() == "S2/long_lists" || c.id() == "S2/payload_large"
		if large && !slices.Contains(m.cases, c.id()) {
			continue // they are as slow as all others together
		}
		v := judgeWithin(t.Context(), time.Second, c, m.world())
		switch {
		case len(v.said) > 0:
			failed = append(failed, c.id())
		case v.late:
			failed = append(failed, "("+c.id()+" given up)")
		}
		if v.panic != "" {
			t.Errorf("%s panics: %s", c.id(), v.panic)
		}
	}
	return failed
}

// TestEveryCaseBites: every case finds a mutant, and every clause has one that breaks it
// first of all.
func TestEveryCaseBites(t *testing.T) {
	bites, broken := map[string]bool{}, map[string]bool{}
	for _, m := range mutants() {
		for i, id := range m.cases {
			bites[id] = true
			if i == 0 {
				broken[strings.Split(id, "/")[0]] = true
			}
		}
	}
	for _, id := range Cases() {
		if !bites[id] {
			t.Errorf("no mutant shows that %s can fail", id)
		}
	}
	for _, clause := range slices.Sorted(maps.Keys(clauses)) {
		if !broken[clause] {
			t.Errorf("no mutant breaks clause %s", clause)
		}
	}
}
