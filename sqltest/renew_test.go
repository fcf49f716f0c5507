package sqltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// TestRenewalPassesLockedRows (S42): a row that another transaction has locked is left as it is, and
// its claim is neither renewed nor lost; the others are renewed meanwhile, not after it.
func TestRenewalPassesLockedRows(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		db, s := d.open(t, d.fresh(t), nil)
		var held []settle.Held
		for i := range 20 {
			out, err := s.Commit(t.Context(), create(fmt.Sprint(i)))
			require.NoError(t, err)
			held = append(held, settle.Held{ID: out[0].ID, Token: out[0].Token})
		}
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		_, err = tx.ExecContext(t.Context(), d.text(`UPDATE settle_operation SET token = ? WHERE id = ?`), []byte("another"), []byte(held[7].ID))
		require.NoError(t, err)
		ended := settle.Held{ID: held[3].ID, Token: "a former holder's"}
		asked := append(append([]settle.Held(nil), held...), ended, settle.Held{ID: "nobody", Token: "t"})
		said, err := s.Renew(t.Context(), asked, 3*time.Hour) // it would wait for longer than a lease if it waited
		require.NoError(t, err)
		for i, err := range said {
			switch i {
			case 7:
				require.ErrorIs(t, err, settle.ErrUncommitted)
			case 20, 21:
				require.ErrorIs(t, err, settle.ErrClaimLost)
			default:
				require.NoError(t, err)
				r, err := s.Get(t.Context(), settle.ByID(asked[i].ID))
				require.NoError(t, err)
				assert.Greater(t, r.Due.Sub(r.AsOf), 2*time.Hour)
			}
		}
		require.NoError(t, tx.Rollback())
		said, err = s.Renew(t.Context(), held, 3*time.Hour)
		require.NoError(t, err)
		require.NoError(t, said[7], "nobody has it locked any more")
		require.NoError(t, run(db, d.text(`UPDATE settle_operation SET token = ? WHERE id = ?`), []byte("another"), []byte(held[7].ID)))
		said, err = s.Renew(t.Context(), held, 3*time.Hour)
		require.NoError(t, err)
		require.ErrorIs(t, said[7], settle.ErrClaimLost)
	})
}
