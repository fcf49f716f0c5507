//go:build full && unix

package sqltest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle/sqlstore"
)

// bounced starts a PgBouncer in transaction mode with two server sessions and returns a DSN that leads through it. The
// program must be installed; SETTLE_PGBOUNCER is where, else the one in PATH.
func bounced(tb testing.TB, dsn string) string {
	tb.Helper()
	program := os.Getenv("SETTLE_PGBOUNCER")
	if program == "" {
		program = "pgbouncer"
	}
	path, err := exec.LookPath(program)
	require.NoError(tb, err, "PgBouncer is not installed")
	u, err := url.Parse(dsn)
	must(tb, err)
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	must(tb, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(tb, l.Close())
	dir, err := os.MkdirTemp("", "pgbouncer") //nolint:usetesting // another user must be able to read it
	must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(tb, os.Chmod(dir, 0o755))
	conf := filepath.Join(dir, "pgbouncer.ini")
	serverPort := u.Port()
	if serverPort == "" {
		serverPort = "5432"
	}
	must(tb, os.WriteFile(conf, fmt.Appendf(nil, `[databases]
bounced = host=%s port=%s user=%s dbname=%s connect_query='SET search_path TO %s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`, u.Hostname(), serverPort, u.User.Username(), strings.TrimPrefix(u.Path, "/"), u.Query().Get("search_path"), port), 0o644))
	var log bytes.Buffer
	cmd := exec.CommandContext(tb.Context(), path, "-q", conf)
	cmd.Stdout, cmd.Stderr = &log, &log
	if os.Geteuid() == 0 { // it refuses to run as root
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	must(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = cmd.Wait() // the test's context has ended
		if tb.Failed() {
			tb.Log(log.String())
		}
	})
	through := fmt.Sprintf("postgres://%s@127.0.0.1:%d/bounced?sslmode=disable", u.User.Username(), port)
	db, err := sql.Open("pgx", through+"&default_query_exec_mode=exec")
	must(tb, err)
	defer db.Close()
	for until := time.Now().Add(30 * time.Second); ; {
		err := db.PingContext(tb.Context())
		if err == nil {
			return through
		}
		if time.Now().After(until) {
			require.NoError(tb, err, "PgBouncer did not start")
		}
	}
}

// TestPgBouncerConformance: the suite behind a real PgBouncer in transaction mode (IC-37).
func TestPgBouncerConformance(t *testing.T) {
	for name, c := range map[string]struct{ driver, params string }{
		"pgx exec":   {"pgx", "&default_query_exec_mode=exec"},
		"pgx simple": {"pgx", "&default_query_exec_mode=simple_protocol"},
		"pq":         {"postgres", "&binary_parameters=yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := bounced(t, pgSchema(t)) + c.params
			conformance(t, func(tb testing.TB) (*sql.DB, *sqlstore.Store) {
				return openPG(tb, c.driver, dsn, &sqlstore.Options{Unprepared: true})
			}, pgClear, true)
		})
	}
}

// TestPgBouncerCrowd: 64 callers, each order asked for twice, through two sessions: flushes of many callers among them.
func TestPgBouncerCrowd(t *testing.T) {
	t.Parallel()
	_, s := openPG(t, "pgx", bounced(t, pgSchema(t))+"&default_query_exec_mode=exec", &sqlstore.Options{Unprepared: true})
	p := newPayments(t, s, nil, nil)
	const orders = 256
	var callers sync.WaitGroup
	for c := range 64 {
		callers.Go(func() {
			for i := range 2 * orders / 64 {
				_, err := p.Execute(context.Background(), pay(fmt.Sprint((c*orders/64+i)%orders)))
				assert.NoError(t, err)
			}
		})
	}
	callers.Wait()
	for i := range orders {
		assert.Equal(t, 1, p.calls(fmt.Sprint(i)), "order %d", i)
	}
}

// TestPgBouncerStatementCache: with a driver that keeps prepared statements New says what to set, as soon as a session
// does not know one (IC-37).
func TestPgBouncerStatementCache(t *testing.T) {
	t.Parallel()
	through := bounced(t, pgSchema(t))
	openPG(t, "pgx", through+"&default_query_exec_mode=exec", &sqlstore.Options{Unprepared: true})
	db, err := sql.Open("pgx", through)
	must(t, err)
	defer db.Close()
	_, err = sqlstore.New(db, sqlstore.PostgreSQL(), nil)
	require.ErrorContains(t, err, "Options.Unprepared")
}
