package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
)

// Every reading command, as people and as programs see it.
func TestGolden(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		golden(t, "list.txt", w.do("list"))
		golden(t, "list.json", w.do("list", "-json"))
		golden(t, "list-events.txt", w.do("list", "-kind", settle.EventKind))
		golden(t, "stats.txt", w.do("stats"))
		golden(t, "stats.json", w.do("-json", "stats"))
		golden(t, "stats-refund.txt", w.do("stats", "-kind", "refund"))
		for _, s := range []string{"order-1", "order-2", "order-4", "order-5"} {
			golden(t, "show-"+s+".txt", w.do("show", w.ids[s]))
			golden(t, "show-"+s+".json", w.do("show", w.ids[s], "-json"))
		}
		golden(t, "show-payload.txt", w.do("show", "-payload", w.ids["order-1"]))
		golden(t, "show-payload.json", w.do("show", "-payload", "-json", w.ids["order-1"]))
		golden(t, "help.txt", w.do("help"))
		for _, e := range commands() {
			golden(t, "help-"+e.name+".txt", w.do("help", e.name))
			if got := w.do(e.name, "-h"); got != w.do("help", e.name) {
				t.Errorf("%s -h says something else than help %s", e.name, e.name)
			}
		}
	})
}

// -json prints one object a line, for every command.
func TestEveryCommandPrintsJSON(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		by := []string{"-json", "-by", "ann", "-reason", "r"}
		for name, args := range map[string][]string{
			"migrate": {"migrate", "-json"},
			"list":    {"list", "-json"},
			"show":    {"show", "-json", w.ids["order-1"], w.ids["order-2"]},
			"stats":   {"stats", "-json"},
			"assign":  append([]string{"assign", "-to", "ben", w.ids["order-2"], "no-such-id"}, by...),
			"resolve": append([]string{"resolve", "-as", "resume", "-evidence", "e", w.ids["order-6"], "no-such-id"}, by...),
			"redrive": {"redrive", "-by", "ann", "-reason", "the printer is mended", "-json", w.ids["order-5"], w.ids["order-1"]},
		} {
			got := w.in("", args...)
			if got.err != "" {
				t.Errorf("%s: %s", name, got.err)
			}
			lines := strings.Split(strings.TrimSpace(got.out), "\n")
			for _, line := range lines {
				var v map[string]any
				if err := json.Unmarshal([]byte(line), &v); err != nil || len(v) == 0 {
					t.Errorf("%s prints %q", name, line)
				}
			}
			if failed := strings.Contains(got.out, `"error":`); failed != (got.code == exitFailed) {
				t.Errorf("%s exits with %d: %s", name, got.code, got.out)
			}
		}
	})
}

func TestListSelects(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.do("assign", "-to", "ben", "-by", "ann", "-reason", "r", w.ids["order-4"])
		subjects := func(args ...string) string {
			t.Helper()
			var out []string
			for line := range strings.Lines(w.do(append([]string{"list", "-json"}, args...)...)) {
				var v summary
				must(t, json.Unmarshal([]byte(line), &v))
				if v.Kind == "refund" {
					v.Subject = "refund"
				}
				out = append(out, strings.TrimPrefix(v.Subject, "order-"))
			}
			return strings.Join(out, " ")
		}
		for _, c := range []struct{ want, args string }{
			{"1 refund 2 3 4 5 6 7", ""},
			{"2 4 6 7", "-state open"},
			{"2 4 6", "-state review"},
			{"3 7", "-state failed,unknown"},
			{"refund", "-kind refund"},
			{"evt_1", "-kind " + settle.EventKind},
			{"4", "-owner ben"},
			{"2 6", "-owner nobody"},
			{"2", "-owner nobody -limit 1"},
			{"5", "-consequence aside"},
			{"", "-consequence due"},
			{"1 refund", "-limit 2"},
			{"1 refund 2 3 4 5 6 7", "-limit 0"},
			{"6 7", "-after " + w.ids["order-5"]},
			{"3", "-subject order-3 -scope shop"},
			{"", "-scope other"},
			{"", "-overdue 1h"},
		} {
			if got := subjects(strings.Fields(c.args)...); got != c.want {
				t.Errorf("list %s: %q, want %q", c.args, got, c.want)
			}
		}
		rig.After(3 * time.Hour) // nobody works
		if got := subjects("-overdue", "1h"); !strings.Contains(got, "2") || !strings.Contains(got, "7") || strings.Contains(got, "3") {
			t.Errorf("overdue: %q", got)
		}
		if got := w.do("list", "-ids", "-subject", "order-3"); got != w.ids["order-3"]+"\n" {
			t.Errorf("ids: %q", got)
		}
	})
}

// Who decided what, and why, is in the history; the workers do the rest.
func TestAssignAndResolve(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		got := w.do("assign", "-to", "ben", "-by", "ann", "-reason", "knows the bank", "-within", "4h", w.ids["order-2"], w.ids["order-6"])
		if strings.Count(got, "assigned to ben, until ") != 2 {
			t.Errorf("assign says %q", got)
		}
		r := w.State(w.ids["order-2"], settle.StateReview)
		if r.Review.Owner != "ben" || r.Review.Deadline.Sub(r.AsOf) != 4*time.Hour {
			t.Errorf("the review is %+v", r.Review)
		}
		golden(t, "show-assigned.txt", w.do("show", w.ids["order-2"]))

		// One at a time: the provider has order-6, and never heard of order-2.
		got = w.do("resolve", w.ids["order-6"], "-as", "applied", "-by", "ben", "-reason", "in the dashboard", "-evidence", "ticket 7", "-ref", "ch_5")
		if got != w.ids["order-6"]+"  review → succeeded\n" {
			t.Errorf("resolve says %q", got)
		}
		// Many at once, from another command's output; who and why is as good from the environment.
		t.Setenv("SETTLE_ACTOR", "cy")
		list := w.do("list", "-ids", "-state", "open")
		res := w.in("no-such-id\n"+list, "resolve", "-as", "not_applied", "-reason", "not in the dashboard", "-evidence", "ticket 8", "-")
		if res.code != exitFailed || !strings.Contains(res.out, w.ids["order-2"]+"  review → created\n") ||
			!strings.Contains(res.err, "no-such-id: resolve no-such-id: not found") ||
			!strings.Contains(res.err, w.ids["order-7"]+": ") || !strings.Contains(res.err, "a request may still land") {
			t.Errorf("resolve says %q and %q, exit %d", res.out, res.err, res.code)
		}
		p := w.start(nil)
		p.Work()
		rig.After(time.Minute)
		w.State(w.ids["order-2"], settle.StateSucceeded)
		w.State(w.ids["order-6"], settle.StateSucceeded)
		if n := w.Provider.Effects(w.ids["order-2"]); n != 1 {
			t.Errorf("%d effects of order-2", n)
		}
		if n := w.Provider.Effects(w.ids["order-6"]); n != 1 {
			t.Errorf("%d effects of order-6", n)
		}
		golden(t, "show-resolved.txt", w.do("show", w.ids["order-2"]))

		// What contradicts what is confirmed is refused, and what speaks of other attempts.
		w.fails(exitFailed, "already settled", "resolve", "-as", "declined", "-reason", "r", "-evidence", "e", w.ids["order-6"])
		w.fails(exitFailed, "already settled", "assign", "-to", "ben", "-reason", "r", w.ids["order-6"])
	})
}

func TestResolveWithTerms(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		id := w.ids["order-2"]
		common := []string{"-by", "ann", "-reason", "r", "-evidence", "e", id}
		w.fails(exitFailed, "SeenAttempt", append([]string{"resolve", "-as", "declined", "-attempt", "2"}, common...)...)
		w.do(append([]string{"resolve", "-as", "applied", "-ref", "ch_77", "-amount", "1500 EUR/minor", "-attempt", "1"}, common...)...)
		r := w.State(id, settle.StateSucceeded)
		if e := r.Effects(); len(e) != 1 || !e[0].Amount.Equal(settle.Minor(1500, "EUR")) || e[0].Ref != "ch_77" {
			t.Errorf("effects %+v", e)
		}
		w.do(append([]string{"resolve", "-as", "reversed", "-ref", "ch_77"}, common...)...)
		w.State(id, settle.StateFailed)
	})
}

// A consequence that was set aside runs once its cause is mended, in a process that has the hook.
func TestRedrive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		id := w.ids["order-5"]
		if r := w.State(id, settle.StateSucceeded); r.Consequence != settle.ConsequenceAside {
			t.Fatalf("the consequence is %q", r.Consequence)
		}
		redrive := []string{"redrive", "-by", "ann", "-reason", "the printer is mended"}
		w.fails(exitFailed, "no consequence is due: it is failed", append(redrive, w.ids["order-3"])...)
		if got := w.do(append(redrive, id)...); got != id+"  consequence due\n" {
			t.Errorf("redrive says %q", got)
		}
		if got := w.do("show", id); !strings.Contains(got, "ann") || !strings.Contains(got, "the printer is mended") {
			t.Errorf("show does not tell who redrove it, and why:\n%s", got)
		}
		mended := true
		w.start(&mended).Work()
		rig.After(time.Minute)
		if r := w.State(id, settle.StateSucceeded); r.Consequence != settle.ConsequenceDone {
			t.Errorf("the consequence is %q", r.Consequence)
		}
	})
}

// watching runs watch until stop is called, which returns what it printed.
func (w *world) watching(args ...string) (stop func() result) {
	ctx, cancel := context.WithCancel(w.T.Context())
	var out, errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"-dsn", w.dsn, "watch", "-every", "2s"}, args...), strings.NewReader(""), &out, &errs)
	}()
	rig.After(5 * time.Second)
	return func() result {
		rig.After(5 * time.Second)
		cancel()
		return result{<-code, out.String(), errs.String()}
	}
}

func TestWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		stop, asJSON, one := w.watching("-kind", "charge"), w.watching("-json"), w.watching(w.ids["order-3"], w.ids["order-4"])
		// A review is assigned; a new charge comes and is settled between two looks; one that was settled
		// long before, and succeeds after all, is seen by its id only.
		w.do("assign", "-to", "ben", "-by", "ann", "-reason", "knows the bank", w.ids["order-4"])
		rig.After(5 * time.Second)
		for range 2 {
			_, err := p.Charges.Execute(t.Context(), rig.Op("order-8", 700, "EUR"))
			must(t, err)
		}
		rig.After(5 * time.Second)
		_, err := p.Resolve(t.Context(), w.ids["order-3"], settle.Decision{Actor: "ann", Reason: "it was paid", Evidence: "ticket 9", Fact: settle.Applied, Ref: "ch_8"})
		must(t, err)
		w.do("resolve", "-as", "applied", "-ref", "ch_3", "-by", "ben", "-reason", "accepted", "-evidence", "ticket 9", w.ids["order-4"])
		got := stop()
		if got.code != exitOK || got.err != "" {
			t.Errorf("exit %d, %s", got.code, got.err)
		}
		golden(t, "watch.txt", got.out)
		golden(t, "watch.json", asJSON().out)
		golden(t, "watch-ids.txt", one().out)
	})
}

// Of one that was settled long ago and is open again, only what is new is printed.
func TestWatchReopened(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		stop := w.watching()
		r := w.Get(w.ids["order-3"])
		r.References, r.State = []settle.Reference{{Ref: "ch_8", Rank: settle.RankDisputed, Mismatch: true}}, settle.StateReview
		_, err := w.Store.Commit(t.Context(), settle.Change{ID: "c", Writes: []settle.Write{{
			Record: r, IfVersion: r.Version, DueIn: time.Hour, Entry: settle.Entry{From: settle.StateFailed, To: settle.StateReview, Source: settle.SourceEvent},
		}}})
		must(t, err)
		if got := stop(); strings.Count(got.out, "\n") != 1 || !strings.Contains(got.out, "failed → review") {
			t.Errorf("watch prints %q", got.out)
		}
	})
}

// A database that is away for a while does not end it.
func TestWatchOutlivesTheDatabase(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		path := strings.TrimPrefix(w.dsn, "sqlite:")
		stop := w.watching()
		db := w.open(t, path)
		exec := func(q string) {
			t.Helper()
			_, err := db.ExecContext(t.Context(), q)
			must(t, err)
		}
		exec(`ALTER TABLE settle_history RENAME TO gone`)
		_, err := w.start(nil).Charges.Execute(t.Context(), rig.Op("order-8", 700, "EUR"))
		must(t, err)
		rig.After(10 * time.Second)
		exec(`ALTER TABLE gone RENAME TO settle_history`)
		got := stop()
		if got.code != exitOK || !strings.HasPrefix(got.err, "settle: history") || strings.Count(got.out, "submitting → succeeded") != 1 {
			t.Errorf("exit %d, %q, %q", got.code, got.out, got.err)
		}
	})
}

// What is wrong with a call is said before any database is opened.
func TestUsage(t *testing.T) {
	c := tool{t, "sqlite:" + filepath.Join(t.TempDir(), "none.db")}
	by := " -by ann -reason r x"
	for args, says := range map[string]string{
		"":                                  "no command",
		"frobnicate":                        "unknown command frobnicate",
		"help frobnicate":                   "unknown command frobnicate",
		"-x list":                           "flag provided but not defined: -x",
		"list -x":                           "flag provided but not defined: -x",
		"list a":                            "list takes no arguments",
		"stats a":                           "stats takes no arguments",
		"migrate a":                         "migrate takes no arguments",
		"list -state paid":                  "there is no state paid",
		"list -limit -1":                    "-limit must not be negative",
		"list -overdue -1s":                 "-overdue must not be negative",
		"list -consequence done":            "-consequence is due or aside",
		"stats -overdue -1s":                "-overdue must not be negative",
		"show":                              "show needs the id",
		"assign -to ben -by ann -reason r":  "assign needs the id",
		"assign -by ann -reason r x":        "-to is required",
		"assign -to ben -reason r x":        "-by or SETTLE_ACTOR is required",
		"assign -to ben -by ann x":          "-reason is required",
		"assign -to ben -within -1s" + by:   "-within must not be negative",
		"resolve -as applied" + by:          "-evidence is required",
		"resolve -as paid -evidence e" + by: "-as is applied",
		"resolve -evidence e" + by:          "-as is applied",
		"resolve -as applied -evidence e x": "-by or SETTLE_ACTOR is required",
		"resolve -as applied -evidence e -by ann -reason r -ref a x y": "speak of one operation",
		"resolve -as applied -evidence e -amount 19.99" + by:           "-amount is a number and a unit",
		"redrive -by ann -reason r":                                    "redrive needs the id",
		"redrive -by ann -reason r -":                                  "redrive needs the id",
		"redrive -reason r x":                                          "-by or SETTLE_ACTOR is required",
		"redrive -by ann x":                                            "-reason is required",
		"watch -every 1s -kind charge x":                               "give ids, or -kind and -scope",
		"watch -every 1ms":                                             "-every must be at least 100ms",
	} {
		c.fails(exitUsage, says, strings.Fields(args)...)
	}
	if got := c.in("", "help"); got.code != exitOK || !strings.Contains(got.out, "resolve") {
		t.Errorf("help: exit %d, %s", got.code, got.out)
	}
	c.dsn = ""
	c.fails(exitUsage, "no database", "list")
	for _, dsn := range []string{"oracle://scott:tiger@db", "shop.db", "sqlite:", "mysql://%zz", "postgres://u:p@h:port/x"} {
		c.dsn = dsn
		c.fails(exitUsage, "DSN", "list")
	}
}

// A call is right, and the work fails: exit 1.
func TestFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settle.db")
	c := tool{t, "sqlite:" + path}
	c.fails(exitFailed, "no database file", "list")
	if _, err := os.Stat(path); err == nil {
		t.Error("looking made a file")
	}
	if got := c.do("migrate"); got != "sqlite: the schema has version 1\n" && !strings.HasPrefix(got, "sqlite: the schema has version ") {
		t.Errorf("migrate says %q", got)
	}
	c.do("migrate") // again is nothing
	if got := c.do("list"); strings.Count(got, "\n") != 1 {
		t.Errorf("an empty list is %q", got)
	}
	if got := c.do("list", "-json") + c.do("stats", "-json"); got != "" {
		t.Errorf("an empty list is %q", got)
	}
	c.fails(exitFailed, "no-such-id: get no-such-id: not found", "show", "no-such-id")
	c.fails(exitFailed, "no-such-id: redrive no-such-id: not found", "redrive", "-by", "ann", "-reason", "mended", "no-such-id")
	c.fails(exitFailed, "get no-such-id: not found", "watch", "no-such-id")
	t.Setenv("SETTLE_DSN", c.dsn)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"stats"}, strings.NewReader(""), &out, &errs); code != exitOK {
		t.Errorf("with SETTLE_DSN: exit %d, %s", code, errs.String())
	}
}

// A database that may lose a commit is looked at and not written to; looking does not change it.
func TestUnsafeDatabase(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := filepath.Join(t.TempDir(), "copy.db")
		db := w.open(t, strings.TrimPrefix(w.dsn, "sqlite:"))
		_, err := db.ExecContext(t.Context(), `VACUUM INTO '`+other+`'`) // a copy is not in WAL mode
		must(t, err)
		c := tool{t, "sqlite:" + other}
		if got := c.do("list", "-ids"); !strings.Contains(got, w.ids["order-5"]) {
			t.Errorf("list says %q", got)
		}
		c.fails(exitFailed, "journal", "redrive", "-by", "ann", "-reason", "mended", w.ids["order-5"])
		var mode string
		must(t, w.open(t, other).QueryRowContext(t.Context(), `PRAGMA journal_mode`).Scan(&mode))
		if mode != "delete" {
			t.Errorf("the journal mode is %q: looking changed it", mode)
		}
	})
}
