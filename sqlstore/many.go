package sqlstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/settle-go/settle"
)

// rowParams are the members of one change in {rows}, in the order in which the statements of a dialect name them.
func rowParams() []param {
	return []param{
		pID, pScope, pKind, pKey, pSubject, pPurpose, pRetired, pHold, pAccount, pRef, pRefs, pState, pWas, pToken, pIfToken,
		pDueIn, pCreated, pBody, pRequest, pResult, pWrite, pEntry, pNow,
	}
}

// rowsOf is {rows}: a JSON array with an array for each change. Bytes and words are in hexadecimal, so that no
// character set is asked.
func rowsOf(batch []*member) string {
	params := rowParams()
	var b bytes.Buffer
	for i, m := range batch {
		b.WriteString(map[bool]string{true: "[[", false: ",["}[i == 0])
		for j, p := range params {
			if j > 0 {
				b.WriteByte(',')
			}
			switch v := m.a.values[0].of(p).(type) {
			case []byte:
				quoteHex(&b, v)
			case string:
				quoteHex(&b, []byte(v))
			case int64:
				b.Write(strconv.AppendInt(b.AvailableBuffer(), v, 10))
			default:
				b.WriteString("null")
			}
		}
		b.WriteByte(']')
	}
	b.WriteByte(']')
	return b.String()
}

func quoteHex(b *bytes.Buffer, v []byte) {
	b.WriteByte('"')
	b.Write(hex.AppendEncode(b.AvailableBuffer(), v))
	b.WriteByte('"')
}

// seen is a row that this transaction has locked.
type seen struct {
	version int64
	write   string
	st      stamp
}

// look is the statement that locks rows with the ids of these members, as many as a power of two: few statements,
// which are prepared once. It is made before the transaction, which may have the only connection.
func (s *Store) look(ctx context.Context, batch []*member) (*query, []any, error) {
	if len(batch) == 0 {
		return nil, nil, nil
	}
	v := values{}
	for _, m := range batch {
		v.held = append(v.held, settle.Held{ID: m.a.values[0].id})
	}
	for len(v.held)&(len(v.held)-1) > 0 {
		v.held = append(v.held, v.held[0])
	}
	q, err := s.with(ctx, s.d.free, lengths{n: len(v.held)})
	if err != nil {
		return nil, nil, err
	}
	return q, v.list(q.params), nil
}

func (s *Store) looked(ctx context.Context, t *step, q *query, args []any) (map[string]seen, error) {
	out := map[string]seen{}
	if q == nil {
		return out, nil
	}
	rows, err := t.query(ctx, q, args)
	if err != nil {
		return nil, err
	}
	defer rows.Close() // once more is nothing; the first is looked at
	for rows.Next() {
		var id string
		r := seen{}
		if err := rows.Scan(&id, &r.version, &r.write, &r.st.now, &r.st.due); err != nil {
			return nil, err
		}
		out[id] = r
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return out, rows.Close()
}

// flushTx writes a batch by a few statements in one transaction, whatever its size. Rows that somebody else
// has locked are left out, so that their neighbors do not wait for them. What it returns before COMMIT was sent
// was not committed.
func (s *Store) flushTx(ctx context.Context, batch []*member) error {
	var births, moves []*member
	for _, m := range batch {
		if m.st = (stamp{}); m.a.values[0].was == 0 {
			births = append(births, m)
		} else {
			moves = append(moves, m)
		}
	}
	before, beforeArgs, err := s.look(ctx, moves)
	if err != nil {
		return fmt.Errorf("%w: %w", errRestart, err)
	}
	after, afterArgs, err := s.look(ctx, batch)
	if err != nil {
		return fmt.Errorf("%w: %w", errRestart, err)
	}
	t, err := s.begin(ctx, "commit", nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errRestart, err)
	}
	defer t.close()
	write := func() error {
		had, err := s.looked(ctx, t, before, beforeArgs)
		if err != nil {
			return err
		}
		ours, mine := moves[:0:0], map[string]bool{}
		for _, m := range moves {
			// One for each record: the version that is there afterwards does not tell whose it is (S21).
			if v := m.a.values[0]; had[v.id].version == v.was && !mine[v.id] {
				mine[v.id] = true
				ours = append(ours, m)
			}
		}
		if err := s.many(ctx, t, &s.q.insertAll, births); err != nil {
			return err
		}
		if err := s.many(ctx, t, &s.q.updateAll, ours); err != nil {
			return err
		}
		has, err := s.looked(ctx, t, after, afterArgs)
		if err != nil {
			return err
		}
		var entries []*member
		for _, m := range births {
			v := m.a.values[0]
			r := has[v.id]
			m.st, m.st.hit = r.st, r.version == 1 && r.write == v.write
		}
		for _, m := range ours { // nobody else can have moved them since
			v := m.a.values[0]
			r := has[v.id]
			if m.st, m.st.hit = r.st, r.version == v.was+1; !m.st.hit {
				continue
			}
			v.now = r.st.now
			if v.was > 1 {
				entries = append(entries, m)
			}
		}
		return s.many(ctx, t, &s.q.addEntries, entries)
	}
	if err := write(); err != nil {
		if s.class(err) == other {
			err = fmt.Errorf("%w: %w", errRestart, err)
		}
		return err // a reference has another owner, say: each finds out for itself
	}
	hits := batch[:0:0]
	for _, m := range batch {
		if m.st.hit {
			hits = append(hits, m)
		}
	}
	if len(hits) == 0 {
		return nil
	}
	if err := t.commit(); err != nil {
		return err
	}
	for _, m := range hits {
		m.fate = committed
	}
	return nil
}

func (s *Store) many(ctx context.Context, t *step, q *query, batch []*member) error {
	if len(batch) == 0 {
		return nil
	}
	v := values{rows: rowsOf(batch)}
	_, err := t.exec(ctx, q, v.list(q.params)...)
	return err
}
