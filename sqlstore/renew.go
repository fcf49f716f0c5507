package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/settle-go/settle"
)

// renewals are the lengths of the list of claims in one statement: few, so that each is prepared
// once. What is left over is filled with claims that nobody has.
var renewals = [...]int{1, 8, 64, 256}

// Renew implements settle.Store.
func (s *Store) Renew(ctx context.Context, held []settle.Held, lease time.Duration) ([]error, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ended(ctx, "renew")
	case lease <= 0:
		return nil, invalid("a renewal without lease")
	}
	out := make([]error, len(held))
	var at []int // of those that somebody can have
	for i, h := range held {
		if h.Token == "" || h.ID == "" {
			out[i] = settle.ErrClaimLost
		} else {
			at = append(at, i)
		}
	}
	for len(at) > 0 {
		n := min(len(at), renewals[len(renewals)-1])
		part := make([]settle.Held, n)
		for i := range part {
			part[i] = held[at[i]]
		}
		said, err := s.renewPart(ctx, part, lease)
		if err != nil && n == len(held) {
			return nil, err
		}
		for i := range part {
			if out[at[i]] = err; err == nil {
				out[at[i]] = said[i]
			}
		}
		at = at[n:]
	}
	return out, nil
}

func (s *Store) renewPart(ctx context.Context, part []settle.Held, lease time.Duration) (said []error, err error) {
	v := &values{held: part, dueIn: lease.Microseconds(), wait: s.lockWait()}
	var step func() error
	switch {
	case s.d.local:
		step = func() error { said, err = s.renewEach(ctx, v); return err }
	case s.d.lockHeld == "":
		v.held = padded(part)
		q, err := s.with(ctx, s.d.renewAll, lengths{n: len(v.held)})
		if err != nil {
			return nil, err
		}
		step = func() error { said, err = s.renewAtOnce(ctx, q, v, part); return err }
	default:
		v.held = padded(part)
		lock, err := s.with(ctx, s.d.lockHeld, lengths{n: len(v.held)})
		if err != nil {
			return nil, err
		}
		renew, err := s.with(ctx, s.d.renewAll, lengths{n: len(v.held)})
		if err != nil {
			return nil, err
		}
		step = func() error { said, err = s.renewLocked(ctx, lock, renew, v, part); return err }
	}
	_, err = s.restarting(ctx, "renew", func() ([]settle.Record, error) { return nil, step() })
	if err != nil {
		return nil, err
	}
	return said, nil
}

// padded fills a list up to one of the lengths of renewals.
func padded(held []settle.Held) []settle.Held {
	for _, n := range renewals {
		if len(held) <= n {
			return append(append(make([]settle.Held, 0, n), held...), make([]settle.Held, n-len(held))...)
		}
	}
	return held
}

// answers puts what was found out about claims into the order of held.
func answers(held []settle.Held, found map[settle.Held]error) []error {
	out := make([]error, len(held))
	for i, h := range held {
		err, ok := found[h]
		if !ok {
			err = settle.ErrClaimLost
		}
		out[i] = err
	}
	return out
}

// errElsewhere is the answer for a claim whose record somebody else has locked: it is as it was.
var errElsewhere = locked("renew", 0, nil)

// renewAtOnce is one statement, which does no harm when it is repeated; so an error says
// only that the holder does not know for how long it may go on.
func (s *Store) renewAtOnce(ctx context.Context, q *query, v *values, held []settle.Held) ([]error, error) {
	rows, err := runner{s: s}.query(ctx, q, v.list(q.params))
	if err != nil {
		return nil, s.unrenewed(ctx, err)
	}
	defer rows.Close() // once more is nothing; the first is looked at
	found := make(map[settle.Held]error, len(held))
	for rows.Next() {
		var h settle.Held
		var renewed, still bool
		var token sql.RawBytes
		if err := rows.Scan(&h.ID, &token, &renewed, &still); err != nil {
			return nil, s.unrenewed(ctx, err)
		}
		h.Token = s.d.text(token)
		switch {
		case renewed:
			found[h] = nil
		case still:
			found[h] = errElsewhere
		}
	}
	if err := rows.Err(); err != nil {
		return nil, s.unrenewed(ctx, err)
	}
	if err := rows.Close(); err != nil {
		return nil, s.unrenewed(ctx, err)
	}
	return answers(held, found), nil
}

// unrenewed says why claims could not be renewed.
func (s *Store) unrenewed(ctx context.Context, err error) error {
	switch {
	case s.class(err) == busy:
		return locked("renew", s.opts.LockWait, err)
	case ctx.Err() != nil:
		return ended(ctx, "renew")
	}
	return s.unsent("renew", err)
}

// renewLocked locks the rows that nobody else has locked, looks who holds them, and renews those
// that are held. What a lost answer to its COMMIT hides shows at the next renewal.
func (s *Store) renewLocked(ctx context.Context, lock, renew *query, v *values, held []settle.Held) ([]error, error) {
	t, err := s.begin(ctx, "renew", nil)
	if err != nil {
		return nil, err
	}
	defer t.close()
	stored, err := s.heldRows(ctx, t.runner, lock, v)
	if err != nil {
		return nil, s.unrenewed(ctx, err)
	}
	out := make([]error, len(held))
	mine := make([]settle.Held, 0, len(held))
	for i, h := range held {
		switch row, free := stored[h.ID]; {
		case !free:
			if out[i], err = s.elsewhere(ctx, t.runner, h); err != nil {
				return nil, s.unrenewed(ctx, err)
			}
		case row.Token == h.Token && row.Due.After(row.AsOf):
			mine = append(mine, h)
		default:
			out[i] = settle.ErrClaimLost
		}
	}
	if len(mine) == 0 {
		return out, nil
	}
	now := *v
	now.held = append(mine, make([]settle.Held, len(v.held)-len(mine))...)
	if _, err := t.exec(ctx, renew, now.list(renew.params)...); err != nil {
		return nil, s.unrenewed(ctx, err)
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, "renew")
	}
	if err := t.commit(); err != nil {
		return nil, s.unrenewed(ctx, err)
	}
	return out, nil
}

// elsewhere answers for a claim whose row is locked, or not there.
func (s *Store) elsewhere(ctx context.Context, q runner, h settle.Held) (answer, err error) {
	r, err := s.get(ctx, q, settle.ByID(h.ID))
	switch {
	case errors.Is(err, settle.ErrNotFound), err == nil && (r.Token != h.Token || !r.Due.After(r.AsOf)):
		return settle.ErrClaimLost, nil
	case err == nil || errors.Is(err, settle.ErrCorrupt):
		return errElsewhere, nil
	}
	return nil, err
}

// heldRows reads token, due and the time of the rows that could be locked.
func (s *Store) heldRows(ctx context.Context, q runner, lock *query, v *values) (map[string]settle.Record, error) {
	rows, err := q.query(ctx, lock, v.list(lock.params))
	if err != nil {
		return nil, err
	}
	defer rows.Close() // once more is nothing; the first is looked at
	out := make(map[string]settle.Record, len(v.held))
	for rows.Next() {
		var id, token string
		var due sql.NullInt64
		var now int64
		if err := rows.Scan(&id, &token, &due, &now); err != nil {
			return nil, err
		}
		r := settle.Record{Token: token, AsOf: instant(now)}
		if due.Valid {
			r.Due = instant(due.Int64)
		}
		out[id] = r
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return out, rows.Close()
}

// renewEach renews one claim after the other, in one transaction of a file.
func (s *Store) renewEach(ctx context.Context, v *values) ([]error, error) {
	quiet := s.quiet(ctx)
	t, err := s.begin(ctx, "renew", nil)
	if err != nil {
		return nil, err
	}
	defer t.close()
	out := make([]error, len(v.held))
	var last *values
	for i, h := range v.held {
		one := &values{id: h.ID, ifToken: h.Token, dueIn: v.dueIn}
		one.at(micros(), never)
		st, err := s.effect(quiet, t.runner, &s.q.renew, one)
		switch {
		case err != nil:
			return nil, s.unsent("renew", err)
		case st.hit:
			last = one
		default:
			out[i] = settle.ErrClaimLost
		}
	}
	switch {
	case last == nil:
		return out, nil
	case ctx.Err() != nil:
		return nil, ended(ctx, "renew")
	}
	if err := t.commit(); err != nil {
		was, lookErr := s.readBack(quiet, func(ctx context.Context, q runner) (was bool, err error) {
			_, err = q.one(ctx, &s.q.row, []any{bytesOf(last.id)}, func(rows *sql.Rows) error {
				var o row
				var body sql.RawBytes
				err := rows.Scan(&o.version, &o.token, &o.due, &o.created, &body)
				was = o.token == last.ifToken && o.due.Valid && o.due.Int64 == last.due
				return err
			})
			return was, err
		})
		switch {
		case lookErr != nil:
			return nil, failed("outcome of a renewal unknown", errors.Join(plain(err), lookErr))
		case !was && ctx.Err() != nil:
			return nil, ended(ctx, "renew")
		case !was:
			return nil, failed("renew", err)
		}
	}
	return out, nil
}
