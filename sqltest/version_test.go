package sqltest

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// versions are the schemas that were released. testdata/schema keeps of each, for each database, what a store of that time had
// written, as statements, and the records as it read them. Such a file is never made again.
func versions() []int { return []int{1} }

// tables are those with rows of operations.
func tables(d database) []string {
	switch d.name {
	case "MySQL":
		return []string{"settle_operation", "settle_history"}
	case "PostgreSQL":
		return []string{"settle_operation", "settle_reference", "settle_history", "settle_due"}
	}
	return []string{"settle_operation", "settle_reference", "settle_history"}
}

// references counts those that are stored.
func references(t *testing.T, db *sql.DB, d database) int {
	t.Helper()
	if d.name == "MySQL" {
		return count(t, db, `SELECT count(ref) FROM settle_operation`)
	}
	return count(t, db, `SELECT count(*) FROM settle_reference`)
}

// dump writes what is in the tables as statements.
func dump(t *testing.T, db *sql.DB, d database) string {
	t.Helper()
	var b strings.Builder
	for _, table := range tables(d) {
		rows, err := db.QueryContext(t.Context(), `SELECT * FROM `+table+` ORDER BY 1, 2, 3`)
		require.NoError(t, err)
		defer rows.Close()
		columns, err := rows.Columns()
		require.NoError(t, err)
		for rows.Next() {
			row, to := make([]any, len(columns)), make([]any, len(columns))
			for i := range row {
				to[i] = &row[i]
			}
			require.NoError(t, rows.Scan(to...))
			text := make([]string, len(row))
			for i, v := range row {
				switch v := v.(type) {
				case nil:
					text[i] = "NULL"
				case []byte:
					text[i] = "x'" + hex.EncodeToString(v) + "'"
					if d.name == "PostgreSQL" {
						text[i] = `'\x` + hex.EncodeToString(v) + "'"
					}
				case string:
					text[i] = "'" + v + "'"
				default:
					text[i] = fmt.Sprint(v)
				}
			}
			fmt.Fprintf(&b, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(columns, ", "), strings.Join(text, ", "))
		}
		require.NoError(t, rows.Err())
	}
	return b.String()
}

// all is every record and its history as text, without the time of reading.
func all(t *testing.T, s *sqlstore.Store) string {
	t.Helper()
	records, err := s.List(t.Context(), settle.Query{Limit: 1000})
	require.NoError(t, err)
	var b strings.Builder
	for _, r := range records {
		line, err := settle.EncodeRecord(r)
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s\n  version %d, token %q, due %d, created %d, updated %d, request %q, result %q\n", line, r.Version, r.Token,
			r.Due.UnixMicro(), r.CreatedAt.UnixMicro(), r.UpdatedAt.UnixMicro(), []byte(r.Request), []byte(r.Result))
		h, err := s.History(t.Context(), r.ID, 0, 1000)
		require.NoError(t, err)
		for _, e := range h {
			fmt.Fprintf(&b, "  %d %s %d %s\n", e.Seq, e.Write, e.At.UnixMicro(), settle.EncodeEntry(e))
		}
	}
	return b.String()
}

// TestOlderSchemas: what a store of every released version wrote is read as it was, and goes on, after EnsureSchema has brought it
// forward. SETTLE_DUMP=1 writes the files of the newest version, once, when it is released.
func TestOlderSchemas(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		for _, version := range versions() {
			base := filepath.Join("testdata", "schema", fmt.Sprintf("%s-%d", strings.ToLower(d.name), version))
			db := d.connect(t, d.fresh(t))
			if os.Getenv("SETTLE_DUMP") != "" && version == versions()[len(versions())-1] {
				s := d.store(t, db, nil)
				everything(t, s)
				schema := ""
				for _, m := range sqlstore.Schema(d.dialect()) {
					schema += m.SQL
				}
				must(t, os.MkdirAll(filepath.Dir(base), 0o755))
				must(t, os.WriteFile(base+".sql", []byte(schema+dump(t, db, d)), 0o644))
				must(t, os.WriteFile(base+".txt", []byte(all(t, s)), 0o644))
				continue
			}
			text, err := os.ReadFile(base + ".sql")
			require.NoError(t, err)
			if d.name == "SQLite" {
				require.NoError(t, run(db, `PRAGMA journal_mode = WAL`))
			}
			statements := []string{string(text)}
			if d.name == "MySQL" {
				statements = strings.SplitAfter(string(text), ";\n")
			}
			for _, q := range statements {
				if strings.TrimSpace(q) != "" {
					require.NoError(t, run(db, q), q)
				}
			}
			s := d.store(t, db, nil)
			want, err := os.ReadFile(base + ".txt")
			require.NoError(t, err)
			assert.Equal(t, string(want), all(t, s))
			for _, r := range func() []settle.Record {
				out, err := s.List(t.Context(), settle.Query{Limit: 1000})
				require.NoError(t, err)
				return out
			}() {
				for _, by := range r.Names() {
					got, err := s.Get(t.Context(), by)
					require.NoError(t, err)
					assert.Equal(t, r.ID, got.ID)
				}
				known := create("known")
				known.Writes[0].Record.Subject, known.Writes[0].Record.Purpose = r.Subject, r.Purpose
				_, err := s.Commit(t.Context(), known)
				_ = conflictOf(t, err)
				r.Tries++
				out, err := s.Commit(t.Context(), settle.Change{ID: "on " + r.ID, Writes: []settle.Write{{Record: r, IfVersion: r.Version, DueIn: settle.Keep}}})
				require.NoError(t, err)
				assert.Equal(t, r.Version+1, out[0].Version)
			}
			got, err := s.Claim(t.Context(), settle.Claim{Kinds: []string{"charge"}, Token: "new", Lease: time.Minute, Limit: 10})
			require.NoError(t, err)
			assert.NotEmpty(t, got, "the lease of then is over")
		}
	})
}
