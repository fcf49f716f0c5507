package settle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// What is registered is sent by a worker, with no caller present (I10).
func TestRegisterAndRun(t *testing.T) {
	t.Parallel()
	op := rig.Op("order-1", 100, "EUR")
	variant(t, "now or before", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		rec, err := p.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		again, err := p.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		if rec.ID != again.ID || rec.State != settle.StateCreated || rec.Due.IsZero() {
			t.Errorf("%v, then %v, due %v", rec, again, rec.Due)
		}
		r.Ledger(0, nil)
		p.Work()
		rig.After(10 * time.Second)
		r.State(rec.ID, settle.StateSucceeded)
		again, err = p.Charges.Register(t.Context(), op) // a read: stored, and done by now
		rig.OK(t, err)
		if again.State != settle.StateSucceeded || again.Err() != nil {
			t.Errorf("registering again shows %v", again)
		}
		r.Ledger(1, map[string]int{rec.ID: 1})
	})
	variant(t, "the worker was there first", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(&settle.Options{PollInterval: time.Hour})
		p.Work()
		rig.After(time.Minute)
		rec, err := p.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		rig.After(time.Second) // nudged, long before the next poll
		r.State(rec.ID, settle.StateSucceeded)
	})
	variant(t, "in another process", keyed(), func(t *testing.T, r *rig.Rig) {
		web, worker := r.Start(nil), r.Start(nil)
		worker.Work()
		rec, err := web.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		web.Kill()
		rig.After(10 * time.Second)
		r.State(rec.ID, settle.StateSucceeded)
		r.Ledger(1, map[string]int{rec.ID: 1})
	})
	variant(t, "a caller executes what is registered", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		rec, err := p.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		out, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		p.Work()
		rig.After(time.Minute)
		if out.ID != rec.ID || out.Replayed {
			t.Errorf("%v, replayed %v", out, out.Replayed)
		}
		r.Ledger(1, map[string]int{rec.ID: 1})
	})
	variant(t, "many, by many workers", keyed(), func(t *testing.T, r *rig.Rig) {
		web := r.Start(nil)
		for range 5 {
			r.Start(&settle.Options{Concurrency: 3}).Work()
		}
		const n = 200
		ids := map[string]int{}
		for i := range n {
			rec, err := web.Charges.Register(t.Context(), rig.Op(fmt.Sprintf("order-%d", i), 100, "EUR"))
			rig.OK(t, err)
			ids[rec.ID] = 1
		}
		rig.After(time.Minute)
		for id := range ids {
			r.State(id, settle.StateSucceeded)
		}
		r.Ledger(n, ids)
	})
	variant(t, "the provider is down for a day", keyed(), func(t *testing.T, r *rig.Rig) {
		// T-14: what was never sent is not escalated by the clock for unknown ones.
		for range 400 {
			r.Provider.Script(pt.Status(401, "locked"))
		}
		p := r.Start(&settle.Options{PollInterval: 10 * time.Second})
		rec, err := p.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		p.Work()
		rig.After(5 * time.Hour)
		now := r.State(rec.ID, settle.StateCreated)
		if now.Due.IsZero() {
			t.Error("it is due at no time")
		}
		if n := len(now.Attempts); n > 20 {
			t.Errorf("the record has grown to %d attempts", n)
		}
		rig.After(60 * time.Hour)
		r.State(rec.ID, settle.StateSucceeded)
		r.Ledger(401, map[string]int{rec.ID: 1})
	})
	variant(t, "a kind that this process does not have", keyed(), func(t *testing.T, r *rig.Rig) {
		seen := make(chan settle.Notice, 64)
		web := r.Start(nil)
		rec, err := web.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		web.Kill()
		other := r.Bare(&settle.Options{Observer: noticeFunc(func(n settle.Notice) {
			if n.Event == settle.EventOverdue {
				select {
				case seen <- n:
				default:
				}
			}
		})})
		rig.Raw[int, int](other, "other", nil, nil)
		other.Work()
		rig.After(5 * time.Minute)
		select {
		case n := <-seen: // visible, not silent
			if n.Operation != rec.ID || n.Code != "kind_not_made_here" || n.Age <= 0 {
				t.Errorf("the notice is %+v", n)
			}
		default:
			t.Error("nobody says that a due operation is not worked")
		}
		r.State(rec.ID, settle.StateCreated)
		r.Ledger(0, nil)
	})
	variant(t, "in a transaction of the application", keyed(), func(t *testing.T, r *rig.Rig) {
		store, ok := r.Store.(*memstore.Store)
		if !ok {
			t.Fatal("the store has no transactions")
		}
		p := r.Start(nil)
		p.Work()
		broken := errors.New("broken")
		err := store.InTx(t.Context(), func(tx settle.Tx) error {
			if _, err := p.Charges.RegisterTx(t.Context(), tx, op); err != nil {
				return err
			}
			return broken
		})
		rig.Is(t, err, broken)
		rig.After(time.Minute)
		nothingStored(t, r)
		var rec settle.Record
		rig.OK(t, store.InTx(t.Context(), func(tx settle.Tx) error {
			var err error
			rec, err = p.Charges.RegisterTx(t.Context(), tx, op)
			if err != nil {
				return err
			}
			again, err := p.Charges.RegisterTx(t.Context(), tx, op) // sees its own
			if again.ID != rec.ID {
				t.Error("registered twice in one transaction")
			}
			return err
		}))
		rig.After(time.Minute)
		r.State(rec.ID, settle.StateSucceeded)
		r.Ledger(1, map[string]int{rec.ID: 1})
	})
}

type noticeFunc func(settle.Notice)

func (f noticeFunc) Notice(_ context.Context, n settle.Notice) { f(n) }

// Drain waits for what is under way, also for what nobody waits for any more.
func TestDrain(t *testing.T) {
	t.Parallel()
	op := rig.Op("order-1", 100, "EUR")
	variant(t, "records what is under way", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.Slow(5*time.Second), pt.Slow(5*time.Second))
		p := r.Start(nil)
		p.Work()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		out, err := p.Charges.Execute(ctx, op)
		rig.Is(t, err, settle.ErrPending)
		rec, err := p.Charges.Register(t.Context(), rig.Op("order-2", 100, "EUR"))
		rig.OK(t, err)
		rig.After(time.Second)
		begin := time.Now()
		rig.OK(t, p.Drain(t.Context()))
		if d := time.Since(begin); d < 3*time.Second || d > 6*time.Second {
			t.Errorf("drained after %v", d)
		}
		r.State(out.ID, settle.StateSucceeded)
		r.State(rec.ID, settle.StateSucceeded)
		r.Ledger(2, map[string]int{out.ID: 1, rec.ID: 1})
	})
	variant(t, "later calls are refused", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		done, err := p.Charges.Execute(t.Context(), rig.Op("order-2", 100, "EUR"))
		rig.OK(t, err)
		rig.OK(t, p.Drain(t.Context()))
		rig.OK(t, p.Drain(t.Context())) // again is fine
		out, err := p.Charges.Execute(t.Context(), op)
		own := rig.Refused(t, out, err, settle.ErrDraining)
		if own.Next() != settle.NextRetry {
			t.Errorf("told to %q", own.Next())
		}
		out, err = p.Charges.Execute(t.Context(), rig.Op("order-2", 100, "EUR"))
		rig.Refused(t, out, err, settle.ErrDraining)
		_, err = p.Charges.Register(t.Context(), op)
		rig.Typed(t, err, settle.ErrDraining)
		rig.Typed(t, p.Charges.Cancel(t.Context(), rig.Intent("order-1"), "x"), settle.ErrDraining)
		res, err := p.Refunds.Compensate(t.Context(), settle.Effect{Operation: done.ID}, "return", rig.Refund{})
		rig.Refused(t, res, err, settle.ErrDraining)
		rig.OK(t, p.Run(t.Context())) // it ends at once
		if n := len(r.All()); n != 1 {
			t.Errorf("%d operations", n)
		}
		r.Ledger(1, nil)
	})
	variant(t, "with a deadline", keyed(), func(t *testing.T, r *rig.Rig) {
		r.Provider.Script(pt.HangAfter(nil))
		a, b := r.Start(nil), r.Start(nil)
		first := rig.Execute(t.Context(), a.Charges, op)
		rig.After(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		rig.Is(t, a.Drain(ctx), settle.ErrPending, context.DeadlineExceeded)
		a.Kill() // the process is shot
		b.Work()
		rig.After(5 * time.Minute)
		first()
		all := r.All()
		r.State(all[0].ID, settle.StateSucceeded)
		r.Ledger(r.Sends(), map[string]int{all[0].ID: 1})
	})
	variant(t, "waits for an adapter that ignores its context", keyed(), func(t *testing.T, r *rig.Rig) {
		late := make(chan struct{})
		p := r.Bare(nil)
		a := pt.ChargeAdapter(p.API, r.Promise)
		submit := a.SubmitFunc
		a.SubmitFunc = func(ctx context.Context, c *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
			obs, err := submit(ctx, c)
			<-late
			return obs, err
		}
		r.Provider.ScriptLookup(pt.Status(500, ""))
		x, err := settle.New(p.Engine, rig.KindCharge, a, nil)
		rig.OK(t, err)
		out, err := x.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrUnknown)
		drained := rig.Background(func() error { return p.Drain(t.Context()) })
		rig.After(time.Minute)
		close(late)
		rig.OK(t, drained())
		r.State(out.ID, settle.StateSucceeded) // what was learned late is merged
		r.Ledger(1, map[string]int{out.ID: 1})
	})
}

// However many due rows there are, each is told of in its turn: none hides behind those with smaller ids.
func TestI10_NoOverdueRowHides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1010 // more than one look tells of
		r := rig.New(t, memstore.New(nil), nil)
		web := r.Start(nil)
		for i := range n {
			_, err := web.Charges.Register(t.Context(), rig.Op(fmt.Sprint("order-", i), 1, "EUR"))
			rig.OK(t, err)
		}
		last, err := web.Charges.Register(t.Context(), rig.Op("order-last", 1, "EUR"))
		rig.OK(t, err)
		var mu sync.Mutex
		told := map[string]int{}
		other := r.Bare(&settle.Options{PollInterval: 10 * time.Second, Observer: noticeFunc(func(x settle.Notice) {
			mu.Lock()
			defer mu.Unlock()
			if x.Event == settle.EventOverdue {
				told[x.Operation]++
			}
		})})
		rig.Raw[int, int](other, "other", nil, nil)
		other.Work()
		rig.After(100 * time.Second) // one look in which they are overdue
		mu.Lock()
		if len(told) != 1000 || told[last.ID] != 0 {
			t.Errorf("the first look told of %d rows, and %d times of the last", len(told), told[last.ID])
		}
		mu.Unlock()
		rig.After(time.Minute)
		mu.Lock()
		if len(told) != n+1 || told[last.ID] != 1 {
			t.Errorf("two looks told of %d rows of %d, and %d times of the last", len(told), n+1, told[last.ID])
		}
		mu.Unlock()
		rig.After(time.Minute) // and from the first again
		mu.Lock()
		defer mu.Unlock()
		if told[last.ID] != 1 || len(told) != n+1 {
			t.Errorf("three looks told %d times of the last of %d rows", told[last.ID], len(told))
		}
		again := 0
		for _, k := range told {
			again += k
		}
		if again != n+1+1000 {
			t.Errorf("three looks told of %d rows, want %d", again, n+1+1000)
		}
	})
}
