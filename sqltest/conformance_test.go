package sqltest

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver under test

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
	"github.com/settle-go/settle/storetest"
)

// openFile opens a handle on a SQLite file, as another process would.
func openFile(t testing.TB, path string) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", sqlstore.DSN(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := sqlstore.EnsureSchema(t.Context(), db, sqlstore.SQLite()); err != nil {
		t.Fatal(err)
	}
	s, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, db
}

func TestSQLiteConformance(t *testing.T) {
	t.Parallel()
	files := map[settle.Store]string{}
	dbs := map[settle.Store]*sql.DB{}
	open := func(t testing.TB, path string) settle.Store {
		s, db := openFile(t, path)
		files[s], dbs[s] = path, db
		return s
	}
	storetest.Run(t, storetest.Harness{
		Open:   func(t testing.TB) settle.Store { return open(t, filepath.Join(t.TempDir(), "settle.db")) },
		Reopen: func(t testing.TB, s settle.Store) settle.Store { return open(t, files[s]) },
		Begin: func(t testing.TB, s settle.Store) (settle.Tx, func() error, func() error) {
			tx, err := dbs[s].BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return s.(*sqlstore.Store).In(tx), tx.Commit, tx.Rollback
		},
	})
}
