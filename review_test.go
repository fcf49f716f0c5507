package settle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

// lostCharge is a charge whose request was lost on the way to a provider without keys and
// lookup: a person must say what became of it. It comes back in review.
func lostCharge(t *testing.T, p *rig.Process, r *rig.Rig, order string, step pt.Step) string {
	t.Helper()
	r.Provider.Script(step)
	out, err := p.Charges.Execute(t.Context(), rig.Op(order, 100, "EUR"))
	rig.Is(t, err, settle.ErrUnknown)
	rig.After(20 * time.Minute)
	r.State(out.ID, settle.StateReview)
	return out.ID
}

func assignment() settle.Assignment {
	return settle.Assignment{Actor: "ann", Owner: "ben", Reason: "knows the provider"}
}

func overdues(r *rig.Rig, id string) (n int) {
	for _, x := range r.History(id) {
		if slices.Contains(x.Alarms, settle.AlarmOverdue) {
			n++
		}
	}
	return n
}

// A review gets an owner and a deadline; who gave them and why is in the history, and nothing
// else changes: evidence, and anybody's decision, still ends the review.
func TestAssign(t *testing.T) {
	t.Parallel()
	// open starts a process with a worker, and one that has no executors at all, as an operator's tool is.
	open := func(t *testing.T, r *rig.Rig) (p, tool *rig.Process) {
		r.Promise.Lookup = settle.NoLookup
		p = r.Start(rarely)
		p.Work()
		return p, r.Bare(nil)
	}
	variant(t, "owner and deadline", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, tool := open(t, r)
		id := lostCharge(t, p, r, "order-1", pt.DropRequest())
		before := r.Get(id)
		a := assignment()
		a.Within = 90 * time.Minute
		rec, err := tool.Assign(t.Context(), id, a)
		rig.OK(t, err)
		v := rec.Review
		if v == nil || v.Owner != "ben" || !v.Deadline.Equal(rec.AsOf.Add(90*time.Minute)) || v.Reason != before.Review.Reason || !v.Since.Equal(before.Review.Since) {
			t.Errorf("the review is %+v", v)
		}
		if rec.State != settle.StateReview || rec.Tries != before.Tries || rec.ResumedAt != before.ResumedAt {
			t.Errorf("assigning changed more than the review: %s", rec.State)
		}
		last := r.History(id)[len(r.History(id))-1]
		if last.Source != settle.SourcePerson || last.Code != settle.CodeAssigned || last.Actor != "ann" || last.Fact != settle.Unclear ||
			last.Disposition != settle.DispositionControl || !strings.Contains(last.Note, "ben") || !strings.Contains(last.Note, "knows the provider") {
			t.Errorf("the history says %+v", last)
		}
		// The deadline is noticed when it comes, not at the next lookup an hour later.
		rig.After(92 * time.Minute)
		if rec := r.Get(id); !rec.Review.Overdue || overdues(r, id) != 1 {
			t.Errorf("after the deadline: %+v, alarmed %d times", rec.Review, overdues(r, id))
		}
		// Another owner gets time of their own, and is reminded like the first.
		a.Owner, a.Within = "cy", 10*time.Minute
		rec, err = tool.Assign(t.Context(), id, a)
		rig.OK(t, err)
		if rec.Review.Owner != "cy" || rec.Review.Overdue {
			t.Errorf("the review is %+v", rec.Review)
		}
		rig.After(12 * time.Minute)
		if overdues(r, id) != 2 {
			t.Errorf("alarmed %d times", overdues(r, id))
		}
		r.Ledger(1, map[string]int{id: 0})
	})
	variant(t, "an owner alone leaves deadline and schedule", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, tool := open(t, r)
		id := lostCharge(t, p, r, "order-1", pt.DropRequest())
		before := r.Get(id)
		rec, err := tool.Assign(t.Context(), id, assignment())
		rig.OK(t, err)
		if !rec.Review.Deadline.Equal(before.Review.Deadline) || !rec.Due.Equal(before.Due) {
			t.Errorf("deadline %v, due %v; they were %v and %v", rec.Review.Deadline, rec.Due, before.Review.Deadline, before.Due)
		}
	})
	variant(t, "late evidence closes an assigned review", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		hooks := 0
		p := r.StartWith(rarely, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[rig.Receipt]) error { hooks++; return nil },
		})
		p.Work()
		land := make(chan struct{})
		id := lostCharge(t, p, r, "order-1", pt.ApplyLater(land))
		_, err := r.Bare(nil).Assign(t.Context(), id, assignment())
		rig.OK(t, err)
		close(land) // against its contract the request lands now; the hourly lookup finds it
		rig.After(3 * time.Hour)
		rec := r.State(id, settle.StateSucceeded)
		if rec.Review != nil || hooks != 1 {
			t.Errorf("review %+v, %d hooks", rec.Review, hooks)
		}
		r.Ledger(1, map[string]int{id: 1})
		_, err = p.Assign(t.Context(), id, assignment())
		rig.Typed(t, err, settle.ErrSettled)
	})
	variant(t, "while somebody looks", keyed(), func(t *testing.T, r *rig.Rig) {
		// The holder of the hourly lookup keeps its claim and its schedule, and its release keeps the owner.
		r.Provider.Script(pt.WrongAmount(99))
		p := r.Start(rarely)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrReview)
		held := make(chan struct{})
		free := make(chan struct{})
		p.Store.BeforeCommit(func(c settle.Change) error {
			if c.Writes[0].Entry.Source == settle.SourceLookup {
				close(held)
				<-free
			}
			return nil
		})
		done := rig.Background(func() error { _, err := p.Reconcile(t.Context(), out.ID); return err })
		<-held
		a := assignment()
		a.Within = time.Minute
		rec, err := r.Bare(nil).Assign(t.Context(), out.ID, a)
		rig.OK(t, err)
		if !rec.Claimed() {
			t.Error("assigning ended somebody's claim (I5)")
		}
		p.Store.BeforeCommit(nil)
		close(free)
		rig.OK(t, done())
		if rec := r.Get(out.ID); rec.Review.Owner != "ben" || rec.Due.After(rec.Review.Deadline.Add(5*time.Second)) {
			t.Errorf("the review is %+v, due %v", rec.Review, rec.Due)
		}
	})
	variant(t, "what is not in review", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Promise.Lookup = settle.NoLookup
		r.Provider.Script(pt.DropReply())
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		version := r.Get(out.ID).Version
		_, err = p.Assign(t.Context(), out.ID, assignment())
		rig.Typed(t, err, settle.ErrPending)
		if r.Get(out.ID).Version != version {
			t.Error("a refused assignment wrote")
		}
		_, err = p.Assign(t.Context(), "no-such-id", assignment())
		rig.Typed(t, err, settle.ErrNotFound)
	})
	variant(t, "malformed", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, _ := open(t, r)
		id := lostCharge(t, p, r, "order-1", pt.DropRequest())
		version := r.Get(id).Version
		for field, edit := range map[string]func(*settle.Assignment){
			"Actor":  func(a *settle.Assignment) { a.Actor = "" },
			"Owner":  func(a *settle.Assignment) { a.Owner = strings.Repeat("a", settle.MaxOwner+1) },
			"Reason": func(a *settle.Assignment) { a.Reason = "a\x00\xff" },
			"Within": func(a *settle.Assignment) { a.Within = -1 },
		} {
			a := assignment()
			edit(&a)
			_, err := p.Assign(t.Context(), id, a)
			rig.Typed(t, err, settle.ErrInvalid, field)
		}
		a := assignment()
		a.Within = 366 * 24 * time.Hour
		_, err := p.Assign(t.Context(), id, a)
		rig.Typed(t, err, settle.ErrInvalid, "Within")
		if r.Get(id).Version != version {
			t.Error("a refused assignment wrote")
		}
	})
	variant(t, "an orphan event", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, tool := open(t, r)
		got, err := p.Observe(t.Context(), settle.Event{Account: "acct-1", ID: "evt_1", Ref: "ch_9"})
		rig.OK(t, err)
		rig.After(30 * time.Hour)
		r.State(got.Event, settle.StateReview)
		rec, err := tool.Assign(t.Context(), got.Event, assignment())
		rig.OK(t, err)
		if rec.Review.Owner != "ben" {
			t.Errorf("the review is %+v", rec.Review)
		}
		rec, err = tool.Resolve(t.Context(), got.Event, decision(settle.Applied))
		rig.OK(t, err)
		if !rec.State.Settled() || !rec.Due.IsZero() {
			t.Errorf("%s, due %v", rec.State, rec.Due)
		}
	})
}

// One decision about many operations: each is a step of its own, and is answered by itself.
func TestResolveAll(t *testing.T) {
	t.Parallel()
	two := func(t *testing.T, r *rig.Rig) (p *rig.Process, a, b string) {
		r.Promise.Lookup = settle.NoLookup
		p = r.Start(rarely)
		p.Work()
		return p, lostCharge(t, p, r, "order-1", pt.DropRequest()), lostCharge(t, p, r, "order-2", pt.DropRequest())
	}
	variant(t, "each on its own", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, a, b := two(t, r)
		done, err := p.Charges.Execute(t.Context(), rig.Op("order-3", 100, "EUR"))
		rig.OK(t, err)
		// From a process without executors: it is the workers that send.
		out := r.Bare(nil).ResolveAll(t.Context(), []string{a, "no-such-id", done.ID, a, b}, decision(settle.NotApplied))
		if len(out) != 4 || out[0].ID != a || out[1].ID != "no-such-id" || out[2].ID != done.ID || out[3].ID != b {
			t.Fatalf("answers %+v", out)
		}
		rig.OK(t, out[0].Err)
		rig.Typed(t, out[1].Err, settle.ErrNotFound)
		rig.Typed(t, out[2].Err, settle.ErrSettled)
		rig.OK(t, out[3].Err)
		rig.After(time.Minute)
		for _, id := range []string{a, b} {
			r.State(id, settle.StateSucceeded)
			n := 0
			for _, x := range r.History(id) {
				if x.Source == settle.SourcePerson && x.Actor == "ann" && x.Fact == settle.NotApplied && strings.Contains(x.Note, "asked the provider") {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%d decisions in the history of %s", n, id)
			}
		}
		r.Ledger(5, map[string]int{a: 1, b: 1, done.ID: 1})
	})
	variant(t, "what speaks of one operation", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, a, b := two(t, r)
		for name, edit := range map[string]func(*settle.Decision){
			"Ref":         func(d *settle.Decision) { d.Ref = "ch_1" },
			"Terms":       func(d *settle.Decision) { d.Terms.Amount = settle.Minor(1, "EUR") },
			"SeenAttempt": func(d *settle.Decision) { d.SeenAttempt = 1 },
		} {
			d := decision(settle.Applied)
			edit(&d)
			for _, x := range p.ResolveAll(t.Context(), []string{a, b}, d) {
				own := rig.Typed(t, x.Err, settle.ErrInvalid)
				if !slices.Contains(own.Fields, name) {
					t.Errorf("the error names %v, want %s", own.Fields, name)
				}
			}
		}
		r.State(a, settle.StateReview)
		d := decision(settle.Applied)
		d.Ref = "ch_1"
		for _, x := range p.ResolveAll(t.Context(), []string{a, a}, d) {
			rig.OK(t, x.Err)
		}
		r.State(a, settle.StateSucceeded)
	})
	variant(t, "a context that ends", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p, a, b := two(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		p.Store.BeforeCommit(func(settle.Change) error { cancel(); return nil })
		out := p.ResolveAll(ctx, []string{a, b}, decision(settle.Applied))
		rig.OK(t, out[0].Err) // what was begun is finished
		rig.Typed(t, out[1].Err, settle.ErrPending)
		if !errors.Is(out[1].Err, context.Canceled) {
			t.Error("the context's error is lost")
		}
		r.State(a, settle.StateSucceeded)
		r.State(b, settle.StateReview)
	})
}

// A decision speaks for the attempts that the person knew of, however long it lay on the desk (I6).
func TestI6_DecisionOfYesterday(t *testing.T) {
	inBubble(t, &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		r.Promise.Lookup = settle.NoLookup
		p := r.Start(rarely)
		p.Work()
		id := lostCharge(t, p, r, "order-1", pt.DropRequest())
		seen := len(r.Get(id).Attempts)
		// A colleague is quicker, and this time the provider does it and the reply is lost.
		r.Provider.Script(pt.DropReply())
		_, err := p.Resolve(t.Context(), id, decision(settle.NotApplied))
		rig.OK(t, err)
		rig.After(time.Hour)
		r.State(id, settle.StateReview)
		d := decision(settle.NotApplied)
		d.SeenAttempt = seen
		_, err = p.Resolve(t.Context(), id, d)
		rig.Typed(t, err, settle.ErrPending)
		d.SeenAttempt = seen + 2
		_, err = p.Resolve(t.Context(), id, d)
		rig.Typed(t, err, settle.ErrInvalid, "SeenAttempt")
		d.SeenAttempt, d.Fact = seen+1, settle.Applied
		_, err = p.Resolve(t.Context(), id, d)
		rig.OK(t, err)
		r.Ledger(2, map[string]int{id: 1})
	})
}

// countedLists is a store that counts the pages that are read.
type countedLists struct {
	settle.Store
	pages int
}

func (c *countedLists) List(ctx context.Context, q settle.Query) ([]settle.Record, error) {
	c.pages++
	return c.Store.List(ctx, q)
}

// A list of operations costs by the operations there are, not by the events that were ever taken in.
func TestListReadsNoEvents(t *testing.T) {
	inBubble(t, keyed(), func(t *testing.T, r *rig.Rig) {
		store := &countedLists{Store: r.Store}
		r.Store = store
		p := r.Start(nil)
		for i := range 350 {
			_, err := p.Observe(t.Context(), settle.Event{Account: "acct-1", ID: fmt.Sprint("evt_", i), Ref: "ch_9"})
			rig.OK(t, err)
		}
		for _, order := range []string{"order-1", "order-2"} {
			_, err := p.Charges.Execute(t.Context(), rig.Op(order, 100, "EUR"))
			rig.OK(t, err)
		}
		store.pages = 0
		if n := len(r.All()); n != 2 || store.pages != 1 {
			t.Errorf("%d operations in %d pages, want 2 in one", n, store.pages)
		}
		n := 0
		for _, err := range p.List(t.Context(), settle.Query{Kind: settle.EventKind}) {
			rig.OK(t, err)
			n++
		}
		if n != 350 {
			t.Errorf("%d events", n)
		}
	})
}
