package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// The test binary is the program too when the environment says so. The processes
// that the program starts inherit that.
const (
	asProgram = "LOSTREPLY_AS_PROGRAM"
	sabotage  = "LOSTREPLY_SABOTAGE"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(sabotage) != "" {
		// The mistake that settle cannot repair: a name of one's own for every try.
		purpose = "purchase-" + strconv.Itoa(os.Getpid())
	}
	main()
	os.Exit(0)
}

func run(t *testing.T, env ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// The whole story, in real processes: the state survives a kill -9 (I1), and the
// operation ends known with one effect (I2, I10).
func TestDemo(t *testing.T) {
	out, errs, code := run(t)
	if code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
	}
	part1, part2, _ := strings.Cut(out, "PART 2")
	charged := regexp.MustCompile(`(?m)^    ch_\d+ +19\.99 EUR  key (.+)$`)
	if keys := charged.FindAllStringSubmatch(part1, -1); len(keys) != 2 || keys[0][1] == keys[1][1] {
		t.Errorf("part 1 should show two charges under two keys:\n%s", part1)
	}
	keys := charged.FindAllStringSubmatch(part2, -1)
	if len(keys) != 1 {
		t.Fatalf("part 2 should show one charge:\n%s", part2)
	}
	// The database had the key before the provider's answer was known.
	stored := regexp.MustCompile(`order-8472 is (submitting|unknown), 1 request sent, key (.+)`).FindStringSubmatch(part2)
	if stored == nil || stored[2] != keys[0][1] {
		t.Errorf("the killed caller left %q, the ledger has key %q", stored, keys[0][1])
	}
	for _, want := range []string{"signal: killed", "shop B    succeeded: receipt ch_1", "shop C    succeeded: receipt ch_1", "order-8472 is succeeded"} {
		if !strings.Contains(part2, want) {
			t.Errorf("part 2 does not say %q:\n%s", want, part2)
		}
	}
}

// A demonstration that cannot fail shows nothing.
func TestDemoFailsWhenTheCallersDoNotAgree(t *testing.T) {
	out, errs, code := run(t, sabotage+"=1")
	if code == 0 {
		t.Errorf("exit code 0 although every caller named the payment differently:\n%s", out)
	}
	if want := "part 2: the provider's ledger has 3 charges, and should have 1"; !strings.Contains(errs, want) {
		t.Errorf("stderr does not say %q:\n%s", want, errs)
	}
	if strings.Contains(out, "paid ONCE") {
		t.Errorf("it praises itself all the same:\n%s", out)
	}
}

func TestChecks(t *testing.T) {
	one := make([]providertest.Object, 1)
	for want, ok := range map[int]bool{0: false, 1: true, 2: false} {
		if err := checkLedger(one, want); (err == nil) != ok {
			t.Errorf("one charge, %d wanted: %v", want, err)
		}
	}
	for _, states := range [][]settle.State{nil, {settle.StateUnknown}, {settle.StateSucceeded, settle.StateSucceeded}} {
		if checkStates(states) == nil {
			t.Errorf("%v passes", states)
		}
	}
	if err := checkStates([]settle.State{settle.StateSucceeded}); err != nil {
		t.Error(err)
	}
}
