package settle

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Report reads a provider's listing or settlement report: the lines from number from on, always the same
// ones in the same order. It is read from its beginning once, and once more for each group of differences of
// a window, so it must be possible to read it again. An error ends the pass, which goes on from the position saved last.
type Report func(ctx context.Context, from int64) iter.Seq2[ReportLine, error]

// ReportOf makes a Report of lines that can be ranged over again. Lines before the position are read and dropped.
func ReportOf(lines iter.Seq2[ReportLine, error]) Report {
	return func(_ context.Context, from int64) iter.Seq2[ReportLine, error] {
		return func(yield func(ReportLine, error) bool) {
			var n int64
			for l, err := range lines {
				if n++; n <= from && err == nil {
					continue
				}
				if !yield(l, err) || err != nil {
					return
				}
			}
		}
	}
}

// ReportOptions say what a report is about and what to do with it.
type ReportOptions struct {
	// Account is the provider account of the report, as AccountFacts.String makes it. Required.
	Account string
	// Kinds are the kinds of operations whose effects the report lists. Required.
	Kinds []string
	// From and Until are the window for which the report is complete. Operations whose effect was certainly within
	// it, by the store's clock, and that the report does not have are FindingAbsent. A zero From is the beginning; with a zero
	// Until nothing is said about what is absent. Until must be in the past.
	From, Until time.Time
	// Slack is by how much the clocks of store and provider may differ, and the report's own idea of a day: what is nearer to an
	// end of the window is counted as ReportSummary.Edge and not judged. Let windows overlap by at least two of it. Defaults to 1 hour.
	Slack time.Duration
	// Reach is how long before the window an operation may have been stored whose first request was in it, and by how much, to
	// both sides, the clocks of processes that made operations may have been off: what is further away is not read. Defaults to 7 days.
	Reach time.Duration
	// ReadOnly merges nothing. Otherwise each line is evidence, merged like an event.
	ReadOnly bool
	// Found gets each finding, one at a time; an error ends the pass. After a crash it may get some a second time. Required.
	Found func(ctx context.Context, f Finding) error
	// Save, if set, keeps the position, about 110 kB, from which Resume goes on; everything before it was given to Found.
	Save func(ctx context.Context, position []byte) error
	// Resume is the position saved last, of a pass with the same options over the same report. Nil: from the beginning.
	Resume []byte
	// SaveEvery is how many lines or operations are done between two positions. Defaults to 10,000.
	SaveEvery int
	// Concurrency is how many operations are read at a time. Defaults to 8.
	Concurrency int
	// MaxNames bounds the names of a report that are in memory at a time, about 50 bytes each. Fewer means more passes
	// over report and window when much differs. Defaults to 262,144.
	MaxNames int
}

// ReportSummary counts what a pass did, all of it, resumed or not.
type ReportSummary struct {
	Lines   int64 `json:"lines"`   // of the report
	Matched int64 `json:"matched"` // without a finding
	Foreign int64 `json:"foreign"` // of those, counted in a ledger as undone elsewhere
	Learned int64 `json:"learned"` // merged: they said something new
	Checked int64 `json:"checked"` // effects here that the window must have
	Edge    int64 `json:"edge"`    // not in the report, and perhaps outside of the window
	Found   int64 `json:"found"`   // findings
	Passes  int64 `json:"passes"`  // over the report
}

// The defaults of ReportOptions.
const (
	DefaultSlack     = time.Hour
	DefaultReach     = 7 * 24 * time.Hour
	defaultSaveEvery = 10_000
	defaultReaders   = 8
	defaultMaxNames  = 1 << 18
	reportBatch      = 256 // lines that are read together
	reportPage       = 500 // operations of one List
)

func (o ReportOptions) withDefaults() ReportOptions {
	o.Kinds = slices.Clone(o.Kinds)
	if o.Slack == 0 {
		o.Slack = DefaultSlack
	}
	if o.Reach == 0 {
		o.Reach = DefaultReach
	}
	for p, v := range map[*int]int{&o.SaveEvery: defaultSaveEvery, &o.Concurrency: defaultReaders, &o.MaxNames: defaultMaxNames} {
		if *p == 0 {
			*p = v
		}
	}
	return o
}

func (o *ReportOptions) problem() (field, reason string) {
	switch {
	case o.Account == "":
		return "Account", "required"
	case len(o.Kinds) == 0:
		return "Kinds", "required"
	case o.Found == nil:
		return "Found", "required"
	case o.Slack < 0 || o.Reach < 0:
		return "Slack", "negative"
	case o.SaveEvery < 0 || o.Concurrency < 0 || o.MaxNames < 0:
		return "SaveEvery", "negative"
	case o.Until.IsZero() && !o.From.IsZero():
		return "Until", "required with From"
	case !o.From.IsZero() && !o.From.Add(2*o.Slack).Before(o.Until):
		return "From", "the window is shorter than two of Slack"
	}
	for _, k := range o.Kinds {
		if err := checkName("kind", k, MaxKind); err != nil || own(k) {
			return "Kinds", "not a kind of an application"
		}
	}
	return "", ""
}

// ReconcileReport holds a report against the store, in memory that does not depend on the length of either: each line
// against the operation that it names, and, with a window, the operations of the window against the lines. What a
// line says is merged; what differs goes to Found. It needs no executors: a hook that a line makes due is run by the worker that has it.
//
// The summary is good as far as the pass came. Call again with the position saved last after any error: ErrInvalid for
// options, a line or a position that cannot be, ErrStore, or what the report, Found or Save returned.
func (e *Engine) ReconcileReport(ctx context.Context, report Report, opts *ReportOptions) (ReportSummary, error) {
	const do = "reconcile report"
	if report == nil || opts == nil {
		return ReportSummary{}, invalid(do, "", "ReportOptions", "required")
	}
	o := opts.withDefaults()
	if field, why := o.problem(); field != "" {
		return ReportSummary{}, invalid(do, "", "ReportOptions."+field, why)
	}
	pos, d, err := o.restore()
	if err != nil {
		return ReportSummary{}, invalid(do, "", "ReportOptions.Resume", err.Error())
	}
	if !e.begin() {
		return pos.Summary, &Error{Do: do, Err: ErrDraining}
	}
	defer e.end()
	p := &reportPass{e: e, o: &o, report: report, position: pos, diff: d}
	for p.Phase != phaseDone {
		switch p.Phase {
		case phaseLines:
			err = p.lines(ctx)
		case phaseStore:
			err = p.window(ctx)
		default:
			err = p.names(ctx)
		}
		if err != nil {
			break
		}
	}
	return p.Summary, err
}

// reportPass is one call of ReconcileReport.
type reportPass struct {
	position

	e      *Engine
	o      *ReportOptions
	report Report
	diff   *difference
	unsave int // lines or operations since the last position
}

// done counts n more lines or operations, and saves the position when it is time to.
func (p *reportPass) done(ctx context.Context, n int) error {
	if p.unsave += n; p.unsave < p.o.SaveEvery {
		return nil
	}
	return p.save(ctx)
}

// next begins another phase.
func (p *reportPass) next(ctx context.Context, phase int) error {
	p.Phase = phase
	return p.save(ctx)
}

func (p *reportPass) save(ctx context.Context) error {
	p.unsave = 0
	if p.o.Save == nil {
		return nil
	}
	text, err := p.encode()
	if err != nil {
		return err
	}
	return p.o.Save(ctx, text)
}

func (p *reportPass) found(ctx context.Context, line int64, f Finding) error {
	f.Line = line
	p.Summary.Found++
	return p.o.Found(ctx, f)
}

// lines is the first phase, in batches whose operations are read at the same time.
func (p *reportPass) lines(ctx context.Context) error {
	batch := make([]ReportLine, 0, min(reportBatch, p.o.SaveEvery))
	flush := func() error {
		n := len(batch)
		if err := p.batch(ctx, batch); err != nil {
			return err
		}
		batch = batch[:0]
		return p.done(ctx, n)
	}
	for l, err := range p.report(ctx, p.Line) {
		if err != nil {
			return errors.Join(flush(), err)
		}
		if why := l.problem(); why != "" {
			return errors.Join(flush(), invalid("reconcile report", l.Kind, "ReportLine", fmt.Sprintf("line %d: %s", p.Line+int64(len(batch)), why)))
		}
		if batch = append(batch, l); len(batch) == cap(batch) {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	p.Summary.Passes++
	if p.o.Until.IsZero() {
		return p.next(ctx, phaseDone)
	}
	return p.next(ctx, phaseStore)
}

// batch takes lines in, in order.
func (p *reportPass) batch(ctx context.Context, batch []ReportLine) error {
	known := make([]matchedLine, len(batch))
	if err := p.each(len(batch), func(i int) (err error) {
		known[i], err = p.match(ctx, &batch[i])
		return err
	}); err != nil {
		return err
	}
	for i := range batch {
		if err := p.line(ctx, &batch[i], known[i]); err != nil {
			return err
		}
		p.Line++
		p.Summary.Lines++
	}
	return ctx.Err()
}

// line judges one line.
func (p *reportPass) line(ctx context.Context, l *ReportLine, m matchedLine) error {
	for _, n := range p.o.namesOf(l, m.op) {
		p.diff.listed(n)
	}
	if m.op == nil {
		return p.orphan(ctx, l)
	}
	stored := m.op
	after, learned := *stored, false
	if m.owner == nil && stored.teaches(l) {
		if learned = !p.o.ReadOnly; learned {
			r, err := p.e.merge(ctx, "reconcile report", stored, l.evidence(), nil, 0)
			if err != nil {
				return err
			}
			p.Summary.Learned++
			stored, after = r, *r
			p.e.Wake()
		}
	}
	if x, ok := stored.reference(l.Ref); ok {
		for _, y := range p.o.window(stored) {
			if y.Ref == x.Ref {
				p.diff.matched(nameOf(stored.Kind, y.Ref))
			}
		}
	}
	findings := after.judge(l, m.owner, learned)
	if len(findings) == 0 {
		p.Summary.Matched++
	}
	for _, f := range findings {
		if err := p.found(ctx, p.Line, f); err != nil {
			return err
		}
	}
	return nil
}

// window is expected, and nothing without a window.
func (o *ReportOptions) window(r *Record) []Reference {
	if o.Until.IsZero() {
		return nil
	}
	return o.expected(r)
}

// orphan judges a line that names no operation: what undid a known effect elsewhere, or what nobody knows.
func (p *reportPass) orphan(ctx context.Context, l *ReportLine) error {
	f := Finding{Kind: FindingNoOperation, Suggest: SuggestPerson, Effect: Effect{Ref: l.Ref}, Reported: *l}
	if l.Parent != "" {
		parent, err := p.e.matching(ctx, &Event{Account: p.o.Account, Ref: l.Parent})
		switch {
		case err != nil:
			return err
		case parent != nil && parent.foreignKnown(l.Ref):
			p.Summary.Matched++
			p.Summary.Foreign++
			return nil
		case parent != nil:
			if effect, ok := parent.undoneBy(l.Parent); ok {
				f.Suggest, f.Effect, f.State = SuggestForeign, effect, parent.State
			}
		}
	}
	return p.found(ctx, p.Line, f)
}
