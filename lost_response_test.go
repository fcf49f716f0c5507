package settle_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// keyed is a provider that honors keys for a day.
func keyed() *pt.Options { return &pt.Options{KeyWindow: 24 * time.Hour} }

// inBubble runs a test in a bubble with an empty store.
func inBubble(t *testing.T, o *pt.Options, f func(t *testing.T, r *rig.Rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, rig.New(t, memstore.New(nil), o)) })
}

// variant is a subtest in a bubble of its own.
func variant(t *testing.T, name string, o *pt.Options, f func(t *testing.T, r *rig.Rig)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, rig.New(t, memstore.New(nil), o)) })
	})
}

// The founding case: the charge happens, its reply is lost, and a caller without memory
// tries again under a fresh key. The naive caller pays twice.
func TestLostResponseNewKeyVersusSettle(t *testing.T) {
	t.Parallel()
	variant(t, "naive", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.DropReply())
		for _, key := range []string{"try-1", "try-2"} {
			_, _ = r.Provider.Create(t.Context(), pt.Request{
				Kind: pt.KindCharge, Key: key, Reference: "order-17", Amount: 1999, Currency: "EUR",
			})
		}
		if n := r.Provider.Effects("order-17"); n != 2 {
			t.Errorf("the naive caller caused %d effects, want 2: else this test proves nothing", n)
		}
	})
	for _, lookup := range []settle.LookupPromise{settle.Authoritative, settle.NoLookup} {
		variant(t, "settle, lookup "+string(lookup), keyed(), func(t *testing.T, r *rig.Rig) {
			r.Promise.Lookup = lookup
			r.Provider.Script(pt.DropReply())
			r.Provider.ScriptLookup(pt.DropReply())
			hooks := 0
			p := r.StartWith(nil, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
				OnSuccess: func(context.Context, settle.Tx, settle.Outcome[rig.Receipt]) error { hooks++; return nil },
			})
			first, err := p.Charges.Execute(t.Context(), rig.Op("order-17", 1999, "EUR"))
			rig.Is(t, err, settle.ErrUnknown)
			fresh := rig.Op("order-17", 1999, "EUR")
			fresh.Key = "try-2" // the fresh key meets the operation that exists
			out, err := p.Charges.Execute(t.Context(), fresh)
			rig.Refused(t, out, err, settle.ErrConflict, "Key")
			p.Work()
			rig.After(10 * time.Minute)
			done := r.State(first.ID, settle.StateSucceeded)
			sends := r.Sends()
			var receipts []rig.Receipt
			for range 3 {
				out, err = p.Charges.Execute(t.Context(), rig.Op("order-17", 1999, "EUR"))
				rig.OK(t, err)
				res, ok := out.Result()
				if !ok || !out.Replayed || out.Version != done.Version {
					t.Errorf("replay: result %v, replayed %v, version %d of %d", ok, out.Replayed, out.Version, done.Version)
				}
				receipts = append(receipts, res)
			}
			want := rig.Receipt{ID: r.Provider.Ledger()[0].ID, Amount: 1999, Currency: "EUR"}
			for _, got := range receipts {
				if got != want {
					t.Errorf("the replay shows %+v, want the original receipt %+v", got, want)
				}
			}
			r.Ledger(sends, map[string]int{first.ID: 1})
			if hooks != 1 {
				t.Errorf("the hook ran %d times", hooks)
			}
		})
	}
}

// I3: the same identity with another request never reaches the provider and never
// changes the record.
func TestDriftIsRefused(t *testing.T) {
	t.Parallel()
	base := settle.Operation[rig.Payment]{
		Subject: "order-1", Purpose: "purchase", Request: rig.Payment{Amount: 100, Currency: "EUR", Invoice: "inv-1"},
	}
	drifts := map[string]func(*rig.Payment){
		"/amount":   func(p *rig.Payment) { p.Amount = 101 },
		"/currency": func(p *rig.Payment) { p.Currency = "eur" }, // exact, even where ISO 4217 would not care
		"/invoice":  func(p *rig.Payment) { p.Invoice = "" },
	}
	refuse := func(t *testing.T, r *rig.Rig, ps ...*rig.Process) {
		t.Helper()
		before := r.All()[0]
		history, sends := len(r.History(before.ID)), r.Sends()
		for field, drift := range drifts {
			op := base
			drift(&op.Request)
			for _, p := range ps {
				out, err := p.Charges.Execute(t.Context(), op)
				own := rig.Refused(t, out, err, settle.ErrMismatch, field)
				if own.ID != before.ID || own.Next() == settle.NextRetry || own.Next() == settle.NextDone {
					t.Errorf("the mismatch names %q and says %q", own.ID, own.Next())
				}
				_, err = p.Charges.Register(t.Context(), op)
				rig.Typed(t, err, settle.ErrMismatch, field)
			}
		}
		if now := r.Get(before.ID); now.Version != before.Version || len(r.History(before.ID)) != history || r.Sends() != sends {
			t.Errorf("a refused call changed the record from version %d to %d, or sent", before.Version, now.Version)
		}
	}
	states := map[settle.State][]pt.Step{
		settle.StateSucceeded:      nil,
		settle.StateUnknown:        {pt.DropReply()},
		settle.StateFailed:         {pt.Decline("card_declined")},
		settle.StateProcessing:     {pt.Processing()},
		settle.StateActionRequired: {pt.ActionRequired()},
		settle.StateReview:         {pt.WrongAmount(1)},
		settle.StateCreated:        {pt.RateLimit(time.Hour)},
	}
	for state, steps := range states {
		variant(t, string(state), keyed(), func(t *testing.T, r *rig.Rig) {
			r.Provider.Script(steps...)
			if state == settle.StateUnknown {
				r.Provider.ScriptLookup(pt.Status(500, ""))
			}
			a, b := r.Start(nil), r.Start(nil)
			out, _ := a.Charges.Execute(t.Context(), base)
			r.State(out.ID, state)
			refuse(t, r, a, b)
			again, err := b.Charges.Execute(t.Context(), base) // the original is no drift
			rig.Not(t, err, settle.ErrMismatch)
			if again.ID != out.ID {
				t.Error("another operation")
			}
		})
	}
	variant(t, "in flight", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.Slow(5 * time.Second))
		a, b := r.Start(nil), r.Start(nil)
		first := rig.Execute(t.Context(), a.Charges, base)
		rig.After(time.Second)
		refuse(t, r, a, b) // also for callers that could share the flight
		rig.OK(t, first().Err)
		r.Ledger(1, nil)
	})
	variant(t, "another account", keyed(), func(t *testing.T, r *rig.Rig) {
		// I2: nothing is asked or sent from an executor configured for another account.
		r.Provider.Script(pt.DropReply())
		r.Provider.ScriptLookup(pt.Status(500, ""))
		out, err := r.Start(nil).Charges.Execute(t.Context(), base)
		rig.Is(t, err, settle.ErrUnknown)
		lookups := r.Lookups()
		for _, facts := range []settle.AccountFacts{
			{Provider: "providertest", Account: "acct-2", Mode: "test"},
			{Provider: "providertest", Account: "acct-1", Mode: "live"},
			{Provider: "providertest", Account: "acct-1", Mode: "test", Region: "eu"},
			{Provider: "other", Account: "acct-1", Mode: "test"},
		} {
			r.Promise.Account = facts
			p := r.Start(nil)
			p.Work()
			rig.After(time.Minute)
			_, err := p.Charges.Execute(t.Context(), base)
			rig.Not(t, err, settle.ErrFailed)
			if err == nil {
				t.Error("confirmed without asking")
			}
			_, err = p.Reconcile(t.Context(), out.ID)
			rig.OK(t, err)
			p.Kill()
		}
		if r.Lookups() != lookups {
			t.Error("another account was asked (T-15)")
		}
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	variant(t, "terms derived otherwise", keyed(), func(t *testing.T, r *rig.Rig) {
		// A new program that derives another amount from the stored request sends nothing.
		r.Promise.Lookup = settle.NoLookup
		r.Provider.Script(pt.DropReply())
		out, err := r.Start(nil).Charges.Execute(t.Context(), base)
		rig.Is(t, err, settle.ErrUnknown)
		p := r.Bare(nil)
		a := pt.ChargeAdapter(p.API, r.Promise)
		a.TermsFunc = func(op settle.Operation[rig.Payment]) settle.Terms {
			return settle.Terms{Account: "acct-1", Amount: settle.Minor(op.Request.Amount*100, op.Request.Currency)}
		}
		_, err = settle.New(p.Engine, rig.KindCharge, a, nil)
		rig.OK(t, err)
		p.Work()
		rig.After(5 * time.Minute)
		r.State(out.ID, settle.StateUnknown)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
}

// I2: after a restart everything comes from the row, whatever the code around it became.
func TestRestartUsesStoredKeyAndRequest(t *testing.T) {
	inBubble(t, keyed(), func(t *testing.T, r *rig.Rig) {
		r.Promise.Lookup = settle.NoLookup
		r.Provider.Script(pt.DropReply())
		op := rig.Op("order-1", 100, "EUR")
		op.Request.Token, op.Key = "tok_A", "given-key"
		a := r.Start(nil)
		out, err := a.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrUnknown)
		a.Kill()
		r.Promise.Keys.MaxLen, r.Promise.Keys.Alphabet = 36, settle.AlphabetUUID // another derivation of keys
		b := r.StartWith(&settle.Options{Scope: "another-default"}, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
			Volatile: []string{"/invoice", "/amount"}, // another rule of fingerprints
		})
		b.Work()
		rig.After(5 * time.Minute)
		rec := r.State(out.ID, settle.StateSucceeded)
		r.Ledger(2, map[string]int{out.ID: 1})
		reqs := r.Provider.Requests()
		if reqs[1].Key != reqs[0].Key || string(reqs[1].Body) != string(reqs[0].Body) || rec.ProviderKey != reqs[0].Key {
			t.Errorf("after the restart %q %s was sent, before it %q %s", reqs[1].Key, reqs[1].Body, reqs[0].Key, reqs[0].Body)
		}
		// And the old fingerprint is judged by its own rule.
		op.Scope = rig.Scope
		op.Request.Amount = 5
		res, err := b.Charges.Execute(t.Context(), op)
		rig.Refused(t, res, err, settle.ErrMismatch, "/amount")
		op.Request.Amount = 100
		res, err = b.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		if !res.Replayed {
			t.Error("the unchanged request is no replay")
		}
	})
}

func TestThousandCallersOneCall(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 4} {
		variant(t, fmt.Sprintf("%d processes", processes), keyed(), func(t *testing.T, r *rig.Rig) {
			r.Provider.Script(pt.Slow(3 * time.Second))
			var ps []*rig.Process
			for range processes {
				ps = append(ps, r.Start(nil))
			}
			const callers = 1000
			var wg sync.WaitGroup
			var mu sync.Mutex
			got, pending := map[rig.Receipt]int{}, 0
			for i := range callers {
				wg.Go(func() {
					out, err := ps[i%processes].Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
					mu.Lock()
					defer mu.Unlock()
					res, ok := out.Result()
					switch {
					case err == nil && ok:
						got[res]++
					case errors.Is(err, settle.ErrInProgress) && processes > 1: // another process has it
						pending++
					default:
						t.Errorf("caller %d got %v, %v", i, err, ok)
					}
				})
			}
			wg.Wait()
			if len(got) != 1 {
				t.Errorf("%d different results", len(got))
			}
			for res, n := range got {
				if n+pending != callers || res.ID != "ch_1" || n < callers/processes {
					t.Errorf("%d callers got %+v, %d were told that it is in progress", n, res, pending)
				}
			}
			id := r.All()[0].ID
			r.Ledger(1, map[string]int{id: 1})
		})
	}
}

// The caller's context bounds its waiting, not the effect.
func TestCallerGivesUpAfter10ms(t *testing.T) {
	t.Parallel()
	for _, worker := range []bool{false, true} {
		variant(t, fmt.Sprintf("worker %v", worker), keyed(), func(t *testing.T, r *rig.Rig) {
			r.Provider.Script(pt.Slow(3 * time.Second))
			p := r.Start(nil)
			if worker {
				p.Work()
			}
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			out, err := p.Charges.Execute(ctx, rig.Op("order-1", 100, "EUR"))
			if d := time.Since(begin); d != 10*time.Millisecond {
				t.Errorf("returned after %v", d)
			}
			rig.Is(t, err, settle.ErrPending, context.DeadlineExceeded)
			rig.Not(t, err, settle.ErrFailed, settle.ErrCanceled)
			if out.ID == "" || out.Next != settle.NextWait {
				t.Errorf("the outcome is %v, next %q", out, out.Next)
			}
			rig.After(4 * time.Second)
			r.State(out.ID, settle.StateSucceeded)
			r.Ledger(1, map[string]int{out.ID: 1})
			if n := r.Lookups(); n != 0 {
				t.Errorf("the request was cut short: %d lookups", n)
			}
		})
	}
	variant(t, "canceled before the store answers", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		resume := p.Store.StallReplies()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		out, err := p.Charges.Execute(ctx, rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrPending, context.DeadlineExceeded)
		if out.ID != "" {
			t.Error("an operation of which nobody knows yet")
		}
		resume()
		rig.After(time.Second)
		all := r.All()
		if len(all) != 1 || all[0].State != settle.StateSucceeded {
			t.Errorf("stored are %v", all)
		}
		r.Ledger(1, nil)
	})
	variant(t, "one of many gives up", keyed(), func(t *testing.T, r *rig.Rig) {
		// The flight's leader leaves; those who share its work do not notice.
		r.Provider.Script(pt.Slow(3 * time.Second))
		p := r.Start(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		leader := rig.Execute(ctx, p.Charges, rig.Op("order-1", 100, "EUR"))
		rig.After(time.Millisecond)
		follower := rig.Execute(t.Context(), p.Charges, rig.Op("order-1", 100, "EUR"))
		rig.Is(t, leader().Err, context.DeadlineExceeded)
		rig.OK(t, follower().Err)
		r.Ledger(1, nil)
	})
}

// I4: a panic is no answer, in whichever of the adapter's methods; it never crosses into the caller.
func TestPanicInAdapter(t *testing.T) {
	t.Parallel()
	boom := func() { panic(fmt.Sprintf("secret %d", 4242)) }
	for name, edit := range map[string]func(*settle.Adapter[rig.Payment, rig.Receipt], *bool){
		"submit before the call": func(a *settle.Adapter[rig.Payment, rig.Receipt], broken *bool) {
			submit := a.SubmitFunc
			a.SubmitFunc = func(ctx context.Context, c *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
				if *broken {
					boom()
				}
				return submit(ctx, c)
			}
		},
		"submit after the call": func(a *settle.Adapter[rig.Payment, rig.Receipt], broken *bool) {
			submit := a.SubmitFunc
			a.SubmitFunc = func(ctx context.Context, c *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
				obs, err := submit(ctx, c)
				if *broken {
					boom()
				}
				return obs, err
			}
		},
		"submit with a nil pointer": func(a *settle.Adapter[rig.Payment, rig.Receipt], broken *bool) {
			submit := a.SubmitFunc
			a.SubmitFunc = func(ctx context.Context, c *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
				if *broken {
					c = nil
				}
				return submit(ctx, c)
			}
		},
	} {
		variant(t, name, keyed(), func(t *testing.T, r *rig.Rig) {
			p := r.Bare(nil)
			a := pt.ChargeAdapter(p.API, r.Promise)
			broken := true
			edit(&a, &broken)
			lookup := a.LookupFunc
			a.LookupFunc = func(ctx context.Context, c *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
				if broken {
					boom()
				}
				return lookup(ctx, c)
			}
			x, err := settle.New(p.Engine, rig.KindCharge, a, nil)
			rig.OK(t, err)
			out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.Is(t, err, settle.ErrUnknown)
			rig.Not(t, err, settle.ErrFailed)
			broken = false
			p.Work()
			rig.After(5 * time.Minute)
			r.State(out.ID, settle.StateSucceeded)
			r.Ledger(r.Sends(), map[string]int{out.ID: 1})
		})
	}
	variant(t, "the goroutine ends", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Bare(nil)
		a := pt.ChargeAdapter(p.API, r.Promise)
		submit := a.SubmitFunc
		exit := true
		a.SubmitFunc = func(ctx context.Context, c *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
			if exit {
				exit = false
				runtime.Goexit() // as t.FailNow in a fake does
			}
			return submit(ctx, c)
		}
		x, err := settle.New(p.Engine, rig.KindCharge, a, nil)
		rig.OK(t, err)
		out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(5 * time.Minute)
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	variant(t, "terms", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Bare(nil)
		a := pt.ChargeAdapter(p.API, r.Promise)
		a.TermsFunc = func(settle.Operation[rig.Payment]) settle.Terms { boom(); return settle.Terms{} }
		x, err := settle.New(p.Engine, rig.KindCharge, a, nil)
		rig.OK(t, err)
		out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Refused(t, out, err, settle.ErrInvalid, "Terms")
		r.Ledger(0, nil)
	})
	variant(t, "authorize", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.StartWith(nil, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
			Authorize: func(context.Context, settle.Operation[rig.Payment]) error { boom(); return nil },
		})
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Refused(t, out, err, settle.ErrRefused)
		r.Ledger(0, nil)
		if all := r.All(); len(all) > 0 {
			t.Errorf("stored: %v", all)
		}
	})
}

// I6: nothing is sent again past the time for which the provider honors the key.
func TestPastKeyWindowNothingIsSentAgain(t *testing.T) {
	inBubble(t, keyed(), func(t *testing.T, r *rig.Rig) {
		r.Promise.Lookup = settle.NoLookup
		r.Provider.Script(pt.DropReply())
		a := r.Start(nil)
		out, err := a.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		a.Kill()
		rig.After(25 * time.Hour)
		b := r.Start(nil)
		again, err := b.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		own := rig.Typed(t, err, settle.ErrReview)
		if own.Code != settle.ReasonWindow || again.Next != settle.NextWaitPerson || again.Review.Deadline.IsZero() || again.Due.IsZero() {
			t.Errorf("code %q, next %q, review %+v; want a reason and a deadline", own.Code, again.Next, again.Review)
		}
		b.Work()
		rig.After(time.Hour)
		r.Ledger(1, map[string]int{out.ID: 1})
		// Even a person's Resume sends nothing outside the window.
		_, err = b.Resolve(t.Context(), out.ID, settle.Decision{Actor: "ann", Reason: "try", Evidence: "none", Resume: true})
		rig.OK(t, err)
		rig.After(time.Hour)
		r.State(out.ID, settle.StateReview)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
}

// I6: nor at all to a provider that honors none.
func TestNoKeysNothingIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, lookup := range []settle.LookupPromise{settle.NoLookup, settle.Eventual, settle.Authoritative} {
		for _, step := range []pt.Step{pt.DropReply(), pt.DropRequest(), pt.Status(503, ""), pt.InFlight(), pt.Garbled()} {
			variant(t, "lookup "+string(lookup)+", "+step.String(), &pt.Options{LookupLag: time.Second}, func(t *testing.T, r *rig.Rig) {
				r.Promise.Lookup = lookup
				if lookup == settle.NoLookup {
					r.Promise.LookupLag = 0
				}
				r.Provider.Script(step)
				p := r.Start(rarely)
				out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
				rig.Is(t, err, settle.ErrPending)
				p.Work()
				rig.After(10 * time.Minute)
				want := settle.StateReview
				if lookup != settle.NoLookup && (step.String() == "DropReply" || step.String() == "Garbled") {
					want = settle.StateSucceeded
				}
				rec := r.State(out.ID, want)
				if want == settle.StateReview && rig.Reason(rec) != settle.ReasonNoKeys {
					t.Errorf("the reason is %q", rig.Reason(rec))
				}
				rig.After(2 * time.Hour)
				_, err = p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
				if want == settle.StateReview {
					rig.Is(t, err, settle.ErrReview)
				} else {
					rig.OK(t, err)
				}
				r.Ledger(1, nil)
			})
		}
	}
	variant(t, "proven without effect", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		// A refusal of the single attempt opens no window: it may go out again, keys or not.
		r.Provider.Script(pt.RateLimit(time.Second), pt.Status(401, ""))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrWaiting)
		p.Work()
		rig.After(5 * time.Minute)
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(3, map[string]int{out.ID: 1})
	})
}
