package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// seedView is the store as one process sees it.
type seedView struct{ p *seedProc }

// seedLocalView says that its reads cost nothing, so the engine sets its calls no deadline.
type seedLocalView struct{ seedView }

// LocalReads implements settle.Local.
func (seedLocalView) LocalReads() bool { return true }

func (p *seedProc) view() settle.Store {
	if p.w.plan.World.Local {
		return seedLocalView{seedView{p}}
	}
	return seedView{p}
}

// seedStoreCall makes a call of the store in its turn, with the fault that waits for it.
func seedStoreCall[T any](ctx context.Context, p *seedProc, kind string, label func() string, do func() (T, error)) (T, error) {
	c := &seedCall{p: p, kind: kind, label: label}
	c.begin = func(c *seedCall) {
		w := p.w
		f := p.fault(kind)
		run := func() seedAnswer {
			v, err := do()
			if f.Fault == seedTwice {
				v, err = do()
			}
			if recs, ok := any(v).([]settle.Record); !ok || len(recs) > 0 || err != nil || f.Fault != "" {
				w.log("p%d %s%s: %s", p.slot, kind, seedMet(f), seedShort(err)) // an empty poll is no news
			}
			return seedAnswer{v, err}
		}
		lost := func() { w.log("p%d %s%s: lost", p.slot, kind, seedMet(f)) }
		broken := seedAnswer{err: errSeedBroken}
		there := w.span(100*time.Microsecond, 3*time.Millisecond, p.serial, c.n, 1)
		back := w.span(100*time.Microsecond, 3*time.Millisecond, p.serial, c.n, 2)
		if p.stalled > w.now() {
			there += p.stalled - w.now()
		}
		hang := func() { // a store whose calls have no deadline gives up by itself
			if w.plan.World.Local {
				w.deliver(c, 20*time.Second, broken)
			}
		}
		switch f.Fault {
		case seedLoseRequest:
			lost()
			w.deliver(c, there, broken)
		case seedHang:
			lost()
			hang()
		case seedLate:
			lost()
			w.deliver(c, there, broken)
			w.in(there+f.For, func() { run() })
		case seedLoseReply:
			w.in(there, func() { run(); w.deliver(c, back, broken) })
		case seedHangAfter:
			w.in(there, func() { run(); hang() })
		default:
			switch f.Fault {
			case seedSlow:
				there += f.For
			case seedSlowReply:
				back += f.For
			case seedStuck:
				p.stall(f.For)
				there += f.For
			case seedStuckAfter:
				p.stall(there + f.For)
			}
			w.in(there, func() { w.deliver(c, back, run()) })
		}
	}
	v, err := p.w.call(ctx, c)
	if err != nil {
		var none T
		return none, err
	}
	return v.(T), nil
}

func seedMet(f SeedAction) string {
	if f.Fault == "" {
		return ""
	}
	return " [" + f.Fault + "]"
}

// seedShort is an error without ids.
func seedShort(err error) string {
	if err == nil {
		return "ok"
	}
	s := err.Error()
	if i := strings.IndexByte(s, '\n'); i > 0 {
		s = s[:i]
	}
	return s
}

// Get implements settle.Store.
func (s seedView) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	return seedStoreCall(ctx, s.p, seedGet, func() string { return s.p.w.model.mask(fmt.Sprint(by)) }, func() (settle.Record, error) {
		r, err := s.p.w.store.Get(context.Background(), by)
		if said, ok := ctx.Value(seedSaidKey{}).(seedSaid); ok && err == nil && by.Name == settle.IndexID && by.Parts[0] == r.ID {
			if last, ok := said[r.ID]; ok && seedLast(&r) > last {
				return r, errSeedBroken
			}
		}
		return r, err
	})
}

// Version implements settle.Versioner.
func (s seedView) Version(ctx context.Context, id string) (settle.Record, error) {
	v, ok := s.p.w.store.(settle.Versioner)
	if !ok {
		return settle.Record{}, errSeedGone
	}
	return seedStoreCall(ctx, s.p, seedGet, func() string { return "version of " + s.p.w.model.alias(id) }, func() (settle.Record, error) {
		return v.Version(context.Background(), id)
	})
}

// Commit implements settle.Store.
func (s seedView) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	w := s.p.w
	w.mu.Lock()
	w.tries[c.ID]++
	tries := w.tries[c.ID]
	w.mu.Unlock()
	recs, err := seedStoreCall(ctx, s.p, seedCommit, func() string { return w.model.change(c) }, func() ([]settle.Record, error) { return w.model.commit(s.p, c, tries) })
	if tick, ok := ctx.Value(seedTickKey{}).(*seedTick); ok && tick.retains {
		tick.committed(&c.Writes[0], err)
	}
	return recs, err
}

// seedOnly labels a call of which a process has one at a time.
func seedOnly() string { return "" }

// change tells changes apart that arrive together.
func (m *seedModel) change(c settle.Change) string {
	var b strings.Builder
	for _, x := range c.Writes {
		fmt.Fprintf(&b, "%s %s %s %s %s %d %s %s %s;", m.alias(x.Record.ID), x.Record.Kind, m.mask(x.Record.Subject), x.Record.Purpose,
			x.Entry.Note, x.Record.Version, x.Entry.Source, x.Entry.Fact, x.Entry.To)
	}
	return b.String()
}

// Claim implements settle.Store. It is the first claim of a poll that counts.
func (s seedView) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	tick, ok := ctx.Value(seedTickKey{}).(*seedTick)
	if !ok || !tick.mayClaim(c.Kinds) {
		return nil, errSeedGone
	}
	if !tick.retains {
		defer tick.cancel()
	}
	w := s.p.w
	return seedStoreCall(ctx, s.p, seedClaim, seedOnly, func() ([]settle.Record, error) { return w.model.claim(s.p, c) })
}

// Renew implements settle.Store.
func (s seedView) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	w := s.p.w
	names := func() string {
		var out []string
		for _, h := range held {
			out = append(out, w.model.alias(h.ID))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	return seedStoreCall(ctx, s.p, seedRenew, names, func() ([]error, error) { return w.model.renew(s.p, held, lease) })
}

// List implements settle.Store: what retention looks through. The look for overdue rows decides nothing, and no report looks at
// what the provider does not tell of.
func (s seedView) List(ctx context.Context, q settle.Query) ([]settle.Record, error) {
	tick, ok := ctx.Value(seedTickKey{}).(*seedTick)
	if !ok || !tick.retains || q.Overdue > 0 {
		return nil, nil
	}
	return seedStoreCall(ctx, s.p, seedGet, seedOnly, func() ([]settle.Record, error) { return s.p.w.model.page(q) })
}

// History implements settle.Store: no process reads it.
func (s seedView) History(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
	return s.p.w.truth.History(ctx, id, after, limit)
}
