package settle

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// walker explores every record that small pieces of evidence and control decisions can
// make, through the engine's own conclude and resolved, and notes each change of state.
// It stands for the store: what it keeps of a time is whether it has come.
type walker struct {
	e        *Engine
	attempts int        // at most
	replies  []Fact     // to each of them
	others   []evidence // that are no replies
	ledger   bool       // with a compensation; then without claims and replacement
	seen     map[string]bool
	edges    map[string]map[string]bool // "from --> to" → causes
}

// The causes, as the diagram writes them.
const (
	causeEvidence     = "evidence"     // a reply, lookup, event or report was merged
	causePerson       = "person"       // Engine.Resolve
	causeCaller       = "caller"       // Execute, Register, Cancel
	causeWorker       = "worker"       // claims, sends, gives up, cancels after SendBefore
	causeTime         = "time"         // a lease ended
	causeCompensation = "compensation" // of this operation moved
)

type step struct {
	cause string
	do    func(next *Record) (*edit, error) // nil edit: it does not apply
	skip  time.Duration                     // time that passes instead
}

var errNoStep = errors.New("does not apply")

func (w *walker) steps() []step {
	guard := func(cause string, ok func(r *Record) bool, change func(r *Record) *edit) step {
		return step{cause: cause, do: func(next *Record) (*edit, error) {
			if !ok(next) {
				return nil, errNoStep
			}
			return change(next), nil
		}}
	}
	unsettled := func(r *Record) bool { return !r.State.Settled() }
	held := func(r *Record) bool { return unsettled(r) && r.Claimed() }
	free := func(r *Record) bool { return unsettled(r) && !r.Claimed() }
	never := func(r *Record) bool {
		return held(r) && r.Review == nil && !r.mayHaveLeft() && len(r.References) == 0 && r.Progress == nil
	}
	alone := func(ok func(r *Record) bool) func(r *Record) bool { // not in the walk of compensations
		return func(r *Record) bool { return !w.ledger && ok(r) }
	}
	out := []step{
		{cause: causeTime, skip: time.Hour},
		guard(causeWorker, alone(free), func(r *Record) *edit {
			r.Token = "t"
			r.endOpen()
			return &edit{now: r.AsOf, dueIn: testLease}
		}),
		guard(causeWorker, func(r *Record) bool { return held(r) && r.Review == nil && len(r.Attempts) < w.attempts }, func(r *Record) *edit {
			r.addAttempt(r.AsOf, testGrace)
			return &edit{now: r.AsOf, dueIn: testLease, ifToken: "t"}
		}),
		guard(causeWorker, held, func(r *Record) *edit { // release: wait
			r.Token = ""
			return &edit{now: r.AsOf, dueIn: time.Second, ifToken: "t"}
		}),
		guard(causeWorker, func(r *Record) bool { return held(r) && r.Review == nil }, func(r *Record) *edit { // release: review
			r.Token, r.Review = "", &Review{Reason: ReasonEscalated}
			return &edit{now: r.AsOf, dueIn: time.Hour, ifToken: "t"}
		}),
		guard(causeWorker, never, func(r *Record) *edit { // release: cancel
			r.Token, r.Withdrawn = "", WithdrawnExpired
			return &edit{now: r.AsOf, dueIn: Never, ifToken: "t"}
		}),
		guard(causeCaller, func(r *Record) bool { return r.State == StateCreated && !r.mayHaveLeft() }, func(r *Record) *edit { // Cancel
			r.Token, r.Withdrawn = "", "x"
			return &edit{now: r.AsOf, dueIn: Never}
		}),
		guard(causeCaller, alone(func(r *Record) bool {
			return (r.State == StateFailed || r.State == StateCanceled) && r.ReplacedBy == ""
		}), func(r *Record) *edit {
			r.ReplacedBy = "y"
			return &edit{now: r.AsOf, dueIn: Never}
		}),
	}
	for _, ev := range w.evidence() {
		out = append(out, step{cause: causeEvidence, do: func(next *Record) (*edit, error) {
			if ev.attempt > 0 && next.attempt(ev.attempt) == nil {
				return nil, errNoStep
			}
			ev := ev
			ev.at, ev.began = next.AsOf, next.AsOf
			if ev.attempt > 0 {
				ev.began = next.attempt(ev.attempt).Start
			}
			next.apply(ev)
			ed := &edit{now: next.AsOf, dueIn: Keep}
			if ev.attempt > 0 && next.Claimed() {
				ed.ifToken = "t"
			}
			return ed, nil
		}})
	}
	for _, d := range []Decision{{Fact: Applied}, {Fact: Declined}, {Fact: Reversed}, {Fact: NotApplied}, {Resume: true}} {
		if d.Fact != NotApplied && !d.Resume {
			d.Ref = "A"
		}
		d.Actor, d.Reason, d.Evidence = "a", "r", "e"
		out = append(out, step{cause: causePerson, do: func(next *Record) (*edit, error) { return w.e.resolved(next, d, next.lastAttempt()) }})
	}
	if w.ledger {
		out = append(out, w.compensation()...)
	}
	return out
}

func (w *walker) evidence() []evidence {
	out := slices.Clone(w.others)
	for n := 1; n <= w.attempts; n++ {
		for _, f := range w.replies {
			out = append(out, replyTo(n, f, "A"))
		}
	}
	return out
}

// compensation moves one ledger line through all that a compensation can become.
func (w *walker) compensation() []step {
	move := func(from []PostingStatus, to PostingStatus, confirmed bool) step {
		return step{cause: causeCompensation, do: func(next *Record) (*edit, error) {
			effect, found, _ := next.target(Undo{Operation: next.ID})
			switch {
			case len(next.Ledger) == 0 && len(from) == 0 && (found || !next.State.Settled()):
				next.Ledger = []Posting{{Operation: "undo", Ref: effect.Ref, Amount: asked.Amount}}
			case len(next.Ledger) == 0 || !slices.Contains(from, next.Ledger[0].Status):
				return nil, errNoStep
			}
			if confirmed && !found {
				return nil, errNoStep
			}
			next.Ledger[0].Status = to
			return &edit{now: next.AsOf, dueIn: Keep}, nil
		}}
	}
	return []step{
		move(nil, PostingWished, false),
		move([]PostingStatus{PostingWished, PostingFreed}, PostingOpen, true),
		move([]PostingStatus{PostingOpen}, PostingDone, false),
		move([]PostingStatus{PostingFreed, PostingUndone}, PostingDone, true), // it was sent, so the effect was confirmed
		move([]PostingStatus{PostingOpen, PostingWished}, PostingFreed, false),
		move([]PostingStatus{PostingDone}, PostingUndone, false),
	}
}

// take performs one step as the store would, and says whether it applied.
func (w *walker) take(cur Record, s step) (Record, bool) {
	if s.skip > 0 {
		out := cur.Clone()
		out.AsOf = out.AsOf.Add(s.skip)
		fresh(&out)
		return out, true
	}
	wr := Write{Record: cur.Clone()}
	ed, err := s.do(&wr.Record)
	if err != nil {
		return cur, false
	}
	w.e.conclude(nil, &cur, &wr, ed, true)
	out := wr.Record
	out.Version++
	switch wr.DueIn {
	case Keep:
	case Never:
		out.Due = time.Time{}
	default:
		out.Due = out.AsOf.Add(wr.DueIn)
	}
	fresh(&out)
	return out, true
}

// sketch is what of a record can matter later.
func sketch(r *Record) string {
	var b strings.Builder
	for _, a := range r.Attempts {
		fmt.Fprintf(&b, "%s/%v/%v ", a.Fate, a.End.IsZero(), a.quiet(r.AsOf))
	}
	for _, x := range r.References {
		fmt.Fprintf(&b, "%s=%s/%v ", x.Ref, x.Rank, x.Accepted)
	}
	for _, p := range r.Ledger {
		fmt.Fprintf(&b, "%s:%s ", p.Ref, p.Status)
	}
	if r.Progress != nil {
		b.WriteString(string(r.Progress.State))
	}
	fmt.Fprintf(&b, "|%v %v %v %v %s", r.Withdrawn != "", r.ReplacedBy != "", r.Review != nil, r.Claimed(), r.State)
	return b.String()
}

func (w *walker) edge(from, to State, cause string) {
	name := string(from)
	if from == "" {
		name = "[*]"
	}
	name += " --> " + string(to)
	if w.edges[name] == nil {
		w.edges[name] = make(map[string]bool)
	}
	w.edges[name][cause] = true
}

func (w *walker) walk(t *testing.T) {
	queue := w.births()
	steps := w.steps()
	for len(queue) > 0 {
		cur := queue[0]
		queue = queue[1:]
		key := sketch(&cur)
		if w.seen[key] {
			continue
		}
		w.seen[key] = true
		require.Less(t, len(w.seen), 200_000, "the exploration does not end")
		for _, s := range steps {
			next, ok := w.take(cur, s)
			if !ok {
				continue
			}
			if next.State != cur.State {
				w.edge(cur.State, next.State, s.cause)
			}
			nk := sketch(&next)
			if problem := lost(&next); problem != "" {
				t.Fatalf("%s:\n%s\n%s", problem, key, nk)
			}
			if !w.seen[nk] {
				queue = append(queue, next)
			}
		}
	}
}

// lost says how an operation could be forgotten (I10). Unsettled means due (a claim is due
// at its end); a review has a deadline. Settling ends the claim, unless somebody asked for a look
// that its holder can make.
func lost(r *Record) string {
	switch {
	case r.State.Settled() && r.Claimed() && !r.Wake:
		return "settled, and still claimed"
	case !r.State.Settled() && r.Due.IsZero():
		return "unsettled, and never due"
	case r.State == StateReview && (r.Review == nil || r.Review.Deadline.IsZero()):
		return "a review without a deadline"
	}
	return ""
}

// births are the records that Register, Execute and Cancel make.
func (w *walker) births() []Record {
	var out []Record
	for _, make := range []func(r *Record, ed *edit){
		func(_ *Record, ed *edit) { ed.dueIn = 0 },
		func(r *Record, ed *edit) {
			r.Token, ed.dueIn, ed.ifToken = "t", testLease, ""
			r.Attempts = []Attempt{{N: 1, Start: t0, Grace: testGrace}}
		},
		func(r *Record, ed *edit) { r.Withdrawn, ed.dueIn = "x", Never },
	} {
		r := operation()
		ed := &edit{create: true, now: t0}
		make(r, ed)
		blank := Record{State: StateCreated}
		wr := Write{Record: *r}
		w.e.conclude(nil, &blank, &wr, ed, false)
		rec := wr.Record
		if wr.DueIn != Never {
			rec.Due = rec.AsOf.Add(wr.DueIn)
		}
		fresh(&rec)
		w.edge("", rec.State, causeCaller)
		out = append(out, rec)
	}
	return out
}

// derivedDiagram is the diagram of docs/state-machine.md, line by line.
func derivedDiagram(t *testing.T) []string {
	t.Helper()
	edges := make(map[string]map[string]bool)
	event := func(facts ...Fact) (out []evidence) {
		for _, f := range facts {
			out = append(out, eventOf(f, "A"))
		}
		return out
	}
	lookup := func(facts ...Fact) (out []evidence) {
		for _, f := range facts {
			out = append(out, lookupAt(t0, f, "A"))
		}
		return out
	}
	dispute := mismatched(eventOf(Applied, "A"))
	for _, w := range []*walker{
		{ // one attempt and all that can be said about it
			attempts: 1, replies: []Fact{Unclear, Applied, Declined, NotSent, NotApplied, Underway, NeedsAction, Reversed},
			others: slices.Concat(event(Applied, Declined, Underway, NeedsAction, Reversed), lookup(Declined, Underway, NotFound, Reversed), []evidence{dispute}),
		},
		{ // two attempts, of which one may speak for the other
			attempts: 2, replies: []Fact{Applied, Declined, NotSent},
			others: slices.Concat(event(Declined, Reversed), lookup(Declined)),
		},
		{ // two effects and a compensation of one
			attempts: 1, replies: []Fact{Applied, Declined, NotSent, Underway}, ledger: true,
			others: slices.Concat(event(Applied, Underway, NeedsAction, Reversed), []evidence{dispute, eventOf(Applied, "B"), mismatched(eventOf(Applied, "B"))}),
		},
	} {
		w.e = &Engine{opts: Options{}.withDefaults(), obs: discard{}, silent: true}
		w.seen, w.edges = make(map[string]bool), edges
		w.walk(t)
		t.Logf("%d attempts: %d records", w.attempts, len(w.seen))
	}
	order := func(s State) int { return slices.Index(append([]State{""}, States()...), s) }
	names := slices.Collect(maps.Keys(edges))
	slices.SortFunc(names, func(a, b string) int {
		af, at, _ := strings.Cut(a, " --> ")
		bf, bt, _ := strings.Cut(b, " --> ")
		if d := order(State(strings.Trim(af, "[*]"))) - order(State(strings.Trim(bf, "[*]"))); d != 0 {
			return d
		}
		return order(State(at)) - order(State(bt))
	})
	lines := []string{"stateDiagram-v2"}
	for _, name := range names {
		lines = append(lines, "    "+name+": "+strings.Join(slices.Sorted(maps.Keys(edges[name])), ", "))
	}
	return lines
}

// TestDiagram_IsWhatThePolicyDoes holds the diagram equal to what single pieces of
// evidence and single decisions can do to a record, both ways.
func TestDiagram_IsWhatThePolicyDoes(t *testing.T) {
	t.Parallel()
	const path = "docs/state-machine.md"
	want := derivedDiagram(t)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(data), "```mermaid\n")
	require.True(t, ok, "no diagram")
	body, tail, ok := strings.Cut(rest, "```\n")
	require.True(t, ok, "the diagram has no end")
	if *updateGolden {
		text := head + "```mermaid\n" + strings.Join(want, "\n") + "\n```\n" + tail
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return
	}
	have := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	for _, line := range want {
		assert.Contains(t, have, line, "the policy does it, the diagram does not say so")
	}
	for _, line := range have {
		assert.Contains(t, want, line, "the diagram says so, the policy never does it")
	}
	for _, s := range States() {
		assert.Contains(t, string(data), "| `"+string(s)+"` |", "the page explains every state")
		assert.Contains(t, string(data), "`"+string(s.Next())+"`", "and its next action")
	}
}
