package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/sqlstore"
)

// openScenario is opened in a bubble: SQLite's clock is that of the process. The file is a copy of one with the schema in
// it, since making that takes longer than most bubbles.
func openScenario(t testing.TB) settle.Store {
	t.Helper()
	template, err := sqliteTemplate()
	must(t, err)
	path := filepath.Join(t.TempDir(), "settle.db")
	must(t, os.WriteFile(path, template, 0o600))
	s, _ := openFile(t, path)
	return s
}

// sqliteTemplate is a file with the schema in it, made once.
var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "settle")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "settle.db")
	db, err := sql.Open("sqlite", sqlstore.DSN(path))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(sqlstore.EnsureSchema(context.Background(), db, sqlstore.SQLite()), db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func TestSQLiteTraces(t *testing.T) {
	t.Parallel()
	traces(t, openScenario)
}

func TestSQLiteLedgerModel(t *testing.T) {
	t.Parallel()
	seed := crashSeed(t)
	t.Logf("seed %d", seed)
	scenario.RunLedgerModel(t, openScenario, seed, 1, 30)
}

func TestSQLiteCases(t *testing.T) {
	t.Parallel()
	scenario.RunCases(t, openScenario)
}

func TestSQLiteAuthority(t *testing.T) {
	t.Parallel()
	scenario.RunAuthority(t, openScenario)
}

func TestSQLiteSealed(t *testing.T) {
	t.Parallel()
	scenario.RunSealed(t, openScenario)
}

func TestSQLiteCompensations(t *testing.T) {
	t.Parallel()
	scenario.RunCompensations(t, openScenario)
}

func TestSQLiteEvents(t *testing.T) {
	t.Parallel()
	scenario.RunEvents(t, openScenario)
}
