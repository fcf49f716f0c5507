package sqltest

import (
	"database/sql"
	"fmt"
	"os"
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
	must(tb, sqlstore.EnsureSchema(tb.Context(), db, sqlstore.MySQL()))
	s, err := sqlstore.New(db, sqlstore.MySQL(), opts)
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return db, s
}

const myClear = `DELETE FROM settle_operation; DELETE FROM settle_reference; DELETE FROM settle_history`

func TestMySQLConformance(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*mysql.Config)
		opts *sqlstore.Options
	}{
		"plain":        {func(*mysql.Config) {}, nil},
		"found rows":   {func(c *mysql.Config) { c.ClientFoundRows = true }, nil},
		"interpolated": {func(c *mysql.Config) { c.InterpolateParams = true }, &sqlstore.Options{Unprepared: true}},
		"serializable": {func(c *mysql.Config) { c.Params["tx_isolation"] = "'SERIALIZABLE'" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := mysqlDatabase(t)
			if cfg.Params == nil {
				cfg.Params = map[string]string{}
			}
			c.set(cfg)
			cfg.MultiStatements = true // for the test's own emptying of tables
			conformance(t, func(tb testing.TB) (*sql.DB, *sqlstore.Store) { return openMySQL(tb, cfg.FormatDSN(), c.opts) }, myClear)
		})
	}
}
