package otelsettle_test

import (
	"context"
	"fmt"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/otelsettle"
	"github.com/settle-go/settle/providertest"
)

// An engine that is watched: what it does, what its provider does, and what lies in its store.
func Example() {
	reader := sdkmetric.NewManualReader() // a service has an exporter, see examples/metrics
	opts := &otelsettle.Options{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), Kinds: []string{"charge"}}
	observer, err := otelsettle.New(opts)
	if err != nil {
		panic(err)
	}
	engine, err := settle.Open(memstore.New(nil), &settle.Options{Scope: "shop-1", Observer: observer})
	if err != nil {
		panic(err)
	}
	offer := &providertest.Options{KeyWindow: 24 * time.Hour}
	provider := providertest.New(offer)
	provider.Script(providertest.WrongAmount(19))
	adapter, err := otelsettle.Wrap(providertest.ChargeAdapter(provider, providertest.Promise(offer)), "charge", opts)
	if err != nil {
		panic(err)
	}
	charges, err := settle.New(engine, "charge", adapter, nil)
	if err != nil {
		panic(err)
	}
	stop, err := otelsettle.Measure(engine, &otelsettle.MeasureOptions{Meters: opts.Meters})
	if err != nil {
		panic(err)
	}
	out, _ := charges.Execute(context.Background(), settle.Operation[providertest.Payment]{
		Subject: "order-1", Purpose: "purchase", Request: providertest.Payment{Amount: 1999, Currency: "EUR"},
	})
	fmt.Println(out.State)

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		panic(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if gauge, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == "settle.unsettled.count" {
				state, _ := gauge.DataPoints[0].Attributes.Value("settle.state")
				fmt.Println(m.Name, state.AsString(), gauge.DataPoints[0].Value)
			}
		}
	}
	fmt.Println(stop())
	// Output:
	// review
	// settle.unsettled.count review 1
	// <nil>
}
