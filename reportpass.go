package settle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

// matchedLine is what the store knows of a line.
type matchedLine struct {
	op    *Record // the operation that it names, by id or else by reference
	owner *Record // another one that has its reference
}

// match finds the operation of a line: by its id, else by the reference, within the account and the kinds of the
// report, and never by what merely looks like it.
func (p *reportPass) match(ctx context.Context, l *ReportLine) (m matchedLine, err error) {
	if l.Operation != "" {
		r, err := p.e.get(ctx, ByID(l.Operation))
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return m, p.e.storeError("reconcile report", l.Kind, l.Operation, err)
		case l.Parent != "" && r.Undoes.Operation == "": // it is what was undone, see Engine.matching
		case r.Account == p.o.Account && slices.Contains(p.kinds(l), r.Kind):
			m.op = &r
			if x, ok := r.reference(l.Ref); ok && (x.Ref == l.Ref || l.Ref == "") && !x.Foreign {
				return m, nil
			}
		}
	}
	if l.Ref == "" {
		return m, nil
	}
	for _, k := range p.kinds(l) {
		r, err := p.e.get(ctx, ByRef(p.o.Account, k, l.Ref))
		switch {
		case errors.Is(err, ErrNotFound):
			continue
		case err != nil:
			return m, p.e.storeError("reconcile report", k, "", err)
		case m.op == nil:
			m.op = &r
		case m.op.ID != r.ID && m.op.Kind == k:
			m.owner = &r
		default:
			continue
		}
		return m, nil
	}
	return m, nil
}

func (p *reportPass) kinds(l *ReportLine) []string { return p.o.kinds(l) }

func (o *ReportOptions) kinds(l *ReportLine) []string {
	if l.Kind != "" {
		return []string{l.Kind}
	}
	return o.Kinds
}

// each calls f for 0 to n-1, several at a time. The error is that of the lowest.
func (p *reportPass) each(n int, f func(int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	workers := min(p.o.Concurrency, n)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				errs[i] = f(i)
			}
		})
	}
	wg.Wait()
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

// namesOf lists the names under which the store may have the effect of l. op is needed only of a line that has no
// reference of its own.
func (o *ReportOptions) namesOf(l *ReportLine, op *Record) []effectName {
	if o.Until.IsZero() {
		return nil
	}
	var out []effectName
	if l.Ref == "" {
		if op != nil {
			if x, ok := op.reference(""); ok && x.Ref != "" {
				out = append(out, nameOf(op.Kind, x.Ref))
			}
		}
		return out
	}
	for _, k := range o.kinds(l) {
		out = append(out, nameOf(k, l.Ref))
	}
	return out
}

// encode makes the text that Save gets.
func (p *reportPass) encode() ([]byte, error) {
	pos := p.position
	var err error
	if pos.Digest, err = p.diff.MarshalBinary(); err != nil {
		return nil, err
	}
	return json.Marshal(pos)
}

// operations reads the operations that the window may have, page by page from after on.
func (p *reportPass) operations(ctx context.Context, after string, take func(page []Record, last string) error) error {
	if after == "" && !p.o.From.IsZero() {
		after = idAfter(p.o.From.Add(-p.o.Reach))
	}
	end, most := idAfter(p.o.Until.Add(p.o.Reach)), min(reportPage, p.o.SaveEvery)
	for {
		sctx, cancel := p.e.storeCtx(ctx)
		page, err := p.e.store.List(sctx, Query{After: after, Limit: most})
		cancel()
		if err != nil {
			return p.e.storeError("reconcile report", "", "", err)
		}
		full := len(page) == most
		if i := slices.IndexFunc(page, func(r Record) bool { return r.ID > end }); i >= 0 {
			page, full = page[:i], false
		}
		for i := range page {
			fresh(&page[i])
			after = page[i].ID
		}
		if err := take(page, after); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil || !full {
			return err
		}
	}
}

// window is the second phase: what the store has is taken from the difference, of what the report listed.
func (p *reportPass) window(ctx context.Context) error {
	err := p.operations(ctx, p.After, func(page []Record, last string) error {
		for i := range page {
			for _, x := range p.o.expected(&page[i]) {
				p.diff.stored(nameOf(page[i].Kind, x.Ref))
				p.Summary.Checked++
			}
		}
		p.After = last
		return p.done(ctx, len(page))
	})
	if err != nil {
		return err
	}
	return p.next(ctx, phaseNames)
}

// names is the third phase: each group of buckets that differ is looked at again, name by name.
func (p *reportPass) names(ctx context.Context) error {
	groups := p.diff.groups(p.o.MaxNames)
	for ; p.Group < len(groups); p.Group++ {
		if p.Group > 0 {
			if err := p.save(ctx); err != nil {
				return err
			}
		}
		if err := p.group(ctx, groups[p.Group]); err != nil {
			return err
		}
	}
	return p.next(ctx, phaseDone)
}

// group is exact: it has every name that the report lists in these buckets.
func (p *reportPass) group(ctx context.Context, of []int) error {
	var wanted [buckets]bool
	for _, b := range of {
		wanted[b] = true
	}
	listed := make(map[effectName]int32)
	var lines int64
	for l, err := range p.report(ctx, 0) {
		if err != nil {
			return err
		}
		lines++
		var op *Record
		if l.Ref == "" {
			m, err := p.match(ctx, &l)
			if err != nil {
				return err
			}
			op = m.op
		}
		for _, n := range p.o.namesOf(&l, op) {
			if wanted[n.bucket()] {
				listed[n]++
			}
		}
		if lines%reportBatch == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if lines < p.Line { // it would make what it lost look absent
		return invalid("reconcile report", "", "Report", "it has fewer lines than before")
	}
	p.Summary.Passes++
	return p.operations(ctx, "", func(page []Record, _ string) error {
		for i := range page {
			r := &page[i]
			for _, x := range p.o.expected(r) {
				n := nameOf(r.Kind, x.Ref)
				if !wanted[n.bucket()] {
					continue
				}
				switch listed[n] {
				case 0:
					if err := p.absent(ctx, r.ID, x.Ref); err != nil {
						return err
					}
				case 1:
				default:
					f := Finding{Kind: FindingRepeated, Suggest: SuggestPerson, Effect: r.effect(x), State: r.State}
					if err := p.found(ctx, -1, f); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// absent judges an effect that no line has: it is a finding if it was certainly made within the window.
func (p *reportPass) absent(ctx context.Context, id, ref string) error {
	r, err := p.e.get(ctx, ByID(id))
	if err != nil {
		return p.e.storeError("reconcile report", "", id, err)
	}
	i := slices.IndexFunc(p.o.expected(&r), func(x Reference) bool { return x.Ref == ref })
	if i < 0 {
		return nil // it has changed meanwhile
	}
	known, err := p.confirmed(ctx, id, ref)
	if err != nil {
		return err
	}
	if cmp.Or(known, r.UpdatedAt).After(p.o.Until.Add(-p.o.Slack)) {
		p.Summary.Edge++
		return nil
	}
	x, _ := r.reference(ref)
	return p.found(ctx, -1, Finding{Kind: FindingAbsent, Suggest: SuggestLookup, Effect: r.effect(x), State: r.State})
}

// confirmed is when the effect was known to exist: it was made before. The zero time if the history does not say.
func (p *reportPass) confirmed(ctx context.Context, id, ref string) (time.Time, error) {
	for h, err := range p.e.History(ctx, id) {
		if err != nil {
			return time.Time{}, err
		}
		if h.Fact == Applied && (h.Ref == ref || h.Ref == "") {
			return h.At, nil
		}
	}
	return time.Time{}, nil
}
