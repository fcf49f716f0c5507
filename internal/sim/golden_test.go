package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

var goldenUpdate = flag.Bool("update", false, "write the traces under testdata anew")

func sceneMemory(testing.TB) settle.Store { return memstore.New(nil) }

// TestGolden plays every scenario and compares its trace with the recorded one: each store
// call, provider call and decision, in order. Empty polls are left out.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, s := range allScenes(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			got := goldenTrace(t, s)
			if *goldenUpdate {
				if err := os.WriteFile(filepath.Join("testdata", s.Name+".txt"), []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != s.recorded {
				t.Errorf("testdata/%s.txt is not what happens; go test -update writes it anew.\n%s", s.Name, goldenDiff(s.recorded, got))
			}
		})
	}
}

// goldenTrace plays s and returns its file with the trace as it is now.
func goldenTrace(t *testing.T, s *Scene) string {
	var g goldenLines
	synctest.Test(t, func(t *testing.T) {
		w := newSceneWorld(t, s, sceneMemory, nil)
		w.trace = g.add
		w.run(true, g.add)
		g.end()
		w.close()
		for _, p := range w.problems {
			t.Error(p)
		}
	})
	return g.text.String()
}

// goldenLines collects a trace. The same line again is only counted.
type goldenLines struct {
	mu    sync.Mutex
	text  strings.Builder
	last  string
	again int
	ended bool
}

func (g *goldenLines) add(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended:
	case line+"\n" == g.last && strings.HasPrefix(line, " "):
		g.again++
	default:
		g.flush()
		g.last = line + "\n"
	}
}

func (g *goldenLines) flush() {
	if g.again > 0 {
		g.last = fmt.Sprintf("%s (%d times)\n", strings.TrimSuffix(g.last, "\n"), g.again+1)
	}
	g.text.WriteString(g.last)
	g.last, g.again = "", 0
}

func (g *goldenLines) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flush()
	g.ended = true
}

// goldenDiff shows the first lines that differ.
func goldenDiff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	show := func(lines []string) string { return strings.Join(lines[min(i, len(lines)):min(i+4, len(lines))], "\n") }
	return "recorded:\n" + show(a) + "\nnow:\n" + show(b)
}
