package settle_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources returns the text of the module's Go files whose path satisfies keep, nested
// modules included.
func sources(t *testing.T, keep func(path string) bool) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."), d.IsDir() && d.Name() == "bin":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || !keep(path):
			return nil
		}
		text, err := os.ReadFile(path)
		out[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func isTestCode(path string) bool {
	return strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/") || strings.HasPrefix(path, "storetest/")
}

// Each invariant of the package documentation is named by at least one test: in the
// name of a test function, or at the start of a subtest's name.
func TestEveryInvariantIsNamedByATest(t *testing.T) {
	t.Parallel()
	later := map[string]string{
		"I9": "whole amounts and reservations are tested; partial amounts, foreign refunds and bounced ones come with the full ledger",
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^//   - (I\d+) `).FindAllStringSubmatch(string(doc), -1) {
		want = append(want, m[1])
	}
	if len(want) != 16 {
		t.Fatalf("the package documentation lists %d invariants, want 16", len(want))
	}
	named := map[string]bool{}
	name := regexp.MustCompile(`func Test(I\d+)[_A-Z]|Run\("(I\d+)[ :/_]|name: +"(I\d+)[ :/_]|"(I\d+) [a-z]`)
	for _, text := range sources(t, isTestCode) {
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			for _, id := range m[1:] {
				named[id] = true
			}
		}
	}
	for _, id := range want {
		if why, ok := later[id]; !named[id] && !ok {
			t.Errorf("no test names %s", id)
		} else if ok {
			t.Logf("%s is completed later: %s", id, why)
		}
	}
}

// The root module requires four modules, ever; programs that import it get two.
func TestRequirements(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"github.com/DATA-DOG/go-sqlmock", "github.com/google/uuid", "github.com/shopspring/decimal", "github.com/stretchr/testify",
	}
	var direct []string
	for line := range strings.Lines(string(mod)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && strings.Contains(f[0], ".") && strings.Contains(f[0], "/") && strings.HasPrefix(f[1], "v") && !strings.Contains(line, "// indirect") {
			direct = append(direct, f[0])
		}
		if strings.HasPrefix(strings.TrimSpace(line), "replace") {
			t.Errorf("a replace in the root go.mod: %s", line)
		}
	}
	slices.Sort(direct)
	if !slices.Equal(direct, want) {
		t.Errorf("the root module requires %v, want %v", direct, want)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(p, "github.com/settle-go/settle") && p != "github.com/google/uuid" && p != "github.com/shopspring/decimal" {
			t.Errorf("production code of the root module links %s", p)
		}
	}
	if _, err := os.Stat("go.work"); err == nil {
		t.Error("a go.work hides leaked dependencies")
	}
}

// Every test that the README's guarantees table names exists.
func TestReadmeGuarantees(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "## Guarantees")
	if !ok {
		t.Fatal("the README has no guarantees")
	}
	table, _, _ := strings.Cut(rest, "\n## ")
	var all strings.Builder
	for _, text := range sources(t, isTestCode) {
		all.WriteString(text)
	}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "claim" {
			continue
		}
		rows++
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1)
		if len(names) == 0 {
			t.Errorf("no test in row %q", line)
		}
		for _, n := range names {
			fn := "func " + n[1] + "("
			sub := "\"" + n[1]
			if !strings.Contains(all.String(), fn) && !strings.Contains(all.String(), sub) {
				t.Errorf("the README names a test that does not exist: %s", n[1])
			}
		}
	}
	if rows < 12 {
		t.Errorf("only %d guarantees", rows)
	}
}
