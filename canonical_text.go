package settle

import "unicode/utf8"

// Classes of bytes inside a JSON string. Most bytes of most strings are plain,
// and one table look-up each is what the hot loop costs.
const (
	bytePlain   = iota // copied as it stands
	byteCapital        // the same, but a name with it is subject to case folding
	byteHigh           // part of a multi-byte rune
	byteStop           // quote, backslash or control character
)

var stringClass = func() (t [256]uint8) {
	for b := range t {
		switch {
		case b < 0x20 || b == '"' || b == '\\':
			t[b] = byteStop
		case b >= utf8.RuneSelf:
			t[b] = byteHigh
		case 'A' <= b && b <= 'Z':
			t[b] = byteCapital
		}
	}
	return t
}()

// run advances over the part of a string that needs no escape and reports its
// end in c.pos. Invalid UTF-8 is refused here: other systems replace it, so
// two different requests would become one (I3).
func (c *canonWriter) run() (plain bool, err *requestError) {
	plain = true
	for c.pos < len(c.src) {
		switch stringClass[c.src[c.pos]] {
		case bytePlain:
			c.pos++
		case byteCapital:
			plain = false
			c.pos++
		case byteHigh:
			plain = false
			r, n := utf8.DecodeRune(c.src[c.pos:])
			if r == utf8.RuneError && n == 1 {
				return false, &requestError{Reason: "invalid utf-8"}
			}
			c.pos += n
		default:
			return plain, nil
		}
	}
	return false, &requestError{Reason: "the document ends too early"}
}

// text writes the string at pos.
func (c *canonWriter) text() *requestError {
	c.pos++
	c.dst = append(c.dst, '"')
	for {
		start := c.pos
		if _, err := c.run(); err != nil {
			return err
		}
		c.dst = append(c.dst, c.src[start:c.pos]...)
		if c.src[c.pos] == '"' {
			c.pos++
			c.dst = append(c.dst, '"')
			return nil
		}
		r, err := c.escape()
		if err != nil {
			return err
		}
		c.dst = appendEscaped(c.dst, r)
	}
}

// memberName reads the name at pos and writes it. plain says that the name is
// ASCII without capitals.
func (c *canonWriter) memberName() (m canonMember, plain bool, err *requestError) {
	if !c.at('"') {
		return m, false, &requestError{Reason: "a member name is missing"}
	}
	c.pos++
	start := c.pos
	if plain, err = c.run(); err != nil {
		return m, false, err
	}
	if c.src[c.pos] == '"' {
		m.nameFrom, m.nameTo = uint32(start), uint32(c.pos)
		c.dst = append(c.dst, c.src[start-1:c.pos+1]...)
		c.pos++
		return m, plain, nil
	}
	// An escape: the unescaped name goes to the arena, for order, equality and
	// volatile paths are about what a name says, not how it is written.
	from := len(c.names)
	c.names = append(c.names, c.src[start:c.pos]...)
	for c.src[c.pos] != '"' {
		r, err := c.escape()
		if err != nil {
			return m, false, err
		}
		c.names = utf8.AppendRune(c.names, r)
		start = c.pos
		if _, err := c.run(); err != nil {
			return m, false, err
		}
		c.names = append(c.names, c.src[start:c.pos]...)
	}
	c.pos++
	m.nameFrom, m.nameTo = uint32(from)|arenaBit, uint32(len(c.names))
	c.dst = append(c.dst, '"')
	for _, r := range string(c.names[from:]) {
		c.dst = appendEscaped(c.dst, r)
	}
	c.dst = append(c.dst, '"')
	return m, false, nil
}

// escape reads the escape at pos. run stopped there, so a byte that is no
// backslash is a raw control character.
func (c *canonWriter) escape() (rune, *requestError) {
	if c.src[c.pos] != '\\' {
		return 0, &requestError{Reason: "a raw control character in a string"}
	}
	c.pos++
	if c.pos == len(c.src) {
		return 0, &requestError{Reason: "the document ends too early"}
	}
	b := c.src[c.pos]
	c.pos++
	switch b {
	case '"', '\\', '/':
		return rune(b), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
	default:
		return 0, &requestError{Reason: "an unknown escape"}
	}
	r, ok := c.hex4()
	if !ok {
		return 0, &requestError{Reason: "an unknown escape"}
	}
	if r < 0xd800 || r > 0xdfff {
		return r, nil
	}
	// A surrogate stands for a rune only with its other half. Alone it has no
	// UTF-8 form; decoders replace it, so different requests would become one.
	if r < 0xdc00 && c.at('\\') && c.pos+1 < len(c.src) && c.src[c.pos+1] == 'u' {
		c.pos += 2
		if low, ok := c.hex4(); ok && low >= 0xdc00 && low <= 0xdfff {
			return 0x10000 + (r-0xd800)<<10 + (low - 0xdc00), nil
		}
	}
	return 0, &requestError{Reason: "half a surrogate pair"}
}

func (c *canonWriter) hex4() (rune, bool) {
	if len(c.src)-c.pos < 4 {
		return 0, false
	}
	var r rune
	for _, b := range c.src[c.pos : c.pos+4] {
		switch {
		case isDigit(b):
			b -= '0'
		case 'a' <= b && b <= 'f':
			b -= 'a' - 10
		case 'A' <= b && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(b)
	}
	c.pos += 4
	return r, true
}

// appendEscaped appends one rune of a string in its only canonical spelling.
func appendEscaped(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if r < 0x20 {
		const hex = "0123456789abcdef"
		return append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
	}
	return utf8.AppendRune(dst, r)
}
