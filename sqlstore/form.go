package sqlstore

import (
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"time"

	"github.com/settle-go/settle"
)

// form is a record as the columns hold it. Where the dialect splits records, fixed is what no evidence changes,
// which is written once, and the body is the rest without what is in columns anyway. A row of version 1 of the schema has an empty fixed,
// and all of the record in its body.
type form struct {
	body, fixed                                            sql.RawBytes
	id, scope, kind, key, subject, purpose, account, state sql.RawBytes
}

// to adds the columns that go with a body to those that a row is scanned into.
func (f *form) to(d *Dialect, columns []any) []any {
	if d.packer == nil {
		return columns
	}
	return append(columns, &f.fixed, &f.id, &f.scope, &f.kind, &f.key, &f.subject, &f.purpose, &f.account, &f.state)
}

// record reads the record that f holds.
func (f *form) record(d *Dialect, request, result []byte) (settle.Record, error) {
	r, err := d.decode(f.body, f.fixed, request, result)
	if d.packer != nil && err == nil {
		r.ID, r.Scope, r.Kind, r.Key, r.Subject, r.Purpose = string(f.id), string(f.scope), string(f.kind), string(f.key), string(f.subject), string(f.purpose)
		r.Account, r.State = string(f.account), settle.State(f.state)
	}
	return r, err
}

// stored is the record that v has written, as anybody else reads it.
func (v *values) stored(d *Dialect) (settle.Record, error) {
	r, err := d.decode(v.body, v.fixed, clone(v.record.Request), clone(v.record.Result))
	if d.packer != nil && err == nil {
		o := v.record
		r.ID, r.Scope, r.Kind, r.Key, r.Subject, r.Purpose, r.Account, r.State = o.ID, o.Scope, o.Kind, o.Key, o.Subject, o.Purpose, o.Account, o.State
	}
	return r, err
}

// decode reads the parts of a record that are not in columns.
func (d *Dialect) decode(body, fixed, request, result []byte) (settle.Record, error) {
	if d.packer == nil {
		return settle.DecodeRecord(body, request, result)
	}
	text := make([]byte, 0, 1024)
	r, err := settle.DecodeRecord(d.packer.unpack(text, body), request, result)
	if err != nil || len(fixed) == 0 {
		return r, err
	}
	c, err := settle.DecodeRecord(d.packer.unpack(text, fixed), nil, nil)
	if err != nil {
		return settle.Record{}, err
	}
	fix(&r, &c)
	return r, nil
}

// fix copies what no evidence changes. A member of Record that is not here is in the body.
func fix(to, from *settle.Record) {
	to.Generation, to.Replaces, to.Hold, to.Undoes, to.ProviderKey = from.Generation, from.Replaces, from.Hold, from.Undoes, from.ProviderKey
	to.Fingerprint, to.Terms, to.KeyWindow, to.SendBefore, to.Approval = from.Fingerprint, from.Terms, from.KeyWindow, from.SendBefore, from.Approval
}

// encode sets what v writes of its record and of the entry.
func (s *Store) encode(v *values, e *settle.Entry) (err error) {
	r := *v.record
	r.CreatedAt, r.UpdatedAt = time.Time{}, time.Time{} // kept in columns: the database's clock may set them
	if s.d.packer == nil {
		v.entry = settle.EncodeEntry(*e)
		v.body, err = settle.EncodeRecord(r)
		return err
	}
	v.entry = s.d.packer.pack(settle.EncodeEntry(*e))
	r.ID, r.Scope, r.Kind, r.Key, r.Subject, r.Purpose, r.Account, r.State = "", "", "", "", "", "", "", ""
	var c settle.Record
	fix(&c, &r)
	fix(&r, &settle.Record{})
	if v.fixed, err = settle.EncodeRecord(c); err != nil {
		return err
	}
	if v.body, err = settle.EncodeRecord(r); err != nil {
		return err
	}
	v.fixed, v.body = s.d.packer.pack(v.fixed), s.d.packer.pack(v.body)
	v.same = sameSum(v)
	return nil
}

// sameSum stands for all columns that an outcome leaves alone, so that an update need not
// send them to compare them: one for which they are not what they were rewrites the row.
func sameSum(v *values) []byte {
	r := v.record
	held, _ := hold(r).([]byte)
	text := make([]byte, 0, 1024)
	part := func(b []byte) {
		text = append(binary.AppendUvarint(text, uint64(len(b))), b...)
	}
	for _, name := range []string{r.ID, r.Scope, r.Kind, r.Key, r.Subject, r.Purpose, r.Account} {
		text = append(binary.AppendUvarint(text, uint64(len(name))), name...)
	}
	part(retired(r))
	part(held)
	part(v.fixed)
	if r.Request == nil {
		text = append(text, 0)
	} else {
		text = append(text, 1)
	}
	h := sha256.New()
	h.Write(text)
	h.Write(r.Request) // the last, so that its length need not be there
	return h.Sum(nil)[:16]
}

// entry reads a history entry.
func (d *Dialect) entry(body []byte) (settle.Entry, error) {
	if d.packer != nil {
		body = d.packer.unpack(make([]byte, 0, 512), body)
	}
	return settle.DecodeEntry(body)
}
