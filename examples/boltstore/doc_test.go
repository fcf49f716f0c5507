package boltstore_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/settle-go/settle/storetest"
)

// The code in docs/store-authors.md is the code of this tree: each block of Go stands, line by
// line, in the file that the comment above it names, and each case that the text names exists.
func TestDocument(t *testing.T) {
	repository := filepath.Join("..", "..")
	raw, err := os.ReadFile(filepath.Join(repository, "docs", "store-authors.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	blocks := regexp.MustCompile("(?s)(?:<!-- ([^\n]+) -->\n)?```go\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) < 10 {
		t.Fatalf("the document has %d blocks of Go", len(blocks))
	}
	for _, b := range blocks {
		path, code := b[1], b[2]
		if path == "" {
			t.Errorf("no comment names the file of this block:\n%s", code)
			continue
		}
		source, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(source), code) {
			t.Errorf("%s does not have this block of the document:\n%s", path, code)
		}
	}

	known := map[string]bool{}
	for _, c := range storetest.Cases() {
		known[c] = true
	}
	named := regexp.MustCompile("`((?:S[0-9]+|Tx)/[a-z_]+)`").FindAllStringSubmatch(text, -1)
	if len(named) < 10 {
		t.Errorf("the document names %d cases", len(named))
	}
	for _, n := range named {
		if !known[n[1]] {
			t.Errorf("the document names the case %s, which does not exist", n[1])
		}
	}
}
