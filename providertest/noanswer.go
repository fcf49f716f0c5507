package providertest

func resendCases() []testCase {
	return []testCase{
		{
			rule: "resend", name: "not_without_keys", run: resendNotWithoutKeys,
			proves: "to a provider that honours no keys one Submit sends one request, on new connections and used ones, whatever comes back",
			needs: func(e *env) string {
				if needsKeys(e) == "" {
					return "the contract honours keys"
				}
				return ""
			},
		},
		{
			rule: "resend", name: "same_bytes", run: resendSameBytes, needs: needsKeys,
			proves: "what the SDK or its transport repeats by itself is the same request under the same key",
		},
	}
}

func noAnswerCases() []testCase {
	family := func(name, proves string, list func() []trouble) testCase {
		return testCase{rule: "no_answer", name: name, proves: proves, run: func(t tester, e *env) { e.noAnswers(t, list()) }}
	}
	return []testCase{
		family("reply_lost", "a connection that breaks, before the effect or after it, proves nothing", lostReplies),
		family("server_error", "a 5xx, with an effect or without, proves nothing", serverErrors),
		family("unreadable", "a success by status alone confirms nothing", unreadable),
		family("conflict", "a 409 that names nothing is no failure", conflicts),
		family("undocumented", "a refusal that the provider did not write is no refusal", undocumented),
		{
			rule: "no_answer", name: "redirect", run: noAnswerRedirect,
			proves: "a redirect is no answer, and nothing is sent to where it points",
		},
		{
			rule: "not_sent", name: "dial_refused", run: notSentDialRefused,
			proves: "a provider that cannot be dialed is NotSent, so that the operation may be sent again",
		},
	}
}

func resendNotWithoutKeys(t tester, e *env) {
	for _, warm := range []bool{false, true} {
		for _, tr := range silences() {
			w := e.open()
			if warm {
				e.executed(t, w, e.next())
			}
			w.onCreate(tr.serve)
			r := e.submit(t, w, e.next())
			if len(r.creates) != 1 {
				t.Errorf("%s (used connection: %v): one Submit has sent %d requests, and the contract honours no keys", tr.name, warm, len(r.creates))
			}
		}
	}
}

func resendSameBytes(t tester, e *env) {
	for _, tr := range silences() {
		w := e.open()
		e.executed(t, w, e.next()) // a used connection is where a transport resends
		w.onCreate(tr.serve)
		c := e.next()
		r := e.submit(t, w, c)
		e.wantKey(t, c, r)
		for _, s := range r.creates[1:] {
			if !s.same(r.creates[0]) {
				t.Errorf("%s: a hidden resend differs:\n\t%s\n\t%s", tr.name, r.creates[0].Body, s.Body)
			}
		}
	}
}

// noAnswers submits into each trouble.
func (e *env) noAnswers(t tester, troubles []trouble) {
	t.Helper()
	w := e.open()
	for _, tr := range troubles {
		w.onCreate(tr.serve)
		if r := e.submit(t, w, e.next()); !tr.quiet(r) {
			t.Errorf("%s: the adapter reports %s", tr.name, r)
		}
	}
}

func noAnswerRedirect(t tester, e *env) {
	for _, tr := range redirects() {
		w := e.open()
		w.onCreate(tr.serve)
		if r := e.submit(t, w, e.next()); !tr.quiet(r) {
			t.Errorf("%s: the adapter reports %s", tr.name, r)
		}
		if n := w.strayed(); n > 0 {
			t.Errorf("%s: the request was sent there, %d times", tr.name, n)
		}
	}
}

func notSentDialRefused(t tester, e *env) {
	w := e.unreachable()
	r := e.submit(t, w, e.next())
	if r.err != nil || r.fact != "not_sent" {
		t.Errorf("nobody listens at the provider's address, and the adapter reports %s", r)
	}
}
