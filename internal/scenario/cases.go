package scenario

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// RunCases replays failures that were reported in public about events, refunds and queues, each as a
// subtest named after its id. Those about everything else are in package publiccase.
func RunCases(t *testing.T, open func(t testing.TB) settle.Store) {
	run(t, open, []scene{
		{"IC-38 an event before its operation", ic38},
		{"IC-39 a decline delivered again after the success", ic39},
		{"IC-40 a late failure of a former payment", ic40},
		{"IC-41 a late success of a refunded charge", ic41},
		{"IC-42 two events of one instant", ic42},
		{"IC-46 an event whose merge fails", ic46},
		{"IC-48 a lookup reads every page", ic48},
		{"IC-49 refunds at once", ic49},
		{"IC-50 void and refund", ic50},
		{"IC-52 a refund fails days later", ic52},
		{"IC-60 what has failed too often stands in nobody's way", ic60},
		{"IC-61 a crash between commit, sending and marking", ic61},
	})
}

// tally counts what hooks did, by operation.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func newTally() *tally { return &tally{n: map[string]int{}} }

func (c *tally) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[id]++
}

func (c *tally) of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[id]
}

// shipped counts how often each operation was fulfilled.
func shipped(n *tally) *settle.ExecutorOptions[Payment, Receipt] {
	return &settle.ExecutorOptions[Payment, Receipt]{OnSuccess: func(_ context.Context, _ settle.Tx, out settle.Outcome[Receipt]) error {
		n.add(out.ID)
		return nil
	}}
}

func ic38(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		n := newTally()
		p := l.Start(&Setup{Promise: silent(l), Charge: shipped(n)}).Work()
		ev := l.says("", charged("ch_1"))
		got := l.observes(p, ev, true) // durably, before the 2xx
		l.Elapse(time.Minute)
		l.Want(l.Get(got.Event), settle.StateCreated)
		l.Provider.Script(providertest.Processing())
		out, err := p.Charge.Execute(l.Ctx, Order()) // the operation, and with the reply its reference
		l.wantErr(err, settle.ErrProcessing)
		l.noErr(l.Provider.Finish("ch_1"))
		l.Want(l.Rest(out.ID, 10*time.Minute), settle.StateSucceeded)
		l.Want(l.Until(got.Event, 10*time.Minute, func(r settle.Record) bool { return r.State.Settled() }), settle.StateSucceeded)
		late := event(t, p, out.ID, said{Fact: settle.Underway, Ref: "ch_1", Sequence: 1})
		l.Want(late, settle.StateSucceeded)
		l.Requests(1)
		if n.of(out.ID) != 1 {
			t.Fatalf("fulfilled %d times", n.of(out.ID))
		}
	})
}

func ic39(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true // the decline
		n := newTally()
		p := l.Start(&Setup{Promise: silent(l), Charge: shipped(n)})
		l.Provider.Script(providertest.DropReply())
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrUnknown)
		e1 := l.says(out.ID, said{Fact: settle.Declined, Code: "insufficient_funds"})
		p.Faults(Always(OpCommit, Fault{Before: errBroken}))
		_, err = p.Engine.Observe(l.Ctx, e1)
		l.wantErr(err, settle.ErrStore) // not 2xx: it comes again
		p.Faults(nil)
		l.Want(event(t, p, out.ID, charged("ch_1")), settle.StateSucceeded)
		l.Elapse(time.Hour)
		l.observes(p, e1, false)
		l.Want(l.Get(out.ID), settle.StateSucceeded)
		h := l.History(out.ID)
		if last := h[len(h)-1]; last.Fact != settle.Declined || last.Disposition != settle.DispositionSuperseded {
			t.Fatalf("the history ends with %+v", last)
		}
		if n.of(out.ID) != 1 {
			t.Fatalf("fulfilled %d times", n.of(out.ID))
		}
	})
}

func ic40(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		try := func(n int) Charge {
			op := Order()
			op.Purpose = fmt.Sprint("payment ", n)
			return op
		}
		l.Provider.Script(providertest.Processing())
		one, err := p.Charge.Execute(l.Ctx, try(1))
		l.wantErr(err, settle.ErrProcessing)
		two, err := p.Charge.Execute(l.Ctx, try(2))
		l.noErr(err)
		l.noErr(l.Provider.Fail("ch_1", "stolen_card"))
		// Only the order is named: no operation is guessed.
		l.observes(p, l.says("", said{Fact: settle.Declined}), true)
		l.Want(l.Get(one.ID), settle.StateProcessing)
		l.Elapse(30 * time.Minute)
		p.Work()
		l.observes(p, l.says("", said{Fact: settle.Declined, Ref: "ch_1", Code: "stolen_card"}), false)
		l.Want(l.Rest(one.ID, time.Hour), settle.StateFailed)
		if r := l.Get(two.ID); r.State != settle.StateSucceeded || r.Version != two.Version {
			t.Fatalf("the second payment was %v, and is %v", two.Record, r)
		}
	})
}

func ic42(t *testing.T, open Open) {
	for _, swap := range []bool{false, true} {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			l.Provider.Script(providertest.Processing())
			p := l.Start(&Setup{Promise: silent(l)})
			out, err := p.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrProcessing)
			events := []settle.Event{
				l.says(out.ID, said{Fact: settle.Underway, Ref: "ch_1", Sequence: 7}),
				l.says(out.ID, said{Fact: settle.NeedsAction, Ref: "ch_1", Sequence: 7, Action: "3ds"}),
			}
			if swap {
				slices.Reverse(events)
			}
			for _, ev := range events {
				ev.At = l.Began
				l.observes(p, ev, false)
			}
			l.Want(l.Get(out.ID), settle.StateActionRequired)
			if n := l.merged(out.ID); n != 2 {
				t.Fatalf("%d events in the history (I12)", n)
			}
		})
	}
}

func ic46(t *testing.T, open Open) {
	for name, x := range map[string]Fault{
		"fails": {Before: errBroken}, "the answer is lost": {After: errBroken}, "the handler panics": {Kill: true, Panic: true},
		"it panics after the commit": {Kill: true, Panic: true, After: errGone},
	} {
		t.Run(name, func(t *testing.T) {
			Play(t, open, nil, func(t *testing.T, l *Lab) {
				n := newTally()
				l.Provider.Script(providertest.DropReply())
				p := l.Start(&Setup{Promise: silent(l), Charge: shipped(n)})
				out, err := p.Charge.Execute(l.Ctx, Order())
				l.wantErr(err, settle.ErrUnknown)
				ev := l.says(out.ID, charged("ch_1"))
				q := l.Start(&Setup{Charge: shipped(n), Plan: Always(OpCommit, x)})
				err = contained(func() error {
					_, err := q.Engine.Observe(l.Ctx, ev)
					return err
				})
				if err == nil {
					t.Fatal("answered with success")
				}
				// Both or neither.
				if r := l.Get(out.ID); (r.State == settle.StateSucceeded) != (len(l.All(settle.EventKind)) == 1) {
					t.Fatalf("the operation is %s, events kept: %d", r.State, len(l.All(settle.EventKind)))
				}
				q.Faults(nil)
				l.observes(p, ev, false)
				l.Want(l.Get(out.ID), settle.StateSucceeded)
				if l.merged(out.ID) != 1 || n.of(out.ID) != 1 {
					t.Fatalf("merged %d times, fulfilled %d times", l.merged(out.ID), n.of(out.ID))
				}
			})
		})
	}
}

// ic60: rows at the limit leave the due set, are listed, and can be driven again.
func ic60(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		const poison, fresh = 10, 5
		n := newTally()
		var fixed atomic.Bool
		p := l.Start(&Setup{
			Options: settle.Options{Concurrency: poison, PollInterval: l.poll()},
			Charge: &settle.ExecutorOptions[Payment, Receipt]{OnSuccess: func(_ context.Context, _ settle.Tx, out settle.Outcome[Receipt]) error {
				if !fixed.Load() {
					return errBroken
				}
				n.add(out.ID)
				return nil
			}},
		}).Work()
		order := func(i int) Charge {
			op := Order()
			op.Subject = fmt.Sprint("order-", i)
			return op
		}
		var ids []string
		for i := range poison {
			out, err := p.Charge.Execute(l.Ctx, order(i))
			l.wantErr(err, settle.ErrConsequence)
			ids = append(ids, out.ID)
		}
		for _, id := range ids {
			r := l.Until(id, 5*time.Hour, func(r settle.Record) bool { return r.Consequence == settle.ConsequenceAside })
			if !r.Due.IsZero() {
				t.Fatalf("set aside and due at %v", r.Due)
			}
		}
		fixed.Store(true)
		for i := range fresh {
			rec, err := p.Charge.Register(l.Ctx, order(poison+i))
			l.noErr(err)
			ids = append(ids, rec.ID)
		}
		l.Elapse(2 * l.poll())
		for _, id := range ids[poison:] {
			if n.of(id) != 1 {
				t.Fatalf("%v was fulfilled %d times at the next poll", l.Get(id), n.of(id))
			}
		}
		for _, id := range ids[:poison] {
			if n.of(id) != 0 {
				t.Fatal("what was set aside ran by itself")
			}
			l.noErr(p.Engine.Redrive(l.Ctx, id, mended))
		}
		l.Elapse(2 * l.poll())
		for _, id := range ids {
			if n.of(id) != 1 {
				t.Fatalf("%v was fulfilled %d times in the end", l.Get(id), n.of(id))
			}
		}
	})
}

// ic61: an operation is the row of the outbox: RegisterTx writes it in the caller's transaction.
func ic61(t *testing.T, open Open) {
	t.Run("after the commit, before sending", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			p := l.Start(nil)
			rec, err := p.Charge.Register(l.Ctx, Order())
			l.noErr(err)
			p.Kill()
			l.Requests(0)
			l.Start(nil).Work()
			l.Want(l.Rest(rec.ID, time.Minute), settle.StateSucceeded)
			l.Effects(rec.ID, 1)
		})
	})
	t.Run("after sending, before marking", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			rec := l.crash(Setup{Promise: silent(l)}, Order())
			l.Start(&Setup{Promise: silent(l)}).Work()
			l.Want(l.Rest(rec.ID, time.Hour), settle.StateSucceeded)
			reqs := l.Requests(2)
			if reqs[0].Key != reqs[1].Key || reqs[0].Reference != reqs[1].Reference {
				t.Fatalf("sent as %q and %q", reqs[0].Key, reqs[1].Key)
			}
			l.Effects(rec.ID, 1)
		})
	})
}
