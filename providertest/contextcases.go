package providertest

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/settle-go/settle"
)

func contextCases() []testCase {
	return []testCase{
		{
			rule: "context", name: "deadline_after_the_effect", run: contextAfterEffect,
			proves: "a reply that comes too late is no answer, the call returns, and the effect is found later",
		},
		{
			rule: "context", name: "lands_late", run: contextLandsLate,
			proves: "a request that reaches the provider after its caller has gone is no answer at first, and found once it has landed",
		},
		{
			rule: "context", name: "lookup", run: contextLookup, needs: needsLookup,
			proves: "a lookup returns when its context ends, with no conclusion",
		},
		{
			rule: "context", name: "ended_before", run: contextEndedBefore,
			proves: "with a context that has ended nothing is sent",
		},
	}
}

// endAt starts a call and ends its context once the proxy holds the request.
func (e *env) endAt(t tester, w *world, c call, lookup bool, why error, held <-chan struct{}) {
	t.Helper()
	ctx := newCue()
	done := e.background(w, ctx, c, lookup)
	e.signal(t, "a request of the adapter", held)
	ctx.end(why)
	r := e.await(t, "after its context had ended the call", done)
	if !r.noAnswer() {
		t.Errorf("the context ended (%v) before the reply came, and the adapter reports %s", why, r)
	}
}

func contextAfterEffect(t tester, e *env) {
	for _, why := range []error{context.DeadlineExceeded, context.Canceled} {
		w := e.open()
		held := make(chan struct{}, 100)
		w.onCreate(func(x *exchange) {
			x.perform()
			held <- struct{}{}
			x.hang()
		})
		c := e.next()
		e.endAt(t, w, c, false, why, held)
		w.on(nil)
		if n := w.local.Effects(c.id); n != 1 {
			t.Errorf("the request had %d effects, want 1", n)
		}
		if needsLookup(e) == "" {
			if r := e.lookup(t, w, c); !r.seen() {
				t.Errorf("the effect exists and the lookup reports %s", r)
			}
		}
	}
}

func contextLandsLate(t tester, e *env) {
	w := e.open()
	held, landed := make(chan struct{}, 100), make(chan struct{}, 100)
	land := make(chan struct{})
	w.onCreate(func(x *exchange) {
		held <- struct{}{}
		x.hang()
		select {
		case <-land:
		case <-x.w.over:
			return
		}
		x.perform()
		landed <- struct{}{}
	})
	c := e.next()
	e.endAt(t, w, c, false, context.DeadlineExceeded, held)
	if needsLookup(e) == "" {
		if r := e.lookup(t, w, c); !r.noAnswer() && r.fact != settle.NotFound {
			t.Errorf("the request is still on its way, and the lookup reports %s", r)
		}
	}
	close(land)
	e.signal(t, "the late request", landed)
	if needsLookup(e) == "" {
		if r := e.lookup(t, w, c); !r.seen() {
			t.Errorf("the request has landed, and the lookup reports %s", r)
		}
	}
}

func contextLookup(t tester, e *env) {
	w := e.open()
	c := e.next()
	ref := e.executed(t, w, c).obs.Ref
	for _, ref := range []string{"", ref} {
		c.ref = ref
		held := make(chan struct{}, 100)
		w.on(func(x *exchange) {
			held <- struct{}{}
			x.hang()
		})
		e.endAt(t, w, c, true, context.DeadlineExceeded, held)
	}
}

func contextEndedBefore(t tester, e *env) {
	w := e.open()
	ctx := newCue()
	ctx.end(context.DeadlineExceeded)
	r := e.await(t, "Submit", e.background(w, ctx, e.next(), false))
	if !r.noAnswer() && r.fact != settle.NotSent {
		t.Errorf("the context had ended before, and the adapter reports %s", r)
	}
	if len(r.creates) > 0 {
		t.Errorf("the context had ended before, and a request was sent")
	}
}

func secretCases() []testCase {
	return []testCase{
		{
			rule: "secrets", name: "not_shown", run: secretsNotShown,
			proves: "no way to fail brings a credential into an error or an observation",
		},
	}
}

func secretsNotShown(t tester, e *env) {
	w := e.open()
	good := e.next()
	ref := e.executed(t, w, good).obs.Ref
	secrets := append([]string{}, e.secrets...)
	for _, s := range func() []Sent { creates, asks := w.sent(0); return append(creates, asks...) }() {
		secrets = append(secrets, credentials(s)...)
	}
	if len(secrets) == 0 {
		return
	}
	look := func(what string, r result) {
		text := fmt.Sprintf("%v\n%+v\n%s\n%s\n%s\n%s", r.err, r.err, r.obs.Code, r.obs.Message, r.obs.Action, r.obs.Ref)
		if r.err != nil {
			text += r.err.Error()
		}
		for _, s := range secrets {
			if s != "" && strings.Contains(text, s) {
				t.Errorf("%s: a credential appears in what the adapter returns", what)
				return
			}
		}
	}
	down := e.unreachable()
	look("dial refused", e.submit(t, down, e.next()))
	troubles := append(silences(), redirects()[3])
	for _, status := range []int{400, 401, 403} {
		troubles = append(troubles, trouble{name: fmt.Sprint(status), serve: func(x *exchange) { x.answer(status, jsonType, "{}") }})
	}
	for _, tr := range troubles {
		w.on(tr.serve)
		look(tr.name, e.submit(t, w, e.next()))
		if needsLookup(e) != "" {
			continue
		}
		look(tr.name+" to a lookup", e.lookup(t, w, good))
		byRef := good
		byRef.ref = ref
		look(tr.name+" to a lookup by reference", e.lookup(t, w, byRef))
	}
	if needsLookup(e) == "" {
		look("dial refused to a lookup", e.lookup(t, down, good))
	}
}

// credentials are what a request carries as Authorization.
func credentials(s Sent) []string {
	var out []string
	for _, v := range s.Header.Values("Authorization") {
		scheme, rest, ok := strings.Cut(v, " ")
		if !ok {
			out = append(out, v)
			continue
		}
		out = append(out, rest)
		if b, err := base64.StdEncoding.DecodeString(rest); err == nil && strings.EqualFold(scheme, "Basic") {
			user, password, _ := strings.Cut(string(b), ":")
			out = append(out, cmp.Or(password, user)) // some put the key where the user's name goes
		}
	}
	return out
}
