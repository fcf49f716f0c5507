package providertest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// TestPublicCases replays failures that were reported in public, with an engine over
// the simulator. TestPublicCasesOfTheSuite has what Run says of them.
func TestPublicCases(t *testing.T) {
	t.Run("IC-48", func(t *testing.T) { pagesOfALookup(t) })
	t.Run("IC-65", func(t *testing.T) { noKeySupport(t) })
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// allPages looks through everything in the account, as at a provider without search.
type allPages struct {
	pt.API
	seen *int // how often the sought one was met
}

func (a allPages) List(ctx context.Context, q pt.Query) (pt.Page, error) {
	want := q.Reference
	q.Reference = ""
	page, err := a.API.List(ctx, q)
	out := pt.Page{Next: page.Next}
	for _, o := range page.Objects {
		if o.Reference == want {
			out.Objects = append(out.Objects, o)
			*a.seen++
		}
	}
	return out, err
}

// shop is a rig whose provider honors no keys, so that a lookup alone can find out.
func shop(t *testing.T, o *pt.Options) (*rig.Rig, *rig.Process, *settle.Executor[pt.Payment, pt.Receipt], *int) {
	r := rig.New(t, memstore.New(nil), o)
	p := r.Bare(nil)
	seen := new(int)
	x, err := settle.New(p.Engine, rig.KindCharge, pt.ChargeAdapter(allPages{p.API, seen}, r.Promise), nil)
	rig.OK(t, err)
	return r, p, x, seen
}

// others makes charges of somebody else.
func others(t *testing.T, p *pt.Provider, from, to int) {
	for i := from; i < to; i++ {
		_, err := p.Create(t.Context(), pt.Request{Kind: pt.KindCharge, Reference: fmt.Sprintf("other-%d", i), Amount: 1, Currency: "EUR"})
		rig.OK(t, err)
	}
}

// IC-48: a lookup reads every page, a failed one proves nothing, and new objects hide nothing.
func pagesOfALookup(t *testing.T) {
	for name, step := range map[string]pt.Step{
		"on page 3":                          pt.OK(),
		"page 2 fails with 429, three times": pt.PageFails(2),
	} {
		bubble(t, name, func(t *testing.T) {
			r, p, x, _ := shop(t, &pt.Options{})
			r.Provider.Script(pt.DropReply())
			r.Provider.ScriptLookup(pt.Status(500, ""))
			out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.Is(t, err, settle.ErrUnknown)
			others(t, r.Provider, 0, 249)
			fails := 0
			if step.String() != "OK" {
				fails = 3
				r.Provider.ScriptLookup(step, step, step)
			}
			before := r.Provider.Calls(pt.OpLookup)
			p.Work()
			rig.After(10 * time.Minute)
			r.State(out.ID, settle.StateSucceeded)
			r.Ledger(250, map[string]int{out.ID: 1})
			if asked, want := r.Provider.Calls(pt.OpLookup)-before, 3+2*fails; asked != want {
				t.Errorf("%d pages were asked for, want %d: two of each failed lookup and three of the last", asked, want)
			}
			noNotFound(t, r, out.ID)
		})
	}
	bubble(t, "what does not exist while page 2 fails", func(t *testing.T) {
		r, p, x, _ := shop(t, &pt.Options{})
		others(t, r.Provider, 0, 250)
		r.Provider.Script(pt.DropRequest())
		for range 200 {
			r.Provider.ScriptLookup(pt.PageFails(2))
		}
		out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(time.Hour)
		r.State(out.ID, settle.StateReview)
		r.Ledger(251, map[string]int{out.ID: 0})
		noNotFound(t, r, out.ID)
	})
	bubble(t, "new charges appear while paging", func(t *testing.T) {
		var r *rig.Rig
		made := 0
		o := &pt.Options{OnLookup: func(q pt.Query) {
			if q.Cursor != "" { // between two pages
				others(t, r.Provider, 1000+made, 1000+made+40)
				made += 40
			}
		}}
		r, p, x, seen := shop(t, o)
		others(t, r.Provider, 250, 270) // older ones, so that the sought one is in the middle of page 3
		r.Provider.Script(pt.DropReply())
		r.Provider.ScriptLookup(pt.Status(500, ""))
		out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		others(t, r.Provider, 0, 229)
		p.Work()
		rig.After(10 * time.Minute)
		r.State(out.ID, settle.StateSucceeded)
		r.Ledger(250+made, map[string]int{out.ID: 1})
		if made == 0 || *seen != 1 {
			t.Errorf("%d charges appeared and the sought one was met %d times, want once", made, *seen)
		}
		noNotFound(t, r, out.ID)
	})
}

// noNotFound: a page that failed is no proof of anything.
func noNotFound(t *testing.T, r *rig.Rig, id string) {
	t.Helper()
	for _, e := range r.History(id) {
		if e.Fact == settle.NotFound {
			t.Errorf("a lookup that did not see every page, or the effect, was taken for %q: %+v", e.Fact, e)
		}
	}
}

// IC-65: an adapter that declares no key support is never retried blindly once its
// request may have left.
func noKeySupport(t *testing.T) {
	for _, lookup := range []settle.LookupPromise{settle.Authoritative, settle.NoLookup} {
		bubble(t, fmt.Sprintf("time-out after the effect, lookup %q", lookup), func(t *testing.T) {
			r := rig.New(t, memstore.New(nil), &pt.Options{})
			r.Promise.Lookup = lookup
			r.Provider.Script(pt.HangAfter(nil))
			r.Provider.ScriptLookup(pt.Status(500, ""), pt.Status(500, ""))
			p := r.Start(nil)
			out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
			rig.Is(t, err, settle.ErrUnknown)
			_, err = p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR")) // do it again
			rig.Is(t, err, settle.ErrUnknown)
			if key := r.Provider.Requests()[0].Key; key != "" {
				t.Errorf("the key %q was sent to a provider that honors none", key)
			}
			p.Work()
			rig.After(time.Hour)
			if lookup == settle.NoLookup {
				r.State(out.ID, settle.StateReview)
			} else {
				r.State(out.ID, settle.StateSucceeded)
			}
			r.Ledger(1, map[string]int{out.ID: 1})
		})
	}
}
