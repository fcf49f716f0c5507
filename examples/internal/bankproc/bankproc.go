// Package bankproc runs the payment provider of package providertest as a process of its own, with a ledger on disk, for
// examples: they start themselves again in that role.
package bankproc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/settle-go/settle/providertest"
)

const role = "provider"

// Offer is what the provider promises.
var Offer = providertest.Options{KeyWindow: 24 * time.Hour, Account: "acct-1"}

// Main is the provider's process if this one was started as such: then it does not return. Call it first in main, and
// in TestMain.
func Main() {
	if len(os.Args) != 3 || os.Args[1] != role {
		return
	}
	if err := serve(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "provider:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve lives as long as its standard input.
func serve(ledger string) error {
	o, charged, release := Offer, make(chan struct{}, 100), make(chan struct{})
	o.Path = ledger
	o.OnApply = func(providertest.Object) { charged <- struct{}{} }
	p, err := providertest.Open(&o)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", p.Handler())
	// What the provider's staff does, and what networks do.
	mux.HandleFunc("POST /admin/hold", func(http.ResponseWriter, *http.Request) { p.Script(providertest.HangAfter(release)) })
	mux.HandleFunc("POST /admin/release", func(http.ResponseWriter, *http.Request) { close(release) })
	mux.HandleFunc("POST /admin/charged", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-charged:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /admin/reverse/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := p.Reverse(r.PathValue("id")); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // the kernel chooses the port
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = srv.Close()
	}()
	fmt.Printf("http://%s\n", l.Addr())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return p.Close()
}

// Process is a provider that runs.
type Process struct {
	*providertest.Client

	url   string
	cmd   *exec.Cmd
	stdin io.Closer
}

// Start starts this program again as the provider, with its ledger in a file.
func Start(ctx context.Context, ledger string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, role, ledger)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(errors.New("bankproc: the provider did not start"), stdin.Close(), cmd.Wait())
	}
	p := &Process{url: strings.TrimSpace(url), cmd: cmd, stdin: stdin}
	p.Client = providertest.NewClient(p.url, nil)
	return p, nil
}

// Close ends it.
func (p *Process) Close() error { return errors.Join(p.stdin.Close(), p.cmd.Wait()) }

// Hold keeps the reply to the next request back until Release, which can be called once.
func (p *Process) Hold(ctx context.Context) error { return p.admin(ctx, "hold") }

// Release lets held replies go.
func (p *Process) Release(ctx context.Context) error { return p.admin(ctx, "release") }

// Charged waits for the next effect, of all since the start.
func (p *Process) Charged(ctx context.Context) error { return p.admin(ctx, "charged") }

// Reverse undoes an effect from outside, as a bank does after a dispute.
func (p *Process) Reverse(ctx context.Context, id string) error { return p.admin(ctx, "reverse/"+id) }

// Ledger lists what exists at the provider: the oracle.
func (p *Process) Ledger(ctx context.Context) ([]providertest.Object, error) {
	body, err := p.do(ctx, http.MethodGet, "/ledger")
	if err != nil {
		return nil, err
	}
	var books struct{ Objects []providertest.Object }
	err = json.Unmarshal(body, &books)
	return books.Objects, err
}

func (p *Process) admin(ctx context.Context, what string) error {
	_, err := p.do(ctx, http.MethodPost, "/admin/"+what)
	return err
}

func (p *Process) do(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("bankproc: %s: %s", path, res.Status)
	}
	return body, err
}
