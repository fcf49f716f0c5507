package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

// dueMutants get the fields wrong that the store sets itself.
func dueMutants() []mutant {
	return []mutant{
		{
			name: "CreatedAt moves with every write", cases: []string{"S20/update"},
			bend: records(func(_ *bent, r *settle.Record) { r.CreatedAt = r.UpdatedAt }),
		},
		{
			name: "UpdatedAt is what the caller wrote", cases: []string{"S20/create", "S20/update"},
			bend: answers(func(_ *bent, c settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				for i := range rs {
					rs[i].UpdatedAt = c.Writes[i].Record.UpdatedAt
				}
				return rs, err
			}),
		},
		{
			name: "a write without payloads keeps those that are stored", cases: []string{"S20/payloads_dropped"},
			bend: writes(func(b *bent, w *settle.Write) {
				if now, ok := b.stored(w.Record.ID); ok && w.Record.Request == nil && w.Record.Result == nil {
					w.Record.Request, w.Record.Result = now.Request, now.Result
				}
			}),
		},
		{
			name: "a record without a request has no names but its id", cases: []string{"S20/payloads_dropped"},
			bend: writes(func(b *bent, w *settle.Write) {
				if _, ok := b.stored(w.Record.ID); ok && w.Record.Request == nil {
					w.Record.ReplacedBy = w.Record.ID
				}
			}),
		},
		{
			name: "Keep means Never", cases: []string{"S20/due_kept", "S20/due_moved"},
			bend: writes(func(_ *bent, w *settle.Write) {
				if w.DueIn == settle.Keep {
					w.DueIn = settle.Never
				}
			}),
		},
		{
			name: "Keep writes the Due that the caller read", cases: []string{"S20/due_kept_after_renew", "S20/due_kept"},
			bend: writes(func(b *bent, w *settle.Write) {
				now, ok := b.stored(w.Record.ID)
				switch {
				case w.DueIn != settle.Keep || !ok:
				case w.Record.Due.IsZero():
					w.DueIn = settle.Never
				default:
					w.DueIn = max(0, w.Record.Due.Sub(now.AsOf))
				}
			}),
		},
		{
			name: "Never is ignored: a settled row stays due", cases: []string{"S20/due_moved", "S50/overdue"},
			bend: writes(func(_ *bent, w *settle.Write) {
				if w.DueIn == settle.Never && w.IfVersion > 0 {
					w.DueIn = settle.Keep
				}
			}),
		},
		{
			name: "DueIn is cut to milliseconds", cases: []string{"S20/create_due"},
			bend: writes(func(_ *bent, w *settle.Write) {
				if w.DueIn > 0 {
					w.DueIn = w.DueIn.Truncate(time.Millisecond)
				}
			}),
		},
		{
			name: "Forever overflows", cases: []string{"S20/create_due"},
			bend: writes(func(_ *bent, w *settle.Write) {
				if w.DueIn == settle.Forever {
					w.DueIn = 0
				}
			}),
		},
		{
			name: "DueIn counts from the caller's clock", cases: []string{"S4/clock", "S20/create_due"},
			bend: writes(func(_ *bent, w *settle.Write) {
				if w.DueIn >= 0 && w.DueIn < settle.Forever {
					w.DueIn += 3 * time.Millisecond // by which that clock is fast
				}
			}),
		},
		{
			name: "AsOf is the time of the last write", cases: []string{"S4/clock"},
			bend: records(func(_ *bent, r *settle.Record) { r.AsOf = r.UpdatedAt }),
		},
		{
			name: "AsOf is what the caller wrote", cases: []string{"S4/clock", "S20/create"},
			bend: answers(func(_ *bent, c settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				for i := range rs {
					rs[i].AsOf = c.Writes[i].Record.AsOf
				}
				return rs, err
			}),
		},
		{
			name: "records come back in the order of their ids", cases: []string{"S28/order_of_writes"},
			bend: answers(func(_ *bent, _ settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				slices.SortFunc(rs, func(a, b settle.Record) int { return -slices.Compare([]byte(a.ID), []byte(b.ID)) })
				return rs, err
			}),
		},
	}
}

// current lets the version that w wants be the stored one, if it is as told.
func current(when func(want, have int64) bool) func(b *bent, w *settle.Write) {
	return func(b *bent, w *settle.Write) {
		if now, ok := b.stored(w.Record.ID); ok && when(w.IfVersion, now.Version) {
			w.IfVersion = now.Version
		}
	}
}

// writeMutants check too little, or not as one step.
func writeMutants() []mutant {
	return []mutant{
		{
			name:  "the last write wins",
			cases: []string{"S21/version_older", "S21/version_newer", "S21/version_after_claim", "S21/interleaved", "S21/all_or_nothing", "S1/one_version", "S1/lost_update"},
			bend:  writes(current(func(want, _ int64) bool { return want > 0 })),
		},
		{
			name: "a version that is newer than the stored one will do", cases: []string{"S21/version_newer"},
			bend: writes(current(func(want, have int64) bool { return want > have })),
		},
		{
			name: "updating what does not exist creates it", cases: []string{"S21/no_record"},
			bend: writes(func(b *bent, w *settle.Write) {
				if _, ok := b.stored(w.Record.ID); !ok {
					w.IfVersion = 0
				}
			}),
		},
		{
			name: "creating what exists replaces it", cases: []string{"S23/same_id"},
			bend: writes(current(func(want, _ int64) bool { return want == 0 })),
		},
		{
			name: "a conflict shows the caller's own record", cases: []string{"S21/interleaved", "S21/version_older"},
			bend: answers(func(_ *bent, c settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				var x *settle.ConflictError
				if errors.As(err, &x) && x.Index.Name == "" {
					asOf := x.Existing.AsOf
					x.Existing = c.Writes[len(c.Writes)-1].Record
					x.Existing.AsOf = asOf
				}
				return rs, err
			}),
		},
		{
			name: "the token is not compared", cases: []string{"S22/token_wrong", "S22/token_of_nobody", "S22/lease_ended"},
			bend: writes(func(_ *bent, w *settle.Write) { w.IfToken = "" }),
		},
		{
			name: "the end of the lease is not looked at", cases: []string{"S22/lease_ended"},
			bend: writes(func(b *bent, w *settle.Write) {
				if now, _ := b.stored(w.Record.ID); now.Token == w.IfToken && !now.Due.IsZero() {
					w.IfToken = ""
				}
			}),
		},
		{
			name: "a lease without an end is a live one", cases: []string{"S22/lease_cleared"},
			bend: writes(func(b *bent, w *settle.Write) {
				if now, _ := b.stored(w.Record.ID); now.Token == w.IfToken && now.Due.IsZero() {
					w.IfToken = ""
				}
			}),
		},
		{
			name: "a token is good for one write", cases: []string{"S22/token_right"},
			bend: func(b *bent) {
				used := map[string]bool{}
				writes(func(b *bent, w *settle.Write) {
					b.remember(func() {
						if token := w.IfToken; used[token] {
							w.IfToken = "used up"
						} else if token != "" {
							used[token] = true
						}
					})
				})(b)
			},
		},
		{
			name:  "each write is a step of its own",
			cases: []string{"S21/all_or_nothing", "S23/all_or_nothing", "S24/taken_within", "S24/refused_swap", "S24/many_writes"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				return oneByOne(ctx, b, c, nil)
			}),
		},
		{
			name: "a change is made in batches of fifty", cases: []string{"S24/many_writes"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				var out []settle.Record
				for ws := range slices.Chunk(c.Writes, 50) {
					rs, err := b.Store.Commit(ctx, settle.Change{ID: c.ID, Writes: ws, Hook: c.Hook})
					if err != nil {
						return nil, err
					}
					out = append(out, rs...)
				}
				return out, nil
			}),
		},
		{
			name: "a refused change leaves its history entry", cases: []string{"S21/version_older", "S25/never_changed"},
			bend: func(b *bent) {
				kept := map[string][]settle.Entry{}
				answers(func(b *bent, c settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
					if errors.Is(err, settle.ErrConflict) {
						b.remember(func() {
							for _, w := range c.Writes {
								x := w.Entry
								x.Operation, x.Write, x.Seq = w.Record.ID, c.ID, w.IfVersion+1
								kept[x.Operation] = append(kept[x.Operation], x)
							}
						})
					}
					return rs, err
				})(b)
				entries(func(b *bent, id string, all []settle.Entry) (out []settle.Entry) {
					b.remember(func() { out = append(all, kept[id]...) })
					return out
				})(b)
			},
		},
		{
			name: "every fifth write of a record is told and not made", cases: []string{"S1/all_methods", "S60/gapless"},
			bend: commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				if w := c.Writes[0]; len(c.Writes) == 1 && w.IfVersion > 0 {
					if now, _ := b.stored(w.Record.ID); now.Version == w.IfVersion && now.Tries%5 == 4 {
						return []settle.Record{now}, nil
					}
				}
				return b.Store.Commit(ctx, c)
			}),
		},
	}
}

// againMutants do not know a change when they see it again.
func againMutants() []mutant {
	return []mutant{
		{
			name:  "a change is applied as often as it comes",
			cases: []string{"S26/create_again", "S26/update_again", "S26/many_again", "S26/one_change", "S26/no_hook_again", "S6/commit_lost", "S6/hook_lost", "S6/any_call"},
			bend:  func(b *bent) { forget(b, func(error, context.Context) bool { return true }) },
		},
		{
			name: "a repeat answers with what it wrote then", cases: []string{"S26/update_again", "S26/create_again", "S26/many_again"},
			bend: func(b *bent) {
				said := map[string][]settle.Record{}
				answers(func(b *bent, c settle.Change, rs []settle.Record, err error) (out []settle.Record, _ error) {
					b.remember(func() {
						if err == nil && said[c.ID] == nil {
							said[c.ID] = rs
						}
						out = said[c.ID]
					})
					return out, err
				})(b)
			},
		},
		{
			name: "a repeat answers with its first record only", cases: []string{"S26/many_again"},
			bend: func(b *bent) {
				seen := map[string]bool{}
				answers(func(b *bent, c settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
					b.remember(func() {
						if seen[c.ID] && err == nil {
							rs = rs[:1]
						}
						seen[c.ID] = err == nil
					})
					return rs, err
				})(b)
			},
		},
		{
			name: "a repeat that comes while the first runs is a conflict", cases: []string{"S26/one_change"},
			bend: func(b *bent) {
				running, waiting := map[string]bool{}, 0
				b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
					twice := false
					b.remember(func() { twice, running[c.ID] = running[c.ID], true; waiting++ })
					if twice {
						now, _ := b.stored(c.Writes[0].Record.ID)
						return nil, &settle.ConflictError{Existing: now}
					}
					mine := 0
					b.remember(func() { mine = waiting })
					await(func() (more bool) { b.remember(func() { more = waiting > mine }); return more })
					rs, err := b.Store.Commit(ctx, c)
					b.remember(func() { delete(running, c.ID) })
					return rs, err
				}
			},
		},
		{
			name: "a change whose hook failed counts as applied", cases: []string{"S26/hook_again_after_failure"},
			bend: func(b *bent) { applied(b, func(err error) bool { return errors.As(err, new(*settle.HookError)) }) },
		},
		{
			name: "a change that was refused counts as applied", cases: []string{"S6/refusal_lost"},
			bend: func(b *bent) { applied(b, func(err error) bool { return errors.Is(err, settle.ErrConflict) }) },
		},
	}
}

// forget makes the store forget the id of a change after an answer as told: the same
// one again is another one.
func forget(b *bent, when func(err error, ctx context.Context) bool) {
	n := 0
	as := map[string]string{}  // what a change is called now
	was := map[string]string{} // and what it was called
	b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
		id := c.ID
		b.remember(func() {
			if as[id] != "" {
				c.ID = as[id]
			}
		})
		rs, err := b.Store.Commit(ctx, c)
		if when(err, ctx) {
			b.remember(func() {
				n++
				as[id] = fmt.Sprint(id, "#", n)
				was[as[id]] = id
			})
		}
		return rs, err
	}
	entries(func(b *bent, _ string, all []settle.Entry) []settle.Entry {
		b.remember(func() {
			for i := range all {
				if id, ok := was[all[i].Write]; ok {
					all[i].Write = id
				}
			}
		})
		return all
	})(b)
}

// applied lets a change that failed as told succeed when it comes again.
func applied(b *bent, when func(err error) bool) {
	done := map[string]bool{}
	b.commit = func(ctx context.Context, c settle.Change) (out []settle.Record, err error) {
		again := false
		b.remember(func() { again = done[c.ID] })
		if !again {
			out, err = b.Store.Commit(ctx, c)
			b.remember(func() { done[c.ID] = when(err) })
			return out, err
		}
		for _, w := range c.Writes {
			now, _ := b.stored(w.Record.ID)
			out = append(out, now)
		}
		return out, nil
	}
}
