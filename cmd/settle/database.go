package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver of SQLite

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// opening is what a command wants of the database.
type opening int

const (
	reads    opening = iota // whatever its durability: looking loses nothing
	writes                  // only if a commit survives (I1)
	migrates                // there may be no tables yet, nor a file
)

// connect turns a DSN into a pool. No error of it quotes the DSN, which may hold a password (I16).
func connect(dsn string, how opening) (*sql.DB, sqlstore.Dialect, error) {
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch {
	case scheme == "postgres" || scheme == "postgresql":
		c, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, sqlstore.Dialect{}, usageError("the DSN of PostgreSQL is malformed")
		}
		return stdlib.OpenDB(*c), sqlstore.PostgreSQL(), nil
	case scheme == "mysql" || strings.Contains(dsn, "@tcp(") || strings.Contains(dsn, "@unix("):
		c, err := mysqlConfig(dsn)
		if err != nil {
			return nil, sqlstore.Dialect{}, usageError("the DSN of MySQL is malformed")
		}
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, sqlstore.Dialect{}, usageError("the DSN of MySQL is malformed")
		}
		return sql.OpenDB(connector), sqlstore.MySQL(), nil
	case scheme == "sqlite":
		db, err := openSQLite(strings.TrimPrefix(rest, "//"), how)
		return db, sqlstore.SQLite(), err
	}
	return nil, sqlstore.Dialect{}, usageError("the DSN must begin with sqlite:, postgres:// or mysql://")
}

// mysqlConfig takes a URL, or a DSN as the driver wants it, with or without mysql: before it.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	native := strings.TrimPrefix(strings.TrimPrefix(dsn, "mysql:"), "//")
	if strings.HasPrefix(dsn, "mysql://") && !strings.Contains(dsn, "tcp(") && !strings.Contains(dsn, "unix(") {
		u, err := url.Parse(dsn)
		if err != nil {
			return nil, err
		}
		password, _ := u.User.Password()
		c := mysql.NewConfig()
		host := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
		c.User, c.Passwd, c.Net, c.Addr, c.DBName = u.User.Username(), password, "tcp", host, strings.TrimPrefix(u.Path, "/")
		native = c.FormatDSN()
		if u.RawQuery != "" { // the driver reads its own parameters
			sep := "?"
			if strings.Contains(native, "?") {
				sep = "&"
			}
			native += sep + u.RawQuery
		}
	}
	c, err := mysql.ParseDSN(native)
	if err != nil {
		return nil, err
	}
	const wait = "innodb_lock_wait_timeout"
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	if c.Params[wait] == "" {
		c.Params[wait] = "5" // as sqlstore.MySQL asks for
	}
	return c, nil
}

// openSQLite creates a file only to migrate it, and turns none to WAL mode by looking at it.
func openSQLite(path string, how opening) (*sql.DB, error) {
	if path == "" {
		return nil, usageError("the DSN names no file: sqlite:FILE")
	}
	dsn := sqlstore.DSN(path)
	if how != migrates {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("no database file %s", path)
		}
		u, err := url.Parse(dsn)
		if err != nil {
			return nil, usageError("the DSN of SQLite is malformed")
		}
		q := u.Query()
		var keep []string
		for _, p := range q["_pragma"] {
			if !strings.HasPrefix(p, "journal_mode") {
				keep = append(keep, p)
			}
		}
		q["_pragma"] = keep
		q.Set("mode", "rw")
		u.RawQuery = q.Encode()
		dsn = u.String()
	}
	return sql.Open("sqlite", dsn)
}

// open connects the session; for a command that migrates it does that, too.
func (s *session) open(ctx context.Context, dsn string, how opening) error {
	db, dialect, err := connect(dsn, how)
	if err != nil {
		return err
	}
	s.db, s.dialect = db, dialect
	if how == migrates {
		if err := sqlstore.EnsureSchema(ctx, db, dialect); err != nil {
			return err
		}
	}
	// Unprepared: most commands run a few statements once.
	s.store, err = sqlstore.New(db, dialect, &sqlstore.Options{Unprepared: true, AcceptUnsafe: how == reads})
	if err == nil {
		s.engine, err = settle.Open(s.store, nil)
	}
	return err
}

// close gives back what open took. Nothing is left to write.
func (s *session) close() {
	if s.store != nil {
		_ = s.store.Close()
	}
	if s.db != nil {
		_ = s.db.Close()
	}
}
