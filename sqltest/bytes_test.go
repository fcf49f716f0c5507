package sqltest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// TestBytesOfReferences: names are bytes whatever character set a connection has, of references that have rows of their own too.
func TestBytesOfReferences(t *testing.T) {
	t.Parallel()
	for _, charset := range []string{"", "latin1", "utf8mb3", "utf8mb4"} {
		for _, interpolate := range []bool{false, true} {
			t.Run(fmt.Sprint(charset, " interpolated ", interpolate), func(t *testing.T) {
				t.Parallel()
				cfg := mysqlDatabase(t)
				cfg.InterpolateParams = interpolate
				if charset != "" {
					cfg.Params["charset"] = charset
				}
				db, s := openMySQL(t, cfg.FormatDSN(), nil)
				for i, ref := range []string{"\xff\x00\xfe", "é", "x😀", "x😁", "\xc3", "a\xffb", "\xed\xa0\x80", `\`, "'", "?"} {
					c := create(fmt.Sprint(i))
					c.Writes[0].Record.Account = "a" + ref
					c.Writes[0].Record.References = []settle.Reference{{Ref: fmt.Sprint("first", i)}, {Ref: ref}}
					out, err := s.Commit(t.Context(), c)
					require.NoError(t, err, "%q", ref)
					got, err := s.Get(t.Context(), settle.ByRef("a"+ref, "charge", ref))
					require.NoError(t, err, "%q", ref)
					assert.Equal(t, out[0].ID, got.ID)
					c.ID, c.Writes[0].IfVersion, c.Writes[0].Record.References = fmt.Sprint("without", i), 1, c.Writes[0].Record.References[:1]
					_, err = s.Commit(t.Context(), c)
					require.NoError(t, err)
					_, err = s.Get(t.Context(), settle.ByRef("a"+ref, "charge", ref))
					require.ErrorIs(t, err, settle.ErrNotFound, "%q", ref)
				}
				assert.Zero(t, count(t, db, `SELECT count(*) FROM settle_operation WHERE version = 0`))
			})
		}
	}
}

// TestTooLongInABatch: what does not fit into its column is refused, alone and in a batch, and its neighbor is not.
func TestTooLongInABatch(t *testing.T) {
	onEach(t, []database{mariaDatabase()}, func(t *testing.T, d database) {
		for name, set := range map[string]func(c *settle.Change){
			"subject": func(c *settle.Change) { c.Writes[0].Record.Subject = strings.Repeat("a", 256) },
			"by far":  func(c *settle.Change) { c.Writes[0].Record.Purpose = strings.Repeat("a", 2560) },
			"account": func(c *settle.Change) { c.Writes[0].Record.Account = strings.Repeat("a", 513) },
			"token":   func(c *settle.Change) { c.Writes[0].Record.Token = strings.Repeat("a", 65) },
			"write":   func(c *settle.Change) { c.ID = strings.Repeat("a", 65) },
		} {
			t.Run(name, func(t *testing.T) {
				r := d.dammed(t, d.fresh(t), nil)
				var batched atomic.Bool
				var answers []answered
				for n := 0; n < 50 && !batched.Load(); n++ { // it may take several tries until they queue
					answers = r.batch(t, func() []settle.Change {
						long := create(fmt.Sprint("long", n))
						set(&long)
						return []settle.Change{long, create(fmt.Sprint("short", n))}
					}, nil, func(text string) error {
						batched.Store(batched.Load() || strings.Contains(text, "JSON_TABLE"))
						return nil
					})
				}
				require.True(t, batched.Load())
				require.Error(t, answers[0].err)
				assert.NotErrorIs(t, answers[0].err, settle.ErrConflict)
				require.NoError(t, answers[1].err)
				assert.Zero(t, count(t, r.db, `SELECT count(*) FROM settle_operation WHERE id LIKE '%-long%' OR op_key LIKE '%long%'`))
			})
		}
	})
}
