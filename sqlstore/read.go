package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
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

// point is the context for a read of one row. To make it end with ctx costs
// more than the read takes, so it does only where it can wait: for a connection
// of a pool that has a limit.
func (s *Store) point(ctx context.Context) context.Context {
	if ctx.Done() == nil || ctx.Err() != nil || s.db.Stats().MaxOpenConnections > 0 {
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

func (s *Store) get(ctx context.Context, q runner, by settle.Index) (r settle.Record, err error) {
	text, ok := s.d.getBy[string(by.Name)]
	if !ok {
		return r, invalid("unknown index")
	}
	found, err := q.one(ctx, text, nameArgs(by), func(rows *sql.Rows) (err error) {
		r, err = scanRecord(rows)
		return err
	})
	if err != nil {
		return r, failed("get by "+string(by.Name), err)
	}
	if !found {
		return r, settle.ErrNotFound
	}
	r.AsOf = instant(micros())
	return r, nil
}

func nameArgs(by settle.Index) []any {
	n := 1
	switch by.Name {
	case settle.IndexID:
	case settle.IndexHold:
		n = 2
	case settle.IndexKey, settle.IndexRef:
		n = 3
	case settle.IndexIntent:
		n = 4
	}
	args := make([]any, n)
	for i := range args {
		args[i] = bytesOf(by.Parts[i])
	}
	return args
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

// scanRecord reads the columns of a record, after those that lead takes. Of a
// record that cannot be decoded it returns the version.
func scanRecord(rows *sql.Rows, lead ...any) (settle.Record, error) {
	var (
		version, due    any // the cheap way to scan a number
		token, body     sql.RawBytes
		request, result blob
	)
	if err := rows.Scan(append(lead, &version, &token, &due, &body, &request, &result)...); err != nil {
		return settle.Record{}, err
	}
	r, err := settle.DecodeRecord(body, request.b, result.b)
	if err != nil {
		r = settle.Record{}
	}
	var ok bool
	if r.Version, ok = version.(int64); !ok {
		return r, fmt.Errorf("%w: no version", settle.ErrCorrupt)
	}
	if us, ok := due.(int64); ok {
		r.Due = instant(us)
	}
	r.Token = string(token)
	return r, err
}

// List implements settle.Store.
func (s *Store) List(ctx context.Context, q settle.Query) (out []settle.Record, err error) {
	var where strings.Builder
	var args []any
	and := func(cond string, arg ...any) {
		if where.Len() > 0 {
			where.WriteString(" AND ")
		}
		where.WriteString(cond)
		args = append(args, arg...)
	}
	for _, f := range []struct{ cond, value string }{
		{"o.scope = ?", q.Scope}, {"o.kind = ?", q.Kind}, {"o.subject = ?", q.Subject}, {"o.id > ?", q.After},
	} {
		if f.value != "" {
			and(f.cond, bytesOf(f.value))
		}
	}
	if len(q.States) > 0 {
		states := make([]any, len(q.States))
		for i, state := range q.States {
			states[i] = string(state)
		}
		and(kinds("o.state IN ({kinds})", len(states)), states...)
	}
	if q.Overdue > 0 {
		// What is due is little, whatever the planner thinks.
		and("o.n IN (SELECT n FROM settle_operation WHERE due < ?)", micros()-q.Overdue.Microseconds())
	}
	if where.Len() == 0 {
		and("1 = 1")
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	text := s.d.list + where.String() + " ORDER BY o.id LIMIT ?"
	args = append(args, limit)
	err = s.reading(ctx, "list", func() error {
		found, bad, err := records(ctx, runner{s: s}, text, args)
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

type found struct {
	settle.Record
	n int64
}

// unreadable is a row whose record is damaged.
type unreadable struct {
	n, version int64
	err        error
}

// records reads rows of n, id and a record.
func records(ctx context.Context, q runner, text string, args []any) (out []found, bad []unreadable, err error) {
	rows, err := q.query(ctx, text, args...)
	if err != nil {
		return nil, nil, failed("list", err)
	}
	defer rows.Close() // once more is nothing; the first is looked at
	for rows.Next() {
		var n int64
		var id string
		r, err := scanRecord(rows, &n, &id)
		if errors.Is(err, settle.ErrCorrupt) {
			bad = append(bad, unreadable{n: n, version: r.Version, err: fmt.Errorf("settle/sqlstore: operation %s: %w", id, err)})
			continue
		}
		if err != nil {
			return nil, nil, failed("list", err)
		}
		out = append(out, found{Record: r, n: n})
	}
	if err := rows.Err(); err != nil {
		return nil, nil, failed("list", err)
	}
	if err := rows.Close(); err != nil {
		return nil, nil, failed("list", err)
	}
	now := instant(micros())
	for i := range out {
		out[i].AsOf = now
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
	rows, err := runner{s: s}.query(ctx, s.d.history, bytesOf(id), after, limit)
	if err != nil {
		return nil, failed("history", err)
	}
	defer rows.Close() // once more is nothing; the first is looked at
	for rows.Next() {
		var seq, at int64
		var write string
		var body sql.RawBytes
		if err := rows.Scan(&seq, &write, &at, &body); err != nil {
			return nil, failed("history", err)
		}
		e, err := settle.DecodeEntry(body)
		if err != nil {
			return nil, fmt.Errorf("settle/sqlstore: entry %d of operation %s: %w", seq, id, err)
		}
		e.Seq, e.Operation, e.Write, e.At = seq, id, write, instant(at)
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, failed("history", err)
	}
	return out, rows.Close()
}

// sameNames reports whether r and old have the same names in columns.
func sameNames(r, old *settle.Record) bool {
	return r.Scope == old.Scope && r.Kind == old.Kind && r.Key == old.Key && r.Subject == old.Subject && r.Purpose == old.Purpose &&
		(r.ReplacedBy == "") == (old.ReplacedBy == "") && r.HeldName() == old.HeldName()
}

func sameRefs(a []string, r *settle.Record, b []string, old *settle.Record) bool {
	return slices.Equal(a, b) && (len(a) == 0 || r.Account == old.Account && r.Kind == old.Kind)
}

func clone(b []byte) []byte { return bytes.Clone(b) }
