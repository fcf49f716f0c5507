package sqltest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// TestReferencesMoved: migration 2 of the MySQL family takes references out of their table, also when it was interrupted after any of
// its statements: every one has the owner that it had, and nobody else can have it.
func TestReferencesMoved(t *testing.T) {
	t.Parallel()
	d := mariaDatabase()
	old, err := os.ReadFile(filepath.Join("testdata", "schema", "mysql-1.sql"))
	require.NoError(t, err)
	steps := statements(sqlstore.Schema(d.dialect())[1].SQL)
	require.Greater(t, len(steps), 5)
	for done := range len(steps) {
		t.Run(fmt.Sprint("after ", done), func(t *testing.T) {
			t.Parallel()
			db := d.connect(t, d.fresh(t))
			db.SetMaxOpenConns(1) // a step is of one session
			for _, q := range statements(string(old)) {
				require.NoError(t, run(db, q))
			}
			// Two more, which its row does not hold.
			for _, ref := range []string{"pi_more", "pi_most"} {
				require.NoError(t, run(db, `INSERT INTO settle_reference (account, kind, ref, operation)
					SELECT account, kind, ?, operation FROM settle_reference WHERE ref = 'pi_key-a'`, ref))
			}
			for _, q := range steps[:done] {
				require.NoError(t, run(db, q), q)
			}
			require.NoError(t, sqlstore.EnsureSchema(t.Context(), db, d.dialect()))
			s, err := sqlstore.New(db, d.dialect(), nil)
			require.NoError(t, err)
			owner, err := s.Get(t.Context(), settle.ByRef("stripe/acct_1/eu/test", "charge", "pi_key-a"))
			require.NoError(t, err)
			for _, ref := range []string{"pi_more", "pi_most"} {
				r, err := s.Get(t.Context(), settle.ByRef(owner.Account, owner.Kind, ref))
				require.NoError(t, err)
				assert.Equal(t, owner.ID, r.ID)
				c := create("thief of " + ref)
				w := &c.Writes[0]
				w.Record.Account, w.Record.Kind, w.Record.References = owner.Account, owner.Kind, []settle.Reference{{Ref: ref}}
				_, err = s.Commit(t.Context(), c)
				assert.Equal(t, owner.ID, conflictOf(t, err).Existing.ID)
			}
			records, err := s.List(t.Context(), settle.Query{})
			require.NoError(t, err)
			counted, err := s.Tally(t.Context(), 0)
			require.NoError(t, err)
			var n int64
			for _, x := range counted {
				n += x.Count
			}
			assert.EqualValues(t, len(records), n)
			assert.Equal(t, len(records)+2, count(t, db, `SELECT count(*) FROM settle_operation`))
		})
	}
}

// statements are those of a text, one by one.
func statements(text string) (out []string) {
	for _, q := range strings.SplitAfter(text, ";\n") {
		if strings.TrimSpace(q) != "" {
			out = append(out, q)
		}
	}
	return out
}
