package sqltest

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/sqlstore"
)

var (
	linearSeed   = flag.Uint64("linear.seed", 0, "seed of the first history of concurrent calls; 0: a new one")
	linearRounds = flag.Int("linear.rounds", 1, "how many times more histories than usual")
)

// linearizable holds histories of concurrent calls against the model of a record's life:
// each history must be one that some order of the same calls, one at a time, could have had, in
// which a call that ended before another began comes first (S1). open returns one or more
// handles on one new and empty database, as so many processes would have; the clients are
// spread over them.
//
// A failure prints the seed and the history of the record. The seed fixes what each client tries,
// not how the clients interleave: run it again with -linear.seed and, if need be, more -linear.rounds.
func linearizable(t *testing.T, open func(*testing.T) []settle.Store, l load) {
	t.Helper()
	l.seed = *linearSeed
	l = l.withDefaults()
	l.rounds *= *linearRounds
	t.Logf("seed %d", l.seed)
	seen := map[string]int{}
	for i := range l.rounds {
		seed := l.seed + uint64(i)
		h := l.record(t, open(t), seed)
		for k, n := range h.seen {
			seen[k] += n
		}
		if v := h.check(); v != nil {
			t.Fatalf("seed %d: %s", seed, v.report(t))
		}
	}
	// A load that reaches nothing proves nothing.
	for _, k := range []string{
		"create ok", "create conflict", "update ok", "update conflict", "update unknown",
		"claim ok", "claim unknown", "renew ok", "renew claim lost", "renew unknown", "get ok", "history ok",
	} {
		if seen[k] == 0 {
			t.Errorf("the load never had %q", k)
		}
	}
	t.Logf("calls and answers: %v", seen)
}

// tail is how much of the part that has an order a report shows.
const tail = 12

// tooHard is how long one record's history may take to check.
const tooHard = 30 * time.Second

// violation is a record whose history has no order.
type violation struct {
	id      string
	result  porcupine.CheckResult
	info    porcupine.LinearizationInfo
	history []porcupine.Operation
}

// check looks for an order of each record's history, and returns the first that has none.
func (h *recording) check() *violation {
	for _, id := range slices.Sorted(maps.Keys(h.ops)) {
		end := h.tick.Load() + 1
		ops := append(slices.Clone(h.ops[id]), porcupine.Operation{
			ClientId: h.clients, Input: &lifeCall{do: "end", id: id}, Call: end, Output: &lifeAnswer{result: resultOK}, Return: end + 1,
		})
		result, info := porcupine.CheckOperationsVerbose(lifeModel(), ops, tooHard)
		if result != porcupine.Ok {
			return &violation{id, result, info, ops}
		}
	}
	return nil
}

// report is the trace of a violation: the longest part of the history that has an order, in
// that order with the states, and then what could not come next.
func (v *violation) report(t *testing.T) string {
	var b strings.Builder
	if v.result != porcupine.Ok && v.result != porcupine.Illegal {
		fmt.Fprintf(&b, "the history of %s was not checked within %v: %s\n", v.id, tooHard, v.result)
		return b.String()
	}
	var longest []porcupine.Operation
	for _, partition := range v.info.PartialLinearizationsOperations() {
		for _, ops := range partition {
			if len(ops) > len(longest) {
				longest = ops
			}
		}
	}
	fmt.Fprintf(&b, "the calls on %s had no order, one at a time, with these answers.\n", v.id)
	fmt.Fprintf(&b, "Times of the store's clock are microseconds from its beginning; calls have [begin, end].\n")
	fmt.Fprintf(&b, "%d of %d calls have an order, of which these are the last:\n", len(longest), len(v.history))
	placed := map[any]bool{}
	var state any = lifeState{}
	for i, op := range longest {
		placed[op.Input] = true
		_, state = stepLife(state, op.Input, op.Output)
		if len(longest)-i <= tail {
			fmt.Fprintf(&b, "  %s\n      then: %s\n", line(op), state)
		}
	}
	b.WriteString("but then none of these can come next (of the first that ended, all must have):\n")
	rest := slices.DeleteFunc(slices.Clone(v.history), func(op porcupine.Operation) bool { return placed[op.Input] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	end := int64(math.MaxInt64)
	for _, op := range rest {
		end = min(end, op.Return)
	}
	for _, op := range rest {
		if op.Call <= end {
			fmt.Fprintf(&b, "  %s\n", line(op))
		}
	}
	if testing.Verbose() {
		path := filepath.Join(t.ArtifactDir(), "history.html")
		if err := porcupine.VisualizePath(lifeModel(), v.info, path); err != nil {
			fmt.Fprintf(&b, "no picture: %v\n", err)
		} else {
			fmt.Fprintf(&b, "picture (go test -artifacts keeps it): %s\n", path)
		}
	}
	return b.String()
}

func line(op porcupine.Operation) string {
	end := fmt.Sprint(op.Return)
	if op.Return == math.MaxInt64 {
		end = "never"
	}
	return fmt.Sprintf("client %d [%d, %s] %s → %s", op.ClientId, op.Call, end, op.Input, op.Output)
}

// tickingClock moves on by a microsecond whenever it is read.
type tickingClock struct{ us atomic.Int64 }

func (c *tickingClock) Now() time.Time { return time.UnixMicro(c.us.Add(1)) }

// ticks are leases in calls, more or less, of a store whose clock ticks with each.
func ticks() []time.Duration {
	return []time.Duration{time.Microsecond, 5 * time.Microsecond, 30 * time.Microsecond}
}

func openMemory(*testing.T) []settle.Store {
	return []settle.Store{memstore.New(&memstore.Options{Clock: new(tickingClock)})}
}

// TestMemoryLinearizable (S1): the reference, on a clock of its own on which leases
// end all the time.
func TestMemoryLinearizable(t *testing.T) {
	t.Parallel()
	linearizable(t, openMemory, load{rounds: 30, short: ticks()})
}

// TestSQLiteLinearizable (S1): one pool, and two on one file as two processes have.
func TestSQLiteLinearizable(t *testing.T) {
	t.Parallel()
	for _, handles := range []int{1, 2} {
		t.Run(fmt.Sprint(handles, " handles"), func(t *testing.T) {
			t.Parallel()
			linearizable(t, func(t *testing.T) []settle.Store {
				path := file(t)
				out := make([]settle.Store, handles)
				for i := range out {
					out[i], _ = openFile(t, path)
				}
				return out
			}, load{rounds: 6})
		})
	}
}

// TestServersLinearizable (S1): two processes on one server, whose clock decides.
func TestServersLinearizable(t *testing.T) {
	t.Parallel()
	slow := []time.Duration{time.Microsecond, 5 * time.Millisecond, 50 * time.Millisecond} // a call takes a round trip or two
	for name, open := range map[string]func(*testing.T) func() *sqlstore.Store{
		"PostgreSQL": func(t *testing.T) func() *sqlstore.Store {
			dsn := pgSchema(t)
			return func() *sqlstore.Store {
				_, s := openPG(t, "pgx", dsn, nil)
				return s
			}
		},
		"MySQL": func(t *testing.T) func() *sqlstore.Store {
			dsn := mysqlDatabase(t).FormatDSN()
			return func() *sqlstore.Store {
				_, s := openMySQL(t, dsn, nil)
				return s
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			linearizable(t, func(t *testing.T) []settle.Store {
				handle := open(t)
				return []settle.Store{handle(), handle()}
			}, load{rounds: 2, short: slow, twice: name == "MySQL"})
		})
	}
}
