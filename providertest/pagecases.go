package providertest

import (
	"sync/atomic"

	"github.com/settle-go/settle"
)

func pageCases() []testCase {
	return []testCase{
		{
			rule: "lookup", name: "every_page", run: lookupEveryPage, needs: needsPages,
			proves: "the oldest, the newest and one in the middle of two and a half pages are found",
		},
		{
			rule: "lookup", name: "failed_page", run: lookupFailedPage, needs: needsPages,
			proves: "whichever page fails, by 429, 500, a cut connection or an unreadable body: what was not seen is not NotFound",
		},
		{
			rule: "lookup", name: "while_growing", run: lookupWhileGrowing, needs: needsPages,
			proves: "objects that appear while the pages are read hide nothing",
		},
	}
}

// filled is a world with two and a half pages of effects: those are its calls, the oldest first.
func (e *env) filled(t tester) (*world, []call) {
	t.Helper()
	w := e.open()
	calls := make([]call, 2*e.pageSize+(e.pageSize+1)/2)
	for i := range calls {
		calls[i] = e.next()
		if r := e.submit(t, w, calls[i]); !r.seen() {
			t.Fatalf("sample request %d ended with %s", calls[i].n, r)
		}
	}
	return w, calls
}

func lookupEveryPage(t tester, e *env) {
	w, calls := e.filled(t)
	for _, i := range []int{0, len(calls) / 2, len(calls) - 1} {
		if r := e.lookup(t, w, calls[i]); !r.seen() {
			t.Errorf("effect %d of %d exists, with pages of %d; after %d requests the lookup reports %s", i+1, len(calls), e.pageSize, len(r.asks), r)
		}
	}
	if r := e.lookup(t, w, e.next()); r.err != nil || r.fact != settle.NotFound {
		t.Errorf("of what does not exist the lookup reports %s after %d requests", r, len(r.asks))
	}
}

func lookupFailedPage(t tester, e *env) {
	w, calls := e.filled(t)
	failures := []trouble{
		{name: "429", serve: func(x *exchange) { x.answer(429, jsonType, "{}") }},
		{name: "500", serve: func(x *exchange) { x.answer(500, htmlType, errorPage) }},
		{name: "a cut connection", serve: func(x *exchange) { x.cut() }},
		{name: "half a body", serve: func(x *exchange) { x.cutShort(x.perform()) }},
	}
	for _, c := range []call{calls[0], calls[len(calls)-1], e.next()} {
		w.on(nil)
		clean := e.lookup(t, w, c)
		for page, ask := range clean.asks {
			for _, tr := range failures {
				w.on(func(x *exchange) {
					if x.sent.same(ask) {
						tr.serve(x)
						return
					}
					x.pass()
				})
				r := e.lookup(t, w, c)
				if found := r.seen() && clean.seen(); !found && !r.noAnswer() {
					t.Errorf("request %d of %d of the lookup failed (%s), and the adapter reports %s", page+1, len(clean.asks), tr.name, r)
				}
			}
		}
	}
}

func lookupWhileGrowing(t tester, e *env) {
	w, calls := e.filled(t)
	for _, i := range []int{0, len(calls) / 2, len(calls) - 1} {
		var asked, made atomic.Int32
		extra := []call{e.next(), e.next(), e.next(), e.next()}
		w.on(func(x *exchange) {
			if n := int(asked.Add(1)) - 1; !x.creates && n > 0 && n <= len(extra) {
				if o, err := w.submit(x.r.Context(), extra[n-1]); err == nil && o.Fact != settle.Unclear {
					made.Add(1)
				}
			}
			x.pass()
		})
		if r := e.lookup(t, w, calls[i]); !r.seen() {
			t.Errorf("%d objects appeared while the pages were read, and effect %d of %d is reported as %s", made.Load(), i+1, len(calls), r)
		}
	}
}
