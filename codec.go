package settle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/shopspring/decimal"
)

// ErrCorrupt: a stored record cannot be read. The text says where, never what
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
	w.time(`,"retry":`, r.RetryAt)
	w.flag(`,"wake":`, r.Wake)
	w.text(`,"consequence":`, string(r.Consequence))
	w.number(`,"hook_tries":`, int64(r.HookTries))
	w.text(`,"state":`, string(r.State))
	w.time(`,"updated":`, r.UpdatedAt)
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
			w.flag(`,"mismatch":`, e.Mismatch)
			w.flag(`,"accepted":`, e.Accepted)
			w.flag(`,"foreign":`, e.Foreign)
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
	for i := 0; i < len(s); i++ {
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

// parser reads JSON without reflection. Texts are parts of s, so that a record
// costs one allocation for all of them. It keeps the first error, after which
// every method returns at once.
type parser struct {
	s     string
	i     int
	first bool // directly after the opening of an object or list
	depth int
	err   error
}

func (p *parser) fail(what string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s at byte %d of %d", ErrCorrupt, what, p.i, len(p.s))
		p.i = len(p.s)
	}
}

// peek skips white space and returns the next byte, or 0 at the end.
func (p *parser) peek() byte {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; c {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return c
		}
	}
	return 0
}

func (p *parser) begin(open byte) {
	if p.peek() != open {
		p.fail("unexpected kind of value")
		return
	}
	if p.depth++; p.depth > 64 {
		p.fail("nested too deeply")
		return
	}
	p.i++
	p.first = true
}

// more reports whether another member or item follows before end.
func (p *parser) more(end byte) bool {
	if p.err != nil {
		return false
	}
	c := p.peek()
	first := p.first
	p.first = false
	switch {
	case c == end:
		p.i++
		p.depth--
		return false
	case first:
		return true
	case c == ',':
		p.i++
		return true
	}
	p.fail("broken structure")
	return false
}

// key reads a member's name and the colon after it.
func (p *parser) key() string {
	k := p.text()
	if p.peek() != ':' {
		p.fail("broken structure")
		return ""
	}
	p.i++
	return k
}

func (p *parser) text() string {
	if p.peek() != '"' {
		p.fail("unexpected kind of value")
		return ""
	}
	p.i++
	from := p.i
	for i := from; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			p.i = i + 1
			return p.s[from:i]
		case c == '\\':
			return p.escaped(from, i)
		case c < ' ':
			p.i = i
			p.fail("broken text")
			return ""
		}
	}
	p.fail("broken text")
	return ""
}

// escaped is text from the first escape, at i, on.
func (p *parser) escaped(from, i int) string {
	var b strings.Builder
	for i < len(p.s) {
		c := p.s[i]
		if c == '"' {
			b.WriteString(p.s[from:i])
			p.i = i + 1
			return b.String()
		}
		if c < ' ' {
			break
		}
		if c != '\\' {
			i++
			continue
		}
		b.WriteString(p.s[from:i])
		if i+1 >= len(p.s) {
			break
		}
		at := strings.IndexByte(`"\/bfnrt`, p.s[i+1])
		switch {
		case at >= 0:
			b.WriteByte("\"\\/\b\f\n\r\t"[at])
			i += 2
		case p.s[i+1] == 'u':
			r, ok := p.hex(i)
			if !ok {
				p.fail("broken text")
				return ""
			}
			i += 6
			if utf16.IsSurrogate(r) {
				if low, ok := p.hex(i); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
					r = utf16.DecodeRune(r, low)
					i += 6
				}
			}
			b.WriteRune(r)
		default:
			p.fail("broken text")
			return ""
		}
		from = i
	}
	p.fail("broken text")
	return ""
}

func (p *parser) hex(i int) (rune, bool) {
	if i+6 > len(p.s) || p.s[i] != '\\' || p.s[i+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(p.s[i+2:i+6], 16, 16)
	return rune(n), err == nil
}

func (p *parser) number() int64 {
	p.peek()
	from := p.i
	var n uint64
	neg := p.i < len(p.s) && p.s[p.i] == '-'
	if neg {
		p.i++
	}
	start := p.i
	for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
		n = n*10 + uint64(p.s[p.i]-'0')
		p.i++
	}
	if p.i == start || p.i < len(p.s) && strings.IndexByte(".eE", p.s[p.i]) >= 0 {
		p.fail("unexpected kind of value")
		return 0
	}
	if p.i-start > 18 { // may overflow
		v, err := strconv.ParseInt(p.s[from:p.i], 10, 64)
		if err != nil {
			p.fail("number out of range")
		}
		return v
	}
	if neg {
		return -int64(n)
	}
	return int64(n)
}

func (p *parser) integer() int {
	n := p.number()
	if int64(int(n)) != n {
		p.fail("number out of range")
	}
	return int(n)
}

func (p *parser) flag() bool {
	p.peek()
	switch rest := p.s[min(p.i, len(p.s)):]; {
	case strings.HasPrefix(rest, "true"):
		p.i += 4
		return true
	case strings.HasPrefix(rest, "false"):
		p.i += 5
	default:
		p.fail("unexpected kind of value")
	}
	return false
}

func (p *parser) time() time.Time { return time.UnixMicro(p.number()).UTC() }

// skip passes over a value of any kind: members of newer writers.
func (p *parser) skip() {
	switch c := p.peek(); c {
	case '{':
		p.begin('{')
		for p.more('}') {
			p.key()
			p.skip()
		}
	case '[':
		p.begin('[')
		for p.more(']') {
			p.skip()
		}
	case '"':
		p.text()
	default:
		from := p.i
		for p.i < len(p.s) && strings.IndexByte(",]} \t\r\n", p.s[p.i]) < 0 {
			p.i++
		}
		switch word := p.s[from:p.i]; word {
		case "true", "false", "null":
		default:
			if _, err := strconv.ParseFloat(word, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
				p.fail("broken structure")
			}
		}
	}
}

func (p *parser) decimal() decimal.Decimal {
	s := p.text()
	if p.err != nil {
		return decimal.Decimal{}
	}
	// The common case without the general parser: few digits, at most one point.
	var n int64
	digits, point := 0, -1
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9' && digits < 18:
			n = n*10 + int64(c-'0')
			digits++
		case c == '-' && i == 0:
		case c == '.' && point < 0 && digits > 0:
			point = digits
		default:
			digits = -1
		}
		if digits < 0 {
			break
		}
	}
	if digits > 0 && point != digits {
		if s[0] == '-' {
			n = -n
		}
		if point < 0 {
			point = digits
		}
		return decimal.New(n, int32(point-digits))
	}
	d, err := decimal.NewFromString(s)
	if err != nil {
		p.fail("broken amount") // the error would quote it
	}
	return d
}

func (p *parser) record(r *Record) {
	version := int64(0)
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "v":
			if version = p.number(); version != codecVersion {
				p.fail("unknown version " + strconv.FormatInt(version, 10))
			}
		case "id":
			r.ID = p.text()
		case "scope":
			r.Scope = p.text()
		case "kind":
			r.Kind = p.text()
		case "key":
			r.Key = p.text()
		case "subject":
			r.Subject = p.text()
		case "purpose":
			r.Purpose = p.text()
		case "gen":
			r.Generation = p.integer()
		case "replaces":
			r.Replaces = p.text()
		case "hold":
			r.Hold = p.text()
		case "undoes":
			p.undo(&r.Undoes)
		case "provider_key":
			r.ProviderKey = p.text()
		case "account":
			r.Account = p.text()
		case "fingerprint":
			p.fingerprint(&r.Fingerprint)
		case "terms":
			p.terms(&r.Terms)
		case "window":
			r.KeyWindow = time.Duration(p.number())
		case "before":
			r.SendBefore = p.time()
		case "approval":
			r.Approval = new(Approval)
			p.approval(r.Approval)
		case "created":
			r.CreatedAt = p.time()
		case "attempts":
			p.attempts(r)
		case "refs":
			p.references(r)
		case "progress":
			r.Progress = new(Progress)
			p.progress(r.Progress)
		case "ledger":
			p.ledger(r)
		case "code":
			r.Code = p.text()
		case "message":
			r.Message = p.text()
		case "withdrawn":
			r.Withdrawn = p.text()
		case "replaced_by":
			r.ReplacedBy = p.text()
		case "hold_free":
			r.HoldFree = p.flag()
		case "review":
			r.Review = new(Review)
			p.review(r.Review)
		case "resumed":
			r.ResumedAt = p.time()
		case "tries":
			r.Tries = p.integer()
		case "retry":
			r.RetryAt = p.time()
		case "wake":
			r.Wake = p.flag()
		case "consequence":
			r.Consequence = Consequence(p.text())
		case "hook_tries":
			r.HookTries = p.integer()
		case "state":
			r.State = State(p.text())
		case "updated":
			r.UpdatedAt = p.time()
		default:
			p.skip()
		}
	}
	p.end()
	if version == 0 {
		p.fail("no version")
	}
}

// end fails unless everything was read.
func (p *parser) end() {
	if p.err == nil && (p.peek() != 0 || p.i < len(p.s)) {
		p.fail("more than one value")
	}
}

func (p *parser) undo(u *Undo) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "op":
			u.Operation = p.text()
		case "ref":
			u.Ref = p.text()
		default:
			p.skip()
		}
	}
}

func (p *parser) fingerprint(f *Fingerprint) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "rule":
			f.Rule = p.text()
		case "volatile":
			p.begin('[')
			for p.more(']') {
				f.Volatile = append(f.Volatile, p.text())
			}
		case "sum":
			f.Sum = p.text()
		default:
			p.skip()
		}
	}
}

func (p *parser) terms(t *Terms) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "account":
			t.Account = p.text()
		case "amount":
			t.Amount.Value = p.decimal()
		case "unit":
			t.Amount.Unit = p.text()
		case "other":
			p.begin('{')
			for p.more('}') {
				if t.Other == nil {
					t.Other = make(map[string]string)
				}
				k := p.key()
				t.Other[k] = p.text()
			}
		default:
			p.skip()
		}
	}
}

func (p *parser) approval(a *Approval) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "by":
			a.By = p.text()
		case "at":
			a.At = p.time()
		case "until":
			a.Until = p.time()
		case "fingerprint":
			a.Fingerprint = p.text()
		case "note":
			a.Note = p.text()
		default:
			p.skip()
		}
	}
}

func (p *parser) attempts(r *Record) {
	p.begin('[')
	for p.more(']') {
		var a Attempt
		p.begin('{')
		for p.more('}') {
			switch p.key() {
			case "n":
				a.N = p.integer()
			case "start":
				a.Start = p.time()
			case "end":
				a.End = p.time()
			case "fate":
				a.Fate = Fate(p.text())
			case "grace":
				a.Grace = time.Duration(p.number())
			case "code":
				a.Code = p.text()
			default:
				p.skip()
			}
		}
		r.Attempts = append(r.Attempts, a)
	}
}

func (p *parser) references(r *Record) {
	p.begin('[')
	for p.more(']') {
		var e Reference
		p.begin('{')
		for p.more('}') {
			switch p.key() {
			case "ref":
				e.Ref = p.text()
			case "rank":
				e.Rank = Rank(p.text())
			case "terms":
				p.terms(&e.Terms)
			case "mismatch":
				e.Mismatch = p.flag()
			case "accepted":
				e.Accepted = p.flag()
			case "foreign":
				e.Foreign = p.flag()
			default:
				p.skip()
			}
		}
		r.References = append(r.References, e)
	}
}

func (p *parser) progress(g *Progress) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "state":
			g.State = State(p.text())
		case "action":
			g.Action = p.text()
		case "seq":
			g.Sequence = p.number()
		case "lookup":
			g.FromLookup = p.flag()
		case "since":
			g.Since = p.time()
		default:
			p.skip()
		}
	}
}

func (p *parser) ledger(r *Record) {
	p.begin('[')
	for p.more(']') {
		var l Posting
		p.begin('{')
		for p.more('}') {
			switch p.key() {
			case "op":
				l.Operation = p.text()
			case "kind":
				l.Kind = p.text()
			case "ref":
				l.Ref = p.text()
			case "amount":
				l.Amount.Value = p.decimal()
			case "unit":
				l.Amount.Unit = p.text()
			case "status":
				l.Status = PostingStatus(p.text())
			default:
				p.skip()
			}
		}
		r.Ledger = append(r.Ledger, l)
	}
}

func (p *parser) review(v *Review) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "reason":
			v.Reason = p.text()
		case "owner":
			v.Owner = p.text()
		case "since":
			v.Since = p.time()
		case "deadline":
			v.Deadline = p.time()
		case "overdue":
			v.Overdue = p.flag()
		default:
			p.skip()
		}
	}
}
