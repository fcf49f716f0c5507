package providertest

import (
	"context"
	"fmt"

	"github.com/settle-go/settle"
)

func lookupCases() []testCase {
	return []testCase{
		{
			rule: "lookup", name: "finds_a_lost_reply", run: lookupFindsLostReply, needs: needsLookup,
			proves: "an effect whose reply was lost is found by key or own reference, and then by the provider's reference, as the same effect",
		},
		{
			rule: "lookup", name: "not_found", run: lookupNotFound, needs: needsLookup,
			proves: "what was never sent is reported as NotFound, beside effects of other operations",
		},
		{
			rule: "lookup", name: "no_effect", run: lookupNoEffect, needs: needsLookup,
			proves: "asking, for what exists and what does not, sends nothing that creates",
		},
		{
			rule: "lookup", name: "failure", run: lookupFailure, needs: needsLookup,
			proves: "a lookup that fails in any way draws no conclusion, and least of all NotFound",
		},
	}
}

func lookupFindsLostReply(t tester, e *env) {
	w := e.open()
	e.executed(t, w, e.next()) // somebody else's
	c := e.next()
	w.onCreate(func(x *exchange) { x.perform(); x.cut() })
	e.submit(t, w, c)
	w.on(nil)
	e.executed(t, w, e.next()) // and a newer one
	if n := w.local.Effects(c.id); n != 1 {
		t.Fatalf("the request whose reply was lost has %d effects under its own reference, want 1", n)
	}
	found := e.lookup(t, w, c)
	if !found.seen() {
		t.Fatalf("the effect exists and its reply was lost; the lookup without a reference reports %s", found)
	}
	if found.obs.Ref == "" {
		t.Fatalf("the lookup found the effect and does not name it in Ref")
	}
	e.wantTerms(t, w, c, found, "the lookup by own reference")
	c.ref = found.obs.Ref
	byRef := e.lookup(t, w, c)
	if !byRef.seen() || byRef.obs.Ref != c.ref {
		t.Errorf("the lookup of reference %q reports %s of %q", c.ref, byRef, byRef.obs.Ref)
	}
	e.wantTerms(t, w, c, byRef, "the lookup by reference")
}

func lookupNotFound(t tester, e *env) {
	w := e.open()
	for range 2 {
		if r := e.lookup(t, w, e.next()); r.err != nil || r.fact != settle.NotFound {
			t.Errorf("nothing was ever sent; the lookup reports %s, want not_found", r)
		}
		e.executed(t, w, e.next())
	}
}

func lookupNoEffect(t tester, e *env) {
	w := e.open()
	there, absent := e.next(), e.next()
	there.ref = e.executed(t, w, there).obs.Ref
	for _, c := range []call{there, {n: there.n, id: there.id, key: there.key}, absent} {
		before := w.local.Effects(c.id)
		for range 2 {
			if r := e.lookup(t, w, c); len(r.creates) > 0 {
				t.Errorf("a lookup has sent %s %s, which may have an effect", r.creates[0].Method, r.creates[0].URL.Path)
			}
		}
		if after := w.local.Effects(c.id); after != before {
			t.Errorf("lookups have had an effect: %d under this own reference, %d before", after, before)
		}
	}
}

// lookupTroubles are what can happen to a question.
func lookupTroubles() []trouble {
	out := append(lostReplies(), serverErrors()[0], serverErrors()[5], unreadable()[1], halfABody())
	for _, status := range []int{401, 403, 409, 429} {
		out = append(out, trouble{name: fmt.Sprintf("status %d", status), mayNotApply: true, serve: func(x *exchange) { x.answer(status, htmlType, errorPage) }})
	}
	return out
}

func lookupFailure(t tester, e *env) {
	w := e.open()
	there := e.next()
	ref := e.executed(t, w, there).obs.Ref
	absent := e.next()
	byRef := there
	byRef.ref = ref
	for name, c := range map[string]call{"by own reference": there, "by reference": byRef, "of what does not exist": absent} {
		for _, tr := range lookupTroubles() {
			w.on(tr.serve)
			if r := e.lookup(t, w, c); !tr.quiet(r) {
				t.Errorf("%s: the lookup %s reports %s", tr.name, name, r)
			}
		}
	}
	w.on(nil)
	if r := e.lookup(t, w, there); !r.seen() {
		t.Errorf("after the troubles the lookup reports %s", r)
	}
}

// wantTerms holds a confirmation of an honest provider against what was asked.
func (e *env) wantTerms(t tester, w *world, c call, r result, what string) {
	t.Helper()
	if r.fact != settle.Applied {
		return
	}
	asked, seen := w.terms(c), r.obs.Terms
	if !asked.Amount.IsZero() && !asked.Amount.Equal(seen.Amount) {
		t.Errorf("%s confirms %v, Adapter.Terms states %v: every effect would be disputed", what, seen.Amount, asked.Amount)
	}
	if asked.Account != "" && seen.Account != "" && asked.Account != seen.Account {
		t.Errorf("%s confirms account %q, Adapter.Terms states %q", what, seen.Account, asked.Account)
	}
	for name, v := range asked.Other {
		if got, ok := seen.Other[name]; !ok || got != v {
			t.Errorf("%s confirms %s %q, Adapter.Terms states %q", what, name, got, v)
		}
	}
}

// background is a call that the case does not wait for.
func (e *env) background(w *world, ctx context.Context, c call, lookup bool) <-chan result { //nolint:revive // the context belongs to the call
	return e.start(ctx, w, func(ctx context.Context) (settle.Observation[struct{}], error) {
		if lookup {
			return w.lookup(ctx, c)
		}
		return w.submit(ctx, c)
	})
}
