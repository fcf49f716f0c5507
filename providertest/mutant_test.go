package providertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
)

// A mutant is an adapter with one lie in it. The named cases must catch it.
type mutant struct {
	name  string
	cases []string
	bench func() bench
	// hangs: the mutant blocks, so the case may not wait for long.
	hangs bool
}

// TestMutants runs each mutant through the cases that must catch it, and holds the
// list against the cases: a case that catches nothing proves nothing.
func TestMutants(t *testing.T) {
	caught := map[string]bool{}
	for _, m := range mutants() {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			for _, id := range m.cases {
				c := caseNamed(t, id)
				e := newEnv(t, m.bench().harness())
				if reason := c.reason(e); reason != "" {
					t.Fatalf("%s does not run: %s", id, reason)
				}
				if m.hangs {
					e.patience = 100 * time.Millisecond
				}
				failures := failuresOf(t, c, e)
				switch {
				case len(failures) == 0:
					t.Errorf("%s does not catch it", id)
				case !strings.Contains(failures[0], rules[c.rule]):
					t.Errorf("%s does not name its rule: %s", id, failures[0])
				case !m.hangs && strings.Contains(failures[0], "does not return"):
					t.Errorf("%s caught it by waiting: %s", id, failures[0])
				case strings.Contains(failures[0], "panicked") != strings.Contains(m.name, "panics"):
					t.Errorf("%s: %s", id, failures[0])
				default:
					t.Log(failures[0])
				}
				caught[id] = true
			}
		})
	}
	for _, c := range allCases() {
		if !caught[c.id()] {
			t.Errorf("no mutant is named for %s", c.id())
		}
	}
}

func TestCasesAreNamed(t *testing.T) {
	seen := map[string]bool{}
	used := map[string]bool{}
	for _, c := range allCases() {
		if seen[c.id()] {
			t.Errorf("two cases are named %s", c.id())
		}
		seen[c.id()], used[c.rule] = true, true
		if c.proves == "" || c.run == nil || rules[c.rule] == "" {
			t.Errorf("%s is incomplete", c.id())
		}
	}
	for rule := range maps.Keys(rules) {
		if !used[rule] && rule != "panics" { // that one is kept in every case
			t.Errorf("rule %s has no case", rule)
		}
	}
}

func caseNamed(t *testing.T, id string) *testCase {
	t.Helper()
	all := allCases()
	i := slices.IndexFunc(all, func(c testCase) bool { return c.id() == id })
	if i < 0 {
		t.Fatalf("no case %s", id)
	}
	return &all[i]
}

// recorder is a tester that keeps what a case says.
type recorder struct {
	t        *testing.T
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.t.Context() }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func failuresOf(t *testing.T, c *testCase, e *env) []string {
	r := &recorder{t: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.check(r, e)
	}()
	<-done
	return r.failures
}

// Flaws, by the level that they sit at.

func onContract(f func(*settle.Contract)) func() bench {
	return func() bench {
		b := keyedBench()
		b.promise = f
		return b
	}
}

func onCarrier(f func(r *http.Request, next http.RoundTripper) (*http.Response, error)) func() bench {
	return func() bench {
		b := keyedBench()
		b.carrier = func(next http.RoundTripper) http.RoundTripper {
			return carrierFunc(func(r *http.Request) (*http.Response, error) { return f(r, next) })
		}
		return b
	}
}

type carrierFunc func(*http.Request) (*http.Response, error)

func (f carrierFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// flawedAPI is an SDK with flaws in some of its calls.
type flawedAPI struct {
	API
	create func(context.Context, API, Request) (Object, error)
	list   func(context.Context, API, Query) (Page, error)
	get    func(context.Context, API, string) (Object, error)
}

func (f flawedAPI) Create(ctx context.Context, r Request) (Object, error) {
	if f.create != nil {
		return f.create(ctx, f.API, r)
	}
	return f.API.Create(ctx, r)
}

func (f flawedAPI) List(ctx context.Context, q Query) (Page, error) {
	if f.list != nil {
		return f.list(ctx, f.API, q)
	}
	return f.API.List(ctx, q)
}

func (f flawedAPI) Get(ctx context.Context, id string) (Object, error) {
	if f.get != nil {
		return f.get(ctx, f.API, id)
	}
	return f.API.Get(ctx, id)
}

func onCreate(f func(context.Context, API, Request) (Object, error)) func() bench {
	return func() bench {
		b := keyedBench()
		b.api = func(api API) API { return flawedAPI{API: api, create: f} }
		return b
	}
}

// onRequest changes what is asked.
func onRequest(f func(*Request)) func() bench {
	return onCreate(func(ctx context.Context, api API, r Request) (Object, error) {
		f(&r)
		return api.Create(ctx, r)
	})
}

type (
	observation = settle.Observation[Receipt]
	callOf      = *settle.Call[Payment]
	ask         func(context.Context, callOf) (observation, error)
)

func onSubmit(f func(context.Context, callOf, ask) (observation, error)) func() bench {
	return func() bench {
		b := keyedBench()
		b.adapter = func(a settle.Adapter[Payment, Receipt]) settle.Adapter[Payment, Receipt] {
			next := a.SubmitFunc
			a.SubmitFunc = func(ctx context.Context, c callOf) (observation, error) { return f(ctx, c, next) }
			return a
		}
		return b
	}
}

func onLookup(f func(context.Context, callOf, ask) (observation, error)) func() bench {
	return func() bench {
		b := keyedBench()
		b.adapter = func(a settle.Adapter[Payment, Receipt]) settle.Adapter[Payment, Receipt] {
			next := a.LookupFunc
			a.LookupFunc = func(ctx context.Context, c callOf) (observation, error) { return f(ctx, c, next) }
			return a
		}
		return b
	}
}

// onObservation changes what is reported, by requests and lookups.
func onObservation(f func(callOf, *observation)) func() bench {
	return func() bench {
		b := keyedBench()
		b.adapter = func(a settle.Adapter[Payment, Receipt]) settle.Adapter[Payment, Receipt] {
			submit, look := a.SubmitFunc, a.LookupFunc
			a.SubmitFunc = func(ctx context.Context, c callOf) (observation, error) {
				o, err := submit(ctx, c)
				f(c, &o)
				return o, err
			}
			a.LookupFunc = func(ctx context.Context, c callOf) (observation, error) {
				o, err := look(ctx, c)
				f(c, &o)
				return o, err
			}
			return a
		}
		return b
	}
}

// onFault makes a fact of an answer that is none.
func onFault(f func(*Fault) settle.Fact) func() bench {
	return func() bench {
		b := keyedBench()
		b.adapter = func(a settle.Adapter[Payment, Receipt]) settle.Adapter[Payment, Receipt] {
			next := a.SubmitFunc
			a.SubmitFunc = func(ctx context.Context, c callOf) (observation, error) {
				var fault *Fault
				var seen faultKey
				o, err := next(context.WithValue(ctx, seen, &fault), c)
				if fault != nil {
					if fact := f(fault); fact != settle.Unclear {
						return observation{Fact: fact}, nil
					}
				}
				return o, err
			}
			return a
		}
		b.api = func(api API) API {
			return flawedAPI{API: api, create: func(ctx context.Context, api API, r Request) (Object, error) {
				o, err := api.Create(ctx, r)
				if into, ok := ctx.Value(faultKey{}).(**Fault); ok {
					errors.As(err, into)
				}
				return o, err
			}}
		}
		return b
	}
}

type faultKey struct{}

func keyless(f func() bench) func() bench {
	return func() bench {
		b := f()
		b.options.KeyWindow = 0
		return b
	}
}

// listing puts flawed lists under an adapter that reads all pages.
func listing(list func(context.Context, API, Query) (Page, error)) func() bench {
	return func() bench {
		b := listingBench()
		b.api = func(api API) API { return lister{flawedAPI{API: api, list: list}} }
		return b
	}
}

var serial atomic.Int64

func unique() string { return strconv.FormatInt(serial.Add(1), 10) }
