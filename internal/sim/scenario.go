package sim

import (
	"embed"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

//go:embed testdata/*.txt
var sceneFiles embed.FS

// Scene is one scenario, as a text file under testdata has it: lines that start in the first
// column are what happens, indented ones are the trace that was recorded of it.
//
//	# a comment
//	provider keys=5m lookup=none     the provider, and the contract that states it
//	hook                             a success ships a parcel, in the same commit
//	retention 1h                     payloads are removed after so long
//	always charge succeeded          whatever fails: where recovery ends
//	next reply lost                  what befalls the next request, or "next lookup …"
//	A: execute order-17 1999 EUR     a call in process A; with "&" at its end nobody waits for it
//	A: answer lost at commit reply   a fault of A's next call of that name
//	wait 2s                          time passes
//	provider captures ch_1           what happens there by itself, "… after a lookup": once one has told of it
//	B: work                          B's worker does what is due now
//
// The verbs are in scenario_step.go and scenario_life.go, the names of calls in crash_site.go.
type Scene struct {
	Name string

	lines    []string // of the file, without the trace
	keys     providertest.Options
	promise  settle.Contract
	hook     bool
	always   map[string][]settle.State // by kind
	keyless  bool
	retains  time.Duration
	recorded string // the file as it is
}

// Scenes reads every scenario, in the order of their names.
func Scenes() ([]*Scene, error) {
	entries, err := sceneFiles.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var out []*Scene
	for _, e := range entries {
		text, err := sceneFiles.ReadFile(path.Join("testdata", e.Name()))
		if err != nil {
			return nil, err
		}
		s, err := parseScene(strings.TrimSuffix(e.Name(), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func parseScene(name, text string) (*Scene, error) {
	s := &Scene{
		Name: name, recorded: text, always: map[string][]settle.State{},
		keys: providertest.Options{KeyWindow: 24 * time.Hour, Account: "acct"},
	}
	s.promise = providertest.Promise(&s.keys)
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			continue
		}
		s.lines = append(s.lines, line)
		var err error
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[0] == "provider" && strings.Contains(line, "="):
			err = s.parseProvider(f[1:])
		case f[0] == "hook":
			s.hook = true
		case f[0] == "retention" && len(f) == 2:
			s.retains, err = time.ParseDuration(f[1])
		case f[0] == "always" && len(f) == 3:
			for state := range strings.SplitSeq(f[2], "|") {
				s.always[f[1]] = append(s.always[f[1]], settle.State(state))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("sim: %s.txt:%d: %w", name, n+1, err)
		}
	}
	if len(s.always) == 0 {
		return nil, fmt.Errorf("sim: %s.txt: no line says where recovery always ends", name)
	}
	return s, nil
}

// parseProvider reads how the provider is; the contract states the same.
func (s *Scene) parseProvider(words []string) error {
	lookup, settleDelay, deadline := settle.Authoritative, time.Minute, 10*time.Second
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		d, derr := time.ParseDuration(value)
		var err error
		switch name {
		case "keys":
			if s.keys.KeyWindow, err = d, derr; value == "none" {
				s.keys.KeyWindow, s.keyless, err = 0, true, nil
			}
		case "lookup":
			if lookup = settle.LookupPromise(value); value == "none" {
				lookup = settle.NoLookup
			}
		case "lag":
			s.keys.LookupLag, err = d, derr
		case "stores":
			s.keys.CacheOnlySuccess = value == "effects" // no refusal and no error under a key
		case "settle":
			settleDelay, err = d, derr
		case "deadline":
			deadline, err = d, derr
		case "concurrent":
			if value == "unsafe" {
				s.keys.Concurrent = providertest.ConcurrentUnsafe
			}
		default:
			err = fmt.Errorf("no such property: %s", w)
		}
		if err != nil {
			return err
		}
	}
	s.promise = providertest.Promise(&s.keys)
	if lookup == settle.NoLookup {
		s.promise.Lookup = lookup
	}
	s.promise.SettleDelay, s.promise.Deadline = settleDelay, deadline
	return nil
}
