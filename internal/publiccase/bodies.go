package publiccase

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

// IC-09: the spelling of a string never matters, and what goes out is the original bytes.
func bytesOfTheOriginal(s suite) {
	body := func(item string) string {
		return `{ "amount": 1, "currency": "EUR",  "extra": {"item": "` + item + `"} }`
	}
	for name, c := range map[string][2]string{
		"html":           {`Fish \u0026 Chips \u003cXL\u003e`, `Fish & Chips <XL>`},
		"line separator": {`a\u2028b\u2029`, "a\u2028b\u2029"},
		"solidus":        {`a\/b`, `a/b`},
		"surrogates":     {`\ud83d\ude00`, "\U0001F600"},
		"control":        {`tab\u0009`, `tab\t`},
		"case of hex":    {`\u00E9`, `\u00e9`},
	} {
		for i := range c {
			s.wire(fmt.Sprintf("%s %d", name, i+1), func(t *testing.T, store settle.Store) {
				first, second := body(c[i]), body(c[1-i])
				r := rig.New(t, store, keyed())
				r.Promise.Account.Account = "acct-1"
				r.Serve()
				x := rig.Raw[raw](r.Start(nil), "raw", nil, func(b []byte) raw { return slices.Clone(b) })
				out, err := x.Execute(t.Context(), rawOp("a", first))
				rig.OK(t, err)
				again, err := x.Execute(t.Context(), rawOp("a", second))
				rig.OK(t, err)
				if !again.Replayed {
					t.Error("the other spelling is no replay")
				}
				for _, o := range []settle.Outcome[raw]{out, again} {
					if res, ok := o.Result(); !ok || string(res) != first {
						t.Errorf("the result is %s, want the original bytes %s", res, first)
					}
				}
				r.Ledger(1, nil)
				if got := string(r.Provider.Requests()[0].Body); got != first {
					t.Errorf("on the wire: %s, want %s", got, first)
				}
			})
		}
	}
}

// IC-10: identity has no clock, no order of members and no derived keys.
func timeIsNoIdentity(s suite) {
	s.bubble("a second later", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		x := rig.Raw[raw, raw](r.Start(nil), "raw", nil, nil)
		now := time.Now()
		noon := time.Date(now.Year(), now.Month(), now.Day(), 11, 59, 59, 9e8, now.Location())
		rig.After(noon.Sub(now))
		first, err := x.Execute(t.Context(), rawOp("order-1", `{"amount":1,"to":{"a":1,"b":[2]}}`))
		rig.OK(t, err)
		rig.After(200 * time.Millisecond)
		again, err := x.Execute(t.Context(), rawOp("order-1", ` {"to" : {"b":[2], "a":1}, "amount" : 1}`))
		rig.OK(t, err)
		if again.ID != first.ID || !again.Replayed {
			t.Error("the retry is another operation")
		}
		out, err := x.Execute(t.Context(), rawOp("order-1", `{"amount":1,"to":{"a":1,"b":[2]},"memo":null}`))
		rig.Refused(t, out, err, settle.ErrMismatch, "/memo") // null is not absent
		out, err = x.Execute(t.Context(), rawOp("order-1", `{"amount":1,"to":{"a":1,"b":[2,null]}}`))
		rig.Refused(t, out, err, settle.ErrMismatch, "/to/b/1")
		out, err = x.Execute(t.Context(), rawOp("order-1", `{"amount":1,"to":null}`))
		rig.Refused(t, out, err, settle.ErrMismatch, "/to")
		rig.After(day)
		again, err = x.Execute(t.Context(), rawOp("order-1", `{"amount":1,"to":{"a":1,"b":[2]}}`))
		rig.OK(t, err)
		if again.ID != first.ID {
			t.Error("the next day it is another operation")
		}
		r.Ledger(1, map[string]int{first.ID: 1})

		// Another world, another time: the same intent has the same key.
		w := rig.New(t, s.open(t), keyed())
		other, err := rig.Raw[raw, raw](w.Start(nil), "raw", nil, nil).Execute(t.Context(), rawOp("order-1", `{"amount":1}`))
		rig.OK(t, err)
		if other.ProviderKey != first.ProviderKey {
			t.Error("the provider key depends on more than the intent")
		}
	})
	s.bubble("no identity given", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		p := r.Start(nil)
		op := rig.Op("", 1, "EUR")
		out, err := p.Charges.Execute(t.Context(), op)
		rig.Refused(t, out, err, settle.ErrInvalid, "Subject")
		op = rig.Op("order-1", 1, "EUR")
		op.Purpose = ""
		out, err = p.Charges.Execute(t.Context(), op)
		rig.Refused(t, out, err, settle.ErrInvalid, "Purpose")
		op.Key = "key-1" // a key alone is no identity either
		out, err = p.Charges.Execute(t.Context(), op)
		rig.Refused(t, out, err, settle.ErrInvalid, "Purpose")
		if all := r.All(); len(all) > 0 {
			t.Errorf("stored all the same: %v", all)
		}
		r.Ledger(0, nil)
	})
}

// IC-11: what is sent again is the stored request, never a recomputed one.
func storedRequestIsSent(s suite) {
	type rent struct {
		Plan      string    `json:"plan"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	op := func(expires time.Time) settle.Operation[rent] {
		return settle.Operation[rent]{Subject: "sub-5", Purpose: "rev-1", Request: rent{"basic", expires}}
	}
	for _, volatile := range []bool{true, false} {
		s.bubble(fmt.Sprintf("volatile %v", volatile), func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, keyed())
			r.Promise.Lookup = settle.NoLookup
			r.Provider.Script(pt.DropReply())
			p := r.Start(nil)
			opts := &settle.ExecutorOptions[rent, raw]{}
			if volatile {
				opts.Volatile = []string{"/expires_at"}
			}
			x := rig.Raw(p, "rent", opts, func(b []byte) raw { return b })
			first, err := x.Execute(t.Context(), op(time.Now().Add(30*time.Minute)))
			rig.Is(t, err, settle.ErrUnknown)
			rig.After(100 * time.Millisecond)
			out, err := x.Execute(t.Context(), op(time.Now().Add(30*time.Minute)))
			if volatile {
				rig.Is(t, err, settle.ErrUnknown)
				if out.ID != first.ID {
					t.Error("the second call is another operation")
				}
			} else {
				own := rig.Refused(t, out, err, settle.ErrMismatch, "/expires_at")
				if own.ID != first.ID || own.State != settle.StateUnknown {
					t.Errorf("the mismatch tells of %q in state %q", own.ID, own.State)
				}
			}
			p.Work()
			rig.After(10 * time.Minute)
			rec := r.State(first.ID, settle.StateSucceeded)
			r.Ledger(2, map[string]int{first.ID: 1})
			sameBytes(t, r, rec)
			out, err = x.Execute(t.Context(), op(time.Now().Add(30*time.Minute)))
			if volatile {
				rig.OK(t, err)
				if res, ok := out.Result(); !ok || string(res) != string(rec.Request) {
					t.Errorf("the replay shows %s, want what was sent first", res)
				}
			} else {
				own := rig.Refused(t, out, err, settle.ErrMismatch, "/expires_at")
				if own.State != settle.StateSucceeded {
					t.Errorf("the mismatch tells of state %q", own.State)
				}
			}
			r.Ledger(2, map[string]int{first.ID: 1})
		})
	}
}

// IC-13: what a parser would repair or drop is refused on the raw bytes, before anything
// is stored.
func malformedBodies(s suite) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	bad := map[string]string{
		"repeated member":             `{"amount":1,"amount":2}`,
		"repeated, same value":        `{"amount":1,"amount":1}`,
		"repeated two levels deep":    `{"a":{"b":[{"c":1,"c":2}]}}`,
		"repeated in other case":      `{"amount":1,"Amount":2}`, // one field to encoding/json
		"repeated after unescaping":   `{"amount":1,"amoun\u0074":2}`,
		"repeated under Unicode fold": "{\"k\":1,\"\u212a\":2}", // the Kelvin sign
		"1e400":                       `{"v":1e400}`,
		"-1e400 nested":               `{"a":[{"v":-1e400}]}`,
		"huge exponent":               `{"v":1e999999999999}`,
		"tiny exponent":               `{"v":1e-999999999999}`,
		"invalid UTF-8":               "{\"v\":\"a\xffb\"}",
		"invalid UTF-8 in a name":     "{\"\xc3\":1}",
		"overlong UTF-8":              "{\"v\":\"\xc0\xaf\"}",
		"encoded surrogate":           "{\"v\":\"\xed\xa0\x80\"}",
		"lone surrogate escape":       `{"v":"\ud800"}`,
		"empty":                       ``,
		"white space":                 ` `,
		"cut off":                     `{"v":1`,
		"two documents":               `{"v":1} {"v":2}`,
		"trailing comma":              `{"v":1,}`,
		"leading zero":                `{"v":01}`,
		"plus sign":                   `{"v":+1}`,
		"NaN":                         `{"v":NaN}`,
		"Infinity":                    `{"v":Infinity}`,
		"hex":                         `{"v":0x10}`,
		"bare control":                "{\"v\":\"a\nb\"}",
		"single quotes":               `{'v':1}`,
		"comment":                     `{"v":1 /* one */}`,
		"byte order mark":             "\ufeff{\"v\":1}",
		"NUL":                         "{\"v\":1}\x00",
		"too deep":                    deep,
		"too large":                   `"` + strings.Repeat("a", settle.MaxRequest) + `"`,
	}
	s.bubble("refused before anything is stored", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		x := rig.Raw[raw, raw](r.Start(nil), "raw", nil, nil)
		for name, body := range bad {
			out, err := x.Execute(t.Context(), rawOp("order-1", body))
			rig.Refused(t, out, err, settle.ErrInvalid)
			if err == nil {
				t.Fatalf("%s was accepted", name)
			}
			if len(rig.Typed(t, err, settle.ErrInvalid).Fields) == 0 {
				t.Errorf("%s: the error names no field: %v", name, err)
			}
			if _, err := x.Register(t.Context(), rawOp("order-1", body)); err == nil {
				t.Errorf("%s was registered", name)
			}
		}
		if all := r.All(); len(all) > 0 {
			t.Errorf("stored all the same: %v", all)
		}
		r.Ledger(0, nil)
		out, err := x.Execute(t.Context(), rawOp("order-1", `{"amount":2}`)) // the key is still free
		rig.OK(t, err)
		r.Ledger(1, map[string]int{out.ID: 1})
		for name, body := range bad { // and a known operation is not touched
			res, err := x.Execute(t.Context(), rawOp("order-1", body))
			rig.Refused(t, res, err, settle.ErrInvalid)
			if rec := r.Get(out.ID); rec.Version != out.Version {
				t.Fatalf("%s changed the record", name)
			}
		}
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	s.bubble("strings of typed requests", func(t *testing.T, store settle.Store) {
		// encoding/json would write U+FFFD for both, and make two requests one.
		r := rig.New(t, store, keyed())
		p := r.Start(nil)
		for _, bad := range []string{"a\xff", "a\xfe", "\xed\xa0\x80"} {
			op := rig.Op("order-1", 1, "EUR")
			op.Request.Invoice = bad
			out, err := p.Charges.Execute(t.Context(), op)
			rig.Refused(t, out, err, settle.ErrInvalid)
		}
		r.Ledger(0, nil)
	})
}
