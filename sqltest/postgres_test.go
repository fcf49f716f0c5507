package sqltest

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/settle-go/settle/sqlstore"
)

// postgresURL is where the tests find a server; a schema of each test's own keeps them apart.
func postgresURL() string {
	if u := os.Getenv("SETTLE_POSTGRES"); u != "" {
		return u
	}
	return "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
}

var schemaNumber atomic.Int64

// pgSchema makes an empty schema and returns the URL of it. What it is called is new to
// the server, so that many test processes can share one.
func pgSchema(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("settle_test_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), schemaNumber.Add(1))
	db, err := sql.Open("pgx", postgresURL())
	must(tb, err)
	defer db.Close()
	must(tb, run(db, `CREATE SCHEMA `+name))
	tb.Cleanup(func() {
		db, err := sql.Open("pgx", postgresURL())
		must(tb, err)
		defer db.Close()
		must(tb, run(db, `DROP SCHEMA `+name+` CASCADE`))
	})
	u, err := url.Parse(postgresURL())
	must(tb, err)
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// openPG opens a handle with the driver.
func openPG(tb testing.TB, driver, dsn string, opts *sqlstore.Options) (*sql.DB, *sqlstore.Store) {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(idle)
	must(tb, sqlstore.EnsureSchema(tb.Context(), db, sqlstore.PostgreSQL()))
	s, err := sqlstore.New(db, sqlstore.PostgreSQL(), opts)
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return db, s
}
