package providertest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
)

// Payment is the request of [ChargeAdapter].
type Payment struct {
	Amount   int64  `json:"amount"` // minor units
	Currency string `json:"currency"`
	Invoice  string `json:"invoice,omitempty"`
	// Token is the kind of member that belongs outside the fingerprint: a credential
	// that is made anew for every try.
	Token string `json:"token,omitempty" settle:"volatile"`
}

// Refund is the request of [RefundAdapter]. Amount 0 refunds the whole charge.
type Refund struct {
	Amount   int64  `json:"amount,omitempty"`
	Currency string `json:"currency,omitempty"`
}

// Receipt is the result of both.
type Receipt struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Captured bool   `json:"captured,omitempty"` // of a charge: it can no longer be voided
}

// Void is the request of [VoidAdapter].
type Void struct{}

// Promise is the contract that a Provider made with o keeps, with an authoritative
// lookup (eventual if o has a LookupLag), ten seconds per request and a settle delay of a minute.
func Promise(o *Options) settle.Contract {
	if o == nil {
		o = &Options{}
	}
	c := settle.Contract{
		Account: settle.AccountFacts{Provider: "providertest", Account: o.Account, Mode: "test"},
		Keys: settle.Keys{
			Window: o.KeyWindow, MaxLen: o.KeyMaxLen, ConcurrentSafe: o.KeyWindow > 0 && o.Concurrent != ConcurrentUnsafe,
		},
		Lookup: settle.Authoritative, SettleDelay: time.Minute, Deadline: 10 * time.Second,
		Source: "package providertest",
	}
	if o.LookupLag > 0 {
		c.Lookup, c.LookupLag = settle.Eventual, o.LookupLag
	}
	return c
}

// ChargeAdapter makes charges at api: a *Provider in process, or a *Client over
// HTTP. It is what an adapter around a vendor's SDK looks like.
func ChargeAdapter(api API, promise settle.Contract) settle.Adapter[Payment, Receipt] {
	a := settle.Adapter[Payment, Receipt]{
		Promise: promise,
		TermsFunc: func(op settle.Operation[Payment]) settle.Terms {
			return settle.Terms{Account: promise.Account.Account, Amount: settle.Minor(op.Request.Amount, op.Request.Currency)}
		},
		SubmitFunc: func(ctx context.Context, c *settle.Call[Payment]) (settle.Observation[Receipt], error) {
			return submit(ctx, api, Request{
				Kind: KindCharge, Key: c.Key(), Reference: c.ID, Account: promise.Account.Account,
				Amount: c.Request.Amount, Currency: c.Request.Currency,
			})
		},
	}
	if promise.Lookup != settle.NoLookup {
		a.LookupFunc = func(ctx context.Context, c *settle.Call[Payment]) (settle.Observation[Receipt], error) {
			return lookup(ctx, api, Query{Kind: KindCharge, Account: promise.Account.Account, Reference: c.ID}, c.Ref)
		}
	}
	return a
}

// RefundAdapter makes refunds of the charge that the operation undoes.
func RefundAdapter(api API, promise settle.Contract) settle.Adapter[Refund, Receipt] {
	terms := func(amount int64, currency string, effect settle.Effect) settle.Terms {
		t := settle.Terms{Account: promise.Account.Account, Amount: settle.Minor(amount, currency)}
		if amount == 0 {
			t.Amount = effect.Amount
		}
		return t
	}
	a := settle.Adapter[Refund, Receipt]{
		Promise: promise,
		TermsFunc: func(op settle.Operation[Refund]) settle.Terms {
			return terms(op.Request.Amount, op.Request.Currency, op.Undoes)
		},
		SubmitFunc: func(ctx context.Context, c *settle.Call[Refund]) (settle.Observation[Receipt], error) {
			cur, _, _ := cutUnit(c.Terms.Amount.Unit)
			return submit(ctx, api, Request{
				Kind: KindRefund, Key: c.Key(), Reference: c.ID, Parent: c.Undoes.Ref, Account: promise.Account.Account,
				Amount: c.Terms.Amount.Value.IntPart(), Currency: cur,
			})
		},
	}
	if promise.Lookup != settle.NoLookup {
		a.LookupFunc = func(ctx context.Context, c *settle.Call[Refund]) (settle.Observation[Receipt], error) {
			return lookup(ctx, api, Query{Kind: KindRefund, Account: promise.Account.Account, Reference: c.ID}, c.Ref)
		}
	}
	return a
}

// VoidAdapter voids the charge that the operation undoes: all of it, and only before it is captured.
func VoidAdapter(api API, promise settle.Contract) settle.Adapter[Void, Receipt] {
	a := settle.Adapter[Void, Receipt]{
		Promise: promise,
		TermsFunc: func(op settle.Operation[Void]) settle.Terms {
			return settle.Terms{Account: promise.Account.Account, Amount: op.Undoes.Amount}
		},
		SubmitFunc: func(ctx context.Context, c *settle.Call[Void]) (settle.Observation[Receipt], error) {
			return submit(ctx, api, Request{
				Kind: KindVoid, Key: c.Key(), Reference: c.ID, Parent: c.Undoes.Ref, Account: promise.Account.Account,
			})
		},
	}
	if promise.Lookup != settle.NoLookup {
		a.LookupFunc = func(ctx context.Context, c *settle.Call[Void]) (settle.Observation[Receipt], error) {
			return lookup(ctx, api, Query{Kind: KindVoid, Account: promise.Account.Account, Reference: c.ID}, c.Ref)
		}
	}
	return a
}

func cutUnit(unit string) (currency, rest string, ok bool) {
	for i := range len(unit) {
		if unit[i] == '/' {
			return unit[:i], unit[i+1:], true
		}
	}
	return unit, "", false
}

func submit(ctx context.Context, api API, req Request) (settle.Observation[Receipt], error) {
	traced, way := httpsettle.Watch(ctx)
	obj, err := api.Create(traced, req)
	if err == nil {
		return observe(obj), nil
	}
	return explain(ctx, api, err, way)
}

// explain says what an error of a create request proves. Everything that it does
// not know proves nothing.
func explain(ctx context.Context, api API, err error, way *httpsettle.Watched) (settle.Observation[Receipt], error) {
	var f *Fault
	switch {
	case errors.As(err, &f):
	case way.NotSent(err), way.Copies() == 0 && refusedInProcess(err):
		return settle.Observation[Receipt]{Fact: settle.NotSent, Code: "dial_refused"}, nil
	default:
		return settle.Observation[Receipt]{}, err
	}
	switch {
	case f.Status == 402, f.Status == 400 && f.Code == CodeInvalid:
		return settle.Observation[Receipt]{Fact: settle.Declined, Ref: f.ObjectID, Code: f.Code}, nil
	case f.Status == 401, f.Status == 429, f.Status == 503 && f.RetryAfter > 0 && f.Code == CodeRateLimited:
		return settle.Observation[Receipt]{Fact: settle.NotApplied, Code: f.Code, RetryAfter: f.RetryAfter}, nil
	case f.Code == CodeAlreadyExists && f.ExistingID != "":
		obj, err := api.Get(ctx, f.ExistingID)
		if err != nil {
			return settle.Observation[Receipt]{}, err
		}
		return observe(obj), nil
	case f.Status >= 500:
		return settle.Observation[Receipt]{}, err
	}
	return settle.Observation[Receipt]{Fact: settle.Unclear, Code: f.Code}, nil // in flight, key reused, …
}

// refusedInProcess recognizes a dial refused by a provider that is not behind HTTP.
func refusedInProcess(err error) bool {
	var op *net.OpError
	var viaHTTP *url.Error
	return errors.As(err, &op) && op.Op == "dial" && errors.Is(err, syscall.ECONNREFUSED) && !errors.As(err, &viaHTTP)
}

func lookup(ctx context.Context, api API, q Query, ref string) (settle.Observation[Receipt], error) {
	if ref != "" {
		obj, err := api.Get(ctx, ref)
		if err != nil {
			return settle.Observation[Receipt]{}, err
		}
		return observe(obj), nil
	}
	found, err := Find(ctx, api, q)
	if err != nil {
		return settle.Observation[Receipt]{}, err // an incomplete page proves nothing
	}
	if len(found) == 0 {
		return settle.Observation[Receipt]{Fact: settle.NotFound}, nil
	}
	best := found[0] // the newest of the best: a try that failed hides no success
	for _, o := range found[1:] {
		if worth(o) > worth(best) {
			best = o
		}
	}
	return observe(best), nil
}

// worth orders objects of one reference by what they say about the effect.
func worth(o Object) int {
	switch o.Status {
	case StatusSucceeded:
		return 3
	case StatusVoided, StatusReversed:
		return 2
	case StatusProcessing, StatusActionRequired:
		return 1
	case StatusFailed:
	}
	return 0
}

// observe reads an object, raw.
func observe(o Object) settle.Observation[Receipt] {
	out := settle.Observation[Receipt]{
		Ref: o.ID, Code: o.FailureCode, Sequence: o.Sequence,
		Terms:  settle.Terms{Account: o.Account, Amount: settle.Minor(o.Amount, o.Currency)},
		Result: Receipt{ID: o.ID, Amount: o.Amount, Currency: o.Currency, Captured: o.Captured},
	}
	switch o.Status {
	case StatusProcessing:
		out.Fact = settle.Underway
	case StatusActionRequired:
		out.Fact, out.Action = settle.NeedsAction, "https://pay.example/"+o.ID
	case StatusSucceeded:
		out.Fact = settle.Applied
	case StatusFailed:
		out.Fact = settle.Declined
	case StatusVoided, StatusReversed:
		out.Fact = settle.Reversed
	default:
		out.Code = "status_" + strconv.Itoa(len(o.Status))
	}
	return out
}
