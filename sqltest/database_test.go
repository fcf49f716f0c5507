package sqltest

import (
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/settle-go/settle/sqlstore"
)

// database is one of those that the store knows, for tests that say the same of each.
type database struct {
	name    string
	driver  string
	real    driver.Driver
	dialect func() sqlstore.Dialect
	// fresh makes a new and empty database and returns the DSN for it.
	fresh func(tb testing.TB) string
	blob  string // the type of a column of bytes
}

func sqliteDatabase() database {
	return database{
		name: "SQLite", driver: "sqlite", real: &sqlite.Driver{}, dialect: sqlstore.SQLite, blob: "BLOB",
		fresh: func(tb testing.TB) string { return sqlstore.DSN(file(tb)) },
	}
}

func postgresDatabase() database {
	return database{
		name: "PostgreSQL", driver: "pgx", real: stdlib.GetDefaultDriver(), dialect: sqlstore.PostgreSQL, blob: "bytea",
		fresh: pgSchema,
	}
}

func mariaDatabase() database {
	return database{
		name: "MySQL", driver: "mysql", real: mysql.MySQLDriver{}, dialect: sqlstore.MySQL, blob: "VARBINARY(255)",
		fresh: func(tb testing.TB) string { return mysqlDatabase(tb).FormatDSN() },
	}
}

func databases() []database { return []database{sqliteDatabase(), postgresDatabase(), mariaDatabase()} }

func servers() []database { return []database{postgresDatabase(), mariaDatabase()} }

// onEach runs a test on each of the databases.
func onEach(t *testing.T, all []database, test func(t *testing.T, d database)) {
	t.Helper()
	t.Parallel()
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

// connect opens a pool without a schema in it.
func (d database) connect(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(d.driver, dsn)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(idle)
	return db
}

// idle is how many connections the pools of tests keep: opening one is slow, and
// database/sql keeps two.
const idle = 16

// open opens a handle, as another process would.
func (d database) open(tb testing.TB, dsn string, opts *sqlstore.Options) (*sql.DB, *sqlstore.Store) {
	tb.Helper()
	db := d.connect(tb, dsn)
	return db, d.store(tb, db, opts)
}

// faulty opens a handle on a driver that can lose answers.
func (d database) faulty(tb testing.TB, dsn string, opts *sqlstore.Options) (*sql.DB, *sqlstore.Store, *faults) {
	tb.Helper()
	db, f := openFaultyDriver(tb, d.real, dsn)
	db.SetMaxIdleConns(idle)
	return db, d.store(tb, db, opts), f
}

func (d database) store(tb testing.TB, db *sql.DB, opts *sqlstore.Options) *sqlstore.Store {
	tb.Helper()
	must(tb, sqlstore.EnsureSchema(tb.Context(), db, d.dialect()))
	s, err := sqlstore.New(db, d.dialect(), opts)
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// args writes placeholders in the way of the database: its statements have question marks.
func (d database) text(q string) string {
	if d.name != "PostgreSQL" {
		return q
	}
	out := make([]byte, 0, len(q)+8)
	n := byte('0')
	for i := range len(q) {
		if q[i] == '?' {
			n++
			out = append(out, '$', n)
			continue
		}
		out = append(out, q[i])
	}
	return string(out)
}
