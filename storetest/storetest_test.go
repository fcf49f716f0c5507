package storetest

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/settle-go/settle"
)

// contract reads the numbered clauses out of the comments in store.go, and the comment on
// settle.Tx, which has no number.
func contract(t *testing.T) map[string]string {
	t.Helper()
	src, err := os.ReadFile("../store.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	numbered, tx := regexp.MustCompile(`^\s*- (S\d+): (.*)`), regexp.MustCompile(`^ (Tx is .*)`)
	last := ""
	for line := range strings.Lines(string(src)) {
		text, comment := strings.CutPrefix(strings.TrimSpace(line), "//")
		m := numbered.FindStringSubmatch(text)
		if m == nil && comment {
			if x := tx.FindStringSubmatch(text); x != nil {
				m = []string{"", "Tx", "A " + x[1]}
			}
		}
		switch text = strings.TrimSpace(text); {
		case m != nil:
			last = m[1]
			if out[last] != "" {
				t.Errorf("store.go has clause %s twice", last)
			}
			out[last] = strings.TrimSpace(m[2])
		case comment && text != "" && last != "":
			out[last] += " " + text
		default:
			last = ""
		}
	}
	return out
}

// TestEveryClauseHasACase holds the clauses of store.go, those that failures print, and those
// that cases cite against each other: each is in all three.
func TestEveryClauseHasACase(t *testing.T) {
	there := contract(t)
	if there["S1"] == "" || there["S60"] == "" || there["Tx"] == "" {
		t.Fatalf("S1, S60 or Tx is not read from store.go; read: %q", slices.Sorted(maps.Keys(there)))
	}
	cited := map[string]bool{}
	for _, c := range allCases() {
		cited[c.clause] = true
		if there[c.clause] == "" {
			t.Errorf("%s is about a clause that is not in store.go", c.id())
		}
	}
	for id, text := range there {
		if id == "Tx" {
			text, _, _ = strings.Cut(text, " A Tx is only good")
		}
		if clauses[id] != text {
			t.Errorf("clause %s:\n\tin store.go: %s\n\tin clauses:  %s", id, text, clauses[id])
		}
		if !cited[id] {
			t.Errorf("clause %s has no case", id)
		}
	}
	for id := range clauses {
		if there[id] == "" {
			t.Errorf("clause %s is not in store.go", id)
		}
	}
}

// TestNoClauseIsMadeUp: what the suite's own text cites is in store.go.
func TestNoClauseIsMadeUp(t *testing.T) {
	there := contract(t)
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range regexp.MustCompile(`\bS\d+\b`).FindAllString(string(src), -1) {
			if there[id] == "" {
				t.Errorf("%s cites %s, which is not in store.go", f, id)
			}
		}
	}
}

func TestCasesAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range allCases() {
		if seen[c.id()] {
			t.Errorf("two cases are named %s", c.id())
		}
		seen[c.id()] = true
		if c.proves == "" || c.run == nil || clauses[c.clause] == "" {
			t.Errorf("%s is incomplete", c.id())
		}
	}
}

// TestFullIsFull fails when a field is added to Record or Entry that the suite
// does not fill, and so would not miss.
func TestFullIsFull(t *testing.T) {
	e := &env{}
	set := []string{"Version", "CreatedAt", "UpdatedAt", "AsOf", "Due", "Seq", "Operation", "Write", "At"}
	full(t, "Record", reflect.ValueOf(e.full()), set)
	full(t, "Entry", reflect.ValueOf(e.fullEntry()), set)
}

func full(t *testing.T, path string, v reflect.Value, except []string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			full(t, path, v.Elem(), except)
			return
		}
	case reflect.Struct:
		if _, ok := v.Interface().(interface{ IsZero() bool }); ok {
			break
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !slices.Contains(except, f.Name) {
				full(t, path+"."+f.Name, v.Field(i), nil)
			}
		}
		return
	case reflect.Slice:
		if v.Len() > 0 && v.Type().Elem().Kind() == reflect.Struct {
			// Each field is set in one element at least.
			for i := range v.Type().Elem().NumField() {
				ok := false
				for j := range v.Len() {
					ok = ok || !v.Index(j).Field(i).IsZero()
				}
				if !ok {
					t.Errorf("%s.%s is set in no element", path, v.Type().Elem().Field(i).Name)
				}
			}
			return
		}
	default:
	}
	if v.IsZero() {
		t.Errorf("%s is not set", path)
	}
}

// TestDiffAndScribble: the suite's own eyes and claws reach every field.
func TestDiffAndScribble(t *testing.T) {
	e := &env{}
	a := e.full()
	b := a.Clone()
	if d := diff("Record", b, a); d != "" {
		t.Errorf("a clone differs:%s", d)
	}
	for i := range reflect.TypeFor[settle.Record]().NumField() {
		c := a.Clone()
		f := reflect.ValueOf(&c).Elem().Field(i)
		if f.IsZero() {
			continue
		}
		f.SetZero()
		if diff("Record", c, a) == "" {
			t.Errorf("diff does not see %s", reflect.TypeFor[settle.Record]().Field(i).Name)
		}
	}
	scribbleRecord(b)
	d := diff("Record", b, a)
	for _, field := range []string{"Request", "Result", "Terms.Other", "Fingerprint.Volatile", "Attempts", "References", "Ledger", "Progress", "Review", "Approval"} {
		if !strings.Contains(d, "Record."+field) {
			t.Errorf("scribble does not reach %s", field)
		}
	}
}
