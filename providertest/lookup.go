package providertest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Query selects objects. Empty fields select everything, but an empty Account
// means the provider's own.
type Query struct {
	Kind      string // empty means charges
	Account   string
	Reference string
	Key       string
	Cursor    string // Page.Next of the page before
	ID        string // set for OnLookup by a Get; List ignores it
}

// Page is part of a list, the newest object first.
type Page struct {
	Objects []Object `json:"objects"`
	Next    string   `json:"next,omitempty"` // empty on the last page
}

// Find reads all pages of a list. With an error it returns what it has found
// until then, and the list is incomplete.
func Find(ctx context.Context, api API, q Query) ([]Object, error) {
	var out []Object
	for {
		page, err := api.List(ctx, q)
		if err != nil {
			return out, err
		}
		out = append(out, page.Objects...)
		if page.Next == "" {
			return out, nil
		}
		q.Cursor = page.Next
	}
}

// Get reads an object by its id, in whatever account. One that does not exist is
// a *Fault with status 404. Other errors are as for Create.
func (p *Provider) Get(ctx context.Context, id string) (Object, error) {
	step, err := p.look(ctx, OpGet, Query{ID: id}, 1)
	if err != nil {
		return Object{}, err
	}
	p.lock()
	r, ok := p.records[id]
	p.unlock()
	if !ok || step.empty {
		return reply(ctx, step, Object{}, &Fault{Status: 404, Code: CodeNotFound})
	}
	return reply(ctx, step, r.reported(), nil)
}

// List reads a page of objects, the newest first. Objects younger than
// Options.LookupLag are not there yet.
func (p *Provider) List(ctx context.Context, q Query) (Page, error) {
	page, before, err := parseCursor(q.Cursor)
	if err != nil {
		return Page{}, &Fault{Status: 400, Code: CodeInvalid}
	}
	if q.Kind == "" {
		q.Kind = KindCharge
	}
	if q.Account == "" {
		q.Account = p.o.Account
	}
	step, err := p.look(ctx, OpLookup, q, page)
	if err != nil {
		return Page{}, err
	}
	if step.empty {
		return reply(ctx, step, Page{}, nil)
	}
	return reply(ctx, step, p.page(q, page, before), nil)
}

func (p *Provider) page(q Query, page int, before string) Page {
	p.lock()
	defer p.unlock()
	var out Page
	reached := before == ""
	for _, id := range slices.Backward(p.order) {
		r := p.records[id]
		switch {
		case !reached:
			reached = id == before
			continue
		case r.Kind != q.Kind, r.Account != q.Account, q.Reference != "" && r.Reference != q.Reference, q.Key != "" && r.Key != q.Key:
			continue
		case p.now().Sub(r.Created) < p.o.LookupLag:
			continue
		}
		if len(out.Objects) == p.o.PageSize {
			out.Next = fmt.Sprintf("%d:%s", page+1, out.Objects[len(out.Objects)-1].ID)
			return out
		}
		out.Objects = append(out.Objects, r.reported())
	}
	return out
}

// look notes a lookup, takes its step, and goes as far as the reading.
func (p *Provider) look(ctx context.Context, op string, q Query, page int) (Step, error) {
	if err := ctx.Err(); err != nil {
		return Step{}, err
	}
	p.lock()
	p.calls[op]++
	step := OK()
	if len(p.lookups) > 0 && (p.lookups[0].pageFails == 0 || op == OpLookup && p.lookups[0].pageFails == page) {
		step = p.lookups[0]
		p.lookups = p.lookups[1:]
	}
	p.unlock()
	if p.o.OnLookup != nil {
		p.o.OnLookup(q)
	}
	if step.pageFails > 0 && step.front == nil {
		step.front = &Fault{Status: 429, Code: CodeRateLimited}
	}
	if step.lost {
		return step, ErrNoReply
	}
	if err := step.before.wait(ctx); err != nil {
		return step, err
	}
	if step.front != nil {
		_, err := reply(ctx, step, struct{}{}, step.front.clone())
		return step, err
	}
	return step, nil
}

// A cursor is the number of the page and the last id before it.
func parseCursor(s string) (page int, before string, err error) {
	if s == "" {
		return 1, "", nil
	}
	n, id, _ := strings.Cut(s, ":")
	page, err = strconv.Atoi(n)
	return page, id, err
}
