package settle

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// pointer is the JSON Pointer of the current path.
func (c *canonWriter) pointer() string {
	var p []byte
	for _, s := range c.path {
		if s.index >= 0 {
			p = append(p, '/')
			p = strconv.AppendInt(p, int64(s.index), 10)
		} else {
			p = appendSegment(p, c.nameAt(s.nameFrom, s.nameTo))
		}
		if len(p) > maxPointerText {
			break
		}
	}
	return pointerText(p)
}

// appendSegment appends one JSON Pointer segment (RFC 6901). Of a name longer
// than any pointer shown it takes only what will be cut anyway.
func appendSegment(p, name []byte) []byte {
	p = append(p, '/')
	for _, b := range name[:min(len(name), maxPointerText+utf8.UTFMax)] {
		switch b {
		case '~':
			p = append(p, '~', '0')
		case '/':
			p = append(p, '~', '1')
		default:
			p = append(p, b)
		}
	}
	return p
}

// pointerText makes a pointer fit for a message: cut to maxPointerText bytes,
// control and format characters shown as U+FFFD so that a hostile name cannot
// forge a log line.
func pointerText(p []byte) string {
	const ellipsis = "…"
	if len(p) > maxPointerText {
		cut := maxPointerText - len(ellipsis)
		for cut > 0 && !utf8.RuneStart(p[cut]) {
			cut--
		}
		p = append(p[:cut:cut], ellipsis...)
	}
	return string(bytes.Map(func(r rune) rune {
		if isControl(r) {
			return utf8.RuneError
		}
		return r
	}, p))
}
