package settle_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestRunbook: every alarm and every review reason has a line in docs/operators.md.
func TestRunbook(t *testing.T) {
	doc, err := os.ReadFile("docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for path, text := range sources(t, func(path string) bool { return !strings.Contains(path, "/") && !strings.HasSuffix(path, "_test.go") }) {
		for _, m := range regexp.MustCompile(`\b(?:Alarm|Reason)[A-Z]\w*\s*=\s*"(\w+)"`).FindAllStringSubmatch(text, -1) {
			n++
			if !strings.Contains(string(doc), "`"+m[1]+"`") {
				t.Errorf("%s: docs/operators.md does not say what to do at %s", path, m[1])
			}
		}
	}
	if n < 25 {
		t.Errorf("only %d alarms and reasons found", n)
	}
}
