// Package stagetest holds what the tests of the examples share.
package stagetest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/pipenet"
)

// Says runs a program and checks that it says each of the lines, and does not fail.
func Says(t *testing.T, run func(ctx context.Context, out io.Writer, dir string) error, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	if err := run(ctx, &out, t.TempDir()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, line := range want {
		if !strings.Contains(out.String(), line) {
			t.Errorf("it does not say %q:\n%s", line, out.String())
		}
	}
}

// Serve serves h on a network of its own until the test ends. It works in a bubble of testing/synctest.
func Serve(t testing.TB, h http.Handler) *pipenet.Net {
	t.Helper()
	n := pipenet.Listen()
	ServeOn(t, n, h)
	return n
}

// ServeOn serves h on n until the test ends.
func ServeOn(t testing.TB, n *pipenet.Net, h http.Handler) *http.Server {
	t.Helper()
	server, served := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}, make(chan error, 1)
	go func() { served <- server.Serve(n) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return server
}

// Work runs the worker of e until stop, or the end of the test; then e is drained.
func Work(t testing.TB, e *settle.Engine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ran, e.Drain(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
