package providertest

import (
	"errors"

	"github.com/settle-go/settle"
)

func engineCases() []testCase {
	return []testCase{
		{
			rule: "engine", name: "confirms", run: engineConfirms, needs: needsForwardKind,
			proves: "an effect that was confirmed ends as succeeded, with its result, and a repeat sends nothing",
		},
		{
			rule: "engine", name: "lost_reply", run: engineLostReply,
			proves: "with the reply lost, and by lookup alone, the operation ends as succeeded, with one effect",
			needs: func(e *env) string {
				if why := needsForwardKind(e); why != "" {
					return why
				}
				return needsLookup(e)
			},
		},
		{
			rule: "engine", name: "wrong_amount", run: engineWrongAmount,
			proves: "an effect of another amount goes to a person and is never a success",
			needs: func(e *env) string {
				if why := needsForwardKind(e); why != "" {
					return why
				}
				if len(e.echo.Amount) == 0 {
					return "no Harness.Echo.Amount"
				}
				return needsAmount(e)
			},
		},
	}
}

func needsForwardKind(e *env) string {
	if e.open().local.Undoes != nil {
		return "a compensation needs an operation to undo"
	}
	return ""
}

// execute runs sample c through an engine of its own and waits for its end.
func (e *env) execute(t tester, w *world, c call) ending {
	t.Helper()
	out, err := w.execute(t.Context(), c)
	if err != nil {
		t.Fatalf("an engine with the adapter: %v", err)
	}
	return out
}

func engineConfirms(t tester, e *env) {
	w := e.open()
	out := e.execute(t, w, e.next())
	decided := out.err == nil
	if !decided && !errors.Is(out.err, settle.ErrPending) && !errors.Is(out.err, settle.ErrActionRequired) {
		t.Fatalf("a request that was served without a fault ended with %v", out.err)
	}
	if n := w.local.Effects(out.record.ID); n != 1 {
		t.Errorf("the operation has had %d effects, want 1", n)
	}
	if decided && !out.hasResult {
		t.Errorf("the operation succeeded without a result: does it encode as JSON, in at most %d bytes?", settle.MaxResult)
	}
	if out.again != out.err && !errors.Is(out.again, errorOf(out.err)) { //nolint:errorlint // nil and nil
		t.Errorf("the repeat ended with %v, the first call with %v", out.again, out.err)
	}
	if creates, _ := w.sent(0); decided && len(creates) != 1 {
		t.Errorf("%d requests were sent, want 1", len(creates))
	}
}

// errorOf is the sentinel that an outcome's error must share with that of a repeat.
func errorOf(err error) error {
	for _, s := range []error{settle.ErrActionRequired, settle.ErrPending} {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

func engineLostReply(t tester, e *env) {
	w := e.open()
	w.onCreate(func(x *exchange) { x.perform(); x.cut() })
	out := e.execute(t, w, e.next())
	if out.err != nil && !errors.Is(out.err, settle.ErrPending) && !errors.Is(out.err, settle.ErrActionRequired) {
		t.Fatalf("the effect happened and its reply was lost; the operation ended with %v", out.err)
	}
	if out.record.State == settle.StateUnknown {
		t.Errorf("the effect exists and the lookup did not find it: %v", out.err)
	}
	if n := w.local.Effects(out.record.ID); n != 1 {
		t.Errorf("the operation has had %d effects, want 1", n)
	}
}

func engineWrongAmount(t tester, e *env) {
	w := e.open()
	w.on(func(x *exchange) {
		a := x.perform()
		a.body = e.echo.rewrite(a.body, e.echo.Amount, e.number("1234567"))
		x.write(a)
	})
	out := e.execute(t, w, e.next())
	switch {
	case out.err == nil:
		t.Errorf("the reply confirms another amount than was asked for, and the operation succeeded")
	case !errors.Is(out.err, settle.ErrReview) && !errors.Is(out.err, settle.ErrPending) && !errors.Is(out.err, settle.ErrActionRequired):
		t.Errorf("the reply confirms another amount than was asked for, and the operation ended with %v", out.err)
	}
}
