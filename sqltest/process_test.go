package sqltest

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// TestMain turns the test binary into another process on the same file when
// it is started by child.
func TestMain(m *testing.M) {
	if role := os.Getenv("SETTLE_CHILD"); role != "" {
		if err := childMain(role, os.Getenv("SETTLE_DSN"), os.Getenv("SETTLE_NAME")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue { // most of the time tests wait for servers
		_ = f.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
	os.Exit(m.Run())
}

type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
	in  io.Closer
}

func start(t *testing.T, role, dsn, name string) *child {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := &child{cmd: exec.CommandContext(t.Context(), self)}
	c.cmd.Env = append(os.Environ(), "SETTLE_CHILD="+role, "SETTLE_DSN="+dsn, "SETTLE_NAME="+name)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	c.out = bufio.NewScanner(out)
	return c
}

// line is the child's next line.
func (c *child) line(t *testing.T) string {
	t.Helper()
	require.True(t, c.out.Scan(), "the child ended")
	return c.out.Text()
}

func childMain(role, dsn, name string) error {
	ctx := context.Background()
	if name, ok := strings.CutPrefix(role, "migrate "); ok {
		return childMigrates(ctx, name, dsn)
	}
	db, err := openDB(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(4)
	if role == "migrate" {
		if _, err := io.ReadAll(os.Stdin); err != nil { // the signal to start
			return err
		}
		return sqlstore.EnsureSchema(ctx, db, sqlstore.SQLite())
	}
	s, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	if err != nil {
		return err
	}
	switch role {
	case "blocker": // reads, then writes, with the lock held for 300 ms, again and again
		for i := range 3 {
			c := create(name + strconv.Itoa(i))
			c.Hook = func(ctx context.Context, tx settle.Tx) error {
				if i == 0 {
					fmt.Println("locked")
				}
				time.Sleep(300 * time.Millisecond)
				return nil
			}
			if _, err := s.Commit(ctx, c); err != nil {
				return err
			}
		}
		fmt.Println("done")
	case "counter": // 40 increments of one record
		for i := 0; i < 40; {
			r, err := s.Get(ctx, settle.ByKey("tenant-1", "charge", "key-1"))
			if err != nil {
				return err
			}
			r.Tries++
			_, err = s.Commit(ctx, settle.Change{ID: name + strconv.Itoa(i), Writes: []settle.Write{{Record: r, IfVersion: r.Version, DueIn: settle.Keep}}})
			switch {
			case err == nil:
				i++
			case !errors.Is(err, settle.ErrConflict):
				return err
			}
		}
		fmt.Println("done")
	case "claimer":
		for range 30 {
			got, err := s.Claim(ctx, settle.Claim{Kinds: []string{"charge"}, Token: name, Lease: time.Hour, Limit: 3})
			if err != nil {
				return err
			}
			for _, r := range got {
				fmt.Println(r.ID)
			}
		}
		fmt.Println("done")
	case "victim": // commits until it is killed
		for i := 0; ; i++ {
			n := strconv.Itoa(i)
			out, err := s.Commit(ctx, create(n))
			if err != nil {
				return err
			}
			fmt.Println("created " + n)
			if _, err := s.Commit(ctx, outcome(out[0])); err != nil {
				return err
			}
			fmt.Println("settled " + n)
		}
	}
	return nil
}

// childMigrates makes the schema of a server's database when it is told to begin.
func childMigrates(ctx context.Context, name, dsn string) error {
	for _, d := range servers() {
		if d.name != name {
			continue
		}
		db, err := sql.Open(d.driver, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := db.PingContext(ctx); err != nil {
			return err
		}
		fmt.Println("ready")
		if _, err := io.ReadAll(os.Stdin); err != nil { // the signal to start
			return err
		}
		return sqlstore.EnsureSchema(ctx, db, d.dialect())
	}
	return errors.New("no such database")
}

// TestIC33TwoProcesses: two processes on one file, pools of four, no pragma in
// the DSN: writers wait for each other, and nobody sees "database is locked".
func TestIC33TwoProcesses(t *testing.T) {
	t.Parallel()
	dsn := plain(t)
	db, s := openBoth(t, dsn, nil)
	db.SetMaxOpenConns(4)
	out, err := s.Commit(t.Context(), create("1"))
	require.NoError(t, err)
	c := start(t, "blocker", dsn, "b")
	require.Equal(t, "locked", c.line(t))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 5 {
				n := fmt.Sprint("p", g, i)
				r, err := s.Commit(t.Context(), create(n))
				if assert.NoError(t, err) {
					_, err = s.Commit(t.Context(), outcome(r[0]))
					assert.NoError(t, err)
				}
			}
		})
	}
	// A transaction of the store that reads and then writes waits too.
	o := outcome(out[0])
	o.Hook = func(ctx context.Context, tx settle.Tx) error {
		_, err := tx.Get(ctx, settle.ByID(out[0].ID))
		return err
	}
	_, err = s.Commit(t.Context(), o)
	require.NoError(t, err)
	wg.Wait()
	require.Equal(t, "done", c.line(t))
	require.NoError(t, c.cmd.Wait())
	assert.Equal(t, 24, count(t, db, `SELECT count(*) FROM settle_operation`))
}

func TestTwoProcessesCount(t *testing.T) {
	t.Parallel()
	dsn := plain(t)
	_, s := openBoth(t, dsn, nil)
	_, err := s.Commit(t.Context(), create("1"))
	require.NoError(t, err)
	a, b := start(t, "counter", dsn, "a"), start(t, "counter", dsn, "b")
	for _, c := range []*child{a, b} {
		require.Equal(t, "done", c.line(t))
		require.NoError(t, c.cmd.Wait())
	}
	r, err := s.Get(t.Context(), settle.ByKey("tenant-1", "charge", "key-1"))
	require.NoError(t, err)
	assert.Equal(t, 80, r.Tries)
	assert.EqualValues(t, 81, r.Version)
}

// TestTwoProcessesClaim: each due record goes to one process (S31).
func TestTwoProcessesClaim(t *testing.T) {
	t.Parallel()
	dsn := plain(t)
	_, s := openBoth(t, dsn, nil)
	for i := range 40 {
		c := create(strconv.Itoa(i))
		c.Writes[0].DueIn = 0
		_, err := s.Commit(t.Context(), c)
		require.NoError(t, err)
	}
	a, b := start(t, "claimer", dsn, "a"), start(t, "claimer", dsn, "b")
	seen := map[string]int{}
	for _, c := range []*child{a, b} {
		for l := c.line(t); l != "done"; l = c.line(t) {
			seen[l]++
		}
		require.NoError(t, c.cmd.Wait())
	}
	assert.Len(t, seen, 40)
	for id, n := range seen {
		assert.Equal(t, 1, n, id)
	}
}

// TestKilled: what a nil error reported is there after the process was killed
// (S7), and nothing is half done.
func TestKilled(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		dsn := plain(t)
		db, s := openBoth(t, dsn, nil)
		c := start(t, "victim", dsn, "v")
		last := ""
		for range 20 + 13*round {
			last = c.line(t)
		}
		require.NoError(t, c.cmd.Process.Kill())
		for c.out.Scan() { // what it said before it died counts
			last = c.out.Text()
		}
		_ = c.cmd.Wait()
		word, n, _ := strings.Cut(last, " ")
		top, err := strconv.Atoi(n)
		require.NoError(t, err)
		for i := range top + 1 {
			r, err := s.Get(t.Context(), settle.ByKey("tenant-1", "charge", "key-"+strconv.Itoa(i)))
			require.NoError(t, err)
			h, err := s.History(t.Context(), r.ID, 0, 0)
			require.NoError(t, err)
			assert.Len(t, h, int(r.Version))
			if i < top || word == "settled" {
				assert.Equal(t, settle.StateSucceeded, r.State)
				_, err = s.Get(t.Context(), settle.ByRef(r.Account, r.Kind, "pi_"+r.Key))
				require.NoError(t, err)
			}
		}
		var ok string
		require.NoError(t, db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&ok))
		assert.Equal(t, "ok", ok)
		// The lock died with it.
		_, err = s.Commit(t.Context(), create("after"))
		require.NoError(t, err)
	}
}

// TestEnsureSchemaAtOnce: many processes and goroutines may create the schema of
// one file at the same time.
func TestEnsureSchemaAtOnce(t *testing.T) {
	t.Parallel()
	for range 3 {
		dsn := plain(t)
		children := []*child{start(t, "migrate", dsn, ""), start(t, "migrate", dsn, "")}
		for _, c := range children {
			require.NoError(t, c.in.Close())
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				assert.NoError(t, sqlstore.EnsureSchema(t.Context(), open(t, dsn), sqlstore.SQLite()))
			})
		}
		wg.Wait()
		for _, c := range children {
			require.NoError(t, c.cmd.Wait())
		}
		s := openStore(t, dsn, nil)
		_, err := s.Commit(t.Context(), create("1"))
		require.NoError(t, err)
	}
}
