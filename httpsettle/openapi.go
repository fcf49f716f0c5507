package httpsettle

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/settle-go/settle"
)

// Description is what an OpenAPI document needs to know beside what every [Handler] does. The zero value describes
// operations of any request and result at /operations.
type Description struct {
	Title   string // of the document; defaults to "Operations"
	Version string // of the application's API; defaults to "1"
	// Path is where POST is mounted; the status is at Path/{id}. Defaults to /operations.
	Path string
	// Request and Result are JSON Schemas of the body and of the member result. They default to {}: anything.
	Request, Result json.RawMessage
	// Keys and TypeBase are those of HandlerOptions.
	Keys     KeyRule
	TypeBase string
	// Problems are those that the application's OperationFunc and Authorize return themselves.
	Problems []Problem
}

type object = map[string]any

// OpenAPI returns an OpenAPI 3.1 document of a [Handler], as JSON with two spaces of indentation. It is made of the
// same tables as the answers. An error says which of the given schemas is no JSON.
func OpenAPI(d Description) ([]byte, error) {
	d.defaults()
	for name, schema := range map[string]json.RawMessage{"Request": d.Request, "Result": d.Result} {
		if !json.Valid(schema) {
			return nil, errors.New("httpsettle: openapi: " + name + " is no JSON")
		}
	}
	doc := object{
		"openapi":           "3.1.0",
		"jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
		"info":              object{"title": d.Title, "version": d.Version},
		"paths": object{
			d.Path: object{"post": object{
				"operationId": "perform", "summary": "Do an operation at most once, or say what became of it",
				"parameters":  d.postParameters(),
				"requestBody": object{"required": true, "content": object{mediaJSON: object{"schema": d.Request}}},
				"responses":   d.postResponses(),
			}},
			d.Path + "/{id}": object{"get": object{
				"operationId": "status", "summary": "How an operation stands",
				"parameters": []any{
					object{"name": "id", "in": "path", "required": true, "schema": object{"type": "string"}}, preferParameter(),
				},
				"responses": d.getResponses(),
			}},
		},
		"components": object{"schemas": object{"Status": d.statusSchema(), "Problem": problemSchema()}},
	}
	return json.MarshalIndent(doc, "", "  ")
}

func (d *Description) defaults() {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&d.Title, "Operations")
	def(&d.Version, "1")
	def(&d.Path, "/operations")
	def(&d.TypeBase, DefaultTypeBase)
	if len(d.Request) == 0 {
		d.Request = json.RawMessage("{}")
	}
	if len(d.Result) == 0 {
		d.Result = json.RawMessage("{}")
	}
}

func preferParameter() object {
	return object{
		"name": "Prefer", "in": "header", "description": "wait=n: wait for up to n seconds until it is settled (RFC 7240)",
		"schema": object{"type": "string"},
	}
}

func (d *Description) postParameters() []any {
	out := []any{preferParameter()}
	if d.Keys != KeyUnused {
		out = append(out, object{
			"name": "Idempotency-Key", "in": "header", "required": d.Keys == KeyRequired,
			"description": "A structured-field string (RFC 9651): one key for one intended effect, the same on every try",
			"schema":      object{"type": "string", "maxLength": 2*settle.MaxKey + 2},
			"example":     `"8e03978e-40d5-43e8-bc93-6894a57f9324"`,
		})
	}
	return out
}

func header(description string, required bool) object {
	return object{"description": description, "required": required, "schema": object{"type": "string"}}
}

func secondsHeader(required bool) object {
	h := header("Seconds to wait before the next question", required)
	h["schema"] = object{"type": "string", "pattern": "^[0-9]+$"}
	return h
}

func appliedHeader() object { return header("The preference that was applied (RFC 7240)", false) }

func statusContent() object {
	return object{mediaJSON: object{"schema": object{"$ref": "#/components/schemas/Status"}}}
}

func (d *Description) postResponses() object {
	out := object{
		"200": object{
			"description": "Confirmed and finished", "content": statusContent(),
			"headers": object{
				"Location": header("The operation's status", true), "Preference-Applied": appliedHeader(),
				"Idempotent-Replayed": header("true: the answer is that of an earlier request", false),
			},
		},
		"202": object{
			"description": "Not settled: it goes on by itself", "content": statusContent(),
			"headers": object{
				"Location": header("The operation's status", true), "Preference-Applied": appliedHeader(), "Retry-After": secondsHeader(true),
			},
		},
	}
	byStatus := map[int][]string{}
	for _, e := range entries() {
		if e.slug != typeMethod && e.status >= 400 && (d.Keys == KeyRequired || e.slug != typeKeyMissing) {
			byStatus[e.status] = append(byStatus[e.status], d.TypeBase+e.slug)
		}
	}
	for _, p := range d.Problems {
		c := p.complete()
		byStatus[c.Status] = append(byStatus[c.Status], c.Type)
	}
	for status, types := range byStatus {
		r := problemResponse(status, types)
		headers, _ := r["headers"].(object)
		headers["Preference-Applied"] = appliedHeader()
		switch status {
		case http.StatusConflict, http.StatusUnprocessableEntity, http.StatusGone, http.StatusNotFound, http.StatusServiceUnavailable:
			headers["Location"] = header("The operation that decided", false)
			headers["Idempotent-Replayed"] = header("true: the answer is that of an earlier request", false)
		}
		out[strconv.Itoa(status)] = r
	}
	return out
}

func (d *Description) getResponses() object {
	out := object{"200": object{
		"description": "How it stands", "content": statusContent(),
		"headers": object{"Retry-After": secondsHeader(false), "Preference-Applied": appliedHeader()},
	}}
	for _, slug := range []string{typeUnauthenticated, typeNotFound, typeInternal, typeNoVerdict} {
		e := bySlug(slug)
		out[strconv.Itoa(e.status)] = problemResponse(e.status, []string{d.TypeBase + e.slug})
	}
	return out
}

func problemResponse(status int, types []string) object {
	slices.Sort(types)
	headers := object{}
	switch status {
	case http.StatusUnauthorized:
		headers["WWW-Authenticate"] = header("How to authenticate", true)
	case http.StatusConflict:
		headers["Retry-After"] = secondsHeader(false)
	case http.StatusUnsupportedMediaType:
		headers["Accept-Encoding"] = header("identity, if the body was encoded", false)
	case http.StatusServiceUnavailable, http.StatusInternalServerError:
		headers["Retry-After"] = secondsHeader(true)
	}
	return object{
		"description": http.StatusText(status), "headers": headers,
		"content": object{mediaProblem: object{"schema": object{"allOf": []any{
			object{"$ref": "#/components/schemas/Problem"},
			object{"properties": object{"type": object{"enum": slices.Compact(types)}, "status": object{"const": status}}},
		}}}},
	}
}

func words[T ~string](list []T) object { return object{"type": "string", "enum": list} }

// nexts lists the next actions.
func nexts() []settle.Next {
	return []settle.Next{
		settle.NextRetry, settle.NextWait, settle.NextAskCustomer, settle.NextDone, settle.NextShowFailure, settle.NextShowReversal,
		settle.NextWaitPerson, settle.NextStop, settle.NextFixRequest,
	}
}

func (d *Description) statusSchema() object {
	var types []string
	for _, e := range entries() {
		if e.status == http.StatusAccepted || e.slug == typeInProgress || e.slug == typeFailed || e.status == http.StatusGone {
			types = append(types, d.TypeBase+e.slug)
		}
	}
	return object{
		"type": "object", "required": []string{"operation", "state", "next", "advice"}, "additionalProperties": false,
		"properties": object{
			"operation": object{"type": "string", "format": "uuid"},
			"state":     words(settle.States()),
			"type":      object{"type": "string", "enum": types, "description": "Absent exactly if the effect is confirmed and finished"},
			"next":      words(nexts()),
			"advice":    object{"type": "string"},
			"code":      object{"type": "string", "maxLength": 64},
			"action":    object{"type": "string", "description": "What the customer needs, with the state action_required"},
			"result":    d.Result,
		},
	}
}

func problemSchema() object {
	return object{
		"type": "object", "required": []string{"type", "title", "status"}, "additionalProperties": false,
		"description": "Problem details (RFC 9457)",
		"properties": object{
			"type":      object{"type": "string", "format": "uri-reference"},
			"title":     object{"type": "string"},
			"status":    object{"type": "integer", "minimum": 400, "maximum": 599},
			"detail":    object{"type": "string"},
			"operation": object{"type": "string", "format": "uuid"},
			"state":     words(settle.States()),
			"next":      words(nexts()),
			"code":      object{"type": "string", "maxLength": 64},
			"fields":    object{"type": "array", "items": object{"type": "string"}, "description": "Names, never values"},
		},
	}
}
