package settle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a volatile list. It is stored with every record and matched
// against every member, so it stays small.
const (
	maxVolatilePaths = 128
	maxVolatilePath  = 256 // bytes
)

// anySegment is the pattern segment that matches every member and element.
const anySegment = "*"

// pathSet is a set of path patterns in the form that is matched while a
// document is read. A pattern is a JSON Pointer; its segments match a member of
// that exact name (not of a name that differs in case: an unmatched path costs
// a mismatch, a path matched too much would cost I3), an array element of that
// index, or, for "*", anything.
//
// A pathSet is immutable. The zero value, and nil, match nothing.
type pathSet struct {
	root *pathNode
}

// pathNode is a node of the tree of patterns. Several can match one path ("*"
// beside a name), so the matcher carries a window of them.
type pathNode struct {
	segment string
	index   int // segment as an array index, or -1
	next    []*pathNode
	any     *pathNode
	leaf    bool // a pattern ends here
}

// newPathSet compiles patterns, which normalPaths has brought into order.
func newPathSet(patterns []string) (*pathSet, error) {
	if len(patterns) == 0 {
		return &pathSet{}, nil
	}
	root := &pathNode{index: -1}
	for _, p := range patterns {
		segments, err := splitPattern(p)
		if err != nil {
			return nil, err
		}
		at := root
		for _, s := range segments {
			at = at.child(s)
		}
		at.leaf = true
	}
	return &pathSet{root: root}, nil
}

func (n *pathNode) child(segment string) *pathNode {
	if segment == anySegment {
		if n.any == nil {
			n.any = &pathNode{segment: segment, index: -1}
		}
		return n.any
	}
	for _, c := range n.next {
		if c.segment == segment {
			return c
		}
	}
	c := &pathNode{segment: segment, index: -1}
	// Only the one spelling of an index counts: "01" is a member name.
	if i, err := strconv.Atoi(segment); err == nil && i >= 0 && strconv.Itoa(i) == segment {
		c.index = i
	}
	n.next = append(n.next, c)
	return c
}

// stepName appends to active the nodes that active[from:to] lead to over a
// member name. leaf says that a pattern ends there.
func stepName(active []*pathNode, from, to int, name []byte) (_ []*pathNode, leaf bool) {
	for i := from; i < to; i++ {
		n := active[i]
		for _, c := range n.next {
			if string(name) == c.segment {
				active, leaf = append(active, c), leaf || c.leaf
			}
		}
		if n.any != nil {
			active, leaf = append(active, n.any), leaf || n.any.leaf
		}
	}
	return active, leaf
}

// stepIndex is stepName for an array element.
func stepIndex(active []*pathNode, from, to, index int) (_ []*pathNode, leaf bool) {
	for i := from; i < to; i++ {
		n := active[i]
		for _, c := range n.next {
			if index == c.index {
				active, leaf = append(active, c), leaf || c.leaf
			}
		}
		if n.any != nil {
			active, leaf = append(active, n.any), leaf || n.any.leaf
		}
	}
	return active, leaf
}

// normalPaths returns a sorted copy without repetitions, nil when empty: the
// list is stored, and two configurations that say the same must store the same.
func normalPaths(patterns []string) ([]string, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	list := slices.Clone(patterns)
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > maxVolatilePaths {
		return nil, fmt.Errorf("volatile paths: more than %d", maxVolatilePaths)
	}
	return slices.Clip(list), nil
}

// splitPattern returns the unescaped segments of a pattern. The empty pointer
// is refused: it would leave nothing to compare, and every request would be a
// replay of every other.
func splitPattern(pattern string) ([]string, error) {
	bad := func(why string) ([]string, error) {
		// A pattern is configuration, not data: it may be shown.
		return nil, fmt.Errorf("volatile path %q: %s", pattern[:min(len(pattern), maxVolatilePath)], why)
	}
	switch {
	case pattern == "" || pattern[0] != '/':
		return bad("must be a json pointer that begins with a slash")
	case len(pattern) > maxVolatilePath:
		return bad("must not be longer than " + strconv.Itoa(maxVolatilePath) + " bytes")
	case !utf8.ValidString(pattern):
		return bad("must be valid utf-8")
	}
	segments := strings.Split(pattern[1:], "/")
	if len(segments) > maxCanonDepth {
		return bad("has too many segments")
	}
	for i, s := range segments {
		if !strings.Contains(s, "~") {
			continue
		}
		rest := strings.ReplaceAll(strings.ReplaceAll(s, "~0", ""), "~1", "")
		if strings.Contains(rest, "~") {
			return bad("has a tilde that is not ~0 or ~1")
		}
		segments[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return segments, nil
}
