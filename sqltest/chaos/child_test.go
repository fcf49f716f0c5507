//go:build linux

package chaos

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// childEnv holds the orders of a process that the test starts, as JSON.
const childEnv = "SETTLE_CHAOS_CHILD"

type orders struct {
	Role string // "worker" or "provider"
	Seed uint64

	// Of a worker.
	Family, Addr, Schema string
	Provider             string        // its URL
	Skew                 time.Duration // of its clock
	Crash                string        // where it kills itself
	CrashAt              int           // and at which time that it comes there
	Defect               string        // what is wrong with it

	// Of the provider.
	Listen, Ledger string
	Times          int64 // as many faults as usual
}

// The terms of the workload. The provider keeps them as long as a process of it runs at least
// once in a second; no rule of the engine depends on the numbers.
const (
	lease       = 2 * time.Second
	deadline    = 700 * time.Millisecond
	settleDelay = 2 * time.Second
	keyWindow   = time.Hour
	slowest     = 500 * time.Millisecond // what the provider delays by at most
)

func childMain(text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if o.Role == "provider" {
		return providerMain(o)
	}
	w, err := newWorker(o)
	if err != nil {
		return err
	}
	return w.serve()
}

// worker is a process that calls and works, as one of many on a database.
type worker struct {
	o      orders
	f      family
	db     *sql.DB
	raw    *sqlstore.Store
	engine *settle.Engine
	// pays are two kinds at the same provider: one that looks effects up, and one that has
	// nothing but its keys.
	pays [2]*executor

	mu    sync.Mutex
	out   *bufio.Writer
	times map[string]int
}

type (
	executor = settle.Executor[providertest.Payment, providertest.Receipt]
	call     = settle.Call[providertest.Payment]
	seen     = settle.Observation[providertest.Receipt]
	outcome  = settle.Outcome[providertest.Receipt]
)

// skewed is a clock that is wrong.
type skewed time.Duration

// Now implements settle.Clock.
func (s skewed) Now() time.Time { return time.Now().Add(time.Duration(s)) }

func newWorker(o orders) (*worker, error) {
	w := &worker{o: o, out: bufio.NewWriter(os.Stdout), times: map[string]int{}}
	for _, f := range []family{postgres, mariadb, sqlite} {
		if f.name == o.Family {
			w.f = f
		}
	}
	var err error
	if w.db, err = w.f.opened(o.Addr, o.Schema); err != nil {
		return nil, err
	}
	w.db.SetMaxOpenConns(8)
	// The server may be down just now.
	for until := time.Now().Add(startTimeout); ; time.Sleep(50 * time.Millisecond) {
		if w.raw, err = sqlstore.New(w.db, w.f.dialect(), nil); err == nil || time.Now().After(until) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	w.engine, err = settle.Open(&pointed{w.raw, w}, &settle.Options{
		Lease: lease, PollInterval: 100 * time.Millisecond, StoreTimeout: 3 * time.Second, Clock: skewed(o.Skew), Concurrency: 8,
	})
	if err != nil {
		return nil, err
	}
	// A connection of its own for each request: net/http would send one again by itself when a
	// connection that was in use breaks, which this provider does not stand (see providerOptions).
	var api providertest.API = providertest.NewClient(o.Provider, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	api = &tampered{api, w}
	for i, kind := range []string{"charge", "keyed"} {
		if w.pays[i], err = w.kind(kind, api); err != nil {
			return nil, err
		}
	}
	if o.Defect == defectNoLease {
		go w.ignoreLeases(api)
	}
	return w, nil
}

func (w *worker) kind(name string, api providertest.API) (*executor, error) {
	promise := providertest.Promise(providerOptions(""))
	promise.Deadline, promise.SettleDelay = deadline, settleDelay
	if name == "keyed" {
		promise.Lookup = settle.NoLookup
	}
	a := providertest.ChargeAdapter(api, promise)
	submit, lookup := a.SubmitFunc, a.LookupFunc
	a.SubmitFunc = func(ctx context.Context, c *call) (seen, error) {
		w.point("submit.before")
		got, err := submit(ctx, c)
		w.point("submit.after")
		if err != nil && w.o.Defect == defectTimeoutFails {
			return seen{Fact: settle.Declined, Code: "timeout"}, nil
		}
		return got, err
	}
	if lookup != nil {
		a.LookupFunc = func(ctx context.Context, c *call) (seen, error) {
			w.point("lookup.before")
			defer w.point("lookup.after")
			return lookup(ctx, c)
		}
	}
	opts := &settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{OnSuccess: w.ship}
	if w.o.Defect == defectCallerShips {
		opts = nil
	}
	return settle.New(w.engine, name, a, opts)
}

// ship is the consequence, in the transaction of the success.
func (w *worker) ship(ctx context.Context, tx settle.Tx, out outcome) error {
	w.point("hook.before")
	defer w.point("hook.after")
	_, err := sqlstore.Tx(tx).ExecContext(ctx, w.f.insertShipment(), []byte(out.Subject))
	return err
}

// point is a place where the process may have been told to die.
func (w *worker) point(name string) {
	if w.o.Crash != name {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.times[name]++; w.times[name] == w.o.CrashAt {
		_, _ = fmt.Fprintln(w.out, "crash", name)
		_ = w.out.Flush()
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (w *worker) say(words ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintln(w.out, words...)
	_ = w.out.Flush()
}

// serve does what comes by standard input until that ends.
func (w *worker) serve() error {
	ctx, cancel := context.WithCancel(context.Background())
	run := make(chan error, 1)
	go func() { run <- w.engine.Run(ctx) }()
	w.say("ready")
	var calls sync.WaitGroup
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		n, err := strconv.Atoi(in.Text())
		if err != nil {
			cancel()
			return err
		}
		calls.Go(func() {
			said, err := w.do(n)
			if err == nil {
				w.say("ok", n, said)
				return
			}
			time.Sleep(20 * time.Millisecond) // a caller that does not hammer
			w.say("again", n, strings.ReplaceAll(err.Error(), "\n", " "))
		})
	}
	calls.Wait()
	cancel()
	return errors.Join(<-run, w.engine.Drain(context.Background()))
}

func subject(n int) string { return fmt.Sprintf("order-%d", n) }

// amount tells whose effect an effect is, whatever reference or key it came with.
func amount(n int) int64 { return int64(1000 + n) }

// do calls for operation n. A nil error means that the operation is stored; said is what
// is known of it.
func (w *worker) do(n int) (said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	op := settle.Operation[providertest.Payment]{
		Scope: "tenant-1", Subject: subject(n), Purpose: "purchase", Request: providertest.Payment{Amount: amount(n), Currency: "EUR"},
	}
	pay := w.pays[n/3%2]
	switch n % 3 {
	case 0:
		out, err := pay.Execute(ctx, op)
		if err == nil && w.o.Defect == defectCallerShips {
			_, err = w.db.ExecContext(ctx, w.f.insertShipment(), []byte(op.Subject))
		}
		switch {
		case err == nil:
			return saidDone, nil
		case errors.Is(err, settle.ErrFailed):
			return saidFailed, nil
		case out.ID != "" && (errors.Is(err, settle.ErrPending) || errors.Is(err, settle.ErrReview) || errors.Is(err, settle.ErrConsequence)):
			return saidStored, nil
		}
		return "", err
	case 1:
		_, err := pay.Register(ctx, op)
		return saidStored, err
	default:
		return saidStored, w.order(ctx, pay, op)
	}
}

const (
	saidStored = "stored"
	saidDone   = "done"
	saidFailed = "failed"
)

// order commits a row of the application's and the operation together.
func (w *worker) order(ctx context.Context, pay *executor, op settle.Operation[providertest.Payment]) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, w.f.insertOrder(), []byte(op.Subject)); err != nil {
		return err
	}
	if _, err := pay.RegisterTx(ctx, w.raw.In(tx), op); err != nil {
		return err
	}
	w.point("tx.before")
	err = tx.Commit()
	w.point("tx.after")
	return err
}

// pointed is a store with places to die, and with defects.
type pointed struct {
	*sqlstore.Store
	w *worker
}

// Get implements settle.Store.
func (p *pointed) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	p.w.point("get.before")
	defer p.w.point("get.after")
	return p.Store.Get(ctx, by)
}

// Commit implements settle.Store.
func (p *pointed) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	p.w.point("commit.before")
	defer p.w.point("commit.after")
	if out, lied := p.w.pretend(c); lied {
		return out, nil
	}
	return p.Store.Commit(ctx, c)
}

// Claim implements settle.Store.
func (p *pointed) Claim(ctx context.Context, c settle.Claim) ([]settle.Record, error) {
	p.w.point("claim.before")
	got, err := p.Store.Claim(ctx, c)
	if len(got) > 0 {
		p.w.point("claim.after")
	}
	return got, err
}

// Renew implements settle.Store.
func (p *pointed) Renew(ctx context.Context, held []settle.Held, d time.Duration) ([]error, error) {
	p.w.point("renew.before")
	defer p.w.point("renew.after")
	return p.Store.Renew(ctx, held, d)
}

// crashPoints are the names of all places.
var crashPoints = []string{
	"commit.before", "commit.after", "submit.before", "submit.after", "claim.before", "claim.after", "hook.before", "hook.after", "tx.before", "tx.after",
	"lookup.before", "lookup.after", "get.before", "get.after", "renew.before", "renew.after",
}
