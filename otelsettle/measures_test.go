package otelsettle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/otelsettle"
	"github.com/settle-go/settle/providertest"
)

// TestRecoveryAndTally: a reply and a lookup are lost, and the worker finds out; the counts follow it.
func TestRecoveryAndTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		obs, err := otelsettle.New(g.opts)
		require.NoError(t, err)
		e, err := settle.Open(g.store, &settle.Options{Observer: obs, TallyEvery: 10 * time.Second})
		require.NoError(t, err)
		x, err := settle.New(e, "charge", providertest.ChargeAdapter(g.provider, providertest.Promise(&providertest.Options{KeyWindow: 24 * time.Hour})), nil)
		require.NoError(t, err)
		g.provider.Script(providertest.DropReply())
		g.provider.ScriptLookup(providertest.Status(500, ""))
		_, err = x.Execute(t.Context(), order(1))
		require.ErrorIs(t, err, settle.ErrUnknown)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		synctest.Wait()
		assert.Equal(t, map[string]float64{"settle.kind=charge,settle.state=unknown": 1}, g.points("settle.operations"))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, map[string]float64{
			"settle.kind=charge,settle.state=unknown": 0, "settle.kind=charge,settle.state=succeeded": 1,
		}, g.points("settle.operations"))
		assert.InDelta(t, 60, g.points("settle.operations.age")["settle.kind=charge,settle.state=succeeded"], 1)
		assert.Equal(t, map[string]float64{"settle.kind=charge,settle.state=succeeded,settle.state.from=unknown": 1}, g.points("settle.recoveries"))
		assert.Equal(t, map[string]float64{"settle.kind=charge,settle.state=succeeded": 1}, g.points("settle.recovery.duration"))
		stop()
		require.NoError(t, <-done)
	})
}
