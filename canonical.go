package settle

import (
	"bytes"
	"strconv"
	"sync"
)

// Limits of a document that has a canonical form. They are part of rule
// [HashRuleJSON1]: changing one changes what is accepted, so it needs a new
// rule word.
const (
	// maxCanonDepth bounds nesting. It is checked before the recursion, so a
	// hostile body of brackets costs neither stack nor time.
	maxCanonDepth = 128

	// maxNumberText bounds a number as written, maxNumberDigits its
	// significant digits, maxNumberExponent the exponent as written. The three
	// are chosen so that the normal form of an accepted number is accepted.
	maxNumberText     = 1024
	maxNumberDigits   = 800
	maxNumberExponent = 2000

	// The adjusted exponent (that of the first significant digit) spans what a
	// float64 can hold, subnormals included: every finite Go float encodes to
	// an accepted number, and 1e400, which other systems would read as
	// infinity, is refused.
	minAdjustedExponent = -324
	maxAdjustedExponent = 308

	// maxCanonInput keeps every offset inside 31 bits, see canonMember.
	maxCanonInput = 1 << 30

	// maxPointerText bounds a pointer in an error: a member name can be as
	// long as the body.
	maxPointerText = 256
)

// requestError says why a request has no fingerprint. It carries where and why
// but never a value, and wraps no foreign error: a marshaller's error text may
// quote the very data that I16 keeps out of logs.
type requestError struct {
	Path   string // JSON Pointer of the offending place, "" for the document
	Reason string // lower case, one clause
}

// Error quotes the pointer, since a member name may hold line breaks.
func (e *requestError) Error() string {
	if e.Path == "" {
		return "request: " + e.Reason
	}
	return "request: at " + strconv.Quote(e.Path) + ": " + e.Reason
}

// canonMember is one member of an object that is being written. 16 bytes, for
// a body may be little more than member names: the bookkeeping must stay a
// small multiple of the input.
type canonMember struct {
	nameFrom, nameTo uint32 // in src, or in the arena of unescaped names
	textFrom, textTo uint32 // `"name":value,` in dst; empty when volatile
}

// arenaBit marks a nameFrom that points into canonWriter.names.
const arenaBit = 1 << 31

// canonStep is one step of the path to the current place.
type canonStep struct {
	nameFrom, nameTo uint32
	index            int // array index, or -1 for a member
}

// canonWriter holds the working memory of one pass. The slices are stacks that
// nested objects share, so a pass allocates nothing once they have grown.
type canonWriter struct {
	src, dst []byte
	pos      int
	members  []canonMember
	names    []byte      // unescaped names of members that had escapes
	path     []canonStep // left as it is on error: it is the error's path
	active   []*pathNode // volatile patterns still alive, one window per level
	scratch  []byte      // sorted copy of an object's members
	folded   []byte      // case-folded names of a large object
}

var canonPool = sync.Pool{New: func() any { return new(canonWriter) }}

// release gives the memory back unless one huge body would pin it for ever.
func (c *canonWriter) release() {
	const keep = 1 << 16
	if cap(c.members) > keep/16 || cap(c.names) > keep || cap(c.scratch) > keep || cap(c.folded) > keep {
		return
	}
	clear(c.active[:cap(c.active)])
	*c = canonWriter{
		members: c.members[:0], names: c.names[:0], path: c.path[:0],
		active: c.active[:0], scratch: c.scratch[:0], folded: c.folded[:0],
	}
	canonPool.Put(c)
}

// appendCanonical appends the canonical form of the JSON document src to dst.
// Two documents have the same canonical form exactly when they mean the same
// (I3), which is what lets a hash of it bind a key to a request:
//
//   - members in the order of the bytes of their unescaped names, no white space;
//   - strings with the shortest escapes: \" and \\, \b \t \n \f \r, \u00xx for
//     the other control characters, everything else as UTF-8;
//   - numbers as an integer that does not end in 0, followed by e and the
//     exponent unless that is 0: 100 is 1e2, 19.90 is 199e-1, any zero is 0.
//     No number passes through a float or a big integer;
//   - members and elements whose path is volatile are left out.
//
// It works on the raw bytes, in one pass, because a parsed tree no longer
// shows a repeated member or digits that a float64 lost. Memory is linear in
// src; time is too, but for sorting and the (bounded) depth. What it refuses
// is refused inside volatile members as well: they are left out of the hash,
// not out of the document.
func appendCanonical(dst, src []byte, volatile *pathSet) ([]byte, error) {
	if len(src) > maxCanonInput || len(dst) > maxCanonInput {
		return dst, &requestError{Reason: "too long"}
	}
	c := canonPool.Get().(*canonWriter)
	defer c.release()
	c.src, c.dst = src, dst
	if volatile != nil && volatile.root != nil {
		c.active = append(c.active, volatile.root)
	}
	if err := c.document(); err != nil {
		err.Path = c.pointer()
		return dst, err
	}
	return c.dst, nil
}

func (c *canonWriter) document() *requestError {
	c.space()
	if c.pos == len(c.src) {
		return &requestError{Reason: "empty"}
	}
	if err := c.anyValue(0, len(c.active), 0); err != nil {
		return err
	}
	c.space()
	if c.pos != len(c.src) {
		return &requestError{Reason: "more data after the document"}
	}
	return nil
}

// anyValue writes the value at pos. active[from:to] are the volatile patterns
// that match the path so far.
func (c *canonWriter) anyValue(from, to, depth int) *requestError {
	if c.pos == len(c.src) {
		return &requestError{Reason: "the document ends too early"}
	}
	switch b := c.src[c.pos]; {
	case b == '"':
		return c.text()
	case b == '-' || isDigit(b):
		return c.number()
	case b == '{' || b == '[':
		if depth == maxCanonDepth {
			return &requestError{Reason: "nested too deeply"}
		}
		if b == '{' {
			return c.object(from, to, depth+1)
		}
		return c.array(from, to, depth+1)
	case b == 't':
		return c.word("true")
	case b == 'f':
		return c.word("false")
	case b == 'n':
		return c.word("null")
	default:
		return &requestError{Reason: "not json"}
	}
}

func (c *canonWriter) word(w string) *requestError {
	if len(c.src)-c.pos < len(w) || string(c.src[c.pos:c.pos+len(w)]) != w {
		return &requestError{Reason: "not json"}
	}
	c.pos += len(w)
	c.dst = append(c.dst, w...)
	return nil
}

func (c *canonWriter) array(from, to, depth int) *requestError {
	c.pos++
	c.dst = append(c.dst, '[')
	c.space()
	if c.at(']') {
		c.pos++
		c.dst = append(c.dst, ']')
		return nil
	}
	c.path = append(c.path, canonStep{})
	wrote := false
	for i := 0; ; i++ {
		c.path[len(c.path)-1].index = i
		start := len(c.dst)
		next, leaf := len(c.active), false
		if from != to {
			c.active, leaf = stepIndex(c.active, from, to, i)
		}
		c.space()
		if err := c.anyValue(next, len(c.active), depth); err != nil {
			return err
		}
		c.active = c.active[:next]
		if leaf {
			c.dst = c.dst[:start]
		} else {
			c.dst = append(c.dst, ',')
			wrote = true
		}
		more, err := c.moreThan(']')
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	c.path = c.path[:len(c.path)-1]
	c.closeWith(']', wrote)
	return nil
}

func (c *canonWriter) object(from, to, depth int) *requestError {
	c.pos++
	c.dst = append(c.dst, '{')
	c.space()
	if c.at('}') {
		c.pos++
		c.dst = append(c.dst, '}')
		return nil
	}
	base, arena, body := len(c.members), len(c.names), len(c.dst)
	sorted, plain := true, true
	for {
		c.space()
		start := len(c.dst)
		m, lower, err := c.memberName()
		if err != nil {
			return err
		}
		plain = plain && lower
		if n := len(c.members); sorted && n > base {
			sorted = bytes.Compare(c.name(c.members[n-1]), c.name(m)) < 0
		}
		c.path = append(c.path, canonStep{nameFrom: m.nameFrom, nameTo: m.nameTo, index: -1})
		next, leaf := len(c.active), false
		if from != to {
			c.active, leaf = stepName(c.active, from, to, c.name(m))
		}
		c.space()
		if !c.at(':') {
			return &requestError{Reason: "a colon is missing"}
		}
		c.pos++
		c.dst = append(c.dst, ':')
		c.space()
		// The member is pushed after its value, so the members of an object
		// stay together on the shared stack.
		if err := c.anyValue(next, len(c.active), depth); err != nil {
			return err
		}
		c.path = c.path[:len(c.path)-1]
		c.active = c.active[:next]
		if leaf {
			c.dst = c.dst[:start]
		} else {
			c.dst = append(c.dst, ',')
		}
		m.textFrom, m.textTo = uint32(start), uint32(len(c.dst))
		c.members = append(c.members, m)
		more, err := c.moreThan('}')
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if err := c.arrange(c.members[base:], body, sorted, plain); err != nil {
		return err
	}
	c.closeWith('}', len(c.dst) > body)
	c.members, c.names = c.members[:base], c.names[:arena]
	return nil
}

// closeWith ends an object or array; wrote says that a trailing comma stands
// where the bracket belongs.
func (c *canonWriter) closeWith(bracket byte, wrote bool) {
	if wrote {
		c.dst[len(c.dst)-1] = bracket
		return
	}
	c.dst = append(c.dst, bracket)
}

// moreThan consumes a comma (true) or the closing bracket (false).
func (c *canonWriter) moreThan(bracket byte) (bool, *requestError) {
	c.space()
	switch {
	case c.at(','):
		c.pos++
		return true, nil
	case c.at(bracket):
		c.pos++
		return false, nil
	case c.pos == len(c.src):
		return false, &requestError{Reason: "the document ends too early"}
	default:
		return false, &requestError{Reason: "a comma is missing"}
	}
}

func (c *canonWriter) at(b byte) bool { return c.pos < len(c.src) && c.src[c.pos] == b }

func (c *canonWriter) space() {
	for c.pos < len(c.src) {
		switch c.src[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// name returns the unescaped bytes of a member name.
func (c *canonWriter) name(m canonMember) []byte { return c.nameAt(m.nameFrom, m.nameTo) }

func (c *canonWriter) nameAt(from, to uint32) []byte {
	if from&arenaBit != 0 {
		return c.names[from&^arenaBit : to]
	}
	return c.src[from:to]
}
