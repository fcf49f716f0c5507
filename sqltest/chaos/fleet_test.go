//go:build linux

package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fleet is the processes of one run and what they were told to do.
type fleet struct {
	testing.TB
	plan  plan
	f     family
	addr  string // of the database, through the proxy
	name  string // of the schema
	dir   string
	url   string // of the provider
	rng   *drawer
	slots []*slot

	provider *process
	ending   atomic.Bool // faults are over
	changed  chan struct{}

	mu     sync.Mutex
	said   map[int][]string
	left   int // operations of which no caller knows that they are stored
	calls  int
	again  map[string]int // reasons for which callers had to ask again
	faults map[string]int
	points []string // crash points that were not hit yet
}

// slot is a worker's place: when its process dies another one takes over.
type slot struct {
	fl    *fleet
	index int
	queue chan int
	proc  atomic.Pointer[process]
	done  chan struct{}
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (fl *fleet) launch(o orders) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(fl.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	return p, cmd.Start()
}

// drawer draws for all goroutines of a fleet.
type drawer struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *drawer) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (d *drawer) Uint64() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Uint64()
}

// startProvider starts its process, on the ledger that is there.
func (fl *fleet) startProvider(port int) {
	fl.Helper()
	p, err := fl.launch(orders{Role: "provider", Seed: fl.rng.Uint64(), Listen: fmt.Sprintf("127.0.0.1:%d", port), Ledger: fl.ledger(), Times: 1 + int64(btoi(fl.plan.defect != ""))})
	must(fl, err)
	if !p.out.Scan() || p.out.Text() != "ready" {
		fl.Fatalf("the provider does not start: %q", p.out.Text())
	}
	go func() {
		for p.out.Scan() {
			if _, what, ok := strings.Cut(p.out.Text(), "fault "); ok {
				fl.count("provider: " + what)
			}
		}
	}()
	fl.provider = p
}

func (fl *fleet) ledger() string { return fl.dir + "/ledger" }

func (fl *fleet) count(what string) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.faults[what]++
}

// changes wakes whoever waits for progress.
func (fl *fleet) changes() {
	select {
	case fl.changed <- struct{}{}:
	default:
	}
}

// nextPoint is where the next process shall kill itself.
func (fl *fleet) nextPoint() (string, int) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.ending.Load() || len(fl.points) == 0 {
		return "", 0
	}
	p := fl.points[0]
	fl.points = fl.points[1:]
	at := 1 + fl.rng.IntN(6)
	if strings.HasPrefix(p, "renew") || strings.HasPrefix(p, "lookup") || strings.HasPrefix(p, "get") || p == "claim.after" {
		at = 1 // they come rarely
	}
	return p, at
}

// run keeps a process in the slot until the queue is closed and all is done.
func (s *slot) run() {
	defer close(s.done)
	fl := s.fl
	n := len(fl.slots)
	skew := -5*time.Minute + time.Duration(s.index)*10*time.Minute/time.Duration(max(n-1, 1))
	var open []int
	for {
		point, at := fl.nextPoint()
		fl.mu.Lock()
		seed := fl.rng.Uint64()
		fl.mu.Unlock()
		p, err := fl.launch(orders{
			Role: "worker", Seed: seed, Family: fl.f.name, Addr: fl.addr, Schema: fl.name, Provider: fl.url, Skew: skew,
			Crash: point, CrashAt: at, Defect: fl.plan.defect,
		})
		if err != nil {
			if fl.Context().Err() == nil {
				fl.Errorf("worker %d: %v", s.index, err)
			}
			return
		}
		s.proc.Store(p)
		var over bool
		open, over = s.attend(p, open)
		err = p.cmd.Wait()
		if over || fl.Context().Err() != nil {
			if err != nil && fl.Context().Err() == nil {
				fl.Errorf("worker %d ends with %v", s.index, err)
			}
			return
		}
		fl.giveBack(point)
	}
}

// crashed notes that a process said where it killed itself.
func (fl *fleet) crashed(point string) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.faults["worker killed at "+point]++
}

// giveBack keeps a point for another process if this one died of something else.
func (fl *fleet) giveBack(point string) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if point != "" && fl.faults["worker killed at "+point] == 0 {
		fl.points = append(fl.points, point)
	}
}

// attend feeds a process, the calls first of which its predecessor left no answer, and hears
// what it says. over: the queue is closed and all is answered; else what is open.
func (s *slot) attend(p *process, open []int) (left []int, over bool) {
	fl := s.fl
	heard := make(chan string)
	go func() {
		defer close(heard)
		for p.out.Scan() {
			heard <- p.out.Text()
		}
	}()
	under := map[int]int{}
	todo := open
	queue := s.queue
	for {
		for len(todo) > 0 && len(under) < fl.plan.window {
			n := todo[0]
			todo = todo[1:]
			under[n]++
			_, _ = fmt.Fprintln(p.in, n) // if it is dead, heard ends
		}
		if queue == nil && len(todo) == 0 && len(under) == 0 {
			_ = p.in.Close()
			for range heard { // until it is gone
			}
			return nil, true
		}
		from := queue
		if len(todo) > 0 || len(under) >= fl.plan.window {
			from = nil
		}
		select {
		case n, ok := <-from:
			if !ok {
				queue = nil
				continue
			}
			todo = append(todo, n)
		case line, ok := <-heard:
			if !ok {
				for n, times := range under {
					for range times {
						todo = append(todo, n)
					}
				}
				return todo, false
			}
			if n, again := fl.hear(line); n >= 0 {
				if under[n]--; under[n] <= 0 {
					delete(under, n)
				}
				if again {
					todo = append(todo, n)
				}
			}
		}
	}
}

// hear takes down what a worker said. n is the operation that it was about, or -1.
func (fl *fleet) hear(line string) (n int, again bool) {
	words := strings.SplitN(line, " ", 3)
	if words[0] == "crash" {
		fl.crashed(words[1])
		return -1, false
	}
	if len(words) < 3 {
		return -1, false
	}
	n, err := strconv.Atoi(words[1])
	if err != nil {
		return -1, false
	}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.calls++
	if words[0] == "again" {
		fl.again[words[2]]++
		return n, true
	}
	if len(fl.said[n]) == 0 {
		fl.left--
	}
	fl.said[n] = append(fl.said[n], words[2])
	fl.changes()
	return n, false
}

// stored is how many operations some caller knows to be stored.
func (fl *fleet) stored() int {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.plan.ops - fl.left
}

// kill ends a worker that happens to run.
func (fl *fleet) kill(sig syscall.Signal) *process {
	fl.mu.Lock()
	s := fl.slots[fl.rng.IntN(len(fl.slots))]
	fl.mu.Unlock()
	p := s.proc.Load()
	if p != nil {
		_ = p.cmd.Process.Signal(sig)
	}
	return p
}
