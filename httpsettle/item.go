package httpsettle

import (
	"errors"
	"strings"
)

// errItem is the one error of the structured-field parser. It quotes nothing: the value is
// somebody's key (I16).
var errItem = errors.New("httpsettle: not a structured-field string item")

// parseStringItem reads a structured-field Item whose value is a String (RFC 9651, section 4.2; the
// same text as RFC 8941). Parameters are checked for form and dropped: the Idempotency-Key draft
// defines none, and an Item may carry some.
func parseStringItem(s string) (string, error) {
	p := item{rest: strings.TrimLeft(s, " ")}
	v, ok := p.str()
	if !ok || !p.parameters() || strings.TrimLeft(p.rest, " ") != "" {
		return "", errItem
	}
	return v, nil
}

// item is what is left to parse of a field value.
type item struct{ rest string }

// take removes the longest prefix of bytes that satisfy keep.
func (p *item) take(keep func(c byte) bool) string {
	n := 0
	for n < len(p.rest) && keep(p.rest[n]) {
		n++
	}
	out := p.rest[:n]
	p.rest = p.rest[n:]
	return out
}

// eat removes c if it comes next.
func (p *item) eat(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// str parses a String (RFC 9651, section 4.2.5).
func (p *item) str() (string, bool) {
	if !p.eat('"') {
		return "", false
	}
	var b strings.Builder
	for p.rest != "" {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			return b.String(), true
		case c == '\\':
			if p.rest == "" || p.rest[0] != '"' && p.rest[0] != '\\' {
				return "", false
			}
			c = p.rest[0]
			p.rest = p.rest[1:]
		case c < 0x20 || c > 0x7e:
			return "", false
		}
		b.WriteByte(c)
	}
	return "", false
}

// parameters parses Parameters (RFC 9651, section 4.2.3.2) and forgets them.
func (p *item) parameters() bool {
	for p.eat(';') {
		p.take(func(c byte) bool { return c == ' ' })
		if p.rest == "" || !isLower(p.rest[0]) && p.rest[0] != '*' {
			return false
		}
		p.take(func(c byte) bool { return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 })
		if p.eat('=') && !p.bare() {
			return false
		}
	}
	return true
}

// bare parses a Bare Item of any type (RFC 9651, section 4.2.3.1) and forgets it.
func (p *item) bare() bool {
	if p.rest == "" {
		return false
	}
	switch c := p.rest[0]; {
	case c == '"':
		_, ok := p.str()
		return ok
	case c == '-' || isDigit(c):
		_, ok := p.number()
		return ok
	case c == '@': // a Date is an Integer behind an @
		p.eat('@')
		decimal, ok := p.number()
		return ok && !decimal
	case c == '?': // a Boolean
		p.eat('?')
		return p.eat('0') || p.eat('1')
	case c == ':': // a Byte Sequence; whether it decodes is nobody's business here
		p.eat(':')
		p.take(func(c byte) bool { return isAlpha(c) || isDigit(c) || strings.IndexByte("+/=", c) >= 0 })
		return p.eat(':')
	case c == '%': // a Display String
		p.eat('%')
		return p.display()
	case c == '*' || isAlpha(c): // a Token
		p.take(func(c byte) bool { return isTokenChar(c) || c == ':' || c == '/' })
		return true
	}
	return false
}

// number parses an Integer or a Decimal (RFC 9651, section 4.2.4).
func (p *item) number() (decimal, ok bool) {
	p.eat('-')
	whole := p.take(isDigit)
	if whole == "" || len(whole) > 15 {
		return false, false
	}
	if !p.eat('.') {
		return false, true
	}
	frac := p.take(isDigit)
	return true, len(whole) <= 12 && frac != "" && len(frac) <= 3
}

// display parses a Display String behind its percent sign (RFC 9651, section 4.2.10), except that
// it does not decode it.
func (p *item) display() bool {
	if !p.eat('"') {
		return false
	}
	for p.rest != "" {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			return true
		case c < 0x20 || c > 0x7e:
			return false
		case c == '%':
			if len(p.rest) < 2 || !isLowerHex(p.rest[0]) || !isLowerHex(p.rest[1]) {
				return false
			}
			p.rest = p.rest[2:]
		}
	}
	return false
}

func isDigit(c byte) bool    { return '0' <= c && c <= '9' }
func isLower(c byte) bool    { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool    { return isLower(c) || 'A' <= c && c <= 'Z' }
func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }

// isTokenChar reports whether c may stand in a token (RFC 9110, section 5.6.2).
func isTokenChar(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
