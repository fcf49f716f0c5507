package httpsettle

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Decode reads a JSON body into what into points to, and refuses what encoding/json would repair or drop: members that
// the type does not have, repeated ones, invalid UTF-8, more than one document. Its error is a *[Problem] of
// the type malformed-body and quotes nothing. A number goes where the type puts it; use integers or
// decimal.Decimal for money.
func Decode(body []byte, into any) error {
	if !utf8.Valid(body) || repeats(body) {
		return malformed()
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return malformed()
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return malformed()
	}
	return nil
}

func malformed() *Problem {
	e := bySlug(typeMalformedBody)
	return &Problem{Type: DefaultTypeBase + e.slug, Title: e.title, Status: e.status, Detail: e.detail, Next: e.next}
}

// repeats reports whether some object of body names a member twice, also in another case: encoding/json takes both for one
// field. A body that is no JSON is left to the decoder.
func repeats(body []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(body))
	type level struct {
		names map[string]bool // nil: an array
		value bool            // of an object: the next token is a value
	}
	var stack []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		top := len(stack) - 1
		if delim, ok := tok.(json.Delim); ok && (delim == '}' || delim == ']') {
			stack = stack[:top]
			continue
		}
		if top >= 0 && stack[top].names != nil {
			if !stack[top].value {
				name := fold(tok.(string)) // the name of a member is always a string
				if stack[top].names[name] {
					return true
				}
				stack[top].names[name], stack[top].value = true, true
				continue
			}
			stack[top].value = false
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{names: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, level{})
		}
	}
}

// fold makes names equal that encoding/json matches to one field.
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }

// memberNames collects the JSON names that a request type declares, at any depth: only they are shown. A name that only the
// request brought (of a map, of raw JSON) is part of the request.
func memberNames[Req any]() map[string]bool {
	names := map[string]bool{}
	collect(reflect.TypeFor[Req](), names, map[reflect.Type]bool{})
	return names
}

func collect(t reflect.Type, names map[string]bool, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		collect(t.Elem(), names, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			if f.IsExported() || f.Anonymous {
				names[name] = true
				collect(f.Type, names, seen)
			}
		}
	}
}

// declared cuts each JSON Pointer before the first name that is not declared. What is no pointer names an option of
// settle.Operation (Key, Subject, …) and stays.
func declared(names map[string]bool, fields []string) []string {
	var out []string
	for _, f := range fields {
		kept := f
		if strings.HasPrefix(f, "/") {
			kept = ""
			for seg := range strings.SplitSeq(f[1:], "/") {
				if !names[unescape(seg)] && !isIndex(seg) {
					break
				}
				kept += "/" + seg
			}
			if kept == "" {
				kept = "Request"
			}
		}
		if len(out) == 0 || out[len(out)-1] != kept {
			out = append(out, kept)
		}
	}
	return out
}

// isIndex reports whether a segment can be an array index. Longer numbers are member names that somebody made up.
func isIndex(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != "" && len(s) <= 4
}

// unescape undoes the escapes of a JSON Pointer (RFC 6901, section 4).
func unescape(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
}
