package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

// SeedDefect is something wrong on purpose, outside the engine: a store that breaks a
// clause, an adapter or a contract that lies. The simulation must find each.
type SeedDefect string

// The defects.
const (
	SeedTokenIgnored     SeedDefect = "store ignores the token and its lease (S22)"
	SeedVersionIgnored   SeedDefect = "store ignores the version and the token (S21, S22)"
	SeedClaimTwice       SeedDefect = "store hands a claim out twice (S31)"
	SeedRenewRevives     SeedDefect = "renewal revives a dead lease (S41)"
	SeedReadBackLies     SeedDefect = "a repeated change is success though it was never applied (S26)"
	SeedReadBackRefuses  SeedDefect = "a repeated change is applied again (S26)"
	SeedHalfCommit       SeedDefect = "only the first write of a change is stored (S20)"
	SeedDueLost          SeedDefect = "a schedule is lost (S20)"
	SeedHookOutside      SeedDefect = "the hook takes effect though its change does not (S27)"
	SeedPrunesTooMuch    SeedDefect = "the ledger goes with the payload (S20)"
	SeedKeyPerAttempt    SeedDefect = "the adapter makes a key for each attempt"
	SeedTimeoutIsRefusal SeedDefect = "the adapter takes no answer for a refusal"
	SeedWindowTooLong    SeedDefect = "the contract promises a longer key window than there is"
	SeedNotConcurrent    SeedDefect = "the contract promises that concurrent requests are safe, and they are not"
	SeedLandsLate        SeedDefect = "requests land later than deadline and settle delay"
)

// SeedDefects lists them.
func SeedDefects() []SeedDefect {
	return []SeedDefect{
		SeedTokenIgnored, SeedVersionIgnored, SeedClaimTwice, SeedRenewRevives, SeedReadBackLies, SeedReadBackRefuses, SeedHalfCommit, SeedDueLost, SeedHookOutside, SeedPrunesTooMuch,
		SeedKeyPerAttempt, SeedTimeoutIsRefusal, SeedWindowTooLong, SeedNotConcurrent, SeedLandsLate,
	}
}

// apply makes what the contract does not say about the provider untrue.
func (d SeedDefect) apply(p *SeedPlan) *SeedPlan {
	q := *p
	q.Defect = d
	if d == SeedNotConcurrent && q.World.Provider.KeyWindow > 0 {
		q.World.Provider.Concurrent = providertest.ConcurrentUnsafe
	}
	return &q
}

// promise is what processes believe.
func (d SeedDefect) promise(c settle.Contract) settle.Contract {
	switch {
	case d == SeedWindowTooLong && c.Keys.Window > 0:
		c.Keys.Window = settle.Forever
	case d == SeedNotConcurrent && c.Keys.Window > 0:
		c.Keys.ConcurrentSafe = true
	}
	return c
}

// store is a store with the defect; s itself if that is not the store's.
func (d SeedDefect) store(s *memstore.Store) settle.Store {
	switch d {
	case SeedTokenIgnored, SeedVersionIgnored, SeedClaimTwice, SeedRenewRevives, SeedReadBackLies, SeedReadBackRefuses, SeedHalfCommit, SeedDueLost, SeedHookOutside, SeedPrunesTooMuch:
		return &seedLiar{Store: s, defect: d}
	case SeedKeyPerAttempt, SeedTimeoutIsRefusal, SeedWindowTooLong, SeedNotConcurrent, SeedLandsLate:
	}
	return s
}

// seedLiar is a store with a defect. The scheduler alone calls it.
type seedLiar struct {
	*memstore.Store
	defect SeedDefect
	given  []settle.Record // claims
	n      int
}

type seedTriesKey struct{}

// Commit implements settle.Store, badly.
func (s *seedLiar) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	tries, _ := ctx.Value(seedTriesKey{}).(int)
	c.Writes = slices.Clone(c.Writes)
	stored := func(w settle.Write) (settle.Record, bool) {
		r, err := s.Get(ctx, settle.ByID(w.Record.ID))
		return r, err == nil
	}
	switch s.defect {
	case SeedTokenIgnored:
		for i := range c.Writes {
			c.Writes[i].IfToken = ""
		}
	case SeedVersionIgnored:
		for i := range c.Writes {
			w := &c.Writes[i]
			if r, ok := stored(*w); ok && w.IfVersion > 0 {
				w.IfVersion, w.IfToken = r.Version, ""
			}
		}
	case SeedReadBackLies:
		if tries > 1 {
			var recs []settle.Record
			for _, w := range c.Writes {
				r := w.Record.Clone()
				r.AsOf, r.Version = time.Now().UTC().Truncate(time.Microsecond), w.IfVersion+1
				if w.DueIn >= 0 {
					r.Due = r.AsOf.Add(w.DueIn)
				}
				recs = append(recs, r)
			}
			return recs, nil
		}
	case SeedReadBackRefuses:
		if tries > 1 {
			c.ID += "'"
			for i := range c.Writes {
				if r, ok := stored(c.Writes[i]); ok {
					c.Writes[i].IfVersion, c.Writes[i].IfToken = r.Version, ""
				}
			}
		}
	case SeedHalfCommit:
		rest := c.Writes[1:]
		c.Writes = c.Writes[:1]
		recs, err := s.Store.Commit(ctx, c)
		for i := range rest {
			recs = append(recs, rest[i].Record)
		}
		return recs, err
	case SeedDueLost:
		for i := range c.Writes {
			if w := &c.Writes[i]; w.DueIn > 0 && w.Record.Token == "" {
				w.DueIn = settle.Never
			}
		}
	case SeedPrunesTooMuch:
		for i := range c.Writes {
			if w := &c.Writes[i]; w.Entry.Note == "pruned" {
				w.Record.Ledger = nil
			}
		}
	case SeedClaimTwice, SeedRenewRevives, SeedKeyPerAttempt, SeedTimeoutIsRefusal, SeedWindowTooLong, SeedNotConcurrent, SeedLandsLate:
	case SeedHookOutside:
		if hook := c.Hook; hook != nil {
			c.Hook = nil
			if err := s.InTx(ctx, func(tx settle.Tx) error { return hook(ctx, tx) }); err != nil {
				return nil, &settle.HookError{Err: err}
			}
		}
	}
	return s.Store.Commit(ctx, c)
}

// Claim implements settle.Store, badly.
func (s *seedLiar) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	recs, err := s.Store.Claim(ctx, c)
	if s.defect != SeedClaimTwice || err != nil {
		return recs, err
	}
	if len(recs) > 0 {
		s.given = recs
		return recs, nil
	}
	for _, old := range s.given { // the same rows to the next caller
		if now, err := s.Get(ctx, settle.ByID(old.ID)); err != nil || now.Token != old.Token || !now.Claimed() {
			continue
		}
		if r, err := s.put(ctx, old.ID, c.Token, c.Lease); err == nil {
			recs = append(recs, r)
		}
	}
	s.given = nil
	return recs, nil
}

// Renew implements settle.Store, badly.
func (s *seedLiar) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	said, err := s.Store.Renew(ctx, held, lease)
	if err != nil || s.defect != SeedRenewRevives {
		return said, err
	}
	for i, lost := range said {
		if lost != nil {
			_, said[i] = s.put(ctx, held[i].ID, held[i].Token, lease)
		}
	}
	return said, nil
}

// put gives a row to somebody.
func (s *seedLiar) put(ctx context.Context, id, token string, lease time.Duration) (settle.Record, error) {
	r, err := s.Get(ctx, settle.ByID(id))
	if err != nil || r.State.Settled() {
		return r, settle.ErrClaimLost
	}
	r.Token = token
	s.n++
	recs, err := s.Store.Commit(ctx, settle.Change{
		ID: fmt.Sprintf("lie %d", s.n), Writes: []settle.Write{{Record: r, IfVersion: r.Version, DueIn: lease}},
	})
	if err != nil {
		return r, err
	}
	return recs[0], nil
}
