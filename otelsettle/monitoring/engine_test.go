package monitoring

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

var language = parser.NewParser(parser.Options{})

// rules reads the rules as Prometheus does.
func rules(t testing.TB) []rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile("settle.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.LegacyValidation, language, promslog.NewNopLogger())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) != 1 {
		t.Fatal("there should be one group of rules")
	}
	return groups.Groups[0].Rules
}

// series are what Prometheus would have scraped.
type series []storage.Series

// load adds what a line in the notation of promtool says: values is "1+1x5 _x3 9".
func (s *series) load(t testing.TB, name, values string, interval time.Duration) {
	t.Helper()
	metric, seq, err := language.ParseSeriesDesc(name + " " + values)
	if err != nil {
		t.Fatalf("%s %s: %v", name, values, err)
	}
	var list []chunks.Sample
	for i, v := range seq {
		if !v.Omitted {
			list = append(list, sample{(time.Duration(i) * interval).Milliseconds(), v.Value})
		}
	}
	*s = append(*s, storage.NewListSeries(metric, list))
}

// sample is one of a series.
type sample struct {
	at int64
	v  float64
}

func (s sample) T() int64                    { return s.at }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.v }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// Querier implements storage.Queryable.
func (s series) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, x := range s {
			if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(x.Labels().Get(m.Name)) }) {
				found = append(found, x)
			}
		}
		slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		return &set{list: found, at: -1}
	}}, nil
}

type set struct {
	list []storage.Series
	at   int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.list) }
func (s *set) At() storage.Series                { return s.list[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// alert is one that fires, in a form that can be compared.
type alert struct{ labels, annotations map[string]string }

func (a alert) String() string {
	text := func(m map[string]string) string {
		var out []string
		for _, k := range slices.Sorted(maps.Keys(m)) {
			out = append(out, fmt.Sprintf("%s=%q", k, m[k]))
		}
		return strings.Join(out, " ")
	}
	return "{" + text(a.labels) + "} " + text(a.annotations)
}

// evaluator evaluates alerts over series as Prometheus does.
type evaluator struct {
	t      testing.TB
	engine *promql.Engine
	data   series
}

func newEvaluator(t testing.TB, data series) *evaluator {
	e := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: language})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &evaluator{t, e, data}
}

func (e *evaluator) query(ctx context.Context, expr string, at time.Time) promql.Vector {
	e.t.Helper()
	q, err := e.engine.NewInstantQuery(ctx, e.data, nil, expr, at)
	if err != nil {
		e.t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		e.t.Fatalf("%s: %v", expr, res.Err)
	}
	v, err := res.Vector()
	if err != nil {
		e.t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(v) // the engine takes its own back
}

// firing evaluates r every step and returns what fires at the given time: what has been there for as long as the rule says. What was
// before that changes nothing.
func (e *evaluator) firing(ctx context.Context, r *rulefmt.Rule, step, until time.Duration) (out []alert) {
	e.t.Helper()
	since := map[string]time.Duration{}
	var now promql.Vector
	for d := max(0, until-time.Duration(r.For)).Truncate(step); d <= until; d += step {
		now = e.query(ctx, r.Expr, time.UnixMilli(0).Add(d))
		there := map[string]time.Duration{}
		for _, s := range now {
			key := s.Metric.String()
			first, ok := since[key]
			if !ok {
				first = d
			}
			there[key] = first
		}
		since = there
	}
	for _, s := range now {
		if until-since[s.Metric.String()] >= time.Duration(r.For) {
			out = append(out, e.alert(ctx, r, s))
		}
	}
	return out
}

func (e *evaluator) alert(ctx context.Context, r *rulefmt.Rule, s promql.Sample) alert {
	e.t.Helper()
	own := s.Metric.Map()
	delete(own, model.MetricNameLabel)
	data := template.AlertTemplateData(own, nil, "", s)
	expand := func(text string) string {
		x := template.NewTemplateExpander(ctx, `{{ $labels := .Labels }}{{ $value := .Value }}`+text, r.Alert, data, model.Time(s.T), nil, new(url.URL), nil)
		out, err := x.Expand()
		if err != nil {
			e.t.Errorf("%s: %v", r.Alert, err)
		}
		return out
	}
	a := alert{labels: own, annotations: map[string]string{}}
	for k, v := range r.Labels {
		a.labels[k] = expand(v)
	}
	for k, v := range r.Annotations {
		a.annotations[k] = expand(v)
	}
	return a
}
