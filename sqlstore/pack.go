package sqlstore

import (
	"slices"
	"strconv"
)

// What PostgreSQL keeps of a record and an entry is the JSON of settle.EncodeRecord and
// settle.EncodeEntry with the words below replaced by codes: of an outcome's log, most would be names of members.
// JSON has no control characters, so text without codes, as version 1 of the schema kept it, is
// read by the same function, and what cannot be read is no JSON afterwards.
//
// A code stands for its word for ever. New words go to the end, and a reader that does not know them
// refuses the record as damaged.
var packWords = [...]string{
	// The first have a code of one byte.
	`{"v":1,"attempts":[{"n":1,"start":`,
	`,"fate":"applied","grace":`,
	`,"end":`,
	`000000000`,
	`}],"refs":[{"ref":"`,
	`","rank":"succeeded","terms":{"amount":"`,
	`},"terms_as":"succeeded"}]`,
	`","unit":"`,
	`{"v":1,"provider_key":"`,
	`","fingerprint":{"rule":"json-1","sum":"`,
	`"},"terms":{"amount":"`,
	`"},"window":`,
	`{"to":"submitting","source":"caller","attempt":1,"disposition":"control","note":"attempt"}`,
	`{"from":"submitting","to":"succeeded","fact":"applied","source":"reply","attempt":1,"disposition":"applied","ref":"`,
	`"},{"ref":"`,
	`},{"n":`,
	`,"start":`,
	`,"grace":`,
	`,"fate":"`,
	`","rank":"`,
	`,"source":"`,
	`,"disposition":"`,
	`,"attempt":`,
	// The others one of two.
	`{"from":"`, `","to":"`, `","fact":"`, `","source":"`, `","ref":"`, `","code":"`, `","actor":"`, `","rule":"`, `","note":"`, `,"alarms":["`,
	`"submitting"`, `"succeeded"`, `"unknown"`, `"failed"`, `"review"`, `"created"`, `"canceled"`, `"pending"`, `"action_required"`,
	`applied"`, `not_applied"`, `not_sent"`, `no_answer"`, `inconclusive"`, `superseded"`, `control"`, `caller"`, `worker"`, `lookup"`, `person"`, `event"`, `reply"`,
	`"terms":{"account":"`, `"terms":{"amount":"`, `"other":{"`, `},"terms_as":"`, `"mismatch":true`, `"accepted":true`, `"foreign":true`,
	`"fingerprint":{"`, `"volatile":["`, `"sum":"`, `"window":86400`, `"before":`, `"approval":{"by":"`, `"until":`, `"gen":`, `"replaces":"`, `"hold":"`,
	`"undoes":{"op":"`, `"whole":true`, `"progress":{"state":"`, `"action":"`, `"lookup":true`, `"since":`, `"ledger":[{"op":"`, `"kind":"`, `"amount":"`,
	`"status":"`, `"reason":"`, `"external":"`, `,"message":"`, `"withdrawn":"`, `"replaced_by":"`, `"hold_free":true`, `"review":{"reason":"`, `"owner":"`,
	`"deadline":`, `"overdue":true`, `,"resumed":`, `,"tries":`, `,"waits":`, `,"retry":`, `,"wake":true`, `,"consequence":"`, `,"hook_tries":`, `,"feed":{"`,
	`"done":`, `"last":`, `,"pruned":`, `,"closed":true`, `/minor"`, `/major"`, `"}]`, `"}`, `}}`,
}

const (
	packTwo  = 0x1f // and a byte: a word without a code of its own
	packByte = 0x1e // and a byte: that byte, which JSON does not have
	packHex  = 0x1d // a count, and so many bytes: twice as many lower-case hexadecimal digits
	packUUID = 0x1c // and 16 bytes: a UUID in lower case, as settle writes ids
	packTime = 0x1b // and 7 bytes, the highest first: a number of 16 digits, as instants are
	packOnes = 23   // words with a code of their own
	hexRun   = 16   // bytes, from which on digits are packed
)

// packOnesCodes leaves out the control characters that JSON takes for white space.
var packOnesCodes = [packOnes]byte{
	0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x0b, 0x0c, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a,
}

const hexDigit = "0123456789abcdef"

// packer has the words in the two orders in which they are looked up.
type packer struct {
	by [256][]packed // by their first byte, the longest first
	of [32]string    // by their code of one byte, "" for none
}

type packed struct {
	word string
	code []byte
}

func newPacker() *packer {
	k := &packer{}
	for i, word := range packWords {
		p := packed{word, []byte{packTwo, byte(0x20 + i - packOnes)}}
		if i < packOnes {
			p.code = packOnesCodes[i : i+1]
			k.of[p.code[0]] = word
		}
		k.by[word[0]] = append(k.by[word[0]], p)
	}
	for _, list := range k.by {
		slices.SortStableFunc(list, func(a, b packed) int { return len(b.word) - len(a.word) })
	}
	return k
}

// pack returns text with codes for words.
func (k *packer) pack(text []byte) []byte {
	out := make([]byte, 0, len(text)/2+32)
next:
	for i := 0; i < len(text); {
		c := text[i]
		for _, p := range k.by[c] {
			if len(text)-i >= len(p.word) && string(text[i:i+len(p.word)]) == p.word {
				out = append(out, p.code...)
				i += len(p.word)
				continue next
			}
		}
		if c < ' ' {
			out = append(out, packByte, c)
			i++
			continue
		}
		if len(text)-i >= 36 && text[i+8] == '-' {
			if id, ok := uuidOf(text[i : i+36]); ok {
				out = append(append(out, packUUID), id[:]...)
				i += 36
				continue
			}
		}
		digits := hexDigits(text[i:])
		if n, ok := sixteen(text[i:min(i+digits, len(text))]); ok {
			out = append(out, packTime, byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
			i += 16
			continue
		}
		if n := digits / 2; n >= hexRun {
			out = append(out, packHex, byte(n))
			for range n {
				out = append(out, unhex(text[i])<<4|unhex(text[i+1]))
				i += 2
			}
			continue
		}
		out = append(out, c)
		i++
	}
	return out
}

// unpack appends to out what pack made packed of.
func (k *packer) unpack(out, packed []byte) []byte {
	from := 0
	for i := 0; i < len(packed); i++ {
		c := packed[i]
		if c >= ' ' {
			continue
		}
		out = append(out, packed[from:i]...)
		from = i + 1
		switch more := packed[i+1:]; {
		case k.of[c] != "":
			out = append(out, k.of[c]...)
			continue
		case c == packTwo && len(more) > 0 && more[0] >= 0x20 && int(more[0])-0x20+packOnes < len(packWords):
			out = append(out, packWords[int(more[0])-0x20+packOnes]...)
			i++
		case c == packByte && len(more) > 0:
			out = append(out, more[0])
			i++
		case c == packHex && len(more) > 0 && len(more) > int(more[0]):
			for _, b := range more[1 : 1+int(more[0])] {
				out = append(out, hexDigit[b>>4], hexDigit[b&15])
			}
			i += 1 + int(more[0])
		case c == packTime && len(more) >= 7:
			n := uint64(0)
			for _, b := range more[:7] {
				n = n<<8 | uint64(b)
			}
			out = strconv.AppendUint(out, n, 10)
			i += 7
		case c == packUUID && len(more) >= 16:
			out = appendUUID(out, more[:16])
			i += 16
		default:
			return append(out, c) // damaged: no JSON
		}
		from = i + 1
	}
	return append(out, packed[from:]...)
}

// hexDigits counts those at the start of text that pack may take at once.
func hexDigits(text []byte) int {
	n := 0
	for n < len(text) && n < 2*255 && (text[n] >= '0' && text[n] <= '9' || text[n] >= 'a' && text[n] <= 'f') {
		n++
	}
	return n
}

// sixteen is the number that text is, if it is one of sixteen digits.
func sixteen(text []byte) (n uint64, ok bool) {
	if len(text) != 16 || text[0] == '0' {
		return 0, false
	}
	for _, c := range text {
		if c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

// uuidOf is the number that text writes as UUIDs are written in lower case, if it does.
func uuidOf[T string | []byte](text T) (id [16]byte, ok bool) {
	if len(text) != 36 {
		return id, false
	}
	n := 0
	for i := 0; i < 36; i++ {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if text[i] != '-' {
				return id, false
			}
			continue
		}
		c := text[i]
		if c < '0' || c > '9' && c < 'a' || c > 'f' {
			return id, false
		}
		id[n/2] = id[n/2]<<4 | unhex(c)
		n++
	}
	return id, true
}

func appendUUID(out, id []byte) []byte {
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out = append(out, '-')
		}
		out = append(out, hexDigit[b>>4], hexDigit[b&15])
	}
	return out
}

// shortID is how tokens and write ids are kept, which are compared and never ordered: a UUID as its 16 bytes, other
// text as it is, with a zero byte after what else could be taken for one or the other.
func shortID(s string) []byte {
	if id, ok := uuidOf(s); ok {
		return id[:]
	}
	if len(s) == 16 || len(s) > 16 && s[len(s)-1] == 0 {
		return append([]byte(s), 0)
	}
	return []byte(s)
}

// text is the token or write id that is stored as b.
func (d *Dialect) text(b []byte) string {
	switch {
	case !d.mark.short:
	case len(b) == 16:
		return string(appendUUID(make([]byte, 0, 36), b))
	case len(b) > 16 && b[len(b)-1] == 0:
		return string(b[:len(b)-1])
	}
	return string(b)
}
