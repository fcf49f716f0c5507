package settle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	in := rig.Intent("order-1")
	op := rig.Op("order-1", 100, "EUR")
	variant(t, "tombstone of an unknown intent", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		rig.OK(t, p.Charges.Cancel(t.Context(), in, "saga aborted"))
		buried, err := p.Charges.Find(t.Context(), in)
		rig.OK(t, err)
		if buried.State != settle.StateCanceled || !buried.Fingerprint.IsZero() || len(buried.Request) != 0 || !buried.Due.IsZero() {
			t.Errorf("the tombstone is %v, due %v", buried, buried.Due)
		}
		if h := r.History(buried.ID); len(h) != 1 || h[0].Note != "saga aborted" {
			t.Errorf("the reason is not in the history: %+v", h)
		}
		for _, o := range []settle.Operation[rig.Payment]{op, rig.Op("order-1", 7, "USD")} {
			out, err := p.Charges.Execute(t.Context(), o) // canceled, before anything is compared
			rig.Is(t, err, settle.ErrCanceled)
			if out.Next != settle.NextStop {
				t.Errorf("told to %q", out.Next)
			}
		}
		rig.OK(t, p.Charges.Cancel(t.Context(), in, "again"))
		if now := r.Get(buried.ID); now.Version != buried.Version {
			t.Error("canceling again wrote")
		}
		r.Ledger(0, nil)
	})
	variant(t, "registered and not sent", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		rec, err := p.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		rig.OK(t, p.Charges.Cancel(t.Context(), in, "changed their mind"))
		p.Work()
		rig.After(time.Hour)
		r.State(rec.ID, settle.StateCanceled)
		_, err = p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrCanceled)
		r.Ledger(0, nil)
	})
	variant(t, "proven without effect", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.RateLimit(time.Hour))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrWaiting)
		rig.OK(t, p.Charges.Cancel(t.Context(), in, "changed their mind"))
		p.Work()
		rig.After(2 * time.Hour)
		r.State(out.ID, settle.StateCanceled)
		r.Ledger(1, map[string]int{out.ID: 0})
	})
	for state, c := range map[settle.State]struct {
		steps []pt.Step
		want  error
	}{
		settle.StateSucceeded:      {nil, settle.ErrSettled},
		settle.StateFailed:         {[]pt.Step{pt.Decline("no")}, settle.ErrSettled},
		settle.StateUnknown:        {[]pt.Step{pt.DropReply()}, settle.ErrUnknown},
		settle.StateProcessing:     {[]pt.Step{pt.Processing()}, settle.ErrProcessing},
		settle.StateActionRequired: {[]pt.Step{pt.ActionRequired()}, settle.ErrActionRequired},
		settle.StateReview:         {[]pt.Step{pt.WrongAmount(1)}, settle.ErrReview},
	} {
		variant(t, "refused when "+string(state), keyed(), func(t *testing.T, r *rig.Rig) {
			r.Provider.Script(c.steps...)
			if state == settle.StateUnknown {
				r.Provider.ScriptLookup(pt.Status(500, ""))
			}
			p := r.Start(nil)
			out, _ := p.Charges.Execute(t.Context(), op)
			before := r.State(out.ID, state)
			own := rig.Typed(t, p.Charges.Cancel(t.Context(), in, "too late"), c.want)
			if own.ID != out.ID || own.State != state {
				t.Errorf("the refusal tells of %q in state %s", own.ID, own.State)
			}
			if now := r.Get(out.ID); now.Version != before.Version {
				t.Error("a refused cancellation wrote")
			}
		})
	}
	variant(t, "refused in flight", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.Slow(5 * time.Second))
		a, b := r.Start(nil), r.Start(nil)
		first := rig.Execute(t.Context(), a.Charges, op)
		rig.After(time.Second)
		rig.Is(t, b.Charges.Cancel(t.Context(), in, "now"), settle.ErrInProgress)
		rig.OK(t, first().Err)
		r.Ledger(1, nil)
	})
	variant(t, "T-02: proof about one attempt says nothing about another", keyed(), func(t *testing.T, r *rig.Rig) {
		land := make(chan struct{})
		r.Promise.Lookup = settle.NoLookup
		r.Provider.Script(pt.ApplyLater(land), pt.RateLimit(time.Minute))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrUnknown)
		rec, err := p.Reconcile(t.Context(), out.ID) // attempt 2: 429
		rig.OK(t, err)
		if len(rec.Attempts) != 2 || rec.Attempts[1].Fate != settle.FateNotApplied {
			t.Fatalf("attempts %+v", rec.Attempts)
		}
		rig.Is(t, p.Charges.Cancel(t.Context(), in, "429 means nothing happened"), settle.ErrUnknown)
		close(land)
		p.Work()
		rig.After(10 * time.Minute)
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(3, map[string]int{out.ID: 1})
	})
	variant(t, "T-26: an effect of a canceled operation", keyed(), func(t *testing.T, r *rig.Rig) {
		hooks := 0
		p := r.StartWith(nil, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[rig.Receipt]) error { hooks++; return nil },
		})
		rec, err := p.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		rig.OK(t, p.Charges.Cancel(t.Context(), in, "changed their mind"))
		found := settle.Decision{Actor: "ann", Reason: "it is in the dashboard", Evidence: "ch_7", Fact: settle.Applied, Ref: "ch_7"}
		got, err := p.Resolve(t.Context(), rec.ID, found)
		rig.OK(t, err)
		if got.State != settle.StateSucceeded { // a person who says Applied accepts it
			t.Errorf("accepted, and now %s", got.State)
		}
		if !slices.Contains(got.Alarms(), settle.AlarmCanceled) {
			t.Errorf("alarms %v", got.Alarms())
		}
		if hooks != 0 {
			t.Error("the hook ran for a canceled operation")
		}
		res, err := p.Refunds.Compensate(t.Context(), settle.Effect{Operation: rec.ID}, "undo", rig.Refund{})
		if res.ID == "" && !errors.Is(err, settle.ErrFailed) {
			t.Errorf("it cannot be compensated: %v", err)
		}
	})
}

// An instant after which nothing starts any more.
func TestSendBefore(t *testing.T) {
	t.Parallel()
	op := func(in time.Duration) settle.Operation[rig.Payment] {
		o := rig.Op("order-1", 100, "EUR")
		o.SendBefore = time.Now().Add(in)
		return o
	}
	variant(t, "never sent", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		rec, err := p.Charges.Register(t.Context(), op(time.Minute))
		rig.OK(t, err)
		rig.After(2 * time.Minute)
		p.Work()
		rig.After(time.Hour)
		now := r.State(rec.ID, settle.StateCanceled)
		if now.Withdrawn != settle.WithdrawnExpired {
			t.Errorf("canceled because %q", now.Withdrawn)
		}
		r.Ledger(0, nil)
	})
	variant(t, "in time", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		_, err := p.Charges.Execute(t.Context(), op(time.Minute))
		rig.OK(t, err)
		rig.After(time.Hour)
		out, err := p.Charges.Execute(t.Context(), op(-time.Minute)) // it is a replay, whatever the time
		rig.OK(t, err)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	variant(t, "in the past", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		_, err := p.Charges.Execute(t.Context(), op(-time.Minute))
		rig.Not(t, err, settle.ErrFailed)
		if err == nil {
			t.Error("confirmed")
		}
		p.Work()
		rig.After(time.Hour)
		_, err = p.Charges.Execute(t.Context(), op(-time.Minute))
		rig.Is(t, err, settle.ErrCanceled)
		r.Ledger(0, nil)
	})
	variant(t, "proven without effect, then past", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.RateLimit(time.Hour))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), op(time.Minute))
		rig.Is(t, err, settle.ErrWaiting)
		p.Work()
		rig.After(2 * time.Hour)
		r.State(out.ID, settle.StateCanceled)
		r.Ledger(1, map[string]int{out.ID: 0})
	})
	variant(t, "may have been sent, then past", keyed(), func(t *testing.T, r *rig.Rig) {
		// It is not known to have no effect, so it is not canceled; and nothing is sent again.
		r.Promise.Lookup = settle.NoLookup
		r.Promise.Keys.ConcurrentSafe = false
		r.Provider.Script(pt.DropRequest())
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), op(30*time.Second))
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(time.Hour)
		rec := r.State(out.ID, settle.StateReview)
		if rig.Reason(rec) != settle.ReasonSendBefore {
			t.Errorf("the reason is %q", rig.Reason(rec))
		}
		r.Ledger(1, map[string]int{out.ID: 0})
	})
	variant(t, "passes while the claim is on its way", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(&settle.Options{StoreTimeout: time.Minute})
		resume := p.Store.StallReplies()
		first := rig.Execute(t.Context(), p.Charges, op(5*time.Second))
		rig.After(10 * time.Second)
		resume()
		first()
		p.Work()
		rig.After(time.Hour)
		r.State(r.All()[0].ID, settle.StateCanceled)
		r.Ledger(0, nil)
	})
}

// An approval is bound to one request, ends like SendBefore, and is in the history.
func TestApproval(t *testing.T) {
	t.Parallel()
	approvedOf := func(t *testing.T, p *rig.Process, order string, until time.Duration) settle.Operation[rig.Payment] {
		t.Helper()
		op := rig.Op(order, 100, "EUR")
		fp, err := p.Charges.Fingerprint(op)
		rig.OK(t, err)
		op.Approval = &settle.Approval{By: "ann", At: time.Now(), Fingerprint: fp, Note: "ticket 7"}
		if until != 0 {
			op.Approval.Until = time.Now().Add(until)
		}
		return op
	}
	approved := func(t *testing.T, p *rig.Process, until time.Duration) settle.Operation[rig.Payment] {
		t.Helper()
		return approvedOf(t, p, "order-1", until)
	}
	variant(t, "who is in the history", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		op := approved(t, p, time.Hour)
		out, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		rec := r.Get(out.ID)
		if rec.Approval == nil || rec.Approval.By != "ann" || rec.Approval.Note != "ticket 7" || !rec.SendBefore.Equal(op.Approval.Until) {
			t.Errorf("stored is %+v, send before %v", rec.Approval, rec.SendBefore)
		}
		if h := r.History(out.ID); h[0].Actor != "ann" {
			t.Errorf("the history begins with %+v", h[0])
		}
	})
	variant(t, "bound to the fingerprint", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		op := approved(t, p, 0)
		op.Request.Amount = 10000
		out, err := p.Charges.Execute(t.Context(), op)
		rig.Refused(t, out, err, settle.ErrRefused)
		_, err = p.Charges.Register(t.Context(), op)
		rig.Typed(t, err, settle.ErrRefused)
		nothingStored(t, r)
		op.Request.Amount = 100
		op.Request.Token = "tok_B" // volatile members are not what was approved
		_, err = p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
	})
	variant(t, "expired before it was sent", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		rec, err := p.Charges.Register(t.Context(), approved(t, p, time.Minute))
		rig.OK(t, err)
		rig.After(2 * time.Minute)
		p.Work()
		rig.After(time.Hour)
		r.State(rec.ID, settle.StateCanceled)
		r.Ledger(0, nil)
	})
	variant(t, "the earlier end counts", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		for i, order := range []string{"order-1", "order-2"} {
			op := approvedOf(t, p, order, 10*time.Minute)
			op.SendBefore = time.Now().Add(time.Duration(5+10*i) * time.Minute)
			rec, err := p.Charges.Register(t.Context(), op)
			rig.OK(t, err)
			want := op.SendBefore
			if i == 1 {
				want = op.Approval.Until
			}
			if !rec.SendBefore.Equal(want) {
				t.Errorf("send before %v, want %v", rec.SendBefore, want)
			}
		}
	})
	variant(t, "a replay needs none", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		_, err := p.Charges.Execute(t.Context(), approved(t, p, time.Minute))
		rig.OK(t, err)
		rig.After(time.Hour)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	variant(t, "malformed", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		for name, edit := range map[string]func(*settle.Approval){
			"nobody":                func(a *settle.Approval) { a.By = "" },
			"no fingerprint":        func(a *settle.Approval) { a.Fingerprint = "" },
			"invalid UTF-8":         func(a *settle.Approval) { a.By = "a\xff" },
			"NUL":                   func(a *settle.Approval) { a.By = "a\x00" },
			"over-long":             func(a *settle.Approval) { a.By = string(make([]byte, 5000)) },
			"note of invalid UTF-8": func(a *settle.Approval) { a.Note = "a\xff" },
		} {
			op := approved(t, p, 0)
			edit(op.Approval)
			out, err := p.Charges.Execute(t.Context(), op)
			if !errors.Is(err, settle.ErrInvalid) {
				t.Errorf("%s: got %v, want invalid: it is kept in every store's history", name, err)
				continue
			}
			rig.Refused(t, out, err, settle.ErrInvalid, "Approval")
		}
	})
}

// Authorize runs before anything is stored, and only while there is no record.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	noStock := errors.New("no stock")
	type auth struct {
		calls   int
		allowed bool
		hook    func()
	}
	start := func(r *rig.Rig, a *auth) *rig.Process {
		return r.StartWith(nil, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
			Authorize: func(context.Context, settle.Operation[rig.Payment]) error {
				a.calls++
				if a.hook != nil {
					a.hook()
				}
				if !a.allowed {
					return noStock
				}
				return nil
			},
		})
	}
	op := rig.Op("order-1", 100, "EUR")
	variant(t, "a refusal leaves the key free", keyed(), func(t *testing.T, r *rig.Rig) {
		a := &auth{}
		p := start(r, a)
		for range 2 {
			out, err := p.Charges.Execute(t.Context(), op)
			rig.Refused(t, out, err, settle.ErrRefused)
			rig.Is(t, err, noStock)
			_, err = p.Charges.Register(t.Context(), op)
			rig.Is(t, err, settle.ErrRefused, noStock)
		}
		nothingStored(t, r)
		a.allowed = true
		changed := op
		changed.Request.Amount = 101
		_, err := p.Charges.Execute(t.Context(), changed)
		rig.OK(t, err)
		r.Ledger(1, nil)
	})
	variant(t, "not for replays", keyed(), func(t *testing.T, r *rig.Rig) {
		a := &auth{allowed: true}
		p := start(r, a)
		_, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		a.allowed = false // the effect itself took the last item
		out, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		if a.calls != 1 || !out.Replayed {
			t.Errorf("asked %d times", a.calls)
		}
	})
	variant(t, "not for what is unknown", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.DropReply())
		r.Provider.ScriptLookup(pt.Status(500, ""))
		a := &auth{allowed: true}
		p := start(r, a)
		_, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrUnknown)
		a.allowed = false
		p.Work()
		rig.After(5 * time.Minute)
		_, err = p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		if a.calls != 1 {
			t.Errorf("asked %d times", a.calls)
		}
	})
	variant(t, "T-29: the other caller's effect falsifies it", keyed(), func(t *testing.T, r *rig.Rig) {
		other := start(r, &auth{allowed: true})
		a := &auth{}
		p := start(r, a)
		a.hook = func() {
			_, err := other.Charges.Execute(t.Context(), op)
			rig.OK(t, err)
		}
		out, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err) // read once more: it exists by now
		if !out.Replayed {
			t.Error("no replay")
		}
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	variant(t, "for the next try", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.Decline("card_declined"))
		a := &auth{allowed: true}
		p := start(r, a)
		first, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrFailed)
		a.allowed = false
		retry := op
		retry.Replaces = first.ID
		out, err := p.Charges.Execute(t.Context(), retry)
		rig.Refused(t, out, err, settle.ErrRefused)
		if now := r.Get(first.ID); now.ReplacedBy != "" {
			t.Error("replaced by a refused call")
		}
		a.allowed = true
		_, err = p.Charges.Execute(t.Context(), retry)
		rig.OK(t, err)
		r.Ledger(2, nil)
	})
	variant(t, "once for a hundred callers", keyed(), func(t *testing.T, r *rig.Rig) {
		a := &auth{allowed: true}
		p := start(r, a)
		var waits []func() rig.Answer[rig.Receipt]
		for range 100 {
			waits = append(waits, rig.Execute(t.Context(), p.Charges, op))
		}
		for _, w := range waits {
			rig.OK(t, w().Err)
		}
		if a.calls != 1 {
			t.Errorf("asked %d times", a.calls)
		}
		r.Ledger(1, nil)
	})
}
