package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/otelsettle"
	"github.com/settle-go/settle/providertest"
)

// exported is what Prometheus gets to see: the labels of each metric and their values.
type exported map[string]map[string][]string

// export runs operations that meet trouble and gathers what the exporter makes of it. Only the words of alarms and of
// states are told, since not all of them can be had in one run.
func export(t *testing.T) exported {
	t.Helper()
	out := exported{}
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
		ok(t, err)
		opts := &otelsettle.Options{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))}
		obs, err := otelsettle.New(opts)
		ok(t, err)
		world := rig.New(t, memstore.New(nil), nil)
		p := world.Bare(&settle.Options{Observer: obs, TallyEvery: time.Minute})
		charges := make(prober)
		a, err := otelsettle.Wrap(charges.adapter(world.Promise), "charge", opts)
		ok(t, err)
		x, err := settle.New(p.Engine, "charge", a, &settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[providertest.Receipt]) error {
				return errors.New("no printer")
			},
		})
		ok(t, err)
		_, err = otelsettle.Measure(p.Engine, &otelsettle.MeasureOptions{Meters: opts.Meters})
		ok(t, err)
		charges["lost"] = settle.Observation[providertest.Receipt]{}
		charges["paid"] = settle.Observation[providertest.Receipt]{
			Fact: settle.Applied, Ref: "ch_1", Terms: settle.Terms{Account: world.Promise.Account.Account, Amount: settle.Minor(1999, "EUR")},
		}
		for order := range charges {
			_, _ = x.Execute(t.Context(), rig.Op(order, 1999, "EUR"))
			_, _ = x.Execute(t.Context(), rig.Op(order, 1999, "EUR")) // a replay
		}
		time.Sleep(20 * time.Minute) // nobody works: they are due
		p.Work()
		time.Sleep(20 * time.Minute)
		for _, e := range []settle.NoticeEvent{settle.EventAlarm, settle.EventClaimLost, settle.EventStoreError, settle.EventPublishError, settle.EventOverdue} {
			obs.Notice(t.Context(), settle.Notice{Event: e, Kind: "charge", Code: "outage", Age: time.Second, Alarms: []string{
				settle.AlarmDuplicate, settle.AlarmMismatch, settle.AlarmForeign, settle.AlarmExcess, settle.AlarmReview, settle.AlarmOverdue,
				settle.AlarmAside, settle.AlarmCanceled, settle.AlarmReplaced,
			}})
		}
		for _, s := range settle.States() {
			obs.Notice(t.Context(), settle.Notice{Event: settle.EventTransition, Kind: "charge", To: s})
		}
		families, err := registry.Gather()
		ok(t, err)
		for _, f := range families {
			names := []string{f.GetName()}
			if f.GetType().String() == "HISTOGRAM" {
				names = []string{f.GetName() + "_bucket", f.GetName() + "_count", f.GetName() + "_sum"}
			}
			for _, name := range names {
				out[name] = map[string][]string{"le": {}}
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						out[name][l.GetName()] = append(out[name][l.GetName()], l.GetValue())
					}
				}
			}
		}
	})
	return out
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// prober is a provider that says of an order what it is told to; nothing is no answer.
type prober map[string]settle.Observation[providertest.Receipt]

func (p prober) adapter(promise settle.Contract) settle.Adapter[providertest.Payment, providertest.Receipt] {
	a := providertest.ChargeAdapter(nil, promise)
	a.SubmitFunc = func(_ context.Context, c *settle.Call[providertest.Payment]) (settle.Observation[providertest.Receipt], error) {
		_ = c.Key()
		if obs := p[c.Subject]; obs.Fact != settle.Unclear {
			return obs, nil
		}
		return settle.Observation[providertest.Receipt]{}, errors.New("no answer")
	}
	a.LookupFunc = func(context.Context, *settle.Call[providertest.Payment]) (settle.Observation[providertest.Receipt], error) {
		return settle.Observation[providertest.Receipt]{}, errors.New("no answer")
	}
	return a
}

// check finds which metrics expr reads, and what is wrong with them.
func (x exported) check(expr string) (read, wrong []string) {
	tree, err := language.ParseExpr(expr)
	if err != nil {
		return nil, []string{err.Error()}
	}
	parser.Inspect(tree, func(n parser.Node, path []parser.Node) error {
		v, is := n.(*parser.VectorSelector)
		if !is {
			return nil
		}
		read = append(read, v.Name)
		metric := x[v.Name]
		if metric == nil {
			wrong = append(wrong, "nothing exports "+v.Name)
			return nil
		}
		for _, m := range v.LabelMatchers {
			if m.Name == model.MetricNameLabel {
				continue
			}
			if _, known := metric[m.Name]; !known {
				wrong = append(wrong, v.Name+" has no label "+m.Name)
			}
			if m.Type != labels.MatchEqual && m.Type != labels.MatchRegexp {
				continue
			}
			for want := range strings.SplitSeq(m.Value, "|") {
				if !slices.ContainsFunc(metric[m.Name], labels.MustNewMatcher(m.Type, m.Name, want).Matches) {
					wrong = append(wrong, "no "+v.Name+" has "+m.Name+"="+want)
				}
			}
		}
		for _, up := range path {
			if by, is := up.(*parser.AggregateExpr); is {
				for _, l := range by.Grouping {
					if _, known := metric[l]; !known {
						wrong = append(wrong, v.Name+" has no label "+l+" to group by")
					}
				}
			}
		}
		return nil
	})
	return read, wrong
}

// TestEverythingReadIsExported: each metric, label and word in a rule, and in a panel of the dashboard, is one that the exporter
// gives after a real run; and each instrument of otelsettle is on the dashboard.
func TestEverythingReadIsExported(t *testing.T) {
	x := export(t)
	look := func(where, expr string) []string {
		read, wrong := x.check(expr)
		for _, w := range wrong {
			t.Errorf("%s: %s", where, w)
		}
		return read
	}
	for _, r := range rules(t) {
		look(r.Alert, r.Expr)
	}
	shown := map[string]bool{}
	for title, exprs := range panels(t) {
		for _, expr := range exprs {
			for _, name := range look(title, expr) {
				shown[strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")] = true
			}
		}
	}
	for name := range x {
		short := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		if strings.HasPrefix(name, "settle_") && !shown[short] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}

// TestCheckBites: what nobody exports is found.
func TestCheckBites(t *testing.T) {
	x := export(t)
	for _, expr := range []string{
		`sum(settle_alarm_total)`, `settle_alarms_total{settle_alarm="duplicate"}`, `settle_alarms_total{alarm="review"}`,
		`sum by (kind) (settle_alarms_total)`, `sum(settle_alarms_total`, `settle_alarms_total{settle_alarm=~"review|nothing"}`,
	} {
		if _, wrong := x.check(expr); len(wrong) == 0 {
			t.Errorf("%s was taken", expr)
		}
	}
}

// panels are the queries of the dashboard by the title of their panel, with Grafana's variables filled in.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("settle.dashboard.json")
	ok(t, err)
	var d struct {
		UID, Title string
		Panels     []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, RefID string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	ok(t, json.Unmarshal(text, &d))
	fill := strings.NewReplacer("$__rate_interval", "5m", "$kind", "charge")
	out, ids := map[string][]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if ids[p.ID] || out[p.Title] != nil || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H == 0 {
			t.Errorf("panel %d %q is there twice, empty, or outside", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			out[p.Title] = append(out[p.Title], fill.Replace(q.Expr))
		}
	}
	for _, v := range d.Templating.List {
		if m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition); m != nil {
			out["variable "+v.Name] = []string{"count by (" + m[2] + ") (" + m[1] + ")"}
		}
	}
	if d.UID == "" || len(out) < 15 {
		t.Errorf("the dashboard has only %d panels", len(out))
	}
	return out
}
