package otelsettle_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	world "github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/otelsettle"
	"github.com/settle-go/settle/providertest"
)

// counted is a Lister that counts readings, and fails when told to.
type counted struct {
	otelsettle.Lister
	reads int
	fail  error
}

func (c *counted) List(ctx context.Context, q settle.Query) iter.Seq2[settle.Record, error] {
	c.reads++
	if c.fail != nil {
		return func(yield func(settle.Record, error) bool) { yield(settle.Record{}, c.fail) }
	}
	return c.Lister.List(ctx, q)
}

// TestMeasure: what is unsettled is measured as it is now: by kind and state, what is older than the provider's window, what a
// person should have decided, what nobody claims; and it ends when that ends.
func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		w := world.New(t, memstore.New(nil), nil)
		p := w.Bare(nil)
		c := &counted{Lister: p.Engine}
		stop, err := otelsettle.Measure(c, &otelsettle.MeasureOptions{Meters: g.opts.Meters})
		require.NoError(t, err)
		assert.Empty(t, g.points("settle.unsettled.count"))
		require.Equal(t, map[string]float64{"": 0}, g.points("settle.measure.age"))

		// The provider's answers are lost, and it cannot be asked.
		a := providertest.ChargeAdapter(p.API, w.Promise)
		submit, lookup := a.SubmitFunc, a.LookupFunc
		down := true
		a.SubmitFunc = func(ctx context.Context, call *settle.Call[providertest.Payment]) (settle.Observation[providertest.Receipt], error) {
			obs, err := submit(ctx, call)
			if down && obs.Fact == settle.Applied {
				return settle.Observation[providertest.Receipt]{}, errors.New("reply lost")
			}
			return obs, err
		}
		a.LookupFunc = func(ctx context.Context, call *settle.Call[providertest.Payment]) (settle.Observation[providertest.Receipt], error) {
			if down {
				return settle.Observation[providertest.Receipt]{}, errors.New("down")
			}
			return lookup(ctx, call)
		}
		x, err := settle.New(p.Engine, world.KindCharge, a, nil)
		require.NoError(t, err)
		lost, err := x.Execute(t.Context(), world.Op("order-1", 1999, "EUR"))
		require.ErrorIs(t, err, settle.ErrUnknown)
		w.Provider.Script(providertest.Processing())
		slow, err := x.Execute(t.Context(), world.Op("order-2", 1999, "EUR"))
		require.ErrorIs(t, err, settle.ErrProcessing)

		assert.Empty(t, g.points("settle.unsettled.count"), "read again before its time")
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]float64{"settle.kind=charge,settle.state=unknown": 1, "settle.kind=charge,settle.state=processing": 1}, g.points("settle.unsettled.count"))
		assert.InDelta(t, 60, g.points("settle.unsettled.age")["settle.kind=charge,settle.state=unknown"], 1)
		for _, name := range []string{"settle.unsettled.past_window", "settle.reviews.overdue"} {
			assert.Equal(t, map[string]float64{"settle.kind=charge": 0}, g.points(name), name)
		}
		// Nobody works: both are due, and nobody claims them.
		time.Sleep(10 * time.Minute)
		assert.Equal(t, map[string]float64{"settle.kind=charge": 2}, g.points("settle.unclaimed.count"))

		// A worker comes, tries, and gives up; a person is asked and does not answer.
		p.Work()
		time.Sleep(30 * time.Minute)
		assert.Equal(t, map[string]float64{"settle.kind=charge,settle.state=review": 1, "settle.kind=charge,settle.state=processing": 1}, g.points("settle.unsettled.count"))
		assert.Equal(t, map[string]float64{"settle.kind=charge": 0}, g.points("settle.unclaimed.count"))
		assert.Equal(t, map[string]float64{"settle.kind=charge": 0}, g.points("settle.unsettled.past_window"))
		time.Sleep(25 * time.Hour) // the provider keeps keys for 24 h, and is at order-2 all the time
		assert.Equal(t, map[string]float64{"settle.kind=charge": 1}, g.points("settle.unsettled.past_window"))
		assert.Equal(t, map[string]float64{"settle.kind=charge": 1}, g.points("settle.reviews.overdue"))

		// The store fails: what was read last stays, and the age says how old it is.
		c.fail = errors.New("password of ann is wrong")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, map[string]float64{"settle.kind=charge": 1}, g.points("settle.unsettled.past_window"))
		assert.InDelta(t, 600, g.points("settle.measure.age")[""], 1)
		c.fail = nil

		// It is found out, and the gauges say so.
		down = false
		for _, id := range []string{lost.ID, slow.ID} {
			for _, o := range w.Provider.Objects() {
				if o.Status == providertest.StatusProcessing {
					require.NoError(t, w.Provider.Finish(o.ID))
				}
			}
			r, err := p.Reconcile(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, settle.StateSucceeded, r.State)
		}
		time.Sleep(time.Minute)
		assert.Empty(t, g.points("settle.unsettled.count"))
		assert.Empty(t, g.points("settle.unsettled.past_window"))

		require.NoError(t, stop())
		before := c.reads
		time.Sleep(time.Hour)
		assert.Empty(t, g.points("settle.measure.age"))
		assert.Equal(t, before, c.reads)
	})
}

// TestMeasureIsBounded: kinds that others made cannot make the gauges grow without end.
func TestMeasureIsBounded(t *testing.T) {
	g := newRig(t)
	_, err := otelsettle.Measure(many{}, &otelsettle.MeasureOptions{Meters: g.opts.Meters, Every: time.Hour})
	require.NoError(t, err)
	points := g.points("settle.unsettled.count")
	assert.Len(t, points, 101)
	assert.InDelta(t, 900, points["settle.kind=_OTHER,settle.state=created"], 0)
	assert.Len(t, g.points("settle.unclaimed.count"), 101)
}

// many is a store with a thousand kinds.
type many struct{}

func (many) List(_ context.Context, q settle.Query) iter.Seq2[settle.Record, error] {
	return func(yield func(settle.Record, error) bool) {
		for i := range 1000 {
			if q.Kind != "" || !yield(settle.Record{ID: "x", Kind: fmt.Sprint("kind-", i), State: settle.StateCreated}, nil) {
				return
			}
		}
	}
}

// TestMeasureDefaults: without options it measures for the global meter provider.
func TestMeasureDefaults(t *testing.T) {
	stop, err := otelsettle.Measure(many{}, nil) // the global meter provider, which may be none
	require.NoError(t, err)
	require.NoError(t, stop())
}
