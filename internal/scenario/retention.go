package scenario

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// kept is the age after which these scenarios remove payloads, and gone when they surely are.
const (
	kept = 2 * time.Hour
	gone = kept + kept/10 + kept/50 + 5*time.Minute
)

// retaining starts a process that removes payloads.
func (l *Lab) retaining() *Process {
	return l.Start(&Setup{Options: settle.Options{Retention: kept, PollInterval: time.Minute}}).Work()
}

// numbered is one of several orders.
func numbered(n int) Charge {
	op := Order()
	op.Subject = fmt.Sprint("order-", n)
	return op
}

// identity is everything of r that retention must leave, in its stored form.
func (l *Lab) identity(r settle.Record) []byte {
	l.T.Helper()
	r.PrunedAt, r.UpdatedAt = time.Time{}, time.Time{}
	body, err := settle.EncodeRecord(r)
	l.noErr(err)
	return body
}

// pruned checks that of r nothing but its payloads is gone.
func (l *Lab) pruned(was settle.Record) {
	l.T.Helper()
	r := l.Get(was.ID)
	if r.PrunedAt.IsZero() || r.Request != nil || r.Result != nil {
		l.T.Fatalf("%s has still its request (%v) or result (%v), pruned at %v", r, r.Request != nil, r.Result != nil, r.PrunedAt)
	}
	if age := r.PrunedAt.Sub(was.UpdatedAt); age < kept {
		l.T.Errorf("%s was pruned at the age of %v, want %v", r, age, kept)
	}
	if got, want := l.identity(r), l.identity(was); !bytes.Equal(got, want) {
		l.T.Errorf("retention changed %s to\n%s, it was\n%s", r, got, want)
	}
	n := 0
	for _, x := range l.History(r.ID) {
		if x.Note == "pruned" {
			n++
		}
	}
	if n != 1 {
		l.T.Errorf("%s is pruned %d times in its history (I12)", r, n)
	}
}

// whole checks that r has its request.
func (l *Lab) whole(id, why string) {
	l.T.Helper()
	if r := l.Get(id); r.Request == nil || !r.PrunedAt.IsZero() {
		l.T.Fatalf("%s was pruned: %s; %s", r, why, l.story(id))
	}
}

// I14 holds that payloads and results go after their age, in bounded steps; identity, evidence and ledger stay; what
// is open, or has an open compensation, keeps everything.
func I14(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.retaining()
		done, err := p.Charge.Execute(l.Ctx, numbered(1))
		l.noErr(err)
		l.Provider.Script(providertest.Decline("card_declined"))
		failed, err := p.Charge.Execute(l.Ctx, numbered(2))
		l.wantErr(err, settle.ErrFailed)
		l.Provider.Script(providertest.Processing())
		pending, err := p.Charge.Execute(l.Ctx, numbered(3))
		l.wantErr(err, settle.ErrProcessing)
		returned, err := p.Charge.Execute(l.Ctx, numbered(4))
		l.noErr(err)
		l.Provider.Script(providertest.SucceedAfter(5 * time.Hour))
		refund, err := p.Refund.Compensate(l.Ctx, settle.Effect{Operation: returned.ID}, "returned", Refund{})
		l.wantErr(err, settle.ErrProcessing)
		told := l.says(done.ID, charged(done.References[0].Ref))
		seen, err := p.Engine.Observe(l.Ctx, told)
		l.noErr(err)
		before := l.Get(done.ID)

		l.At(kept - time.Minute)
		for _, id := range []string{done.ID, failed.ID, pending.ID, returned.ID, refund.ID} {
			l.whole(id, "it is younger than the age")
		}
		l.At(gone)
		l.pruned(before)
		l.pruned(failed.Record)
		l.whole(pending.ID, "it is not settled")
		l.whole(returned.ID, "its compensation is open")
		l.whole(refund.ID, "it is not settled")

		// The event is known, and whose it was; its text is gone.
		for _, r := range l.Matching(settle.Query{Kind: settle.EventKind}) {
			if r.PrunedAt.IsZero() || bytes.Contains(r.Request, []byte("payload")) {
				t.Errorf("the event %s has still its payload", r)
			}
		}
		again, err := p.Engine.Observe(l.Ctx, told)
		l.noErr(err)
		if !again.Duplicate || again.Event != seen.Event || again.Record.ID != done.ID {
			t.Errorf("the same event again: duplicate %v, of %q", again.Duplicate, again.Record.ID)
		}

		l.Want(l.Until(refund.ID, 6*time.Hour, func(r settle.Record) bool { return r.State.Settled() }), settle.StateSucceeded)
		settled, child := l.Get(returned.ID), l.Get(refund.ID)
		l.Elapse(gone)
		l.pruned(settled)
		l.pruned(child)
		l.Requests(5)
		for id, want := range map[string]int{done.ID: 1, failed.ID: 0, returned.ID: 1, refund.ID: 1} {
			l.Effects(id, want)
		}
	})
}

// t33: retention ran. A replay, a late event, a question to the provider and partial refunds are matched and
// counted from what is kept; the outcome says that the result was pruned.
func t33(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.retaining()
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		if _, ok := out.Result(); !ok || !out.PrunedAt.IsZero() {
			t.Fatal("a fresh outcome has no result")
		}
		l.Provider.Script(providertest.Decline("card_declined"))
		failed, err := p.Charge.Execute(l.Ctx, numbered(2))
		l.wantErr(err, settle.ErrFailed)
		l.At(gone)
		l.pruned(out.Record)
		ref := out.References[0].Ref

		// A replay, also by a process that removes nothing.
		for _, q := range []*Process{p, l.Start(nil)} {
			again, err := q.Charge.Execute(l.Ctx, Order())
			l.noErr(err)
			if _, ok := again.Result(); ok || again.PrunedAt.IsZero() || !again.Replayed || again.ID != out.ID ||
				again.Next != settle.NextDone || again.References[0].Ref != ref {
				t.Fatalf("the replay is %v: result %v, pruned at %v, replayed %v, next %s", again, ok, again.PrunedAt, again.Replayed, again.Next)
			}
		}
		changed := Order()
		changed.Request.Amount++
		_, err = p.Charge.Execute(l.Ctx, changed)
		l.wantErr(err, settle.ErrMismatch)
		l.Requests(2)

		// The provider says it again, with the result; says something that decides nothing, which asks for
		// a lookup; and says too late that it declined.
		late := charged(ref)
		late.Result = Receipt{ID: ref, Amount: 1999, Currency: "EUR"}
		l.Want(event(t, p, out.ID, late), settle.StateSucceeded)
		asked := l.Asked()
		l.Want(event(t, p, out.ID, said{Fact: settle.Unclear, Ref: ref}), settle.StateSucceeded)
		l.Elapse(5 * time.Minute)
		if l.Asked() == asked {
			t.Error("the event asked for a lookup, and nobody asked")
		}
		l.Want(event(t, p, out.ID, said{Fact: settle.Declined, Ref: ref, Code: "late"}), settle.StateSucceeded)
		if r := l.Get(out.ID); r.Result != nil || r.Request != nil || len(r.References) != 1 || len(r.Alarms()) > 0 {
			t.Errorf("what came late brought data back, or made an effect of its own: %d references, alarms %v", len(r.References), r.Alarms())
		}

		// Partial refunds are counted against the amount that is kept (I9).
		whole := settle.Effect{Operation: out.ID, Ref: ref}
		first, err := p.Refund.Compensate(l.Ctx, whole, "one item", Refund{Amount: 500, Currency: "EUR"})
		l.noErr(err)
		_, err = p.Refund.Compensate(l.Ctx, whole, "too much", Refund{Amount: 1500, Currency: "EUR"})
		l.wantErr(err, settle.ErrExceeds)
		parent := l.Get(out.ID)
		left := parent.Effects()[0].Left()
		if !left.Equal(settle.Minor(1499, "EUR")) {
			t.Errorf("%v is left to refund, want 14.99", left)
		}
		rest, err := p.Refund.Compensate(l.Ctx, whole, "the rest", Refund{Amount: 1499, Currency: "EUR"})
		l.noErr(err)
		l.Want(l.Get(out.ID), settle.StateCompensated)

		// The next try of the one that failed names it.
		next := numbered(2)
		next.Replaces = failed.ID
		second, err := p.Charge.Execute(l.Ctx, next)
		l.noErr(err)
		for _, id := range []string{out.ID, first.ID, rest.ID, second.ID} {
			l.Effects(id, 1)
		}
		l.Requests(5)
	})
}
