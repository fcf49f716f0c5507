package scenario

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// ic48: the sought charge is on page 3 of the provider's list. It is found; a page that fails proves nothing, and the next
// lookup reads all of them again. The provider honours no keys, so that nothing else could find out.
func ic48(t *testing.T, open Open) {
	for name, fails := range map[string]int{"on page 3": 0, "page 2 fails with 429, three times": 3} {
		t.Run(name, func(t *testing.T) {
			Play(t, open, &providertest.Options{}, func(t *testing.T, l *Lab) {
				p := l.Start(&Setup{API: func(inner providertest.API) providertest.API { return everyPage{inner} }})
				l.Provider.Script(providertest.DropReply())
				l.Provider.ScriptLookup(providertest.Status(500, ""))
				out, err := p.Charge.Execute(l.Ctx, Order())
				l.wantErr(err, settle.ErrUnknown)
				for i := range 249 {
					_, err := l.Provider.Create(l.Ctx, providertest.Request{
						Kind: providertest.KindCharge, Key: fmt.Sprint("other-", i), Reference: fmt.Sprint("other-", i), Amount: 1, Currency: "EUR",
						Account: l.Promise.Account.Account,
					})
					l.noErr(err)
				}
				for range fails {
					l.Provider.ScriptLookup(providertest.PageFails(2))
				}
				before := l.Provider.Calls(providertest.OpLookup)
				p.Work()
				l.Want(l.Until(out.ID, time.Hour, func(r settle.Record) bool { return r.State.Settled() }), settle.StateSucceeded)
				l.Effects(out.ID, 1)
				if pages := l.Provider.Calls(providertest.OpLookup) - before; pages != 3+2*fails {
					t.Errorf("%d pages were read, want two of each lookup that failed and three of the last", pages)
				}
				for _, x := range l.History(out.ID) {
					if x.Fact == settle.NotFound {
						t.Errorf("entry %d says that it is not there", x.Seq)
					}
				}
			})
		})
	}
}

// everyPage looks through everything in the account, as at a provider without search.
type everyPage struct{ providertest.API }

// List implements providertest.API.
func (a everyPage) List(ctx context.Context, q providertest.Query) (providertest.Page, error) {
	want := q.Reference
	q.Reference = ""
	page, err := a.API.List(ctx, q)
	out := providertest.Page{Next: page.Next}
	for _, o := range page.Objects {
		if o.Reference == want {
			out.Objects = append(out.Objects, o)
		}
	}
	return out, err
}
