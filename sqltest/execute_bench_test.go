package sqltest

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/sqlstore"
)

type benchRequest struct {
	Order    string `json:"order"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Customer string `json:"customer"`
	Method   string `json:"method"`
	Note     string `json:"note"`
}

type benchReceipt struct {
	ID string `json:"id"`
}

func benchReq(i int) benchRequest {
	return benchRequest{
		Order: "order-" + strconv.Itoa(i), Amount: 1999, Currency: "EUR", Customer: "cus_8472", Method: "pm_card_visa", Note: "two tickets",
	}
}

// instantProvider answers at once: what is measured is everything but the provider.
func instantProvider() settle.Adapter[benchRequest, benchReceipt] {
	return settle.Adapter[benchRequest, benchReceipt]{
		Promise: settle.Contract{
			Account: settle.AccountFacts{Provider: "bench"}, Keys: settle.Keys{Window: 24 * time.Hour},
			SettleDelay: time.Minute, Deadline: 10 * time.Second,
		},
		TermsFunc: func(op settle.Operation[benchRequest]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.Amount, op.Request.Currency)}
		},
		SubmitFunc: func(_ context.Context, c *settle.Call[benchRequest]) (settle.Observation[benchReceipt], error) {
			return settle.Observation[benchReceipt]{
				Fact: settle.Applied, Ref: "ch_" + c.ID, Terms: c.Terms, Result: benchReceipt{ID: "ch_" + c.Key()},
			}, nil
		},
	}
}

func benchExecutor(b *testing.B, s settle.Store) *settle.Executor[benchRequest, benchReceipt] {
	b.Helper()
	e, err := settle.Open(s, nil)
	must(b, err)
	x, err := settle.New(e, "charge", instantProvider(), nil)
	must(b, err)
	return x
}

// payment is the same job by hand, on the same file with the same settings: a row
// claimed durably, the provider, a guarded update; prepared statements in
// autocommit. No history, no fingerprint, no lease, no recovery, no second name.
type payment struct{ insert, update, get *sql.Stmt }

func newPayment(b *testing.B, db *sql.DB) payment {
	b.Helper()
	must(b, run(db, `CREATE TABLE payment (key TEXT PRIMARY KEY, state TEXT NOT NULL, request BLOB NOT NULL, result BLOB,
		ref TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL)`))
	prepare := func(q string) *sql.Stmt {
		st, err := db.PrepareContext(b.Context(), q)
		must(b, err)
		b.Cleanup(func() { _ = st.Close() })
		return st
	}
	return payment{
		insert: prepare(`INSERT INTO payment (key, state, request, created_at, updated_at) VALUES (?, 'sent', ?, ?, ?) ON CONFLICT DO NOTHING`),
		update: prepare(`UPDATE payment SET state = 'succeeded', result = ?, ref = ?, updated_at = ? WHERE key = ? AND state = 'sent'`),
		get:    prepare(`SELECT state, request, result, ref FROM payment WHERE key = ?`),
	}
}

func (p payment) first(ctx context.Context, i int) error {
	r := benchReq(i)
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	now := time.Now().UnixMicro()
	if _, err := p.insert.ExecContext(ctx, r.Order, body, now, now); err != nil {
		return err
	}
	res, err := json.Marshal(benchReceipt{ID: "ch_" + r.Order})
	if err != nil {
		return err
	}
	_, err = p.update.ExecContext(ctx, res, "ch_"+r.Order, time.Now().UnixMicro(), r.Order)
	return err
}

// replay is one SELECT and the decoding of its result.
func (p payment) replay(ctx context.Context, i int) error {
	var state, ref string
	var body, res []byte
	if err := p.get.QueryRowContext(ctx, "order-"+strconv.Itoa(i)).Scan(&state, &body, &res, &ref); err != nil {
		return err
	}
	var out benchReceipt
	return json.Unmarshal(res, &out)
}

func benchOperation(i int) settle.Operation[benchRequest] {
	r := benchReq(i)
	return settle.Operation[benchRequest]{Scope: "shop", Subject: r.Order, Purpose: "purchase", Request: r}
}

// BenchmarkExecute: a first Execute on SQLite beside the floor, in turn, one caller.
func BenchmarkExecute(b *testing.B) {
	db, s := openBoth(b, sqlstore.DSN(file(b)), nil)
	p, x := newPayment(b, db), benchExecutor(b, s)
	duel(b, func(i int) { must(b, p.first(context.Background(), i)) }, func(i int) {
		_, err := x.Execute(context.Background(), benchOperation(i))
		must(b, err)
	})
}

// BenchmarkExecuteMany: first Executes by many callers at once, the floor and settle in turn
// in slices of a few hundred operations on one file.
func BenchmarkExecuteMany(b *testing.B) {
	for _, callers := range []int{8, 64} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			db, s := openBoth(b, sqlstore.DSN(file(b)), nil)
			p, x := newPayment(b, db), benchExecutor(b, s)
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
			var floor, settled time.Duration
			b.ResetTimer()
			for from := 0; from < b.N; from += 512 {
				n := min(512, b.N-from)
				floor += slice(from, n, func(i int) error { return p.first(context.Background(), i) })
				settled += slice(from, n, func(i int) error { _, err := x.Execute(context.Background(), benchOperation(i)); return err })
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(floor.Nanoseconds())/float64(b.N), "floor-ns")
			b.ReportMetric(float64(settled.Nanoseconds())/float64(b.N), "settle-ns")
			b.ReportMetric(float64(floor)/float64(settled), "ratio")
		})
	}
}

// BenchmarkReplay: a settled operation asked for again, beside one SELECT, in turn.
func BenchmarkReplay(b *testing.B) {
	const rows = 1000
	db, s := openBoth(b, sqlstore.DSN(file(b)), nil)
	p, x := newPayment(b, db), benchExecutor(b, s)
	for i := range rows {
		must(b, p.first(b.Context(), i))
		_, err := x.Execute(b.Context(), benchOperation(i))
		must(b, err)
	}
	duel(b, func(i int) { must(b, p.replay(context.Background(), i%rows)) }, func(i int) {
		_, err := x.Execute(context.Background(), benchOperation(i%rows))
		must(b, err)
	})
}

// BenchmarkExecuteMemory and BenchmarkReplayMemory: what settle itself costs.
func BenchmarkExecuteMemory(b *testing.B) {
	x := benchExecutor(b, memstore.New(nil))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, err := x.Execute(context.Background(), benchOperation(i))
		must(b, err)
	}
}

func BenchmarkReplayMemory(b *testing.B) {
	x := benchExecutor(b, memstore.New(nil))
	_, err := x.Execute(b.Context(), benchOperation(0))
	must(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err := x.Execute(context.Background(), benchOperation(0))
		must(b, err)
	}
}
