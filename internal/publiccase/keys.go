package publiccase

import (
	"bytes"
	"context"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

const day = 24 * time.Hour

// keyed is a provider that honors keys for a day.
func keyed() *pt.Options { return &pt.Options{KeyWindow: day} }

// sameBytes checks that every request carried one key and one body: those of the record (I2).
func sameBytes(t testing.TB, r *rig.Rig, rec settle.Record) {
	t.Helper()
	reqs := r.Provider.Requests()
	for i, q := range reqs {
		if q.Key != rec.ProviderKey || q.Key == "" {
			t.Errorf("request %d left with key %q, the record says %q", i+1, q.Key, rec.ProviderKey)
		}
		if !bytes.Equal(q.Body, reqs[0].Body) {
			t.Errorf("request %d left with another body than the first", i+1)
		}
	}
}

// IC-01: every retry, of whichever process, leaves with the key of the row that was
// committed before the first request (I1, I2).
func oneKeyForEveryRetry(s suite) {
	noLookup := func(r *rig.Rig) { r.Promise.Lookup = settle.NoLookup } // so that recovery must send again
	s.wire("reset, 503, another process", func(t *testing.T, store settle.Store) {
		var mu sync.Mutex
		var early []string
		o := keyed()
		o.OnCreate = func(q pt.Request) {
			mu.Lock()
			defer mu.Unlock()
			recs, err := store.List(context.Background(), settle.Query{})
			if err != nil || len(recs) != 1 || recs[0].ProviderKey != q.Key || len(recs[0].Attempts) == 0 {
				early = append(early, q.Key)
			}
		}
		r := rig.New(t, store, o)
		noLookup(r)
		r.Serve()
		r.Provider.Script(pt.DropReply(), pt.Status(503, "unavailable"))
		a := r.Start(nil)
		out, err := a.Charges.Execute(t.Context(), rig.Op("order-17", 1999, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		rec, err := a.Reconcile(t.Context(), out.ID)
		rig.OK(t, err)
		if rec.State != settle.StateUnknown {
			t.Errorf("a 503 after a reset made it %s", rec.State)
		}
		a.Kill()
		b := r.Start(nil)
		rec, err = b.Reconcile(t.Context(), out.ID)
		rig.OK(t, err)
		r.Ledger(3, map[string]int{out.ID: 1})
		r.State(out.ID, settle.StateSucceeded)
		sameBytes(t, r, rec)
		if len(early) > 0 {
			t.Errorf("requests left before their row was there, or with another key: %q", early)
		}
	})
	s.wire("hidden resend of the transport", func(t *testing.T, store settle.Store) {
		// A connection that dies before any reply makes Go's transport send a keyed
		// POST again: one attempt here, two requests there, one effect.
		r := rig.New(t, store, keyed())
		noLookup(r)
		server := r.Serve()
		r.Dial(server.URL, true)
		p := r.Start(nil)
		_, err := p.Charges.Execute(t.Context(), rig.Op("warm-up", 1, "EUR"))
		rig.OK(t, err)
		r.Provider.Script(pt.DropReply())
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-17", 1999, "EUR"))
		rig.OK(t, err)
		if n := len(out.Attempts); n != 1 {
			t.Errorf("%d attempts, want 1", n)
		}
		r.Ledger(3, map[string]int{out.ID: 1})
		reqs := r.Provider.Requests()
		if reqs[1].Key != reqs[2].Key || !bytes.Equal(reqs[1].Body, reqs[2].Body) {
			t.Error("the resend differs from the request")
		}
	})
	s.bubble("seven lost replies", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		noLookup(r)
		for i := range 7 {
			r.Provider.Script([]pt.Step{pt.DropReply(), pt.DropRequest(), pt.Garbled(), pt.Status(502, ""), pt.InFlight()}[i%5])
		}
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-17", 1999, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(20 * time.Minute)
		rec := r.State(out.ID, settle.StateSucceeded)
		r.Ledger(8, map[string]int{out.ID: 1})
		sameBytes(t, r, rec)
	})
}

// tokenAPI puts the credential into what the provider compares.
type tokenAPI struct {
	pt.API
	token string
}

func (a tokenAPI) Create(ctx context.Context, q pt.Request) (pt.Object, error) {
	q.Extra = map[string]string{"token": a.token}
	return a.API.Create(ctx, q)
}

// withToken is the adapter of charges with the credential in the body.
func withToken(api pt.API, promise settle.Contract) settle.Adapter[pt.Payment, pt.Receipt] {
	a := pt.ChargeAdapter(api, promise)
	a.SubmitFunc = func(ctx context.Context, c *settle.Call[pt.Payment]) (settle.Observation[pt.Receipt], error) {
		return pt.ChargeAdapter(tokenAPI{api, c.Request.Token}, promise).SubmitFunc(ctx, c)
	}
	return a
}

// IC-02: a credential that is minted anew is outside identity and fingerprint; what
// is sent again is the stored request, and "key used with other parameters" is Unclear.
func credentialsAreNoIdentity(s suite) {
	start := func(t *testing.T, store settle.Store, lookup settle.LookupPromise) (*rig.Rig, *rig.Process, *settle.Executor[pt.Payment, pt.Receipt]) {
		r := rig.New(t, store, keyed())
		r.Promise.Lookup = lookup
		r.Serve()
		p := r.Bare(nil)
		x, err := settle.New(p.Engine, rig.KindCharge, withToken(p.API, r.Promise), nil)
		rig.OK(t, err)
		return r, p, x
	}
	op := func(token string) settle.Operation[pt.Payment] {
		o := rig.Op("challenge-9", 500, "USD")
		o.Request.Token = token
		return o
	}
	s.wire("fresh credential", func(t *testing.T, store settle.Store) {
		r, p, x := start(t, store, settle.NoLookup)
		r.Provider.Script(pt.DropReply())
		first, err := x.Execute(t.Context(), op("tok_A"))
		rig.Is(t, err, settle.ErrUnknown)
		again, err := x.Execute(t.Context(), op("tok_B"))
		rig.Is(t, err, settle.ErrUnknown)
		rig.Not(t, err, settle.ErrMismatch, settle.ErrConflict)
		if again.ID != first.ID || again.ProviderKey != first.ProviderKey {
			t.Error("another credential made another operation or key")
		}
		r.Ledger(1, map[string]int{first.ID: 1})
		_, err = p.Reconcile(t.Context(), first.ID)
		rig.OK(t, err)
		rec := r.State(first.ID, settle.StateSucceeded)
		r.Ledger(2, map[string]int{first.ID: 1})
		sameBytes(t, r, rec)
		for _, q := range r.Provider.Requests() {
			if q.Extra["token"] != "tok_A" {
				t.Errorf("a request left with %s after one with tok_A may have arrived (I2)", q.Extra["token"])
			}
		}
		out, err := x.Execute(t.Context(), op("tok_C"))
		rig.OK(t, err)
		if !out.Replayed {
			t.Error("the third call is no replay")
		}
	})
	for _, c := range []struct {
		name string
		step pt.Step
	}{{"key reused", pt.KeyReused()}, {"in flight", pt.InFlight()}, {"unexplained 409", pt.Status(409, "conflict")}, {"unexplained 400", pt.Status(400, "bad")}} {
		s.wire(c.name+" without lookup", func(t *testing.T, store settle.Store) {
			r, p, x := start(t, store, settle.NoLookup)
			r.Provider.Script(pt.DropReply(), c.step)
			out, err := x.Execute(t.Context(), op("tok_A"))
			rig.Is(t, err, settle.ErrUnknown)
			_, err = p.Reconcile(t.Context(), out.ID)
			rig.OK(t, err)
			r.State(out.ID, settle.StateUnknown) // never failed, and never a fresh key
			_, err = p.Reconcile(t.Context(), out.ID)
			rig.OK(t, err)
			rec := r.State(out.ID, settle.StateSucceeded)
			r.Ledger(3, map[string]int{out.ID: 1})
			sameBytes(t, r, rec)
		})
		s.wire(c.name+" as the first answer, with lookup", func(t *testing.T, store settle.Store) {
			// The request that the provider speaks of may be ours: asked for, not failed.
			r, p, x := start(t, store, settle.Authoritative)
			r.Provider.Script(c.step)
			out, err := x.Execute(t.Context(), op("tok_A"))
			rig.Is(t, err, settle.ErrUnknown)
			r.Ledger(1, map[string]int{out.ID: 0})
			_, err = p.Reconcile(t.Context(), out.ID)
			rig.OK(t, err)
			rec := r.State(out.ID, settle.StateSucceeded)
			r.Ledger(2, map[string]int{out.ID: 1})
			sameBytes(t, r, rec)
		})
	}
	s.wire("the credential expired before anything left", func(t *testing.T, store settle.Store) {
		// T-35: while nothing may have left a repeat brings its fresh credential.
		r, _, x := start(t, store, settle.NoLookup)
		r.Provider.Script(pt.Status(401, "expired"))
		first, err := x.Execute(t.Context(), op("tok_A"))
		rig.Is(t, err, settle.ErrWaiting)
		_, err = x.Execute(t.Context(), op("tok_B"))
		rig.OK(t, err)
		r.Ledger(2, map[string]int{first.ID: 1})
		if got := r.Provider.Requests()[1].Extra["token"]; got != "tok_B" {
			t.Errorf("the second request left with %s, the first was proven without effect: want tok_B", got)
		}
	})
}

// IC-05: a slow success is not a failure. Every further call meets the same operation,
// nothing rotates the key, and there is one credit.
func slowIsNotFailed(s suite) {
	s.bubble("the caller clicks again", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Promise.Deadline = time.Minute
		r.Provider.Script(pt.Slow(40 * time.Second))
		credits := 0
		x := &settle.ExecutorOptions[pt.Payment, pt.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[pt.Receipt]) error { credits++; return nil },
		}
		a, b := r.StartWith(nil, x), r.StartWith(nil, x)
		var id string
		for i, p := range []*rig.Process{a, a, b, a} { // 0 s, 10 s, 20 s and at once again, 20 s
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			out, err := p.Charges.Execute(ctx, rig.Op("topup", 1000, "EUR"))
			cancel()
			rig.Is(t, err, settle.ErrPending)
			rig.Not(t, err, settle.ErrFailed, settle.ErrCanceled)
			if out.Next != settle.NextWait {
				t.Errorf("call %d is told to %q, want wait", i+1, out.Next)
			}
			if id == "" {
				id = out.ID
			}
			if out.ID != id {
				t.Errorf("call %d met operation %q, want %q", i+1, out.ID, id)
			}
		}
		retry := rig.Op("topup", 1000, "EUR")
		retry.Replaces = id
		_, err := b.Charges.Execute(t.Context(), retry)
		rig.Is(t, err, settle.ErrConflict) // it did not fail, so there is no next try
		r.Ledger(1, nil)
		rig.After(20 * time.Second)
		r.State(id, settle.StateSucceeded)
		for range 2 { // the success is told twice
			_, err := b.Reconcile(t.Context(), id)
			rig.OK(t, err)
		}
		out, err := b.Charges.Execute(t.Context(), rig.Op("topup", 1000, "EUR"))
		rig.OK(t, err)
		if !out.Replayed || credits != 1 {
			t.Errorf("replayed %v, %d credits; want true and 1", out.Replayed, credits)
		}
		r.Ledger(1, map[string]int{id: 1})
	})
	for _, c := range []struct {
		name  string
		steps []pt.Step
	}{
		{"a 5xx after the charge", []pt.Step{pt.StatusAfter(500, "oops")}},
		{"no answer at all", []pt.Step{pt.HangAfter(nil)}},
		{"an unreadable answer", []pt.Step{pt.Garbled()}},
	} {
		s.bubble(c.name+", and polls that run out", func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, &pt.Options{KeyWindow: day, CacheOnlySuccess: true})
			r.Provider.Script(c.steps...)
			r.Provider.ScriptLookup(pt.HangBefore(nil), pt.Status(500, ""), pt.HangBefore(nil))
			p := r.Start(nil)
			out, err := p.Charges.Execute(t.Context(), rig.Op("topup", 1000, "EUR"))
			rig.Is(t, err, settle.ErrPending)
			key := out.ProviderKey
			p.Work()
			rig.After(5 * time.Minute)
			rec := r.State(out.ID, settle.StateSucceeded)
			if rec.ProviderKey != key {
				t.Error("the key was rotated")
			}
			r.Ledger(r.Sends(), map[string]int{out.ID: 1})
			sameBytes(t, r, rec)
		})
	}
	s.bubble("only a definite refusal lets a new try through", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Provider.Script(pt.Decline("card_declined"))
		p := r.Start(nil)
		op := rig.Op("topup", 1000, "EUR")
		first, err := p.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrFailed)
		op.Replaces = first.ID
		second, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		if second.ProviderKey == first.ProviderKey {
			t.Error("the next try has the key of the one that was refused: the provider would replay the refusal")
		}
		r.Ledger(2, map[string]int{first.ID: 0, second.ID: 1})
	})
}

// IC-06: a deadline after bytes may have left is Unknown, never Failed; a refused dial is
// a definite "not sent".
func deadlineIsNotFailure(s suite) {
	s.wire("the request's deadline", func(t *testing.T, store settle.Store) {
		release := make(chan struct{})
		r := rig.New(t, store, keyed())
		r.Promise.Deadline = 50 * time.Millisecond // the time-out that the case is about; nothing is hurried by it
		r.Serve()
		r.Provider.Script(pt.HangBefore(release))
		a, b := r.Start(nil), r.Start(nil)
		out, err := a.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		rig.Not(t, err, settle.ErrFailed)
		if out.Next != settle.NextWait {
			t.Errorf("the caller is told to %q, want wait", out.Next)
		}
		// The request is still at the provider. A click now, here and elsewhere, sends nothing.
		for _, p := range []*rig.Process{a, b} {
			again, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.Is(t, err, settle.ErrPending)
			if again.ID != out.ID {
				t.Error("the second call met another operation")
			}
		}
		r.Ledger(1, map[string]int{out.ID: 0})
		close(release)
		_, err = b.Reconcile(t.Context(), out.ID)
		rig.OK(t, err)
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	s.wire("the caller's deadline", func(t *testing.T, store settle.Store) {
		release, arrived := make(chan struct{}), make(chan struct{})
		o := keyed()
		o.OnCreate = func(pt.Request) { close(arrived) } // one request, or it panics
		r := rig.New(t, store, o)
		r.Serve()
		r.Provider.Script(pt.HangAfter(release))
		a, b := r.Start(nil), r.Start(nil)
		ctx, cancel := context.WithCancel(t.Context())
		first := rig.Execute(ctx, a.Charges, rig.Op("order-1", 100, "EUR"))
		<-arrived
		cancel()
		ans := first()
		rig.Is(t, ans.Err, settle.ErrPending, context.Canceled)
		rig.Not(t, ans.Err, settle.ErrFailed, settle.ErrCanceled)
		out, err := b.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrInProgress)
		if out.ID != ans.Out.ID {
			t.Error("the second call met another operation")
		}
		close(release)
		rig.OK(t, a.Drain(t.Context())) // the request that nobody waits for is recorded
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	s.wire("a deadline that has passed already", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Serve()
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		_, err := r.Start(nil).Charges.Execute(ctx, rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, context.DeadlineExceeded)
		rig.Not(t, err, settle.ErrFailed)
		r.Ledger(0, nil)
	})
	s.wire("dial refused", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		server := r.Serve()
		addr := server.Listener.Addr().String()
		server.Close()
		p := r.Start(nil)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrWaiting)
		rig.Not(t, err, settle.ErrUnknown, settle.ErrFailed)
		if out.Next != settle.NextRetry || len(out.Attempts) != 1 || out.Attempts[0].Fate != settle.FateNotSent {
			t.Errorf("next %q, attempts %+v; want retry after one that was not sent", out.Next, out.Attempts)
		}
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", addr)
		rig.OK(t, err)
		back := httptest.NewUnstartedServer(r.Provider.Handler())
		rig.OK(t, back.Listener.Close())
		back.Listener = l
		back.Start()
		t.Cleanup(back.Close)
		again, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR")) // at once
		rig.OK(t, err)
		if again.ID != out.ID || again.ProviderKey != out.ProviderKey {
			t.Error("the retry is another operation")
		}
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	s.bubble("applied a second after the deadline, found at 60 s", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		r.Promise.Deadline = 30 * time.Second
		r.Provider.Script(pt.Slow(31 * time.Second))
		a, b := r.Start(nil), r.Start(nil)
		out, err := a.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR")) // returns at 30 s
		rig.Is(t, err, settle.ErrUnknown)
		rig.After(500 * time.Millisecond)
		_, err = b.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		r.Ledger(1, map[string]int{out.ID: 0})
		rig.After(29500 * time.Millisecond)
		_, err = b.Reconcile(t.Context(), out.ID)
		rig.OK(t, err)
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
}
