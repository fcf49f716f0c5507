package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// What must not be seen. Names of operations are no secrets for the caller's own
// errors; payloads and credentials are everywhere.
const (
	secretPayload    = "pan-4111111111111111"
	secretCredential = "sk_live_c0ffee"
	secretMessage    = "Ms Grace Hopper, 12 Elm St"
	secretAction     = "https://pay.example/client_secret_9"
	secretResult     = "iban-DE02120300000000202051"
	nameSubject      = "subject-ada-lovelace"
	nameKey          = "key-ada-1815"
	nameHold         = "hold-ada-1815"
	nameScope        = "tenant-analytical"
)

// tape collects text that leaves the library.
type tape struct {
	t     testing.TB
	mu    sync.Mutex   // of what notices write
	told  bytes.Buffer // logs, notices
	errs  []string     // errors, and what is printed of outcomes and records
	count int
}

func (w *tape) err(err error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		w.errs = append(w.errs, fmt.Sprint(e), fmt.Sprintf("%v %s %q", e, e, e))
	}
}

func (w *tape) print(v any) {
	w.errs = append(w.errs, fmt.Sprintf("%v %+v %#v %s %d", v, v, v, v, v))
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("v", "v", v)
	slog.New(slog.NewTextHandler(&b, nil)).Info("v", "v", v)
	w.errs = append(w.errs, b.String())
}

// Notice implements settle.Observer: the log at every level, and the notice itself.
func (w *tape) Notice(ctx context.Context, n settle.Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	settle.LogObserver(slog.New(slog.NewTextHandler(&w.told, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))).Notice(ctx, n)
	fmt.Fprintf(&w.told, "%+v\n%#v\n", n, n)
}

func (w *tape) check() {
	w.t.Helper()
	payloads := []string{secretPayload, secretCredential, secretMessage, secretAction, secretResult}
	for _, s := range append(payloads, nameSubject, nameKey, nameHold, nameScope) {
		if i := strings.Index(w.told.String(), s); i >= 0 {
			w.t.Errorf("a log or notice tells %q (I16): …%s", s, w.told.String()[max(0, i-200):i+len(s)])
		}
	}
	for _, text := range w.errs {
		for _, s := range payloads {
			if strings.Contains(text, s) {
				w.t.Errorf("%q is in what an error or a record prints (I16): %s", s, text)
			}
		}
	}
	if w.count == 0 || len(w.errs) == 0 {
		w.t.Errorf("the tour made %d notices and %d texts: it shows nothing", w.count, len(w.errs))
	}
}

// I16 holds: a tour through everything that can go wrong, with secrets in every place where
// an application or a provider has them.
func I16(t *testing.T, open Open) {
	leak := fmt.Errorf("POST {card:%q auth:%q}: %s", secretPayload, secretCredential, secretMessage)
	for _, c := range []struct {
		name  string
		steps []providertest.Step
		obs   func(n int) (settle.Observation[Receipt], error, bool) // false: the provider's
	}{
		{name: "success"},
		{name: "declined", steps: []providertest.Step{providertest.Decline("stolen_card")}},
		{name: "lost reply", steps: []providertest.Step{providertest.DropReply()}},
		{name: "wrong amount", steps: []providertest.Step{providertest.WrongAmount(1)}},
		{name: "rate limited", steps: []providertest.Step{providertest.RateLimit(time.Second)}},
		{name: "an error that quotes", obs: func(n int) (settle.Observation[Receipt], error, bool) {
			return settle.Observation[Receipt]{}, leak, n == 1
		}},
		{name: "a panic that quotes", obs: func(n int) (settle.Observation[Receipt], error, bool) {
			if n == 1 {
				panic(leak)
			}
			return settle.Observation[Receipt]{}, nil, false
		}},
		{name: "a fact that quotes", obs: func(n int) (settle.Observation[Receipt], error, bool) {
			return settle.Observation[Receipt]{Fact: settle.Fact(secretPayload)}, nil, n == 1
		}},
		{name: "a code that quotes", obs: func(n int) (settle.Observation[Receipt], error, bool) {
			return settle.Observation[Receipt]{Fact: settle.Declined, Code: "declined for " + secretMessage, Message: secretMessage}, nil, n == 1
		}},
		{name: "an action", obs: func(n int) (settle.Observation[Receipt], error, bool) {
			return settle.Observation[Receipt]{Fact: settle.NeedsAction, Action: secretAction, Message: secretMessage}, nil, n == 1
		}},
		{name: "a result", obs: func(n int) (settle.Observation[Receipt], error, bool) {
			o := settle.Observation[Receipt]{Fact: settle.Applied, Ref: "ch_x", Result: Receipt{ID: secretResult}, Message: secretMessage}
			o.Terms = settle.Terms{Amount: settle.Minor(1999, "EUR")}
			return o, nil, n == 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				l.Lies = true
				w := &tape{t: l.T}
				n := 0
				p := l.Start(&Setup{
					Options: settle.Options{Observer: w},
					Charge: &settle.ExecutorOptions[Payment, Receipt]{
						OnSuccess: func(context.Context, settle.Tx, settle.Outcome[Receipt]) error { return leak },
					},
					Adapter: func(a *settle.Adapter[Payment, Receipt]) {
						inner := a.SubmitFunc
						a.SubmitFunc = func(ctx context.Context, call *settle.Call[Payment]) (settle.Observation[Receipt], error) {
							n++
							if c.obs != nil {
								call.Key()
								if o, err, ok := c.obs(n); ok {
									return o, err
								}
							}
							return inner(ctx, call)
						}
					},
				})
				l.Provider.Script(c.steps...)
				op := Charge{
					Scope: nameScope, Subject: nameSubject, Purpose: "purchase", Key: nameKey, Hold: nameHold,
					Request: Payment{Amount: 1999, Currency: "EUR", Invoice: secretPayload, Token: secretCredential},
				}
				out, err := p.Charge.Execute(l.Ctx, op)
				w.err(err)
				w.print(out)
				w.print(&out)
				p.Work()
				l.Elapse(40 * time.Minute)
				out, err = p.Charge.Execute(l.Ctx, op)
				w.err(err)
				w.print(out)
				rec := l.Get(out.ID)
				w.print(rec)
				w.print(&rec)
				w.print(rec.Request)
				w.print(rec.Result)
				w.err(rec.Err())
				if strings.Contains(rec.ProviderKey, secretPayload) || strings.Contains(rec.ProviderKey, secretCredential) {
					t.Errorf("the provider key tells a secret (I16)")
				}
				// Refusals.
				other := op
				other.Request.Invoice = secretPayload + "-2"
				_, err = p.Charge.Execute(l.Ctx, other)
				w.err(err)
				l.wantErr(err, settle.ErrMismatch)
				held := op
				held.Subject, held.Key = nameSubject+"-2", ""
				out, err = p.Charge.Execute(l.Ctx, held)
				w.err(err)
				w.print(out)
				taken := op
				taken.Subject = nameSubject + "-3"
				_, err = p.Charge.Execute(l.Ctx, taken)
				w.err(err)
				bad := op
				bad.Subject, bad.Key, bad.Request.Invoice = nameSubject+"-4", "", secretPayload+"\xff"
				_, err = p.Charge.Execute(l.Ctx, bad)
				w.err(err)
				l.wantErr(err, settle.ErrInvalid)
				w.err(p.Charge.Cancel(l.Ctx, op.Intent(), "because"))
				_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: rec.ID}, "returned", Refund{Amount: 100000, Currency: "EUR"})
				w.err(err)
				_, err = p.Engine.Resolve(l.Ctx, rec.ID, settle.Decision{Actor: "ana", Reason: secretMessage, Evidence: "x", Fact: settle.Declined})
				w.err(err)
				// A store that fails.
				p.Faults(Always(OpGet, Fault{Before: errBroken}))
				_, err = p.Engine.Get(l.Ctx, rec.ID)
				w.err(err)
				p.Faults(nil)
				l.Elapse(time.Hour)
				p.Stop()
				w.check()
			})
		})
	}
	// Two that hand on words which are not settle's own.
	t.Run("a refusal that quotes", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			w := &tape{t: l.T}
			p := l.Start(&Setup{
				Options: settle.Options{Observer: w},
				Charge:  &settle.ExecutorOptions[Payment, Receipt]{Authorize: func(context.Context, Charge) error { return leak }},
			})
			_, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrRefused)
			l.wantErr(err, leak) // reachable, and not in the text
			w.err(err)
			w.count++ // a refusal makes no notice
			w.check()
		})
	})
	t.Run("a store that quotes", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			w := &tape{t: l.T}
			p := l.Start(&Setup{Options: settle.Options{Observer: w}, Plan: Always(OpCommit, Fault{Before: leak})})
			_, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrStore)
			l.wantErr(err, leak)
			w.err(err)
			w.check()
		})
	})
}
