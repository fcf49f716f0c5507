package rig

import (
	"context"
	"encoding/json"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// RawAdapter sends a request's bytes as they are: in process as the body that is
// noted, over HTTP as the body on the wire. The provider makes a charge of 1 EUR for
// it in process, and of what the body says over HTTP. result, if set, is the
// provider's answer.
func RawAdapter[Req, Res any](api providertest.API, promise settle.Contract, result func(body []byte) Res) settle.Adapter[Req, Res] {
	observe := func(o providertest.Object, body []byte) settle.Observation[Res] {
		out := settle.Observation[Res]{Fact: settle.Applied, Ref: o.ID, Terms: settle.Terms{Account: o.Account}}
		if result != nil {
			out.Result = result(body)
		}
		return out
	}
	body := func(c *settle.Call[Req]) ([]byte, error) {
		if raw, ok := any(c.Request).(json.RawMessage); ok {
			return raw, nil
		}
		return json.Marshal(c.Request)
	}
	a := settle.Adapter[Req, Res]{
		Promise:   promise,
		TermsFunc: func(settle.Operation[Req]) settle.Terms { return settle.Terms{Account: promise.Account.Account} },
		SubmitFunc: func(ctx context.Context, c *settle.Call[Req]) (settle.Observation[Res], error) {
			b, err := body(c)
			if err != nil {
				return settle.Observation[Res]{}, err
			}
			o, err := api.Create(ctx, providertest.Request{
				Kind: providertest.KindCharge, Key: c.Key(), Reference: c.ID, Account: promise.Account.Account,
				Amount: 1, Currency: "EUR", Body: b,
			})
			if err != nil {
				return settle.Observation[Res]{}, err
			}
			return observe(o, b), nil
		},
	}
	if promise.Lookup != settle.NoLookup {
		a.LookupFunc = func(ctx context.Context, c *settle.Call[Req]) (settle.Observation[Res], error) {
			b, err := body(c)
			if err != nil {
				return settle.Observation[Res]{}, err
			}
			found, err := providertest.Find(ctx, api, providertest.Query{Account: promise.Account.Account, Key: c.Key()})
			if err != nil || len(found) == 0 {
				return settle.Observation[Res]{Fact: settle.NotFound}, err
			}
			return observe(found[0], b), nil
		}
	}
	return a
}

// Raw makes an executor of a kind with RawAdapter.
func Raw[Req, Res any](p *Process, kind string, x *settle.ExecutorOptions[Req, Res], result func(body []byte) Res) *settle.Executor[Req, Res] {
	p.rig.T.Helper()
	out, err := settle.New(p.Engine, kind, RawAdapter[Req, Res](p.API, p.rig.Promise, result), x)
	if err != nil {
		p.rig.T.Fatalf("make the executor of %s: %v", kind, err)
	}
	return out
}
