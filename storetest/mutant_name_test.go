package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/settle-go/settle"
)

// greedy makes the store take names for one that are two: those that fold makes alike. of
// lists the names of a record; nil is Record.Names.
func greedy(of func(r *settle.Record) []settle.Index, fold func(settle.Index) string) func(*bent) {
	if of == nil {
		of = (*settle.Record).Names
	}
	find := func(b *bent, by settle.Index) (settle.Record, bool) {
		for _, r := range b.everything() {
			for _, n := range of(&r) {
				if f := fold(n); f != "" && f == fold(by) {
					return r, true
				}
			}
		}
		return settle.Record{}, false
	}
	return func(b *bent) {
		b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) {
			r, err := b.Store.Get(ctx, by)
			if errors.Is(err, settle.ErrNotFound) {
				if other, ok := find(b, by); ok {
					return other, nil
				}
			}
			return r, err
		}
		b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
			for _, w := range c.Writes {
				for _, n := range of(&w.Record) {
					if other, ok := find(b, n); ok && other.ID != w.Record.ID {
						return nil, &settle.ConflictError{Index: n, Existing: other}
					}
				}
			}
			return b.Store.Commit(ctx, c)
		}
	}
}

// text folds one part of one kind of name.
func folded(name settle.IndexName, part int, fold func(string) string) func(settle.Index) string {
	return func(n settle.Index) string {
		if n.Name != name {
			return ""
		}
		n.Parts[part] = fold(n.Parts[part])
		return fmt.Sprintf("%q", n)
	}
}

// nameMutants take two names for one.
func nameMutants() []mutant {
	accents := strings.NewReplacer("á", "a", "a\u0301", "a", "å", "a", "a\u030a", "a", "\u212b", "a").Replace
	return []mutant{
		{name: "keys are compared case-blind", cases: []string{"S2/identity_key"}, bend: greedy(nil, folded(settle.IndexKey, 2, strings.ToLower))},
		{
			name: "a space at the end of a subject does not count", cases: []string{"S2/identity_subject"},
			bend: greedy(nil, folded(settle.IndexIntent, 2, func(s string) string { return strings.TrimRight(s, " ") })),
		},
		{
			name: "invisible characters of a purpose do not count", cases: []string{"S2/identity_purpose"},
			bend: greedy(nil, folded(settle.IndexIntent, 3, strings.NewReplacer("\u00ad", "", "\u200b", "", "\u200d", "").Replace)),
		},
		{name: "accents of a scope do not count", cases: []string{"S2/identity_scope"}, bend: greedy(nil, folded(settle.IndexKey, 0, accents))},
		{
			name: "holds are brought into one normal form", cases: []string{"S2/identity_hold"},
			bend: greedy(nil, folded(settle.IndexHold, 1, strings.NewReplacer("a\u0301", "á", "a\u030a", "å", "か\u3099", "が").Replace)),
		},
		{name: "references are compared as numbers", cases: []string{"S2/identity_reference"}, bend: greedy(nil, folded(settle.IndexRef, 2, func(s string) string {
			return strings.TrimLeft(s, "0")
		}))},
		{
			name: "the last byte of a long key is cut off", cases: []string{"S2/longest_names", "S2/identity_key"},
			bend: greedy(nil, folded(settle.IndexKey, 2, func(s string) string { return s[:min(254, len(s))] })),
		},
		{
			name: "the parts of a name are joined", cases: []string{"S2/part_boundaries"},
			bend: greedy(nil, func(n settle.Index) string { return string(n.Name) + strings.Join(n.Parts[:], "") }),
		},
		{
			name: "all kinds of name share one table", cases: []string{"S2/kinds_of_name"},
			bend: greedy(nil, func(n settle.Index) string { return fmt.Sprintf("%q", n.Parts) }),
		},
		{
			name: "a key belongs to one scope of all", cases: []string{"S2/same_name_elsewhere", "S2/identity_scope"},
			bend: greedy(nil, folded(settle.IndexKey, 0, func(string) string { return "" })),
		},
		{
			name: "records without a key share the empty one", cases: []string{"S10/no_key"},
			bend: greedy(func(r *settle.Record) []settle.Index {
				return append(r.Names(), settle.ByKey(r.Scope, r.Kind, r.Key))
			}, func(n settle.Index) string { return fmt.Sprintf("%q", n) }),
		},
		{
			name: "a replaced record keeps its intent", cases: []string{"S10/replaced", "S24/freed_name"},
			bend: greedy(func(r *settle.Record) []settle.Index {
				return append(r.Names(), intentOf(r))
			}, func(n settle.Index) string { return fmt.Sprintf("%q", n) }),
		},
		{
			name: "a released hold is still taken", cases: []string{"S10/hold_released"},
			bend: greedy(func(r *settle.Record) []settle.Index {
				return append(r.Names(), settle.ByHold(r.Scope, r.Hold))
			}, func(n settle.Index) string {
				if n.Name != settle.IndexHold || n.Parts[1] == "" {
					return ""
				}
				return fmt.Sprintf("%q", n)
			}),
		},
		{
			name: "foreign references are names", cases: []string{"S23/reference_foreign"},
			bend: greedy(func(r *settle.Record) []settle.Index {
				var out []settle.Index
				for _, x := range r.References {
					out = append(out, settle.ByRef(r.Account, r.Kind, x.Ref))
				}
				return out
			}, func(n settle.Index) string {
				if n.Name != settle.IndexRef || n.Parts[2] == "" {
					return ""
				}
				return fmt.Sprintf("%q", n)
			}),
		},
		{
			name: "what a change has created is not found when it is refused", cases: []string{"S23/created_and_written"},
			bend: func(b *bent) {
				b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
					rs, err := b.Store.Commit(ctx, c)
					if n := len(c.Writes); err != nil && n > 1 && c.Writes[0].IfVersion == 0 && c.Writes[n-1].Record.ID == c.Writes[0].Record.ID {
						return nil, settle.ErrNotFound
					}
					return rs, err
				}
			},
		},
		{
			name: "references beyond the first are nobody's", cases: []string{"S23/reference_order", "S23/one_reference"},
			bend: func(b *bent) {
				b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
					c.Writes = slices.Clone(c.Writes)
					for i := range c.Writes {
						r := &c.Writes[i].Record
						r.References = slices.Clone(r.References)
						for j := range r.References {
							r.References[j].Foreign = r.References[j].Foreign || j > 0
						}
					}
					return b.Store.Commit(ctx, c)
				}
			},
		},
		{
			name: "what is not there is an empty record", cases: []string{"S10/not_found"},
			bend: func(b *bent) {
				b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) {
					r, err := b.Store.Get(ctx, by)
					if errors.Is(err, settle.ErrNotFound) {
						return r, nil
					}
					return r, err
				}
			},
		},
		{
			name: "nothing is found by its reference", cases: []string{"S10/found_by_every_name"},
			bend: func(b *bent) {
				b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) {
					if by.Name == settle.IndexRef {
						return settle.Record{}, settle.ErrNotFound
					}
					return b.Store.Get(ctx, by)
				}
			},
		},
		{
			name: "a name that was free is remembered as free", cases: []string{"S10/found_by_every_name"},
			bend: func(b *bent) {
				free := map[settle.Index]bool{}
				b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) {
					was := false
					b.remember(func() { was = free[by] })
					if was {
						return settle.Record{}, settle.ErrNotFound
					}
					r, err := b.Store.Get(ctx, by)
					b.remember(func() { free[by] = errors.Is(err, settle.ErrNotFound) })
					return r, err
				}
			},
		},
	}
}

// retried makes a change again, edited, after a conflict over a kind of name.
func retried(name settle.IndexName, edit func(r *settle.Record)) func(*bent) {
	return commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
		rs, err := b.Store.Commit(ctx, c)
		var x *settle.ConflictError
		if !errors.As(err, &x) || x.Index.Name != name {
			return rs, err
		}
		c.Writes = slices.Clone(c.Writes)
		for i := range c.Writes {
			c.Writes[i].Record = c.Writes[i].Record.Clone()
			edit(&c.Writes[i].Record)
		}
		return b.Store.Commit(ctx, c)
	})
}

// reordered makes the writes of a change in another order and answers in the old one.
func reordered(cmp func(a, b settle.Write) int) func(*bent) {
	return commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
		order := slices.Clone(c.Writes)
		slices.SortStableFunc(order, cmp)
		rs, err := b.Store.Commit(ctx, settle.Change{ID: c.ID, Writes: order, Hook: c.Hook})
		var out []settle.Record
		for _, w := range c.Writes {
			for _, r := range rs {
				if r.ID == w.Record.ID {
					out = append(out, r)
				}
			}
		}
		return out, err
	})
}

// takenMutants get wrong who has a name, and when.
func takenMutants() []mutant {
	gives := func(w settle.Write) int {
		if w.Record.ReplacedBy != "" || w.Record.HoldFree {
			return 0
		}
		return 1
	}
	return []mutant{
		{
			name: "of several conflicts the last name is told", cases: []string{"S23/first_name_counts"},
			bend: answers(func(b *bent, c settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				var x *settle.ConflictError
				if errors.As(err, &x) && x.Index.Name != "" {
					for _, n := range c.Writes[len(c.Writes)-1].Record.Names() {
						if r, err := b.Store.Get(context.Background(), n); err == nil {
							x.Index, x.Existing = n, r
						}
					}
				}
				return rs, err
			}),
		},
		{
			name: "a conflict over a name shows the one who wanted it", cases: []string{"S23/reference_owned", "S23/first_name_counts", "S1/one_key"},
			bend: answers(func(_ *bent, c settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				var x *settle.ConflictError
				if errors.As(err, &x) && x.Index.Name != "" {
					x.Existing = c.Writes[len(c.Writes)-1].Record
				}
				return rs, err
			}),
		},
		{
			name: "a record is in the way of its own update", cases: []string{"S23/own_names"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				for _, w := range c.Writes {
					if now, ok := b.stored(w.Record.ID); ok && w.IfVersion == now.Version && now.Hold != "" && w.Record.HeldName() != "" {
						return nil, &settle.ConflictError{Index: settle.ByHold(now.Scope, now.Hold), Existing: now}
					}
				}
				return b.Store.Commit(ctx, c)
			}),
		},
		{
			name: "a reference may have two owners", cases: []string{"S23/reference_owned"},
			bend: retried(settle.IndexRef, func(r *settle.Record) {
				for i := range r.References {
					r.References[i].Foreign = true
				}
			}),
		},
		{
			name: "a hold is left out when another has it", cases: []string{"S23/hold_not_retaken", "S23/all_or_nothing"},
			bend: retried(settle.IndexHold, func(r *settle.Record) { r.HoldFree = true }),
		},
		{
			name: "writes are made last to first", cases: []string{"S24/freed_name", "S24/freed_too_late"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				c.Writes = slices.Clone(c.Writes)
				slices.Reverse(c.Writes)
				rs, err := b.Store.Commit(ctx, c)
				slices.Reverse(rs)
				return rs, err
			}),
		},
		{
			name: "a name that the change gives up is free from the start", cases: []string{"S24/freed_too_late"},
			bend: reordered(func(a, b settle.Write) int { return gives(a) - gives(b) }),
		},
		{
			name: "a name that the change gave up is still taken", cases: []string{"S24/freed_name", "S24/swaps"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				for _, w := range c.Writes {
					for _, n := range w.Record.Names() {
						if now, err := b.Store.Get(ctx, n); err == nil && now.ID != w.Record.ID {
							return nil, &settle.ConflictError{Index: n, Existing: now}
						}
					}
				}
				return b.Store.Commit(ctx, c)
			}),
		},
		{
			name: "two writes of a change may take one name", cases: []string{"S24/taken_within"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				c.Writes = slices.Clone(c.Writes)
				taken := map[string]bool{}
				for i := range c.Writes {
					r := &c.Writes[i].Record
					if taken[r.Key] {
						r.Key += " of the second"
					}
					taken[r.Key] = true
				}
				return b.Store.Commit(ctx, c)
			}),
		},
	}
}
