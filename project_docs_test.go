package settle_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the texts that users read, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out[path] = string(text)
		}
	}
	return out
}

var (
	codeBlock = regexp.MustCompile("(?s)```.*?```")
	docLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// anchors are the ids that a reader's browser gives to the headings of a text.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		id := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out[strings.ReplaceAll(id, " ", "-")] = true
	}
	return out
}

// Every link within the documents leads to a file or folder that exists, and to a heading that it has.
func TestProjectDocumentLinks(t *testing.T) {
	docs := documents(t)
	n := 0
	for path, text := range docs {
		for _, m := range docLink.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: nothing is at %s", path, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			if to, ok := docs[target]; !ok || !anchors(to)[anchor] {
				t.Errorf("%s: there is no heading for %s", path, m[1])
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d links found", n)
	}
}

// The README leads to every page, those for each kind of reader among them.
func TestProjectPagesAreLinked(t *testing.T) {
	docs := documents(t)
	for _, page := range []string{"web-handlers", "workers", "webhooks", "agents", "store-authors", "adapter-authors", "operators", "migration"} {
		if docs["docs/"+page+".md"] == "" {
			t.Errorf("there is no page docs/%s.md", page)
		}
	}
	for path := range docs {
		if filepath.Dir(path) == "docs" && !strings.Contains(docs["README.md"], "]("+path+")") {
			t.Errorf("the README does not lead to %s", path)
		}
	}
}

// Every test that a document names exists.
func TestProjectDocumentsNameTestsThatExist(t *testing.T) {
	var all strings.Builder
	for _, text := range sources(t, func(path string) bool { return isTestCode(path) || strings.Contains(path, "test/") }) {
		all.WriteString(text)
	}
	code := all.String()
	names := regexp.MustCompile("`((?:Test|Fuzz|Example|Benchmark)[A-Z]\\w*)(…|/[^`]*)?`")
	n := 0
	docs := documents(t)
	var paths []string
	for path := range docs {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		if path == "CHANGELOG.md" { // of what was, too
			continue
		}
		for _, m := range names.FindAllStringSubmatch(docs[path], -1) {
			n++
			want := "func " + m[1] + "("
			if m[2] == "…" {
				want = "func " + m[1]
			}
			if !strings.Contains(code, want) {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d names found", n)
	}
}
