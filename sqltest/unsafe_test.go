package sqltest

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle/sqlstore"
)

// refused: New names the setting, and AcceptUnsafe accepts it knowingly.
func refused(t *testing.T, db *sql.DB, d sqlstore.Dialect, setting string) {
	t.Helper()
	t.Cleanup(func() { _ = db.Close() })
	_, err := sqlstore.New(db, d, nil)
	require.ErrorContains(t, err, setting)
	require.ErrorContains(t, err, "AcceptUnsafe")
	s, err := sqlstore.New(db, d, &sqlstore.Options{AcceptUnsafe: true})
	must(t, err)
	_, err = s.Commit(t.Context(), create("1"))
	must(t, err)
	must(t, s.Close())
}

// TestT31Postgres (I1): synchronous_commit is off for the session, the database or the role.
func TestT31Postgres(t *testing.T) {
	t.Parallel()
	dsn := pgSchema(t)
	db, s := openPG(t, "pgx", dsn, nil)
	must(t, s.Close())
	off, err := sql.Open("pgx", dsn+"&synchronous_commit=off")
	must(t, err)
	refused(t, off, sqlstore.PostgreSQL(), "synchronous_commit is off")

	var role string // a role of the test's own, since it can be changed for that one alone
	must(t, db.QueryRowContext(t.Context(), `SELECT 'settle_' || current_schema()`).Scan(&role))
	for _, q := range []string{
		`CREATE ROLE ` + role + ` SUPERUSER LOGIN`, `ALTER ROLE ` + role + ` SET synchronous_commit = off`,
		`DELETE FROM settle_operation`, `DELETE FROM settle_due`,
	} {
		must(t, run(db, q))
	}
	t.Cleanup(func() {
		db, err := sql.Open("pgx", postgresURL())
		must(t, err)
		defer db.Close()
		must(t, run(db, `DROP ROLE `+role))
	})
	as, err := sql.Open("pgx", dsn+"&user="+role)
	must(t, err)
	refused(t, as, sqlstore.PostgreSQL(), "synchronous_commit is off")
}

// careless answers for a server whose settings are others; the rest is the real one.
type careless struct{ setting string }

func (c careless) text(q string) string {
	q = strings.Replace(q, "@@GLOBAL."+c.setting, "2", 1)
	if c.setting == "sync_binlog" {
		q = strings.Replace(q, "@@GLOBAL.log_bin", "1", 1)
	}
	return q
}

func (careless) before(context.Context, realConn, string) error { return nil }

func (careless) after(string) error { return nil }

// TestT31MySQL (I1): InnoDB, or its log for replicas, is flushed once a second only.
func TestT31MySQL(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"innodb_flush_log_at_trx_commit", "sync_binlog"} {
		c := mysqlDatabase(t)
		_, s := openMySQL(t, c.FormatDSN(), nil)
		must(t, s.Close())
		connector, err := mysql.NewConnector(c)
		must(t, err)
		refused(t, openTapped(connector, func() tap { return careless{setting} }), sqlstore.MySQL(), setting+" is 2")
	}
}
