package providertest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Echo says where the provider's replies state what happened: names of JSON
// members, at any depth, of single objects and of lists alike. The suite writes
// other values there and expects the adapter to report those.
type Echo struct {
	// Amount, Currency and Account name the members. Amount and Currency are required
	// if the adapter's Terms state an amount; an empty Account is not checked.
	Amount, Currency, Account []string
	// Other names the members that state Terms.Other, by its names; what is not here is not checked.
	Other map[string][]string
	// Rewrite replaces JSON as the format of replies: it puts value in the place of
	// what body states under any of the names.
	Rewrite func(body []byte, names []string, value string) []byte
}

func (e Echo) rewrite(body []byte, names []string, value string) []byte {
	if e.Rewrite != nil {
		return e.Rewrite(body, names, value)
	}
	v, ok := decodeJSON(body)
	if !ok {
		return body
	}
	out, err := json.Marshal(replaceMembers(v, names, value))
	if err != nil {
		panic(err) // it was JSON before
	}
	return out
}

// replaceMembers puts value into every member with one of the names. Strings
// stay strings, in the case that they had, and numbers stay numbers.
func replaceMembers(v any, names []string, value string) any {
	switch node := v.(type) {
	case map[string]any:
		for name, member := range node {
			if !slices.Contains(names, name) {
				node[name] = replaceMembers(member, names, value)
				continue
			}
			switch old := member.(type) {
			case json.Number:
				node[name] = json.Number(value)
			case string:
				if node[name] = value; old != "" && old == strings.ToLower(old) {
					node[name] = strings.ToLower(value)
				}
			}
		}
	case []any:
		for i := range node {
			node[i] = replaceMembers(node[i], names, value)
		}
	}
	return v
}

func decodeJSON(b []byte) (any, bool) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, false
	}
	return v, true
}
