package publiccase

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

type raw = json.RawMessage

// rawOp is an operation whose request is JSON text.
func rawOp(subject, body string) settle.Operation[raw] {
	return settle.Operation[raw]{Subject: subject, Purpose: "purchase", Request: raw(body)}
}

// pairs runs two bodies under one subject: the second replays the first, or is a
// mismatch that names the fields, in both orders; the provider is called once each time.
func pairs(t *testing.T, store settle.Store, cases []pair) {
	t.Helper()
	r := rig.New(t, store, keyed())
	x := rig.Raw[raw, raw](r.Start(nil), "raw", nil, nil)
	n := 0
	for i, c := range cases {
		for k, b := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			subject := fmt.Sprintf("pair-%d-%d", i, k)
			first, err := x.Execute(t.Context(), rawOp(subject, b[0]))
			rig.OK(t, err)
			n++
			out, err := x.Execute(t.Context(), rawOp(subject, b[1]))
			if c.fields == nil {
				if err != nil || !out.Replayed || out.ID != first.ID {
					t.Errorf("%s then %s: got %v, want a replay", b[0], b[1], err)
				}
			} else {
				own := rig.Refused(t, out, err, settle.ErrMismatch, c.fields...)
				if own.ID != first.ID || own.State != settle.StateSucceeded {
					t.Errorf("%s then %s: the mismatch tells of %q, %q", b[0], b[1], own.ID, own.State)
				}
			}
			if rec := r.Get(first.ID); string(rec.Request) != b[0] || rec.Fingerprint.Rule != settle.HashRuleJSON1 {
				t.Errorf("%s: stored are %s by rule %q", b[0], []byte(rec.Request), rec.Fingerprint.Rule)
			}
			r.Ledger(n, map[string]int{first.ID: 1})
		}
	}
}

type pair struct {
	a, b   string
	fields []string // nil: the same request
}

// IC-07: no step passes a number through float64.
func numbersDigitForDigit(s suite) {
	s.bubble("fingerprint", func(t *testing.T, store settle.Store) {
		account := []string{"/account"}
		pairs(t, store, []pair{
			{`{"account":9007199254740992}`, `{"account":9007199254740993}`, account},
			{`{"account":18446744073709551615}`, `{"account":18446744073709551616}`, account},
			{`{"account":-9007199254740993}`, `{"account":-9007199254740992}`, account},
			{`{"account":123456789012345678901234567890}`, `{"account":123456789012345678901234567891}`, account},
			{`{"account":[1,{"id":9007199254740993}]}`, `{"account":[1,{"id":9007199254740992}]}`, []string{"/account/1/id"}},
		})
	})
	const id = "1152921504606846977"
	s.bubble("raw response", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		x := rig.Raw[raw](r.Start(nil), "raw", nil, func([]byte) raw { return raw(`{"id": ` + id + `}`) })
		for range 2 {
			out, err := x.Execute(t.Context(), rawOp("a", `{"n":1}`))
			rig.OK(t, err)
			if res, ok := out.Result(); !ok || string(res) != `{"id": `+id+`}` {
				t.Errorf("the result is %s, %v", res, ok)
			}
		}
		r.Ledger(1, nil)
	})
	s.bubble("untyped request and response", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		type m = map[string]any
		x := rig.Raw[m](r.Start(nil), "raw", nil, func(body []byte) m { return m{"id": json.Number(id), "echo": string(body)} })
		op := settle.Operation[m]{Subject: "a", Purpose: "p", Request: m{"account": int64(9007199254740993)}}
		for range 2 {
			out, err := x.Execute(t.Context(), op)
			rig.OK(t, err)
			res, ok := out.Result()
			if got := fmt.Sprint(res["id"]); !ok || got != id {
				t.Errorf("the id is %s, %v", got, ok)
			}
			if res["echo"] != `{"account":9007199254740993}` {
				t.Errorf("what the adapter got is %v", res["echo"])
			}
		}
		op.Request = m{"account": int64(9007199254740992)}
		out, err := x.Execute(t.Context(), op)
		rig.Refused(t, out, err, settle.ErrMismatch, "/account")
		r.Ledger(1, nil)
	})
	s.bubble("amounts beyond float64", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.DropReply())
		p := r.Start(nil)
		_, err := p.Charges.Execute(t.Context(), rig.Op("a", 9007199254740993, "JPY"))
		rig.OK(t, err) // found by lookup
		out, err := p.Charges.Execute(t.Context(), rig.Op("a", 9007199254740993, "JPY"))
		rig.OK(t, err)
		if res, ok := out.Result(); !ok || res.Amount != 9007199254740993 {
			t.Errorf("the receipt says %d, %v", res.Amount, ok)
		}
		r.Ledger(1, map[string]int{out.ID: 1})
	})
}

// IC-08: numbers are compared as exact decimals.
func numbersAsDecimals(s suite) {
	amount := []string{"/amount"}
	s.bubble("spellings", func(t *testing.T, store settle.Store) {
		var same []pair
		spell := []string{"100", "1e2", "100.0", "1E+2", "1e+2", "0.1e3", "1000e-1", "100.000000000000000000000000000000"}
		for _, x := range spell[1:] {
			same = append(same, pair{`{"amount":100}`, `{"amount":` + x + `}`, nil})
		}
		same = append(same,
			pair{`{"amount":-0}`, `{"amount":0}`, nil},
			pair{`{"amount":-0.0e5}`, `{"amount":0}`, nil},
			pair{`{"amount":1.0101010101010101010101010101010108}`, `{"amount":1.0101010101010102}`, amount},
			pair{`{"amount":0.1}`, `{"amount":0.1000000000000000055511151231257827}`, amount},
			pair{`{"amount":1e308}`, `{"amount":1.0000000000000001e308}`, amount},
			pair{`{"amount":5e-324}`, `{"amount":4e-324}`, amount}, // one float64
			pair{`{"amount":100}`, `{"amount":"100"}`, amount},
			pair{`{"amount":1}`, `{"amount":-1}`, amount},
			pair{`{"amount":"1e2"}`, `{"amount":"100"}`, amount}, // strings are exact
		)
		pairs(t, store, same)
	})
	s.bubble("fractions and exponents of typed requests", func(t *testing.T, store settle.Store) {
		// A typed float and raw JSON of the same value agree: one rule for all.
		type req struct {
			Amount float64 `json:"amount"`
		}
		r := rig.New(t, store, keyed())
		x := rig.Raw[req, raw](r.Start(nil), "raw", nil, nil)
		op := settle.Operation[req]{Subject: "a", Purpose: "purchase", Request: req{1e21}}
		typed, err := x.Fingerprint(op)
		rig.OK(t, err)
		y := rig.Raw[raw, raw](r.Start(nil), "raw", nil, nil)
		text, err := y.Fingerprint(rawOp("a", `{"amount":1000000000000000000000}`))
		rig.OK(t, err)
		if typed != text {
			t.Error("a float and its JSON text have different fingerprints")
		}
	})
}

// IC-12: amounts are integers of the unit that the provider echoes; nothing scales them.
// Lookups stand for events, which the core does not read itself.
func amountsUnscaled(s suite) {
	intents := []struct {
		amount   int64
		currency string
	}{{100, "JPY"}, {1234, "USD"}, {1234, "KWD"}, {1, "JPY"}, {math.MaxInt64, "KWD"}}
	for _, in := range intents {
		for _, lost := range []bool{false, true} {
			s.wire(fmt.Sprintf("%d %s, lost reply %v", in.amount, in.currency, lost), func(t *testing.T, store settle.Store) {
				r := rig.New(t, store, keyed())
				r.Serve()
				p := r.Start(nil)
				if lost {
					r.Provider.Script(pt.DropReply())
				}
				out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", in.amount, in.currency))
				rig.OK(t, err)
				if (r.Lookups() > 0) != lost {
					t.Errorf("asked %d times", r.Lookups())
				}
				r.State(out.ID, settle.StateSucceeded)
				r.Ledger(1, map[string]int{out.ID: 1})
				if l := r.Provider.Ledger(); len(l) != 1 || l[0].Amount != in.amount || l[0].Currency != in.currency {
					t.Errorf("the provider charged %+v", l)
				}
			})
		}
	}
	for _, c := range []struct {
		name  string
		lie   pt.Step
		state settle.State
	}{
		{"10000 JPY for 100 JPY", pt.WrongAmount(10000), settle.StateReview},
		{"1 JPY for 100 JPY", pt.WrongAmount(1), settle.StateReview},
		{"another currency", pt.WrongCurrency("USD"), settle.StateReview},
		{"no currency", pt.WrongCurrency(""), settle.StateReview},
		{"another account", pt.WrongAccount("acct-2"), settle.StateReview},
		{"lower case", pt.WrongCurrency("jpy"), settle.StateSucceeded},
	} {
		for _, lost := range []bool{false, true} {
			s.wire(fmt.Sprintf("%s, lost reply %v", c.name, lost), func(t *testing.T, store settle.Store) {
				r := rig.New(t, store, keyed())
				r.Serve()
				p := r.Start(nil)
				step := c.lie
				if lost {
					step = step.And(pt.DropReply())
				}
				r.Provider.Script(step)
				out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "JPY"))
				rec := r.State(out.ID, c.state)
				r.Ledger(1, map[string]int{out.ID: 1})
				if c.state == settle.StateSucceeded {
					rig.OK(t, err)
					return
				}
				rig.Is(t, err, settle.ErrReview)
				if _, ok := out.Result(); ok {
					t.Error("a disputed effect shows a result")
				}
				if rig.Reason(rec) != settle.ReasonDisputed || !slices.Contains(rec.Alarms(), settle.AlarmMismatch) {
					t.Errorf("review %q, alarms %v; want a mismatch that needs a person", rig.Reason(rec), rec.Alarms())
				}
			})
		}
	}
}
