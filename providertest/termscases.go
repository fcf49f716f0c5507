package providertest

import (
	"fmt"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
)

func termsCases() []testCase {
	return []testCase{
		{
			rule: "terms", name: "stated", run: termsStated,
			proves: "Adapter.Terms gives the same answer every time, and an honest confirmation, of every sample, states just that",
		},
		{
			rule: "terms", name: "amount_as_reported", run: termsAmount, needs: needsAmount,
			proves: "another amount in the reply, of a request and of a lookup, is reported digit for digit",
		},
		{
			rule: "terms", name: "currency_as_reported", run: termsCurrency, needs: needsAmount,
			proves: "another currency in the reply is reported, and the number beside it stays as it is, also for currencies without decimal places and with three",
		},
		{
			rule: "terms", name: "account_as_reported", run: termsAccount,
			proves: "another account in the reply is reported",
			needs: func(e *env) string {
				if len(e.echo.Account) == 0 {
					return "no Harness.Echo.Account"
				}
				return ""
			},
		},
		{
			rule: "terms", name: "others_as_reported", run: termsOthers,
			proves: "what else the terms state is taken from the reply",
			needs: func(e *env) string {
				if len(e.echo.Other) == 0 {
					return "no Harness.Echo.Other"
				}
				return ""
			},
		},
	}
}

func needsAmount(e *env) string {
	if e.open().terms(e.next()).Amount.IsZero() {
		return "Adapter.Terms states no amount"
	}
	return ""
}

func termsStated(t tester, e *env) {
	w := e.open()
	for range 5 {
		c := e.next()
		stated := w.terms(c)
		if again := w.terms(c); !again.Equal(stated) {
			t.Errorf("Adapter.Terms is not pure: %v, then %v", stated, again)
		}
		r := e.executed(t, w, c)
		e.wantTerms(t, w, c, r, "the reply")
		if again := w.terms(c); !again.Equal(stated) {
			t.Errorf("Adapter.Terms is not pure: %v before the request, %v after it", stated, again)
		}
	}
}

// reported serves a request and a lookup with replies in which value stands
// under names, and hands the observations to check.
func (e *env) reported(t tester, names []string, value string, check func(what string, stated settle.Terms, r result)) {
	t.Helper()
	w := e.open()
	c := e.next()
	stated := w.terms(c)
	w.on(func(x *exchange) {
		a := x.perform()
		a.body = e.echo.rewrite(a.body, names, value)
		x.write(a)
	})
	first := e.submit(t, w, c)
	check("the request", stated, first)
	if needsLookup(e) != "" {
		return
	}
	check("the lookup by own reference", stated, e.lookup(t, w, c))
	if c.ref = first.obs.Ref; c.ref != "" {
		check("the lookup by reference", stated, e.lookup(t, w, c))
	}
}

func termsAmount(t tester, e *env) {
	if len(e.echo.Amount) == 0 {
		t.Fatalf("Adapter.Terms states an amount and Harness.Echo.Amount does not say where replies have it")
	}
	for _, minor := range []string{"1234567", "1", "100"} {
		e.reported(t, e.echo.Amount, e.number(minor), func(what string, stated settle.Terms, r result) {
			want := settle.Amount{Value: decimal.RequireFromString(e.number(minor)), Unit: stated.Amount.Unit}
			e.wantReported(t, what, fmt.Sprintf("amount %s", e.number(minor)), r, want)
		})
	}
}

// number is an amount as the provider writes it: with decimal places if the terms
// are in major units.
func (e *env) number(minor string) string {
	if _, unit, _ := strings.Cut(e.open().terms(call{n: 1, id: "unit"}).Amount.Unit, "/"); unit != "major" {
		return minor
	}
	return decimal.RequireFromString(minor).Shift(-2).String()
}

func (e *env) wantReported(t tester, what, said string, r result, want settle.Amount) {
	t.Helper()
	switch {
	case !r.seen():
		t.Errorf("the reply to %s states the %s, and the adapter reports %s; want the effect, with what was said", what, said, r)
	case r.fact != settle.Applied && r.obs.Terms.IsZero(): // not decided yet, so nothing to state
	case !r.obs.Terms.Amount.Equal(want):
		t.Errorf("the reply to %s states the %s, and the adapter reports %v; want %v", what, said, r.obs.Terms.Amount, want)
	}
}

func termsCurrency(t tester, e *env) {
	if len(e.echo.Currency) == 0 {
		t.Fatalf("Adapter.Terms states an amount and Harness.Echo.Currency does not say where replies have its currency")
	}
	for _, currency := range []string{"JPY", "KWD", "EUR", "USD"} {
		e.reported(t, e.echo.Currency, currency, func(what string, stated settle.Terms, r result) {
			_, unit, _ := strings.Cut(stated.Amount.Unit, "/")
			want := settle.Amount{Value: stated.Amount.Value, Unit: currency + "/" + unit}
			e.wantReported(t, what, "currency "+currency, r, want)
		})
	}
}

func termsOthers(t tester, e *env) {
	const other = "something_else"
	for name, members := range e.echo.Other {
		e.reported(t, members, other, func(what string, _ settle.Terms, r result) {
			if !r.seen() || r.obs.Terms.Other[name] != other && (r.fact == settle.Applied || !r.obs.Terms.IsZero()) {
				t.Errorf("the reply to %s states %q as %s, and the adapter reports %s with %q", what, other, name, r, r.obs.Terms.Other[name])
			}
		})
	}
}

func termsAccount(t tester, e *env) {
	const other = "acct_of_somebody_else"
	e.reported(t, e.echo.Account, other, func(what string, _ settle.Terms, r result) {
		if !r.seen() || r.obs.Terms.Account != other && (r.fact == settle.Applied || !r.obs.Terms.IsZero()) {
			t.Errorf("the reply to %s names the account %q, and the adapter reports %s in account %q", what, other, r, r.obs.Terms.Account)
		}
	})
}
