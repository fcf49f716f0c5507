package sqltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle/sqlstore"
)

// A database that may lose what it has acknowledged is refused when it is opened, naming the setting to change;
// an option accepts it knowingly (I1). SQLite here.
func TestT31_UnsafeDurabilityIsRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"NORMAL", "OFF"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := open(t, plain(t)+"?_pragma=synchronous("+mode+")")
			require.NoError(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.SQLite()))
			_, err := sqlstore.New(db, sqlstore.SQLite(), nil)
			require.ErrorContains(t, err, "synchronous(FULL)")
			s, err := sqlstore.New(db, sqlstore.SQLite(), &sqlstore.Options{AcceptUnsafe: true})
			require.NoError(t, err)
			require.NoError(t, s.Close())
		})
	}
}
