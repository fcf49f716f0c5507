package settle

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
)

// Sealer encrypts what is kept of requests, results and people's words, with authentication: package sealsettle has
// one over Tink. It must be safe for concurrent use. What Seal returns must name its key, so that
// Open finds it after a rotation.
//
// associated is bound to the ciphertext and not stored: Open must fail if it is not that of Seal, or a database could
// show one operation's data as another's. A call may be made again, and must be quick: it is made for each record that
// is read or written. Keep the keys in memory (a keyset that a key management service unwraps once), do not call a service each time.
type Sealer interface {
	// Seal encrypts plaintext and binds it to associated. It keeps neither slice.
	Seal(ctx context.Context, plaintext, associated []byte) ([]byte, error)
	// Open returns what was sealed. An error says that it cannot be opened here, or now.
	Open(ctx context.Context, sealed, associated []byte) ([]byte, error)
}

// ErrSealed says that what is stored of the operation cannot be opened here, or what is to be stored cannot be sealed: a key is
// gone, or out of reach for now, or the bytes were changed. Nothing was sent because of it and nothing is lost:
// once the key is back everything goes on.
var ErrSealed error = &sentinel{text: "sealed, and the key is not here"}

// sealPrefix begins what is sealed: no JSON begins so. What comes after it is the Sealer's.
const sealPrefix = "sealed:1:"

// Sealed reports whether p is as the Sealer left it: encrypted, and not opened, since the engine has no Sealer or
// its key is gone. Texts of a record (Message, an action, a note) can be sealed too; convert them to ask.
func (p Payload) Sealed() bool { return isSealed(p) }

// Sealed reports whether request or result of r are sealed and could not be opened.
func (r *Record) Sealed() bool { return r.Request.Sealed() || r.Result.Sealed() }

func isSealed[T ~string | ~[]byte](s T) bool {
	return len(s) >= len(sealPrefix) && string(s[:len(sealPrefix)]) == sealPrefix
}

// vault is a store of which all but names, evidence and amounts is sealed on the way in and opened on the way
// out. It is the one place where that happens. Rows that were written without it are read as they are, and sealed by
// their next write; what cannot be opened stays as it is, also when it is written again.
type vault struct {
	Store
	lock lock
}

// lock seals and opens the parts of records and entries.
type lock struct{ sealer Sealer }

func (v *vault) Get(ctx context.Context, by Index) (Record, error) {
	r, err := v.Store.Get(ctx, by)
	return v.lock.opened(ctx, r), err
}

func (v *vault) Commit(ctx context.Context, c Change) ([]Record, error) {
	return v.lock.commit(ctx, v.Store, c)
}

func (v *vault) Claim(ctx context.Context, c Claim) ([]Record, error) {
	recs, err := v.Store.Claim(ctx, c)
	return v.lock.all(ctx, recs), err
}

func (v *vault) List(ctx context.Context, q Query) ([]Record, error) {
	recs, err := v.Store.List(ctx, q)
	return v.lock.all(ctx, recs), err
}

func (v *vault) History(ctx context.Context, id string, after int64, limit int) ([]Entry, error) {
	entries, err := v.Store.History(ctx, id, after, limit)
	for i := range entries {
		x := &entries[i]
		x.Note = v.lock.openText(ctx, x.Note, id, noteField(x.Seq))
	}
	return entries, err
}

// vaultTx is the same inside a transaction of the application.
type vaultTx struct {
	tx   Tx
	lock lock
}

func (v vaultTx) Get(ctx context.Context, by Index) (Record, error) {
	r, err := v.tx.Get(ctx, by)
	return v.lock.opened(ctx, r), err
}

func (v vaultTx) Commit(ctx context.Context, c Change) ([]Record, error) {
	return v.lock.commit(ctx, v.tx, c)
}

// inside returns what creating needs of the application's transaction.
func (e *Engine) inside(tx Tx) committer {
	if v, ok := e.store.(*vault); ok {
		return vaultTx{tx, v.lock}
	}
	return tx
}

func (l lock) commit(ctx context.Context, on committer, c Change) ([]Record, error) {
	plain := c.Writes
	c.Writes = make([]Write, len(plain))
	for i, w := range plain {
		if err := l.sealWrite(ctx, &w); err != nil {
			return nil, err
		}
		c.Writes[i] = w
	}
	recs, err := on.Commit(ctx, c)
	var conflict *ConflictError
	if errors.As(err, &conflict) {
		conflict.Existing = l.opened(ctx, conflict.Existing)
	}
	return l.all(ctx, recs), err
}

// The parts of a record that are sealed, as they are bound to their ciphertexts. The words never change.
const (
	fieldRequest  = "request"
	fieldResult   = "result"
	fieldMessage  = "message"
	fieldAction   = "action"
	fieldReason   = "withdrawn"
	fieldApproval = "approval"
)

func noteField(seq int64) string { return "note/" + strconv.FormatInt(seq, 10) }

// associated binds a ciphertext to its place: that of another operation, or of another field, does not open.
func associated(id, field string) []byte { return []byte(joined([]string{"settle", id, field})) }

// holdsPayload reports whether records of kind have anything to seal. Others of settle's own keep a place, which must be read
// without a key.
func holdsPayload(kind string) bool { return !own(kind) || kind == EventKind }

// sealWrite replaces what is to be sealed in w, which shares its record's parts with the engine's.
func (l lock) sealWrite(ctx context.Context, w *Write) error {
	r := &w.Record
	if !holdsPayload(r.Kind) {
		return nil
	}
	var errs []error
	seal := func(p Payload, field string) Payload {
		out, err := l.seal(ctx, p, r.ID, field)
		errs = append(errs, err)
		return out
	}
	text := func(s *string, field string) {
		if *s == "" || isSealed(*s) {
			return
		}
		out, err := l.seal(ctx, Payload(*s), r.ID, field)
		errs = append(errs, err)
		*s = sealPrefix + base64.RawURLEncoding.EncodeToString(bytes.TrimPrefix(out, []byte(sealPrefix)))
	}
	said := w.Entry.Source == SourcePerson || w.Entry.Note == r.Withdrawn
	if said && !isWord(w.Entry.Note) {
		text(&w.Entry.Note, noteField(w.IfVersion+1))
	}
	r.Request, r.Result = seal(r.Request, fieldRequest), seal(r.Result, fieldResult)
	text(&r.Message, fieldMessage)
	if !isWord(r.Withdrawn) {
		text(&r.Withdrawn, fieldReason)
	}
	if r.Progress != nil {
		p := *r.Progress
		r.Progress = &p
		text(&p.Action, fieldAction)
	}
	if r.Approval != nil {
		a := *r.Approval
		r.Approval = &a
		text(&a.Note, fieldApproval)
	}
	return errors.Join(errs...)
}

// isWord reports whether s is one of settle's own, which decisions compare.
func isWord(s string) bool {
	return s == WithdrawnExpired || s == WithdrawnParent || s == "pending"
}

func (l lock) all(ctx context.Context, recs []Record) []Record {
	for i := range recs {
		recs[i] = l.opened(ctx, recs[i])
	}
	return recs
}

// opened opens what can be opened. The record is the caller's own (S3).
func (l lock) opened(ctx context.Context, r Record) Record {
	r.Request, r.Result = l.open(ctx, r.Request, r.ID, fieldRequest), l.open(ctx, r.Result, r.ID, fieldResult)
	r.Message = l.openText(ctx, r.Message, r.ID, fieldMessage)
	r.Withdrawn = l.openText(ctx, r.Withdrawn, r.ID, fieldReason)
	if r.Progress != nil {
		r.Progress.Action = l.openText(ctx, r.Progress.Action, r.ID, fieldAction)
	}
	if r.Approval != nil {
		r.Approval.Note = l.openText(ctx, r.Approval.Note, r.ID, fieldApproval)
	}
	return r
}

func (l lock) seal(ctx context.Context, p Payload, id, field string) (out Payload, err error) {
	if p == nil || isSealed(p) {
		return p, nil
	}
	sealed, err := func() (_ []byte, err error) {
		defer contain(&err)
		return l.sealer.Seal(ctx, p, associated(id, field))
	}()
	if err != nil {
		return nil, &sealError{err}
	}
	return append(Payload(sealPrefix), sealed...), nil
}

func (l lock) open(ctx context.Context, p Payload, id, field string) Payload {
	if !isSealed(p) {
		return p
	}
	plain, err := func() (_ []byte, err error) {
		defer contain(&err)
		return l.sealer.Open(ctx, p[len(sealPrefix):], associated(id, field))
	}()
	switch {
	case err != nil:
		return p
	case plain == nil:
		return Payload{} // nil and empty are told apart (S2)
	}
	return plain
}

func (l lock) openText(ctx context.Context, s, id, field string) string {
	body, ok := strings.CutPrefix(s, sealPrefix)
	if !ok {
		return s
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return s
	}
	if p := l.open(ctx, append(Payload(sealPrefix), raw...), id, field); !isSealed(p) {
		return string(p)
	}
	return s
}

// sealError is what a Sealer said. It matches ErrSealed.
type sealError struct{ err error }

func (*sealError) Error() string        { return "settle: it cannot be sealed" }
func (e *sealError) Unwrap() error      { return e.err }
func (*sealError) Is(target error) bool { return target == ErrSealed }
func (*sealError) Explain() string      { return "it cannot be sealed" }
