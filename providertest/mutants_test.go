package providertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// mutants are the lies that adapters have told.
func mutants() []mutant {
	var out []mutant
	add := func(name string, b func() bench, cases ...string) {
		out = append(out, mutant{name: name, cases: cases, bench: b})
	}
	hangs := func(name string, b func() bench, cases ...string) {
		out = append(out, mutant{name: name, cases: cases, bench: b, hangs: true})
	}

	// Contract and account.
	add("promises a window that leaves no time", onContract(func(c *settle.Contract) { c.Keys.Window = time.Second }), "contract/accepted")
	add("states no source", onContract(func(c *settle.Contract) { c.Source = "" }), "contract/dated")
	add("uses another account", onRequest(func(r *Request) { r.Account = "acct_2" }), "account/on_the_wire")

	// Keys and references.
	add("drops the key", onRequest(func(r *Request) { r.Key = "" }), "key/byte_for_byte", "key/same_on_every_attempt")
	add("puts the key into another header", onCarrier(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("X-Request-Id", r.Header.Get("Idempotency-Key"))
		r.Header.Del("Idempotency-Key")
		return next.RoundTrip(r)
	}), "key/byte_for_byte")
	add("sends two keys", onCarrier(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		r = r.Clone(r.Context())
		if r.Method == http.MethodPost {
			r.Header.Add("Idempotency-Key", "sdk-"+unique())
		}
		return next.RoundTrip(r)
	}), "key/byte_for_byte")
	add("mints a fresh key for each attempt", onRequest(func(r *Request) { r.Key = "fresh-" + unique() }), "key/byte_for_byte", "key/same_on_every_attempt", "key/honored")
	add("truncates the key", onRequest(func(r *Request) { r.Key = r.Key[:min(len(r.Key), 254)] }), "key/byte_for_byte")
	add("lowercases the key", onRequest(func(r *Request) { r.Key = strings.ToLower(r.Key) }), "key/byte_for_byte")
	add("escapes the key", onRequest(func(r *Request) { r.Key = strings.ReplaceAll(r.Key, "%", "%25") }), "key/byte_for_byte")
	add("makes a key for a provider without keys", keyless(onRequest(func(r *Request) { r.Key = "sdk-" + unique() })), "key/byte_for_byte")
	add("sends the number of the attempt", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		d := *c
		d.Request.Amount += int64(c.Attempt) - 1
		return next(ctx, &d)
	}), "key/same_on_every_attempt")
	add("claims keys that the provider ignores", func() bench { // IC-65
		b := keylessBench()
		b.promise = func(c *settle.Contract) { c.Keys.Window = 24 * time.Hour }
		return b
	}, "key/honored")
	add("forgets the own reference", onRequest(func(r *Request) { r.Reference = "" }), "reference/in_place", "lookup/finds_a_lost_reply")
	add("uses the attempt as own reference", onRequest(func(r *Request) { r.Reference = "try-" + unique() }), "reference/in_place")

	// Resends.
	resend := func(change func(*Request)) func() bench {
		return onCreate(func(ctx context.Context, api API, r Request) (Object, error) {
			o, err := api.Create(ctx, r)
			if err != nil {
				change(&r)
				return api.Create(ctx, r)
			}
			return o, err
		})
	}
	add("sends again to a provider without keys", keyless(resend(func(*Request) {})), "resend/not_without_keys")
	add("sends again with a new timestamp", resend(func(r *Request) { r.Extra = map[string]string{"at": unique()} }), "resend/same_bytes")
	add("sends again under a new key", resend(func(r *Request) { r.Key += "-2" }), "resend/same_bytes")

	// No answer.
	add("calls a broken connection not sent", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		o, err := next(ctx, c)
		var op *net.OpError
		if errors.As(err, &op) || err != nil && strings.Contains(err.Error(), "EOF") {
			return observation{Fact: settle.NotSent}, nil
		}
		return o, err
	}), "no_answer/reply_lost")
	add("calls a refused dial no answer", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		o, err := next(ctx, c)
		if o.Fact == settle.NotSent {
			return observation{}, nil
		}
		return o, err
	}), "not_sent/dial_refused")
	add("takes a 5xx for a refusal", onFault(func(f *Fault) settle.Fact {
		if f.Status >= 500 {
			return settle.Declined
		}
		return settle.Unclear
	}), "no_answer/server_error")
	add("takes a 503 for not applied", onFault(func(f *Fault) settle.Fact {
		if f.Status == 503 {
			return settle.NotApplied
		}
		return settle.Unclear
	}), "no_answer/server_error")
	add("takes a 409 for a failure", onFault(func(f *Fault) settle.Fact {
		if f.Status == 409 {
			return settle.Declined
		}
		return settle.Unclear
	}), "no_answer/conflict", "answers/conflicts")
	add("takes any 4xx for a refusal", onFault(func(f *Fault) settle.Fact {
		if f.Status/100 == 4 {
			return settle.Declined
		}
		return settle.Unclear
	}), "no_answer/undocumented", "answers/not_applied", "answers/others")
	add("takes a refusal for a hiccup", onFault(func(f *Fault) settle.Fact {
		if f.Status == 402 {
			return settle.NotApplied
		}
		return settle.Unclear
	}), "answers/refusals")
	add("loses the time to wait", onObservation(func(_ callOf, o *observation) { o.RetryAfter = 0 }), "answers/not_applied")
	add("takes accepted for done", onObservation(func(_ callOf, o *observation) {
		if o.Fact == settle.Underway {
			o.Fact = settle.Applied
		}
	}), "answers/others")
	add("confirms by the status alone", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		o, err := next(ctx, c)
		if errors.Is(err, ErrUnreadable) {
			return observation{Fact: settle.Applied, Terms: c.Terms}, nil
		}
		return o, err
	}), "no_answer/unreadable")
	add("takes an empty object for a refusal", onObservation(func(_ callOf, o *observation) {
		if o.Code == "status_0" {
			o.Fact = settle.Declined
		}
	}), "no_answer/unreadable")
	add("panics on an empty object", onObservation(func(_ callOf, o *observation) {
		if o.Code == "status_0" {
			panic("no status")
		}
	}), "no_answer/unreadable")
	add("follows a redirect", func() bench {
		b := keyedBench()
		b.carrier = func(next http.RoundTripper) http.RoundTripper { return follower{next} }
		return b
	}, "no_answer/redirect")

	// Contexts.
	timeout := onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		o, err := next(ctx, c)
		if ctx.Err() != nil {
			return observation{Fact: settle.Declined, Code: "timeout"}, nil
		}
		return o, err
	})
	add("calls a time-out a refusal", timeout, "context/deadline_after_the_effect", "context/lands_late")
	hangs("ignores the context", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		return next(context.WithoutCancel(ctx), c)
	}), "context/deadline_after_the_effect")
	add("sends although the context has ended", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		return next(context.WithoutCancel(ctx), c)
	}), "context/ended_before")
	hangs("looks up for ever", onLookup(func(ctx context.Context, c callOf, next ask) (observation, error) {
		return next(context.WithoutCancel(ctx), c)
	}), "context/lookup")

	// Lookups.
	add("reads page one only", listing(func(ctx context.Context, api API, q Query) (Page, error) {
		page, err := api.List(ctx, q)
		page.Next = ""
		return page, err
	}), "lookup/every_page")
	add("takes a failed page for the end", listing(func(ctx context.Context, api API, q Query) (Page, error) {
		page, err := api.List(ctx, q)
		if err != nil && q.Cursor != "" {
			return Page{}, nil
		}
		return page, err
	}), "lookup/failed_page")
	add("counts first and reads that many", func() bench {
		b := listingBench()
		b.api = func(api API) API { return lister{counter{api}} }
		return b
	}, "lookup/while_growing")
	add("takes a failed lookup for not found", onLookup(func(ctx context.Context, c callOf, next ask) (observation, error) {
		o, err := next(ctx, c)
		if err != nil {
			return observation{Fact: settle.NotFound}, nil
		}
		return o, err
	}), "lookup/failure", "context/lookup")
	add("takes not found for failed", onLookup(func(ctx context.Context, c callOf, next ask) (observation, error) {
		o, err := next(ctx, c)
		if o.Fact == settle.NotFound {
			o.Fact = settle.Declined
		}
		return o, err
	}), "lookup/not_found", "context/lands_late")
	add("reports the newest object of anyone", func() bench {
		b := keyedBench()
		b.api = func(api API) API {
			return flawedAPI{API: api, list: func(ctx context.Context, api API, q Query) (Page, error) {
				q.Reference = ""
				return api.List(ctx, q)
			}}
		}
		return b
	}, "lookup/not_found", "lookup/finds_a_lost_reply")
	add("finds and does not name", onObservation(func(_ callOf, o *observation) { o.Ref = "" }), "lookup/finds_a_lost_reply")
	add("creates to see whether it exists", func() bench {
		b := keyedBench()
		b.adapter = func(a settle.Adapter[Payment, Receipt]) settle.Adapter[Payment, Receipt] {
			a.LookupFunc = a.SubmitFunc
			return a
		}
		return b
	}, "lookup/no_effect")

	// Terms.
	add("scales the amount", onObservation(func(_ callOf, o *observation) {
		if !o.Terms.Amount.IsZero() {
			o.Terms.Amount.Value = o.Terms.Amount.Value.Shift(2)
		}
	}), "terms/stated", "terms/amount_as_reported")
	add("scales by the currency's decimal places", onObservation(func(c callOf, o *observation) {
		asked, _, _ := strings.Cut(c.Terms.Amount.Unit, "/")
		if said, _, _ := strings.Cut(o.Terms.Amount.Unit, "/"); asked != said { // converts what the request did not ask for
			o.Terms.Amount.Value = o.Terms.Amount.Value.Shift(map[string]int32{"JPY": -2, "KWD": 1}[said])
		}
	}), "terms/currency_as_reported")
	echo := onObservation(func(c callOf, o *observation) {
		if !o.Terms.IsZero() {
			o.Terms = c.Terms
		}
	})
	add("reports what was asked", echo, "terms/amount_as_reported", "terms/currency_as_reported", "terms/account_as_reported")
	add("states terms that depend on the call", func() bench {
		b := keyedBench()
		b.adapter = func(a settle.Adapter[Payment, Receipt]) settle.Adapter[Payment, Receipt] {
			next := a.TermsFunc
			a.TermsFunc = func(op settle.Operation[Payment]) settle.Terms {
				t := next(op)
				t.Other = map[string]string{"at": unique()}
				return t
			}
			return a
		}
		return b
	}, "terms/stated")

	add("states the currency twice, once as asked", func() bench {
		b := onObservation(func(c callOf, o *observation) {
			if !o.Terms.IsZero() {
				o.Terms.Other = c.Terms.Other
			}
		})()
		b.others = map[string][]string{"currency": {"currency"}}
		next := b.adapter
		b.adapter = func(a settle.Adapter[Payment, Receipt]) settle.Adapter[Payment, Receipt] {
			terms := a.TermsFunc
			a.TermsFunc = func(op settle.Operation[Payment]) settle.Terms {
				t := terms(op)
				t.Other = map[string]string{"currency": strings.ToLower(op.Request.Currency)}
				return t
			}
			return next(a)
		}
		return b
	}, "terms/others_as_reported")

	// With an engine.
	add("keeps the key to itself", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		return observation{Fact: settle.Unclear}, nil
	}), "engine/confirms")
	add("returns a result that does not fit", func() bench {
		return onObservation(func(_ callOf, o *observation) { o.Result.ID = strings.Repeat("x", settle.MaxResult+1) })()
	}, "engine/confirms")
	add("sends again under the engine", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		if o, err := next(ctx, c); err != nil {
			return o, err
		}
		return next(ctx, c)
	}), "engine/confirms")
	add("looks for the wrong name", onLookup(func(ctx context.Context, c callOf, next ask) (observation, error) {
		d := *c
		d.ID = c.Subject + "-1"
		return next(ctx, &d)
	}), "engine/lost_reply")
	add("takes a lost reply for a refusal", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		o, err := next(ctx, c)
		if err != nil {
			return observation{Fact: settle.Declined}, nil
		}
		return o, err
	}), "engine/lost_reply")
	add("confirms what was asked whatever came", echo, "engine/wrong_amount")

	// Secrets.
	add("shows the credential", onSubmit(func(ctx context.Context, c callOf, next ask) (observation, error) {
		o, err := next(ctx, c)
		if err != nil {
			err = fmt.Errorf("POST with Bearer %s: %w", testCredential, err)
		}
		return o, err
	}), "secrets/not_shown")
	add("shows the credential in a lookup", onLookup(func(ctx context.Context, c callOf, next ask) (observation, error) {
		o, err := next(ctx, c)
		if err != nil {
			err = fmt.Errorf("GET with Bearer %s: %w", testCredential, err)
		}
		return o, err
	}), "secrets/not_shown")
	return out
}

// follower repeats a request where a 307 or 308 points, as net/http does.
type follower struct{ next http.RoundTripper }

func (f follower) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := f.next.RoundTrip(r)
	if err != nil || res.StatusCode != 307 && res.StatusCode != 308 {
		return res, err
	}
	_ = res.Body.Close()
	again, err := http.NewRequestWithContext(r.Context(), r.Method, res.Header.Get("Location"), nil)
	if err != nil {
		return nil, err
	}
	again.Header, again.Response = r.Header, res
	if again.Body, err = r.GetBody(); err != nil {
		return nil, err
	}
	return f.next.RoundTrip(again)
}

// counter learns first how many objects there are, and then reads that many.
type counter struct{ API }

func (c counter) List(ctx context.Context, q Query) (Page, error) {
	all, err := Find(ctx, c.API, q)
	if err != nil {
		return Page{}, err
	}
	again, err := Find(ctx, c.API, q)
	return Page{Objects: again[:min(len(all), len(again))]}, err
}
