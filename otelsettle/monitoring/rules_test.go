package monitoring

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

// suite is a file of unit tests as promtool reads it, as far as ours uses it.
type suite struct {
	RuleFiles []string       `yaml:"rule_files"`
	Step      model.Duration `yaml:"evaluation_interval"`
	Tests     []struct {
		Name     string         `yaml:"name"`
		Interval model.Duration `yaml:"interval"`
		Input    []struct {
			Series string `yaml:"series"`
			Values string `yaml:"values"`
		} `yaml:"input_series"`
		Alerts []struct {
			At    model.Duration `yaml:"eval_time"`
			Alert string         `yaml:"alertname"`
			Want  []struct {
				Labels      map[string]string `yaml:"exp_labels"`
				Annotations map[string]string `yaml:"exp_annotations"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

// TestRules runs the unit tests of the rules. Each alert has a case in which it fires and one, with series that it reads,
// in which it stays silent.
func TestRules(t *testing.T) {
	text, err := os.ReadFile("settle.rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	var s suite
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.RuleFiles, []string{"settle.rules.yml"}) {
		t.Errorf("the tests are of %v", s.RuleFiles)
	}
	byName := map[string]*rulefmt.Rule{}
	list := rules(t)
	for i := range list {
		byName[list[i].Alert] = &list[i]
	}
	fired, silent := map[string]int{}, map[string]int{}
	for _, test := range s.Tests {
		t.Run(test.Name, func(t *testing.T) {
			var data series
			for _, in := range test.Input {
				data.load(t, in.Series, in.Values, time.Duration(test.Interval))
			}
			e := newEvaluator(t, data)
			for _, c := range test.Alerts {
				r := byName[c.Alert]
				if r == nil {
					t.Fatalf("there is no alert %s", c.Alert)
				}
				var got, want []string
				for _, a := range e.firing(t.Context(), r, time.Duration(s.Step), time.Duration(c.At)) {
					got = append(got, a.String())
				}
				for _, w := range c.Want {
					want = append(want, alert{w.Labels, w.Annotations}.String())
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s at %s:\n got %v\nwant %v", c.Alert, c.At, got, want)
				}
				if len(want) > 0 {
					fired[c.Alert]++
				} else {
					silent[c.Alert]++
				}
			}
		})
	}
	for name := range byName {
		if fired[name] == 0 || silent[name] == 0 {
			t.Errorf("%s: %d cases in which it fires, %d in which it does not", name, fired[name], silent[name])
		}
	}
}

// TestRunbook: each alert leads to its section in docs/operators.md, and each section of an alert has one.
func TestRunbook(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Settle\w+)$`).FindAllStringSubmatch(string(doc), -1) {
		sections[m[1]] = true
	}
	for _, r := range rules(t) {
		if !sections[r.Alert] {
			t.Errorf("docs/operators.md has no section %s", r.Alert)
		}
		delete(sections, r.Alert)
		if url := r.Annotations["runbook_url"]; url != "https://github.com/settle-go/settle/blob/main/docs/operators.md#"+strings.ToLower(r.Alert) {
			t.Errorf("%s leads to %q", r.Alert, url)
		}
		if r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s has no summary or severity", r.Alert)
		}
	}
	for name := range sections {
		t.Errorf("docs/operators.md has a section %s, and there is no such alert", name)
	}
}
