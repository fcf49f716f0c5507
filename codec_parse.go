package settle

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/shopspring/decimal"
)

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
		c := p.s[p.i]
		if c > ' ' || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
		p.i++
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
	for i := from + plain(p.s[from:]); i < len(p.s); i++ {
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
