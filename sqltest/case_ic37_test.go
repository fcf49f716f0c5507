package sqltest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// TestIC37_StatementCache (IC-37): behind a proxy that gives every transaction another session, with two sessions, eight callers and
// a driver that keeps prepared statements, statements are missing or exist already (26000, 42P05). That is an error which
// says what to set; it is never "not found", nothing is sent twice, and with the right settings all is well.
func TestIC37_StatementCache(t *testing.T) {
	t.Parallel()
	d := postgresDatabase()
	direct := d.fresh(t)
	db, _ := d.open(t, direct, nil)
	through := pooled(t, direct, 2)
	_, right := d.open(t, through+"&default_query_exec_mode=exec", &sqlstore.Options{Unprepared: true})

	_, err := sqlstore.New(d.connect(t, through), d.dialect(), nil)
	require.ErrorContains(t, err, "Options.Unprepared")

	// With one session New is content; then there are two.
	pool, growing := newPooler(t, direct, 1)
	_, wrong := d.open(t, growing, &sqlstore.Options{LockWait: 20 * time.Millisecond})
	pool.more(t, 1)
	p := newPayments(t, wrong, &settle.Options{StoreTimeout: 300 * time.Millisecond, Lease: 3 * time.Second}, nil)
	var failures []error
	sent := map[string]int{}
	const callers = 8
	var subjects []string
	var mu sync.Mutex
	// Which session a statement meets is the proxy's choice: until one meets the wrong one, and says so.
	said := false
	for round := 0; round < 50 && !said; round++ {
		var wg sync.WaitGroup
		for i := range callers {
			subject := fmt.Sprint(round*callers + i)
			subjects = append(subjects, subject)
			wg.Go(func() {
				for range 2 {
					_, err := p.Execute(t.Context(), pay(subject))
					mu.Lock()
					if err != nil {
						failures = append(failures, err)
						said = said || strings.Contains(err.Error(), "Options.Unprepared")
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	require.NoError(t, p.engine.Drain(t.Context()))
	for _, subject := range subjects {
		sent[subject] = p.calls(subject)
	}
	require.NotEmpty(t, failures, "the proxy did what a proxy does")
	for _, err := range failures {
		assert.NotErrorIs(t, err, settle.ErrNotFound)
		assert.NotErrorIs(t, err, settle.ErrConflict)
		assert.NotErrorIs(t, err, settle.ErrFailed)
	}
	assert.True(t, said, "no error says what to set: %v", failures[0])

	p = newPayments(t, right, nil, nil)
	for _, subject := range subjects {
		_, err := p.Execute(t.Context(), pay(subject))
		if sent[subject] == 0 {
			require.NoError(t, err)
		}
		assert.LessOrEqual(t, sent[subject]+p.calls(subject), 1, "order %s was sent more than once", subject)
	}
	assert.Equal(t, len(subjects), count(t, db, `SELECT count(*) FROM settle_operation`))
}
