package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

var update = flag.Bool("update", false, "write new golden files")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tool is the program with a database.
type tool struct {
	t   *testing.T
	dsn string
}

// result is what one run of the program said.
type result struct {
	code     int
	out, err string
}

func (c tool) in(stdin string, args ...string) result {
	c.t.Helper()
	var out, errs bytes.Buffer
	code := run(c.t.Context(), append([]string{"-dsn", c.dsn}, args...), strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// do runs the program, which must succeed, and returns its output.
func (c tool) do(args ...string) string {
	c.t.Helper()
	got := c.in("", args...)
	if got.code != exitOK || got.err != "" {
		c.t.Fatalf("settle %s: exit %d, %s%s", strings.Join(args, " "), got.code, got.out, got.err)
	}
	return got.out
}

// fails runs the program, which must exit with the code and say so on stderr.
func (c tool) fails(code int, says string, args ...string) result {
	c.t.Helper()
	got := c.in("", args...)
	if got.code != code || !strings.Contains(got.err, says) {
		c.t.Errorf("settle %s: exit %d, want %d and %q, said %q %q", strings.Join(args, " "), got.code, code, says, got.out, got.err)
	}
	return got
}

// world is a database file with operations in every sort of trouble.
type world struct {
	tool
	*rig.Rig
	ids map[string]string // by subject
}

// worlds counts bubbles. Ids never go back in time in one process, and say when they were made: each
// bubble begins after all that other tests made.
var worlds atomic.Int64

// inWorld runs a test in a bubble, where hours take no time.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settle.db")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)) + time.Duration(worlds.Add(1))*100*time.Hour)
		w := &world{tool: tool{t, "sqlite:" + path}, ids: map[string]string{}}
		w.do("migrate")
		db, err := sql.Open("sqlite", sqlstore.DSN(path))
		must(t, err)
		store, err := sqlstore.New(db, sqlstore.SQLite(), nil)
		must(t, err)
		t.Cleanup(func() {
			_ = store.Close()
			_ = db.Close()
			synctest.Wait()
		})
		w.Rig = rig.New(t, store, &pt.Options{})
		w.Promise.Lookup = settle.NoLookup
		w.fill()
		f(t, w)
	})
}

// fill makes the operations.
func (w *world) fill() {
	w.t.Helper()
	p := w.start(nil)
	charge := func(subject string, want error, steps ...pt.Step) {
		w.t.Helper()
		time.Sleep(time.Second) // ids are in the order of time
		w.Provider.Script(steps...)
		out, err := p.Charges.Execute(w.t.Context(), rig.Op(subject, 1999, "EUR"))
		if !errors.Is(err, want) {
			w.t.Fatalf("%s: %v, want %v", subject, err, want)
		}
		w.ids[subject] = out.ID
	}
	charge("order-1", nil)
	_, err := p.Refunds.Compensate(w.t.Context(), settle.Effect{Operation: w.ids["order-1"]}, "return", rig.Refund{Amount: 500, Currency: "EUR"})
	must(w.t, err)
	charge("order-2", settle.ErrUnknown, pt.DropRequest())
	charge("order-3", settle.ErrFailed, pt.Decline("card_declined"))
	charge("order-4", settle.ErrReview, pt.WrongAmount(1900))
	charge("order-5", settle.ErrConsequence)
	charge("order-6", settle.ErrUnknown, pt.DropReply())
	_, err = p.Observe(w.t.Context(), settle.Event{Account: "acct-1", ID: "evt_1", Type: "charge.succeeded", Ref: "ch_99", Payload: []byte(`{"a":1}`)})
	must(w.t, err)
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	rig.After(40 * time.Minute)
	charge("order-7", settle.ErrUnknown, pt.DropRequest())
	stop()
	must(w.t, <-done)
}

// open opens a file of SQLite as another program would.
func (w *world) open(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// start starts a process of the application. Its hook fails for order-5 unless it is mended.
func (w *world) start(mended *bool) *rig.Process {
	w.t.Helper()
	return w.StartWith(&settle.Options{PollInterval: 30 * time.Second}, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
		OnSuccess: func(_ context.Context, _ settle.Tx, out settle.Outcome[rig.Receipt]) error {
			if out.Subject == "order-5" && (mended == nil || !*mended) {
				return errors.New("the warehouse is closed")
			}
			return nil
		},
	})
}

var (
	uuid  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times = regexp.MustCompile(`[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	hex   = regexp.MustCompile(`(s1_|sha256:)[0-9A-Za-z_-]+`)
)

// steady replaces what differs from run to run by words of the same width.
func steady(s string) string {
	ids := map[string]string{}
	s = uuid.ReplaceAllStringFunc(s, func(id string) string {
		if ids[id] == "" {
			ids[id] = fmt.Sprintf("00000000-0000-7000-8000-%012d", len(ids)+1)
		}
		return ids[id]
	})
	s = times.ReplaceAllString(s, "2000-01-01T00:00:00Z")
	return hex.ReplaceAllString(s, "${1}…")
}

// golden compares with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = steady(got)
	name = filepath.Join("testdata", name)
	if *update {
		must(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s differs (-update writes it anew):\n%s", name, got)
	}
}
