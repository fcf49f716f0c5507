package settle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAmount_Problem: what may be part of a request's terms.
func TestAmount_Problem(t *testing.T) {
	dec := decimal.RequireFromString
	for _, c := range []struct {
		a  Amount
		ok bool
	}{
		{Amount{}, true},
		{Minor(1999, "EUR"), true},
		{Minor(1999, "eur"), true},
		{Minor(1, "JPY"), true},
		{Major(dec("19.99"), "EUR"), true},
		{Major(dec("1.234"), "KWD"), true},
		{Major(dec("0.000000000000000001"), "ETH"), true},
		{Minor(0, "EUR"), false},
		{Minor(-1, "EUR"), false},
		{Minor(1, "EURO"), false},
		{Minor(1, "E1R"), false},
		{Minor(1, ""), false},
		{Amount{Value: dec("1"), Unit: "EUR"}, false},
		{Amount{Value: dec("1"), Unit: ""}, false},
		{Amount{Value: dec("0"), Unit: "EUR/minor"}, false},
		{Amount{Value: dec("19.99"), Unit: "EUR/minor"}, false},
		{Amount{Value: dec("1e30"), Unit: "EUR/major"}, true},
		{Amount{Value: dec("0.0000000000000000001"), Unit: "EUR/major"}, false},
		{Amount{Value: dec(strings.Repeat("9", 37)), Unit: "EUR/minor"}, false},
	} {
		assert.Equal(t, c.ok, c.a.problem() == "", "%s: %s", c.a, c.a.problem())
	}
}

// TestAmount_HugeExponent: refused, like every amount of more than 36 digits, before anything
// multiplies it out.
func TestAmount_HugeExponent(t *testing.T) {
	a := Amount{Value: decimal.New(1, 1_000_000), Unit: "EUR/minor"}
	assert.NotEmpty(t, a.problem())
}

// TestAmount_Units: units are never converted and never equal.
func TestAmount_Units(t *testing.T) {
	major := Major(decimal.RequireFromString("19.99"), "EUR")
	assert.False(t, major.Equal(Minor(1999, "EUR")))
	assert.False(t, Minor(100, "EUR").Equal(Minor(100, "USD")))
	assert.True(t, major.Equal(Major(decimal.RequireFromString("19.990"), "eur")), "the value counts, not its digits")
	assert.True(t, Amount{}.IsZero())
	assert.False(t, Minor(0, "EUR").IsZero(), "no euros are not no amount")
	assert.Equal(t, "none", Amount{}.String())
	assert.Equal(t, "19.99 EUR/major", major.String())
	assert.True(t, sum(Amount{}, major).Equal(major))
	assert.True(t, sum(major, Amount{}).Equal(major))
	assert.Equal(t, "39.98 EUR/major", sum(major, major).String())
}

// TestTerms_Meets: an observation confirms what was asked for only if it says all of it.
func TestTerms_Meets(t *testing.T) {
	ask := Terms{Account: "acct", Amount: Minor(100, "EUR"), Other: map[string]string{"payee": "x"}}
	with := func(change func(*Terms)) Terms {
		u := ask.clone()
		change(&u)
		return u
	}
	for _, c := range []struct {
		name string
		seen Terms
		want bool
	}{
		{"the same", ask, true},
		{"more than was asked for", with(func(u *Terms) { u.Other["note"] = "y" }), true},
		{"account not named", with(func(u *Terms) { u.Account = "" }), true},
		{"another account", with(func(u *Terms) { u.Account = "other" }), false},
		{"no amount", with(func(u *Terms) { u.Amount = Amount{} }), false},
		{"another amount", with(func(u *Terms) { u.Amount = Minor(101, "EUR") }), false},
		{"another currency", with(func(u *Terms) { u.Amount = Minor(100, "USD") }), false},
		{"another unit", with(func(u *Terms) { u.Amount = Major(decimal.NewFromInt(1), "EUR") }), false},
		{"other is missing", with(func(u *Terms) { u.Other = nil }), false},
		{"other differs", with(func(u *Terms) { u.Other["payee"] = "X" }), false},
		{"other is empty", with(func(u *Terms) { u.Other["payee"] = "" }), false},
		{"nothing", Terms{}, false},
	} {
		assert.Equal(t, c.want, ask.meets(c.seen), c.name)
	}
	assert.True(t, Terms{}.meets(Terms{}))
	assert.True(t, Terms{}.meets(ask), "nothing was asked for")
	assert.True(t, Terms{Account: "a"}.meets(Terms{}))
	assert.False(t, Terms{Other: map[string]string{"k": ""}}.meets(Terms{}), "an empty value was asked for, and is not there")
	clone := ask.clone()
	clone.Other["payee"] = "changed"
	assert.Equal(t, "x", ask.Other["payee"])
}

// TestCleanCode: a provider's word goes to logs only if it looks like one (I16).
func TestCleanCode(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "card_declined": "card_declined", "E-42.1:x": "E-42.1:x", strings.Repeat("a", 64): strings.Repeat("a", 64),
		strings.Repeat("a", 65): "other", "two words": "other", "line\nbreak": "other", `{"pan":1}`: "other", "ümlaut": "other", "a\x00": "other", "4242/4242": "other",
	} {
		assert.Equal(t, want, cleanCode(in))
	}
}

const secret = "hunter2"

// secretive holds the secret in everything that must not print.
func secretive() Record {
	return Record{
		ID: "0190", Kind: "charge", Scope: "s", Subject: "o", Purpose: "p", State: StateActionRequired, Version: 3,
		Key: "key-" + secret, ProviderKey: "pk-" + secret, Request: Payload(`{"pan":"` + secret + `"}`), Result: Payload(secret),
		Message: "message " + secret, Progress: &Progress{State: StateActionRequired, Action: "https://" + secret},
	}
}

// leaks reports whether out shows the secret: as text, in hex, quoted, in base 64 or as a list of bytes.
func leaks(out string) bool {
	lower := strings.ToLower(out)
	for _, form := range []string{
		secret, fmt.Sprintf("%x", secret), fmt.Sprintf("% x", secret), fmt.Sprintf("%U", []rune(secret)), "aHVudGVyM", "h1bnRlcj", "odW50ZXIy",
		"104 117 110 116", "104, 117, 110", "0x68, 0x75", "150 165 156", "1101000 1110101", "'h' 'u' 'n'", "h u n t",
	} {
		if strings.Contains(lower, strings.ToLower(strings.Trim(form, "[]"))) {
			return true
		}
	}
	return false
}

// TestI16_NoVerbPrints: no verb of fmt, with any flag, shows a payload or a key of a record, an outcome or
// a payload, however they are held.
func TestI16_NoVerbPrints(t *testing.T) {
	type receipt struct{ Token string }
	rec := secretive()
	res := receipt{secret}
	out := Outcome[receipt]{Record: rec, result: &res}
	type holder struct {
		R Record
		P Payload
	}
	for name, v := range map[string]any{
		"payload": Payload(secret), "payload pointer": ptr(Payload(secret)), "payloads": []Payload{Payload(secret)},
		"record": rec, "record pointer": &rec, "records": []Record{rec}, "map": map[string]Record{"x": rec},
		"outcome": out, "outcome pointer": &out, "struct": holder{rec, Payload(secret)}, "struct pointer": &holder{rec, Payload(secret)},
		"error": rec.Err(), "joined": errors.Join(rec.Err(), &HookError{Err: errors.New(secret)}),
		"conflict": &ConflictError{Existing: rec},
	} {
		for _, flags := range []string{"", "+", "#", " ", "-20", "020", ".3", "+.9"} {
			for verb := '!'; verb <= '~'; verb++ {
				if (verb >= '0' && verb <= '9') || strings.ContainsRune("%+-#.*[] ", verb) {
					continue
				}
				if verb == 'p' || verb == 'w' {
					continue // fmt asks its argument's methods for neither; go vet refuses both for these types
				}
				if name == "joined" && flags == "#" && verb == 'v' || name == "conflict" && verb != 'v' && verb != 's' {
					continue // %#v of errors.Join walks into the wrapped errors by reflection, as for any error
				}
				s := fmt.Sprintf("%"+flags+string(verb), v)
				require.False(t, leaks(s), "%s with %%%s%c: %s", name, flags, verb, s)
			}
		}
		assert.False(t, leaks(fmt.Sprint(v)+fmt.Sprintln(v)), name)
	}
}

func ptr[T any](v T) *T { return &v }

// TestI16_NoLogPrints: slog's handlers, of a record, an outcome or a payload as value or in a group.
func TestI16_NoLogPrints(t *testing.T) {
	rec := secretive()
	out := Outcome[string]{Record: rec, result: ptr(secret)}
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"json": func(b *bytes.Buffer) slog.Handler {
			return slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})
		},
		"text": func(b *bytes.Buffer) slog.Handler {
			return slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})
		},
	} {
		var b bytes.Buffer
		log := slog.New(handler(&b))
		log.Info("x", "record", rec, "pointer", &rec, "outcome", out, "outcome pointer", &out, "payload", Payload(secret), "err", rec.Err())
		log.WithGroup("g").With("record", rec).Info("y", slog.Group("h", "payload", Payload(secret)))
		log.Info("z", "list", []Payload{Payload(secret)})
		assert.False(t, leaks(b.String()), "%s: %s", name, b.String())
		assert.Contains(t, b.String(), "0190", "but it says which operation")
		b.Reset()
		log.Info("w", "records", []Record{rec}, "outcomes", []Outcome[string]{out}, "struct", struct{ R Record }{rec})
		assert.False(t, leaks(b.String()), "%s, nested: %s", name, b.String())
	}
}

// TestI16_NoJSONPrints: encoding/json shows neither payload nor key: what an application hands out by mistake in an
// answer or a log.
func TestI16_NoJSONPrints(t *testing.T) {
	rec := secretive()
	for name, v := range map[string]any{
		"payload": Payload(secret), "record": rec, "record pointer": &rec, "outcome": Outcome[string]{Record: rec, result: ptr(secret)},
		"records": []Record{rec}, "map": map[string]Payload{"x": Payload(secret)},
	} {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		assert.False(t, leaks(string(data)), "%s: %s", name, data)
	}
}

// TestI16_NothingIsLostOfTheWords: printing names the operation.
func TestI16_NothingIsLostOfTheWords(t *testing.T) {
	rec := secretive()
	assert.Equal(t, "charge 0190 action_required v3", rec.String())
	assert.Equal(t, "charge 0190 action_required v3", fmt.Sprintf("%#v", Outcome[int]{Record: rec}))
	assert.Equal(t, "no operation", fmt.Sprint(Outcome[int]{}))
	assert.Equal(t, "[7 bytes]", fmt.Sprintf("%x", Payload(secret)))
	assert.Equal(t, []byte(secret), []byte(Payload(secret)), "and converting gives the bytes")
}

// TestOutcome_Result: only of a confirmed effect.
func TestOutcome_Result(t *testing.T) {
	for _, s := range States() {
		o := Outcome[int]{Record: Record{State: s}, result: ptr(7)}
		v, ok := o.Result()
		assert.Equal(t, s == StateSucceeded, ok, s)
		assert.Equal(t, ok, v == 7, s)
	}
	_, ok := Outcome[int]{Record: Record{State: StateSucceeded}}.Result()
	assert.False(t, ok, "nobody reported one")
}

// TestI16_LeaksAreSeen: the search for the secret finds it however fmt writes bytes.
func TestI16_LeaksAreSeen(t *testing.T) {
	for _, verb := range []string{"%v", "%s", "%q", "%x", "%X", "% x", "%#v", "%d", "%o", "%b", "%U", "%c", "%+v"} {
		assert.True(t, leaks(fmt.Sprintf(verb, []byte(secret))), verb)
	}
	data, err := json.Marshal([]byte(secret))
	require.NoError(t, err)
	assert.True(t, leaks(string(data)))
	assert.False(t, leaks(Payload(secret).String()))
}
