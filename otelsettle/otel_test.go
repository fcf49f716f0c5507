package otelsettle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/otelsettle"
	"github.com/settle-go/settle/providertest"
)

// rig is a shop whose processes report to one place.
type rig struct {
	t        *testing.T
	store    settle.Store
	provider *providertest.Provider
	spans    *tracetest.SpanRecorder
	reader   *sdkmetric.ManualReader
	opts     *otelsettle.Options
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, store: memstore.New(nil), spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	g.provider = providertest.New(&providertest.Options{KeyWindow: 24 * time.Hour})
	g.opts = &otelsettle.Options{
		Tracers: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(g.spans)),
		Meters:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(g.reader)),
	}
	return g
}

type executor = settle.Executor[providertest.Payment, providertest.Receipt]

// process starts one.
func (g *rig) process() (*settle.Engine, *executor) {
	g.t.Helper()
	obs, err := otelsettle.New(g.opts)
	require.NoError(g.t, err)
	e, err := settle.Open(g.store, &settle.Options{Observer: obs})
	require.NoError(g.t, err)
	a, err := otelsettle.Wrap(providertest.ChargeAdapter(g.provider, providertest.Promise(&providertest.Options{KeyWindow: 24 * time.Hour})), "charge", g.opts)
	require.NoError(g.t, err)
	x, err := settle.New(e, "charge", a, nil)
	require.NoError(g.t, err)
	return e, x
}

func order(n int) settle.Operation[providertest.Payment] {
	return settle.Operation[providertest.Payment]{
		Scope: "tenant-secret", Subject: fmt.Sprint("order-secret-", n), Purpose: "purchase", Key: fmt.Sprint("key-secret-", n),
		Request: providertest.Payment{Amount: 198427, Currency: "EUR"},
	}
}

// points are the values of an instrument, by their attributes.
func (g *rig) points(name string) map[string]float64 {
	g.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(g.t, g.reader.Collect(context.Background(), &all))
	out := map[string]float64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					out[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					out[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					out[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					out[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Sum)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					out[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Count)
				}
			}
		}
	}
	return out
}

// TestOneTraceAcrossProcesses: one process sends and is told that the provider is still at it, another looks, a third
// looks too; all spans are in the trace that bears the operation's id, and those of calls lead back
// to who made them.
func TestOneTraceAcrossProcesses(t *testing.T) {
	g := newRig(t)
	g.provider.Script(providertest.Processing())
	_, x := g.process()
	ctx, web := g.opts.Tracers.Tracer("web").Start(context.Background(), "POST /pay")
	out, err := x.Execute(ctx, order(1))
	require.ErrorIs(t, err, settle.ErrProcessing)
	web.End()
	other, _ := g.process()
	_, err = other.Reconcile(context.Background(), out.ID)
	require.NoError(t, err)
	require.NoError(t, g.provider.Finish(g.provider.Objects()[0].ID))
	third, _ := g.process()
	r, err := third.Reconcile(context.Background(), out.ID)
	require.NoError(t, err)
	require.Equal(t, settle.StateSucceeded, r.State)

	id := otelsettle.TraceID(out.ID)
	assert.Equal(t, strings.ReplaceAll(out.ID, "-", ""), id.String())
	calls := map[string]int{}
	for _, s := range g.spans.Ended() {
		if s.Name() == "POST /pay" {
			continue
		}
		calls[s.Name()]++
		assert.Equal(t, id, s.SpanContext().TraceID(), s.Name())
		if s.Name() == "settle submit" {
			require.Len(t, s.Links(), 1)
			assert.Equal(t, web.SpanContext().SpanID(), s.Links()[0].SpanContext.SpanID())
		}
	}
	assert.Equal(t, 1, calls["settle submit"])
	assert.GreaterOrEqual(t, calls["settle lookup"], 2)
	assert.Equal(t, 1, calls["settle succeeded"])
}

// TestMetrics: a lost reply and a decline are counted under words of settle.
func TestMetrics(t *testing.T) {
	g := newRig(t)
	_, x := g.process()
	g.provider.Script(providertest.DropReply())
	_, err := x.Execute(t.Context(), order(1))
	require.NoError(t, err)
	_, err = x.Execute(t.Context(), order(1)) // a replay asks nobody
	require.NoError(t, err)
	g.provider.Script(providertest.Decline("card_declined"))
	_, err = x.Execute(t.Context(), order(2))
	require.ErrorIs(t, err, settle.ErrFailed)

	assert.Equal(t, map[string]float64{
		"error.type=no_answer,settle.call=submit,settle.kind=charge": 1,
		"settle.call=lookup,settle.fact=applied,settle.kind=charge":  1,
		"settle.call=submit,settle.fact=declined,settle.kind=charge": 1,
	}, g.points("settle.provider.duration"))
	assert.Equal(t, map[string]float64{"error.type=error,settle.kind=charge": 1}, g.points("settle.no_answers"))
	assert.Equal(t, map[string]float64{
		"settle.kind=charge,settle.state=succeeded": 1, "settle.kind=charge,settle.state=failed": 1,
	}, g.points("settle.operation.duration"))
	// One request each, and one replay.
	assert.Equal(t, map[string]float64{
		"settle.kind=charge,settle.state=succeeded": 1, "settle.kind=charge,settle.state=failed": 1,
	}, g.points("settle.operation.attempts"))
	assert.Equal(t, map[string]float64{"settle.kind=charge,settle.prevented=replay": 1}, g.points("settle.prevented"))
	moves := g.points("settle.transitions")
	assert.InDelta(t, 2, moves["settle.kind=charge,settle.state=submitting,settle.state.from="], 0, "%v", moves)
	assert.InDelta(t, 1, g.points("settle.observations")["settle.disposition=applied,settle.fact=applied,settle.kind=charge,settle.source=lookup"], 0,
		"%v", g.points("settle.observations"))
}

// TestI16_NothingOfTheRequest: neither names nor payload, key or message of an operation are in spans or metrics.
func TestI16_NothingOfTheRequest(t *testing.T) {
	g := newRig(t)
	_, x := g.process()
	g.provider.Script(providertest.DropReply(), providertest.Decline("code-secret"))
	for i := range 3 {
		_, _ = x.Execute(t.Context(), order(i))
	}
	var said strings.Builder
	for _, s := range g.spans.Ended() {
		fmt.Fprintln(&said, s.Name(), s.Attributes(), s.Events(), s.Status(), s.Links())
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, g.reader.Collect(t.Context(), &all))
	fmt.Fprintf(&said, "%+v", all.ScopeMetrics)
	require.Contains(t, said.String(), "settle.kind")
	for _, secret := range []string{"secret", "198427", "ch_", "EUR"} {
		assert.NotContains(t, said.String(), secret)
	}
}

// TestKindsAreBounded: kinds that others made cannot make the measures grow without end.
func TestKindsAreBounded(t *testing.T) {
	g := newRig(t)
	obs, err := otelsettle.New(g.opts)
	require.NoError(t, err)
	for i := range 1000 {
		obs.Notice(t.Context(), settle.Notice{Event: settle.EventOverdue, Kind: fmt.Sprint("kind-", i), Age: time.Hour})
	}
	points := g.points("settle.overdue")
	assert.Len(t, points, 101)
	assert.InDelta(t, 900, points["settle.kind=_OTHER"], 0)
}

// TestEveryNotice: every event of settle has its instrument, and the next observer hears it too.
func TestEveryNotice(t *testing.T) {
	g := newRig(t)
	next := &heard{}
	g.opts.Next = next
	obs, err := otelsettle.New(g.opts)
	require.NoError(t, err)
	for event, name := range map[settle.NoticeEvent]string{
		settle.EventTransition: "settle.transitions", settle.EventEvidence: "settle.observations", settle.EventAlarm: "settle.alarms",
		settle.EventNoAnswer: "settle.no_answers", settle.EventClaimLost: "settle.claims.lost", settle.EventStoreError: "settle.store.errors",
		settle.EventHookError: "settle.hook.errors", settle.EventOverdue: "settle.overdue",
		settle.EventPublishError: "settle.publish.errors",
		settle.EventPrevented:    "settle.prevented", settle.EventRecovery: "settle.recoveries", settle.EventTally: "settle.operations",
	} {
		before := len(g.points(name))
		obs.Notice(t.Context(), settle.Notice{
			Event: event, Kind: "kind-" + string(event), Operation: "ev_1", To: settle.StateReview, Fact: settle.Applied, Alarms: []string{settle.AlarmReview},
		})
		assert.Greater(t, len(g.points(name)), before, event)
	}
	assert.Equal(t, 12, next.n)
	for _, s := range g.spans.Ended() {
		assert.Equal(t, otelsettle.TraceID("ev_1"), s.SpanContext().TraceID())
		assert.Equal(t, s.Name() == "settle alarm", s.Status().Code == codes.Error)
	}
}

type heard struct{ n int }

func (h *heard) Notice(context.Context, settle.Notice) { h.n++ }

// TestWrap: a wrapped adapter is what it was: New refuses what it refused, events are read, and a panic is settle's
// to contain but ends its span.
func TestWrap(t *testing.T) {
	g := newRig(t)
	e, _ := g.process()
	a := providertest.ChargeAdapter(g.provider, providertest.Promise(&providertest.Options{KeyWindow: 24 * time.Hour}))
	a.EventFunc = func(context.Context, settle.Event) (settle.Observation[providertest.Receipt], error) {
		return settle.Observation[providertest.Receipt]{Fact: settle.Declined}, nil
	}
	w, err := otelsettle.Wrap(a, "other", g.opts)
	require.NoError(t, err)
	reader, ok := w.(settle.EventReader[providertest.Receipt])
	require.True(t, ok)
	obs, err := reader.ReadEvent(t.Context(), settle.Event{})
	require.NoError(t, err)
	assert.Equal(t, settle.Declined, obs.Fact)
	assert.Equal(t, a.Contract(), w.Contract())

	broken := a
	broken.SubmitFunc = nil
	w, err = otelsettle.Wrap(broken, "other", g.opts)
	require.NoError(t, err)
	_, err = settle.New(e, "other", w, nil)
	require.ErrorIs(t, err, settle.ErrInvalid)

	wild := a
	wild.SubmitFunc = func(context.Context, *settle.Call[providertest.Payment]) (settle.Observation[providertest.Receipt], error) {
		panic("wild")
	}
	wild.LookupFunc = func(context.Context, *settle.Call[providertest.Payment]) (settle.Observation[providertest.Receipt], error) {
		return settle.Observation[providertest.Receipt]{}, errors.New("down")
	}
	w, err = otelsettle.Wrap(wild, "wild", g.opts)
	require.NoError(t, err)
	x, err := settle.New(e, "wild", w, nil)
	require.NoError(t, err)
	_, err = x.Execute(t.Context(), order(9))
	require.ErrorIs(t, err, settle.ErrPending)
	points := g.points("settle.provider.duration")
	assert.InDelta(t, 1, points["error.type=panic,settle.call=submit,settle.kind=wild"], 0, "%v", points)
}

// TestKindsBeginAtZero: what should not happen has a series before it happens, for the kinds that are named; every alarm but that
// of events, which are of no kind of a process.
func TestKindsBeginAtZero(t *testing.T) {
	g := newRig(t)
	g.opts.Kinds = []string{"charge", "refund"}
	obs, err := otelsettle.New(g.opts)
	require.NoError(t, err)
	for _, name := range []string{"settle.no_answers", "settle.claims.lost", "settle.hook.errors"} {
		assert.Equal(t, map[string]float64{"settle.kind=charge": 0, "settle.kind=refund": 0}, g.points(name))
	}
	text, err := os.ReadFile("../evidence.go")
	require.NoError(t, err)
	alarms := regexp.MustCompile(`\tAlarm\w+ += "(\w+)"`).FindAllStringSubmatch(string(text), -1)
	points := g.points("settle.alarms")
	assert.Len(t, points, 2*len(alarms))
	assert.Greater(t, len(alarms), 10)
	for _, a := range alarms {
		n, ok := points["settle.alarm="+a[1]+",settle.kind=charge"]
		assert.True(t, ok, a[1])
		assert.Zero(t, n)
	}
	obs.Notice(t.Context(), settle.Notice{Event: settle.EventAlarm, Kind: "charge", Alarms: []string{settle.AlarmDuplicate}})
	assert.InDelta(t, 1, g.points("settle.alarms")["settle.alarm=duplicate_effect,settle.kind=charge"], 0)
}
