package providertest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/settle-go/settle"
)

const (
	testAccount    = "acct_1"
	testCredential = "sk_test_9f8e7d6c5b4a"
)

// bench is a harness around the simulator, with a place to put a flaw into at
// each level of an adapter.
type bench struct {
	options  Options
	promise  func(*settle.Contract)
	others   map[string][]string
	carrier  func(http.RoundTripper) http.RoundTripper
	api      func(API) API
	adapter  func(settle.Adapter[Payment, Receipt]) settle.Adapter[Payment, Receipt]
	pageSize int
}

func keyedBench() bench {
	return bench{options: Options{KeyWindow: 24 * time.Hour, Account: testAccount}}
}

func keylessBench() bench { return bench{options: Options{Account: testAccount}} }

// listingBench has an adapter that finds its own object in a list of everything.
func listingBench() bench {
	b := keyedBench()
	b.options.PageSize, b.pageSize = 3, 3
	b.api = func(api API) API { return lister{API: api} }
	return b
}

func (b bench) harness() Harness[Payment, Receipt] {
	promise := Promise(&b.options)
	if b.promise != nil {
		b.promise(&promise)
	}
	return Harness[Payment, Receipt]{
		Local: func(testing.TB) Local {
			p := New(&b.options)
			return Local{Handler: p.Handler(), Effects: func(ref string) int { return count(p, ref) }}
		},
		Adapter: func(_ testing.TB, w Wire) settle.ProviderAdapter[Payment, Receipt] {
			carrier := http.RoundTripper(authorized{w.Transport})
			if b.carrier != nil {
				carrier = b.carrier(carrier)
			}
			api := API(NewClient(w.URL, &http.Client{Transport: carrier}))
			if b.api != nil {
				api = b.api(api)
			}
			a := ChargeAdapter(api, promise)
			if b.adapter != nil {
				a = b.adapter(a)
			}
			return a
		},
		Request: func(n int) Payment {
			return Payment{Amount: 1000 + int64(n), Currency: []string{"EUR", "JPY", "KWD"}[n%3]}
		},
		Key: InHeader("Idempotency-Key"), Reference: InJSON("/reference"), Account: InJSON("/account"),
		Echo:     Echo{Amount: []string{"amount"}, Currency: []string{"currency"}, Account: []string{"account"}, Other: b.others},
		Answers:  simulatorAnswers(&b.options),
		PageSize: b.pageSize,
		Secrets:  []string{testCredential},
	}
}

// count is what exists under a reference, whether decided or not.
func count(p *Provider, reference string) int {
	n := 0
	for _, o := range p.Ledger() {
		if o.Reference == reference {
			n++
		}
	}
	return n
}

func simulatorAnswers(o *Options) []Answer {
	existing := settle.Applied
	if o.Async {
		existing = settle.Underway
	}
	return []Answer{
		{Name: "declined", Status: 402, Body: `{"error":{"code":"card_declined"}}`, Want: settle.Declined},
		{Name: "invalid", Status: 400, Body: `{"error":{"code":"invalid_request"}}`, Want: settle.Declined},
		{Name: "in flight", Status: 409, Body: `{"error":{"code":"idempotency_key_in_use"}}`},
		{Name: "other parameters", Status: 400, Body: `{"error":{"code":"idempotency_key_reused"}}`},
		{
			Name: "already exists", Status: 409, Again: true, Want: existing,
			Body: `{"error":{"code":"already_exists","existing_id":"{ref}"}}`,
		},
		{Name: "already exists, unnamed", Status: 409, Body: `{"error":{"code":"already_exists"}}`},
		{
			Name: "slow down", Status: 429, Header: map[string]string{"Retry-After": "7"}, Want: settle.NotApplied,
			Body: `{"error":{"code":"rate_limited"}}`, RetryAfter: 7 * time.Second,
		},
		{Name: "bad credential", Status: 401, Body: `{"error":{"code":"unauthorized"}}`, Want: settle.NotApplied},
		{
			Name: "accepted", Status: 200, Want: settle.Underway,
			Body: `{"id":"ch_77","kind":"charge","status":"processing","amount":1,"currency":"EUR"}`,
		},
	}
}

// authorized adds the credential, as an SDK does.
type authorized struct{ next http.RoundTripper }

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+testCredential)
	return a.next.RoundTrip(r)
}

// lister asks for everything in the account and compares for itself, as with a
// provider that cannot search.
type lister struct{ API }

func (l lister) List(ctx context.Context, q Query) (Page, error) {
	want := q.Reference
	q.Reference = ""
	page, err := l.API.List(ctx, q)
	var out []Object
	for _, o := range page.Objects {
		if o.Reference == want {
			out = append(out, o)
		}
	}
	page.Objects = out
	return page, err
}

// TestRunOnChargeAdapter: the adapter of this package keeps every rule, whatever the
// provider does with keys.
func TestRunOnChargeAdapter(t *testing.T) {
	asynchronous := keyedBench()
	asynchronous.options.Async = true
	for name, b := range map[string]bench{
		"keys": keyedBench(), "no keys": keylessBench(), "asynchronous": asynchronous, "listing": listingBench(),
	} {
		t.Run(name, func(t *testing.T) { Run(t, b.harness()) })
	}
}

// TestKeyCasesOnEveryKindOfKey runs the cases that depend on it.
func TestKeyCasesOnEveryKindOfKey(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"for ever, short":     func(b *bench) { b.options.KeyWindow, b.options.KeyMaxLen = Forever, 36 },
		"uuid":                func(b *bench) { b.promise = keysOf(36, settle.AlphabetUUID) },
		"url alphabet":        func(b *bench) { b.promise = keysOf(40, settle.AlphabetURL) },
		"longer than settle":  func(b *bench) { b.promise = keysOf(1000, "") },
		"replays current":     func(b *bench) { b.options.Replay = ReplayCurrent },
		"replays a reference": func(b *bench) { b.options.Replay = ReplayNames },
		"drift unnoticed":     func(b *bench) { b.options.Drift = DriftIgnore },
		"sends again by itself": func(b *bench) {
			b.api = func(api API) API {
				return flawedAPI{API: api, create: func(ctx context.Context, api API, r Request) (Object, error) {
					if o, err := api.Create(ctx, r); err == nil || ctx.Err() != nil {
						return o, err
					}
					return api.Create(ctx, r)
				}}
			}
		},
		"no lookup": func(b *bench) { b.promise = func(c *settle.Contract) { c.Lookup = settle.NoLookup } },
	} {
		t.Run(name, func(t *testing.T) {
			b := keyedBench()
			change(&b)
			for _, id := range []string{"contract/accepted", "key/byte_for_byte", "key/same_on_every_attempt", "key/honored", "resend/same_bytes", "no_answer/reply_lost", "context/lands_late"} {
				if failures := failuresOf(t, caseNamed(t, id), newEnv(t, b.harness())); len(failures) > 0 {
					t.Error(failures)
				}
			}
		})
	}
}

func keysOf(length int, alphabet string) func(*settle.Contract) {
	return func(c *settle.Contract) { c.Keys.MaxLen, c.Keys.Alphabet = length, alphabet }
}

func TestRunOnRefundAdapter(t *testing.T) {
	o := &Options{KeyWindow: 24 * time.Hour, Account: testAccount}
	promise := Promise(o)
	h := Harness[Refund, Receipt]{
		Local: func(t testing.TB) Local {
			p := New(o)
			return Local{Handler: p.Handler(), Effects: p.Effects, Undoes: func(n int) settle.Effect {
				ch, err := p.Create(t.Context(), Request{Kind: KindCharge, Amount: 100000 + int64(n), Currency: "EUR"})
				if err != nil {
					t.Fatal(err)
				}
				return settle.Effect{Operation: "charge", Ref: ch.ID, Confirmed: true, Amount: settle.Minor(ch.Amount, ch.Currency)}
			}}
		},
		Adapter: func(_ testing.TB, w Wire) settle.ProviderAdapter[Refund, Receipt] {
			return RefundAdapter(NewClient(w.URL, &http.Client{Transport: authorized{w.Transport}}), promise)
		},
		Request: func(n int) Refund {
			if n%2 == 0 {
				return Refund{} // all of it
			}
			return Refund{Amount: int64(n), Currency: "EUR"}
		},
		Key: InHeader("Idempotency-Key"), Reference: InJSON("/reference"), Account: InJSON("/account"),
		Echo:    Echo{Amount: []string{"amount"}, Currency: []string{"currency"}, Account: []string{"account"}},
		Answers: simulatorAnswers(o),
	}
	Run(t, h)
}

// TestPublicCasesOfTheSuite: what Run says of adapters that failed in public.
func TestPublicCasesOfTheSuite(t *testing.T) {
	t.Run("IC-48", func(t *testing.T) {
		b := listingBench()
		b.options.PageSize, b.pageSize = 100, 100
		if failures := failuresOf(t, caseNamed(t, "lookup/every_page"), newEnv(t, b.harness())); len(failures) > 0 {
			t.Errorf("an adapter that reads all pages of 250 charges fails: %v", failures)
		}
		first := listing(func(ctx context.Context, api API, q Query) (Page, error) {
			page, err := api.List(ctx, q)
			page.Next = ""
			return page, err
		})()
		first.options.PageSize, first.pageSize = 100, 100
		if len(failuresOf(t, caseNamed(t, "lookup/every_page"), newEnv(t, first.harness()))) == 0 {
			t.Error("an adapter that reads the first 100 of 250 charges passes")
		}
	})
	t.Run("IC-65", func(t *testing.T) {
		strip := func(r *http.Request) *http.Request {
			r = r.Clone(r.Context())
			r.Header.Del("Idempotency-Key")
			return r
		}
		before := keyedBench() // the layer is part of the client
		before.carrier = func(next http.RoundTripper) http.RoundTripper {
			return carrierFunc(func(r *http.Request) (*http.Response, error) { return next.RoundTrip(strip(r)) })
		}
		behind := keyedBench().harness() // the layer is a service in front of the provider
		local := behind.Local
		behind.Local = func(t testing.TB) Local {
			l := local(t)
			next := l.Handler
			l.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, strip(r)) })
			return l
		}
		for id, h := range map[string]Harness[Payment, Receipt]{"key/byte_for_byte": before.harness(), "key/honored": behind} {
			if len(failuresOf(t, caseNamed(t, id), newEnv(t, h))) == 0 {
				t.Errorf("%s: an adapter whose key is dropped on the way passes", id)
			}
		}
	})
}
