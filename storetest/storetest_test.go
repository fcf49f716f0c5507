package storetest

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/settle-go/settle"
)

// TestEveryClauseHasACase holds the clauses here against the comment on
// settle.Store, and each against the cases.
func TestEveryClauseHasACase(t *testing.T) {
	src, err := os.ReadFile("../store.go")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]string{}
	last := ""
	for line := range strings.Lines(string(src)) {
		text, comment := strings.CutPrefix(strings.TrimSpace(line), "//")
		if m := regexp.MustCompile(`^\s*- (S\d+): (.*)`).FindStringSubmatch(text); m != nil {
			last = m[1]
			there[last] = strings.TrimSpace(m[2])
		} else if text = strings.TrimSpace(text); comment && text != "" && last != "" {
			there[last] += " " + text
		} else {
			last = ""
		}
	}
	if len(there) < 20 {
		t.Fatalf("only %d clauses found in store.go", len(there))
	}
	for id, text := range there {
		if clauses[id] != text {
			t.Errorf("clause %s:\n\tin store.go: %s\n\tin clauses:  %s", id, text, clauses[id])
		}
	}
	for id := range clauses {
		if there[id] == "" && id != "Tx" {
			t.Errorf("clause %s is not in store.go", id)
		}
		if !slices.ContainsFunc(allCases(), func(c testCase) bool { return c.clause == id }) {
			t.Errorf("clause %s has no case", id)
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
