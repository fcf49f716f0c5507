package settle

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestModel_Explore visits every state of each setting: I1, I2 and I4 to I10 hold in all of them, and
// from each of them everything comes to rest without faults, callers and persons.
func TestModel_Explore(t *testing.T) {
	t.Parallel()
	all, limit := settings, 60000
	if os.Getenv("SETTLE_MODEL") == "large" {
		all, limit = largeSettings, 4000000
	}
	data, err := os.ReadFile("docs/model.md")
	require.NoError(t, err)
	doc := string(data)
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			m := newModel(s, sound)
			g := m.explore(limit)
			if g.breach != nil {
				t.Fatalf("%s: %s, after %d states\n%s", g.breach.id, g.breach.why, len(g.parent), g.trace(g.at))
			}
			if bad := g.stuck(); len(bad) > 0 {
				t.Fatalf("I10: %d states are stuck, for instance\n%s", len(bad), g.trace(bad[0]))
			}
			assert.Contains(t, doc, fmt.Sprintf("| %s | %d | %d | %d |", s.name, len(g.parent), g.transitions, g.deepest), "docs/model.md has other numbers")
			t.Logf("%d states, %d transitions, %d steps deep; in %d states the bound of attempts stopped another", len(g.parent), g.transitions, g.deepest, g.cut)
		})
	}
}

// TestModel_FindsDesignErrors: each check of the model can fail. Given a design error, the exploration
// finds the shortest trace that breaks an invariant, and the shortest one that does harm.
func TestModel_FindsDesignErrors(t *testing.T) {
	t.Parallel()
	told := make(map[string]string)
	for _, c := range errorsOf {
		t.Run(c.name, func(t *testing.T) {
			find := func(only string) string {
				m := newModel(c.s, c.seed)
				m.only = only
				g := m.explore(60000)
				require.NotNil(t, g.breach, "not found in %d states", len(g.parent))
				require.NotEqual(t, "bounds", g.breach.id, g.breach.why)
				if only == "" {
					assert.Contains(t, c.ids, g.breach.id)
				}
				t.Logf("%s: %s: the shortest of %d states", g.breach.id, g.breach.why, len(g.parent))
				return fmt.Sprintf("%s: %s\n%s", g.breach.id, g.breach.why, g.trace(g.at))
			}
			trace := find("")
			if c.harm != "" {
				trace += "and the harm: " + find(c.harm)
			}
			told[c.name] = trace
			t.Log(trace)
			g := newModel(c.s, sound).explore(60000) // the same setting without the error
			require.Nil(t, g.breach)
			require.Empty(t, g.stuck())
		})
	}
	doc, err := os.ReadFile("docs/model.md")
	require.NoError(t, err)
	for _, c := range errorsOf[:5] {
		assert.Contains(t, string(doc), told[c.name], "docs/model.md has the trace of %q", c.name)
	}
}

// TestModel_Doc: the document lists every setting and every invariant that is checked.
func TestModel_Doc(t *testing.T) {
	doc, err := os.ReadFile("docs/model.md")
	require.NoError(t, err)
	for _, s := range slices.Concat(settings, largeSettings) {
		assert.Contains(t, string(doc), "| "+s.name+" |")
	}
	for _, id := range strings.Fields("I1 I2 I4 I5 I6 I7 I8 I9 I10") {
		assert.Contains(t, string(doc), "| "+id+" |")
	}
}
