package otelsettle

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/settle-go/settle"
)

const (
	// unclaimedAfter is how long a row may be due before nobody is said to claim it, as in the worker's own notice.
	unclaimedAfter = time.Minute
	// readFor bounds one reading of the store: shorter than the patience of most scrapers, which is 10 seconds.
	readFor = 8 * time.Second
)

// Lister is what Measure reads: a *settle.Engine.
type Lister interface {
	// List is that of settle.Engine.
	List(ctx context.Context, q settle.Query) iter.Seq2[settle.Record, error]
}

// MeasureOptions say where to measure. The zero value and nil mean the global meter provider and one reading a minute.
type MeasureOptions struct {
	Meters metric.MeterProvider
	// Every is the least time between two readings of the store; a collection in between gets the last one. Defaults to one
	// minute. A reading is that of Engine.List: it holds little in memory, but a SQL store passes over every row, settled ones
	// too. With many millions of rows read every ten minutes, from a replica if you have one: nothing is decided by it.
	Every time.Duration
}

// Measure registers gauges of what is in the store now, so that an alert on them lasts for as long as what it is about:
//
//   - settle.unsettled.count and settle.unsettled.age: how many operations are not settled, and how old the oldest of them is,
//     by kind and state
//   - settle.unsettled.past_window: those whose outcome is unknown and whose provider may have forgotten the key (I6)
//   - settle.unclaimed.count: due for more than a minute, and nobody claims them (I10); consequences that are due among them
//   - settle.reviews.overdue: a person had to decide by now
//   - settle.measure.age: seconds since the store could be read. The others keep what was read last.
//
// One process for each database is enough, a worker or one that does nothing else; several say the same. Events that wait for their
// operation count under the kind settle.event, messages that were refused under settle.feed. stop ends it. An error is the meter provider's.
func Measure(from Lister, opts *MeasureOptions) (stop func() error, err error) {
	m := &measure{from: from, every: time.Minute, start: time.Now()}
	o := (&Options{}).withDefaults()
	if opts != nil {
		if opts.Every > 0 {
			m.every = opts.Every
		}
		if opts.Meters != nil {
			o.Meters = opts.Meters
		}
	}
	meter := o.Meters.Meter(scope)
	var errs []error
	count := func(to *metric.Int64ObservableGauge, name, about string) metric.Observable {
		g, err := meter.Int64ObservableGauge(name, metric.WithUnit("{operation}"), metric.WithDescription(about))
		*to, errs = g, append(errs, err)
		return g
	}
	age := func(to *metric.Float64ObservableGauge, name, about string) metric.Observable {
		g, err := meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about))
		*to, errs = g, append(errs, err)
		return g
	}
	all := []metric.Observable{
		count(&m.count, "settle.unsettled.count", "Operations that are not settled."),
		age(&m.age, "settle.unsettled.age", "How old the oldest operation is that is not settled."),
		count(&m.past, "settle.unsettled.past_window", "Unknown outcomes that are older than the provider's key window."),
		count(&m.unclaimed, "settle.unclaimed.count", "Operations that have been due for more than a minute and that nobody claims."),
		count(&m.overdue, "settle.reviews.overdue", "Reviews whose deadline has passed."),
		age(&m.read, "settle.measure.age", "Since the store could be read for these gauges."),
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	reg, err := meter.RegisterCallback(m.collect, all...)
	if err != nil {
		return nil, err
	}
	return reg.Unregister, nil
}

type measure struct {
	from  Lister
	every time.Duration
	start time.Time

	count, past, unclaimed, overdue metric.Int64ObservableGauge
	age, read                       metric.Float64ObservableGauge

	mu   sync.Mutex
	last stock
	at   time.Time // of the last reading; zero: none yet
}

// stock is one reading.
type stock struct {
	open                     map[kindState]level
	past, unclaimed, overdue map[string]int64
}

type kindState struct {
	kind  string
	state settle.State
}

type level struct {
	count  int64
	oldest time.Duration
}

func (m *measure) collect(ctx context.Context, o metric.Observer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at.IsZero() || time.Since(m.at) >= m.every {
		began := time.Now()
		ctx, cancel := context.WithTimeout(ctx, readFor)
		defer cancel()
		if s, err := m.look(ctx); err != nil {
			// Not returned: an exporter would leave out everything else too. A driver's text stays out (I16).
			otel.Handle(errors.New("settle: otelsettle: measure: the store could not be read"))
		} else {
			m.last, m.at = s, began
		}
	}
	since := m.at
	if since.IsZero() {
		since = m.start
	}
	o.ObserveFloat64(m.read, time.Since(since).Seconds())
	for k, l := range m.last.open {
		attrs := metric.WithAttributes(keyKind.String(k.kind), keyState.String(string(k.state)))
		o.ObserveInt64(m.count, l.count, attrs)
		o.ObserveFloat64(m.age, l.oldest.Seconds(), attrs)
	}
	for g, by := range map[metric.Int64ObservableGauge]map[string]int64{m.past: m.last.past, m.unclaimed: m.last.unclaimed, m.overdue: m.last.overdue} {
		for kind, n := range by {
			o.ObserveInt64(g, n, metric.WithAttributes(keyKind.String(kind)))
		}
	}
	return nil
}

// look reads the store once, in pages.
func (m *measure) look(ctx context.Context) (stock, error) {
	s := stock{open: map[kindState]level{}, past: map[string]int64{}, unclaimed: map[string]int64{}, overdue: map[string]int64{}}
	kinds := kindSet{}
	var open []settle.State
	for _, st := range settle.States() {
		if !st.Settled() {
			open = append(open, st)
		}
	}
	for _, kind := range []string{"", settle.EventKind, settle.FeedKind} { // all but settle's own, events, and places of feeds
		for r, err := range m.from.List(ctx, settle.Query{Kind: kind, States: open}) {
			if err != nil {
				return s, err
			}
			s.add(kinds.bound(r.Kind), &r)
		}
		for r, err := range m.from.List(ctx, settle.Query{Kind: kind, Overdue: unclaimedAfter}) {
			if err != nil {
				return s, err
			}
			s.unclaimed[kinds.bound(r.Kind)]++
		}
	}
	return s, nil
}

func (s *stock) add(kind string, r *settle.Record) {
	k := kindState{kind, r.State}
	l := s.open[k]
	l.count++
	l.oldest = max(l.oldest, r.AsOf.Sub(r.CreatedAt))
	s.open[k] = l
	// A zero makes the series exist before it is needed.
	s.past[kind] += 0
	s.overdue[kind] += 0
	s.unclaimed[kind] += 0
	if pastWindow(r) {
		s.past[kind]++
	}
	if r.State == settle.StateReview && r.Review != nil && r.AsOf.After(r.Review.Deadline) {
		s.overdue[kind]++
	}
}

// pastWindow reports that the outcome of r is unknown and that its key may be forgotten: the window opens with the first attempt
// that may have left. What the provider says it is working on may take longer than that.
func pastWindow(r *settle.Record) bool {
	if r.KeyWindow == 0 || r.State == settle.StateProcessing || r.State == settle.StateActionRequired {
		return false
	}
	var first time.Time
	open := false
	for _, a := range r.Attempts {
		if a.Fate == settle.FateNotSent || a.Fate == settle.FateNotApplied {
			continue
		}
		if first.IsZero() {
			first = a.Start
		}
		open = open || a.Ended() == settle.FateOpen
	}
	return open && !r.AsOf.Before(first.Add(r.KeyWindow))
}

// kindSet bounds the values of an attribute.
type kindSet map[string]struct{}

func (k kindSet) bound(name string) string {
	if _, ok := k[name]; !ok {
		if len(k) >= maxKinds {
			return "_OTHER"
		}
		k[name] = struct{}{}
	}
	return name
}
