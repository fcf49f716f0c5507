package sqltest

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/settle-go/settle/sqlstore"
)

// mysqlDSN is where the tests find a server; a database of each test's own keeps them apart.
func mysqlDSN() string {
	if u := os.Getenv("SETTLE_MYSQL"); u != "" {
		return u
	}
	return "root@tcp(127.0.0.1:3306)/?innodb_lock_wait_timeout=5"
}

func mysqlDatabase(tb testing.TB) *mysql.Config {
	tb.Helper()
	name := fmt.Sprintf("settle_test_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), schemaNumber.Add(1))
	db, err := sql.Open("mysql", mysqlDSN())
	must(tb, err)
	defer db.Close()
	must(tb, run(db, `CREATE DATABASE `+name))
	tb.Cleanup(func() {
		db, err := sql.Open("mysql", mysqlDSN())
		must(tb, err)
		defer db.Close()
		must(tb, run(db, `DROP DATABASE `+name))
	})
	c, err := mysql.ParseDSN(mysqlDSN())
	must(tb, err)
	c.DBName = name
	return c
}

func openMySQL(tb testing.TB, dsn string, opts *sqlstore.Options) (*sql.DB, *sqlstore.Store) {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(idle)
	must(tb, sqlstore.EnsureSchema(tb.Context(), db, sqlstore.MySQL()))
	s, err := sqlstore.New(db, sqlstore.MySQL(), opts)
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return db, s
}

// mysqlVariant is what MariaDB and MySQL call differently.
type mysqlVariant struct{ isolation, status, explain string }

func mysqlNames(tb testing.TB) mysqlVariant {
	tb.Helper()
	db, err := sql.Open("mysql", mysqlDSN())
	must(tb, err)
	defer db.Close()
	var version string
	must(tb, db.QueryRowContext(tb.Context(), `SELECT version()`).Scan(&version))
	if strings.Contains(version, "MariaDB") {
		return mysqlVariant{"tx_isolation", "information_schema.session_status", "EXPLAIN "}
	}
	return mysqlVariant{"transaction_isolation", "performance_schema.session_status", "EXPLAIN FORMAT=TRADITIONAL "}
}

// dsnWith sets a variable of the session.
func dsnWith(tb testing.TB, dsn, name, value string) string {
	tb.Helper()
	c, err := mysql.ParseDSN(dsn)
	must(tb, err)
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	c.Params[name] = value
	return c.FormatDSN()
}
