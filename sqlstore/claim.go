package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

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
	kindArgs := make([]any, len(c.Kinds))
	for i, k := range c.Kinds {
		kindArgs[i] = bytesOf(k)
	}
	anyDue, due := kinds(s.d.anyDue, len(kindArgs)), kinds(s.d.due, len(kindArgs))
	for _, text := range []string{anyDue, due} {
		if err := s.prepare(ctx, text); err != nil {
			return nil, err
		}
	}
	// A sweep that finds nothing takes no lock.
	var open bool
	err := s.reading(ctx, "claim", func() (err error) {
		open, err = runner{s: s}.exists(ctx, anyDue, append([]any{micros()}, kindArgs...)...)
		return err
	})
	if err != nil {
		return nil, failed("claim", err)
	}
	if !open {
		return nil, nil
	}
	for range restarts {
		var out []settle.Record
		out, err = s.claim(ctx, c, due, kindArgs)
		if !errors.Is(err, errRestart) {
			return out, err
		}
	}
	return nil, failed("claim", err)
}

func (s *Store) claim(ctx context.Context, c settle.Claim, due string, kindArgs []any) ([]settle.Record, error) {
	quiet := context.WithoutCancel(ctx)
	t, err := s.begin(ctx, "claim", func(ctx context.Context, q runner) error {
		_, err := q.exec(ctx, s.d.lock)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	defer t.close()
	now := micros()
	end := now + c.Lease.Microseconds()
	args := append(append([]any{now}, kindArgs...), c.Limit)
	got, bad, err := records(quiet, t.runner, due, args)
	if err != nil {
		return nil, s.unsent("claim", err)
	}
	out := make([]settle.Record, 0, len(got))
	for _, f := range got {
		if _, err := t.exec(quiet, s.d.claim, bytesOf(c.Token), end, f.Version+1, f.n, f.Version); err != nil {
			return nil, s.unsent("claim", err)
		}
		f.Version++
		f.Token, f.Due, f.AsOf = c.Token, instant(end), instant(now)
		out = append(out, f.Record)
	}
	for _, b := range bad {
		if _, err := t.exec(quiet, s.d.claim, bytesOf(c.Token), end, b.version+1, b.n, b.version); err != nil {
			return nil, s.unsent("claim", err)
		}
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, "claim")
	}
	if err := t.commit(); err != nil {
		// Whoever's token is stored has the claim (I15, IC-03).
		was, lookErr := s.readBack(ctx, func(ctx context.Context, q runner) (bool, error) {
			if len(got) == 0 {
				return true, nil
			}
			return q.exists(ctx, s.d.claimed, got[0].n, got[0].Version+1, bytesOf(c.Token))
		})
		switch {
		case lookErr != nil:
			return nil, failed("outcome of a claim unknown", errors.Join(err, lookErr))
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

// Renew implements settle.Store.
func (s *Store) Renew(ctx context.Context, id, token string, lease time.Duration) error {
	switch {
	case ctx.Err() != nil:
		return ended(ctx, "renew")
	case token == "":
		return settle.ErrClaimLost
	case lease <= 0:
		return invalid("a renewal without lease")
	}
	var err error
	for range restarts {
		if err = s.renew(ctx, id, token, lease); !errors.Is(err, errRestart) {
			return err
		}
	}
	return failed("renew", err)
}

func (s *Store) renew(ctx context.Context, id, token string, lease time.Duration) error {
	quiet := context.WithoutCancel(ctx)
	var o *row
	t, err := s.begin(ctx, "renew", func(ctx context.Context, q runner) (err error) {
		o, err = loadRow(ctx, q, s.d.lockRow, id)
		return err
	}, nil)
	if err != nil {
		return err
	}
	defer t.close()
	now := micros()
	if o == nil || o.token != token || !o.due.Valid || o.due.Int64 <= now {
		return settle.ErrClaimLost
	}
	end := now + lease.Microseconds()
	if _, err := t.exec(quiet, s.d.renew, end, o.n); err != nil {
		return s.unsent("renew", err)
	}
	if ctx.Err() != nil {
		return ended(ctx, "renew")
	}
	if err := t.commit(); err != nil {
		was, lookErr := s.readBack(ctx, func(ctx context.Context, q runner) (was bool, err error) {
			_, err = q.one(ctx, s.d.lease, []any{bytesOf(id)}, func(rows *sql.Rows) error {
				var have string
				var due sql.NullInt64
				err := rows.Scan(&have, &due)
				was = have == token && due.Valid && due.Int64 == end
				return err
			})
			return was, err
		})
		switch {
		case lookErr != nil:
			return failed("outcome of a renewal unknown", errors.Join(err, lookErr))
		case !was && ctx.Err() != nil:
			return ended(ctx, "renew")
		case !was:
			return failed("renew", err)
		}
	}
	return nil
}
