package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/settle-go/settle"
)

// contextMutants do not stop when they are told to, or not as a whole.
func contextMutants() []mutant {
	return []mutant{
		{
			name: "contexts are ignored", cases: []string{"S5/done_before"},
			bend: func(b *bent) {
				off := context.WithoutCancel
				b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) { return b.Store.Get(off(ctx), by) }
				b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
					return b.Store.Commit(off(ctx), c)
				}
				b.claim = func(ctx context.Context, c settle.Claim) ([]settle.Record, error) { return b.Store.Claim(off(ctx), c) }
				b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) { return b.Store.List(off(ctx), q) }
			},
		},
		{
			name: "a done context is an error, and the work is done all the same", cases: []string{"S5/done_before"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				rs, err := b.Store.Commit(context.WithoutCancel(ctx), c)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return rs, err
			}),
		},
		{
			name: "a renewal is made under a done context", cases: []string{"S5/done_before"},
			bend: func(b *bent) {
				b.renew = func(ctx context.Context, id, token string, lease time.Duration) error {
					return errors.Join(renew(context.WithoutCancel(ctx), b.Store, id, token, lease), ctx.Err())
				}
			},
		},
		{
			name: "a change whose context ends stops half way", cases: []string{"S5/done_within"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				return oneByOne(ctx, b, c, func() { await(func() bool { return ctx.Err() != nil }) })
			}),
		},
		{
			name: "a change that was cut off is not known again", cases: []string{"S6/read_back"},
			bend: func(b *bent) {
				forget(b, func(err error, ctx context.Context) bool {
					await(func() bool { return ctx.Err() != nil })
					return err == nil && ctx.Err() != nil
				})
				answersUnder(b, func(ctx context.Context, rs []settle.Record, err error) ([]settle.Record, error) {
					if err == nil && ctx.Err() != nil {
						return nil, ctx.Err()
					}
					return rs, err
				})
			},
		},
		{
			name: "ErrUncommitted is said of what was made", cases: []string{"S5/done_within"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				rs, err := b.Store.Commit(ctx, c)
				await(func() bool { return ctx.Err() != nil || len(c.Writes) < 2 })
				if err == nil && ctx.Err() != nil {
					return nil, settle.ErrUncommitted
				}
				return rs, err
			}),
		},
	}
}

// answersUnder spoils what Commit answers, by its context.
func answersUnder(b *bent, f func(ctx context.Context, rs []settle.Record, err error) ([]settle.Record, error)) {
	next := b.commit
	b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
		rs, err := next(ctx, c)
		return f(ctx, rs, err)
	}
}

// raceMutants are right as long as one caller comes after the other.
func raceMutants() []mutant {
	return []mutant{
		{
			name: "an update compares, and then writes", cases: []string{"S1/one_version", "S1/lost_update"},
			bend: func(b *bent) {
				var compared atomic.Int64
				b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
					w := c.Writes[0]
					if now, ok := b.stored(w.Record.ID); !ok || now.Version != w.IfVersion || w.IfToken != "" || len(c.Writes) > 1 {
						return b.Store.Commit(ctx, c)
					}
					n := compared.Add(1)
					await(func() bool { return compared.Load() > n })
					for {
						now, _ := b.stored(w.Record.ID)
						w.IfVersion = now.Version
						rs, err := b.Store.Commit(ctx, settle.Change{ID: c.ID, Writes: []settle.Write{w}, Hook: c.Hook})
						var x *settle.ConflictError
						if !errors.As(err, &x) || x.Index.Name != "" {
							return rs, err
						}
					}
				}
			},
		},
		{
			name: "a creation looks for its names, and then writes", cases: []string{"S1/one_key", "S1/many_keys"},
			bend: func(b *bent) {
				var looked atomic.Int64
				b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
					r := c.Writes[0].Record
					_, err := b.Store.Get(ctx, keyOf(&r))
					free := errors.Is(err, settle.ErrNotFound) && c.Writes[0].IfVersion == 0
					n := looked.Add(1)
					if free {
						await(func() bool { return looked.Load() > n+1 })
					}
					rs, err := b.Store.Commit(ctx, c)
					if errors.Is(err, settle.ErrConflict) && free {
						// A second row of the same names, in a store whose indexes are not unique.
						r.Key, r.Subject, r.Hold = r.Key+" "+r.ID, r.Subject+" "+r.ID, ""
						w := c.Writes[0]
						w.Record = r
						return b.Store.Commit(ctx, settle.Change{ID: c.ID, Writes: []settle.Write{w}})
					}
					return rs, err
				}
			},
		},
		{
			name: "a name belongs to nobody while it is handed on", cases: []string{"S24/swaps"},
			bend: func(b *bent) {
				var reads atomic.Int64
				b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) {
					defer reads.Add(1)
					return b.Store.Get(ctx, by)
				}
				b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
					n := reads.Load()
					return oneByOne(ctx, b, c, func() { await(func() bool { return reads.Load() > n+1 }) })
				}
			},
		},
	}
}

// reopenMutants keep in a handle what belongs into the store: the second handle does
// not see it.
func reopenMutants() []mutant {
	return []mutant{
		{
			name: "the last write is not on disk", cases: []string{"S7/records"},
			second: func(b *bent) {
				records(func(b *bent, r *settle.Record) {
					if r.Version == 2 && r.Code == "updated" {
						r.Version, r.Code = 1, ""
					}
				})(b)
			},
		},
		{
			name: "the history is not on disk", cases: []string{"S7/records"},
			second: entries(func(*bent, string, []settle.Entry) []settle.Entry { return nil }),
		},
		{
			name: "claims are kept by the handle", cases: []string{"S7/claims", "S31/two_handles_claim_storm"},
			second: both(
				records(func(_ *bent, r *settle.Record) {
					if r.Version == 2 && r.Token != "" {
						r.Version, r.Token, r.Due = 1, "", r.UpdatedAt
					}
				}),
				handed(func(b *bent, c settle.Claim, rs []settle.Record) []settle.Record {
					for _, r := range b.everything() {
						if len(rs) < c.Limit && r.Token != "" && r.Token != c.Token {
							r.Token = c.Token
							rs = append(rs, r)
						}
					}
					return rs
				}),
			),
		},
		{
			name: "change ids are kept by the handle", cases: []string{"S7/change_ids"},
			second: func(b *bent) {
				b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
					c.ID += " of the second"
					return b.Store.Commit(ctx, c)
				}
			},
		},
		{
			name: "names are checked by the handle", cases: []string{"S7/names", "S1/two_handles_one_key"},
			second: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				rs, err := b.Store.Commit(ctx, c)
				var x *settle.ConflictError
				if errors.As(err, &x) && x.Index.Name != "" {
					c.Writes = slices.Clone(c.Writes)
					for i := range c.Writes {
						r := &c.Writes[i].Record
						r.Key, r.Subject, r.Hold = r.Key+" "+r.ID, r.Subject+" "+r.ID, ""
					}
					return b.Store.Commit(ctx, c)
				}
				return rs, err
			}),
		},
		{
			name: "versions are compared by the handle", cases: []string{"S1/two_handles_lost_update"},
			second: writes(current(func(want, _ int64) bool { return want > 0 })),
		},
		{
			name: "the second handle's histories are numbered anew", cases: []string{"S7/records"},
			second: entries(func(_ *bent, _ string, all []settle.Entry) []settle.Entry {
				for i := range all {
					all[i].Write = fmt.Sprint(i)
				}
				return all
			}),
		},
	}
}
