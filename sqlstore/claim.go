package sqlstore

import (
	"context"
	"errors"

	"github.com/settle-go/settle"
)

// Claim implements settle.Store. A due record that cannot be read is claimed
// and left out, so that it does not stand in the way of the others; when it is
// the only one, Claim returns its error.
func (s *Store) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	if c.Token == "" || c.Lease <= 0 {
		return nil, invalid("a claim without token or lease")
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, "claim")
	}
	if len(c.Kinds) == 0 || c.Limit <= 0 {
		return nil, nil
	}
	n := lengths{n: len(c.Kinds), except: len(c.Except)}
	v := &values{kinds: c.Kinds, except: c.Except, token: c.Token, limit: c.Limit, dueIn: c.Lease.Microseconds(), wait: s.lockWait()}
	step := s.claimByRow
	text := s.d.due
	if s.d.claimDue != "" {
		step, text = s.claimAtOnce, s.d.claimDue
	}
	if s.d.anyDue != "" {
		// A sweep that finds nothing takes no lock.
		q, err := s.with(ctx, s.d.anyDue, n)
		if err != nil {
			return nil, err
		}
		v.now = micros()
		var open bool
		err = s.reading(ctx, "claim", func() (err error) {
			open, err = runner{s: s}.exists(ctx, q, v.list(q.params))
			return err
		})
		if err != nil {
			return nil, failed("claim", err)
		}
		if !open {
			return nil, nil
		}
	}
	q, err := s.with(ctx, text, n)
	if err != nil {
		return nil, err
	}
	return s.restarting(ctx, "claim", func() ([]settle.Record, error) { return step(ctx, q, v) })
}

// claimByRow reads what is due, locked, and claims each.
func (s *Store) claimByRow(ctx context.Context, q *query, v *values) ([]settle.Record, error) {
	quiet := s.quiet(ctx)
	t, err := s.begin(ctx, "claim", nil)
	if err != nil {
		return nil, err
	}
	defer t.close()
	v.at(micros(), never)
	got, bad, err := s.records(quiet, t.runner, q, v.list(q.params))
	if err != nil {
		return nil, s.unsent("claim", err)
	}
	out := make([]settle.Record, 0, len(got))
	take := func(id string, version, now int64) (end int64, err error) {
		end = now + v.dueIn.(int64)
		w := values{id: id, token: v.token, due: end, was: version}
		_, err = t.exec(quiet, &s.q.claimRow, w.list(s.q.claimRow.params)...)
		return end, err
	}
	for _, f := range got {
		now := v.now
		if s.d.serverClock {
			now = f.AsOf.UnixMicro()
		}
		end, err := take(f.id, f.Version, now)
		if err != nil {
			return nil, s.unsent("claim", err)
		}
		f.Version++
		f.Token, f.Due, f.AsOf = v.token, instant(end), instant(now)
		out = append(out, f.Record)
	}
	for _, b := range bad {
		if _, err := take(b.id, b.version, micros()); err != nil {
			return nil, s.unsent("claim", err)
		}
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, "claim")
	}
	if err := t.commit(); err != nil {
		// Whoever's token is stored has the claim (I15, IC-03).
		was, lookErr := s.readBack(quiet, func(ctx context.Context, q runner) (bool, error) {
			if len(got) == 0 {
				return true, nil
			}
			v := values{id: got[0].id, token: v.token}
			return q.exists(ctx, &s.q.claimed, v.list(s.q.claimed.params))
		})
		switch {
		case lookErr != nil:
			return nil, failed("outcome of a claim unknown", errors.Join(plain(err), lookErr))
		case !was && ctx.Err() != nil:
			return nil, ended(ctx, "claim")
		case !was:
			return nil, failed("claim", err)
		}
	}
	if len(out) == 0 && len(bad) > 0 {
		return nil, bad[0].err
	}
	return out, nil
}

// claimAtOnce is one statement. On a connection of its own, so that database/sql does not
// repeat it: the second run would not know what the first one claimed. If its answer is lost,
// the token finds that (I15, IC-03).
func (s *Store) claimAtOnce(ctx context.Context, q *query, v *values) ([]settle.Record, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, s.unsent("claim", err)
	}
	defer conn.Close()
	var got []found
	var bad []unreadable
	rows, err := conn.QueryContext(ctx, q.text, v.list(q.params)...)
	if err == nil {
		got, bad, err = s.drain(rows)
	}
	if err != nil {
		cause := err
		_ = conn.Close() // a pool of one has no other for reading back
		if _, err := s.readBack(ctx, func(ctx context.Context, r runner) (_ bool, err error) {
			got, bad, err = s.records(ctx, r, &s.q.claimed, v.list(s.q.claimed.params))
			return false, err
		}); err != nil {
			return nil, failed("outcome of a claim unknown", errors.Join(plain(cause), err))
		}
		if len(got)+len(bad) == 0 {
			return nil, s.unsent("claim", cause)
		}
	}
	out := make([]settle.Record, len(got))
	for i := range got {
		out[i] = got[i].Record
	}
	if len(out) == 0 && len(bad) > 0 {
		return nil, bad[0].err
	}
	return out, nil
}
