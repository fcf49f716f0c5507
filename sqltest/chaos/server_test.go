//go:build linux

package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is a database server of the test's own, in a directory of its own, which may be killed.
// It keeps what it said was committed: nothing about its durability is turned off.
type server struct {
	f    family
	dir  string
	port int
	cmd  *exec.Cmd
	done chan struct{} // closed when it is gone
	log  *os.File
}

// startTimeout is for a server that has to recover on a machine that does a lot else.
const startTimeout = 90 * time.Second

// newServer makes a server and starts it. Where its programs are missing the test fails.
func newServer(tb testing.TB, f family) *server {
	tb.Helper()
	// Another user has to get into it: t.TempDir() is nobody else's.
	dir, err := os.MkdirTemp("", "settle-chaos-") //nolint:usetesting // see above
	must(tb, err)
	s := &server{f: f, dir: dir, port: freePort(tb)}
	tb.Cleanup(func() {
		s.stop(syscall.SIGKILL)
		_ = s.log.Close()
		_ = os.RemoveAll(dir)
	})
	s.log, err = os.Create(filepath.Join(dir, "log"))
	must(tb, err)
	cred := s.owner(tb)
	if cred != nil {
		must(tb, os.Chown(dir, int(cred.Uid), int(cred.Gid)))
	}
	data := filepath.Join(dir, "data")
	name, args := pgProgram("initdb"), []string{"-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-D", data}
	if f.name == mariadb.name {
		name, args = "mariadb-install-db", []string{
			"--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
			"--innodb-log-file-size=8M",
		}
	}
	cmd := exec.CommandContext(tb.Context(), name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", name, err, out)
	}
	s.start(tb)
	return s
}

// owner is who may run the server, which refuses to be run by root.
func (s *server) owner(tb testing.TB) *syscall.Credential {
	tb.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	name := "postgres"
	if s.f.name == mariadb.name {
		name = "mysql"
	}
	u, err := user.Lookup(name)
	must(tb, err)
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	must(tb, err)
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	must(tb, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// pgProgram finds a server program where distributions put it.
func pgProgram(name string) string {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return name
	}
	return found[len(found)-1]
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// start brings it up and waits until it serves.
func (s *server) start(tb testing.TB) {
	tb.Helper()
	until := time.Now().Add(startTimeout)
	for {
		s.launch(tb)
		if s.serves(tb.Context(), until) {
			return
		}
		// What is left of a killed one may keep it from starting: again.
		s.stop(syscall.SIGKILL)
		if time.Now().After(until) || tb.Context().Err() != nil {
			text, _ := os.ReadFile(s.log.Name())
			tb.Fatalf("%s does not start:\n%s", s.f.name, text)
		}
	}
}

func (s *server) launch(tb testing.TB) {
	tb.Helper()
	data, port := filepath.Join(s.dir, "data"), strconv.Itoa(s.port)
	name, args := pgProgram("postgres"), []string{
		"-D", data, "-p", port, "-h", "127.0.0.1", "-k", s.dir, "-c", "fsync=on", "-c", "shared_buffers=16MB", "-c", "max_connections=200",
	}
	if s.f.name == mariadb.name {
		name, args = "mariadbd", []string{
			"--no-defaults", "--datadir=" + data, "--port=" + port, "--bind-address=127.0.0.1", "--socket=" + filepath.Join(s.dir, "sock"),
			"--pid-file=" + filepath.Join(s.dir, "pid"), "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=32M",
			"--max-connections=200", "--innodb-log-file-size=8M",
		}
		if _, err := exec.LookPath(name); err != nil {
			name = "/usr/sbin/mariadbd"
		}
	}
	cmd := exec.Command(name, args...) //nolint:noctx // it ends by stop, in a way that the test chooses
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner(tb), Pdeathsig: syscall.SIGKILL}
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, s.log, s.log
	must(tb, cmd.Start())
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	s.cmd, s.done = cmd, done
}

// serves reports whether it answers; not if it ends first.
func (s *server) serves(ctx context.Context, until time.Time) bool {
	db, err := s.f.opened(s.addr(), map[string]string{"postgres": "public"}[s.f.name])
	if err != nil {
		return false
	}
	defer db.Close()
	for time.Now().Before(until) {
		ping, cancel := context.WithTimeout(ctx, time.Second)
		err := db.PingContext(ping)
		cancel()
		if err == nil {
			return true
		}
		select {
		case <-s.done:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return false
}

// stop ends it and waits until it is gone, with all processes that it has. SIGKILL is a crash.
func (s *server) stop(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	if sig != syscall.SIGKILL {
		_ = s.cmd.Process.Signal(sig)
		<-s.done
		s.cmd = nil
		return
	}
	// Stopped first, so that it starts none while they are killed: one that is left would keep
	// the data to itself.
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	for {
		all := s.processes()
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = s.cmd.Process.Kill()
		<-s.done
		if len(all) == 0 {
			s.cmd = nil
			return
		}
		time.Sleep(time.Millisecond) // nothing tells of the end of another's child
	}
}

// processes are all that work in the server's directory.
func (s *server) processes() (out []int) {
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return nil
	}
	for _, name := range all {
		dir, err := os.Readlink(name)
		if err != nil || dir != s.dir && !strings.HasPrefix(dir, s.dir+"/") {
			continue // gone, or another's
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// orderly is the signal for a stop that waits for no client.
func (f family) orderly() syscall.Signal {
	if f.name == postgres.name {
		return syscall.SIGINT
	}
	return syscall.SIGTERM
}

func freePort(tb testing.TB) int {
	tb.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	must(tb, err)
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port
}
