package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed schema
var schemaFiles embed.FS

// Migration is one step of a schema. Its text leaves settle_schema.version at
// Version and may hold several statements.
type Migration struct {
	Version int
	Name    string // e.g. "0001_init.sql"
	SQL     string
}

// Schema lists the migrations of d in order, for applications that run
// migrations by a tool of their own. Run each once, in a transaction.
func Schema(d Dialect) []Migration {
	files, err := schemaFiles.ReadDir(d.dir)
	if err != nil {
		return nil
	}
	out := make([]Migration, 0, len(files))
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), "_")
		version, err := strconv.Atoi(number)
		text, readErr := schemaFiles.ReadFile(path.Join(d.dir, f.Name()))
		if err != nil || readErr != nil {
			panic("settle/sqlstore: embedded schema: " + f.Name()) // a test opens each
		}
		out = append(out, Migration{Version: version, Name: f.Name(), SQL: string(text)})
	}
	slices.SortFunc(out, func(a, b Migration) int { return a.Version - b.Version })
	return out
}

func newest(d Dialect) int {
	all := Schema(d)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Version
}

// EnsureSchema runs the migrations that db lacks, all in one transaction; two
// processes may do so at once. It is for tests and small applications: New never
// migrates. An SQLite file is turned to WAL mode, which stays with the file.
func EnsureSchema(ctx context.Context, db *sql.DB, d Dialect) error {
	if d.migrate == nil {
		return errors.New("settle/sqlstore: no dialect")
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return failed("migrate", err)
	}
	defer conn.Close()
	if err := d.migrate(ctx, conn, &d, 30*time.Second); err != nil {
		return failed("migrate", err)
	}
	return nil
}

// upgrade runs the migrations that are missing, under whatever lock migrate has.
func (d *Dialect) upgrade(ctx context.Context, conn *sql.Conn) error {
	have, err := schemaVersion(ctx, conn, *d)
	if err != nil {
		return err
	}
	if want := newest(*d); have > want {
		return newerSchema(have, want)
	}
	for _, m := range Schema(*d) {
		if m.Version <= have {
			continue
		}
		texts := []string{m.SQL}
		if d.mark.question {
			texts = strings.SplitAfter(m.SQL, ";\n") // its driver takes one at a time
		}
		for _, text := range texts {
			if strings.TrimSpace(text) == "" {
				continue
			}
			if _, err := conn.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
		}
	}
	return nil
}

// schemaVersion is 0 if there is none.
func schemaVersion(ctx context.Context, conn *sql.Conn, d Dialect) (int, error) {
	var n, version int
	if err := conn.QueryRowContext(ctx, d.hasSchema).Scan(&n); err != nil || n == 0 {
		return 0, err
	}
	err := conn.QueryRowContext(ctx, d.version).Scan(&version)
	return version, err
}

func newerSchema(have, want int) error {
	return fmt.Errorf("the schema has version %d and this code knows %d: use a newer settle", have, want)
}

func checkSchema(ctx context.Context, conn *sql.Conn, d Dialect) error {
	have, err := schemaVersion(ctx, conn, d)
	if err != nil {
		return failed("schema version", err)
	}
	want := newest(d)
	switch {
	case have == 0:
		return errors.New("settle/sqlstore: the database has no schema: run sqlstore.EnsureSchema once, or the text of sqlstore.Schema")
	case have > want:
		return failed("open", newerSchema(have, want))
	case have < want:
		var missing []string
		for _, m := range Schema(d) {
			if m.Version > have {
				missing = append(missing, m.Name)
			}
		}
		return fmt.Errorf("settle/sqlstore: the schema has version %d: run %s, or sqlstore.EnsureSchema", have, strings.Join(missing, ", "))
	}
	return d.shape().check(ctx, conn)
}
