package settle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// HashRuleJSON1 is the word of the one rule there is: SHA-256 over the
// canonical JSON of the request without its volatile members. With a key
// (Options.FingerprintKeys) it is HMAC-SHA-256 over the same, and "+hmac:" and
// the key's id follow the word. A rule never
// changes under its word; an improvement gets a word of its own, and the old
// one stays for the records that name it.
const HashRuleJSON1 = "json-1"

// Fingerprint binds an operation to what was asked (I3). It is stored with the
// record, together with the rule that made it: a repeat is always judged by the
// rule of its record, never by today's configuration, so changing the library
// or the list of volatile paths turns no old replay into a mismatch and no old
// mismatch into a replay.
//
// The zero value is no fingerprint; a tombstone has none. Two fingerprints of
// different rules or volatile lists say nothing about each other, so comparing
// them with each other is not meaningful; compare a request with a fingerprint.
//
// What counts as the same request:
//
//   - structs, maps and raw JSON follow one rule, for all of them are judged by
//     the JSON they encode to: member order, white space, string escapes and the
//     spelling of numbers never matter, everything else does;
//   - a decimal.Decimal is the exact text that it encodes to. Strings are exact,
//     so "10.00" is not "10"; as JSON numbers the two are equal;
//   - a time.Time is its RFC 3339 text: one instant in two zones, or with other
//     fractional digits, is two values. Store times in UTC and in one precision,
//     or tag them volatile;
//   - a json.RawMessage, a json.Marshaler and an encoding.TextMarshaler are
//     whatever JSON they give;
//   - a nil slice or map is null, which differs from an empty one and from an
//     absent member;
//   - strings are compared as they are, with no Unicode normalisation.
//
// An optional field that is added to a request type later must be left out when
// unset (omitempty or omitzero): then every hash made before stays true. One
// that encodes to null, 0 or "" changes them all, and repeats of operations in
// flight are refused as mismatches.
type Fingerprint struct {
	// Rule is the version word, see [HashRuleJSON1].
	Rule string `json:"rule,omitempty"`
	// Volatile holds the path patterns that were left out, sorted, each once:
	// JSON Pointers in which the segment * matches every member and element.
	Volatile []string `json:"volatile,omitempty"`
	// Sum is the SHA-256 or HMAC-SHA-256 in lower-case hex.
	Sum string `json:"sum,omitempty"`
}

// IsZero reports whether f is no fingerprint.
func (f Fingerprint) IsZero() bool { return f.Rule == "" && f.Sum == "" && len(f.Volatile) == 0 }

// hashRule is a compiled rule. It is immutable and safe for concurrent use.
type hashRule struct {
	volatile []string
	paths    *pathSet
	keys     fingerprintKeys // of the engine
	key      *FingerprintKey // nil: not keyed
}

// under returns h with keys: the first makes fingerprints, all verify.
func (h *hashRule) under(keys fingerprintKeys) *hashRule {
	out := *h
	out.keys, out.key = keys, keys.primary()
	return &out
}

// newHashRule compiles the current rule with a list of volatile paths, which
// it copies, sorts and deduplicates.
func newHashRule(volatile []string) (*hashRule, error) {
	list, err := normalPaths(volatile)
	if err != nil {
		return nil, err
	}
	paths, err := newPathSet(list)
	if err != nil {
		return nil, err
	}
	return &hashRule{volatile: list, paths: paths}, nil
}

// newFingerprint is newHashRule and sum in one, for a rule that is used once.
func newFingerprint(request []byte, volatile []string) (Fingerprint, error) {
	h, err := newHashRule(volatile)
	if err != nil {
		return Fingerprint{}, err
	}
	return h.sum(request)
}

// each fingerprints an encoded request under every key that verifies, or without one if there is none.
func (h *hashRule) each(request []byte) (out []Fingerprint) {
	for i := range max(1, len(h.keys)) {
		as := *h
		if len(h.keys) > 0 {
			as.key = &h.keys[i]
		}
		if f, err := as.sum(request); err == nil {
			out = append(out, f)
		}
	}
	return out
}

// canonBuffers recycles the canonical text, which nobody sees.
var canonBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledBuffer keeps one large request from pinning its memory for ever.
const maxPooledBuffer = 1 << 16

// sum fingerprints an encoded request. The error is a *requestError.
func (h *hashRule) sum(request []byte) (Fingerprint, error) {
	sum, err := h.hexSum(request)
	if err != nil {
		return Fingerprint{}, err
	}
	// The list is copied: a caller that edits its fingerprint must not edit
	// those of all others.
	return Fingerprint{Rule: h.key.rule(HashRuleJSON1), Volatile: slices.Clone(h.volatile), Sum: string(sum[:])}, nil
}

func (h *hashRule) hexSum(request []byte) (out [2 * sha256.Size]byte, err error) {
	buf := canonBuffers.Get().(*[]byte)
	text, err := appendCanonical((*buf)[:0], request, h.paths)
	if err != nil {
		canonBuffers.Put(buf)
		return out, err
	}
	sum := h.key.sum(text)
	if cap(text) <= maxPooledBuffer {
		*buf = text
		canonBuffers.Put(buf)
	}
	hex.Encode(out[:], sum[:])
	return out, nil
}

// made reports whether f was made by this very rule.
func (h *hashRule) made(f Fingerprint) bool {
	return f.Rule == h.key.rule(HashRuleJSON1) && slices.Equal(f.Volatile, h.volatile)
}

// covers is f.coversUnder(request) without compiling f's rule again when it is this
// one, as it nearly always is: a replay costs a read, not a compilation.
func (h *hashRule) covers(f Fingerprint, request []byte) (bool, error) {
	if !h.made(f) {
		return f.coversUnder(request, h.keys)
	}
	sum, err := h.hexSum(request)
	return err == nil && f.Sum == string(sum[:]), err
}

// covers is coversUnder without keys.
func (f Fingerprint) covers(request []byte) (bool, error) { return f.coversUnder(request, nil) }

// coversUnder reports whether request is what f was made of, judged by f's own rule
// and volatile list (I3, IC-66). An error says that it cannot be told, which
// must never be taken for a match: one that matches ErrSealed, that the fingerprint's key is not among keys.
func (f Fingerprint) coversUnder(request []byte, keys fingerprintKeys) (bool, error) {
	h, err := f.compiled(keys)
	if err != nil {
		return false, err
	}
	sum, err := h.hexSum(request)
	return err == nil && f.Sum == string(sum[:]), err
}

// compiled returns the rule that f was made by.
func (f Fingerprint) compiled(keys fingerprintKeys) (*hashRule, error) {
	base, key, err := keys.of(f.Rule)
	switch {
	case f.IsZero():
		return nil, errors.New("fingerprint: none stored")
	case base != HashRuleJSON1:
		return nil, fmt.Errorf("fingerprint: unknown rule %q", f.Rule[:min(len(f.Rule), 32)])
	case err != nil:
		return nil, err
	}
	h, err := newHashRule(f.Volatile)
	if err != nil {
		return nil, err
	}
	h.keys, h.key = keys, key
	return h, nil
}

// maxDifferences bounds what a mismatch reports.
const maxDifferences = 16

// differingFields names the members in which given differs from stored, as
// JSON Pointers, sorted; never a value (I3, I16). Volatile members are left
// out, by f's list. Objects and arrays are followed as deep as both sides have
// them; array elements are compared by index, so an inserted element makes all
// later ones differ. Of more than maxDifferences the last entry is "…".
//
// A pointer is for people: a long one is cut, control characters are replaced.
// The result is nil when nothing differs and when it cannot be told, as when
// retention has removed the stored request (I14).
func differingFields(f Fingerprint, stored, given []byte) []string {
	h, err := newHashRule(f.Volatile) // the key does not matter here
	if base, _, _ := strings.Cut(f.Rule, keyedRule); err != nil || base != HashRuleJSON1 {
		return nil
	}
	// Canonical texts are compared, not trees: members come in one order and
	// equal values are equal bytes, so it is a merge of two sorted lists.
	a, err := appendCanonical(nil, stored, h.paths)
	if err != nil {
		return nil
	}
	b, err := appendCanonical(nil, given, h.paths)
	if err != nil {
		return nil
	}
	var d fieldDiff
	if h.paths.root != nil {
		d.active = append(d.active, h.paths.root)
	}
	d.compare(a, b, 0, len(d.active))
	more := len(d.found) > maxDifferences
	if more {
		d.found = d.found[:maxDifferences-1]
	}
	slices.Sort(d.found)
	if more {
		d.found = append(d.found, "…")
	}
	return d.found
}

// fieldDiff walks two canonical texts in step.
type fieldDiff struct {
	found  []string
	path   []byte
	active []*pathNode // as in canonWriter, to know the indexes of kept elements
}

func (d *fieldDiff) full() bool { return len(d.found) > maxDifferences }

func (d *fieldDiff) add() {
	if !d.full() {
		d.found = append(d.found, pointerText(d.path))
	}
}

// compare reports the differences of two canonical values.
func (d *fieldDiff) compare(a, b []byte, from, to int) {
	switch {
	case d.full() || bytes.Equal(a, b):
	case a[0] == '{' && b[0] == '{':
		d.objects(a, b, from, to)
	case a[0] == '[' && b[0] == '[':
		d.arrays(a, b, from, to)
	default:
		d.add()
	}
}

func (d *fieldDiff) objects(a, b []byte, from, to int) {
	x, y := canonItems{text: a, pos: 1}, canonItems{text: b, pos: 1}
	xok, yok := x.next(true), y.next(true)
	for (xok || yok) && !d.full() {
		var order int
		switch {
		case !yok:
			order = -1
		case !xok:
			order = 1
		default:
			order = bytes.Compare(x.name, y.name)
		}
		name := x.name
		if order > 0 {
			name = y.name
		}
		top, next := len(d.path), len(d.active)
		d.path = appendSegment(d.path, name)
		if order == 0 {
			d.active, _ = stepName(d.active, from, to, name)
			d.compare(x.item, y.item, next, len(d.active))
		} else {
			d.add()
		}
		d.path, d.active = d.path[:top], d.active[:next]
		if order <= 0 {
			xok = x.next(true)
		}
		if order >= 0 {
			yok = y.next(true)
		}
	}
}

func (d *fieldDiff) arrays(a, b []byte, from, to int) {
	x, y := canonItems{text: a, pos: 1}, canonItems{text: b, pos: 1}
	xok, yok := x.next(false), y.next(false)
	for index := 0; (xok || yok) && !d.full(); index++ {
		top, next := len(d.path), len(d.active)
		var leaf bool
		d.active, leaf = stepIndex(d.active, from, to, index)
		if leaf {
			// Left out on both sides: the texts have no element for it.
			d.active = d.active[:next]
			continue
		}
		d.path = append(d.path, '/')
		d.path = fmt.Append(d.path, index)
		if xok && yok {
			d.compare(x.item, y.item, next, len(d.active))
		} else {
			d.add()
		}
		d.path, d.active = d.path[:top], d.active[:next]
		xok, yok = x.next(false), y.next(false)
	}
}
