package sqltest

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle/sqlstore"
)

// serverPayment is payment on a server: prepared statements, each a commit of its own.
func serverPayment(b *testing.B, d database, db *sql.DB) func(ctx context.Context, i int) error {
	b.Helper()
	must(b, run(db, `CREATE TABLE payment (id `+d.blob+` PRIMARY KEY, state VARCHAR(32) NOT NULL, request `+d.blob+` NOT NULL, result `+d.blob+`,
		ref VARCHAR(255), created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)`))
	prepare := func(q string) *sql.Stmt {
		st, err := db.PrepareContext(b.Context(), d.text(q))
		must(b, err)
		b.Cleanup(func() { _ = st.Close() })
		return st
	}
	insert := prepare(`INSERT INTO payment (id, state, request, created_at, updated_at) VALUES (?, 'sent', ?, ?, ?)`)
	update := prepare(`UPDATE payment SET state = 'succeeded', result = ?, ref = ?, updated_at = ? WHERE id = ? AND state = 'sent'`)
	return func(ctx context.Context, i int) error {
		r := benchReq(i)
		body, err := json.Marshal(r)
		if err != nil {
			return err
		}
		now := time.Now().UnixMicro()
		if _, err := insert.ExecContext(ctx, []byte(r.Order), body, now, now); err != nil {
			return err
		}
		res, err := json.Marshal(benchReceipt{ID: "ch_" + r.Order})
		if err != nil {
			return err
		}
		_, err = update.ExecContext(ctx, res, "ch_"+r.Order, time.Now().UnixMicro(), []byte(r.Order))
		return err
	}
}

// BenchmarkServerExecute: first Executes by 1, 8 and 64 callers on the servers, a hand-written floor and settle in turn in
// slices of a few hundred operations.
func BenchmarkServerExecute(b *testing.B) {
	for _, d := range servers() {
		for _, callers := range []int{1, 8, 64} {
			b.Run(d.name+"/"+strconv.Itoa(callers), func(b *testing.B) {
				db := d.connect(b, d.fresh(b))
				db.SetMaxIdleConns(64)
				floor := serverPayment(b, d, db)
				x := benchExecutor(b, d.store(b, db, &sqlstore.Options{LockWait: time.Minute}))
				slice := func(from, n int, do func(i int) error) time.Duration {
					began := time.Now()
					var all sync.WaitGroup
					for c := range callers {
						all.Go(func() {
							for i := from + c; i < from+n; i += callers {
								if err := do(i); err != nil {
									b.Error(err)
								}
							}
						})
					}
					all.Wait()
					return time.Since(began)
				}
				ctx := context.Background()
				one := func(i int) error { _, err := x.Execute(ctx, benchOperation(i)); return err }
				slice(1<<30, 2*callers, func(i int) error { return floor(ctx, i) }) // connections are opened
				slice(1<<30, 2*callers, one)
				var floored, settled time.Duration
				b.ResetTimer()
				for from := 0; from < b.N; from += 512 {
					n := min(512, b.N-from)
					floored += slice(from, n, func(i int) error { return floor(ctx, i) })
					settled += slice(from, n, one)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(b.N)/floored.Seconds(), "floor/s")
				b.ReportMetric(float64(b.N)/settled.Seconds(), "settle/s")
				b.ReportMetric(float64(floored)/float64(settled), "ratio")
			})
		}
	}
}
