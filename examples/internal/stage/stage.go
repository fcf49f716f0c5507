// Package stage holds what the example programs share and what is not about settle: a main function, a database file, and a server on
// a free port.
package stage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	_ "modernc.org/sqlite" // the database driver; sqlstore works with any

	"github.com/settle-go/settle/sqlstore"
)

// Main is the main function of a program that runs for less than a minute, needs a folder of its own, and fails loudly.
func Main(name string, run func(ctx context.Context, out io.Writer, dir string) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", name)
	if err == nil {
		err = errors.Join(run(ctx, os.Stdout, dir), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+": FAILED:", err)
		os.Exit(1)
	}
}

// Open opens a SQLite file with settle's tables and the application's own ones, which live in one database so that
// one transaction can change both. With an error nothing is open.
func Open(ctx context.Context, file, schema string) (*sql.DB, *sqlstore.Store, error) {
	db, err := sql.Open("sqlite", sqlstore.DSN(file))
	if err != nil {
		return nil, nil, err
	}
	store, err := Tables(ctx, db, schema)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, store, nil
}

// Tables makes them in a database that is open.
func Tables(ctx context.Context, db *sql.DB, schema string) (*sqlstore.Store, error) {
	if err := sqlstore.EnsureSchema(ctx, db, sqlstore.SQLite()); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, err
	}
	return sqlstore.New(db, sqlstore.SQLite(), nil)
}

// Serve serves h on a free port of loopback until stop.
func Serve(ctx context.Context, h http.Handler) (url string, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }()
	return "http://" + l.Addr().String(), func() { _ = s.Close() }, nil
}
