//go:build linux

package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// plan is what a run does.
type plan struct {
	ops     int
	workers int
	window  int // calls that a worker has under way
	cycles  int // of the events below
	crashes int // how many of crashPoints, from a random one on; more than there are: all
	cut     int // one in so many requests to the database is hit
	defect  string
	events  []string
	// patience is for what must be settled when the faults are over.
	patience time.Duration
}

const (
	eventKillWorker    = "worker killed"
	eventPauseWorker   = "worker stopped for longer than a lease"
	eventKillServer    = "database killed"
	eventStopServer    = "database stopped and started"
	eventKillProvider  = "provider killed"
	eventCutEverything = "all connections cut"
)

func shortPlan() plan {
	return plan{
		ops: 80, workers: 3, window: 4, cycles: 1, crashes: 3, cut: 60, patience: 2 * time.Minute,
		events: []string{eventKillWorker, eventKillServer, eventCutEverything, eventKillProvider, eventPauseWorker},
	}
}

func longPlan(ops int) plan {
	return plan{
		ops: ops, workers: 8, window: 4, cycles: 1 + ops/1000, crashes: len(crashPoints), cut: 200, patience: 2 * time.Minute,
		events: []string{
			eventKillWorker, eventKillServer, eventPauseWorker, eventCutEverything, eventKillProvider, eventKillWorker, eventStopServer, eventKillWorker,
		},
	}
}

// TestI10_Chaos: many processes work on one database while workers, the database and the provider
// are killed, connections are cut, clocks are wrong by minutes and the provider drops, delays and
// repeats. The provider's ledger is the oracle: no effect twice, no operation lost, and when the
// faults are over everything is settled without anybody's help (I1, I2, I4, I5, I6, I10, I11, I13).
func TestI10_Chaos(t *testing.T) {
	t.Parallel()
	families := []family{postgres, mariadb}
	if *opsFlag > 0 {
		families = append(families, sqlite) // the short run's is that of TestOracleBites
	}
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			p := shortPlan()
			if *opsFlag > 0 {
				p = longPlan(*opsFlag)
			}
			if f.name == sqlite.name {
				p.events = slices.DeleteFunc(p.events, func(e string) bool { return strings.Contains(e, "database") || e == eventCutEverything })
			}
			j := runChaos(t, f, p)
			for _, line := range j.lines[:min(len(j.lines), 50)] {
				t.Error(line)
			}
			if !j.ok() {
				t.Errorf("%d duplicates, %d lost, %d unsettled, %d wrong", j.duplicates, j.lost, j.unsettled, j.wrong)
			}
		})
	}
}

// TestOracleBites: workers with a mistake in them are found out by the same oracle. The short
// run makes one of the mistakes, another one each time, the long run all of them.
func TestOracleBites(t *testing.T) {
	t.Parallel()
	bites := []struct {
		defect string
		found  func(*judged) int
	}{
		{defectFreshKey, func(j *judged) int { return j.duplicates }},
		{defectNoLease, func(j *judged) int { return j.duplicates }},
		{defectAckNoWrite, func(j *judged) int { return j.lost }},
		{defectTimeoutFails, func(j *judged) int { return j.wrong }},
		{defectCallerShips, func(j *judged) int { return j.wrong }},
	}
	if *opsFlag == 0 {
		i := int(time.Now().UnixNano() % int64(len(bites)))
		bites = bites[i : i+1]
	}
	for _, bite := range bites {
		t.Run(bite.defect, func(t *testing.T) {
			t.Parallel()
			var j *judged
			for range 3 { // such a mistake needs bad luck to do harm
				j = runChaos(t, sqlite, plan{ops: 60, workers: 2, window: 4, defect: bite.defect, patience: 3 * time.Second})
				if bite.found(j) > 0 {
					return
				}
			}
			t.Errorf("not found: %d duplicates, %d lost, %d unsettled, %d wrong", j.duplicates, j.lost, j.unsettled, j.wrong)
		})
	}
}

// runChaos makes a run from nothing to its verdict.
func runChaos(t *testing.T, f family, p plan) *judged {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	rng := &drawer{rng: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // faults to be repeated, no secrets
	fl := &fleet{
		TB: t, plan: p, f: f, dir: t.TempDir(), rng: rng, left: p.ops, changed: make(chan struct{}, 1),
		said: map[int][]string{}, again: map[string]int{}, faults: map[string]int{},
	}
	for i := range min(p.crashes, len(crashPoints)) {
		// Not neighbours: a run that looks for places which come rarely only may come to none of them.
		fl.points = append(fl.points, crashPoints[(5*i+int(seed%uint64(len(crashPoints))))%len(crashPoints)])
	}
	var srv *server
	var prox *proxy
	direct := filepath.Join(fl.dir, "settle.db")
	fl.addr = direct
	if f.name != sqlite.name {
		srv = newServer(t, f)
		direct = srv.addr()
		resets := rng.IntN(2) == 0
		t.Logf("connections are reset: %v", resets)
		prox = newProxy(t, direct, resets)
		prox.quiet = 5 * time.Second
		fl.addr = prox.addr()
	}
	fl.name = f.schema(t, direct)
	began := time.Now()
	port := freePort(t)
	fl.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	fl.startProvider(port)
	if prox != nil {
		cuts := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // see above
		prox.set(func() fault {
			if cuts.IntN(p.cut) > 0 {
				return pass
			}
			return cutBefore + fault(cuts.IntN(int(faults-cutBefore)))
		})
	}
	fl.enlist()
	fl.weather(srv, prox, port)

	// The faults are over; the workers run on.
	fl.ending.Store(true)
	if prox != nil {
		prox.set(nil)
	}
	fl.calm()
	if fl.stored() < p.ops {
		t.Errorf("%d of %d operations were never acknowledged", p.ops-fl.stored(), p.ops)
	}
	db := f.open(t, direct, fl.name)
	store := f.store(t, db, nil)
	calmed := time.Now()
	fl.waitSettled(db)
	for _, s := range fl.slots {
		close(s.queue)
	}
	for _, s := range fl.slots {
		<-s.done
	}
	_ = fl.provider.cmd.Process.Kill()
	_ = fl.provider.cmd.Wait()
	if prox != nil {
		fl.hits(prox)
	}

	found := findings{ops: p.ops, said: fl.said, settledIn: map[string]time.Duration{}}
	ledger, err := providertest.Open(providerOptions(fl.ledger()))
	must(t, err)
	found.effects = ledger.Ledger()
	objects := len(ledger.Objects())
	must(t, ledger.Close())
	found.collect(t, store, db)
	j := judge(found)
	fl.report(j, objects, calmed.Sub(began), time.Since(calmed))
	fl.struck()
	return j
}

// hits takes down what became of the connections.
func (fl *fleet) hits(p *proxy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for kind, n := range p.hits {
		if kind != pass {
			fl.faults["connection: "+kind.String()] += n
		}
	}
}

// struck makes sure that the faults that the plan is about have happened.
func (fl *fleet) struck() {
	fl.Helper()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	want := slices.Clone(fl.plan.events)
	if fl.plan.crashes > 0 {
		want = append(want, "worker killed at ")
	}
	if fl.plan.cut > 0 && fl.f.name != sqlite.name {
		want = append(want, "connection: ")
	}
	for _, prefix := range append(want, "provider: ", "called twice") {
		n := 0
		for what, times := range fl.faults {
			if strings.HasPrefix(what, prefix) {
				n += times
			}
		}
		if n == 0 {
			fl.Errorf("a run without a fault of the kind %q says nothing", prefix)
		}
	}
	if fl.plan.ops >= 1000 && len(fl.points) > 0 {
		fl.Errorf("never came to %q", fl.points)
	}
}

// enlist starts the workers and gives them their calls, one in ten of them to two.
func (fl *fleet) enlist() {
	for i := range fl.plan.workers {
		fl.slots = append(fl.slots, &slot{fl: fl, index: i, queue: make(chan int, 2*fl.plan.ops), done: make(chan struct{})})
	}
	for n := range fl.plan.ops {
		fl.slots[n%len(fl.slots)].queue <- n
		if fl.rng.IntN(10) == 0 {
			fl.slots[(n+1+fl.rng.IntN(len(fl.slots)-1))%len(fl.slots)].queue <- n
			fl.count("called twice")
		}
	}
	for _, s := range fl.slots {
		go s.run()
	}
}

// weather makes the events happen as the work goes on, and returns when all calls have an answer.
func (fl *fleet) weather(srv *server, prox *proxy, port int) {
	events := len(fl.plan.events) * fl.plan.cycles
	over := time.NewTimer(2*fl.plan.patience + time.Duration(fl.plan.ops)*200*time.Millisecond)
	defer over.Stop()
	for i := 0; i < events || fl.stored() < fl.plan.ops; {
		if i < events && fl.stored() >= fl.plan.ops*(i+1)/(events+1) {
			fl.strike(fl.plan.events[i%len(fl.plan.events)], srv, prox, port)
			i++
			continue
		}
		select {
		case <-fl.changed:
		case <-over.C:
			return
		}
	}
}

func (fl *fleet) strike(event string, srv *server, prox *proxy, port int) {
	fl.count(event)
	began := time.Now()
	defer func() {
		fl.Logf("%s, after %d operations, took %v", event, fl.stored(), time.Since(began).Round(time.Millisecond))
	}()
	switch event {
	case eventKillWorker:
		fl.kill(syscall.SIGKILL)
	case eventPauseWorker:
		if p := fl.kill(syscall.SIGSTOP); p != nil {
			time.AfterFunc(lease+lease/2, func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) })
		}
	case eventKillServer:
		srv.stop(syscall.SIGKILL)
		srv.start(fl)
	case eventStopServer:
		srv.stop(srv.f.orderly())
		srv.start(fl)
	case eventCutEverything:
		prox.sever()
	case eventKillProvider:
		_ = fl.provider.cmd.Process.Kill()
		_ = fl.provider.cmd.Wait()
		fl.startProvider(port)
	}
}

// calm makes the provider behave.
func (fl *fleet) calm() {
	fl.Helper()
	req, err := http.NewRequestWithContext(fl.Context(), http.MethodPost, fl.url+"/calm", nil)
	must(fl, err)
	res, err := http.DefaultClient.Do(req)
	must(fl, err)
	_ = res.Body.Close()
}

// waitSettled waits until nothing is due any more, consequences included, or for so long that
// something is wrong. What is in review waits for a person.
func (fl *fleet) waitSettled(db *sql.DB) {
	fl.Helper()
	ctx, cancel := context.WithTimeout(fl.Context(), fl.plan.patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		var left int
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM settle_operation WHERE due IS NOT NULL AND state <> 'review'").Scan(&left)
		if err == nil && left == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (f *findings) collect(t *testing.T, store *sqlstore.Store, db *sql.DB) {
	t.Helper()
	for q := (settle.Query{Limit: 500}); ; {
		page, err := store.List(t.Context(), q)
		must(t, err)
		for _, r := range page {
			f.records = append(f.records, r)
			h, err := store.History(t.Context(), r.ID, 0, 1000)
			must(t, err)
			if i := slices.IndexFunc(h, func(e settle.Entry) bool { return e.To.Settled() }); i >= 0 {
				f.settledIn[r.ID] = h[i].At.Sub(r.CreatedAt)
			}
			q.After = r.ID
		}
		if len(page) < q.Limit {
			break
		}
	}
	f.shipments, f.orders = tally(t, db, "chaos_shipment"), tally(t, db, "chaos_order")
}

// tally counts the rows of each subject.
func tally(t *testing.T, db *sql.DB, table string) map[string]int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT subject, count(*) FROM "+table+" GROUP BY subject")
	must(t, err)
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var subject []byte
		var n int
		must(t, rows.Scan(&subject, &n))
		out[string(subject)] = n
	}
	must(t, rows.Err())
	return out
}

// numbers are what tells one occurrence of an error from another: ports, ids.
var numbers = regexp.MustCompile(`[0-9a-f-]{36}|(\d+\.){3}\d+|\d+`)

// report prints what was done and what came of it.
func (fl *fleet) report(j *judged, objects int, faulty, after time.Duration) {
	fl.Helper()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d operations, %d calls, %d objects at the provider, %v with faults and %v after\n",
		fl.f.name, fl.plan.ops, fl.calls, objects, faulty.Round(time.Millisecond), after.Round(time.Millisecond))
	fmt.Fprintf(&b, "%d duplicate effects, %d lost, %d unsettled, %d otherwise wrong, %d in review\n",
		j.duplicates, j.lost, j.unsettled, j.wrong, j.inReview)
	fmt.Fprintf(&b, "from registration to settled: p50 %v, p99 %v, max %v\n", j.age(0.5), j.age(0.99), j.age(1))
	for _, what := range slices.Sorted(maps.Keys(fl.faults)) {
		fmt.Fprintf(&b, "%6d %s\n", fl.faults[what], what)
	}
	if len(fl.points) > 0 {
		fmt.Fprintf(&b, "not come to: %v\n", fl.points)
	}
	n := 0
	reasons := map[string]int{}
	for why, times := range fl.again {
		n += times
		reasons[numbers.ReplaceAllString(why, "N")] += times
	}
	fmt.Fprintf(&b, "%6d calls had to be made again", n)
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "\n%12d %.160s", reasons[why], why)
	}
	fl.Log(b.String())
}
