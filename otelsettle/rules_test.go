package otelsettle_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/otelsettle"
)

// TestAlertRulesNameWhatIsExported: every metric, label and alarm in the rules of docs/operators.md is one that
// Prometheus gets to see.
func TestAlertRulesNameWhatIsExported(t *testing.T) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	require.NoError(t, err)
	opts := &otelsettle.Options{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))}
	obs, err := otelsettle.New(opts)
	require.NoError(t, err)
	alarms := []string{
		settle.AlarmDuplicate, settle.AlarmMismatch, settle.AlarmForeign, settle.AlarmExcess, settle.AlarmReview, settle.AlarmOverdue, settle.AlarmAside,
	}
	for _, e := range []settle.NoticeEvent{
		settle.EventTransition, settle.EventAlarm, settle.EventNoAnswer, settle.EventStoreError, settle.EventHookError, settle.EventClaimLost, settle.EventOverdue,
		settle.EventPublishError,
	} {
		obs.Notice(t.Context(), settle.Notice{Event: e, Kind: "charge", To: settle.StateFailed, Fact: settle.Declined, Alarms: alarms, Age: time.Second})
	}
	g := newRig(t)
	g.opts.Meters = opts.Meters
	_, x := g.process()
	_, err = x.Execute(t.Context(), order(1))
	require.NoError(t, err)

	seen := map[string]bool{}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		seen[f.GetName()], seen[f.GetName()+"_count"] = true, true
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				seen[l.GetName()], seen[l.GetValue()] = true, true
			}
		}
	}
	doc, err := os.ReadFile("../docs/operators.md")
	require.NoError(t, err)
	rules := regexp.MustCompile("(?s)```yaml(.*?)```").FindSubmatch(doc)
	require.NotNil(t, rules)
	names := regexp.MustCompile(`settle_[a-z_]+`).FindAllString(string(rules[1]), -1)
	assert.Greater(t, len(names), 12)
	for _, n := range names {
		assert.True(t, seen[n], n)
	}
	for _, list := range regexp.MustCompile(`settle_alarm=~?"([a-z_|]+)"`).FindAllStringSubmatch(string(rules[1]), -1) {
		for _, a := range regexp.MustCompile(`[a-z_]+`).FindAllString(list[1], -1) {
			assert.True(t, seen[a], a)
		}
	}
}
