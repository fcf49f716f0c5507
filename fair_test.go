package settle_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// flood is how many rows are due before everybody else's.
const flood = 10_000

// within counts the requests of those wanted up to d, and the last of them.
func (s *shop) within(began time.Time, wanted func(sale) bool) (n int, last time.Duration) {
	for _, x := range s.arrived() {
		if wanted(x) {
			n, last = n+1, x.at.Sub(began)
		}
	}
	return n, last
}

// One kind, or one tenant, has 100,000 rows that were due first. The others are worked as if it had few: within
// seconds, although its rows would take hours; and it goes on meanwhile.
func TestFloodStarvesNobody(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(s *shop, charge, refund *sales){
		"of one kind":   func(s *shop, _, refund *sales) { s.register(refund, "a", 50) },
		"of one tenant": func(s *shop, charge, _ *sales) { s.register(charge, "b", 50) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShop(t, memstore.New(nil), settle.Options{})
				charge, refund := s.kind("charge", nil, takes(time.Second)), s.kind("refund", nil, takes(time.Second))
				s.register(charge, "a", flood)
				began := time.Now()
				stop := s.work()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				other(s, charge, refund)
				others := func(x sale) bool { return x.kind == "refund" || x.scope == "b" }
				time.Sleep(20 * time.Second)
				synctest.Wait()
				n, last := s.within(began, others)
				if n != 50 { // behind the flood they would come after ten minutes
					t.Errorf("%d of 50 started, the last %v after their registration, want all within 20 s", n, last-10*time.Second)
				}
				all := len(s.arrived())
				if flooded := all - n; flooded < 350 {
					t.Errorf("%d of the flood started in 30 s, want what the others left of 480", flooded)
				}
				if all < 450 {
					t.Errorf("%d operations started in 30 s on 16 slots, want all slots used", all)
				}
				stop()
			})
		})
	}
}

// Two tenants with as much to do as they like share the slots, whoever was first.
func TestTenantsShareTheSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, memstore.New(nil), settle.Options{Concurrency: 8})
		x := s.kind("charge", nil, takes(time.Second))
		for _, scope := range []string{"a", "b", "c", "d"} {
			s.register(x, scope, 500) // more than all slots start in a minute
			time.Sleep(time.Second)
		}
		began := time.Now()
		stop := s.work()
		time.Sleep(60*time.Second + time.Millisecond)
		synctest.Wait()
		for _, scope := range []string{"a", "b", "c", "d"} {
			n, _ := s.within(began, func(x sale) bool { return x.scope == scope })
			if n < 90 {
				t.Errorf("%d operations of %s started in a minute, want about a quarter of 480", n, scope)
			}
		}
		stop()
	})
}

// A kind with a limit of its own never has more under way, uses what it has, and leaves the rest of the slots to
// the others, even when its provider hangs.
func TestConcurrencyOfAKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, memstore.New(nil), settle.Options{Concurrency: 8, PollInterval: time.Hour})
		slow := s.kind("slow", &settle.ExecutorOptions[areq, ares]{Concurrency: 3}, takes(30*time.Second))
		quick := s.kind("quick", nil, takes(100*time.Millisecond))
		ids := s.register(slow, "a", 30)
		ids = append(ids, s.register(quick, "a", 500)...)
		began := time.Now()
		stop := s.work()
		time.Sleep(5*time.Minute + 20*time.Second)
		synctest.Wait()
		if s.most["slow"] != 3 {
			t.Errorf("%d of the kind were under way at once, want 3", s.most["slow"])
		}
		// 10 rounds of 3, one after the other, without a poll in between.
		if n, last := s.within(began, func(x sale) bool { return x.kind == "slow" }); n != 30 || last > 4*time.Minute+45*time.Second {
			t.Errorf("%d of 30 started, the last at %v", n, last)
		}
		if n, last := s.within(began, func(x sale) bool { return x.kind == "quick" }); n != 500 || last > 15*time.Second {
			t.Errorf("%d of 500 started, the last at %v: five slots were free for them", n, last)
		}
		stop()
		s.effects(ids)
	})
}

// A kind with a rate starts that many in any span of its length, uses what it has, and holds up no other.
func TestRateOfAKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, memstore.New(nil), settle.Options{Concurrency: 50, PollInterval: time.Hour})
		slow := s.kind("slow", &settle.ExecutorOptions[areq, ares]{Rate: settle.Rate{Count: 10}}, nil)
		quick := s.kind("quick", nil, nil)
		ids := s.register(slow, "a", 200)
		ids = append(ids, s.register(quick, "a", 500)...)
		began := time.Now()
		stop := s.work()
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		s.effects(ids)
		var at []time.Time
		for _, x := range s.arrived() {
			if x.kind == "slow" {
				at = append(at, x.at)
			}
		}
		if !slices.IsSortedFunc(at, time.Time.Compare) || len(at) != 200 {
			t.Fatalf("%d of 200 started", len(at))
		}
		for i := 10; i < len(at); i++ {
			if d := at[i].Sub(at[i-10]); d < time.Second {
				t.Fatalf("11 started within %v, want at most 10 in a second", d)
			}
		}
		if d := at[199].Sub(began); d > 25*time.Second {
			t.Errorf("200 at 10 a second took %v", d)
		}
		if n, last := s.within(began, func(x sale) bool { return x.kind == "quick" }); n != 500 || last > time.Second {
			t.Errorf("%d of 500 of the other kind started, the last at %v", n, last)
		}
	})
}

func TestLimitsOfAKindAreChecked(t *testing.T) {
	s := newShop(t, memstore.New(nil), settle.Options{})
	good := settle.Adapter[areq, ares]{
		Promise:    regressContract(true, settle.NoLookup),
		TermsFunc:  func(settle.Operation[areq]) settle.Terms { return settle.Terms{} },
		SubmitFunc: func(context.Context, *acall) (aobs, error) { return aobs{}, nil },
	}
	for _, o := range []settle.ExecutorOptions[areq, ares]{
		{Concurrency: -1}, {Rate: settle.Rate{Count: -1}}, {Rate: settle.Rate{Count: 10_001}}, {Rate: settle.Rate{Count: 1, Per: -1}},
	} {
		if _, err := settle.New(s.e, "charge", good, &o); err == nil {
			t.Errorf("Concurrency %d, Rate %+v are accepted", o.Concurrency, o.Rate)
		}
	}
}

// What is registered in a process with a worker starts at once, not at the next poll.
func TestRegisteredStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, memstore.New(nil), settle.Options{PollInterval: time.Hour})
		x := s.kind("charge", nil, nil)
		stop := s.work()
		time.Sleep(time.Minute)
		synctest.Wait()
		began := time.Now()
		ids := s.register(x, "a", 40)
		synctest.Wait()
		if n, last := s.within(began, func(sale) bool { return true }); n != 40 || last != 0 {
			t.Errorf("%d of 40 started, the last after %v, want all at once", n, last)
		}
		stop()
		s.effects(ids)
	})
}
