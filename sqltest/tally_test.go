package sqltest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/settle-go/settle"
)

// Counts by kind and state, as Engine.List would count them one by one.
func TestTally(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		db, s := d.open(t, d.fresh(t), nil)
		empty, err := s.Tally(t.Context(), time.Minute)
		must(t, err)
		assert.Empty(t, empty)
		put := func(r settle.Record, due time.Duration) {
			t.Helper()
			_, err := s.Commit(t.Context(), settle.Change{ID: "c-" + r.ID, Writes: []settle.Write{{Record: r, DueIn: due}}})
			must(t, err)
		}
		put(created("1"), time.Hour) // claimed
		put(created("2"), 0)         // its worker died
		put(succeeded(created("33")), settle.Never)
		put(succeeded(created("4")), settle.Never)
		undo := created("5")
		undo.Kind, undo.Token, undo.State = "void", "", settle.StateUnknown
		put(undo, 0)
		old := created("6")
		old.Token, old.State = "", settle.StateUnknown
		put(old, 0)
		// Two rows have been due for ten minutes, and a void and a charge are two days old.
		must(t, run(db, `UPDATE settle_operation SET due = due - 600000000 WHERE state = 'unknown'`))
		must(t, run(db, `UPDATE settle_operation SET created_at = created_at - 172800000000 WHERE LENGTH(kind) = 4 OR LENGTH(subject) = 8`))
		got, err := s.Tally(t.Context(), time.Minute)
		must(t, err)
		type line struct {
			Kind    string
			State   settle.State
			Count   int64
			Overdue int64
		}
		var lines []line
		for _, x := range got {
			lines = append(lines, line{x.Kind, x.State, x.Count, x.Overdue})
			oldest, newest := x.AsOf.Sub(x.Oldest), x.AsOf.Sub(x.Newest)
			wantOld, wantNew := time.Duration(0), time.Duration(0)
			if x.Kind == "void" {
				wantOld, wantNew = 48*time.Hour, 48*time.Hour
			} else if x.State == settle.StateSucceeded {
				wantOld = 48 * time.Hour
			}
			if oldest < wantOld || oldest > wantOld+time.Hour || newest < wantNew || newest > wantNew+time.Hour {
				t.Errorf("%s %s: oldest %v, newest %v as of %v", x.Kind, x.State, x.Oldest, x.Newest, x.AsOf)
			}
		}
		assert.Equal(t, []line{
			{"charge", settle.StateSubmitting, 1, 0},
			{"charge", settle.StateSucceeded, 2, 0},
			{"charge", settle.StateUnknown, 2, 1},
			{"void", settle.StateUnknown, 1, 1},
		}, lines)
		e, err := settle.Open(s, nil)
		must(t, err)
		counted := map[line]int64{}
		for r, err := range e.List(t.Context(), settle.Query{}) {
			must(t, err)
			counted[line{Kind: r.Kind, State: r.State}]++
		}
		for _, x := range lines {
			assert.Equal(t, counted[line{Kind: x.Kind, State: x.State}], x.Count)
		}
	})
}
