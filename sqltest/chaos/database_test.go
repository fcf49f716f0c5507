package chaos

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/settle-go/settle/sqlstore"
)

var (
	opsFlag  = flag.Int("chaos.ops", 0, "operations of the long run on each database; 0 is a short one")
	seedFlag = flag.Uint64("chaos.seed", 0, "seed of the faults; 0 is another one each time")
)

// family is a database that the tests know how to reach.
type family struct {
	name    string
	driver  string
	dialect func() sqlstore.Dialect
	// dsn names a database at an address, by the name of a schema of the test's own.
	dsn func(addr, schema string) string
	// blob is the type of a column of bytes, serial that of a number of its own.
	blob, serial string
	mark         func(n int) string
}

// insertOrder puts a row of the application's once.
func (f family) insertOrder() string {
	if f.name == mariadb.name {
		return "INSERT IGNORE INTO chaos_order (subject) VALUES (?)"
	}
	return "INSERT INTO chaos_order (subject) VALUES (" + f.mark(1) + ") ON CONFLICT DO NOTHING"
}

func (f family) insertShipment() string {
	return "INSERT INTO chaos_shipment (subject) VALUES (" + f.mark(1) + ")"
}

var (
	postgres = family{
		name: "postgres", driver: "pgx", dialect: sqlstore.PostgreSQL, blob: "bytea", serial: "bigserial",
		dsn: func(addr, schema string) string {
			return "postgres://postgres@" + addr + "/postgres?sslmode=disable&connect_timeout=5&search_path=" + url.QueryEscape(schema)
		},
		mark: func(n int) string { return fmt.Sprintf("$%d", n) },
	}
	mariadb = family{
		name: "mariadb", driver: "mysql", dialect: sqlstore.MySQL, blob: "varbinary(64)", serial: "serial",
		dsn: func(addr, schema string) string {
			return "root@tcp(" + addr + ")/" + schema + "?innodb_lock_wait_timeout=5&timeout=5s"
		},
		mark: func(int) string { return "?" },
	}
	// Of a file the address is its path.
	sqlite = family{
		name: "sqlite", driver: "sqlite", dialect: sqlstore.SQLite, blob: "blob", serial: "integer",
		dsn:  func(addr, _ string) string { return sqlstore.DSN(addr) },
		mark: func(int) string { return "?" },
	}
)

// sharedAddr is where the servers that tests share listen.
func (f family) sharedAddr(tb testing.TB) string {
	tb.Helper()
	if f.name == postgres.name {
		addr := "127.0.0.1:5432"
		if s := os.Getenv("SETTLE_POSTGRES"); s != "" {
			u, err := url.Parse(s)
			must(tb, err)
			addr = u.Host
		}
		return addr
	}
	addr := "127.0.0.1:3306"
	if s := os.Getenv("SETTLE_MYSQL"); s != "" {
		c, err := mysql.ParseDSN(s)
		must(tb, err)
		addr = c.Addr
	}
	return addr
}

var schemaNumber atomic.Int64

// schema makes an empty one, with the tables of the store and of an application, and drops it.
func (f family) schema(tb testing.TB, addr string) string {
	tb.Helper()
	if f.name == sqlite.name {
		f.tables(tb, f.open(tb, addr, ""))
		return ""
	}
	name := fmt.Sprintf("settle_chaos_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), schemaNumber.Add(1))
	admin := f.open(tb, addr, map[string]string{"postgres": "public"}[f.name])
	what, cascade := "SCHEMA", " CASCADE"
	if f.name == mariadb.name {
		what, cascade = "DATABASE", ""
	}
	mustExec(tb, admin, "CREATE "+what+" "+name)
	tb.Cleanup(func() {
		// A server of the test's own may be gone with its data.
		if _, err := admin.ExecContext(context.Background(), "DROP "+what+" "+name+cascade); err != nil {
			tb.Logf("drop %s: %v", name, err)
		}
	})
	f.tables(tb, f.open(tb, addr, name))
	return name
}

func (f family) tables(tb testing.TB, db *sql.DB) {
	tb.Helper()
	must(tb, sqlstore.EnsureSchema(tb.Context(), db, f.dialect()))
	mustExec(tb, db, "CREATE TABLE chaos_order (subject "+f.blob+" NOT NULL PRIMARY KEY)")
	// No unique name: two shipments of one order must show.
	mustExec(tb, db, "CREATE TABLE chaos_shipment (n "+f.serial+" PRIMARY KEY, subject "+f.blob+" NOT NULL)")
}

func (f family) open(tb testing.TB, addr, schema string) *sql.DB {
	return f.openWith(tb, addr, schema, "")
}

func (f family) openWith(tb testing.TB, addr, schema, extra string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(f.driver, f.dsn(addr, schema)+extra)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// opened is for processes that have no test.
func (f family) opened(addr, schema string) (*sql.DB, error) {
	return sql.Open(f.driver, f.dsn(addr, schema))
}

func (f family) store(tb testing.TB, db *sql.DB, opts *sqlstore.Options) *sqlstore.Store {
	tb.Helper()
	s, err := sqlstore.New(db, f.dialect(), opts)
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func mustExec(tb testing.TB, db *sql.DB, q string, args ...any) {
	tb.Helper()
	_, err := db.ExecContext(tb.Context(), q, args...)
	must(tb, err)
}
