package scenario

import (
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// RunCompensations plays what can happen to compensations and to their parent's ledger, on stores
// that open makes.
func RunCompensations(t *testing.T, open func(t testing.TB) settle.Store) {
	run(t, open, []scene{
		{"the whole of an effect that was accepted as another", undoWholeOfAnother},
		{"the first one reads no more than it must", undoReads},
		{"a refund made elsewhere counts", foreignCounts},
		{"a refund's event without a name waits", foreignWaits},
		{"a foreign record that turns out to be ours", foreignTurnsOurs},
		{"a refund made elsewhere beside a queued one", foreignBesideQueued},
		{"a reference that another operation owns", foreignOwned},
		{"a refund made elsewhere, by a person's word", foreignByHand},
		{"a refund of a kind that is made elsewhere", foreignElsewhere},
		{"a refund begins while its event is taken in", foreignRace},
		{"void or refund, chosen from a fresh lookup", undoChosen},
		{"two choices at once", undoChosenAtOnce},
		{"a choice that is none", undoRefusedChoice},
		{"undone before it was confirmed, never fulfilled", undoneNeverFulfilled},
		{"a duplicate, by its reference", undoDuplicate},
	})
}

// refundOf undoes part of the charge id; 0 is the whole.
func refundOf(l *Lab, p *Process, id, reason string, cents int64) (settle.Outcome[Receipt], error) {
	req := Refund{}
	if cents > 0 {
		req = Refund{Amount: cents, Currency: "EUR"}
	}
	return p.Refund.Compensate(l.Ctx, settle.Effect{Operation: id}, reason, req)
}

// paid executes the order at p.
func (l *Lab) paid(p *Process) settle.Outcome[Receipt] {
	l.T.Helper()
	out, err := p.Charge.Execute(l.Ctx, Order())
	l.noErr(err)
	return out
}

// left checks what is left to undo of the first effect of an operation.
func (l *Lab) left(id string, want int64) {
	l.T.Helper()
	r := l.Get(id)
	if got := r.Effects()[0].Left(); !got.Equal(settle.Minor(want, "EUR")) {
		l.T.Fatalf("left %v, want %d; ledger %+v", got, want, r.Ledger)
	}
}

// A compensation without an amount of its own follows the effect, until it is sent.
func undoWholeOfAnother(t *testing.T, open Open) {
	for _, amount := range []int64{1500, 2500} {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			l.Lies = true // the amount
			l.Provider.Script(providertest.WrongAmount(amount))
			p := l.Start(nil).Work()
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrReview)
			wish, err := refundOf(l, p, out.ID, "returned", 0)
			l.wantErr(err, settle.ErrWaiting)
			_, err = p.Engine.Resolve(l.Ctx, out.ID, settle.Decision{
				Actor: "ana", Reason: "agreed", Evidence: "mail 7", Fact: settle.Applied, Ref: "ch_1",
				Terms: settle.Terms{Amount: settle.Minor(amount, "EUR")},
			})
			l.noErr(err)
			r := l.Rest(wish.ID, time.Hour)
			parent := l.Get(out.ID)
			if amount > 1999 {
				// The provider's own books have 1999: it refuses, and the balance is free again.
				l.Want(r, settle.StateFailed)
				l.left(out.ID, amount)
				return
			}
			l.Want(r, settle.StateSucceeded)
			l.Want(parent, settle.StateCompensated)
			want := settle.Minor(amount, "EUR")
			if !r.Terms.Amount.Equal(want) || !parent.Ledger[0].Amount.Equal(want) {
				t.Fatalf("asked for %v, counted as %v, want %v", r.Terms.Amount, parent.Ledger[0].Amount, want)
			}
			l.Effects(wish.ID, 1)
		})
	}
}

// Of a confirmed effect the first call reads the parent, and reads it again before it sends (I8).
func undoReads(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out := l.paid(p)
		for i, reason := range []string{"one item", "another item", "a third"} {
			reads := 0
			p.Faults(func(c Call) Fault {
				if c.Op == OpGet {
					reads++
				}
				return Fault{}
			})
			_, err := refundOf(l, p, out.ID, reason, 100)
			l.noErr(err)
			p.Faults(nil)
			want := 3
			if s, ok := l.Store.(settle.Local); ok && s.LocalReads() {
				want = 4 // it looks for a replay first, where that costs nothing
			}
			if reads != want {
				t.Errorf("call %d reads %d times, want %d", i+1, reads, want)
			}
		}
	})
}
