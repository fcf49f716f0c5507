//go:build linux

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settle-go/settle/providertest"
)

// providerOptions are of a provider whose keys protect against repetition and not against two
// requests at the same time: whoever sends while another request may still land is found out.
func providerOptions(path string) *providertest.Options {
	return &providertest.Options{
		KeyWindow: keyWindow, Concurrent: providertest.ConcurrentUnsafe, Path: path,
		// A key whose first answer was a 500 gets to hear of the effect: who has nothing but keys would
		// never learn it otherwise, and only a person could help.
		Replay: providertest.ReplayCurrent,
	}
}

// answered remembers the status of an answer; 0 if there was none.
type answered struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// providerMain serves the simulator over HTTP until it is killed. It says what it does wrong.
func providerMain(o orders) error {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(o.Seed, 1)) //nolint:gosec // faults to be repeated, no secrets
	random := func(n int64) int64 {
		mu.Lock()
		defer mu.Unlock()
		return rng.Int64N(n)
	}
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println("fault", what)
	}
	var calm atomic.Bool
	opts := providerOptions(o.Ledger)
	opts.Choose = func(providertest.Request) providertest.Step {
		if calm.Load() {
			return providertest.OK()
		}
		delay := time.Duration(random(int64(slowest)))
		for _, c := range []struct {
			name    string
			percent int64
			step    providertest.Step
		}{
			{"request dropped", 4, providertest.DropRequest()},
			{"reply dropped", 5, providertest.DropReply()},
			{"delayed and unanswered", 5, providertest.ApplyAfter(delay)},
			{"slow", 6, providertest.Slow(delay)},
			{"hangs after the effect", 3, providertest.HangAfter(nil)},
			{"500 after the effect", 4, providertest.StatusAfter(500, "internal")},
			{"503 before", 3, providertest.Status(503, "unavailable")},
			{"429", 3, providertest.RateLimit(0)},
			{"unreadable", 3, providertest.Garbled()},
			{"declined", 3, providertest.Decline("stolen_card")},
			{"declined and unanswered", 2, providertest.Decline("stolen_card").And(providertest.DropReply())},
		} {
			if random(100) < c.percent*o.Times {
				note(c.name)
				return c.step
			}
		}
		return providertest.OK()
	}
	p, err := providertest.Open(opts)
	if err != nil {
		return err
	}
	handler := p.Handler()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /calm", func(http.ResponseWriter, *http.Request) { calm.Store(true) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		repeat := r.Method == http.MethodPost && !calm.Load() && random(100) < 4
		if !repeat {
			handler.ServeHTTP(w, r)
			return
		}
		// The network repeats what was carried out: of two requests at the same time nobody is
		// protected by this provider's keys, and a network that repeats what had no effect yet is beyond
		// what any client can help.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		again := r.Clone(context.WithoutCancel(r.Context()))
		r.Body, again.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
		answer := &answered{ResponseWriter: w}
		handler.ServeHTTP(answer, r)
		if answer.status != http.StatusOK {
			return
		}
		note("repeated by the network")
		time.AfterFunc(time.Duration(random(int64(slowest))), func() {
			defer func() { _ = recover() }() // a handler that cuts its connection panics where there is none
			handler.ServeHTTP(httptest.NewRecorder(), again)
		})
	})
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", o.Listen)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the test is over
	}()
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(ln)
}
