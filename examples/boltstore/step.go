package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/settle-go/settle"
)

// root is the bucket of the application's file in which all of the store's buckets are.
const root = "settle"

// The buckets, what their keys are made of, and what stands there.
const (
	bucketRecord  = "record"  // id: the record as settle.EncodeRecord makes it
	bucketRequest = "request" // id: the request; no key: nil
	bucketResult  = "result"  // id: the result; no key: nil
	bucketClaim   = "claim"   // id: version, due and token, which change without the record
	bucketName    = "name"    // a name: the id of its owner
	bucketDue     = "due"     // kind, due, id: nothing
	bucketHistory = "history" // id, version: an entry
	bucketChange  = "change"  // id, id of a change that wrote the record: nothing
)

func buckets() []string {
	return []string{
		bucketRecord, bucketRequest, bucketResult, bucketClaim, bucketName, bucketDue, bucketHistory, bucketChange,
	}
}

// step is the store inside one transaction, at one time of the store's clock.
type step struct {
	tx   *bbolt.Tx
	now  time.Time
	undo []func() error
}

func (t *step) bucket(name string) *bbolt.Bucket {
	return t.tx.Bucket([]byte(root)).Bucket([]byte(name))
}

// put sets a key; a nil value takes it out. bbolt has no savepoints, so step remembers
// what was there. The value must not change before the transaction ends.
func (t *step) put(bucket string, key, value []byte) error {
	b := t.bucket(bucket)
	set := func(value []byte) error {
		if value == nil {
			return b.Delete(key)
		}
		return b.Put(key, value)
	}
	was := bytes.Clone(b.Get(key))
	t.undo = append(t.undo, func() error { return set(was) })
	return set(value)
}

// back takes back what was done since there were mark entries in t.undo.
func (t *step) back(mark int) error {
	var errs []error
	for i := len(t.undo) - 1; i >= mark; i-- {
		errs = append(errs, t.undo[i]())
	}
	t.undo = t.undo[:mark]
	return errors.Join(errs...)
}

// close ends a transaction that was not committed.
func (t *step) close() {
	if !t.ended() {
		_ = t.tx.Rollback() // fails only when there is nothing to roll back
	}
}

// ended reports whether the transaction was committed or rolled back.
func (t *step) ended() bool { return t.tx.DB() == nil }

// join makes one key of texts, such that no other texts make it: each has its length
// in front, and nothing is folded, trimmed or padded (S2).
func join(parts ...string) []byte {
	var key []byte
	for _, p := range parts {
		key = binary.AppendUvarint(key, uint64(len(p)))
		key = append(key, p...)
	}
	return key
}

func nameKey(n settle.Index) []byte {
	return join(string(n.Name), n.Parts[0], n.Parts[1], n.Parts[2], n.Parts[3])
}

// ordered is n in eight bytes that sort like n, below zero too.
func ordered(key []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(key, uint64(n)^1<<63)
}

func number(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ 1<<63) }

// Instants are kept in microseconds. The zero time, which means never, is one of them.
func micros(t time.Time) int64 { return t.UnixMicro() }

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

func dueKey(kind string, due time.Time, id string) []byte {
	return append(ordered(join(kind), micros(due)), id...)
}

func historyKey(id string, version int64) []byte { return ordered(join(id), version) }
