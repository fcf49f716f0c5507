package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// Changes that come to a server while others are under way queue, and are committed together. The tests hold
// what is under way in the driver, have others queue behind it, and let go.

// crowdSize is more than go to a server each by itself.
const crowdSize = 8

// dam is a tap that can hold writes back.
type dam struct {
	mu    sync.Mutex
	moved sync.Cond
	shut  chan struct{} // nil: open
	held  int
	log   []string
	after func(text string) error
}

func newDam() *dam {
	d := &dam{}
	d.moved.L = &d.mu
	return d
}

func (f *dam) tap() tap { return damTap{f} }

type damTap struct{ *dam }

func (f damTap) text(q string) string { return q }

// writes reports whether the statement writes, or opens what will.
func writes(text string) bool {
	return strings.Contains(text, "INSERT INTO settle_operation") || strings.Contains(text, "UPDATE settle_operation") ||
		strings.Contains(text, "settle_operation o ON") || text == "BEGIN"
}

// batches says in how many batches changes were written since the dam was opened.
func (r *reservoir) batches() int {
	if r.name == "PostgreSQL" {
		return r.count(func(text string) bool { return strings.Contains(text, "w, unnest(") })
	}
	// One has a statement for its creations and one for its updates, and looks at the rows before these and at its end.
	// The batch of one that was held is among them.
	creations := r.count(func(text string) bool {
		return strings.Contains(text, "JSON_TABLE") && strings.Contains(text, "INSERT INTO settle_operation")
	})
	updates := r.count(func(text string) bool {
		return strings.Contains(text, "JSON_TABLE") && strings.Contains(text, "UPDATE (")
	})
	looks := r.count(func(text string) bool { return strings.Contains(text, "SELECT id, version, refs") })
	return max(creations-1, updates, looks/2)
}

func (f damTap) before(_ context.Context, _ realConn, text string) error {
	f.mu.Lock()
	f.log = append(f.log, text)
	shut := f.shut
	if shut == nil || !writes(text) {
		f.mu.Unlock()
		return nil
	}
	f.held++
	f.moved.Broadcast()
	f.mu.Unlock()
	<-shut
	return nil
}

func (f damTap) after(text string) error {
	f.mu.Lock()
	hook := f.dam.after
	f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(text)
}

func (f *dam) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shut, f.held, f.log, f.after = make(chan struct{}), 0, nil, nil
}

// release lets go, and answers as hook says from now on.
func (f *dam) release(hook func(text string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.shut)
	f.shut, f.after, f.log = nil, hook, nil
}

func (f *dam) wait(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.held < n {
		f.moved.Wait()
	}
}

// count says how many statements since the dam was opened are such.
func (f *dam) count(is func(text string) bool) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, text := range f.log {
		if is(text) {
			n++
		}
	}
	return n
}

// reservoir is a store behind a dam.
type reservoir struct {
	database
	*dam
	db    *sql.DB
	store *sqlstore.Store
	n     int
}

func (d database) dammed(t *testing.T, dsn string, opts *sqlstore.Options) *reservoir {
	t.Helper()
	f := newDam()
	db := openTapped(byName{d.real, dsn}, f.tap)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(32)
	return &reservoir{database: d, dam: f, db: db, store: d.store(t, db, opts)}
}

// answered is what a caller was told.
type answered struct {
	out []settle.Record
	err error
}

// batch has the changes queue behind a crowd and be written together. What happens while they wait is queued's; hook is asked after each
// statement from then on. Each try of the scheduler has fresh changes, until it queues all.
func (r *reservoir) batch(t *testing.T, changes func() []settle.Change, queued func(), hook func(text string) error) []answered {
	t.Helper()
	for range 50 {
		all := changes()
		r.hold()
		var crowd, callers sync.WaitGroup
		for i := range crowdSize + 1 { // and the first batch, of one
			r.n++
			c := create(fmt.Sprint("crowd", r.n))
			crowd.Go(func() {
				_, err := r.store.Commit(context.Background(), c)
				assert.NoError(t, err)
			})
			r.wait(i + 1)
		}
		answers := make([]answered, len(all))
		var started sync.WaitGroup
		for i, c := range all {
			started.Add(1)
			callers.Go(func() {
				started.Done()
				answers[i].out, answers[i].err = r.store.Commit(context.Background(), c)
			})
		}
		started.Wait()
		for range 2000 { // so that they are where they wait; if not, the next try will do
			runtime.Gosched()
		}
		if queued != nil {
			queued()
		}
		r.release(hook)
		crowd.Wait()
		callers.Wait()
		if n := r.batches(); n == 1 || hook != nil {
			return answers
		}
	}
	t.Fatal("the changes never queued all")
	return nil
}
