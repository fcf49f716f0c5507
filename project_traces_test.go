package settle_test

import (
	"fmt"
	"regexp"
	"testing"
)

// lastTrace is the number of the last trace that shaped the design; each is a test with its id.
const lastTrace = 44

// laterTraces need something that this version has not. What is added takes its traces off this list.
var laterTraces = map[string]string{}

// Each trace runs as a test with its id: in the name of a test function (TestT07_…), or at the start of a
// subtest's name ("T-07 …"). One that is on the list of later ones has no test, so that the list stays true.
func TestEveryTraceIsATest(t *testing.T) {
	t.Parallel()
	named := make(map[string]bool)
	name := regexp.MustCompile(`func TestT(\d\d)_|Run\("T-(\d\d)[ :/_]|variant\(t, "T-(\d\d): |\{"T-(\d\d) [^"]+", t\d\d\}`)
	for _, text := range sources(t, isTestCode) {
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			for _, n := range m[1:] {
				if n != "" {
					named["T-"+n] = true
				}
			}
		}
	}
	for n := 1; n <= lastTrace; n++ {
		id := fmt.Sprintf("T-%02d", n)
		switch why, later := laterTraces[id]; {
		case later && named[id]:
			t.Errorf("%s has a test and is on the list of later ones", id)
		case later:
			t.Logf("%s comes later: %s", id, why)
		case !named[id]:
			t.Errorf("no test is named after %s", id)
		}
		delete(named, id)
	}
	for id := range named {
		t.Errorf("there is no trace %s", id)
	}
	for id := range laterTraces {
		if !regexp.MustCompile(`^T-\d\d$`).MatchString(id) || id > fmt.Sprintf("T-%02d", lastTrace) {
			t.Errorf("there is no trace %s", id)
		}
	}
}
