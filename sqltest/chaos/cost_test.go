//go:build linux

package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// costs is what a server counts since it is there: write transactions, and bytes of its log.
type costs struct{ transactions, wal int64 }

func costsOf(tb testing.TB, db *sql.DB) (c costs) {
	tb.Helper()
	must(tb, db.QueryRowContext(tb.Context(), `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint`).
		Scan(&c.transactions, &c.wal))
	return c
}

// TestCostOfFirstExecutes: what a first Execute costs on PostgreSQL with a provider that answers at once, on a server
// where nobody else writes: a lone caller's makes two write transactions, those of 64 callers at most 0.15 each. The log
// is to grow by at most 1.7 kB and grows by that, see docs/decisions/0020; what index pages cost that split is not the same in each run.
func TestCostOfFirstExecutes(t *testing.T) {
	t.Parallel()
	srv := newServer(t, postgres)
	db, err := postgres.opened(srv.addr(), "public")
	must(t, err)
	defer db.Close()
	for _, q := range []string{`ALTER SYSTEM SET autovacuum = off`, `ALTER SYSTEM SET checkpoint_timeout = '1h'`, `SELECT pg_reload_conf()`} {
		_, err := db.ExecContext(t.Context(), q)
		must(t, err)
	}
	must(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.PostgreSQL()))
	s, err := sqlstore.New(db, sqlstore.PostgreSQL(), &sqlstore.Options{LockWait: time.Minute})
	must(t, err)
	defer func() { _ = s.Close() }()
	e, err := settle.Open(s, nil)
	must(t, err)
	type charge struct {
		Order    string `json:"order"`
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
	}
	type paid struct {
		ID string `json:"id"`
	}
	x, err := settle.New(e, "charge", settle.Adapter[charge, paid]{
		Promise: settle.Contract{
			Account: settle.AccountFacts{Provider: "cost"}, Keys: settle.Keys{Window: 24 * time.Hour}, SettleDelay: time.Minute, Deadline: 10 * time.Second,
		},
		TermsFunc: func(op settle.Operation[charge]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.Amount, op.Request.Currency)}
		},
		SubmitFunc: func(_ context.Context, c *settle.Call[charge]) (settle.Observation[paid], error) {
			return settle.Observation[paid]{Fact: settle.Applied, Ref: "ch_" + c.ID, Terms: c.Terms, Result: paid{"ch_" + c.Key()}}, nil
		},
	}, nil)
	must(t, err)
	next := 0
	execute := func(callers, each int) costs {
		first := next
		next += callers * each
		before := costsOf(t, db)
		var all sync.WaitGroup
		for c := range callers {
			all.Go(func() {
				for i := range each {
					order := fmt.Sprint("order-", first+c*each+i)
					_, err := x.Execute(context.Background(), settle.Operation[charge]{
						Scope: "shop", Subject: order, Purpose: "purchase", Request: charge{order, 1999, "EUR"},
					})
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		after := costsOf(t, db)
		return costs{after.transactions - before.transactions, after.wal - before.wal}
	}
	execute(64, 2) // the pages that every database has, and the connections
	for _, callers := range []int{1, 8, 64} {
		const operations = 1280
		got := execute(callers, operations/callers)
		transactions, wal := float64(got.transactions)/operations, float64(got.wal)/operations
		t.Logf("%d callers: %.3f write transactions and %.0f bytes of log for each first Execute", callers, transactions, wal)
		switch callers {
		case 1:
			assert.EqualValues(t, 2*operations, got.transactions)
			assert.LessOrEqual(t, wal, 1750.)
		case 8: // these do not queue
			assert.LessOrEqual(t, transactions, 2.)
		case 64:
			assert.LessOrEqual(t, transactions, 0.15)
			assert.LessOrEqual(t, wal, 1700.)
		}
	}
	var rows int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM settle_operation WHERE version = 2`).Scan(&rows))
	assert.Equal(t, next, rows)
}
