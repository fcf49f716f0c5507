// Package sim proves recovery by breaking it on purpose: scenarios as text, played with real
// engines on a real store against [providertest.Provider], whose ledger is the oracle.
//
// The crash loop plays each scenario once to count the calls that its processes make to the
// outside, and then once for each call and each fault of it; afterwards every process is gone,
// a fresh one recovers what they left with no caller present, and everything stored is held
// against the ledger and against itself. The golden traces are the same scenarios without
// added faults, with every call and decision written down.
//
// Everything runs in testing/synctest bubbles: time is free and exact.
package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// CrashPoint is one fault of one call of a scenario.
type CrashPoint struct {
	Scene *Scene
	Call  int    // counted from 1 over all processes
	Site  string // what the call is for
	Fault Fault
}

// String names the point, for messages.
func (p CrashPoint) String() string {
	return fmt.Sprintf("%s, call %d (%s), %s", p.Scene.Name, p.Call, p.Site, p.Fault)
}

// crashDefect is a defect on purpose, to see that the oracle notices.
type crashDefect struct {
	store    func(settle.Store) settle.Store
	adapter  func(*settle.Adapter[providertest.Payment, providertest.Receipt], providertest.API)
	promise  func(*settle.Contract)
	provider func(*providertest.Options)
}

// CrashPoints plays s without faults and lists the points at which it can be hit.
func CrashPoints(t *testing.T, s *Scene, open OpenStore) []CrashPoint {
	t.Helper()
	var out []CrashPoint
	problems := crashPlay(t, s, open, nil, true, func(c *sceneCall) Fault {
		for _, f := range Faults() {
			switch {
			case f == RunsTwice && c.kind == sceneHook:
				// A transaction that is run again begins by rolling back; the hook by itself is never
				// run twice in one.
			case f == StoreDown && c.kind != sceneStoreCall:
			case f == RunsTwice && c.Site == siteSend && s.keyless:
				// A transport that resends where no key guards it: a hole no library can close.
			default:
				out = append(out, CrashPoint{s, c.N, c.Site, f})
			}
		}
		return ""
	})
	if len(problems) > 0 {
		t.Fatalf("%s: without a fault: %s", s.Name, strings.Join(problems, "; "))
	}
	return out
}

// CrashAt plays the scenario with the fault of p and returns what is wrong in the end.
func CrashAt(t *testing.T, p CrashPoint, open OpenStore) []string {
	t.Helper()
	return crashAt(t, p, open, nil)
}

func crashAt(t *testing.T, p CrashPoint, open OpenStore, defect *crashDefect) []string {
	t.Helper()
	hit := false
	problems := crashPlay(t, p.Scene, open, defect, false, func(c *sceneCall) Fault {
		if c.N != p.Call {
			return ""
		}
		hit = true
		return p.Fault
	})
	if !hit && defect == nil {
		problems = append(problems, "the call was not made")
	}
	for i := range problems {
		problems[i] = p.String() + ": " + problems[i]
	}
	return problems
}

// crashPlay plays a scenario, ends its processes, recovers and checks.
func crashPlay(t *testing.T, s *Scene, open OpenStore, defect *crashDefect, strict bool, plan func(*sceneCall) Fault) (problems []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newSceneWorld(t, s, open, defect)
		w.plan = plan
		w.run(strict, nil)
		w.close()
		w.plan = nil
		w.recover()
		w.close()
		w.check()
		if problems = w.problems; len(problems) > 0 {
			problems[len(problems)-1] += w.story()
		}
	})
	return problems
}

// recover lets a process that knows nothing finish what the others left. Time goes from one
// due operation to the next.
func (w *sceneWorld) recover() {
	time.Sleep(max(0, time.Until(w.downUntil)))
	p := w.proc("R")
	w.finish(p)
	for range 200 {
		var next time.Time
		for _, r := range append(w.records(), w.kept()...) {
			if !atRest(r) && !r.Due.IsZero() && (next.IsZero() || r.Due.Before(next)) {
				next = r.Due
			}
		}
		if next.IsZero() && !w.mends(p) && !w.insists(p) {
			return
		}
		if next.IsZero() {
			continue
		}
		time.Sleep(max(time.Until(next), 0) + time.Millisecond)
		for _, o := range w.provider.Ledger() {
			if o.Status == providertest.StatusProcessing { // the provider decides in the end
				if err := w.provider.Finish(o.ID); err != nil {
					w.problem("%v", err)
				}
			}
		}
		p.work()
		for _, done := range p.runs {
			<-done
		}
		p.runs = nil
	}
	w.problem("no end of recovery (I10)")
}
