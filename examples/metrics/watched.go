package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/otelsettle"
	"github.com/settle-go/settle/providertest"
)

const kind = "charge"

// watched is a process that says how it fares.
type watched struct {
	engine  *settle.Engine
	charges *settle.Executor[providertest.Payment, providertest.Receipt]
	metrics http.Handler // GET /metrics
	close   func(context.Context) error
}

func newWatched(store settle.Store, provider providertest.API, hook func(context.Context, settle.Tx, settle.Outcome[providertest.Receipt]) error) (*watched, error) {
	// One registry of Prometheus, filled by OpenTelemetry. A service that has both already passes its own ones on.
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	opts := &otelsettle.Options{Meters: meters, Kinds: []string{kind}} // traces go to the global provider, here none

	observer, err := otelsettle.New(opts) // what settle does
	if err != nil {
		return nil, err
	}
	w := &watched{}
	if w.engine, err = settle.Open(store, &settle.Options{Scope: "shop", Observer: observer}); err != nil {
		return nil, err
	}
	promise := providertest.Promise(&offer)
	adapter, err := otelsettle.Wrap(providertest.ChargeAdapter(provider, promise), kind, opts) // what the provider does
	if err != nil {
		return nil, err
	}
	w.charges, err = settle.New(w.engine, kind, adapter, &settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{OnSuccess: hook})
	if err != nil {
		return nil, err
	}
	stop, err := otelsettle.Measure(w.engine, &otelsettle.MeasureOptions{Meters: meters, Every: time.Second}) // what lies in the store
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	w.metrics = mux
	w.close = func(ctx context.Context) error { return errors.Join(stop(), meters.Shutdown(ctx)) }
	return w, nil
}

const unlucky = "order-4"

// onSuccess prints the receipt, and fails for one order.
func onSuccess(_ context.Context, _ settle.Tx, out settle.Outcome[providertest.Receipt]) error {
	if out.Subject == unlucky {
		return errors.New("the printer is out of paper")
	}
	return nil
}
