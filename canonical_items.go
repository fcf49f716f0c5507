package settle

import (
	"bytes"
	"encoding/json"
)

// canonItems iterates over the members or elements of a canonical object or
// array. It trusts its text: only appendCanonical makes it.
type canonItems struct {
	text []byte
	pos  int
	name []byte // unescaped
	item []byte
}

// next moves to the next item, with its name when the text is an object.
func (c *canonItems) next(named bool) bool {
	switch c.text[c.pos] {
	case '}', ']':
		c.name, c.item = nil, nil
		return false
	case ',':
		c.pos++
	}
	if named {
		end := canonEnd(c.text, c.pos)
		c.name = unquoteName(c.text[c.pos:end])
		c.pos = end + 1 // the colon
	}
	end := canonEnd(c.text, c.pos)
	c.item = c.text[c.pos:end]
	c.pos = end
	return true
}

// unquoteName returns what a quoted name says.
func unquoteName(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return inner
	}
	return []byte(s)
}

// canonEnd returns the end of the value that begins at i.
func canonEnd(text []byte, i int) int {
	depth := 0
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
			if depth < 0 {
				return i
			}
		case ',', ':':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}
