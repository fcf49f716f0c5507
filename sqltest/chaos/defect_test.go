//go:build linux

package chaos

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// Defects that the oracle must find. Each is a mistake that was made before, by somebody.
const (
	defectFreshKey     = "a fresh key for every attempt"
	defectNoLease      = "a worker that sends what others have claimed"
	defectAckNoWrite   = "a store that acknowledges without writing"
	defectTimeoutFails = "no answer counts as failure"
	defectCallerShips  = "a caller that ships when Execute says so"
)

// tampered is the provider as a faulty worker uses it.
type tampered struct {
	providertest.API
	w *worker
}

// Create implements providertest.API.
func (t *tampered) Create(ctx context.Context, req providertest.Request) (providertest.Object, error) {
	if t.w.o.Defect == defectFreshKey {
		req.Key = "fresh-" + strconv.FormatUint(rand.Uint64(), 36)
	}
	return t.API.Create(ctx, req)
}

// pretend is a store that every other time only says that it created something.
func (w *worker) pretend(c settle.Change) ([]settle.Record, bool) {
	if w.o.Defect != defectAckNoWrite || c.Writes[0].IfVersion > 0 || rand.IntN(2) > 0 {
		return nil, false
	}
	r := c.Writes[0].Record
	r.Version, r.AsOf = 1, time.Now()
	r.CreatedAt, r.UpdatedAt, r.Due = r.AsOf, r.AsOf, r.AsOf.Add(c.Writes[0].DueIn)
	return []settle.Record{r}, true
}

// ignoreLeases sends whatever is open, under its own key, whoever has claimed it. It waits for no answer.
func (w *worker) ignoreLeases(api providertest.API) {
	ctx := context.Background()
	for ; ; time.Sleep(5 * time.Millisecond) {
		open, err := w.raw.List(ctx, settle.Query{States: []settle.State{settle.StateSubmitting, settle.StateUnknown}})
		if err != nil {
			continue
		}
		for _, r := range open {
			go func() {
				sctx, cancel := context.WithTimeout(ctx, deadline)
				defer cancel()
				_, _ = api.Create(sctx, providertest.Request{
					Kind: providertest.KindCharge, Key: r.ProviderKey, Reference: r.ID, Amount: r.Terms.Amount.Value.IntPart(), Currency: "EUR",
				})
			}()
		}
	}
}
