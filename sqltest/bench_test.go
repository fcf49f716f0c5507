package sqltest

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// floor is what a careful application would write by hand: one table with a
// unique key, a commit before the request and one after it.
type floor struct{ insert, update, get *sql.Stmt }

func newFloor(b *testing.B, db *sql.DB) floor {
	b.Helper()
	must(b, run(db, `CREATE TABLE floor (n INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, state TEXT NOT NULL, version INTEGER NOT NULL,
		created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, body BLOB NOT NULL, request BLOB, result BLOB)`))
	prepare := func(q string) *sql.Stmt {
		st, err := db.PrepareContext(b.Context(), q)
		must(b, err)
		b.Cleanup(func() { _ = st.Close() })
		return st
	}
	return floor{
		insert: prepare(`INSERT INTO floor (key, state, version, created_at, updated_at, body, request) VALUES (?, ?, 1, ?, ?, ?, ?)`),
		update: prepare(`UPDATE floor SET state = ?, version = 2, updated_at = ?, body = ?, result = ? WHERE key = ? AND version = 1`),
		get:    prepare(`SELECT state, version, created_at, updated_at, body, request, result FROM floor WHERE key = ?`),
	}
}

func (f floor) first(ctx context.Context, db *sql.DB, key, created, settled, request, result []byte) error {
	now := time.Now().UnixMicro()
	for _, step := range []func(tx *sql.Tx) error{
		func(tx *sql.Tx) error {
			_, err := tx.StmtContext(ctx, f.insert).ExecContext(ctx, key, "created", now, now, created, request) //nolint:sqlclosecheck // ends with tx
			return err
		},
		func(tx *sql.Tx) error {
			_, err := tx.StmtContext(ctx, f.update).ExecContext(ctx, "succeeded", now, settled, result, key) //nolint:sqlclosecheck // ends with tx
			return err
		},
	} {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := step(tx); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// duel runs a and b in turn, so that whatever else the machine does hurts both,
// and reports the time of each and b's throughput as a share of a's.
func duel(b *testing.B, x, y func(i int)) {
	b.Helper()
	var tx, ty time.Duration
	b.ResetTimer()
	for i := range b.N {
		t0 := time.Now()
		x(i)
		t1 := time.Now()
		y(i)
		tx, ty = tx+t1.Sub(t0), ty+time.Since(t1)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(tx.Nanoseconds())/float64(b.N), "floor-ns")
	b.ReportMetric(float64(ty.Nanoseconds())/float64(b.N), "settle-ns")
	b.ReportMetric(float64(tx)/float64(ty), "ratio")
}

// BenchmarkStoreFirst: a first Execute as the store sees it: a commit that creates and one with
// the outcome, one reference and one history row each; one caller, one file.
// Without fsync it shows what the processor does.
func BenchmarkStoreFirst(b *testing.B) {
	for name, opts := range map[string]*sqlstore.Options{"full": nil, "nosync": {AcceptUnsafe: true}} {
		b.Run(name, func(b *testing.B) {
			dsn := sqlstore.DSN(file(b))
			if opts != nil {
				dsn = strings.Replace(dsn, "FULL", "OFF", 1)
			}
			db, s := openBoth(b, dsn, opts)
			f := newFloor(b, db)
			_, bodies := bodiesOf(b)
			duel(b, func(i int) {
				must(b, f.first(b.Context(), db, []byte("key-"+strconv.Itoa(i)), bodies[0], bodies[1], request, result))
			}, func(i int) { first(b, s, strconv.Itoa(i)) })
		})
	}
}

var request, result = settle.Payload(`{"amount":1990,"currency":"eur","customer":"cus_123456"}`), settle.Payload(`{"id":"pi_123456","status":"succeeded"}`)

func bodiesOf(b *testing.B) ([]settle.Record, [2][]byte) {
	b.Helper()
	r1, r2 := created("x"), succeeded(created("x"))
	e1, err := settle.EncodeRecord(r1)
	must(b, err)
	e2, err := settle.EncodeRecord(r2)
	must(b, err)
	return []settle.Record{r1, r2}, [2][]byte{e1, e2}
}

func first(tb testing.TB, s *sqlstore.Store, n string) settle.Record {
	out, err := s.Commit(tb.Context(), settle.Change{ID: "c" + n, Writes: []settle.Write{{
		Record: created(n), DueIn: 30 * time.Second, Entry: settle.Entry{To: settle.StateSubmitting, Source: settle.SourceCaller},
	}}})
	must(tb, err)
	out, err = s.Commit(tb.Context(), settle.Change{ID: "o" + n, Writes: []settle.Write{{
		Record: succeeded(out[0]), IfVersion: 1, IfToken: "t" + n, DueIn: settle.Never,
		Entry: settle.Entry{From: settle.StateSubmitting, To: settle.StateSucceeded, Fact: settle.Applied, Source: settle.SourceReply, Attempt: 1},
	}}})
	must(tb, err)
	return out[0]
}

// BenchmarkStoreGet: reading a settled operation, against one plain SELECT of as
// many bytes in the same file.
func BenchmarkStoreGet(b *testing.B) {
	const rows = 2000
	db, s := openBoth(b, sqlstore.DSN(file(b)), nil)
	f := newFloor(b, db)
	_, bodies := bodiesOf(b)
	for i := range rows {
		must(b, f.first(b.Context(), db, []byte("key-"+strconv.Itoa(i)), bodies[0], bodies[1], request, result))
		first(b, s, strconv.Itoa(i))
	}
	for name, by := range map[string]func(n string) settle.Index{
		"key":    func(n string) settle.Index { return settle.ByKey("tenant-1", "charge", "key-"+n) },
		"intent": func(n string) settle.Index { return settle.ByIntent("tenant-1", "charge", "order-"+n, "purchase") },
	} {
		b.Run(name, func(b *testing.B) {
			duel(b, func(i int) {
				var state string
				var version, createdAt, updatedAt int64
				var body, req, res []byte
				must(b, f.get.QueryRowContext(b.Context(), []byte("key-"+strconv.Itoa(i%rows))).
					Scan(&state, &version, &createdAt, &updatedAt, &body, &req, &res))
			}, func(i int) {
				_, err := s.Get(b.Context(), by(strconv.Itoa(i%rows)))
				must(b, err)
			})
		})
	}
}
