package sim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/settle-go/settle"
)

// failureRow is a row of the tables of docs/failures.md.
type failureRow struct{ happened, where, does, caller, ledger, tests string }

var failureCode = regexp.MustCompile("`([^`]+)`")

// failureWords are the words in code quotes of a cell.
func failureWords(cell string) []string {
	var out []string
	for _, m := range failureCode.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

func failureRows(t *testing.T) []failureRow {
	t.Helper()
	text, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []failureRow
	for line := range strings.Lines(string(text)) {
		c := strings.Split(strings.TrimSpace(line), "|")
		if len(c) < 3 || strings.HasPrefix(c[1], "---") || strings.TrimSpace(c[1]) == "what happened" {
			continue
		}
		if len(c) != 8 {
			t.Errorf("a row with %d cells: %s", len(c)-2, line)
			continue
		}
		for i := range c[1:7] {
			if strings.TrimSpace(c[i+1]) == "" {
				t.Errorf("a row with an empty cell: %s", line)
			}
		}
		out = append(out, failureRow{c[1], c[2], c[3], c[4], c[5], c[6]})
	}
	return out
}

// TestFailureTable holds docs/failures.md to the crash loop: each place and fault that the loop
// has is in a row, each that is in a row is in the loop, and the tests of each row exist.
func TestFailureTable(t *testing.T) {
	t.Parallel()
	type pair struct {
		site  string
		fault Fault
	}
	told := map[pair]bool{}
	rows := failureRows(t)
	names := failureTests(t)
	for _, r := range rows {
		for _, site := range failureWords(r.where) {
			for _, fault := range failureWords(r.happened) {
				k := pair{site, Fault(fault)}
				if told[k] {
					t.Errorf("%q at %q is in two rows", fault, site)
				}
				told[k] = true
			}
		}
		tests := failureWords(r.tests)
		if len(tests) == 0 {
			t.Errorf("no test in the row %s|%s", r.happened, r.where)
		}
		for _, name := range tests {
			for part := range strings.SplitSeq(name, "/") {
				if !names[part] {
					t.Errorf("the row %s|%s names %s, and there is no test %q", r.happened, r.where, name, part)
				}
			}
		}
	}
	played := map[pair]bool{}
	for _, s := range allScenes(t) {
		if !names[s.Name] || !slices.ContainsFunc(rows, func(r failureRow) bool { return strings.Contains(r.tests, "TestGolden/"+s.Name+"`") }) &&
			s.Name != "execute" {
			t.Errorf("no row names the scenario %s", s.Name)
		}
		for _, p := range CrashPoints(t, s, sceneMemory) {
			played[pair{p.Site, p.Fault}] = true
		}
	}
	for k := range played {
		if !told[k] {
			t.Errorf("%q at %q has no row", k.fault, k.site)
		}
	}
	for k := range told {
		if !played[k] {
			t.Errorf("%q at %q has a row, and the loop never plays it", k.fault, k.site)
		}
	}
	t.Logf("%d rows, %d places with faults", len(rows), len(played))
}

// failureTests collects the names that tests of all modules have: test functions, string
// constants (names of subtests), of traces the id alone, and scenarios.
func failureTests(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, s := range allScenes(t) {
		out[s.Name] = true
	}
	trace := regexp.MustCompile(`^T-\d+`)
	failureSources(t, "../..", func(path string) bool {
		return strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/internal/") || strings.Contains(path, "/storetest/")
	}, func(_ string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if strings.HasPrefix(n.Name.Name, "Test") && n.Recv == nil {
					out[n.Name.Name] = true
				}
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					out[s], out[trace.FindString(s)] = true, true
				}
			}
			return true
		})
	})
	delete(out, "")
	return out
}

func failureSources(t *testing.T, root string, keep func(string) bool, visit func(path string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || !keep(path):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			visit(path, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryCommitIsPlayed: whatever the engine writes into the history as its reason for a
// commit occurs in a scenario, so that a new kind of commit cannot stay out of the crash loop.
func TestEveryCommitIsPlayed(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"looked":          "the lookup that an event asks for (T-08): TestRegress_LookAgainLoop",
		"not_for_kind":    "an event that says nothing about the operation it names: TestEvents",
		"queued":          "the feed, at any fault of any call: TestFeed",
		"published":       "the feed, at any fault of any call: TestFeed",
		"set_aside":       "a poison message of the feed: TestFeed",
		"message_skipped": "a poison message that a person skips: TestFeed",
	}
	want := map[string]bool{}
	word := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			want[strings.Trim(l.Value, `"`)] = true
		}
	}
	failureSources(t, "../..", func(path string) bool {
		return filepath.Dir(path) == "../.." && !strings.HasSuffix(path, "_test.go")
	}, func(_ string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if id, ok := n.Key.(*ast.Ident); ok && id.Name == "Note" {
					word(n.Value)
				}
			case *ast.AssignStmt:
				for i, l := range n.Lhs {
					if s, ok := l.(*ast.SelectorExpr); ok && s.Sel.Name == "Note" && i < len(n.Rhs) {
						word(n.Rhs[i])
					}
				}
			}
			return true
		})
	})
	for _, action := range []string{"wait", "review", "cancel"} { // those that end a claim
		want[action] = true
	}
	if len(want) < 12 {
		t.Fatalf("only %d reasons were found in the engine's source: %v", len(want), want)
	}
	for _, s := range allScenes(t) {
		for note := range sceneNotes(t, s) {
			delete(want, note)
		}
	}
	for note := range want {
		if why, ok := elsewhere[note]; ok {
			t.Logf("not in a scenario: %s, %s", note, why)
			continue
		}
		t.Errorf("no scenario has a commit because of %q", note)
	}
}

// sceneNotes plays s and collects the reasons that its histories hold.
func sceneNotes(t *testing.T, s *Scene) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		w := newSceneWorld(t, s, sceneMemory, nil)
		w.run(true, nil)
		w.close()
		for _, r := range append(append(w.records(), w.kept()...), settle.Record{ID: settle.RetentionKind}) {
			for x, err := range w.reader.History(t.Context(), r.ID) {
				if err != nil {
					t.Fatal(err)
				}
				out[x.Note] = true
				if x.Source == settle.SourcePerson {
					out["decision"] = true
				}
			}
		}
	})
	return out
}
