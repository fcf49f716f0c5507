package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// listening keeps every statement that its connections run, with the arguments of its first time.
type listening struct {
	driver.Driver
	mu   *sync.Mutex
	seen map[string][]any
}

func (l listening) Open(name string) (driver.Conn, error) {
	c, err := l.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return listeningConn{c.(realConn), l}, nil
}

type listeningConn struct {
	realConn
	l listening
}

func (l listening) hear(q string, args []driver.NamedValue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.seen[q]; ok {
		return
	}
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	l.seen[q] = values
}

func (c listeningConn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	c.l.hear(q, args)
	return c.realConn.ExecContext(ctx, q, args)
}

func (c listeningConn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	c.l.hear(q, args)
	return c.realConn.QueryContext(ctx, q, args)
}

// fill adds n settled records, as copies of one, and has the server look at them.
func fill(t *testing.T, db *sql.DB, d database, n int) {
	t.Helper()
	pour(t, db, d, n)
	for _, table := range tables(d) {
		analyze := "ANALYZE " + table
		if d.name == "MySQL" {
			analyze = "ANALYZE TABLE " + table
		}
		require.NoError(t, run(db, analyze))
	}
}

// pour adds n settled records, as copies of one.
func pour(t *testing.T, db *sql.DB, d database, n int) {
	t.Helper()
	columns := `kind, subject, purpose, retired, hold, account, ref, refs, state, version, token, due, created_at, updated_at, body, request, result,
		write_id, entry, write_id_2, at_2, entry_2`
	key := "key"
	values := columns
	var id, numbers, number string
	switch d.name {
	case "SQLite":
		numbers = fmt.Sprintf(`(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d) SELECT n FROM s) s`, n)
		id, number = `CAST('0092b8f4-' || s.n AS BLOB)`, `CAST('k' || s.n AS BLOB)`
	case "PostgreSQL":
		columns = strings.Replace(columns, "account, ref,", "account, fixed, same,", 1)
		values = columns
		numbers, id, number = fmt.Sprintf(`generate_series(1, %d) s (n)`, n), `convert_to('0092b8f4-' || s.n, 'UTF8')`, `convert_to('k' || s.n, 'UTF8')`
	default:
		values = strings.Replace(values, "account, ref,", "account, CONCAT('k', s.n),", 1)
		key, numbers = "op_key", `(SELECT a.i * 1000 + b.i * 100 + c.i * 10 + d.i + e.i * 10000 AS n FROM digits a, digits b, digits c, digits d, digits e) s`
		id, number = `CONCAT('0092b8f4-', s.n)`, `CONCAT('k', s.n)`
		require.NoError(t, run(db, `CREATE TABLE digits (i INT)`))
		require.NoError(t, run(db, `INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)`))
	}
	where := fmt.Sprintf(` WHERE o.subject = ? AND s.n BETWEEN 1 AND %d`, n)
	values = strings.ReplaceAll(strings.Replace(values, "subject", number, 1), "hold,", "NULL,")
	require.NoError(t, run(db, d.text(`INSERT INTO settle_operation (id, scope, `+key+`, `+columns+`) SELECT `+id+`, o.scope, `+number+`, `+values+
		` FROM settle_operation o, `+numbers+where), []byte("order-settled")))
	if slices.Contains(tables(d), "settle_reference") {
		require.NoError(t, run(db, d.text(`INSERT INTO settle_reference (account, kind, ref, operation) SELECT r.account, r.kind, `+number+`, r.operation
			FROM settle_reference r, `+numbers+fmt.Sprintf(` WHERE s.n BETWEEN 1 AND %d`, n))))
	}
	owner := id
	if d.name == "SQLite" {
		owner = "s.n"
	}
	require.NoError(t, run(db, `INSERT INTO settle_history (operation, seq, write_id, at, entry)
		SELECT `+owner+`, 3, o.write_id, o.created_at, o.entry FROM settle_operation o, `+numbers+d.text(where), []byte("order-settled")))
}

// everything runs every statement of the store once, and a few of them more.
func everything(t *testing.T, s *sqlstore.Store) {
	t.Helper()
	ctx := t.Context()
	commit := func(c settle.Change) settle.Record {
		out, err := s.Commit(ctx, c)
		require.NoError(t, err)
		return out[0]
	}
	r := commit(create("a"))
	for _, n := range []int{1, 5, 60, 200} {
		held := []settle.Held{{ID: r.ID, Token: r.Token}}
		for i := range n - 1 {
			held = append(held, settle.Held{ID: fmt.Sprintf("0092b8f4-%d", i+1), Token: r.Token})
		}
		said, err := s.Renew(ctx, held, time.Minute)
		require.NoError(t, err)
		require.NoError(t, said[0])
	}
	r = commit(outcome(r))
	r = commit(outcome(r))
	commit(outcome(r)) // again
	r = commit(withSecond(r))
	dropped := outcome(r)
	dropped.Writes[0].Record.References = dropped.Writes[0].Record.References[:1]
	r = commit(dropped)
	hooked := outcome(r)
	hooked.Hook = func(ctx context.Context, tx settle.Tx) error { _, err := tx.Get(ctx, settle.ByID(r.ID)); return err }
	commit(hooked)
	held := create("held")
	held.Writes[0].Record.Hold, held.Writes[0].DueIn = "h", 0
	h := commit(held)
	taken := create("taken")
	taken.Writes[0].Record.Hold = "h"
	_, err := s.Commit(ctx, taken)
	require.ErrorIs(t, err, settle.ErrConflict)
	old := commit(create("old")).Clone()
	next := created("next")
	old.ReplacedBy, next.Replaces, next.Key, next.Subject, next.Generation = next.ID, old.ID, old.Key, old.Subject, 1
	commit(settle.Change{ID: "replace", Writes: []settle.Write{{Record: old, IfVersion: 1, DueIn: settle.Never}, {Record: next, DueIn: 0}}})
	for _, by := range append(h.Names(), settle.ByRef(r.Account, r.Kind, "pi_key-a")) {
		_, err := s.Get(ctx, by)
		require.NoError(t, err)
	}
	_, err = s.Claim(ctx, settle.Claim{Kinds: []string{"charge", "refund"}, Token: "plan", Lease: time.Minute, Limit: 5})
	require.NoError(t, err)
	_, err = s.List(ctx, settle.Query{Overdue: time.Hour, Limit: 10})
	require.NoError(t, err)
	_, err = s.List(ctx, settle.Query{After: r.ID, Limit: 10})
	require.NoError(t, err)
	_, err = s.History(ctx, r.ID, 0, 0)
	require.NoError(t, err)
}

// wholeTable says why a plan reads a table from end to end, or "".
func wholeTable(t *testing.T, db *sql.DB, d database, q string, args []any) (plan, wrong string) {
	t.Helper()
	explain := map[string]string{"SQLite": "EXPLAIN QUERY PLAN ", "PostgreSQL": "EXPLAIN "}[d.name]
	if d.name == "MySQL" {
		explain = mysqlNames(t).explain
	}
	rows, err := db.QueryContext(t.Context(), explain+q, args...)
	require.NoError(t, err, q)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	walks := ""
	for rows.Next() {
		row := make([]sql.NullString, len(columns))
		to := make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		require.NoError(t, rows.Scan(to...))
		line := ""
		at := map[string]string{}
		for i, c := range row {
			line += c.String + " "
			at[columns[i]] = c.String
		}
		plan += line + "\n"
		switch d.name {
		case "SQLite":
			if strings.Contains(line, "SCAN settle_") || strings.Contains(line, "SCAN o") {
				wrong = line
			}
		case "PostgreSQL":
			// An index that is walked from end to end is no better than the table.
			if strings.Contains(line, "->") || strings.Contains(line, "cost=") {
				if walks != "" {
					wrong = walks
				}
				walks = ""
			}
			switch {
			case strings.Contains(line, "Index Cond"):
				walks = ""
			case strings.Contains(line, "settle_due"): // which holds open work only
			case strings.Contains(line, "Index Scan using"), strings.Contains(line, "Index Only Scan using"):
				walks = line
			case strings.Contains(line, "Seq Scan on settle_"):
				wrong = line
			}
		default:
			if at["table"] != "" && !strings.HasPrefix(at["table"], "<") && (at["type"] == "ALL" || at["type"] == "index") {
				wrong = line
			}
		}
	}
	require.NoError(t, rows.Err())
	if wrong == "" {
		wrong = walks
	}
	return plan, wrong
}

// TestPlansOfEveryStatement: with 20,000 settled rows and a few that are due, every statement that the store runs finds its rows by an
// index. The statements are those that it really runs, with the arguments it gives.
func TestPlansOfEveryStatement(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		l := listening{d.real, new(sync.Mutex), map[string][]any{}}
		heard := d
		heard.real = l
		dsn := d.fresh(t)
		db, s, _ := heard.faulty(t, dsn, &sqlstore.Options{Unprepared: true, AcceptUnsafe: true})
		settled := create("settled")
		out, err := s.Commit(t.Context(), settled)
		require.NoError(t, err)
		_, err = s.Commit(t.Context(), outcome(out[0]))
		require.NoError(t, err)
		const rows = 20_000
		fill(t, db, d, rows)
		require.Equal(t, rows+1, count(t, db, `SELECT count(*) FROM settle_operation`))
		l.mu.Lock()
		clear(l.seen)
		l.mu.Unlock()
		everything(t, s)
		plain := d.connect(t, dsn)
		explained := 0
		for q, args := range l.seen {
			word := strings.ToUpper(strings.Fields(q)[0])
			if !strings.Contains(q, "settle_") || word != "SELECT" && word != "UPDATE" && word != "WITH" && word != "DELETE" && word != "INSERT" ||
				strings.Contains(q, "settle_schema") {
				continue
			}
			if d.name == "MySQL" && word == "INSERT" && !strings.Contains(q, "SELECT") {
				continue // has no plan
			}
			explained++
			plan, wrong := wholeTable(t, plain, d, q, args)
			assert.Empty(t, wrong, "%s\n%s", q, plan)
			if os.Getenv("SETTLE_PLANS") != "" {
				t.Logf("%s\n%s", q, plan)
			}
		}
		assert.Greater(t, explained, 12)
		// The check sees a plan that is wrong.
		_, wrong := wholeTable(t, plain, d, `SELECT 1 FROM settle_operation o WHERE o.updated_at = 5`, nil)
		assert.NotEmpty(t, wrong)
	})
}

// TestSweepCost: what a claim reads does not grow with the settled rows.
func TestSweepCost(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		db, s := d.open(t, d.fresh(t), &sqlstore.Options{Unprepared: true})
		db.SetMaxOpenConns(1) // the counters are the session's
		out, err := s.Commit(t.Context(), create("settled"))
		require.NoError(t, err)
		_, err = s.Commit(t.Context(), outcome(out[0]))
		require.NoError(t, err)
		n := 0
		sweep := func() int {
			c := settle.Change{ID: fmt.Sprint("due", n)}
			for range 3 {
				n++
				w := create(fmt.Sprint("d", n)).Writes[0]
				w.DueIn = 0
				c.Writes = append(c.Writes, w)
			}
			_, err := s.Commit(t.Context(), c)
			require.NoError(t, err)
			before := reads(t, db, d)
			got, err := s.Claim(t.Context(), settle.Claim{Kinds: []string{"charge"}, Token: fmt.Sprint(n), Lease: time.Hour, Limit: 10})
			require.NoError(t, err)
			require.Len(t, got, 3)
			return reads(t, db, d) - before
		}
		sweep()
		few := sweep()
		fill(t, db, d, 5_000)
		sweep()
		many := sweep()
		t.Logf("rows read by a claim of 3: %d, and with 5,000 settled ones more: %d", few, many)
		assert.LessOrEqual(t, many, few+30)
	})
}

// TestClaimKeepsAGoodPlan: a server may plan a claim while nothing is due and keep that plan, at least until it has looked at the tables
// again. Then much is due, and a claim of a few still reads each due row once at most, and no operation but those that it claims.
func TestClaimKeepsAGoodPlan(t *testing.T) {
	t.Parallel()
	d := postgresDatabase()
	db, s := d.open(t, d.fresh(t), nil)
	db.SetMaxOpenConns(1) // plans and counters are the session's
	require.NoError(t, run(db, `SET plan_cache_mode = force_generic_plan`))
	out, err := s.Commit(t.Context(), create("settled"))
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), outcome(out[0]))
	require.NoError(t, err)
	const settled, due = 5000, 1000
	fill(t, db, d, settled)
	require.NoError(t, run(db, `VACUUM ANALYZE settle_due`))
	claim := func(token string) []settle.Record {
		got, err := s.Claim(t.Context(), settle.Claim{Kinds: []string{"charge"}, Token: token, Lease: time.Hour, Limit: 10})
		require.NoError(t, err)
		return got
	}
	for i := range 8 {
		require.Empty(t, claim(fmt.Sprint("empty", i)))
	}
	for i := 0; i < due; i += 100 {
		c := settle.Change{ID: fmt.Sprint("due", i)}
		for j := range 100 {
			w := create(fmt.Sprint("d", i+j)).Writes[0]
			w.DueIn = 0
			c.Writes = append(c.Writes, w)
		}
		_, err := s.Commit(t.Context(), c)
		require.NoError(t, err)
	}
	before := reads(t, db, d)
	require.Len(t, claim("some"), 10)
	assert.LessOrEqual(t, reads(t, db, d)-before, due+100)
	// Once the server has looked, it goes along the index and stops.
	require.NoError(t, run(db, `ANALYZE settle_due`))
	before = reads(t, db, d)
	require.Len(t, claim("more"), 10)
	assert.LessOrEqual(t, reads(t, db, d)-before, 100)
}

// reads counts the rows that were read so far.
func reads(t *testing.T, db *sql.DB, d database) int {
	t.Helper()
	if d.name == "MySQL" {
		return count(t, db, `SELECT SUM(variable_value) FROM `+mysqlNames(t).status+` WHERE variable_name LIKE 'Handler_read%' AND variable_name <> 'Handler_read_rnd_deleted'`)
	}
	// The transaction's statistics reach the table's when it ends, and at once for the own session when asked for.
	require.NoError(t, run(db, `SELECT pg_stat_force_next_flush()`))
	return count(t, db, `SELECT sum(COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0)) FROM pg_stat_user_tables
		WHERE relname IN ('settle_operation', 'settle_due') AND schemaname = current_schema()`)
}
