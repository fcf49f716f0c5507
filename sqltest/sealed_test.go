package sqltest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/providertest"
)

// marker is in everything that is to be sealed. It has nothing that a store may keep in another form: on PostgreSQL numbers of 16
// digits are packed.
const marker = "MARKER-4111-1111-1111-1111"

// logbook collects text from any goroutine.
type logbook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *logbook) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *logbook) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// everyColumn reads all tables of the database, as a dump does.
func everyColumn(t *testing.T, d database, db *sql.DB) string {
	t.Helper()
	list := map[string]string{
		"SQLite":     `SELECT name FROM sqlite_master WHERE type = 'table'`,
		"PostgreSQL": `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`,
		"MySQL":      `SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()`,
	}[d.name]
	var tables []string
	rows, err := db.QueryContext(t.Context(), list)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	must(t, rows.Err())
	if len(tables) < 3 {
		t.Fatalf("only the tables %v", tables)
	}
	var b strings.Builder
	for _, name := range tables {
		b.WriteString(table(t, db, name))
	}
	return b.String()
}

// table is every column of every row of one table.
func table(t *testing.T, db *sql.DB, name string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+name)
	must(t, err)
	defer rows.Close()
	names, err := rows.Columns()
	must(t, err)
	var b strings.Builder
	for rows.Next() {
		values := make([]sql.RawBytes, len(names))
		to := make([]any, len(names))
		for i := range values {
			to[i] = &values[i]
		}
		must(t, rows.Scan(to...))
		for i, v := range values {
			fmt.Fprintf(&b, "%s.%s=%s\n", name, names[i], v)
		}
	}
	must(t, rows.Err())
	return b.String()
}

// I16: with a Sealer no byte of the database, of its log, of any log or error has a request, a result, an event or a note in it. Without one
// the same story has them, so that the search is known to find.
func TestI16_NoPlaintextAtRest(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		for name, sealer := range map[string]settle.Sealer{"sealed": scenario.NewKeyset("k1"), "clear": nil} {
			t.Run(name, func(t *testing.T) {
				dsn := d.fresh(t)
				db, store := d.open(t, dsn, nil)
				logs := &logbook{}
				tellAll(t, store, sealer, logs)
				dump := everyColumn(t, d, db)
				files := map[string]string{"every column": dump}
				if d.name == "SQLite" {
					path, _, _ := strings.Cut(strings.TrimPrefix(dsn, "file:"), "?")
					all, err := filepath.Glob(path + "*")
					must(t, err)
					for _, f := range all {
						raw, err := os.ReadFile(f)
						must(t, err)
						files[filepath.Base(f)] = string(raw)
					}
					if len(files) < 3 {
						t.Errorf("only %d files: where is the write-ahead log?", len(files)-1)
					}
				}
				found := 0
				for where, text := range files {
					n := strings.Count(text, marker)
					found += n
					if i := strings.Index(text, marker); i >= 0 && sealer != nil {
						t.Errorf("%s has it: …%q", where, text[max(0, i-120):i+len(marker)])
					}
				}
				if sealer == nil && found < 8 {
					t.Errorf("the search finds it %d times where nothing is sealed: it shows nothing", found)
				}
				if sealer != nil && strings.Count(dump, "sealed:1:") < 8 {
					t.Errorf("only %d parts are sealed", strings.Count(dump, "sealed:1:"))
				}
				if strings.Contains(logs.String(), marker) || logs.String() == "" {
					t.Errorf("the logs tell, or nothing was logged: %q", logs.String())
				}
			})
		}
	})
}

// tellAll: execute, lost reply, drift, decline, review, events, cancellation, with the marker everywhere.
func tellAll(t *testing.T, store settle.Store, sealer settle.Sealer, logs *logbook) {
	t.Helper()
	ctx := t.Context()
	log := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
	r := rig.New(t, store, &providertest.Options{KeyWindow: 24 * time.Hour})
	p := r.StartWith(&settle.Options{Sealer: sealer, Logger: log}, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
		OnSuccess: func(context.Context, settle.Tx, settle.Outcome[rig.Receipt]) error { return errors.New(marker) },
	})
	say := func(err error, want error) {
		t.Helper()
		if want != nil && !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			var own *settle.Error
			if errors.As(e, &own) {
				log.Error("call", "err", own.Error())
			}
		}
	}
	op := func(subject string) settle.Operation[rig.Payment] {
		o := rig.Op(subject, 1999, "EUR")
		o.Request.Token, o.Request.Invoice = marker, marker
		return o
	}
	first := op("order-1")
	sum, err := p.Charges.Fingerprint(first)
	must(t, err)
	first.Approval = &settle.Approval{By: "ben", Fingerprint: sum, Note: marker}
	out, err := p.Charges.Execute(ctx, first)
	say(err, settle.ErrConsequence)
	log.Info("outcome", "out", out, "text", fmt.Sprintf("%+v", out))
	drift := first
	drift.Request.Invoice = marker + "-2"
	_, err = p.Charges.Execute(ctx, drift)
	say(err, settle.ErrMismatch)
	r.Provider.Script(providertest.DropReply()) // as a crash leaves it: found out by somebody else
	r.Provider.ScriptLookup(providertest.Status(503, ""))
	lost, err := p.Charges.Execute(ctx, op("order-2"))
	say(err, settle.ErrUnknown)
	_, err = r.StartWith(&settle.Options{Sealer: sealer, Logger: log}, nil).Reconcile(ctx, lost.ID)
	say(err, nil)
	r.Provider.Script(providertest.WrongAmount(1))
	odd, err := p.Charges.Execute(ctx, op("order-3"))
	say(err, settle.ErrReview)
	_, err = p.Resolve(ctx, odd.ID, settle.Decision{Actor: "ann", Reason: marker, Evidence: marker, Fact: settle.Reversed})
	must(t, err)
	must(t, p.Charges.Cancel(ctx, rig.Intent("order-4"), marker))
	_, err = p.Observe(ctx, settle.Event{Account: r.Promise.Account.String(), ID: "evt_1", Type: "charge.updated", Ref: "ch_99", Payload: settle.Payload(marker)})
	must(t, err)
	_, err = p.Observe(ctx, settle.Event{Account: r.Promise.Account.String(), ID: "evt_2", Type: "charge.updated", Operation: out.ID, Payload: settle.Payload(marker)})
	must(t, err)
	_, err = p.ReconcileReport(ctx, settle.ReportOf(func(yield func(settle.ReportLine, error) bool) {
		yield(settle.ReportLine{Ref: out.References[0].Ref, Fact: settle.Applied, Terms: out.Terms, Operation: out.ID}, nil)
	}), &settle.ReportOptions{
		Account: r.Promise.Account.String(), Kinds: []string{rig.KindCharge}, Found: func(context.Context, settle.Finding) error { return nil },
	})
	say(err, nil)
	must(t, err)
}
