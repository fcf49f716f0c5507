package settle

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/shopspring/decimal"
)

// ErrCorrupt says that a stored record cannot be read. The text says where, never what
// is written there.
var ErrCorrupt error = &sentinel{text: "stored record is unreadable"}

// codecVersion is the format that EncodeRecord writes. Members may be added
// under one version, since readers skip those they do not know; a change of
// what a member means needs a new one.
const codecVersion = 1

// EncodeRecord returns the stored form of r for stores that keep bytes:
// compact JSON with stable words. Instants are microseconds since 1970 UTC,
// durations are nanoseconds, amounts are decimal text that keeps trailing
// zeros. It holds everything of r except the payloads, which are kept beside
// it so that retention can drop them, and what changes without a write of the
// record or is asked for by the store itself: Version, Token, Due and AsOf.
//
// Text is written as it is, whatever its encoding, so that it comes back exactly.
func EncodeRecord(r Record) ([]byte, error) {
	return appendRecord(make([]byte, 0, 1024), &r), nil
}

// DecodeRecord is the inverse of EncodeRecord, with the payloads that were kept
// beside body. The record keeps request and result, and shares nothing with
// body. Empty lists and maps come back as nil. Members of newer writers are
// skipped; an unknown version and a damaged body are ErrCorrupt.
func DecodeRecord(body, request, result []byte) (Record, error) {
	var r Record
	p := parser{s: string(body)}
	p.record(&r)
	if p.err != nil {
		return Record{}, p.err
	}
	r.Request, r.Result = request, result
	return r, nil
}

// EncodeEntry returns the stored form of e as JSON, without what stores keep in
// columns: Seq, Operation, Write and At.
func EncodeEntry(e Entry) []byte {
	w := writer{b: append(make([]byte, 0, 192), '{'), open: true}
	w.text(`,"from":`, string(e.From))
	w.text(`,"to":`, string(e.To))
	w.text(`,"fact":`, string(e.Fact))
	w.text(`,"source":`, string(e.Source))
	w.number(`,"attempt":`, int64(e.Attempt))
	w.text(`,"disposition":`, string(e.Disposition))
	w.text(`,"ref":`, e.Ref)
	w.text(`,"code":`, e.Code)
	w.text(`,"actor":`, e.Actor)
	w.text(`,"rule":`, e.Rule)
	w.text(`,"note":`, e.Note)
	if len(e.Alarms) > 0 {
		w.list(`,"alarms":`)
		for i, a := range e.Alarms {
			w.comma(i)
			w.b = appendText(w.b, a)
		}
		w.b = append(w.b, ']')
	}
	w.end()
	return w.b
}

// DecodeEntry is the inverse of EncodeEntry, with the tolerance of DecodeRecord.
func DecodeEntry(body []byte) (Entry, error) {
	var e Entry
	p := parser{s: string(body)}
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "from":
			e.From = State(p.text())
		case "to":
			e.To = State(p.text())
		case "fact":
			e.Fact = Fact(p.text())
		case "source":
			e.Source = Source(p.text())
		case "attempt":
			e.Attempt = p.integer()
		case "disposition":
			e.Disposition = Disposition(p.text())
		case "ref":
			e.Ref = p.text()
		case "code":
			e.Code = p.text()
		case "actor":
			e.Actor = p.text()
		case "rule":
			e.Rule = p.text()
		case "note":
			e.Note = p.text()
		case "alarms":
			p.begin('[')
			for p.more(']') {
				e.Alarms = append(e.Alarms, p.text())
			}
		default:
			p.skip()
		}
	}
	p.end()
	if p.err != nil {
		return Entry{}, p.err
	}
	return e, nil
}

// writer appends members of JSON objects. Zero values are left out, so a
// reader's zero value is right for every missing member.
type writer struct {
	b    []byte
	open bool // no member was written yet
}

func appendRecord(b []byte, r *Record) []byte {
	w := writer{b: append(b, `{"v":1`...)}
	w.text(`,"id":`, r.ID)
	w.text(`,"scope":`, r.Scope)
	w.text(`,"kind":`, r.Kind)
	w.text(`,"key":`, r.Key)
	w.text(`,"subject":`, r.Subject)
	w.text(`,"purpose":`, r.Purpose)
	w.number(`,"gen":`, int64(r.Generation))
	w.text(`,"replaces":`, r.Replaces)
	w.text(`,"hold":`, r.Hold)
	if r.Undoes != (Undo{}) {
		w.object(`,"undoes":`)
		w.text(`,"op":`, r.Undoes.Operation)
		w.text(`,"ref":`, r.Undoes.Ref)
		w.flag(`,"whole":`, r.Undoes.Whole)
		w.end()
	}
	w.text(`,"provider_key":`, r.ProviderKey)
	w.text(`,"account":`, r.Account)
	if f := &r.Fingerprint; f.Rule != "" || f.Sum != "" || len(f.Volatile) > 0 {
		w.object(`,"fingerprint":`)
		w.text(`,"rule":`, f.Rule)
		if len(f.Volatile) > 0 {
			w.list(`,"volatile":`)
			for i, v := range f.Volatile {
				w.comma(i)
				w.b = appendText(w.b, v)
			}
			w.b = append(w.b, ']')
		}
		w.text(`,"sum":`, f.Sum)
		w.end()
	}
	w.terms(&r.Terms)
	w.number(`,"window":`, int64(r.KeyWindow))
	w.time(`,"before":`, r.SendBefore)
	if a := r.Approval; a != nil {
		w.object(`,"approval":`)
		w.text(`,"by":`, a.By)
		w.time(`,"at":`, a.At)
		w.time(`,"until":`, a.Until)
		w.text(`,"fingerprint":`, a.Fingerprint)
		w.text(`,"note":`, a.Note)
		w.end()
	}
	w.time(`,"created":`, r.CreatedAt)
	w.evidence(r)
	w.text(`,"withdrawn":`, r.Withdrawn)
	w.text(`,"replaced_by":`, r.ReplacedBy)
	w.flag(`,"hold_free":`, r.HoldFree)
	if v := r.Review; v != nil {
		w.object(`,"review":`)
		w.text(`,"reason":`, v.Reason)
		w.text(`,"owner":`, v.Owner)
		w.time(`,"since":`, v.Since)
		w.time(`,"deadline":`, v.Deadline)
		w.flag(`,"overdue":`, v.Overdue)
		w.end()
	}
	w.time(`,"resumed":`, r.ResumedAt)
	w.number(`,"tries":`, int64(r.Tries))
	w.number(`,"waits":`, int64(r.Waits))
	w.time(`,"retry":`, r.RetryAt)
	w.flag(`,"wake":`, r.Wake)
	w.text(`,"consequence":`, string(r.Consequence))
	w.number(`,"hook_tries":`, int64(r.HookTries))
	if f := r.Feed; f != (Feed{}) {
		w.object(`,"feed":`)
		w.number(`,"done":`, f.Done)
		w.number(`,"last":`, f.Last)
		w.text(`,"state":`, string(f.State))
		w.number(`,"from":`, f.From)
		w.number(`,"row":`, f.Row)
		w.end()
	}
	w.text(`,"state":`, string(r.State))
	w.time(`,"updated":`, r.UpdatedAt)
	w.time(`,"pruned":`, r.PrunedAt)
	return append(w.b, '}')
}

func (w *writer) evidence(r *Record) {
	if len(r.Attempts) > 0 {
		w.list(`,"attempts":`)
		for i := range r.Attempts {
			a := &r.Attempts[i]
			w.item(i)
			w.number(`,"n":`, int64(a.N))
			w.time(`,"start":`, a.Start)
			w.time(`,"end":`, a.End)
			w.text(`,"fate":`, string(a.Fate))
			w.number(`,"grace":`, int64(a.Grace))
			w.text(`,"code":`, a.Code)
			w.flag(`,"closed":`, a.Closed)
			w.end()
		}
		w.b = append(w.b, ']')
	}
	if len(r.References) > 0 {
		w.list(`,"refs":`)
		for i := range r.References {
			e := &r.References[i]
			w.item(i)
			w.text(`,"ref":`, e.Ref)
			w.text(`,"rank":`, string(e.Rank))
			w.terms(&e.Terms)
			w.text(`,"terms_as":`, string(e.TermsAs))
			w.flag(`,"mismatch":`, e.Mismatch)
			w.flag(`,"accepted":`, e.Accepted)
			w.flag(`,"foreign":`, e.Foreign)
			w.text(`,"owner":`, e.Owner)
			w.end()
		}
		w.b = append(w.b, ']')
	}
	if g := r.Progress; g != nil {
		w.object(`,"progress":`)
		w.text(`,"state":`, string(g.State))
		w.text(`,"action":`, g.Action)
		w.number(`,"seq":`, g.Sequence)
		w.flag(`,"lookup":`, g.FromLookup)
		w.time(`,"since":`, g.Since)
		w.end()
	}
	if len(r.Ledger) > 0 {
		w.list(`,"ledger":`)
		for i := range r.Ledger {
			l := &r.Ledger[i]
			w.item(i)
			w.text(`,"op":`, l.Operation)
			w.text(`,"kind":`, l.Kind)
			w.text(`,"ref":`, l.Ref)
			w.amount(l.Amount)
			w.text(`,"status":`, string(l.Status))
			w.text(`,"reason":`, l.Reason)
			w.flag(`,"whole":`, l.Whole)
			w.text(`,"external":`, l.External)
			w.end()
		}
		w.b = append(w.b, ']')
	}
	w.text(`,"code":`, r.Code)
	w.text(`,"message":`, r.Message)
}

func (w *writer) terms(t *Terms) {
	if t.IsZero() {
		return
	}
	w.object(`,"terms":`)
	w.text(`,"account":`, t.Account)
	w.amount(t.Amount)
	if len(t.Other) > 0 {
		w.object(`,"other":`)
		for _, k := range slices.Sorted(maps.Keys(t.Other)) {
			if !w.open {
				w.b = append(w.b, ',')
			}
			w.open = false
			w.b = append(appendText(w.b, k), ':')
			w.b = appendText(w.b, t.Other[k])
		}
		w.end()
	}
	w.end()
}

func (w *writer) amount(a Amount) {
	if a.IsZero() {
		return
	}
	if a.Value != (decimal.Decimal{}) {
		w.name(`,"amount":`)
		w.b = append(appendDecimal(append(w.b, '"'), a.Value), '"')
	}
	w.text(`,"unit":`, a.Unit)
}

// appendDecimal keeps coefficient and exponent: 19.90 does not become 19.9.
func appendDecimal(b []byte, d decimal.Decimal) []byte {
	exp := d.Exponent()
	if exp > 0 || exp < -64 {
		b = append(b, d.Coefficient().String()...)
		return strconv.AppendInt(append(b, 'e'), int64(exp), 10)
	}
	if d.NumDigits() > 18 {
		return append(b, d.StringFixed(-exp)...)
	}
	n := d.CoefficientInt64()
	if n < 0 {
		b, n = append(b, '-'), -n
	}
	digits := strconv.AppendInt(make([]byte, 0, 20), n, 10)
	places := int(-exp)
	if len(digits) > places {
		b = append(b, digits[:len(digits)-places]...)
		digits = digits[len(digits)-places:]
	} else {
		b = append(b, '0')
	}
	if places == 0 {
		return b
	}
	b = append(b, '.')
	for range places - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

// name appends the name of a member, which is written as it stands between two
// members, e.g. `,"id":`.
func (w *writer) name(n string) {
	if w.open {
		w.open, n = false, n[1:]
	}
	w.b = append(w.b, n...)
}

func (w *writer) object(name string) { w.name(name); w.b = append(w.b, '{'); w.open = true }
func (w *writer) list(name string)   { w.name(name); w.b = append(w.b, '[') }
func (w *writer) end()               { w.b = append(w.b, '}'); w.open = false }

func (w *writer) comma(i int) {
	if i > 0 {
		w.b = append(w.b, ',')
	}
}

func (w *writer) item(i int) { w.comma(i); w.b = append(w.b, '{'); w.open = true }

func (w *writer) text(name, s string) {
	if s != "" {
		w.name(name)
		w.b = appendText(w.b, s)
	}
}

func (w *writer) number(name string, n int64) {
	if n != 0 {
		w.name(name)
		w.b = strconv.AppendInt(w.b, n, 10)
	}
}

func (w *writer) flag(name string, set bool) {
	if set {
		w.name(name)
		w.b = append(w.b, "true"...)
	}
}

func (w *writer) time(name string, t time.Time) {
	if !t.IsZero() {
		w.name(name)
		w.b = strconv.AppendInt(w.b, t.UnixMicro(), 10)
	}
}

func appendText(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := plain(s); i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		if c >= ' ' {
			b = append(b, '\\', c)
		} else {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}

// plain counts bytes at the start of s, eight at a time, among which is no
// quote, backslash or control character.
func plain(s string) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := s[i : i+8]
		x := uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
			uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
		quote, back := x^('"'*ones), x^('\\'*ones)
		if ((x-' '*ones)&^x|(quote-ones)&^quote|(back-ones)&^back)&high != 0 {
			break
		}
	}
	return i
}
