package settle_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

func decision(f settle.Fact) settle.Decision {
	return settle.Decision{Actor: "ann", Reason: "asked the provider", Evidence: "ticket 7", Fact: f}
}

// rarely polls twice in a minute: hours of a bubble cost polls.
var rarely = &settle.Options{PollInterval: 30 * time.Second}

// A person's fact is evidence like any other.
func TestResolve(t *testing.T) {
	t.Parallel()
	op := rig.Op("order-1", 100, "EUR")
	// stuck brings the operation to review: lost, no keys, nothing found.
	stuck := func(t *testing.T, r *rig.Rig, step pt.Step) (*rig.Process, string, *int) {
		t.Helper()
		r.Promise.Lookup = settle.NoLookup
		r.Provider.Script(step)
		hooks := new(int)
		p := r.StartWith(rarely, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[rig.Receipt]) error { *hooks++; return nil },
		})
		out, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(20 * time.Minute)
		rec := r.State(out.ID, settle.StateReview)
		if rig.Reason(rec) != settle.ReasonNoKeys {
			t.Fatalf("the reason is %q", rig.Reason(rec))
		}
		return p, out.ID, hooks
	}
	history := func(t *testing.T, r *rig.Rig, id string, f settle.Fact) {
		t.Helper()
		if !slices.ContainsFunc(r.History(id), func(x settle.Entry) bool {
			return x.Source == settle.SourcePerson && x.Actor == "ann" && x.Fact == f && strings.Contains(x.Note, "asked the provider") && strings.Contains(x.Note, "ticket 7")
		}) {
			t.Errorf("who decided what and why is not in the history: %+v", r.History(id))
		}
	}
	variant(t, "Applied", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, id, hooks := stuck(t, r, pt.DropReply())
		d := decision(settle.Applied)
		d.Ref = "ch_1"
		rec, err := p.Resolve(t.Context(), id, d)
		rig.OK(t, err)
		if rec.State != settle.StateSucceeded || rec.Review != nil || *hooks != 1 {
			t.Errorf("%s, review %v, %d hooks", rec.State, rec.Review, *hooks)
		}
		history(t, r, id, settle.Applied)
		out, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		if _, ok := out.Result(); ok {
			t.Error("a result that nobody reported") // a person's decision has none
		}
		res, err := p.Refunds.Compensate(t.Context(), settle.Effect{Operation: id}, "return", rig.Refund{})
		rig.OK(t, err)
		r.Ledger(2, map[string]int{id: 1, res.ID: 1})
	})
	variant(t, "Applied without a reference", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, id, hooks := stuck(t, r, pt.DropReply())
		rec, err := p.Resolve(t.Context(), id, decision(settle.Applied))
		rig.OK(t, err)
		if rec.State != settle.StateSucceeded || *hooks != 1 || len(rec.Effects()) != 1 {
			t.Errorf("%s, %d hooks, effects %+v", rec.State, *hooks, rec.Effects())
		}
	})
	variant(t, "Declined", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, id, hooks := stuck(t, r, pt.DropRequest())
		rec, err := p.Resolve(t.Context(), id, decision(settle.Declined))
		rig.OK(t, err)
		if rec.State != settle.StateFailed || *hooks != 0 {
			t.Errorf("%s, %d hooks", rec.State, *hooks)
		}
		history(t, r, id, settle.Declined)
		retry := op
		retry.Replaces = id
		_, err = p.Charges.Execute(t.Context(), retry)
		rig.OK(t, err)
		r.Ledger(2, map[string]int{id: 0})
	})
	variant(t, "NotApplied sends once more", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, id, hooks := stuck(t, r, pt.DropRequest())
		_, err := p.Resolve(t.Context(), id, decision(settle.NotApplied))
		rig.OK(t, err)
		history(t, r, id, settle.NotApplied)
		rig.After(time.Minute)
		r.State(id, settle.StateSucceeded)
		if *hooks != 1 {
			t.Errorf("%d hooks", *hooks)
		}
		r.Ledger(2, map[string]int{id: 1})
	})
	variant(t, "Reversed", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, id, hooks := stuck(t, r, pt.DropReply())
		d := decision(settle.Reversed)
		d.Ref = "ch_1"
		rec, err := p.Resolve(t.Context(), id, d)
		rig.OK(t, err)
		if rec.State == settle.StateSucceeded || *hooks != 0 {
			t.Errorf("%s, %d hooks", rec.State, *hooks)
		}
	})
	variant(t, "Resume alone sends nothing unsafe", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, id, _ := stuck(t, r, pt.DropRequest())
		_, err := p.Resolve(t.Context(), id, settle.Decision{Actor: "ann", Reason: "again", Evidence: "none", Resume: true})
		rig.OK(t, err)
		rig.After(30 * time.Minute)
		r.State(id, settle.StateReview)
		r.Ledger(1, map[string]int{id: 0})
	})
	variant(t, "Resume lets automation go on", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Promise.Lookup = settle.NoLookup
		for range 30 {
			r.Provider.Script(pt.Status(503, "down"))
		}
		p := r.Start(rarely)
		out, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(time.Hour)
		rec := r.State(out.ID, settle.StateReview)
		if rig.Reason(rec) != settle.ReasonEscalated {
			t.Errorf("the reason is %q", rig.Reason(rec))
		}
		n := r.Sends()
		rig.After(3 * time.Hour)
		if r.Sends() != n {
			t.Error("review sends by itself")
		}
		for r.Provider.ScriptLeft() > 0 {
			_, err := p.Resolve(t.Context(), out.ID, settle.Decision{Actor: "ann", Reason: "again", Evidence: "none", Resume: true})
			rig.OK(t, err)
			rig.After(time.Hour)
		}
		if r.Get(out.ID).State == settle.StateReview {
			_, err := p.Resolve(t.Context(), out.ID, settle.Decision{Actor: "ann", Reason: "again", Evidence: "none", Resume: true})
			rig.OK(t, err)
			rig.After(time.Hour)
		}
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(31, map[string]int{out.ID: 1})
	})
	variant(t, "a disputed effect is accepted", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.WrongAmount(99))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrReview)
		d := decision(settle.Applied)
		d.Ref = "ch_1"
		rec, err := p.Resolve(t.Context(), out.ID, d)
		rig.OK(t, err)
		if rec.State != settle.StateSucceeded || !slices.Contains(rec.Alarms(), settle.AlarmMismatch) {
			t.Errorf("%s, alarms %v", rec.State, rec.Alarms())
		}
		if got := rec.Effects()[0].Amount; !got.Equal(settle.Minor(99, "EUR")) {
			t.Errorf("the ledger counts %v, the effect is of 99", got) // the confirmed amount
		}
		res, err := p.Refunds.Compensate(t.Context(), settle.Effect{Operation: out.ID}, "return", rig.Refund{Amount: 100, Currency: "EUR"})
		rig.Refused(t, res, err, settle.ErrExceeds)
	})
	variant(t, "a disputed effect is undone", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.WrongAmount(99))
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrReview)
		d := decision(settle.Reversed)
		d.Ref = "ch_1"
		rec, err := p.Resolve(t.Context(), out.ID, d)
		rig.OK(t, err)
		if rec.State != settle.StateFailed {
			t.Errorf("%s, want failed", rec.State)
		}
	})
	// What closes every attempt is refused while one may still land, or somebody works.
	for _, f := range []settle.Fact{settle.Declined, settle.NotApplied} {
		variant(t, string(f)+" before quiet", keyed(), func(t *testing.T, r *rig.Rig) {
			land := make(chan struct{})
			r.Promise.Lookup = settle.NoLookup
			r.Promise.Keys.ConcurrentSafe = false
			r.Provider.Script(pt.ApplyLater(land))
			p := r.Start(nil)
			out, err := p.Charges.Execute(t.Context(), op)
			rig.Is(t, err, settle.ErrUnknown)
			rig.After(30 * time.Second)
			_, err = p.Resolve(t.Context(), out.ID, decision(f))
			rig.Typed(t, err, settle.ErrPending)
			r.State(out.ID, settle.StateUnknown)
			close(land) // it lands, indeed
			_, err = p.Resolve(t.Context(), out.ID, decision(settle.Applied))
			rig.OK(t, err)
			r.Ledger(1, map[string]int{out.ID: 1})
		})
		variant(t, string(f)+" while somebody works", keyed(), func(t *testing.T, r *rig.Rig) {
			r.Provider.Script(pt.Slow(5 * time.Second))
			a, b := r.Start(nil), r.Start(nil)
			first := rig.Execute(t.Context(), a.Charges, op)
			rig.After(time.Second)
			_, err := b.Resolve(t.Context(), r.All()[0].ID, decision(f))
			rig.Typed(t, err, settle.ErrInProgress)
			rig.OK(t, first().Err)
		})
		variant(t, string(f)+" after success", keyed(), func(t *testing.T, r *rig.Rig) {
			p := r.Start(nil)
			out, err := p.Charges.Execute(t.Context(), op)
			rig.OK(t, err)
			_, err = p.Resolve(t.Context(), out.ID, decision(f))
			rig.Typed(t, err, settle.ErrSettled)
			if now := r.State(out.ID, settle.StateSucceeded); now.Version != out.Version {
				t.Error("a refused decision wrote")
			}
		})
	}
	variant(t, "Resume of what is settled", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		_, err = p.Resolve(t.Context(), out.ID, settle.Decision{Actor: "ann", Reason: "again", Evidence: "none", Resume: true})
		rig.Typed(t, err, settle.ErrSettled)
	})
	variant(t, "Applied in flight merges beside the holder", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.Slow(5 * time.Second))
		a, b := r.Start(nil), r.Start(nil)
		first := rig.Execute(t.Context(), a.Charges, op)
		rig.After(time.Second)
		id := r.All()[0].ID
		_, err := b.Resolve(t.Context(), id, decision(settle.Applied))
		rig.OK(t, err)
		rig.OK(t, first().Err)
		rec := r.State(id, settle.StateSucceeded)
		if alarms := rec.Alarms(); len(alarms) != 0 {
			t.Errorf("alarms %v: one effect, told twice", alarms)
		}
		r.Ledger(1, map[string]int{id: 1})
	})
	variant(t, "the deadline is alarmed", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		_, id, _ := stuck(t, r, pt.DropRequest())
		rig.After(26 * time.Hour)
		rec := r.State(id, settle.StateReview)
		if rec.Review == nil || !rec.Review.Overdue {
			t.Errorf("the review is %+v, want overdue", rec.Review)
		}
		overdue := 0
		for _, x := range r.History(id) {
			if slices.Contains(x.Alarms, settle.AlarmOverdue) {
				overdue++
			}
		}
		if overdue != 1 {
			t.Errorf("alarmed %d times", overdue)
		}
	})
}
