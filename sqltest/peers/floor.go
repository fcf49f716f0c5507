package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// floor is what one writes by hand: a row claimed durably, the provider, a guarded update, by
// statements that pgx has prepared. No history, no fingerprint, no lease, no recovery.
type floor struct{ b *bench }

func newFloor(ctx context.Context, b *bench) (system, error) {
	_, err := b.pool.Exec(ctx, `CREATE TABLE payment (key text PRIMARY KEY, state text NOT NULL, request bytea NOT NULL,
		result bytea, ref text, created_at bigint NOT NULL, updated_at bigint NOT NULL)`)
	return floor{b}, err
}

func (f floor) pay(ctx context.Context, order string) error {
	body, err := json.Marshal(requestOf(order))
	if err != nil {
		return err
	}
	now := time.Now().UnixMicro()
	tag, err := f.b.pool.Exec(ctx, `INSERT INTO payment (key, state, request, created_at, updated_at) VALUES ($1, 'sent', $2, $3, $3)
		ON CONFLICT DO NOTHING`, order, body, now)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return errors.New("known")
	}
	res, err := f.b.charge(ctx, order)
	if err != nil {
		return err
	}
	out, err := json.Marshal(res)
	if err != nil {
		return err
	}
	_, err = f.b.pool.Exec(ctx, `UPDATE payment SET state = 'succeeded', result = $2, ref = $3, updated_at = $4 WHERE key = $1 AND state = 'sent'`,
		order, out, res.ID, time.Now().UnixMicro())
	return err
}

func (f floor) again(ctx context.Context, order string) error {
	var state, ref string
	var body, res []byte
	err := f.b.pool.QueryRow(ctx, `SELECT state, request, result, ref FROM payment WHERE key = $1`, order).Scan(&state, &body, &res, &ref)
	if err != nil {
		return err
	}
	var out receipt
	return json.Unmarshal(res, &out)
}

// fill pays one order and copies it.
func (f floor) fill(ctx context.Context, rows int) error {
	if err := f.pay(ctx, "settled"); err != nil {
		return err
	}
	_, err := f.b.pool.Exec(ctx, `INSERT INTO payment (key, state, request, result, ref, created_at, updated_at)
		SELECT 'copy-' || md5(n::text), state, request, result, ref, created_at, updated_at
		FROM payment, generate_series(1, $1::int) n WHERE key = 'settled'`, rows)
	if err != nil {
		return err
	}
	_, err = f.b.pool.Exec(ctx, `VACUUM ANALYZE`)
	return err
}

func (floor) close() {}
