package settle

import (
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"
)

// Amount is a quantity with its unit. Values of different units are never
// equal and never converted: 19.99 major EUR and 1999 minor EUR are different
// amounts, since a library that scales must know every currency's exponent
// (JPY 0, KWD 3) and one wrong entry charges a hundredfold. Use the unit the
// provider echoes; Minor and Major make it of an ISO 4217 code. An amount that is asked for
// must be positive. The zero value means "no amount", as for a virtual machine.
type Amount struct {
	Value decimal.Decimal `json:"value"`
	Unit  string          `json:"unit"`
}

// Minor is an amount in the currency's smallest unit, e.g. Minor(1999, "EUR").
// The ISO 4217 code's case does not matter.
func Minor(n int64, currency string) Amount {
	return Amount{Value: decimal.NewFromInt(n), Unit: strings.ToUpper(currency) + "/minor"}
}

// Major is an amount in the currency's main unit, e.g. 19.99 EUR.
func Major(d decimal.Decimal, currency string) Amount {
	return Amount{Value: d, Unit: strings.ToUpper(currency) + "/major"}
}

// IsZero reports whether a carries neither value nor unit.
func (a Amount) IsZero() bool { return a.Unit == "" && a.Value.IsZero() }

// Equal reports whether both the unit and the exact value are the same.
func (a Amount) Equal(b Amount) bool { return a.Unit == b.Unit && a.Value.Equal(b.Value) }

// String prints the value and unit, e.g. "1999 EUR/minor".
func (a Amount) String() string {
	if a.IsZero() {
		return "none"
	}
	return a.Value.String() + " " + a.Unit
}

// boundless reports whether comparing a could take for ever: 1E+1000000000 has as many digits.
func (a Amount) boundless() bool {
	return a.Value.Exponent() < -1000 || a.Value.Exponent() > 1000 || a.Value.NumDigits() > 1000
}

// problem says what is wrong with a as part of a request's terms, or "".
func (a Amount) problem() string {
	if a.IsZero() {
		return ""
	}
	cur, _, ok := strings.Cut(a.Unit, "/")
	switch {
	case a.Value.Exponent() < -18 || a.Value.Exponent() > 36:
		return "too many digits"
	case !ok || len(cur) != 3 || strings.IndexFunc(cur, func(r rune) bool { return r < 'A' || r > 'Z' }) >= 0:
		return "the unit is no ISO 4217 code"
	case a.Value.Sign() <= 0:
		return "the value must be positive"
	case a.Value.NumDigits() > 36:
		return "too many digits"
	case strings.HasSuffix(a.Unit, "/minor") && !a.Value.IsInteger():
		return "minor units are whole numbers"
	}
	return ""
}

// Terms are the facts of an effect that the provider echoes: what was asked,
// and what an observation says exists. They are compared raw, before any
// conversion. An amount or an entry of Other that was asked for and is not, or
// differently, in a confirmation makes the effect disputed; Account is
// compared when the observation names one, since a request that reached the
// provider reached the account it was sent to.
type Terms struct {
	Account string            `json:"account,omitempty"`
	Amount  Amount            `json:"amount,omitzero"`
	Other   map[string]string `json:"other,omitempty"`
}

// IsZero reports whether t states nothing.
func (t Terms) IsZero() bool { return t.Account == "" && t.Amount.IsZero() && len(t.Other) == 0 }

// Equal reports whether both state exactly the same.
func (t Terms) Equal(u Terms) bool {
	return t.Account == u.Account && t.Amount.Equal(u.Amount) && maps.Equal(t.Other, u.Other)
}

// meets reports whether an observation with terms seen confirms what t asked for.
func (t Terms) meets(seen Terms) bool {
	if t.Account != "" && seen.Account != "" && seen.Account != t.Account {
		return false
	}
	if !t.Amount.IsZero() && !t.Amount.Equal(seen.Amount) {
		return false
	}
	for k, v := range t.Other {
		if w, ok := seen.Other[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func (t Terms) clone() Terms {
	t.Other = maps.Clone(t.Other)
	return t
}

// text orders terms for the rare choice between two reports of one rank.
func (t Terms) text() string {
	var b strings.Builder
	b.WriteString(t.Account + "\x00" + t.Amount.String())
	for _, k := range slices.Sorted(maps.Keys(t.Other)) {
		b.WriteString("\x00" + k + "\x00" + t.Other[k])
	}
	return b.String()
}
