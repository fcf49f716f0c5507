package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// LocalReads implements settle.Local: SQLite is a file, a server is not.
func (s *Store) LocalReads() bool { return s.d.local }

// Get implements settle.Store.
func (s *Store) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	var r settle.Record
	err := s.reading(ctx, "get", func() (err error) {
		r, err = s.get(s.point(ctx), runner{s: s}, by)
		return err
	})
	return r, err
}

// point is the context for a read of one row in a file. To make it end with ctx costs
// more than the read takes, so it does only where it can wait: for a connection
// of a pool that has a limit.
func (s *Store) point(ctx context.Context) context.Context {
	if !s.d.local || ctx.Done() == nil || ctx.Err() != nil || s.db.Stats().MaxOpenConnections > 0 {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// reading repeats a read that found the database locked, which in WAL mode
// happens only while another process recovers it.
func (s *Store) reading(ctx context.Context, doing string, read func() error) error {
	var began time.Time
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		err := read()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ended(ctx, doing)
		case s.class(err) != busy:
			return err
		case began.IsZero():
			began = time.Now()
		case time.Since(began) > s.opts.LockWait:
			return locked(doing, s.opts.LockWait, err)
		}
		if sleep(ctx, pause) != nil {
			return ended(ctx, doing)
		}
	}
}

// Version implements settle.Versioner.
func (s *Store) Version(ctx context.Context, id string) (r settle.Record, err error) {
	err = s.reading(ctx, "version", func() (err error) {
		r, err = s.version(s.point(ctx), id)
		return err
	})
	return r, err
}

func (s *Store) version(ctx context.Context, id string) (settle.Record, error) {
	var version, updated, now any // the cheap way to scan a number
	to := []any{&version, &updated, &now}
	if !s.d.serverClock {
		to = to[:2]
	}
	found, err := runner{s: s}.one(ctx, &s.q.versionOf, []any{bytesOf(id)}, func(rows *sql.Rows) error { return rows.Scan(to...) })
	switch {
	case err != nil:
		return settle.Record{}, failed("get the version", err)
	case !found:
		return settle.Record{}, settle.ErrNotFound
	}
	if !s.d.serverClock {
		now = micros()
	}
	v, ok := version.(int64)
	if !ok {
		return settle.Record{}, failed("get the version", fmt.Errorf("%w: no version", settle.ErrCorrupt))
	}
	return settle.Record{ID: id, Version: v, UpdatedAt: timed(updated), AsOf: timed(now)}, nil
}

func (s *Store) get(ctx context.Context, q runner, by settle.Index) (r settle.Record, err error) {
	text, ok := s.q.getBy[by.Name]
	if !ok {
		return r, invalid("unknown index")
	}
	v := values{id: by.Parts[0], names: by.Parts}
	found, err := q.one(ctx, text, v.list(text.params), func(rows *sql.Rows) (err error) {
		r, err = s.scan(rows)
		return err
	})
	if err != nil {
		return r, failed("get by "+string(by.Name), err)
	}
	if !found {
		return r, settle.ErrNotFound
	}
	if !s.d.serverClock {
		r.AsOf = instant(micros())
	}
	return r, nil
}

// blob tells an empty value from NULL, which []byte does not with every driver.
type blob struct {
	b   []byte
	set bool
}

// Scan implements sql.Scanner.
func (p *blob) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*p = blob{}
	case []byte:
		*p = blob{b: append(make([]byte, 0, len(v)), v...), set: true}
	case string:
		*p = blob{b: []byte(v), set: true}
	default:
		return fmt.Errorf("unexpected %T", src)
	}
	return nil
}

// scan reads the columns of a record, after those that lead takes. Of a
// record that cannot be decoded it returns the version.
func (s *Store) scan(rows *sql.Rows, lead ...any) (settle.Record, error) {
	var (
		version, due, created, updated, now any // the cheap way to scan a number
		token                               sql.RawBytes
		f                                   form
		request, result                     blob
	)
	to := f.to(&s.d, append(lead, &version, &token, &due, &created, &updated, &f.body))
	to = append(to, &request, &result)
	if s.d.serverClock {
		to = append(to, &now)
	}
	if err := rows.Scan(to...); err != nil {
		return settle.Record{}, err
	}
	r, err := f.record(&s.d, request.b, result.b)
	if err != nil {
		r = settle.Record{}
	}
	var ok bool
	if r.Version, ok = version.(int64); !ok {
		return r, fmt.Errorf("%w: no version", settle.ErrCorrupt)
	}
	r.Token = s.d.text(token)
	r.Due, r.CreatedAt, r.UpdatedAt, r.AsOf = timed(due), timed(created), timed(updated), timed(now)
	return r, err
}

// timed is the zero time for NULL.
func timed(us any) time.Time {
	if us, ok := us.(int64); ok {
		return instant(us)
	}
	return time.Time{}
}

// List implements settle.Store.
func (s *Store) List(ctx context.Context, q settle.Query) (out []settle.Record, err error) {
	text, args := s.listing(q)
	err = s.reading(ctx, "list", func() error {
		found, bad, err := s.records(ctx, runner{s: s}, &query{text: text}, args)
		if err == nil && len(bad) > 0 {
			err = bad[0].err
		}
		out = nil
		for _, f := range found {
			out = append(out, f.Record)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// listing is the statement for a query, which has many forms: they are not prepared.
func (s *Store) listing(q settle.Query) (text string, args []any) {
	var where strings.Builder
	arg := func(a any) string {
		args = append(args, a)
		if s.d.mark.question {
			return "?"
		}
		return s.d.mark.prefix + strconv.Itoa(len(args))
	}
	and := func(cond string) {
		if where.Len() > 0 {
			where.WriteString(" AND ")
		}
		where.WriteString(cond)
	}
	for _, f := range []struct{ cond, value string }{
		{"o.scope = ", q.Scope}, {"o.kind = ", q.Kind}, {"o.subject = ", q.Subject}, {"o.id > ", q.After},
	} {
		if f.value != "" {
			and(f.cond + arg(bytesOf(f.value)))
		}
	}
	if len(q.States) > 0 {
		states := make([]string, len(q.States))
		for i, state := range q.States {
			states[i] = arg(string(state))
		}
		and("o.state IN (" + strings.Join(states, ", ") + ")")
	}
	if q.Overdue > 0 {
		// What is due is little, whatever the planner thinks.
		before := q.Overdue.Microseconds()
		if !s.d.serverClock {
			before = micros() - before
		}
		and(strings.Replace(s.d.overdue, "{x}", arg(before), 1))
	}
	if where.Len() == 0 {
		and("1 = 1")
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	text = s.d.list + where.String() + " ORDER BY o.id LIMIT " + arg(limit)
	return text, args
}

type found struct {
	settle.Record
	id string
}

// unreadable is a row whose record is damaged.
type unreadable struct {
	id      string
	version int64
	err     error
}

// records reads rows of an id and a record.
func (s *Store) records(ctx context.Context, q runner, text *query, args []any) (out []found, bad []unreadable, err error) {
	rows, err := q.query(ctx, text, args)
	if err != nil {
		return nil, nil, failed("list", err)
	}
	return s.drain(rows)
}

func (s *Store) drain(rows *sql.Rows) (out []found, bad []unreadable, err error) {
	defer rows.Close() // once more is nothing; the first is looked at
	for rows.Next() {
		var id string
		r, err := s.scan(rows, &id)
		if errors.Is(err, settle.ErrCorrupt) {
			bad = append(bad, unreadable{id: id, version: r.Version, err: fmt.Errorf("settle/sqlstore: operation %s: %w", id, err)})
			continue
		}
		if err != nil {
			return nil, nil, failed("list", err)
		}
		out = append(out, found{Record: r, id: id})
	}
	if err := rows.Err(); err != nil {
		return nil, nil, failed("list", err)
	}
	if err := rows.Close(); err != nil {
		return nil, nil, failed("list", err)
	}
	if !s.d.serverClock {
		now := instant(micros())
		for i := range out {
			out[i].AsOf = now
		}
	}
	return out, bad, nil
}

// History implements settle.Store.
func (s *Store) History(ctx context.Context, id string, after int64, limit int) (out []settle.Entry, err error) {
	if limit <= 0 {
		limit = 100
	}
	err = s.reading(ctx, "history", func() error {
		out, err = s.entries(ctx, id, after, limit)
		return err
	})
	return out, err
}

func (s *Store) entries(ctx context.Context, id string, after int64, limit int) (out []settle.Entry, err error) {
	v := values{id: id, after: after, limit: limit}
	rows, err := runner{s: s}.query(ctx, &s.q.history, v.list(s.q.history.params))
	if err != nil {
		return nil, failed("history", err)
	}
	defer rows.Close() // once more is nothing; the first is looked at
	for rows.Next() {
		var seq, at int64
		var write, body sql.RawBytes
		if err := rows.Scan(&seq, &write, &at, &body); err != nil {
			return nil, failed("history", err)
		}
		e, err := s.d.entry(body)
		if err != nil {
			return nil, fmt.Errorf("settle/sqlstore: entry %d of operation %s: %w", seq, id, err)
		}
		e.Seq, e.Operation, e.Write, e.At = seq, id, s.d.text(write), instant(at)
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, failed("history", err)
	}
	return out, rows.Close()
}

func clone(b []byte) []byte { return bytes.Clone(b) }
