package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// A server's clock is its own, and the engine's suites want that of their bubble. So a tap
// tells the session what time it is before each statement: the time of the goroutine that
// makes the call. Waiting for the network does not let a bubble's time pass, so that
// it stands still while a statement runs.
//
// PostgreSQL finds a function clock_timestamp of the test's schema before its own. The MySQL
// family has a session variable for it, which SYSDATE alone does not follow.
type retimed struct {
	set  func(now time.Time) string // the statement
	last time.Time
}

func (r *retimed) text(q string) string { return strings.ReplaceAll(q, "SYSDATE(6)", "NOW(6)") }

func (r *retimed) before(ctx context.Context, c realConn, text string) error {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if now.Equal(r.last) || text == "BEGIN" || text == "COMMIT" || strings.HasPrefix(text, "ROLLBACK") {
		return nil
	}
	if _, err := c.ExecContext(ctx, r.set(now), nil); err != nil {
		return err
	}
	r.last = now
	return nil
}

// after forgets what a rollback may have undone.
func (r *retimed) after(text string) error {
	if strings.HasPrefix(text, "ROLLBACK") || text == "COMMIT" {
		r.last = time.Time{}
	}
	return nil
}

func pgTime(now time.Time) string {
	return now.Format(`SET settle.now = '2006-01-02 15:04:05.000000+00'`)
}

// The half microsecond keeps a double from being cut to the one before.
func myTime(now time.Time) string {
	return fmt.Sprintf(`SET timestamp = %d.%06d5`, now.Unix(), now.Nanosecond()/1000)
}

// server keeps empty databases of one test, so that each of many bubbles needs no new one.
type server struct {
	dialect sqlstore.Dialect
	create  func(testing.TB) driver.Connector // with the schema, until the test ends
	set     func(now time.Time) string
	clear   string
	t       testing.TB

	mu   sync.Mutex
	free []driver.Connector
}

// retimedPG is a PostgreSQL whose clock is that of whoever calls it.
func retimedPG(t testing.TB) *server {
	_ = pgSchema(t) // without a server, fail here and not in a bubble, which would wait for ever
	return &server{
		t: t, dialect: sqlstore.PostgreSQL(), set: pgTime, clear: pgClear,
		create: func(tb testing.TB) driver.Connector {
			u, err := url.Parse(pgSchema(tb))
			must(tb, err)
			q := u.Query()
			q.Set("search_path", q.Get("search_path")+",pg_catalog")
			u.RawQuery = q.Encode()
			c, err := pgx.ParseConfig(u.String())
			must(tb, err)
			connector := stdlib.GetConnector(*c)
			db := sql.OpenDB(connector)
			defer db.Close()
			must(tb, run(db, `CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql
				AS $$ SELECT current_setting('settle.now')::timestamptz $$`))
			must(tb, sqlstore.EnsureSchema(context.Background(), db, sqlstore.PostgreSQL()))
			return connector
		},
	}
}

// retimedMySQL is a server of the MySQL family with such a clock.
func retimedMySQL(t testing.TB) *server {
	_ = mysqlDatabase(t)
	return &server{
		t: t, dialect: sqlstore.MySQL(), set: myTime, clear: myClear,
		create: func(tb testing.TB) driver.Connector {
			c := mysqlDatabase(tb)
			c.MultiStatements = true // for the test's own emptying of tables
			c.InterpolateParams = !fullRun()
			connector, err := mysql.NewConnector(c)
			must(tb, err)
			db := sql.OpenDB(connector)
			defer db.Close()
			must(tb, sqlstore.EnsureSchema(context.Background(), db, sqlstore.MySQL()))
			return connector
		},
	}
}

// open is an empty store for one bubble. Pool and connections are the bubble's and end with it.
func (s *server) open(tb testing.TB) settle.Store {
	_, st := s.openBoth(tb)
	return st
}

func (s *server) openBoth(tb testing.TB) (*sql.DB, *sqlstore.Store) {
	s.mu.Lock()
	var c driver.Connector
	if n := len(s.free); n > 0 {
		c, s.free = s.free[n-1], s.free[:n-1]
	} else {
		c = s.create(s.t)
	}
	s.mu.Unlock()
	tb.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, c)
	})
	db := openTapped(c, func() tap { return &retimed{set: s.set} })
	tb.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(16)
	must(tb, run(db, s.clear))
	// A bubble needs few of the statements: the drivers prepare them when they do.
	st, err := sqlstore.New(db, s.dialect, &sqlstore.Options{Unprepared: !fullRun()})
	must(tb, err)
	tb.Cleanup(func() { _ = st.Close() })
	return db, st
}
