package settle

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// volatileTags returns the path patterns of the fields of t that are tagged
// `settle:"volatile"`: what an adapter needs but identity must not see, such as
// a credential that is minted anew (IC-02), an expiry (IC-11) or free text
// (IC-66). The names are those encoding/json writes, so its rules for tags,
// embedding and shadowing are followed: a tag on a field that is shadowed, and
// so never encoded, must not free the field that shadows it.
//
// Slices, arrays and maps contribute the segment *. A tag on an embedded struct
// holds for all its fields. Interfaces are not looked into, as their types are
// not known here.
//
// It refuses what would hold for only part of a request: a tag in a recursive
// type (its paths have no end), a tag in a struct that encodes itself (its
// members need not be its fields), a tag on a field that JSON calls *. The
// volatile paths of such types are named in the options instead.
func volatileTags(t reflect.Type) ([]string, error) {
	w := tagWalk{done: map[reflect.Type][]string{}, open: map[reflect.Type]bool{}, cut: map[reflect.Type]bool{}}
	paths, err := w.below(t)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if p == "" {
			return nil, errors.New("volatile tag: the whole request cannot be volatile")
		}
		if _, err := splitPattern(p); err != nil {
			return nil, err
		}
	}
	return normalPaths(paths)
}

// tagWalk remembers finished types, so that shared ones cost one visit, and
// open ones, so that recursion ends.
type tagWalk struct {
	done map[reflect.Type][]string
	open map[reflect.Type]bool
	cut  map[reflect.Type]bool // open types that were met again inside themselves
}

// below returns the patterns inside a value of type t, relative to it.
func (w *tagWalk) below(t reflect.Type) ([]string, error) {
	if t == nil {
		return nil, nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.guarded(t, func() ([]string, error) { return w.below(t.Elem()) })
	case reflect.Slice, reflect.Array, reflect.Map:
		return w.guarded(t, func() ([]string, error) {
			if selfEncoded(t) {
				return nil, nil
			}
			return prefixed("/"+anySegment, t.Elem(), w)
		})
	case reflect.Struct:
		return w.guarded(t, func() ([]string, error) { return w.fields(t) })
	}
	return nil, nil
}

func prefixed(prefix string, elem reflect.Type, w *tagWalk) ([]string, error) {
	inner, err := w.below(elem)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(inner))
	for _, p := range inner {
		out = append(out, prefix+p)
	}
	return out, nil
}

// guarded walks t once. A type that is met inside itself contributes nothing
// there; if it turns out to have patterns, the cut was a loss and the type is
// refused. If it has none, neither has anything inside it, so the results
// remembered for inner types are right although they were cut short.
func (w *tagWalk) guarded(t reflect.Type, walk func() ([]string, error)) ([]string, error) {
	if paths, ok := w.done[t]; ok {
		return paths, nil
	}
	if w.open[t] {
		w.cut[t] = true
		return nil, nil
	}
	w.open[t] = true
	paths, err := walk()
	delete(w.open, t)
	if err != nil {
		return nil, err
	}
	if w.cut[t] && len(paths) > 0 {
		return nil, fmt.Errorf("volatile tag: %s is recursive: name its volatile paths in the options", t)
	}
	if len(paths) > maxVolatilePaths {
		return nil, fmt.Errorf("volatile tag: %s has more than %d volatile paths", t, maxVolatilePaths)
	}
	w.done[t] = paths
	return paths, nil
}

// taggedField is a candidate for a member of a struct's JSON object.
type taggedField struct {
	name     string
	named    bool // by a json tag
	depth    int  // of embedding
	volatile bool
	typ      reflect.Type
	owner    reflect.Type
}

// fields returns the patterns of a struct.
func (w *tagWalk) fields(t reflect.Type) ([]string, error) {
	if selfEncoded(t) {
		return nil, refuseTags(t)
	}
	var all []taggedField
	if err := collectFields(t, 0, false, map[reflect.Type]bool{}, &all); err != nil {
		return nil, err
	}
	var paths []string
	for _, f := range dominantFields(all) {
		segment := string(appendSegmentWhole(nil, f.name))
		if f.volatile {
			if f.name == anySegment {
				return nil, fmt.Errorf("volatile tag: a field of %s is called *, which would match every member", f.owner)
			}
			paths = append(paths, segment)
			continue
		}
		inner, err := prefixed(segment, f.typ, w)
		if err != nil {
			return nil, err
		}
		if f.name == anySegment && len(inner) > 0 {
			return nil, fmt.Errorf("volatile tag: a field of %s is called *, which would match every member", f.owner)
		}
		paths = append(paths, inner...)
	}
	return paths, nil
}

// refuseTags refuses settle tags on the fields of a type that encodes itself.
// The usual way into this is an embedded time.Time, whose MarshalJSON is
// promoted: the struct then encodes as a time and its other fields are lost.
func refuseTags(t reflect.Type) error {
	for i := range t.NumField() {
		if _, ok := t.Field(i).Tag.Lookup("settle"); ok {
			return fmt.Errorf("volatile tag: %s encodes itself: name its volatile paths in the options", t)
		}
	}
	return nil
}

// collectFields lists the fields of t and of what it embeds. chain holds the
// embedded types that led here: encoding/json ignores one inside itself.
func collectFields(t reflect.Type, depth int, inherited bool, chain map[reflect.Type]bool, out *[]taggedField) error {
	if chain[t] {
		return nil
	}
	chain[t] = true
	defer delete(chain, t)
	for i := range t.NumField() {
		f := t.Field(i)
		volatile, err := volatileTag(t, f)
		if err != nil {
			return err
		}
		volatile = volatile || inherited
		embedded := f.Anonymous && isStruct(f.Type)
		tag, ok := f.Tag.Lookup("json")
		if !f.IsExported() && !embedded || tag == "-" {
			continue
		}
		name, _, _ := strings.Cut(tag, ",")
		if !ok || !validTagName(name) {
			name = ""
		}
		if embedded && name == "" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if err := collectFields(inner, depth+1, volatile, chain, out); err != nil {
				return err
			}
			continue
		}
		c := taggedField{name: name, named: name != "", depth: depth, volatile: volatile, typ: f.Type, owner: t}
		if name == "" {
			c.name = f.Name
		}
		*out = append(*out, c)
	}
	return nil
}

// volatileTag reads the settle tag. An unknown word is refused, also on a
// field that is never encoded: a misspelt "volatil" would turn every repeat
// into a mismatch, in production.
func volatileTag(t reflect.Type, f reflect.StructField) (bool, error) {
	tag, ok := f.Tag.Lookup("settle")
	if !ok {
		return false, nil
	}
	for word := range strings.SplitSeq(tag, ",") {
		if word != "volatile" {
			return false, fmt.Errorf("settle tag: %s.%s: unknown word %q", t, f.Name, word)
		}
	}
	return true, nil
}

// dominantFields applies encoding/json's choice among fields of one name: the
// least embedded, among those the only one named by a tag, else none at all.
func dominantFields(all []taggedField) []taggedField {
	byName := map[string][]taggedField{}
	var names []string
	for _, f := range all {
		if byName[f.name] == nil {
			names = append(names, f.name)
		}
		byName[f.name] = append(byName[f.name], f)
	}
	var out []taggedField
	for _, name := range names {
		list := byName[name]
		slices.SortStableFunc(list, func(a, b taggedField) int {
			if a.depth != b.depth {
				return a.depth - b.depth
			}
			if a.named == b.named {
				return 0
			}
			if a.named {
				return -1
			}
			return 1
		})
		if len(list) > 1 && list[0].depth == list[1].depth && list[0].named == list[1].named {
			continue
		}
		out = append(out, list[0])
	}
	return out
}

// selfEncoded reports a type with an encoder of its own, be it on the pointer.
func selfEncoded(t reflect.Type) bool {
	return encodesItself(t, jsonMarshalerType, true) || encodesItself(t, textMarshalerType, true)
}

// validTagName is encoding/json's rule for names in tags; others are ignored.
func validTagName(name string) bool {
	for _, r := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return name != ""
}

// appendSegmentWhole is appendSegment without its cut: a pattern must be exact.
func appendSegmentWhole(p []byte, name string) []byte {
	p = append(p, '/')
	return append(p, strings.NewReplacer("~", "~0", "/", "~1").Replace(name)...)
}
