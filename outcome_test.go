package settle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

// A key that the application gives is bound to its intent, both ways.
func TestGivenKey(t *testing.T) {
	t.Parallel()
	op := func(order, key string) settle.Operation[rig.Payment] {
		o := rig.Op(order, 100, "EUR")
		o.Key = key
		return o
	}
	inBubbleVariants := map[string]struct {
		first, second settle.Operation[rig.Payment]
		want          error
	}{
		"same key":                      {op("order-1", "k1"), op("order-1", "k1"), nil},
		"another key for the intent":    {op("order-1", "k1"), op("order-1", "k2"), settle.ErrConflict},
		"the key for another intent":    {op("order-1", "k1"), op("order-2", "k1"), settle.ErrConflict},
		"no key for a keyed intent":     {op("order-1", "k1"), op("order-1", ""), nil}, // the intent names it
		"a key for an unkeyed intent":   {op("order-1", ""), op("order-1", "k1"), settle.ErrConflict},
		"keys that differ in case":      {op("order-1", "k1"), op("order-2", "K1"), nil},
		"keys that differ in an accent": {op("order-1", "caf\u00e9"), op("order-2", "cafe"), nil},
	}
	for name, c := range inBubbleVariants {
		variant(t, name, keyed(), func(t *testing.T, r *rig.Rig) {
			p := r.Start(nil)
			first, err := p.Charges.Execute(t.Context(), c.first)
			rig.OK(t, err)
			out, err := p.Charges.Execute(t.Context(), c.second)
			if c.want == nil {
				rig.OK(t, err)
				if same := c.first.Subject == c.second.Subject; (out.ID == first.ID) != same {
					t.Errorf("%v and %v", first, out)
				}
				return
			}
			own := rig.Refused(t, out, err, c.want, "Key")
			if own.ID != first.ID || own.State != settle.StateSucceeded {
				t.Errorf("the conflict tells of %q in state %s", own.ID, own.State)
			}
			_, err = p.Charges.Register(t.Context(), c.second)
			rig.Typed(t, err, c.want, "Key")
			r.Ledger(1, map[string]int{first.ID: 1})
		})
	}
}

// An adapter that ignores the key is stopped after its first positive answer.
func TestAdapterThatIgnoresTheKey(t *testing.T) {
	t.Parallel()
	mute := func(api pt.API, promise settle.Contract) settle.Adapter[rig.Payment, rig.Receipt] {
		a := pt.ChargeAdapter(api, promise)
		a.SubmitFunc = func(ctx context.Context, c *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
			o, err := api.Create(ctx, pt.Request{Kind: pt.KindCharge, Reference: c.ID, Account: promise.Account.Account, Amount: c.Request.Amount, Currency: c.Request.Currency})
			if err != nil {
				return settle.Observation[rig.Receipt]{}, err
			}
			return settle.Observation[rig.Receipt]{Fact: settle.Applied, Ref: o.ID, Terms: c.Terms}, nil
		}
		return a
	}
	variant(t, "the first answer", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Bare(nil)
		x, err := settle.New(p.Engine, rig.KindCharge, mute(p.API, r.Promise), nil)
		rig.OK(t, err)
		first, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err) // the effect is confirmed all the same
		second, err := x.Execute(t.Context(), rig.Op("order-2", 100, "EUR"))
		own := rig.Typed(t, err, settle.ErrReview)
		if own.Code != settle.ReasonMute || second.ID == "" {
			t.Errorf("%v: %q", second, own.Code)
		}
		p.Work()
		rig.After(time.Hour)
		r.Ledger(1, map[string]int{first.ID: 1, second.ID: 0}) // nothing is sent any more
		rec := r.State(second.ID, settle.StateReview)
		if rec.Attempts[0].Fate != settle.FateNotSent {
			t.Errorf("attempts %+v", rec.Attempts)
		}
		// A process with a right adapter goes on once a person says so.
		q := r.Start(nil)
		p.Kill()
		q.Work()
		_, err = q.Resolve(t.Context(), second.ID, settle.Decision{Actor: "ann", Reason: "fixed", Evidence: "release 2", Resume: true})
		rig.OK(t, err)
		rig.After(time.Minute)
		r.State(second.ID, settle.StateSucceeded)
	})
	variant(t, "a lost reply is never resent without the key", keyed(), func(t *testing.T, r *rig.Rig) {
		// The worst case: the first request of the process is lost, so nobody has
		// noticed yet that the adapter sends no key.
		r.Promise.Lookup = settle.NoLookup
		r.Provider.Script(pt.DropReply())
		p := r.Bare(nil)
		x, err := settle.New(p.Engine, rig.KindCharge, mute(p.API, r.Promise), nil)
		rig.OK(t, err)
		out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrPending)
		p.Work()
		rig.After(10 * time.Minute)
		r.Ledger(1, map[string]int{out.ID: 1})
	})
	variant(t, "no keys promised, none asked for", &pt.Options{}, func(t *testing.T, r *rig.Rig) {
		p := r.Bare(nil)
		x, err := settle.New(p.Engine, rig.KindCharge, mute(p.API, r.Promise), nil)
		rig.OK(t, err)
		for i := range 3 {
			_, err = x.Execute(t.Context(), rig.Op(fmt.Sprintf("order-%d", i), 100, "EUR"))
			rig.OK(t, err)
		}
		r.Ledger(3, nil)
	})
}

// Result is false unless the effect is confirmed, not undone, and its result reported.
func TestOutcomeResult(t *testing.T) {
	t.Parallel()
	for state, steps := range map[settle.State][]pt.Step{
		settle.StateSucceeded:      nil,
		settle.StateUnknown:        {pt.DropReply()},
		settle.StateFailed:         {pt.Decline("no")},
		settle.StateProcessing:     {pt.Processing()},
		settle.StateActionRequired: {pt.ActionRequired()},
		settle.StateReview:         {pt.WrongAmount(1)},
		settle.StateCreated:        {pt.RateLimit(time.Hour)},
	} {
		variant(t, string(state), keyed(), func(t *testing.T, r *rig.Rig) {
			r.Provider.Script(steps...)
			if state == settle.StateUnknown {
				r.Provider.ScriptLookup(pt.Status(500, ""))
			}
			p := r.Start(nil)
			for range 2 {
				out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
				r.State(out.ID, state)
				res, ok := out.Result()
				good := state == settle.StateSucceeded
				if ok != good || (err == nil) != good || (res != rig.Receipt{}) != good {
					t.Errorf("result %+v, %v with error %v", res, ok, err)
				}
				if own := new(settle.Error); errors.As(err, &own) && out.Next != own.Next() {
					t.Errorf("the outcome says %q, the error %q", out.Next, own.Next())
				}
				rec, err2 := p.Charges.Find(t.Context(), rig.Intent("order-1"))
				rig.OK(t, err2) // a read says nothing about the effect
				again, err2 := p.Charges.Outcome(rec)
				if (err2 == nil) != (err == nil) || errors.Is(err2, settle.ErrPending) != errors.Is(err, settle.ErrPending) || (rec.Err() == nil) != good {
					t.Errorf("Execute says %v, the record's verdict is %v and %v", err, err2, rec.Err())
				}
				if res2, ok2 := again.Result(); ok2 != ok || res2 != res {
					t.Errorf("the record's result is %+v, %v", res2, ok2)
				}
				if state == settle.StateUnknown {
					return // the next call would ask
				}
			}
		})
	}
	variant(t, "undone in part and wholly", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		charge, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		effect := settle.Effect{Operation: charge.ID}
		_, err = p.Refunds.Compensate(t.Context(), effect, "part", rig.Refund{Amount: 30, Currency: "EUR"})
		rig.OK(t, err)
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		if _, ok := out.Result(); !ok {
			t.Error("no result although the effect stands in part")
		}
		if e := out.Effects()[0]; !e.Returned.Equal(settle.Minor(30, "EUR")) || !e.Left().Equal(settle.Minor(70, "EUR")) {
			t.Errorf("the effect is %+v", e)
		}
		_, err = p.Refunds.Compensate(t.Context(), effect, "rest", rig.Refund{Amount: 70, Currency: "EUR"})
		rig.OK(t, err)
		out, err = p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrCompensated)
		if _, ok := out.Result(); ok || out.Next != settle.NextStop {
			t.Errorf("a result although it is undone; next %q", out.Next)
		}
	})
	variant(t, "a repeated compensation replays", keyed(), func(t *testing.T, r *rig.Rig) {
		// "The same call again is the same compensation", also when nothing is left.
		p := r.Start(nil)
		charge, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		effect := settle.Effect{Operation: charge.ID}
		for _, req := range []rig.Refund{{Amount: 60, Currency: "EUR"}, {Amount: 40, Currency: "EUR"}} {
			reason := fmt.Sprintf("return of %d", req.Amount)
			first, err := p.Refunds.Compensate(t.Context(), effect, reason, req)
			rig.OK(t, err)
			again, err := p.Refunds.Compensate(t.Context(), effect, reason, req)
			rig.OK(t, err)
			if again.ID != first.ID || !again.Replayed {
				t.Errorf("%v, then %v", first, again)
			}
			other := req
			other.Amount--
			out, err := p.Refunds.Compensate(t.Context(), effect, reason, other)
			rig.Refused(t, out, err, settle.ErrMismatch, "/amount") // the same reason, another amount
		}
		out, err := p.Refunds.Compensate(t.Context(), effect, "one more", rig.Refund{Amount: 1, Currency: "EUR"})
		rig.Refused(t, out, err, settle.ErrExceeds)
		r.Ledger(3, map[string]int{charge.ID: 1})
	})
	variant(t, "printing shows no data", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		op := rig.Op("order-1", 7777, "EUR")
		op.Request.Token = "tok_secret"
		out, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			for _, v := range []any{out, out.Record, &out, out.Request, []any{out}} {
				if s := fmt.Sprintf(verb, v); strings.Contains(s, "7777") || strings.Contains(s, "secret") || strings.Contains(s, out.ProviderKey) {
					t.Errorf("%s of a %T shows data: %s", verb, v, s) // I16
				}
			}
		}
	})
}

// What a provider says goes into every store, so it must be text that each can keep.
func TestTextsOfTheProvider(t *testing.T) {
	t.Parallel()
	long := "x" + strings.Repeat("\u00e9", 4096) // any cut by bytes at an even length splits a rune
	for name, text := range map[string]string{"long": long, "NUL": "a\x00b", "invalid UTF-8": "a\xffb", "one": "kept"} {
		for _, fact := range []settle.Fact{settle.Declined, settle.NeedsAction} {
			variant(t, name+" "+string(fact), keyed(), func(t *testing.T, r *rig.Rig) {
				p := r.Bare(nil)
				a := pt.ChargeAdapter(p.API, r.Promise)
				a.SubmitFunc = func(_ context.Context, c *settle.Call[rig.Payment]) (settle.Observation[rig.Receipt], error) {
					c.Key()
					return settle.Observation[rig.Receipt]{Fact: fact, Ref: "ch_1", Code: text, Message: text, Action: text}, nil
				}
				x, err := settle.New(p.Engine, rig.KindCharge, a, nil)
				rig.OK(t, err)
				out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
				if fact == settle.Declined {
					rig.Is(t, err, settle.ErrFailed)
				} else {
					rig.Is(t, err, settle.ErrActionRequired)
				}
				rec := r.Get(out.ID)
				texts := []string{rec.Code, rec.Message}
				if rec.Progress != nil {
					texts = append(texts, rec.Progress.Action)
				}
				for _, s := range texts {
					if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
						t.Errorf("stored is %d bytes of text that not every store can keep: %.20q…", len(s), s)
					}
				}
				if name == "one" && fact == settle.Declined && (rec.Message != text || rec.Code != text) {
					t.Errorf("a plain text was changed to %q, %q", rec.Code, rec.Message)
				}
			})
		}
	}
}

// Pages, filters, and a caller that stops early.
func TestListAndHistory(t *testing.T) {
	t.Parallel()
	variant(t, "paging", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		const n = 250 // three pages
		want := map[string]bool{}
		for i := range n {
			rec, err := p.Charges.Register(t.Context(), rig.Op(fmt.Sprintf("order-%03d", i), 100, "EUR"))
			rig.OK(t, err)
			want[rec.ID] = true
		}
		read := func(q settle.Query, stop int) []string {
			t.Helper()
			var ids []string
			for rec, err := range p.List(t.Context(), q) {
				rig.OK(t, err)
				if len(ids) > 0 && rec.ID <= ids[len(ids)-1] {
					t.Errorf("%s after %s", rec.ID, ids[len(ids)-1])
				}
				ids = append(ids, rec.ID)
				if len(ids) == stop {
					break
				}
			}
			return ids
		}
		all := read(settle.Query{}, 0)
		if len(all) != n {
			t.Errorf("%d of %d", len(all), n)
		}
		for _, id := range all {
			if !want[id] {
				t.Errorf("%s was never stored", id)
			}
		}
		for _, stop := range []int{1, 99, 100, 101, 200, 249} {
			if got := read(settle.Query{}, stop); len(got) != stop {
				t.Errorf("stopped at %d, got %d", stop, len(got))
			}
			if got := read(settle.Query{Limit: stop}, 0); len(got) != stop {
				t.Errorf("limited to %d, got %d", stop, len(got))
			}
			if got := read(settle.Query{After: all[stop-1]}, 0); len(got) != n-stop || got[0] != all[stop] {
				t.Errorf("after %d: got %d", stop, len(got))
			}
		}
		for name, q := range map[string]settle.Query{
			"another scope": {Scope: "nobody"}, "another kind": {Kind: "refund"}, "another subject": {Subject: "order-9"},
			"another state": {States: []settle.State{settle.StateSucceeded}}, "after the last": {After: all[n-1]},
		} {
			if got := read(q, 0); len(got) != 0 {
				t.Errorf("%s: got %d", name, len(got))
			}
		}
		if got := read(settle.Query{Scope: rig.Scope, Kind: rig.KindCharge, Subject: "order-007", States: []settle.State{settle.StateCreated}}, 0); len(got) != 1 {
			t.Errorf("one of them: got %d", len(got))
		}
	})
	variant(t, "states as they are now", keyed(), func(t *testing.T, r *rig.Rig) {
		// The worker died: what the row says is submitting is unknown by now.
		r.Provider.Script(pt.HangAfter(nil))
		p, q := r.Start(nil), r.Start(nil)
		first := rig.Execute(t.Context(), p.Charges, rig.Op("order-1", 100, "EUR"))
		rig.After(time.Second)
		count := func(s settle.State) (n int) {
			for rec, err := range q.List(t.Context(), settle.Query{States: []settle.State{s}}) {
				rig.OK(t, err)
				if rec.State != s {
					t.Errorf("asked for %s, got %s", s, rec.State)
				}
				n++
			}
			return n
		}
		if count(settle.StateSubmitting) != 1 || count(settle.StateUnknown) != 0 {
			t.Error("in flight it is submitting")
		}
		p.Kill()
		rig.After(time.Minute)
		if count(settle.StateSubmitting) != 0 || count(settle.StateUnknown) != 1 {
			t.Error("when the lease has ended it is unknown")
		}
		first()
	})
	variant(t, "history", keyed(), func(t *testing.T, r *rig.Rig) {
		for range 150 {
			r.Provider.Script(pt.RateLimit(time.Second))
		}
		p := r.Start(&settle.Options{PollInterval: 10 * time.Second})
		rec, err := p.Charges.Register(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		p.Work()
		rig.After(24 * time.Hour)
		now := r.State(rec.ID, settle.StateSucceeded)
		all := r.History(rec.ID)
		if len(all) < 250 || all[0].Seq != 1 || all[len(all)-1].Seq != now.Version {
			t.Errorf("%d entries up to version %d", len(all), now.Version)
		}
		refused := 0
		for i, x := range all {
			if i > 0 && x.Seq <= all[i-1].Seq || x.Operation != rec.ID {
				t.Fatalf("entry %+v after %+v", x, all[i-1])
			}
			if x.Fact == settle.NotApplied {
				refused++
			}
		}
		if refused != 150 { // I12, although the record keeps only the last few attempts
			t.Errorf("%d refusals are in the history, want 150", refused)
		}
		for _, stop := range []int{1, 99, 100, 101} {
			n := 0
			for _, err := range p.History(t.Context(), rec.ID) {
				rig.OK(t, err)
				if n++; n == stop {
					break
				}
			}
			if n != stop {
				t.Errorf("stopped at %d, got %d", stop, n)
			}
		}
		for x, err := range p.History(t.Context(), "no-such-id") {
			t.Errorf("an unknown id has %+v, %v", x, err)
		}
	})
	variant(t, "a store that fails", keyed(), func(t *testing.T, r *rig.Rig) {
		p := r.Start(nil)
		rec, err := p.Charges.Register(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		p.Store.Cut()
		n := 0
		for got, err := range p.List(t.Context(), settle.Query{}) {
			n++
			rig.Is(t, err, settle.ErrStore, rig.ErrDown)
			if got.ID != "" {
				t.Error("a record with an error")
			}
		}
		for _, err := range p.History(t.Context(), rec.ID) {
			n++
			rig.Is(t, err, settle.ErrStore, rig.ErrDown)
		}
		if n != 2 {
			t.Errorf("%d errors, want one each", n)
		}
		_, err = p.Get(t.Context(), rec.ID)
		rig.Typed(t, err, settle.ErrStore)
		p.Store.Mend()
	})
}
