package providertest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Sent is one HTTP request as the local provider of a [Harness] received it.
type Sent struct {
	Method string
	URL    *url.URL // path and query
	Header http.Header
	Body   []byte
}

// same reports whether two requests ask for the same: one is a resend of the other.
func (s Sent) same(o Sent) bool {
	return s.Method == o.Method && s.URL.String() == o.URL.String() && string(s.Body) == string(o.Body)
}

// Place is where a request carries a value. Make one with InHeader, InQuery,
// InForm, InJSON or InText; the zero Place is nowhere.
type Place struct {
	name string
	read func(Sent) []string
}

// String names the place, for messages of tests.
func (p Place) String() string { return p.name }

func (p Place) none() bool { return p.read == nil }

// InHeader is a header field: InHeader("Idempotency-Key").
func InHeader(name string) Place {
	return Place{"header " + name, func(s Sent) []string { return s.Header.Values(name) }}
}

// InQuery is a parameter in the URL.
func InQuery(name string) Place {
	return Place{"query parameter " + name, func(s Sent) []string { return s.URL.Query()[name] }}
}

// InForm is a field of an application/x-www-form-urlencoded body:
// InForm("metadata[settle_id]").
func InForm(name string) Place {
	return Place{"form field " + name, func(s Sent) []string {
		v, err := url.ParseQuery(string(s.Body))
		if err != nil {
			return nil
		}
		return v[name]
	}}
}

// InJSON is a value in a JSON body, by its JSON pointer (RFC 6901):
// InJSON("/metadata/settle_id"). A number counts as its text.
func InJSON(pointer string) Place {
	return Place{"JSON body at " + pointer, func(s Sent) []string {
		v, ok := decodeJSON(s.Body)
		if !ok {
			return nil
		}
		for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
			switch node := v.(type) {
			case map[string]any:
				v = node[step]
			case []any:
				i, err := strconv.Atoi(step)
				if err != nil || i < 0 || i >= len(node) {
					return nil
				}
				v = node[i]
			default:
				return nil
			}
		}
		switch leaf := v.(type) {
		case string:
			return []string{leaf}
		case json.Number:
			return []string{leaf.String()}
		}
		return nil
	}}
}

// InText is anywhere else: read returns the value, and false if there is none.
// The name is for messages.
func InText(name string, read func(Sent) (string, bool)) Place {
	return Place{name, func(s Sent) []string {
		if v, ok := read(s); ok {
			return []string{v}
		}
		return nil
	}}
}
