// Mutate measures how well the tests of the root package hold its policy: it changes one operator at a time in the
// files below and runs the tests, which must fail.
//
// Gremlins finds the changes; they are run here, for two reasons. It calls an expression after `case`, of which policy
// is made, not covered, since Go's coverage profile leaves it out. And it builds and runs all tests for each
// change, where most are found by the tests inside the package, which import nothing that would have to be built anew.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// policy is what decides: the rest of the package fetches and carries.
var policy = []string{"operation.go", "reconcile.go", "hash.go", "compensate.go", "state.go", "evidence.go", "merge.go"}

func main() {
	root := flag.String("root", "..", "the root module")
	gremlins := flag.String("gremlins", "../bin/gremlins", "the tool")
	files := flag.String("files", strings.Join(policy, ","), "the files to change")
	workers := flag.Int("workers", 2, "changes tried at once")
	flag.Parse()
	if err := run(*root, *gremlins, strings.Split(*files, ","), *workers); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(root, gremlins string, files []string, workers int) error {
	gremlins, err := filepath.Abs(gremlins)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	var places [][]string // of each worker: where the change is made, in the order of the runs
	for w := range workers {
		inside, whole := filepath.Join(tmp, strconv.Itoa(w), "inside"), filepath.Join(tmp, strconv.Itoa(w), "whole")
		if err := errors.Join(copyModule(root, inside, false), copyModule(root, whole, true)); err != nil {
			return err
		}
		places = append(places, []string{inside, whole})
	}
	for _, dir := range places[0] {
		if text, err := test(dir, ""); err != nil {
			return fmt.Errorf("the tests fail without a change: %w\n%s", err, text)
		}
	}
	all, err := find(gremlins, places[0][1], files)
	if err != nil {
		return err
	}
	fmt.Printf("%d changes\n", len(all))
	jobs := make(chan *mutant)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for m := range jobs {
				if errs[w] == nil {
					m.status, errs[w] = m.try(places[w])
					fmt.Printf("%12s %s\n", m.status, m)
				}
			}
		})
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
feed:
	for i := range all {
		select {
		case jobs <- &all[i]:
		case <-stop: // what was tried is reported
			break feed
		}
	}
	close(jobs)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	report(all)
	return nil
}

// copyModule copies the root module, without the nested ones, without tests of other packages, and
// without those that hold the project's documents: they would fail in a copy. Without outside, tests that
// import the package are left out too.
func copyModule(root, dir string, outside bool) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		inRoot := !strings.Contains(rel, string(filepath.Separator))
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if rel == ".git" || rel == "bin" || rel != "." && err == nil {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		}
		if strings.HasSuffix(rel, "_test.go") && (!inRoot || strings.HasPrefix(rel, "project_")) {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil || !outside && strings.HasSuffix(rel, "_test.go") && strings.HasPrefix(string(data), "package settle_test\n") {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), data, 0o600)
	})
}

type mutant struct {
	kind, file   string
	line, column int
	status       string
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s at %s:%d:%d", m.kind, m.file, m.line, m.column)
}

// find lists the changes that Gremlins would make.
func find(gremlins, dir string, files []string) (all []mutant, err error) {
	args := []string{"unleash", "--dry-run", "-E", "/"}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if n = filepath.Base(n); !slices.Contains(files, n) {
			args = append(args, "-E", "^"+strings.ReplaceAll(n, ".", `\.`)+"$")
		}
	}
	cmd := exec.Command(gremlins, append(args, ".")...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	for _, f := range regexp.MustCompile(`(?m)(\w+) at (\S+):(\d+):(\d+)`).FindAllStringSubmatch(string(text), -1) {
		line, _ := strconv.Atoi(f[3])
		column, _ := strconv.Atoi(f[4])
		all = append(all, mutant{kind: f[1], file: f[2], line: line, column: column})
	}
	slices.SortFunc(all, func(a, b mutant) int {
		place := func(m mutant) string {
			return fmt.Sprintf("%02d%05d%05d%s", slices.Index(files, m.file), m.line, m.column, m.kind)
		}
		return strings.Compare(place(a), place(b))
	})
	all = slices.Compact(all) // it names some twice
	if len(all) == 0 {
		return nil, errors.New("nothing to change")
	}
	return all, nil
}

// slow are tests inside the package that run only for what no other found.
const slow = "^(TestModel|TestDiagram)"

// test runs the tests in dir but those to skip, if any.
func test(dir, skip string) (text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-failfast", "-timeout=3m", "-skip="+skip, ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// swaps are the changes of a kind: an operator and what takes its place, longer ones first.
var swaps = map[string][][2]string{
	"CONDITIONALS_NEGATION": {{"==", "!="}, {"!=", "=="}, {"<=", ">"}, {">=", "<"}, {"<", ">="}, {">", "<="}},
	"CONDITIONALS_BOUNDARY": {{"<=", "<"}, {">=", ">"}, {"<", "<="}, {">", ">="}},
	"ARITHMETIC_BASE":       {{"+", "-"}, {"-", "+"}, {"*", "/"}, {"/", "*"}, {"%", "*"}},
	"INVERT_NEGATIVES":      {{"-", "+"}},
	"INCREMENT_DECREMENT":   {{"++", "--"}, {"--", "++"}},
}

// try makes a change in one place after the other, runs the tests there, and takes it back.
func (m *mutant) try(places []string) (status string, err error) {
	for i, dir := range places {
		skip := slow
		if i == len(places)-1 {
			skip = ""
		}
		if status, err = m.tryIn(dir, skip); err != nil || status != "LIVED" {
			break
		}
	}
	return status, err
}

func (m *mutant) tryIn(dir, skip string) (status string, err error) {
	path := filepath.Join(dir, m.file)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	lines := strings.SplitAfter(string(data), "\n")
	line := lines[m.line-1]
	found := false
	for _, s := range swaps[m.kind] {
		if rest, ok := strings.CutPrefix(line[m.column-1:], s[0]); ok {
			lines[m.line-1], found = line[:m.column-1]+s[1]+rest, true
			break
		}
	}
	if !found {
		return "", fmt.Errorf("%s: no such operator", m)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, data, 0o600)) }()
	text, err := test(dir, skip)
	switch {
	case err == nil:
		return "LIVED", nil
	case strings.Contains(text, "[build failed]"):
		return "NOT VIABLE", nil
	case !strings.Contains(text, "FAIL") || strings.Contains(text, "panic: test timed out"):
		return "TIMED OUT", nil
	}
	return "KILLED", nil
}

func report(all []mutant) {
	files := map[string]map[string]int{}
	for _, m := range all {
		if m.status == "" {
			continue // interrupted
		}
		for _, f := range []string{m.file, "all"} {
			if files[f] == nil {
				files[f] = map[string]int{}
			}
			files[f][m.status]++
		}
	}
	fmt.Printf("\n%-16s %7s %6s %6s %10s %6s\n", "file", "killed", "hung", "lived", "not viable", "score")
	for _, f := range append(slices.Clone(policy), "all") {
		n := files[f]
		if n == nil {
			continue
		}
		dead := n["KILLED"] + n["TIMED OUT"]
		fmt.Printf("%-16s %7d %6d %6d %10d %5.1f%%\n", f, n["KILLED"], n["TIMED OUT"], n["LIVED"], n["NOT VIABLE"],
			100*float64(dead)/float64(max(dead+n["LIVED"], 1)))
	}
	for _, m := range all {
		if m.status == "LIVED" {
			fmt.Printf("lived: %s\n", &m)
		}
	}
}
