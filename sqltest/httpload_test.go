package sqltest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
	"github.com/settle-go/settle/sqlstore"
)

// httpLoad is how long each phase of TestHTTPLoad runs; `make load` sets it. Without it a phase ends after a few operations of
// each client, which checks the same and measures nothing.
var httpLoad = flag.Duration("httpload", 0, "time of each phase of TestHTTPLoad")

// loadClients is how many clients there are; without -httpload a few.
func loadClients() int {
	if *httpLoad > 0 {
		return 64
	}
	return 8
}

type loadRequest struct {
	Amount int64 `json:"amount"`
}

type loadResult struct {
	ID string `json:"id"`
}

// tally is a provider that counts effects by reference, honors keys, and loses every 16th reply.
type tally struct {
	mu      sync.Mutex
	effects map[string]int
	calls   int
}

func (p *tally) create(ref string) (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	p.effects[ref]++
	return p.calls%16 == 0
}

func (p *tally) adapter() settle.Adapter[loadRequest, loadResult] {
	applied := func(id string, amount int64) settle.Observation[loadResult] {
		return settle.Observation[loadResult]{
			Fact: settle.Applied, Ref: "ch_" + id, Terms: settle.Terms{Amount: settle.Minor(amount, "EUR")}, Result: loadResult{"ch_" + id},
		}
	}
	return settle.Adapter[loadRequest, loadResult]{
		Promise: settle.Contract{
			Account: settle.AccountFacts{Provider: "tally"}, Keys: settle.Keys{Window: 24 * time.Hour}, Lookup: settle.Authoritative,
			SettleDelay: time.Minute, Deadline: 10 * time.Second,
		},
		TermsFunc: func(op settle.Operation[loadRequest]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.Amount, "EUR")}
		},
		// It counts every request that arrives, so that a second one under a key shows too.
		SubmitFunc: func(_ context.Context, c *settle.Call[loadRequest]) (settle.Observation[loadResult], error) {
			if _ = c.Key(); p.create(c.ID) {
				return settle.Observation[loadResult]{}, errors.New("the reply was lost")
			}
			return applied(c.ID, c.Request.Amount), nil
		},
		LookupFunc: func(_ context.Context, c *settle.Call[loadRequest]) (settle.Observation[loadResult], error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.effects[c.ID] == 0 {
				return settle.Observation[loadResult]{Fact: settle.NotFound}, nil
			}
			return applied(c.ID, c.Request.Amount), nil
		},
	}
}

// Many clients that send each request twice, go away in the middle and come back: one effect each, no 5xx but the database's,
// and memory that does not grow with the number of requests. With -httpload it prints what that costs, beside the same
// endpoint without settle.
func TestHTTPLoad(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) settle.Store{
		"sqlite": func(t *testing.T) settle.Store {
			db := open(t, sqlstore.DSN(file(t)))
			must(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.SQLite()))
			s, err := sqlstore.New(db, sqlstore.SQLite(), nil)
			must(t, err)
			return s
		},
		"postgres": func(t *testing.T) settle.Store {
			db, s := openPG(t, "pgx", pgSchema(t), nil)
			db.SetMaxOpenConns(16) // the server is shared
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			bare := new(tally)
			bare.effects = map[string]int{}
			plain := newSwarm(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var in loadRequest
				if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
					http.Error(w, "no", http.StatusBadRequest)
					return
				}
				bare.create(r.Header.Get("Idempotency-Key"))
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(loadResult{"ch"})
			}))
			plain.phase("without settle, plain", plain.plain)

			p := &tally{effects: map[string]int{}}
			engine, err := settle.Open(open(t), nil)
			must(t, err)
			x, err := settle.New(engine, "charge", p.adapter(), nil)
			must(t, err)
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			worker := make(chan error, 1)
			go func() { worker <- engine.Run(ctx) }()
			t.Cleanup(func() {
				stop()
				must(t, <-worker)
				must(t, engine.Drain(context.WithoutCancel(t.Context())))
			})
			h, err := httpsettle.NewHandler(engine, x,
				func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil },
				func(r *http.Request, body []byte) (settle.Operation[loadRequest], error) {
					op := settle.Operation[loadRequest]{Subject: r.URL.Query().Get("order"), Purpose: "purchase"}
					return op, httpsettle.Decode(body, &op.Request)
				}, nil)
			must(t, err)
			s := newSwarm(t, h)
			s.phase("with settle, plain", s.plain)
			s.phase("with settle, duplicates and disconnects", s.rough)
			before := heap()
			done := s.orders.Load()
			if *httpLoad > 0 {
				s.phase("the same again", s.rough)
			}
			// What grows is this test's own: the tally and the latencies, some hundred bytes an operation.
			if grown, n := heap()-before, s.orders.Load()-done; grown > 16<<20+n*1024 {
				t.Errorf("the heap grew by %d bytes in %d operations", grown, n)
			} else {
				t.Logf("the heap grew by %d bytes in %d operations", grown, n)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if int64(len(p.effects)) != s.orders.Load() {
				t.Errorf("%d effects of %d operations", len(p.effects), s.orders.Load())
			}
			for id, n := range p.effects {
				if n != 1 {
					t.Errorf("operation %s has %d effects", id, n)
				}
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// swarm is the clients of one endpoint.
type swarm struct {
	t      *testing.T
	url    string
	http   *http.Client
	orders atomic.Int64 // operations so far

	mu       sync.Mutex
	took     []time.Duration
	statuses map[int]int
}

func newSwarm(t *testing.T, h http.Handler) *swarm {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	tr := &http.Transport{MaxIdleConnsPerHost: 2 * loadClients()}
	t.Cleanup(tr.CloseIdleConnections)
	return &swarm{t: t, url: server.URL + "/charges", http: &http.Client{Transport: tr}}
}

// phase lets every client do operations and reports the first POST of each.
func (s *swarm) phase(name string, operation func(r *rand.Rand, order string)) {
	s.took, s.statuses = nil, map[int]int{}
	start := time.Now()
	seed := uint64(start.UnixNano()) //nolint:gosec // a seed
	var wg sync.WaitGroup
	for c := range loadClients() {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c))) //nolint:gosec // a test's
			for i := 0; i < 2 && *httpLoad == 0 || time.Since(start) < *httpLoad; i++ {
				operation(r, fmt.Sprintf("order-%d", s.orders.Add(1)))
			}
		})
	}
	wg.Wait()
	d := time.Since(start)
	slices.Sort(s.took)
	s.t.Logf("%-42s %6.0f requests/s, p50 %v, p99 %v, statuses %v (seed %d)", name, float64(len(s.took))/d.Seconds(),
		s.took[len(s.took)/2].Round(time.Microsecond), s.took[len(s.took)*99/100].Round(time.Microsecond), s.statuses, seed)
}

// post sends one request; 0 if there was no answer.
func (s *swarm) post(ctx context.Context, order, key string, amount int, timed bool) (status int, location string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"?order="+order, strings.NewReader(fmt.Sprintf(`{"amount":%d}`, amount)))
	must(s.t, err)
	req.GetBody = nil // each request is this test's own
	req.Header = http.Header{"Authorization": {"ann"}, "Content-Type": {"application/json"}, "Idempotency-Key": {`"` + key + `"`}}
	start := time.Now()
	res, err := s.http.Do(req)
	if err != nil {
		return 0, ""
	}
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode >= 500 && !strings.Contains(string(body), "#no-verdict") {
		s.t.Errorf("%d %s", res.StatusCode, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[res.StatusCode]++
	if timed {
		s.took = append(s.took, time.Since(start))
	}
	return res.StatusCode, res.Header.Get("Location")
}

func (s *swarm) plain(_ *rand.Rand, order string) { s.finish(order, 100) }

// finish does what docs/web-handlers.md says: the same request under the same key until there is an answer.
func (s *swarm) finish(order string, amount int) {
	for n := range 1000 {
		status, _ := s.post(s.t.Context(), order, "key of "+order, amount, true)
		switch status {
		case http.StatusOK:
			return
		case http.StatusAccepted, http.StatusConflict, http.StatusServiceUnavailable, 0:
			time.Sleep(time.Millisecond * time.Duration(min(n, 50))) // Retry-After, for impatient clients
		default:
			s.t.Errorf("%s: status %d", order, status)
			return
		}
	}
	s.t.Errorf("%s: no verdict", order)
}

// rough is an operation of a client with a bad network and an impatient user.
func (s *swarm) rough(r *rand.Rand, order string) {
	key := "key of " + order
	var wg sync.WaitGroup
	if r.IntN(2) == 0 { // a second click at the same time
		wg.Go(func() { s.post(s.t.Context(), order, key, 100, false) })
	}
	if r.IntN(4) == 0 { // the connection breaks somewhere on the way
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(r.IntN(5_000))*time.Microsecond)
		s.post(ctx, order, key, 100, false)
		cancel()
	}
	s.finish(order, 100)
	wg.Wait()
	if r.IntN(8) == 0 {
		if status, _ := s.post(s.t.Context(), order, key, 200, false); status != http.StatusUnprocessableEntity && status != http.StatusServiceUnavailable {
			s.t.Errorf("%s: the key with another amount: %d", order, status)
		}
	}
	if r.IntN(8) == 0 {
		if status, _ := s.post(s.t.Context(), order, key+" again", 100, false); status != http.StatusConflict && status != http.StatusServiceUnavailable {
			s.t.Errorf("%s: another key: %d", order, status)
		}
	}
}
