package otelsettle

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/settle-go/settle"
)

// Wrap makes an adapter that does what a does, each request and lookup in a span of the operation's trace and counted
// in the histogram settle.provider.duration. kind is that of the executor. An error is the
// meter provider's.
func Wrap[Req, Res any](a settle.ProviderAdapter[Req, Res], kind string, opts *Options) (settle.ProviderAdapter[Req, Res], error) {
	o := opts.withDefaults()
	h, err := o.Meters.Meter(scope).Float64Histogram("settle.provider.duration", metric.WithUnit("s"),
		metric.WithDescription("How long requests and lookups took, by what they said."), metric.WithExplicitBucketBoundaries(seconds...))
	if err != nil {
		return nil, err
	}
	w := wrapped[Req, Res]{a, kind, o.Tracers.Tracer(scope), h}
	if r, ok := a.(settle.EventReader[Res]); ok {
		return reading[Req, Res]{w, r}, nil
	}
	return w, nil
}

type wrapped[Req, Res any] struct {
	settle.ProviderAdapter[Req, Res]
	kind     string
	tracer   trace.Tracer
	duration metric.Float64Histogram
}

// reading is an adapter that reads events too.
type reading[Req, Res any] struct {
	wrapped[Req, Res]
	settle.EventReader[Res]
}

// Unwrap is the adapter inside.
func (w wrapped[Req, Res]) Unwrap() settle.ProviderAdapter[Req, Res] { return w.ProviderAdapter }

// Submit implements settle.ProviderAdapter.
func (w wrapped[Req, Res]) Submit(ctx context.Context, c *settle.Call[Req]) (settle.Observation[Res], error) {
	return w.call(ctx, "submit", c, w.ProviderAdapter.Submit)
}

// Lookup implements settle.ProviderAdapter.
func (w wrapped[Req, Res]) Lookup(ctx context.Context, c *settle.Call[Req]) (settle.Observation[Res], error) {
	return w.call(ctx, "lookup", c, w.ProviderAdapter.Lookup)
}

func (w wrapped[Req, Res]) call(
	ctx context.Context, name string, c *settle.Call[Req], do func(context.Context, *settle.Call[Req]) (settle.Observation[Res], error),
) (obs settle.Observation[Res], err error) {
	ctx, opts := inTrace(ctx, c.ID)
	ctx, span := w.tracer.Start(ctx, "settle "+name, append(opts, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		keyOperation.String(c.ID), keyKind.String(w.kind), keyAttempt.Int(c.Attempt)))...)
	began := time.Now()
	outcome := keyError.String("panic")
	defer func() {
		w.duration.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(keyKind.String(w.kind), keyCall.String(name), outcome))
		span.SetAttributes(outcome)
		if outcome.Key == keyError {
			span.SetStatus(codes.Error, "no answer")
		}
		span.End()
	}()
	obs, err = do(ctx, c)
	switch {
	case err != nil: // its text is the provider's, and stays out
		outcome = keyError.String("no_answer")
	case obs.Fact == settle.Unclear:
		outcome = keyFact.String("unclear")
	default:
		outcome = keyFact.String(string(obs.Fact))
	}
	return obs, err
}
