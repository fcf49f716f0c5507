package httpsettle_test

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/settle-go/settle/httpsettle"
)

// spec is a document as a client reads it. Its check of an answer knows just the JSON Schema words that the document uses,
// and fails on any other.
type spec struct{ doc map[string]any }

// Every type is in the document at the status that the table says, each reference leads somewhere, and what is no JSON is refused.
func TestOpenAPIHasEveryType(t *testing.T) {
	t.Parallel()
	raw, err := httpsettle.OpenAPI(httpsettle.Description{})
	if err != nil {
		t.Fatal(err)
	}
	s := parseSpec(t, raw)
	for _, info := range httpsettle.Types() {
		typ := httpsettle.DefaultTypeBase + info.Slug
		switch info.Status {
		case http.StatusMethodNotAllowed: // of no operation of the document
			continue
		case http.StatusAccepted:
			types, _ := s.at("components", "schemas", "Status", "properties", "type", "enum").([]any)
			if !slices.Contains(types, any(typ)) {
				t.Errorf("the status resource cannot be %s", info.Slug)
			}
			continue
		}
		all, _ := s.at("paths", "/operations", "post", "responses", fmt.Sprint(info.Status), "content", "application/problem+json", "schema", "allOf").([]any)
		if len(all) != 2 {
			t.Fatalf("status %d is not documented", info.Status)
		}
		types, _ := dig(all[1], "properties", "type", "enum").([]any)
		if !slices.Contains(types, any(typ)) {
			t.Errorf("a %d cannot be %s: %v", info.Status, info.Slug, types)
		}
	}
	for _, m := range regexp.MustCompile(`"\$ref": "#/([^"]+)"`).FindAllStringSubmatch(string(raw), -1) {
		if s.at(strings.Split(m[1], "/")...) == nil {
			t.Errorf("%s leads nowhere", m[1])
		}
	}
	if again, _ := httpsettle.OpenAPI(httpsettle.Description{}); string(again) != string(raw) {
		t.Error("the document differs from one time to the next")
	}
	if _, err := httpsettle.OpenAPI(httpsettle.Description{Request: json.RawMessage("{")}); err == nil {
		t.Error("a schema that is no JSON was taken")
	}
}

func parseSpec(t testing.TB, raw []byte) spec {
	t.Helper()
	var s spec
	if err := json.Unmarshal(raw, &s.doc); err != nil {
		t.Fatal(err)
	}
	return s
}

// answer checks status, headers, media type and body of an answer.
func (s spec) answer(method, path string, status int, h http.Header, body []byte) error {
	op, ok := s.at("paths", path, strings.ToLower(method)).(map[string]any)
	if !ok {
		return fmt.Errorf("%s %s is not documented", method, path)
	}
	res, ok := dig(op, "responses", fmt.Sprint(status)).(map[string]any)
	if !ok {
		return fmt.Errorf("status %d is not documented", status)
	}
	headers, _ := res["headers"].(map[string]any)
	documented := map[string]bool{}
	for name, v := range headers {
		documented[http.CanonicalHeaderKey(name)] = true
		value, there := h.Get(name), len(h.Values(name)) > 0
		if required, _ := dig(v, "required").(bool); required && !there {
			return fmt.Errorf("status %d without the header %s", status, name)
		}
		if pattern, ok := dig(v, "schema", "pattern").(string); ok && there && !regexp.MustCompile(pattern).MatchString(value) {
			return fmt.Errorf("the header %s is %q, which does not match %s", name, value, pattern)
		}
	}
	for name := range h {
		switch name {
		case "Cache-Control", "X-Content-Type-Options", "Vary", "Content-Type", "Content-Length", "Content-Language", "Date":
		default:
			if !documented[name] {
				return fmt.Errorf("status %d has the header %s, which is not documented", status, name)
			}
		}
	}
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return err
	}
	content, ok := dig(res, "content", media).(map[string]any)
	if !ok {
		return fmt.Errorf("status %d does not come as %s", status, media)
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	return s.valid(content["schema"], v, "")
}

func (s spec) at(path ...string) any { return dig(s.doc, path...) }

func dig(v any, path ...string) any {
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

func (s spec) valid(schema, v any, at string) error {
	m, ok := schema.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: no schema", at)
	}
	for word, arg := range m {
		if err := s.word(word, arg, m, v, at); err != nil {
			return err
		}
	}
	return nil
}

func (s spec) word(word string, arg any, schema map[string]any, v any, at string) error {
	object, _ := v.(map[string]any)
	switch word {
	case "$ref":
		return s.valid(s.at(strings.Split(strings.TrimPrefix(arg.(string), "#/"), "/")...), v, at)
	case "allOf":
		for _, sub := range arg.([]any) {
			if err := s.valid(sub, v, at); err != nil {
				return err
			}
		}
	case "type":
		is := map[string]bool{"object": object != nil}
		_, is["string"] = v.(string)
		_, is["array"] = v.([]any)
		n, number := v.(float64)
		is["integer"] = number && n == float64(int64(n))
		if !is[arg.(string)] {
			return fmt.Errorf("%s: %v is no %v", at, v, arg)
		}
	case "required":
		for _, name := range arg.([]any) {
			if _, ok := object[name.(string)]; !ok {
				return fmt.Errorf("%s: %v is missing", at, name)
			}
		}
	case "properties":
		for name, sub := range arg.(map[string]any) {
			if member, ok := object[name]; ok {
				if err := s.valid(sub, member, at+"/"+name); err != nil {
					return err
				}
			}
		}
	case "additionalProperties":
		for name := range object {
			if arg == false && dig(schema, "properties", name) == nil {
				return fmt.Errorf("%s: %s is not documented", at, name)
			}
		}
	case "items":
		list, _ := v.([]any)
		for i, x := range list {
			if err := s.valid(arg, x, fmt.Sprint(at, "/", i)); err != nil {
				return err
			}
		}
	case "enum":
		if !slices.Contains(arg.([]any), v) {
			return fmt.Errorf("%s: %v is not one of %v", at, v, arg)
		}
	case "const":
		if v != arg {
			return fmt.Errorf("%s: %v is not %v", at, v, arg)
		}
	case "maxLength":
		if text, _ := v.(string); len(text) > int(arg.(float64)) {
			return fmt.Errorf("%s: too long", at)
		}
	case "minimum", "maximum", "format", "description": // integers here are statuses, and const says which
	default:
		return fmt.Errorf("%s: this check does not know %q", at, word)
	}
	return nil
}
