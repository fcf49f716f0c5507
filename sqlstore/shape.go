package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/settle-go/settle"
)

// shape is what the tables must look like for the statements to mean what they mean. A schema
// that somebody wrote by hand, or changed, can fold, pad or cut names, or let two operations
// have one: New refuses it, with the statement that mends it (IC-27, IC-31, IC-36).
type shape struct {
	bytes, number string // the types of columns as the database calls them
	sized         bool   // columns of bytes have a limit
	columns       []column
	indexes       []index
	triggers      []string
	noTriggers    bool // haveTriggers lists the names of those that must not be
	// haveColumns lists table, column, type, limit in bytes (0: none), whether it may be NULL, and what
	// else is wrong with the table, or ''. haveIndexes lists table, index, whether it is unique,
	// its columns with commas, and the condition or ''. haveTriggers lists name and text.
	haveColumns, haveIndexes, haveTriggers string
	modify                                 string // how to change a column: table, column, type
	create                                 func(i *index) string
}

type column struct {
	table, name string
	limit       int64 // at least; 0 for numbers
	null        bool
}

type index struct {
	table, name string
	columns     string
	where       string
	unique      bool
}

// operationColumns are those of all databases; key is called op_key on one of them.
func operationColumns(key string, keyNull bool) []column {
	const op = "settle_operation"
	const id, short, long, large = 36, 32, 512, settle.MaxRequest + 4096
	return []column{
		{op, "id", id, false},
		{op, "scope", settle.MaxScope, false},
		{op, "kind", settle.MaxKind, false},
		{op, key, settle.MaxKey, keyNull},
		{op, "subject", settle.MaxSubject, false},
		{op, "purpose", settle.MaxPurpose, false},
		{op, "retired", id, false},
		{op, "hold", settle.MaxHold, true},
		{op, "account", long, false},
		{op, "ref", settle.MaxRef, true},
		{op, "refs", 16, false},
		{op, "version", 0, false},
		{op, "token", id, false},
		{op, "due", 0, true},
		{op, "created_at", 0, false},
		{op, "updated_at", 0, false},
		{op, "body", large, false},
		{op, "request", large, true},
		{op, "result", large, true},
		{op, "write_id", id, false},
		{op, "entry", 1 << 15, false},
		{op, "write_id_2", id, true},
		{op, "at_2", 0, true},
		{op, "entry_2", 1 << 15, true},
		{"settle_reference", "account", long, false},
		{"settle_reference", "kind", settle.MaxKind, false},
		{"settle_reference", "ref", settle.MaxRef, false},
		{"settle_history", "seq", 0, false},
		{"settle_history", "write_id", id, false},
		{"settle_history", "at", 0, false},
		{"settle_history", "entry", 1 << 15, false},
		{op, "state", short, false},
	}
}

func (s *shape) check(ctx context.Context, conn *sql.Conn) error {
	if err := s.checkColumns(ctx, conn); err != nil {
		return err
	}
	if err := s.checkIndexes(ctx, conn); err != nil {
		return err
	}
	return s.checkTriggers(ctx, conn)
}

func (s *shape) checkColumns(ctx context.Context, conn *sql.Conn) error {
	have := map[[2]string]bool{}
	if err := each(ctx, conn, s.haveColumns, func(rows *sql.Rows) error {
		var table, name, kind, trouble string
		var limit int64
		var null bool
		if err := rows.Scan(&table, &name, &kind, &limit, &null, &trouble); err != nil {
			return err
		}
		have[[2]string{table, name}] = true
		if trouble != "" {
			return mismatch("table %s: %s", table, trouble)
		}
		i := slices.IndexFunc(s.columns, func(c column) bool { return c.table == table && c.name == name })
		if i < 0 {
			if !null {
				return mismatch("column %s of %s is none that the store writes, and may not be NULL: "+
					"ALTER TABLE %s DROP COLUMN %s, or let it have a default", name, table, table, name)
			}
			return nil
		}
		return s.column(&s.columns[i], kind, limit, null)
	}); err != nil {
		return err
	}
	for _, c := range s.columns {
		if !have[[2]string{c.table, c.name}] {
			return mismatch("table %s has no column %s: create the tables as in sqlstore.Schema", c.table, c.name)
		}
	}
	return nil
}

func (s *shape) column(c *column, kind string, limit int64, null bool) error {
	want := s.bytes
	if c.limit == 0 {
		want = s.number
	}
	if c.name == "state" && !s.sized {
		want = "text"
	}
	if s.sized && c.limit > 0 {
		want = fmt.Sprintf("VARBINARY(%d)", c.limit)
		if c.limit > 1000 {
			want = "MEDIUMBLOB"
		}
	}
	mend := fmt.Sprintf(s.modify, c.table, c.name, want)
	if s.sized && !c.null {
		mend += " NOT NULL"
	}
	base, _, _ := strings.Cut(strings.ToLower(kind), "(")
	fits := strings.EqualFold(kind, want)
	if s.sized && c.limit > 0 {
		fits = base == "varbinary" || base == "blob" || base == "mediumblob" || base == "longblob"
	}
	if s.sized && c.limit == 0 {
		fits = base == strings.ToLower(want)
	}
	switch {
	case !fits:
		return mismatch("column %s of %s is %s, which may fold, pad or cut what it keeps: %s", c.name, c.table, kind, mend)
	case c.limit > 0 && limit > 0 && limit < c.limit:
		return mismatch("column %s of %s keeps %d bytes, and names have up to %d: %s", c.name, c.table, limit, c.limit, mend)
	case c.null && !null:
		return mismatch("column %s of %s may not be NULL, which it is where there is nothing to keep: %s NULL", c.name, c.table, mend)
	}
	return nil
}

func (s *shape) checkIndexes(ctx context.Context, conn *sql.Conn) error {
	found := make([]bool, len(s.indexes))
	if err := each(ctx, conn, s.haveIndexes, func(rows *sql.Rows) error {
		var got index
		if err := rows.Scan(&got.table, &got.name, &got.unique, &got.columns, &got.where); err != nil {
			return err
		}
		i := slices.IndexFunc(s.indexes, func(want index) bool {
			return want.table == got.table && want.columns == got.columns && want.unique == got.unique && plainCondition(want.where) == plainCondition(got.where)
		})
		switch {
		case i >= 0:
			found[i] = true
		case got.unique:
			return mismatch("unique index %s on %s (%s) is none of the schema's, so it may refuse operations that are not the same: drop it",
				got.name, got.table, got.columns)
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range s.indexes {
		if want := &s.indexes[i]; !found[i] {
			return mismatch("there is no index as the schema's %s on %s: %s", want.name, want.table, s.create(want))
		}
	}
	return nil
}

// plainCondition compares conditions as databases print them.
func plainCondition(s string) string {
	return strings.NewReplacer("(", "", ")", "", " ", "", "\n", "", "::bytea", "", ":::bytes", "", `\x`, "", "x'", "'", "!=", "<>").Replace(strings.ToLower(s))
}

func (s *shape) checkTriggers(ctx context.Context, conn *sql.Conn) error {
	if s.haveTriggers == "" {
		return nil
	}
	have := map[string]bool{}
	if err := each(ctx, conn, s.haveTriggers, func(rows *sql.Rows) error {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		if s.noTriggers {
			return mismatch("trigger %s hides from the store what its statements did (LAST_INSERT_ID): drop it", text)
		}
		have[oneLine(text)] = true
		return nil
	}); err != nil {
		return err
	}
	for _, want := range s.triggers {
		if !have[oneLine(want)] {
			return mismatch("there is no trigger as the schema's: drop what has its name, and %s", oneLine(want))
		}
	}
	return nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func mismatch(format string, args ...any) error {
	return fmt.Errorf("settle/sqlstore: "+format, args...)
}

func each(ctx context.Context, conn *sql.Conn, text string, row func(*sql.Rows) error) error {
	rows, err := conn.QueryContext(ctx, text)
	if err != nil {
		return failed("look at the schema", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return failed("look at the schema", err)
	}
	return nil
}

// createIndex is how two of the databases make one.
func createIndex(i *index) string {
	what := "CREATE INDEX "
	if i.unique {
		what = "CREATE UNIQUE INDEX "
	}
	text := what + i.name + " ON " + i.table + " (" + i.columns + ")"
	if i.where != "" {
		text += " WHERE " + i.where
	}
	return text
}
