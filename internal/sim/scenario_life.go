package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// What happens to an operation after its first answer: events, several ways to undo it, reports, people.

// lifeStep is a call of that kind in a process; nil if verb is none.
func (p *sceneProc) lifeStep(verb string, args []string) func() (string, error) {
	switch {
	case verb == "observe" && len(args) >= 1:
		return func() (string, error) { return p.observe(args[0], args[1:]) }
	case verb == "undo" && len(args) == 2:
		return func() (string, error) { return p.undo(args[0], args[1]) }
	case verb == "refresh" && len(args) == 1:
		return func() (string, error) { return p.refresh(args[0]) }
	case verb == "redrive" && len(args) == 1:
		return func() (string, error) { return p.redrive(args[0]) }
	case verb == "resolve-all" && len(args) >= 2:
		return func() (string, error) { return p.resolveAll(args[0], args[1:]) }
	case verb == "report" && len(args) == 0:
		return p.report
	}
	return nil
}

// lifeProvider is something that happens at the provider past settle.
func (w *sceneWorld) lifeProvider(f []string) (bool, error) {
	switch {
	case len(f) == 2 && f[0] == "reverses":
		return true, w.provider.Reverse(f[1])
	case len(f) == 2 && f[0] == "captures":
		return true, w.provider.Capture(f[1])
	case len(f) == 5 && f[0] == "captures" && strings.Join(f[2:], " ") == "after a lookup":
		w.capturesLater(f[1])
		return true, nil
	case len(f) == 3 && f[0] == "refunds":
		cents, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return true, err
		}
		_, err = w.provider.RefundByHand(f[1], cents)
		return true, err
	case len(f) == 2 && f[0] == "repeats":
		// Somebody sends the same charge past settle, without its key: a second effect.
		id, err := w.id(f[1])
		if err != nil {
			return true, err
		}
		for _, q := range w.provider.Requests() {
			if q.Reference == id {
				q.Key = sceneBypass
				w.mu.Lock()
				w.doubled[id] = true
				w.mu.Unlock()
				_, err := w.provider.Create(context.Background(), q)
				return true, err
			}
		}
		return true, errors.New("nothing to repeat")
	}
	return false, nil
}

// event is the provider's event of that number, from 1.
func (w *sceneWorld) event(number string, how []string) (settle.Event, error) {
	n, err := strconv.Atoi(number)
	all := w.provider.Events()
	if err != nil || n < 1 || n > len(all) {
		return settle.Event{}, errors.New("no such event")
	}
	ev := all[n-1].Settle(w.scene.promise.Account)
	for _, h := range how {
		switch h {
		case "by-ref": // it does not hand back what the request gave it
			ev.Operation = ""
		case "lost-names": // and names something that nobody knows
			ev.Operation, ev.Ref, ev.Parent = "", "ch_unknown", ""
		default:
			return ev, fmt.Errorf("what is %q?", h)
		}
	}
	return ev, nil
}

// observe takes in an event: NUMBER [by-ref]. What was not acknowledged the provider delivers again.
func (p *sceneProc) observe(number string, how []string) (string, error) {
	w := p.w
	ev, err := w.event(number, how)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	if _, ok := w.events[ev.ID]; !ok {
		w.events[ev.ID] = &sceneEvent{event: ev}
	}
	w.mu.Unlock()
	return p.deliver(ev), nil
}

func (p *sceneProc) deliver(ev settle.Event) string {
	w := p.w
	got, err := p.engine.Observe(context.Background(), ev)
	if err != nil {
		w.secrets("an error", err.Error())
		return w.verdict(settle.Record{}, false, err)
	}
	if !p.alive() {
		return "" // nobody is told
	}
	w.mu.Lock()
	w.events[ev.ID].kept = got.Event
	w.mu.Unlock()
	if _, err := w.raw.Get(context.Background(), settle.ByID(got.Event)); err != nil {
		w.problem("event %s was acknowledged and is not stored", ev.ID)
	}
	text := "kept: " + ev.ID
	switch {
	case got.Parked:
		text += ", parked"
	case got.Record.ID != "":
		text += ", " + w.label(got.Record.ID) + " " + string(got.Record.State)
	}
	if got.Duplicate {
		text += ", seen before"
	}
	return text
}

func (p *sceneProc) refresh(label string) (string, error) {
	id, err := p.w.id(label)
	if err != nil {
		return "", err
	}
	got, err := p.engine.Refresh(context.Background(), id)
	if err != nil {
		return p.w.verdict(settle.Record{}, false, err), nil
	}
	fact := string(got.Fact)
	if got.Fact == settle.Unclear {
		fact = "no answer"
	}
	return fmt.Sprintf("refreshed: %s, %s %s", fact, p.w.label(got.Record.ID), got.Record.State), nil
}

func (p *sceneProc) redrive(label string) (string, error) {
	id, err := p.w.id(label)
	if err != nil {
		return "", err
	}
	err = p.engine.Redrive(context.Background(), id, settle.By{Actor: "ann", Reason: "the printer is mended"})
	return p.w.verdict(settle.Record{}, false, err), nil
}

// resolveAll is one decision about many: WHAT OP...
func (p *sceneProc) resolveAll(what string, labels []string) (string, error) {
	ids := make([]string, len(labels))
	for i, l := range labels {
		var err error
		if ids[i], err = p.w.id(l); err != nil {
			return "", err
		}
		if p.w.provider.Effects(ids[i]) > 0 && what != "resume" {
			return "", errors.New("that would be a lie")
		}
	}
	d := settle.Decision{Actor: "ann", Reason: "asked the provider", Evidence: "ticket 7", Fact: settle.Fact(what)}
	if what == "resume" {
		d.Fact, d.Resume = settle.Unclear, true
	}
	var out []string
	for _, x := range p.engine.ResolveAll(context.Background(), ids, d) {
		p.w.caller(nil, x.Err)
		if x.Err != nil {
			out = append(out, p.w.label(x.ID)+" "+p.w.verdict(settle.Record{}, false, x.Err))
			continue
		}
		out = append(out, p.w.label(x.ID)+" "+string(x.Record.State))
	}
	return "recorded: " + strings.Join(out, ", "), nil
}

// report holds everything at the provider against the store, both ways. The position is the caller's file, which
// outlives processes: a pass that ended early goes on from there.
func (p *sceneProc) report() (string, error) {
	w := p.w
	w.mu.Lock()
	if w.books == nil {
		w.books = &sceneBooks{until: time.Now().Add(-time.Second), found: map[string]bool{}}
		for _, o := range w.provider.Ledger() {
			if o.Kind != providertest.KindVoid { // a settlement report is about money
				w.books.lines = append(w.books.lines, bookLine(o))
			}
		}
	}
	b := w.books
	w.mu.Unlock()
	sum, err := p.engine.ReconcileReport(context.Background(), bookReport(b.lines), &settle.ReportOptions{
		Account: w.scene.promise.Account.String(), Kinds: []string{"charge", "refund"}, Until: b.until, Slack: time.Millisecond,
		Concurrency: 1, SaveEvery: 1, Resume: b.position,
		Found: func(_ context.Context, f settle.Finding) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if p.dead {
				return errSceneGone
			}
			b.found[fmt.Sprint(f.Kind, " ", f.Effect.Operation, " ", f.Reported.Ref)] = true
			return nil
		},
		Save: func(_ context.Context, position []byte) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if p.dead {
				return errSceneGone
			}
			b.position = position
			return nil
		},
	})
	if err != nil {
		w.secrets("an error", err.Error())
		return "a report that ended early: " + w.verdict(settle.Record{}, false, err), nil
	}
	if !p.alive() {
		return "", nil
	}
	b.summary, b.done = sum, true
	return fmt.Sprintf("the books: %d lines, %d matched, %d new, %d checked, %d findings", sum.Lines, sum.Matched, sum.Learned, sum.Checked, len(b.found)), nil
}

// bookLine is how the provider's books tell of an effect.
func bookLine(o providertest.Object) settle.ReportLine {
	l := settle.ReportLine{
		Kind: o.Kind, Operation: o.Reference, Ref: o.ID, Parent: o.Parent, At: o.Created,
		Terms: settle.Terms{Account: o.Account, Amount: settle.Minor(o.Amount, o.Currency)},
	}
	if o.Status == providertest.StatusReversed || o.Status == providertest.StatusVoided {
		l.Fact = settle.Reversed
	}
	return l
}

// bookReport is a report of these lines.
func bookReport(lines []settle.ReportLine) settle.Report {
	return settle.ReportOf(func(yield func(settle.ReportLine, error) bool) {
		for _, l := range lines {
			if !yield(l, nil) {
				return
			}
		}
	})
}

// sceneBypass is the key of who charges past settle.
const sceneBypass = "somebody-else"

// sceneEvent is an event that the provider has begun to deliver.
type sceneEvent struct {
	event settle.Event
	kept  string // the id of the record that keeps it, once it was acknowledged
}

// sceneBooks is a report, and how far it has come.
type sceneBooks struct {
	lines    []settle.ReportLine
	until    time.Time
	position []byte
	found    map[string]bool
	summary  settle.ReportSummary
	done     bool
}

// finish does what others than settle go on with after a crash: the provider delivers again what nobody acknowledged, and
// whoever keeps the books starts the report again.
func (w *sceneWorld) finish(p *sceneProc) {
	for _, e := range w.inbox() {
		if e.kept == "" {
			p.deliver(e.event)
		}
	}
	if w.books != nil && !w.books.done {
		if _, err := p.report(); err != nil || !w.books.done {
			w.problem("the report cannot be ended: %v", err)
		}
	}
}

// mends has a person run consequences again that were set aside, and reports whether there were any.
func (w *sceneWorld) mends(p *sceneProc) bool {
	found := false
	for _, r := range w.records() {
		if r.Consequence == settle.ConsequenceAside {
			found = true
			if err := p.engine.Redrive(context.Background(), r.ID, settle.By{Actor: "ann", Reason: "the printer is mended"}); err != nil {
				w.problem("redrive: %v", err)
			}
		}
	}
	return found
}

// inbox lists the events of a run, in the provider's order.
func (w *sceneWorld) inbox() (out []*sceneEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.provider.Events() {
		if x := w.events[e.ID]; x != nil {
			out = append(out, x)
		}
	}
	return out
}
