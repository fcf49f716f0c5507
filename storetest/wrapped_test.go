package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// TestWrapConformance: a wrapper that plans nothing passes everything, skips nothing.
func TestWrapConformance(t *testing.T) {
	inner := map[settle.Store]*memstore.Store{}
	wrap := func(m *memstore.Store) settle.Store {
		s := Wrap(m, nothing)
		inner[s] = m
		return s
	}
	Run(t, Harness{
		Open:   func(testing.TB) settle.Store { return wrap(memstore.New(nil)) },
		Reopen: func(_ testing.TB, s settle.Store) settle.Store { return wrap(inner[s]) },
		Begin: func(_ testing.TB, s settle.Store) (settle.Tx, func() error, func() error) {
			return begin(inner[s])
		},
	})
}

// ticking is a clock that never shows one time twice.
type ticking struct {
	mu   sync.Mutex
	last time.Time
}

func (c *ticking) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !now.After(c.last.Add(time.Microsecond)) {
		now = c.last.Add(time.Microsecond)
	}
	c.last = now
	return now
}

// twice says what a store on which a method is called twice each time may not pass,
// and why. It passes everything else.
var twice = []struct {
	ops  []Op
	why  string
	fail []string
}{
	{
		ops: []Op{OpGet, OpList, OpHistory, OpRenew},
		why: "reading twice is reading; each renewal counts from now (S40), and one that was refused is refused again (S41)",
	},
	{
		ops: []Op{OpCommit},
		why: "a repeat writes nothing and answers with the records as they are now (S26), read at the time of the repeat (S4); " +
			"S20 speaks of the write, whose time that is not",
		fail: []string{"S20/create", "S20/create_due", "S20/due_moved", "S20/update"},
	},
	{
		ops: []Op{OpClaim},
		why: "what the first call got is claimed until its lease ends, and nobody was told: S31 forbids to hand it out again, to the " +
			"second call too. So no case can pass that claims something for more than a moment and wants to be handed it",
		fail: []string{
			"S11/version", "S20/due_kept_after_renew", "S20/due_moved", "S21/version_after_claim", "S22/lease_cleared", "S22/token_right",
			"S22/token_wrong", "S25/never_changed", "S26/update_again", "S3/claim", "S30/earliest_first", "S30/except", "S30/kinds", "S30/limit", "S30/not_due",
			"S31/claim_storm", "S31/ended_lease", "S31/live_lease", "S31/two_claimers", "S31/two_handles_claim_storm", "S32/no_entry", "S32/sets",
			"S40/renew", "S40/renewed_is_kept", "S41/claimed_by_next", "S41/ended_lease", "S41/given_up", "S41/wrong_token", "S42/each", "S42/many", "S5/done_before",
			"S6/claim_lost", "S6/commit_lost", "S6/renewal_lost", "S60/pages", "S7/claims", "Tx/commit",
		},
	},
}

// TestWrapTwiceConformance: a method that is called twice each time breaks no clause but
// where the clauses themselves say so.
func TestWrapTwiceConformance(t *testing.T) {
	for _, x := range twice {
		t.Run(fmt.Sprint(x.ops), func(t *testing.T) {
			t.Parallel()
			plan := func(c Call) Fault { return Fault{Twice: slices.Contains(x.ops, c.Op)} }
			for _, c := range allCases() {
				m := memstore.New(&memstore.Options{Clock: &ticking{}})
				v := judge(t.Context(), c, worldOf(m, func(s settle.Store) settle.Store { return Wrap(s, plan) }))
				switch may := slices.Contains(x.fail, c.id()); {
				case v.panic != "" || v.late:
					t.Errorf("%s: %+v", c.id(), v)
				case v.failed() && !may:
					t.Errorf("%s fails: %q", c.id(), v.said)
				case !v.failed() && may:
					t.Errorf("%s passes, so take it from the list (%s)", c.id(), x.why)
				}
			}
			if len(x.fail) > 0 {
				t.Logf("%d of %d cases fail: %s", len(x.fail), len(allCases()), x.why)
			}
		})
	}
}

// TestWrapTwiceClaim: what the first of two claims got is not lost: it carries the
// token, is handed to nobody, and is due again when the lease ends (I10).
func TestWrapTwiceClaim(t *testing.T) {
	e := &env{store: memstore.New(nil)}
	a := e.due(t, 0)
	b := e.due(t, time.Microsecond)
	e.untilDue(t, b.ID)
	w := Wrap(e.store, Always(OpClaim, Fault{Twice: true}))
	token := e.uuid()
	got, err := w.Claim(t.Context(), settle.Claim{Kinds: []string{kind}, Token: token, Lease: time.Hour, Limit: 1})
	if err != nil || len(got) != 1 || got[0].ID != b.ID {
		t.Fatalf("Claim returned %d records and error %v, want what the second call got", len(got), err)
	}
	now := e.read(t, a.ID)
	if now.Token != token || now.Version != 2 || len(e.claim(t, time.Hour, 5)) != 0 {
		t.Errorf("what the first call got has version %d, the token: %v; want 2, the token, and nobody else's", now.Version, now.Token == token)
	}
	e.commit(t, dueIn(ifToken(update(now), token), 0))
	e.untilDue(t, a.ID)
	if again := e.claim(t, time.Hour, 5); len(again) != 1 || again[0].ID != a.ID {
		t.Errorf("when its lease has ended %d records are due, want 1", len(again))
	}
}
