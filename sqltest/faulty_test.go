package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"testing"

	"modernc.org/sqlite"
)

// faults is the tap of all connections of a pool, which can lose answers.
type faults struct {
	mu sync.Mutex
	// plan is asked before (done false) and after (done true) each statement, BEGIN,
	// COMMIT and ROLLBACK. An error before keeps it from running.
	plan func(text string, done bool) error
	log  []string
}

func (f *faults) text(q string) string { return q }

func (f *faults) before(_ context.Context, _ realConn, text string) error { return f.ask(text, false) }

func (f *faults) after(text string) error { return f.ask(text, true) }

func (f *faults) ask(text string, done bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if done {
		f.log = append(f.log, text)
	}
	if f.plan == nil {
		return nil
	}
	return f.plan(text, done)
}

func (f *faults) set(plan func(text string, done bool) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.log = plan, nil
}

// once answers err after the first statement that begins with text was carried
// out; before: instead of carrying it out.
func (f *faults) once(text string, before bool, err error) {
	hit := false
	f.set(func(got string, done bool) error {
		if hit || done == before || !strings.HasPrefix(strings.TrimSpace(got), text) {
			return nil
		}
		hit = true
		return err
	})
}

func openFaulty(tb testing.TB, dsn string) (*sql.DB, *faults) {
	tb.Helper()
	return openFaultyDriver(tb, &sqlite.Driver{}, dsn)
}

// openFaultyDriver is openFaulty for any driver whose connections run statements under a
// context.
func openFaultyDriver(tb testing.TB, d driver.Driver, dsn string) (*sql.DB, *faults) {
	tb.Helper()
	f := &faults{}
	db := openTapped(byName{d, dsn}, func() tap { return f })
	tb.Cleanup(func() { _ = db.Close() })
	return db, f
}
