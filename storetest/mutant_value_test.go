package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// asFloat is an amount that was a float64 for a while.
func asFloat(a settle.Amount) settle.Amount {
	doc, err := json.Marshal(a)
	var x struct{ Value, Unit string }
	if err == nil {
		err = json.Unmarshal(doc, &x)
	}
	v, ferr := strconv.ParseFloat(x.Value, 64)
	if err != nil || ferr != nil {
		return a
	}
	return amount(strconv.FormatFloat(v, 'f', -1, 64), x.Unit)
}

// valueMutants do not give back what they were given.
func valueMutants() []mutant {
	instant := func(f func(time.Time) time.Time) func(*bent) {
		return records(func(_ *bent, r *settle.Record) { r.SendBefore = f(r.SendBefore) })
	}
	payload := func(f func(settle.Payload) settle.Payload) func(*bent) {
		return records(func(_ *bent, r *settle.Record) { r.Request = f(r.Request) })
	}
	return []mutant{
		{
			name: "a field is not stored", cases: []string{"S2/full_created"},
			bend: records(func(_ *bent, r *settle.Record) { r.Waits = 0 }),
		},
		{
			name: "a field is not updated", cases: []string{"S2/full_updated"},
			bend: writes(func(b *bent, w *settle.Write) {
				if now, ok := b.stored(w.Record.ID); ok {
					w.Record.Result = now.Result
				}
			}),
		},
		{
			name: "an empty value does not replace another", cases: []string{"S2/cleared"},
			bend: writes(func(b *bent, w *settle.Write) {
				if now, ok := b.stored(w.Record.ID); ok && w.Record.Message == "" {
					w.Record.Message = now.Message
				}
			}),
		},
		{
			name: "a payload ends at its first NUL", cases: []string{"S2/payload_bytes"},
			bend: payload(func(p settle.Payload) settle.Payload {
				if i := bytes.IndexByte(p, 0); i >= 0 {
					return p[:i]
				}
				return p
			}),
		},
		{
			name: "no payload comes back as an empty one", cases: []string{"S2/payload_nil"},
			bend: payload(func(p settle.Payload) settle.Payload {
				if p == nil {
					return settle.Payload{}
				}
				return p
			}),
		},
		{
			name: "an empty payload comes back as none", cases: []string{"S2/payload_nil"},
			bend: payload(func(p settle.Payload) settle.Payload {
				if len(p) == 0 {
					return nil
				}
				return p
			}),
		},
		{
			name: "a payload is cut at 64 KiB", cases: []string{"S2/payload_large"},
			bend: payload(func(p settle.Payload) settle.Payload { return p[:min(len(p), 1<<16-1)] }),
		},
		{
			name: "text has characters of three bytes at most", cases: []string{"S2/text"},
			bend: records(func(_ *bent, r *settle.Record) {
				r.Message = strings.Map(func(c rune) rune {
					if c > 0xffff {
						return '?'
					}
					return c
				}, r.Message)
			}),
		},
		{
			name: "text is brought into one normal form", cases: []string{"S2/text"},
			bend: records(func(_ *bent, r *settle.Record) { r.Message = strings.ReplaceAll(r.Message, "e\u0301", "\u00e9") }),
		},
		{
			name: "times are cut to milliseconds", cases: []string{"S2/times"},
			bend: instant(func(x time.Time) time.Time { return x.Truncate(time.Millisecond) }),
		},
		{
			name: "times are rounded to milliseconds, up too", cases: []string{"S2/times"},
			bend: instant(func(x time.Time) time.Time { return x.Round(time.Millisecond) }),
		},
		{
			name: "times are nanoseconds in an int64", cases: []string{"S2/times"},
			bend: instant(func(x time.Time) time.Time {
				if x.IsZero() {
					return x
				}
				return time.Unix(0, x.UnixNano()).UTC()
			}),
		},
		{
			name: "times come back in local time", cases: []string{"S2/times"},
			bend: instant(func(x time.Time) time.Time { return x.In(time.FixedZone("here", 3600)) }),
		},
		{
			name: "1970 is no time", cases: []string{"S2/time_epoch"},
			bend: instant(func(x time.Time) time.Time {
				if x.Equal(epoch) {
					return time.Time{}
				}
				return x
			}),
		},
		{
			name: "amounts are floats", cases: []string{"S2/amounts"},
			bend: records(func(_ *bent, r *settle.Record) { r.Terms.Amount = asFloat(r.Terms.Amount) }),
		},
		{
			name: "lists are cut at 255", cases: []string{"S2/long_lists"},
			bend: records(func(_ *bent, r *settle.Record) { r.Attempts = r.Attempts[:min(len(r.Attempts), 255)] }),
		},
	}
}

// shares makes records that left the store by one way come out of Get later, memory and all.
func shares(out func(b *bent, keep func(rs ...settle.Record))) func(*bent) {
	return func(b *bent) {
		kept := map[string]settle.Record{}
		out(b, func(rs ...settle.Record) {
			b.remember(func() {
				for _, r := range rs {
					kept[r.ID] = r
				}
			})
		})
		get := b.get
		b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) {
			r, err := get(ctx, by)
			b.remember(func() {
				if old, ok := kept[r.ID]; err == nil && ok && old.Version == r.Version {
					old.AsOf, old.Due, r = r.AsOf, r.Due, old
				}
			})
			return r, err
		}
	}
}

// sharingMutants give away memory that they go on using.
func sharingMutants() []mutant {
	return []mutant{
		{name: "Get gives out the stored record", shared: true, cases: []string{"S3/get", "S3/each_other"}, bend: shares(func(b *bent, keep func(...settle.Record)) {
			b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) {
				r, err := b.Store.Get(ctx, by)
				known := false
				b.remember(func() {
					_, known = b.seen[fmt.Sprint(r.ID, r.Version)]
					b.seen[fmt.Sprint(r.ID, r.Version)] = struct{}{}
				})
				if err == nil && !known {
					keep(r)
				}
				return r, err
			}
		})},
		{name: "Commit keeps the record that it was given", shared: true, cases: []string{"S3/commit"}, bend: shares(func(b *bent, keep func(...settle.Record)) {
			b.commit = func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
				rs, err := b.Store.Commit(ctx, c)
				for i := range rs {
					in := c.Writes[i].Record
					in.Version, in.CreatedAt, in.UpdatedAt = rs[i].Version, rs[i].CreatedAt, rs[i].UpdatedAt
					keep(in)
				}
				return rs, err
			}
		})},
		{name: "Commit gives out the stored record", shared: true, cases: []string{"S3/commit"}, bend: shares(func(b *bent, keep func(...settle.Record)) {
			answers(func(_ *bent, _ settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				keep(rs...)
				return rs, err
			})(b)
		})},
		{name: "a conflict gives out the stored record", shared: true, cases: []string{"S3/conflict"}, bend: shares(func(b *bent, keep func(...settle.Record)) {
			answers(func(_ *bent, _ settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				var x *settle.ConflictError
				if errors.As(err, &x) {
					keep(x.Existing)
				}
				return rs, err
			})(b)
		})},
		{name: "Claim gives out the stored record", shared: true, cases: []string{"S3/claim"}, bend: shares(func(b *bent, keep func(...settle.Record)) {
			handed(func(_ *bent, _ settle.Claim, rs []settle.Record) []settle.Record { keep(rs...); return rs })(b)
		})},
		{name: "List gives out the stored records", shared: true, cases: []string{"S3/list"}, bend: shares(func(b *bent, keep func(...settle.Record)) {
			b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) {
				rs, err := b.Store.List(ctx, q)
				keep(rs...)
				return rs, err
			}
		})},
		{name: "History gives out the stored entries", shared: true, cases: []string{"S3/history"}, bend: func(b *bent) {
			kept := map[string][]settle.Entry{}
			entries(func(b *bent, id string, all []settle.Entry) (out []settle.Entry) {
				b.remember(func() {
					if len(kept[id]) != len(all) {
						kept[id] = all
					}
					out = slices.Clone(kept[id]) // but not its alarms
				})
				return out
			})(b)
		}},
	}
}

// historyMutants lose or change what was learned.
func historyMutants() []mutant {
	return []mutant{
		{name: "an entry loses its note", cases: []string{"S25/entry"}, bend: entries(func(_ *bent, _ string, all []settle.Entry) []settle.Entry {
			for i := range all {
				all[i].Note = ""
			}
			return all
		})},
		{name: "the entry of a second write has no change id", cases: []string{"S25/change_id"}, bend: func(b *bent) {
			first := map[string]string{}
			answers(func(b *bent, c settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				b.remember(func() { first[c.ID] = c.Writes[0].Record.ID })
				return rs, err
			})(b)
			entries(func(b *bent, id string, all []settle.Entry) []settle.Entry {
				b.remember(func() {
					for i, x := range all {
						if first[x.Write] != id {
							all[i].Write = ""
						}
					}
				})
				return all
			})(b)
		}},
		{name: "entries follow the record's state", cases: []string{"S25/never_changed"}, bend: entries(func(b *bent, id string, all []settle.Entry) []settle.Entry {
			now, _ := b.stored(id)
			for i := range all {
				all[i].To = now.State
			}
			return all
		})},
		{name: "an entry is lost", cases: []string{"S60/gapless"}, bend: entries(func(_ *bent, _ string, all []settle.Entry) []settle.Entry {
			return slices.DeleteFunc(all, func(x settle.Entry) bool { return x.Seq == 3 })
		})},
		{name: "the history is newest first", cases: []string{"S60/gapless"}, bend: func(b *bent) {
			b.history = func(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
				all, err := b.Store.History(ctx, id, after, limit)
				slices.Reverse(all)
				return all, err
			}
		}},
		{name: "History has no limit", cases: []string{"S60/pages"}, bend: func(b *bent) {
			b.history = func(ctx context.Context, id string, after int64, _ int) ([]settle.Entry, error) {
				return b.Store.History(ctx, id, after, 1<<20)
			}
		}},
		{name: "a page of history begins with the last entry of the one before", cases: []string{"S60/pages"}, bend: func(b *bent) {
			b.history = func(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
				return b.Store.History(ctx, id, max(0, after-1), limit)
			}
		}},
		{name: "the history has entries of others", cases: []string{"S60/own_operation"}, bend: entries(func(b *bent, id string, all []settle.Entry) []settle.Entry {
			for _, r := range b.everything() {
				if h, _ := b.Store.History(context.Background(), r.ID, 0, 1<<20); r.ID != id {
					all = append(all, h...)
				}
			}
			return all
		})},
	}
}

// listMutants select too much, too little, or in the wrong order.
func listMutants() []mutant {
	query := func(f func(q *settle.Query)) func(*bent) {
		return func(b *bent) {
			b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) {
				f(&q)
				return b.Store.List(ctx, q)
			}
		}
	}
	return []mutant{
		{name: "an empty list is an error", cases: []string{"S50/empty"}, bend: func(b *bent) {
			b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) {
				rs, err := b.Store.List(ctx, q)
				if err == nil && len(rs) == 0 {
					err = settle.ErrNotFound
				}
				return rs, err
			}
		}},
		{name: "the subject is no filter beside the kind", cases: []string{"S50/filters"}, bend: query(func(q *settle.Query) {
			if q.Kind != "" {
				q.Subject = ""
			}
		})},
		{name: "only the first state counts", cases: []string{"S50/states"}, bend: query(func(q *settle.Query) { q.States = q.States[:min(1, len(q.States))] })},
		{name: "states are those of creation", cases: []string{"S50/states"}, bend: func(b *bent) {
			b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) {
				states := q.States
				q.States = nil
				rs, err := b.Store.List(ctx, q)
				return slices.DeleteFunc(rs, func(r settle.Record) bool {
					h, _ := b.Store.History(ctx, r.ID, 0, 1)
					was := r.State
					if r.Version > 1 && len(h) > 0 {
						was = settle.StateUnknown // what the case created it with
					}
					return len(states) > 0 && !slices.Contains(states, was)
				}), err
			}
		}},
		{name: "Overdue selects what is due at any time", cases: []string{"S50/overdue"}, bend: func(b *bent) {
			b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) {
				if q.Overdue == 0 {
					return b.Store.List(ctx, q)
				}
				q.Overdue = 0
				rs, err := b.Store.List(ctx, q)
				return slices.DeleteFunc(rs, func(r settle.Record) bool { return r.Due.IsZero() }), err
			}
		}},
		{name: "what was claimed before is never overdue", cases: []string{"S50/overdue"}, bend: func(b *bent) {
			b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) {
				rs, err := b.Store.List(ctx, q)
				return slices.DeleteFunc(rs, func(r settle.Record) bool { return q.Overdue > 0 && r.Token != "" }), err
			}
		}},
		{name: "the list is in the order of creation", cases: []string{"S50/pages"}, bend: func(b *bent) {
			b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) {
				rs, err := b.Store.List(ctx, q)
				slices.SortFunc(rs, func(a, b settle.Record) int { return a.CreatedAt.Compare(b.CreatedAt) })
				return rs, err
			}
		}},
		{name: "After is ignored", cases: []string{"S50/pages", "S50/default_limit"}, bend: query(func(q *settle.Query) { q.After = "" })},
		{name: "After is part of the page", cases: []string{"S50/pages"}, bend: func(b *bent) {
			b.list = func(ctx context.Context, q settle.Query) ([]settle.Record, error) {
				rs, err := b.Store.List(ctx, q)
				if now, ok := b.stored(q.After); ok && reflect.DeepEqual(q, settle.Query{After: q.After, Limit: q.Limit}) {
					rs = append([]settle.Record{now}, rs...)
				}
				return rs[:min(len(rs), max(q.Limit, 1))], err
			}
		}},
		{name: "the limit of a list is ignored", cases: []string{"S50/pages", "S50/default_limit"}, bend: query(func(q *settle.Query) { q.Limit = 1 << 20 })},
	}
}
