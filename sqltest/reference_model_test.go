package sqltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

// alike is one of two stores that are given the same changes, and what they answered last of each record.
type alike struct {
	settle.Store
	last map[string]settle.Record
}

// plannedWrite is a write before it is known which version it replaces: that is the store's to say.
type plannedWrite struct {
	id    string
	stale bool
	dueIn time.Duration
	edit  func(r *settle.Record)
}

func (a *alike) change(id string, planned []plannedWrite) settle.Change {
	c := settle.Change{ID: id}
	mine := map[string]settle.Record{}
	for _, p := range planned {
		r, again := mine[p.id]
		if !again {
			r = a.last[p.id]
		}
		w := settle.Write{IfVersion: r.Version, DueIn: p.dueIn, Record: r.Clone()}
		if r.ID == "" {
			w.Record = created("")
			w.Record.ID = p.id
		}
		p.edit(&w.Record)
		if p.stale && !again && r.Version > 0 {
			w.IfVersion += 7
		}
		c.Writes = append(c.Writes, w)
		w.Record.Version = w.IfVersion + 1
		mine[p.id] = w.Record
	}
	return c
}

// commit makes the change and tells what came of it in words.
func (a *alike) commit(t *testing.T, c settle.Change) string {
	out, err := a.Commit(t.Context(), c)
	var conflict *settle.ConflictError
	switch {
	case errors.As(err, &conflict):
		return fmt.Sprintf("conflict over %q with %s", conflict.Index, conflict.Existing.ID)
	case err != nil:
		return fmt.Sprintf("error %v, not found %v", err, errors.Is(err, settle.ErrNotFound))
	}
	text := "ok"
	for _, r := range out {
		a.last[r.ID] = r
		text += fmt.Sprintf(" %s v%d %q", r.ID, r.Version, r.Names())
	}
	return text
}

// TestLikeTheReference: random changes of one to three writes, in which keys, intents, holds and references are taken, handed on, given up,
// put in another order, moved to another account or kind, foreign, or not text, are answered as memstore answers them, and leave the same names.
func TestLikeTheReference(t *testing.T) {
	odd := mariaDatabase()
	odd.name = "MySQL, latin1, serializable, interpolated, found rows"
	odd.fresh = func(tb testing.TB) string {
		cfg := mysqlDatabase(tb)
		cfg.InterpolateParams, cfg.ClientFoundRows = true, true
		cfg.Params["charset"] = "latin1"
		cfg.Params[mysqlNames(tb).isolation] = "'SERIALIZABLE'"
		return cfg.FormatDSN()
	}
	steps := 150
	if everyWay {
		steps = 1500
	}
	onEach(t, append(databases(), odd), func(t *testing.T, d database) {
		seed := uint64(time.Now().UnixNano())
		t.Log("seed", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		pick := func(of ...string) string { return of[rng.IntN(len(of))] }
		one := func(in int) bool { return rng.IntN(in) == 0 }
		_, s := d.open(t, d.fresh(t), nil)
		sides := []*alike{{memstore.New(nil), map[string]settle.Record{}}, {s, map[string]settle.Record{}}}
		accounts, kinds, refs := []string{"account-1", "account-1", "account-2"}, []string{"charge", "refund"}, []string{"a", "b", "c", "d", "\xff\x00\xfe", ""}
		plan := func() (p plannedWrite) {
			n := rng.IntN(4)
			p.id = fmt.Sprintf("0192b8f4-7a6c-7000-8000-%012d", n)
			p.stale, p.dueIn = one(30), []time.Duration{time.Hour, settle.Never, settle.Keep}[rng.IntN(3)]
			account, kind, hold, free, replaced, pruned := pick(accounts...), kinds[0], "", one(3), one(10), one(10)
			if one(8) {
				kind = kinds[1]
			}
			if one(3) {
				hold = pick("hold-1", "hold-2", "hold-3")
			}
			subject, key := strconv.Itoa(n), strconv.Itoa(n)
			if one(10) {
				subject = strconv.Itoa(rng.IntN(4))
			}
			if one(10) {
				key = strconv.Itoa(rng.IntN(4))
			}
			var has []settle.Reference
			for _, i := range rng.Perm(len(refs))[:rng.IntN(4)] {
				has = append(has, settle.Reference{Ref: refs[i], Foreign: one(6)})
			}
			if len(has) > 0 && one(10) {
				has = append(has, has[0])
			}
			p.edit = func(r *settle.Record) {
				r.Account, r.Kind, r.Hold, r.HoldFree, r.Subject, r.Key, r.References, r.ReplacedBy = account, kind, hold, free, subject, key, has, ""
				if replaced {
					r.ReplacedBy = "another"
				}
				if pruned {
					r.Request = nil
				}
			}
			return p
		}
		for step := range steps {
			var planned []plannedWrite
			for range 1 + rng.IntN(3) {
				planned = append(planned, plan())
			}
			id := fmt.Sprint("change ", step)
			want, got := sides[0].commit(t, sides[0].change(id, planned)), sides[1].commit(t, sides[1].change(id, planned))
			require.Equal(t, want, got, "step %d", step)
			for _, account := range accounts[1:] {
				for _, kind := range kinds {
					for _, ref := range refs[:5] {
						want, wantErr := sides[0].Get(t.Context(), settle.ByRef(account, kind, ref))
						got, gotErr := sides[1].Get(t.Context(), settle.ByRef(account, kind, ref))
						require.Equal(t, errors.Is(wantErr, settle.ErrNotFound), errors.Is(gotErr, settle.ErrNotFound), "step %d, %q: %v", step, ref, gotErr)
						require.Equal(t, want.ID+fmt.Sprint(want.Version), got.ID+fmt.Sprint(got.Version), "step %d, %q", step, ref)
					}
				}
			}
		}
		for _, q := range []settle.Query{{}, {Kind: "charge"}, {Subject: "1"}} {
			want, err := sides[0].List(t.Context(), q)
			require.NoError(t, err)
			got, err := sides[1].List(t.Context(), q)
			require.NoError(t, err)
			require.Len(t, got, len(want))
			for i, r := range want {
				require.Equal(t, r.ID, got[i].ID)
				h, err := sides[0].History(t.Context(), r.ID, 0, 10_000)
				require.NoError(t, err)
				also, err := sides[1].History(t.Context(), r.ID, 0, 10_000)
				require.NoError(t, err)
				require.Len(t, also, len(h))
			}
		}
	})
}
