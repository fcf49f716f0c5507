package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// Tally is how many operations of one kind are in one state.
type Tally = settle.Tally

var _ settle.Tallier = (*Store)(nil)

// Tally counts operations by kind and state, in that order, parked and merged events
// (settle.EventKind) among them. It reads every row, at once: for an operator's question or a
// measure taken now and then, not for a request. overdue is how long a row may be due before it is counted as
// overdue. It changes nothing, and an error says nothing about any operation.
func (s *Store) Tally(ctx context.Context, overdue time.Duration) (out []Tally, err error) {
	text, args := s.d.tally, []any{overdue.Microseconds()}
	first, second := "?", "?"
	if !s.d.mark.question {
		first, second = s.d.mark.prefix+"1", s.d.mark.prefix+"2"
	}
	text = strings.Replace(text, "{x}", first, 1)
	if !s.d.serverClock {
		text = strings.Replace(text, "{now}", second, 1)
		args = append(args, micros())
	}
	err = s.reading(ctx, "tally", func() error {
		out, err = s.tallies(ctx, text, args)
		return err
	})
	return out, err
}

func (s *Store) tallies(ctx context.Context, text string, args []any) (out []Tally, err error) {
	rows, err := runner{s: s}.query(ctx, &query{text: text}, args)
	if err != nil {
		return nil, failed("tally", err)
	}
	defer rows.Close() // once more is nothing; the first is looked at
	for rows.Next() {
		var x Tally
		var oldest, newest, now int64
		if err := rows.Scan(&x.Kind, &x.State, &x.Count, &oldest, &newest, &x.Overdue, &now); err != nil {
			return nil, failed("tally", err)
		}
		x.Oldest, x.Newest, x.AsOf = instant(oldest), instant(newest), instant(now)
		out = append(out, x)
	}
	if err := rows.Err(); err != nil {
		return nil, failed("tally", err)
	}
	return out, rows.Close()
}

// tallyOf is the statement, with the database's words for now, for a number that is given, and for which rows are operations.
// What died while it was submitting is unknown by now, as Engine.List has it.
func tallyOf(now, number, where string) string {
	return `SELECT o.kind, CASE WHEN o.state = 'submitting' AND (o.due IS NULL OR o.due <= t.now) THEN 'unknown' ELSE o.state END,
			COUNT(*), MIN(o.created_at), MAX(o.created_at), COUNT(CASE WHEN o.due < t.now - t.late THEN 1 END), MIN(t.now)
			FROM settle_operation o CROSS JOIN (SELECT {x}` + number + ` AS late, ` + now + ` AS now) t` + where + ` GROUP BY 1, 2 ORDER BY 1, 2`
}
