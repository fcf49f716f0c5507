package settle

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"
)

// arrange sorts the members that were written from body on and refuses
// repeated names. plain says that every name is ASCII without capitals: such
// names are equal under case folding only when they are equal.
func (c *canonWriter) arrange(members []canonMember, body int, sorted, plain bool) *requestError {
	if !sorted {
		slices.SortFunc(members, func(a, b canonMember) int { return bytes.Compare(c.name(a), c.name(b)) })
		for i := 1; i < len(members); i++ {
			if bytes.Equal(c.name(members[i-1]), c.name(members[i])) {
				return c.repeated(members[i], "repeated member name")
			}
		}
	}
	if !plain {
		if err := c.foldedNames(members); err != nil {
			return err
		}
	}
	if sorted {
		return nil
	}
	c.scratch = c.scratch[:0]
	for _, m := range members {
		c.scratch = append(c.scratch, c.dst[m.textFrom:m.textTo]...)
	}
	copy(c.dst[body:], c.scratch)
	return nil
}

// foldedNames refuses names that encoding/json would decode into one field:
// {"amount":1,"Amount":2} is one amount for it, and which one depends on the
// order that the canonical form does not keep. members is sorted by its texts
// afterwards as it was before.
func (c *canonWriter) foldedNames(members []canonMember) *requestError {
	const reason = "member names equal but for case"
	if len(members) <= 12 {
		for i := range members {
			for j := range i {
				if bytes.EqualFold(c.name(members[i]), c.name(members[j])) {
					return c.repeated(members[i], reason)
				}
			}
		}
		return nil
	}
	// Pairs would be quadratic: sort the folded names instead. A folded name
	// is never longer than the name.
	type foldedName struct{ from, to, member uint32 }
	list := make([]foldedName, len(members))
	c.folded = c.folded[:0]
	for i, m := range members {
		from := len(c.folded)
		c.folded = appendFolded(c.folded, c.name(m))
		list[i] = foldedName{uint32(from), uint32(len(c.folded)), uint32(i)}
	}
	at := func(f foldedName) []byte { return c.folded[f.from:f.to] }
	slices.SortFunc(list, func(a, b foldedName) int { return bytes.Compare(at(a), at(b)) })
	for i := 1; i < len(list); i++ {
		if bytes.Equal(at(list[i-1]), at(list[i])) {
			return c.repeated(members[list[i].member], reason)
		}
	}
	return nil
}

// appendFolded appends name with every rune replaced by the smallest of its
// case-folding orbit, so two results are equal exactly when bytes.EqualFold
// holds, which is what encoding/json matches field names by.
func appendFolded(dst, name []byte) []byte {
	for i := 0; i < len(name); {
		b := name[i]
		if b < utf8.RuneSelf {
			if 'a' <= b && b <= 'z' {
				b -= 'a' - 'A'
			}
			dst = append(dst, b)
			i++
			continue
		}
		r, n := utf8.DecodeRune(name[i:])
		i += n
		for {
			s := unicode.SimpleFold(r)
			if s <= r { // wrapped round: s is the smallest
				r = s
				break
			}
			r = s
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

func (c *canonWriter) repeated(m canonMember, reason string) *requestError {
	c.path = append(c.path, canonStep{nameFrom: m.nameFrom, nameTo: m.nameTo, index: -1})
	return &requestError{Reason: reason}
}
