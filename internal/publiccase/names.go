package publiccase

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
)

// IC-14: kind and scope are part of the identity, at the provider too (T-01).
func kindsAndTenants(s suite) {
	type empty struct{}
	result := func(kind string) func([]byte) raw { return func([]byte) raw { return raw(`"` + kind + `"`) } }
	for _, drift := range []pt.Drift{pt.DriftDetect, pt.DriftIgnore} {
		s.bubble("two kinds, provider drift "+string(drift), func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, &pt.Options{KeyWindow: day, Drift: drift})
			p := r.Bare(nil)
			xs := map[string]*settle.Executor[empty, raw]{}
			for _, kind := range []string{"charge", "refund"} {
				xs[kind] = rig.Raw[empty](p, kind, nil, result(kind))
			}
			op := settle.Operation[empty]{Subject: "s", Purpose: "p", Key: "123"}
			for round := range 2 {
				wait := map[string]func() rig.Answer[raw]{}
				for kind, x := range xs {
					wait[kind] = rig.Execute(t.Context(), x, op)
				}
				ids := map[string]bool{}
				for kind, w := range wait {
					ans := w()
					rig.OK(t, ans.Err)
					if res, ok := ans.Out.Result(); !ok || string(res) != `"`+kind+`"` {
						t.Errorf("%s was answered with %s", kind, res)
					}
					if ans.Out.Replayed != (round == 1) {
						t.Errorf("round %d: replayed %v", round, ans.Out.Replayed)
					}
					ids[ans.Out.ID] = true
				}
				if len(ids) != 2 {
					t.Errorf("%d operations, want 2", len(ids))
				}
			}
			r.Ledger(2, nil)
			if l := r.Provider.Ledger(); len(l) != 2 || l[0].Key == l[1].Key {
				t.Errorf("the provider has %+v, want two effects under two keys", l)
			}
		})
	}
	s.bubble("two tenants", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, &pt.Options{KeyWindow: day, Drift: pt.DriftIgnore})
		x := rig.Raw[raw](r.Bare(nil), "charge", nil, func(b []byte) raw { return slices.Clone(b) })
		for round := range 2 {
			for i, tenant := range []string{"acme", "beta", "acme2", "ACME"} {
				op := rawOp("order-17", fmt.Sprintf(`{"n":%d}`, i))
				op.Scope, op.Key = tenant, "123"
				out, err := x.Execute(t.Context(), op)
				rig.OK(t, err)
				if res, ok := out.Result(); !ok || string(res) != string(op.Request) || out.Scope != tenant {
					t.Errorf("round %d: %s sees %s of %s", round, tenant, res, out.Scope)
				}
			}
		}
		r.Ledger(4, nil)
	})
	s.bubble("names that meet when glued together", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, &pt.Options{KeyWindow: day, Drift: pt.DriftIgnore})
		x := rig.Raw[raw](r.Bare(nil), "charge", nil, func(b []byte) raw { return slices.Clone(b) })
		keys := map[string]bool{}
		for i, in := range [][3]string{{"a", "bc", "d"}, {"ab", "c", "d"}, {"a", "b", "cd"}, {"a", "b:c", "d"}, {"a:b", "c", "d"}, {"a", "bc", "d0"}} {
			op := rawOp(in[1], fmt.Sprintf(`{"n":%d}`, i))
			op.Scope, op.Purpose = in[0], in[2]
			out, err := x.Execute(t.Context(), op)
			rig.OK(t, err)
			if res, _ := out.Result(); string(res) != string(op.Request) || keys[out.ProviderKey] {
				t.Errorf("%v got the answer %s under the key %q", in, res, out.ProviderKey)
			}
			keys[out.ProviderKey] = true
		}
	})
	s.bubble("a key that is another's hash", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, &pt.Options{KeyWindow: day, KeyMaxLen: 40, Drift: pt.DriftIgnore})
		x := rig.Raw[raw](r.Bare(nil), "charge", nil, func(b []byte) raw { return slices.Clone(b) })
		op := rawOp("order-1", `{"n":1}`)
		op.Key = strings.Repeat("k", 200)
		first, err := x.Execute(t.Context(), op)
		rig.OK(t, err)
		op = rawOp("order-2", `{"n":2}`)
		op.Key = first.ProviderKey
		second, err := x.Execute(t.Context(), op)
		rig.OK(t, err)
		if res, _ := second.Result(); string(res) != `{"n":2}` || second.ProviderKey == first.ProviderKey {
			t.Errorf("the second was answered with %s", res)
		}
		r.Ledger(2, map[string]int{first.ID: 1, second.ID: 1})
	})
	s.bubble("a finisher overwrites nothing that it does not own", func(t *testing.T, store settle.Store) {
		// The reference of one operation is reported as another's: never merged as its effect.
		r := rig.New(t, store, keyed())
		p := r.Bare(nil)
		a := rig.RawAdapter[raw, raw](p.API, r.Promise, nil)
		submit := a.SubmitFunc
		a.SubmitFunc = func(ctx context.Context, c *settle.Call[raw]) (settle.Observation[raw], error) {
			o, err := submit(ctx, c)
			o.Ref = "ch_1"
			return o, err
		}
		a.LookupFunc = a.SubmitFunc // the provider insists
		x, err := settle.New(p.Engine, "charge", a, nil)
		rig.OK(t, err)
		first, err := x.Execute(t.Context(), rawOp("order-1", `{"n":1}`))
		rig.OK(t, err)
		second, err := x.Execute(t.Context(), rawOp("order-2", `{"n":2}`))
		rig.Is(t, err, settle.ErrReview)
		rec := r.State(second.ID, settle.StateReview)
		if rig.Reason(rec) != settle.ReasonForeign || !slices.Contains(rec.Alarms(), settle.AlarmForeign) {
			t.Errorf("review %q, alarms %v", rig.Reason(rec), rec.Alarms())
		}
		if now := r.State(first.ID, settle.StateSucceeded); now.Version != first.Version {
			t.Error("the first record was written to")
		}
	})
}

// IC-36: keys are kept exactly, limits are bytes, and a shorter limit of the provider
// is met by a stored hash, never by cutting.
func longKeys(s suite) {
	rune4 := strings.Repeat("\U0001F600", 63) + "abc"
	if len(rune4) != settle.MaxKey {
		panic("the key must be as long as allowed")
	}
	for _, limit := range []int{0, 32, 36, 40, 45, 64, 108, 255} {
		s.bubble(fmt.Sprintf("provider limit %d", limit), func(t *testing.T, store settle.Store) {
			r := rig.New(t, store, &pt.Options{KeyWindow: day, KeyMaxLen: limit})
			p := r.Start(nil)
			used := map[string]string{}
			n := 0
			for _, key := range []string{
				strings.Repeat("k", 43), strings.Repeat("k", 42) + "l", strings.Repeat("k", 40), "k", rune4,
				strings.Repeat("\U0001F600", 63) + "abd", strings.Repeat("x", 255), strings.Repeat("x", 254) + "y",
			} {
				n++
				op := rig.Op(fmt.Sprintf("order-%d", n), 100, "EUR")
				op.Key = key
				out, err := p.Charges.Execute(t.Context(), op)
				rig.OK(t, err)
				rec := r.Get(out.ID)
				if rec.Key != key {
					t.Errorf("stored is %q, given was %q", rec.Key, key)
				}
				if limit > 0 && len(rec.ProviderKey) > limit || rec.ProviderKey == "" {
					t.Errorf("the provider key %q does not fit %d", rec.ProviderKey, limit)
				}
				if other, ok := used[rec.ProviderKey]; ok {
					t.Errorf("%q and %q share the provider key %q", key, other, rec.ProviderKey)
				}
				used[rec.ProviderKey] = key
				again, err := p.Charges.Execute(t.Context(), op)
				rig.OK(t, err)
				if !again.Replayed || again.ID != out.ID {
					t.Error("the same long key is another operation")
				}
				r.Ledger(n, map[string]int{out.ID: 1})
			}
		})
	}
	s.bubble("one byte too many", func(t *testing.T, store settle.Store) {
		r := rig.New(t, store, keyed())
		p := r.Start(nil)
		for _, key := range []string{rune4 + "d", strings.Repeat("k", 256), strings.Repeat("\U0001F600", 64)} {
			op := rig.Op("order-1", 100, "EUR")
			op.Key = key
			out, err := p.Charges.Execute(t.Context(), op)
			rig.Refused(t, out, err, settle.ErrInvalid, "Key")
		}
		if all := r.All(); len(all) > 0 {
			t.Errorf("stored all the same: %v", all)
		}
		r.Ledger(0, nil)
	})
	s.bubble("the mapping of the first attempt stays", func(t *testing.T, store settle.Store) {
		// A later version of the program knows another limit: the stored key is sent.
		r := rig.New(t, store, keyed())
		r.Promise.Keys.MaxLen, r.Promise.Lookup = 40, settle.NoLookup
		r.Provider.Script(pt.DropReply())
		op := rig.Op("order-1", 100, "EUR")
		op.Key = strings.Repeat("k", 43)
		a := r.Start(nil)
		out, err := a.Charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrUnknown)
		a.Kill()
		r.Promise.Keys.MaxLen = 255
		b := r.Start(nil)
		_, err = b.Reconcile(t.Context(), out.ID)
		rig.OK(t, err)
		rec := r.State(out.ID, settle.StateSucceeded)
		r.Ledger(2, map[string]int{out.ID: 1})
		sameBytes(t, r, rec)
		if len(rec.ProviderKey) > 40 {
			t.Errorf("the key of the first attempt has %d characters", len(rec.ProviderKey))
		}
	})
}
