package otelsettle

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/settle-go/settle"
)

// scope is the name of the instrumentation.
const scope = "github.com/settle-go/settle/otelsettle"

// The attributes. Their values are words of settle, but for settle.kind.
const (
	keyKind        = attribute.Key("settle.kind")
	keyFrom        = attribute.Key("settle.state.from")
	keyState       = attribute.Key("settle.state")
	keyFact        = attribute.Key("settle.fact")
	keySource      = attribute.Key("settle.source")
	keyDisposition = attribute.Key("settle.disposition")
	keyAlarm       = attribute.Key("settle.alarm")
	keyOperation   = attribute.Key("settle.operation.id") // of spans only
	keyAttempt     = attribute.Key("settle.attempt")      // of spans only
	keyCall        = attribute.Key("settle.call")         // submit or lookup
	keyPrevented   = attribute.Key("settle.prevented")    // why a call had no effect of its own
	keyError       = attribute.Key("error.type")
)

// maxKinds bounds the values of settle.kind; later ones are "_OTHER". An engine has as many kinds as executors, but
// a worker is told of overdue rows of kinds that others made.
const maxKinds = 100

// Options say where to report. The zero value and nil mean the global providers.
type Options struct {
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider
	// Next is told every notice too, for example a settle.LogObserver.
	Next settle.Observer
	// Kinds are those that this process makes. Their alarms and troubles are counted from zero from the start on, so that a
	// series is there before it is needed: what begins with 1 shows no increase.
	Kinds []string
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Tracers == nil {
		out.Tracers = otel.GetTracerProvider()
	}
	if out.Meters == nil {
		out.Meters = otel.GetMeterProvider()
	}
	return out
}

// Observer is a settle.Observer. Make one with New.
type Observer struct {
	next   settle.Observer
	tracer trace.Tracer

	transitions, observations, alarms, noAnswers, lost, storeErrors, hookErrors, publishErrors metric.Int64Counter
	prevented, recoveries                                                                      metric.Int64Counter
	duration, overdue, recovery                                                                metric.Float64Histogram
	attempts                                                                                   metric.Int64Histogram
	operations, waiting                                                                        metric.Int64Gauge
	oldest                                                                                     metric.Float64Gauge

	mu    sync.Mutex
	kinds kindSet
}

var _ settle.Observer = (*Observer)(nil)

// seconds are the bounds of the histograms: a request takes a moment, a bank refund days.
var seconds = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}

// New makes an Observer. An error is the meter provider's: an instrument of one of the names exists in another form.
func New(opts *Options) (*Observer, error) {
	o := opts.withDefaults()
	x := &Observer{next: o.Next, tracer: o.Tracers.Tracer(scope), kinds: kindSet{}}
	m := o.Meters.Meter(scope)
	var errs []error
	count := func(to *metric.Int64Counter, name, unit, about string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		*to = c
		errs = append(errs, err)
	}
	measure := func(to *metric.Float64Histogram, name, about string) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(seconds...))
		*to = h
		errs = append(errs, err)
	}
	count(&x.transitions, "settle.transitions", "{transition}", "Changes of state, by where they led.")
	count(&x.observations, "settle.observations", "{observation}", "What providers said, by fact and source.")
	count(&x.alarms, "settle.alarms", "{alarm}", "Anomalies, and operations that need a person.")
	count(&x.noAnswers, "settle.no_answers", "{call}", "Calls of a provider that ended without an answer.")
	count(&x.lost, "settle.claims.lost", "{claim}", "Claims that their holder found lost.")
	count(&x.storeErrors, "settle.store.errors", "{error}", "Failed calls of the store.")
	count(&x.prevented, "settle.prevented", "{call}", "Calls and events that could have been a second effect, by why they were none.")
	count(&x.recoveries, "settle.recoveries", "{pass}", "Passes over operations whose effect may exist, by the states before and after.")
	measure(&x.recovery, "settle.recovery.duration", "From an operation's creation until a pass after its first ended what was unknown.")
	gauge := func(to *metric.Int64Gauge, name, about string) {
		g, err := m.Int64Gauge(name, metric.WithUnit("{operation}"), metric.WithDescription(about))
		*to = g
		errs = append(errs, err)
	}
	gauge(&x.operations, "settle.operations", "How many operations there are, by state, at the last count.")
	gauge(&x.waiting, "settle.operations.overdue", "How many of them are due, and nobody claims them.")
	var err error
	x.oldest, err = m.Float64Gauge("settle.operations.age", metric.WithUnit("s"), metric.WithDescription("How long ago the oldest of them was created."))
	errs = append(errs, err)
	x.attempts, err = m.Int64Histogram("settle.operation.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Requests that an operation had had when it was settled or went to review."),
		metric.WithExplicitBucketBoundaries(0, 1, 2, 3, 5, 8, 13, 21, 50))
	errs = append(errs, err)
	count(&x.hookErrors, "settle.hook.errors", "{error}", "Failed consequences.")
	count(&x.publishErrors, "settle.publish.errors", "{error}", "Messages of the feed that were not delivered, by what that says.")
	measure(&x.duration, "settle.operation.duration", "From an operation's creation until it was settled or went to review.")
	measure(&x.overdue, "settle.overdue", "For how long operations have been due that nobody claims, at each look.")
	if err = errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, name := range o.Kinds {
		x.zero(keyKind.String(x.kind(name)))
	}
	return x, nil
}

// zero begins the series of a kind that are there for what should not happen.
func (o *Observer) zero(kind attribute.KeyValue) {
	ctx := context.Background()
	for _, c := range []metric.Int64Counter{o.noAnswers, o.lost, o.hookErrors} {
		c.Add(ctx, 0, metric.WithAttributes(kind))
	}
	for _, word := range []string{"outage", "poison"} {
		o.publishErrors.Add(ctx, 0, metric.WithAttributes(kind, keyError.String(word)))
	}
	for _, a := range []string{
		settle.AlarmDuplicate, settle.AlarmMismatch, settle.AlarmCanceled, settle.AlarmReplaced, settle.AlarmForeign, settle.AlarmExcess, settle.AlarmUndone,
		settle.AlarmElsewhere, settle.AlarmReversal, settle.AlarmReview, settle.AlarmOverdue, settle.AlarmAside,
	} {
		o.alarms.Add(ctx, 0, metric.WithAttributes(kind, keyAlarm.String(a)))
	}
}

// Notice implements settle.Observer.
func (o *Observer) Notice(ctx context.Context, n settle.Notice) {
	if o.next != nil {
		o.next.Notice(ctx, n)
	}
	kind := keyKind.String(o.kind(n.Kind))
	switch n.Event {
	case settle.EventTransition:
		to := keyState.String(string(n.To))
		o.transitions.Add(ctx, 1, metric.WithAttributes(kind, keyFrom.String(string(n.From)), to))
		if n.To.Settled() || n.To == settle.StateReview {
			o.duration.Record(ctx, n.Age.Seconds(), metric.WithAttributes(kind, to))
			o.attempts.Record(ctx, int64(n.Attempts), metric.WithAttributes(kind, to))
		}
		o.observed(ctx, kind, n)
		o.mark(ctx, "settle "+string(n.To), n)
	case settle.EventEvidence:
		o.observed(ctx, kind, n)
	case settle.EventSchedule:
	case settle.EventAlarm:
		for _, a := range n.Alarms {
			o.alarms.Add(ctx, 1, metric.WithAttributes(kind, keyAlarm.String(a)))
		}
		o.mark(ctx, "settle alarm", n)
	case settle.EventNoAnswer:
		o.noAnswers.Add(ctx, 1, metric.WithAttributes(kind, keyError.String(n.Code))) // settle's own word
	case settle.EventClaimLost:
		o.lost.Add(ctx, 1, metric.WithAttributes(kind))
	case settle.EventStoreError:
		o.storeErrors.Add(ctx, 1, metric.WithAttributes(kind, keyError.String(n.Code))) // settle's own word
	case settle.EventHookError:
		o.hookErrors.Add(ctx, 1, metric.WithAttributes(kind))
	case settle.EventPublishError:
		o.publishErrors.Add(ctx, 1, metric.WithAttributes(kind, keyError.String(n.Code)))
	case settle.EventPrevented:
		o.prevented.Add(ctx, 1, metric.WithAttributes(kind, keyPrevented.String(n.Code)))
	case settle.EventRecovery:
		to := keyState.String(string(n.To))
		o.recoveries.Add(ctx, 1, metric.WithAttributes(kind, keyFrom.String(string(n.From)), to))
		if n.To.Settled() || n.To == settle.StateReview && n.From != settle.StateReview {
			o.recovery.Record(ctx, n.Age.Seconds(), metric.WithAttributes(kind, to))
		}
	case settle.EventTally:
		at := metric.WithAttributes(kind, keyState.String(string(n.To)))
		o.operations.Record(ctx, n.Count, at)
		o.waiting.Record(ctx, n.Overdue, at)
		o.oldest.Record(ctx, n.Age.Seconds(), at)
	case settle.EventOverdue:
		o.overdue.Record(ctx, n.Age.Seconds(), metric.WithAttributes(kind))
	}
}

func (o *Observer) observed(ctx context.Context, kind attribute.KeyValue, n settle.Notice) {
	if n.Fact != "" {
		o.observations.Add(ctx, 1, metric.WithAttributes(kind, keyFact.String(string(n.Fact)),
			keySource.String(string(n.Source)), keyDisposition.String(string(n.Disposition))))
	}
}

// mark leaves a span without length in the operation's trace.
func (o *Observer) mark(ctx context.Context, name string, n settle.Notice) {
	ctx, opts := inTrace(ctx, n.Operation)
	attrs := []attribute.KeyValue{
		keyOperation.String(n.Operation), keyKind.String(n.Kind), keyFrom.String(string(n.From)), keyState.String(string(n.To)),
	}
	if n.Fact != "" {
		attrs = append(attrs, keyFact.String(string(n.Fact)), keySource.String(string(n.Source)))
	}
	if n.Attempt > 0 {
		attrs = append(attrs, keyAttempt.Int(n.Attempt))
	}
	if len(n.Alarms) > 0 {
		attrs = append(attrs, keyAlarm.StringSlice(n.Alarms))
	}
	_, span := o.tracer.Start(ctx, name, append(opts, trace.WithAttributes(attrs...))...)
	if n.Event == settle.EventAlarm {
		span.SetStatus(codes.Error, "alarm")
	}
	span.End()
}

// kind bounds the values of an attribute.
func (o *Observer) kind(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kinds.bound(name)
}
