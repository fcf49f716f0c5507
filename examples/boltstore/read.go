package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

// Get implements settle.Store.
func (s *Store) Get(ctx context.Context, by settle.Index) (r settle.Record, err error) {
	err = s.view(ctx, func(t *step) error {
		r, err = t.find(by)
		return err
	})
	return r, err
}

// find returns the record that has the name (S10).
func (t *step) find(by settle.Index) (settle.Record, error) {
	if by == settle.ByID(by.Parts[0]) {
		return t.record(by.Parts[0])
	}
	return t.record(t.owner(by))
}

// owner is the id of the record that has a name other than an id, or "".
func (t *step) owner(n settle.Index) string { return string(t.bucket(bucketName).Get(nameKey(n))) }

// record returns a record. It shares nothing with the file (S3): bbolt's memory is gone, and
// may be another page, when the transaction is over. DecodeRecord copies the body, and
// keeps the payloads that it gets.
func (t *step) record(id string) (settle.Record, error) {
	key := []byte(id)
	body := t.bucket(bucketRecord).Get(key)
	if body == nil {
		return settle.Record{}, settle.ErrNotFound
	}
	request, result := t.bucket(bucketRequest).Get(key), t.bucket(bucketResult).Get(key)
	r, err := settle.DecodeRecord(body, bytes.Clone(request), bytes.Clone(result))
	if err != nil {
		return settle.Record{}, fmt.Errorf("boltstore: operation %s: %w", id, err)
	}
	c := t.claim(id)
	r.Version, r.Due, r.Token, r.AsOf = c.version, c.due, c.token, t.now
	return r, nil
}

// claim is the part of a record that claims and renewals change.
type claim struct {
	version int64
	due     time.Time
	token   string
}

func (t *step) claim(id string) claim {
	b := t.bucket(bucketClaim).Get([]byte(id))
	return claim{version: number(b), due: instant(number(b[8:])), token: string(b[16:])}
}

func (c claim) encode() []byte {
	return append(ordered(ordered(nil, c.version), micros(c.due)), c.token...)
}

// holds reports whether token has a live claim: a lease ends at its end, not after it (S22, S41).
func (c claim) holds(token string, now time.Time) bool {
	return token != "" && c.token == token && c.due.After(now)
}

// List implements settle.Store. It reads every record after q.After: this is an example.
func (s *Store) List(ctx context.Context, q settle.Query) (out []settle.Record, err error) {
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	err = s.view(ctx, func(t *step) error {
		c := t.bucket(bucketRecord).Cursor()
		for id, _ := c.Seek([]byte(q.After)); id != nil && len(out) < limit; id, _ = c.Next() {
			if string(id) == q.After {
				continue
			}
			r, err := t.record(string(id))
			if err != nil {
				return err
			}
			if matches(&r, &q) {
				out = append(out, r)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func matches(r *settle.Record, q *settle.Query) bool {
	return (q.Scope == "" || r.Scope == q.Scope) &&
		(q.Kind == "" || r.Kind == q.Kind) &&
		(q.Subject == "" || r.Subject == q.Subject) &&
		(len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
		(q.Overdue <= 0 || !r.Due.IsZero() && r.AsOf.Sub(r.Due) > q.Overdue)
}

// History implements settle.Store.
func (s *Store) History(ctx context.Context, id string, after int64, limit int) (out []settle.Entry, err error) {
	err = s.view(ctx, func(t *step) error {
		prefix := join(id)
		c := t.bucket(bucketHistory).Cursor()
		k, v := c.Seek(historyKey(id, after+1))
		for ; bytes.HasPrefix(k, prefix) && len(out) < limit; k, v = c.Next() {
			e, err := decodeEntry(v)
			if err != nil {
				return fmt.Errorf("boltstore: history of operation %s: %w", id, err)
			}
			e.Operation, e.Seq = id, number(k[len(prefix):])
			out = append(out, e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// An entry is stored as its time, the id of its change, and what settle.EncodeEntry makes of it.
func encodeEntry(e settle.Entry, at time.Time, change string) []byte {
	b := append(ordered(nil, micros(at)), join(change)...)
	return append(b, settle.EncodeEntry(e)...)
}

func decodeEntry(b []byte) (settle.Entry, error) {
	at := instant(number(b))
	n, size := binary.Uvarint(b[8:])
	change, body := b[8+size:8+size+int(n)], b[8+size+int(n):]
	e, err := settle.DecodeEntry(body)
	e.At, e.Write = at, string(change)
	return e, err
}
