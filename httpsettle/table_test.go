package httpsettle

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/settle-go/settle"
)

// impossible lists the errors of settle that no answer of a Handler is made of, and why.
var impossible = map[string]string{
	"ErrSettled":    "of Cancel and Resolve only",
	"ErrRetryTx":    "of RegisterTx only",
	"ErrNotForKind": "of the reading of events only",
	"ErrPoison":     "of a Publisher only",
	"ErrClaimLost":  "of a store; the engine reads back and decides again",
}

// answered are those that the table has, by name.
var answered = map[string]error{
	"ErrPending": settle.ErrPending, "ErrInProgress": settle.ErrInProgress, "ErrUnknown": settle.ErrUnknown,
	"ErrProcessing": settle.ErrProcessing, "ErrWaiting": settle.ErrWaiting, "ErrActionRequired": settle.ErrActionRequired,
	"ErrReview": settle.ErrReview, "ErrFailed": settle.ErrFailed, "ErrCanceled": settle.ErrCanceled,
	"ErrCompensated": settle.ErrCompensated, "ErrConsequence": settle.ErrConsequence, "ErrInvalid": settle.ErrInvalid,
	"ErrMismatch": settle.ErrMismatch, "ErrConflict": settle.ErrConflict, "ErrHeld": settle.ErrHeld, "ErrRefused": settle.ErrRefused,
	"ErrNotFound": settle.ErrNotFound, "ErrUncommitted": settle.ErrUncommitted, "ErrExceeds": settle.ErrExceeds,
	"ErrNoEffect": settle.ErrNoEffect, "ErrDraining": settle.ErrDraining, "ErrStore": settle.ErrStore, "ErrCorrupt": settle.ErrCorrupt,
	"ErrSealed": settle.ErrSealed,
}

// Every exported error of the root package is in the table, or is said to be impossible here.
func TestEveryErrorHasAnAnswer(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), "../"+f.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				v, ok := s.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for _, name := range v.Names {
					if !strings.HasPrefix(name.Name, "Err") {
						continue
					}
					found++
					err, ok := answered[name.Name]
					if _, never := impossible[name.Name]; ok == never {
						t.Errorf("%s is in the table: %v, impossible: %v; want one of the two", name.Name, ok, never)
					}
					if ok && !hasSentinel(err) {
						t.Errorf("%s has no answer", name.Name)
					}
				}
			}
		}
	}
	if want := len(answered) + len(impossible); found != want {
		t.Errorf("the root package has %d errors, this test knows %d", found, want)
	}
}

// hasSentinel reports whether an entry answers exactly err, not just something that it wraps.
func hasSentinel(err error) bool {
	for _, e := range entries() {
		if slices.Contains(e.errs, err) {
			return entryOf(&settle.Error{Err: err}).slug == e.slug
		}
	}
	return false
}

// What is open is never shown as a failure, what failed never as a success; 5xx only where nothing is known or was done.
func TestStatusesTellTheTruth(t *testing.T) {
	t.Parallel()
	slugs := map[string]bool{}
	for _, e := range entries() {
		if slugs[e.slug] || e.slug == "" || e.title == "" || e.detail == "" || http.StatusText(e.status) == "" {
			t.Errorf("%+v", e)
		}
		slugs[e.slug] = true
		for _, s := range e.errs {
			state := errors.Is(s, settle.ErrPending) || errors.Is(s, settle.ErrActionRequired) || errors.Is(s, settle.ErrReview) || errors.Is(s, settle.ErrConsequence)
			if open := e.status == http.StatusAccepted || errors.Is(s, settle.ErrInProgress); open != state {
				t.Errorf("%s is %d and %v", e.slug, e.status, s)
			}
			next := e.next
			if next == "" {
				next = (&settle.Error{Err: s}).Next()
			}
			if e.status >= 500 && next != settle.NextRetry || e.status == 409 && next == settle.NextRetry {
				t.Errorf("%s is %d and says %s", e.slug, e.status, next)
			}
		}
	}
	// The cause of a refusal is the application's, and decides nothing.
	if e := entryOf(&settle.Error{Err: settle.ErrRefused, Cause: settle.ErrFailed}); e.slug != "refused" {
		t.Errorf("a refusal because of something that failed is %s", e.slug)
	}
	if e := entryOf(errors.New("x")); e.slug != typeInternal {
		t.Errorf("an error of nobody is %s", e.slug)
	}
	for _, slug := range []string{
		typeKeyMissing, typeKeyMalformed, typeKeyReused, typeMalformedBody, typeUnauthenticated, typeBodyTooLarge, typeMediaType, typeMethod,
		typeInternal, typeNotFound, typeInProgress, typeNoVerdict, typeFailed,
	} {
		if !slugs[slug] {
			t.Errorf("%s is not in the table", slug)
		}
	}
}

// Each type leads to its section, each row of the page's table is right, and there is no other.
func TestTypesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/web-handlers.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^### ([a-z-]+)\n\n`(\\d+)`").FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = m[2]
	}
	types := Types()
	for _, info := range types {
		if want := rows[info.Slug]; want != strconv.Itoa(info.Status) {
			t.Errorf("%s is %d, the page says %q", info.Slug, info.Status, want)
		}
	}
	if len(rows) != len(types) {
		t.Errorf("the page has %d types, there are %d", len(rows), len(types))
	}
}
