package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/settle-go/settle"
)

const (
	// crowd is how many changes may be on their way to a server while a further one still goes by
	// itself: so many share its log flushes anyway, and to wait for the answer of another takes twice as long.
	crowd = 8
	// flushes is how many batches may be on their way.
	flushes = 2
	// second is how many have to wait before another flush starts beside the one that is under way.
	second = 24
	// flushPatience is how long a batch waits for a lock: its neighbors wait with the one that
	// needs it. After that each goes its own way.
	flushPatience = 100 * time.Millisecond
	// queuePatience is how long a change waits for a batch to be over.
	queuePatience = time.Second
	// maxShare is how many bytes of a change share a statement: 256 of them in hexadecimal stay below 16 MB,
	// which is the longest statement that MariaDB takes unless it is told otherwise.
	maxShare = 24 << 10
)

// enter lets a change go to the server by itself while few are on their way.
func (f *flusher) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active >= f.crowd {
		return false
	}
	f.active++
	return true
}

// leave is the end of n changes.
func (f *flusher) leave(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active -= n
}

// flushBatch writes the members that can be written by one statement, in the order of
// their names, so that those of two processes do not wait for each other in a circle.
func (s *Store) flushBatch(batch []*member) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.LockWait)
	defer cancel()
	batch = slices.Clone(batch) // the queue's order is of no use any more
	slices.SortFunc(batch, func(a, b *member) int { return a.a.values[0].compare(b.a.values[0]) })
	batch = oneOwner(batch)
	step := s.flushTx
	if s.d.flush != "" {
		args := s.arrays(batch)
		step = func(ctx context.Context, batch []*member) error { return s.flushOnce(ctx, batch, args) }
	}
	var err error
	for range restarts {
		if err = step(ctx, batch); s.class(err) != stale && !errors.Is(err, errRestart) {
			break
		}
	}
	if err == nil {
		return
	}
	to := unknown
	if s.class(err) != other || errors.Is(err, errRestart) || errors.Is(err, errTaken) { // nothing was done
		to = alone
	}
	for _, m := range batch {
		m.fate, m.err = to, err
	}
}

func (s *Store) flushOnce(ctx context.Context, batch []*member, args []any) error {
	rows, err := runner{s: s}.query(ctx, &s.q.flush, args)
	if err != nil {
		return err
	}
	defer rows.Close() // once more is nothing; the first is looked at
	type name struct{ id, write string }
	at := make(map[name]stamp, len(batch))
	for rows.Next() {
		var id, write sql.RawBytes
		st := stamp{hit: true}
		if err := rows.Scan(&id, &write, &st.now, &st.due); err != nil {
			return err
		}
		at[name{string(id), s.d.text(write)}] = st
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := rows.Close(); err != nil {
		return err
	}
	for _, m := range batch {
		v := m.a.values[0]
		if m.st = at[name{v.id, v.write}]; m.st.hit {
			m.fate = committed
		}
	}
	return nil
}

// compare orders creations by their intent, which is what two of them may meet at, and
// before updates, which are ordered by id.
func (v *values) compare(w *values) int {
	switch {
	case v.was == 0 && w.was == 0:
		a, b := v.record, w.record
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Purpose, b.Purpose))
	case v.was > 0 && w.was > 0:
		return cmp.Compare(v.id, w.id)
	}
	return cmp.Compare(min(v.was, 1), min(w.was, 1))
}

// oneOwner leaves out the members that bring a reference which one before them brings: the
// statement would be refused as a whole. They are not written, and go their own way.
func oneOwner(batch []*member) []*member {
	type name struct{ account, kind, ref string }
	seen := map[name]bool{}
	return slices.DeleteFunc(batch, func(m *member) bool {
		v := m.a.values[0]
		ref, some := v.ref.([]byte)
		if !some {
			return false
		}
		n := name{v.record.Account, v.record.Kind, string(ref)}
		if seen[n] {
			return true
		}
		seen[n] = true
		return false
	})
}

// arrays are the parameters of a batch.
func (s *Store) arrays(batch []*member) []any {
	args := make([]any, len(s.q.flush.params))
	var b bytes.Buffer
	for i, p := range s.q.flush.params {
		if p == pWait {
			args[i] = strconv.FormatInt(min(s.opts.LockWait, flushPatience).Milliseconds(), 10)
			continue
		}
		b.Reset()
		b.WriteByte('{')
		for j, m := range batch {
			if j > 0 {
				b.WriteByte(',')
			}
			if v := m.a.values[0]; v.was > 0 && p.created() {
				b.WriteString("NULL")
			} else {
				element(&b, v.of(p))
			}
		}
		b.WriteByte('}')
		args[i] = b.String()
	}
	return args
}

// ascii reports whether text can hold v as it is in every encoding: half as much as hexadecimal.
func ascii(v []byte) bool {
	for _, c := range v {
		if c == 0 || c > 0x7e {
			return false
		}
	}
	return true
}

// element writes a value as PostgreSQL's arrays have it.
func element(b *bytes.Buffer, value any) {
	switch v := value.(type) {
	case []byte:
		if !ascii(v) {
			b.WriteString(`"\\x`)
			b.Write(hex.AppendEncode(b.AvailableBuffer(), v))
			b.WriteByte('"')
			return
		}
		b.WriteByte('"')
		for _, c := range v {
			switch c {
			case '"':
				b.WriteByte('\\')
			case '\\': // one of a bytea's own, and each once more as part of an array
				b.WriteString(`\\\`)
			}
			b.WriteByte(c)
		}
		b.WriteByte('"')
	case string: // the name of a state
		b.WriteString(strconv.Quote(v))
	case int64:
		b.Write(strconv.AppendInt(b.AvailableBuffer(), v, 10))
	case bool:
		b.Write(strconv.AppendBool(b.AvailableBuffer(), v))
	default:
		b.WriteString("NULL")
	}
}

// own is a change that goes its own way.
func (s *Store) own(ctx context.Context, a *attempt) (out []settle.Record, done bool, err error) {
	if !s.single(a) {
		return nil, false, nil
	}
	return s.alone(ctx, a)
}

// answer is what became of m, whose fate is set.
func (s *Store) answer(ctx context.Context, m *member) (out []settle.Record, done bool, err error) {
	v := m.a.values[0]
	switch m.fate {
	case committed:
		created := m.st.now
		if v.was > 0 {
			created = v.record.CreatedAt.UnixMicro()
		}
		r, err := s.written(v, m.st, created)
		return []settle.Record{r}, true, err
	case alone:
		return s.own(ctx, m.a)
	case unknown:
		was, err := s.readBack(ctx, func(ctx context.Context, q runner) (bool, error) { return s.applied(ctx, q, m.a.c) })
		switch {
		case err != nil:
			return nil, true, doubt(ctx, m.err, err)
		case was:
			out, err := s.current(ctx, runner{s: s}, m.a.c)
			return out, true, err
		}
		// It is this change or none, whenever the server ends what it may still be at: both
		// would write the same id, and one version has room for one of them.
		return s.own(ctx, m.a)
	case left, waited:
	}
	return nil, false, s.rival(ctx, v)
}
