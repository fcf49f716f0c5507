package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// offset makes the versions that are seen differ from those stored, by by[id].
func offset(b *bent, by map[string]int64) {
	get := func(id string) (n int64) {
		b.remember(func() { n = by[id] })
		return n
	}
	both(
		writes(func(_ *bent, w *settle.Write) {
			if w.IfVersion > 0 {
				w.IfVersion -= get(w.Record.ID)
			}
		}),
		records(func(_ *bent, r *settle.Record) { r.Version += get(r.ID) }),
	)(b)
}

// claimMutants hand out what they must not, or not what they must.
func claimMutants() []mutant {
	return []mutant{
		{
			name: "scopes that a claim leaves out are handed out", cases: []string{"S30/except"},
			bend: func(b *bent) {
				b.claim = func(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
					c.Except = nil
					return b.Store.Claim(ctx, c)
				}
			},
		},
		{
			name: "scopes that a claim leaves out take room in its limit", cases: []string{"S30/except"},
			bend: func(b *bent) {
				b.claim = func(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
					except := c.Except
					c.Except = nil
					rs, err := b.Store.Claim(ctx, c)
					return slices.DeleteFunc(rs, func(r settle.Record) bool {
						out := slices.Contains(except, r.Scope)
						if out {
							giveBack(ctx, b, r)
						}
						return out
					}), err
				}
			},
		},
		{
			name: "a claim hands out one more than its limit", cases: []string{"S30/limit"},
			bend: func(b *bent) {
				b.claim = func(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
					c.Limit++
					return b.Store.Claim(ctx, c)
				}
			},
		},
		{
			name: "a claim hands out all kinds", cases: []string{"S30/kinds"},
			bend: func(b *bent) {
				b.claim = func(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
					for _, r := range b.everything() {
						c.Kinds = append(c.Kinds, r.Kind)
					}
					return b.Store.Claim(ctx, c)
				}
			},
		},
		{
			name: "a claim hands out the latest first", cases: []string{"S30/earliest_first"},
			bend: handed(func(_ *bent, _ settle.Claim, rs []settle.Record) []settle.Record { slices.Reverse(rs); return rs }),
		},
		{
			name: "a claim takes any that are due", cases: []string{"S30/earliest_first"},
			bend: func(b *bent) {
				b.claim = func(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
					want := c.Limit
					c.Limit = 1 << 20
					rs, err := b.Store.Claim(ctx, c)
					slices.Reverse(rs)
					for _, r := range rs[min(want, len(rs)):] { // given back as if it had not been taken
						giveBack(ctx, b, r)
					}
					return rs[:min(want, len(rs))], err
				}
			},
		},
		{
			name: "a claim hands out what is due later", cases: []string{"S30/not_due"},
			bend: handed(func(b *bent, c settle.Claim, rs []settle.Record) []settle.Record {
				for _, r := range b.everything() {
					if len(rs) < c.Limit && r.Token == "" && r.Due.After(r.AsOf) {
						r.Token = c.Token
						rs = append(rs, r)
					}
				}
				return rs
			}),
		},
		{
			name: "a claim hands out what another has", cases: []string{"S31/live_lease", "S31/two_claimers", "S31/claim_storm", "S31/two_handles_claim_storm"},
			bend: handed(func(b *bent, c settle.Claim, rs []settle.Record) []settle.Record {
				for _, r := range b.everything() {
					if len(rs) < c.Limit && r.Token != "" && r.Token != c.Token && r.Due.After(r.AsOf) {
						r.Token = c.Token
						rs = append(rs, r)
					}
				}
				return rs
			}),
		},
		{
			name: "what was claimed once is not handed out again", cases: []string{"S31/ended_lease", "S6/claim_lost"},
			bend: func(b *bent) {
				had := map[string]bool{}
				handed(func(b *bent, _ settle.Claim, rs []settle.Record) (out []settle.Record) {
					b.remember(func() {
						for _, r := range rs {
							if !had[r.ID] {
								out = append(out, r)
							}
							had[r.ID] = true
						}
					})
					return out
				})(b)
			},
		},
		{
			name: "a claim does not raise the version", cases: []string{"S32/sets", "S21/version_after_claim", "S31/claim_against_write"},
			bend: func(b *bent) {
				claims := map[string]int64{}
				handed(func(b *bent, _ settle.Claim, rs []settle.Record) []settle.Record {
					b.remember(func() {
						for _, r := range rs {
							claims[r.ID]--
						}
					})
					return rs
				})(b)
				offset(b, claims)
			},
		},
		{
			name: "a claim shows the state that it makes", cases: []string{"S32/sets"},
			bend: handed(func(_ *bent, _ settle.Claim, rs []settle.Record) []settle.Record {
				for i := range rs {
					rs[i].State = settle.StateSubmitting
				}
				return rs
			}),
		},
		{
			name: "a claim leaves an entry", cases: []string{"S32/no_entry"},
			bend: func(b *bent) {
				left := map[string][]settle.Entry{}
				handed(func(b *bent, c settle.Claim, rs []settle.Record) []settle.Record {
					b.remember(func() {
						for _, r := range rs {
							left[r.ID] = append(left[r.ID], settle.Entry{Seq: r.Version, Operation: r.ID, Write: c.Token, At: r.AsOf})
						}
					})
					return rs
				})(b)
				entries(func(b *bent, id string, all []settle.Entry) (out []settle.Entry) {
					b.remember(func() { out = append(all, left[id]...) })
					slices.SortFunc(out, func(a, b settle.Entry) int { return int(a.Seq - b.Seq) })
					return out
				})(b)
			},
		},
		{
			name: "only the claimer sees the token", cases: []string{"S6/claim_lost", "S32/sets"},
			bend: func(b *bent) {
				b.get = func(ctx context.Context, by settle.Index) (settle.Record, error) {
					r, err := b.Store.Get(ctx, by)
					r.Token = ""
					return r, err
				}
			},
		},
	}
}

// giveBack makes a claimed record due again at once.
func giveBack(ctx context.Context, b *bent, r settle.Record) {
	r.Token = ""
	c := settle.Change{ID: "back " + r.ID, Writes: []settle.Write{{Record: r, IfVersion: r.Version, DueIn: 0}}}
	if _, err := b.Store.Commit(ctx, c); err != nil {
		panic(err)
	}
}

// renewMutants renew too much, too little, or for the wrong one.
func renewMutants() []mutant {
	// renews lets a renewal that is refused succeed when it must not.
	renews := func(when func(now settle.Record, token string) bool) func(*bent) {
		return func(b *bent) {
			b.renew = func(ctx context.Context, id, token string, lease time.Duration) error {
				err := renew(ctx, b.Store, id, token, lease)
				if now, ok := b.stored(id); err != nil && ok && when(now, token) {
					return nil
				}
				return err
			}
		}
	}
	return []mutant{
		{
			name: "a renewal raises the version", cases: []string{"S40/renew"},
			bend: func(b *bent) {
				n := map[string]int64{}
				b.renew = func(ctx context.Context, id, token string, lease time.Duration) error {
					err := renew(ctx, b.Store, id, token, lease)
					if err == nil {
						b.remember(func() { n[id]++ })
					}
					return err
				}
				offset(b, n)
			},
		},
		{
			name: "a renewal never makes the lease shorter", cases: []string{"S40/renew"},
			bend: func(b *bent) {
				b.renew = func(ctx context.Context, id, token string, lease time.Duration) error {
					if now, ok := b.stored(id); ok && now.Token == token && now.Due.Sub(now.AsOf) > lease {
						return nil
					}
					return renew(ctx, b.Store, id, token, lease)
				}
			},
		},
		{
			name: "a renewal counts from the end of the lease", cases: []string{"S40/renew"},
			bend: func(b *bent) {
				b.renew = func(ctx context.Context, id, token string, lease time.Duration) error {
					if now, ok := b.stored(id); ok {
						lease += max(0, now.Due.Sub(now.AsOf))
					}
					return renew(ctx, b.Store, id, token, lease)
				}
			},
		},
		{
			name: "claims do not see renewals", cases: []string{"S40/renewed_is_kept"},
			bend: func(b *bent) {
				end := map[string]time.Time{}
				b.renew = func(_ context.Context, id, token string, lease time.Duration) error {
					now, ok := b.stored(id)
					if !ok || token == "" || now.Token != token || !now.Due.After(now.AsOf) {
						return settle.ErrClaimLost
					}
					b.remember(func() { end[id+token] = now.AsOf.Add(lease) })
					return nil
				}
				records(func(b *bent, r *settle.Record) {
					b.remember(func() {
						if x, ok := end[r.ID+r.Token]; ok {
							r.Due = x
						}
					})
				})(b)
			},
		},
		{
			name: "a claim can be renewed once", cases: []string{"S6/renewal_lost", "S40/renew"},
			bend: func(b *bent) {
				done := map[string]bool{}
				b.renew = func(ctx context.Context, id, token string, lease time.Duration) (err error) {
					b.remember(func() {
						if err = settle.ErrClaimLost; !done[token] {
							err = renew(ctx, b.Store, id, token, lease)
						}
						done[token] = done[token] || err == nil
					})
					return err
				}
			},
		},
		{
			name: "anybody can renew a claim", cases: []string{"S41/wrong_token", "S41/claimed_by_next"},
			bend: func(b *bent) {
				b.renew = func(ctx context.Context, id, _ string, lease time.Duration) error {
					now, _ := b.stored(id)
					return renew(ctx, b.Store, id, now.Token, lease)
				}
			},
		},
		{
			name: "a dead lease is revived", cases: []string{"S41/ended_lease"},
			bend: func(b *bent) {
				b.renew = func(ctx context.Context, id, token string, lease time.Duration) error {
					now, _ := b.stored(id)
					if token == "" || now.Token != token || now.Due.IsZero() || now.Due.After(now.AsOf) {
						return renew(ctx, b.Store, id, token, lease)
					}
					w := settle.Write{Record: now, IfVersion: now.Version, DueIn: lease}
					_, err := b.Store.Commit(ctx, settle.Change{ID: "renewal of " + token, Writes: []settle.Write{w}})
					return err
				}
			},
		},
		{
			name: "the empty token renews what nobody claimed", cases: []string{"S41/not_claimed"},
			bend: renews(func(now settle.Record, token string) bool { return now.Token == token }),
		},
		{
			name: "a token on a record that is never due can be renewed", cases: []string{"S41/given_up"},
			bend: renews(func(now settle.Record, token string) bool {
				return token != "" && now.Token == token && now.Due.IsZero()
			}),
		},
		{
			name: "one lost claim ends the renewal of all", cases: []string{"S42/each"},
			bend: batches(func(b *bent, ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
				out, err := b.Store.Renew(ctx, held, lease)
				return out, errors.Join(append(out, err)...)
			}),
		},
		{
			name: "lost claims have no answer", cases: []string{"S42/each"},
			bend: batches(func(b *bent, ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
				out, err := b.Store.Renew(ctx, held, lease)
				return slices.DeleteFunc(out, func(err error) bool { return len(held) > 1 && err != nil }), err
			}),
		},
		{
			name: "renewals are answered in order of id", cases: []string{"S42/each"},
			bend: batches(func(b *bent, ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
				held = slices.SortedFunc(slices.Values(held), func(a, b settle.Held) int { return strings.Compare(a.ID, b.ID) })
				return b.Store.Renew(ctx, held, lease)
			}),
		},
		{
			name: "any token of a renewal will do for all of its records", cases: []string{"S42/each"},
			bend: batches(func(b *bent, ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
				given := slices.Clone(held)
				for i, h := range given {
					now, _ := b.stored(h.ID)
					if slices.ContainsFunc(held, func(o settle.Held) bool { return o.Token != "" && o.Token == now.Token }) {
						given[i].Token = now.Token
					}
				}
				return b.Store.Renew(ctx, given, lease)
			}),
		},
		{
			name: "a renewal reaches the first hundred claims", cases: []string{"S42/many"},
			bend: batches(func(b *bent, ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
				out, err := b.Store.Renew(ctx, held[:min(len(held), 100)], lease)
				return append(out, make([]error, len(held)-len(out))...), err
			}),
		},
		{
			name: "a renewal of nothing is an error", cases: []string{"S42/none"},
			bend: batches(func(b *bent, ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
				if len(held) == 0 {
					return nil, settle.ErrInvalid
				}
				return b.Store.Renew(ctx, held, lease)
			}),
		},
	}
}

// batches replaces Renew.
func batches(f func(b *bent, ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error)) func(*bent) {
	return func(b *bent) {
		b.batch = func(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
			return f(b, ctx, held, lease)
		}
	}
}
