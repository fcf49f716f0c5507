package sqltest

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/settle-go/settle"
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

func benchDB(b *testing.B) *sql.DB {
	b.Helper()
	db, err := sql.Open("sqlite", sqlstore.DSN(filepath.Join(b.TempDir(), "bench.db")))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

func benchExecutor(b *testing.B) *settle.Executor[benchRequest, benchReceipt] {
	b.Helper()
	db := benchDB(b)
	if err := sqlstore.EnsureSchema(b.Context(), db, sqlstore.SQLite()); err != nil {
		b.Fatal(err)
	}
	s, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	e, err := settle.Open(s, nil)
	if err != nil {
		b.Fatal(err)
	}
	x, err := settle.New(e, "charge", instantProvider(), nil)
	if err != nil {
		b.Fatal(err)
	}
	return x
}

// floor is what one writes by hand without settle: a row claimed durably, the
// provider, a guarded update; prepared statements, the same file settings, no history, no
// fingerprint, no lease, no recovery.
type floor struct {
	db                      *sql.DB
	insert, update, replays *sql.Stmt
}

func newFloor(b *testing.B) *floor {
	b.Helper()
	db := benchDB(b)
	f := &floor{db: db}
	if _, err := db.ExecContext(b.Context(), `CREATE TABLE payment (
		key TEXT PRIMARY KEY, state TEXT NOT NULL, request BLOB NOT NULL, result BLOB, ref TEXT, updated_at INTEGER NOT NULL)`); err != nil {
		b.Fatal(err)
	}
	for text, into := range map[string]**sql.Stmt{
		`INSERT INTO payment (key, state, request, updated_at) VALUES (?, 'sent', ?, ?) ON CONFLICT DO NOTHING`:        &f.insert,
		`UPDATE payment SET state = 'succeeded', result = ?, ref = ?, updated_at = ? WHERE key = ? AND state = 'sent'`: &f.update,
		`SELECT state, request, result, ref FROM payment WHERE key = ?`:                                                &f.replays,
	} {
		st, err := db.PrepareContext(b.Context(), text)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = st.Close() })
		*into = st
	}
	return f
}

func (f *floor) pay(ctx context.Context, i int) error {
	r := benchReq(i)
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := f.insert.ExecContext(ctx, r.Order, body, time.Now().UnixMicro()); err != nil {
		return err
	}
	res, err := json.Marshal(benchReceipt{ID: "ch_" + r.Order})
	if err != nil {
		return err
	}
	_, err = f.update.ExecContext(ctx, res, "ch_"+r.Order, time.Now().UnixMicro(), r.Order)
	return err
}

func (f *floor) replay(ctx context.Context, i int) error {
	var state, ref string
	var body, res []byte
	if err := f.replays.QueryRowContext(ctx, "order-"+strconv.Itoa(i)).Scan(&state, &body, &res, &ref); err != nil {
		return err
	}
	var out benchReceipt
	return json.Unmarshal(res, &out)
}

func operation(i int) settle.Operation[benchRequest] {
	r := benchReq(i)
	return settle.Operation[benchRequest]{Scope: "shop", Subject: r.Order, Purpose: "purchase", Request: r}
}

// BenchmarkExecute: first Execute on SQLite beside the floor, one caller.
func BenchmarkExecute(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		f := newFloor(b)
		for i := 0; b.Loop(); i++ {
			if err := f.pay(context.Background(), i); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("settle", func(b *testing.B) {
		x := benchExecutor(b)
		for i := 0; b.Loop(); i++ {
			if _, err := x.Execute(context.Background(), operation(i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReplay: an operation that is settled, asked for again, beside one SELECT
// that fetches and decodes the same result.
func BenchmarkReplay(b *testing.B) {
	const rows = 1000
	b.Run("select", func(b *testing.B) {
		f := newFloor(b)
		for i := range rows {
			if err := f.pay(b.Context(), i); err != nil {
				b.Fatal(err)
			}
		}
		for i := 0; b.Loop(); i++ {
			if err := f.replay(context.Background(), i%rows); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("settle", func(b *testing.B) {
		x := benchExecutor(b)
		for i := range rows {
			if _, err := x.Execute(b.Context(), operation(i)); err != nil {
				b.Fatal(err)
			}
		}
		for i := 0; b.Loop(); i++ {
			if _, err := x.Execute(context.Background(), operation(i%rows)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
