package edgetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"

	"github.com/settle-go/settle/httpsettle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/providertest"
)

// document is the OpenAPI document of the endpoint, as somebody else's validator reads it.
func document(t *testing.T) validator.Validator {
	t.Helper()
	raw, err := httpsettle.OpenAPI(httpsettle.Description{
		Path:    "/payments",
		Request: json.RawMessage(`{"type":"object","required":["amount","currency"],"properties":{"amount":{"type":"integer"},"currency":{"type":"string"}}}`),
		Result:  json.RawMessage(`{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}`),
	})
	rig.OK(t, err)
	doc, err := libopenapi.NewDocument(raw)
	rig.OK(t, err)
	if doc.GetVersion() != "3.1.0" {
		t.Errorf("the document says it is %s", doc.GetVersion())
	}
	v, errs := validator.NewValidator(doc, config.WithFormatAssertions())
	for _, err := range errs {
		t.Fatal(err)
	}
	if ok, errs := v.ValidateDocument(); !ok {
		for _, err := range errs {
			t.Errorf("the document is not OpenAPI 3.1: %s", err.Error())
		}
	}
	return v
}

// answered is a response that was checked.
type answered struct {
	a    ask
	code int
	head http.Header
	body string
}

func (x answered) response() *http.Response {
	return &http.Response{StatusCode: x.code, Header: x.head.Clone(), Body: io.NopCloser(strings.NewReader(x.body))}
}

// check says what the document has against the response.
func (x answered) check(t *testing.T, v validator.Validator) error {
	t.Helper()
	answer := x.response()
	defer answer.Body.Close()
	ok, errs := v.ValidateHttpResponse(x.a.request(t), answer)
	if ok {
		return nil
	}
	return fmt.Errorf("%d %s: %v", x.code, x.body, errs)
}

// TestOpenAPI: what the server answers, in every way that a client can bring about, is what its document says.
func TestOpenAPI(t *testing.T) {
	v := document(t)
	s := newShop(t, &httpsettle.HandlerOptions[providertest.Receipt]{Wait: patience})
	var all []answered
	send := func(a ask, code int, slug string) answered {
		t.Helper()
		w := httptest.NewRecorder()
		s.h.ServeHTTP(w, a.request(t))
		x := answered{a, w.Code, w.Header(), w.Body.String()}
		if w.Code != code || slug != "" && !strings.Contains(x.body, "#"+slug+`"`) {
			t.Errorf("%s %s: %d, want %d %s\n%s", a.method, a.path, w.Code, code, slug, x.body)
		}
		if err := x.check(t, v); err != nil {
			t.Errorf("%s %s: %v", a.method, a.path, err)
		}
		all = append(all, x)
		return x
	}
	change := func(a ask, f func(a *ask)) ask { f(&a); return a }

	paid := send(pay("/payments", "1"), 200, "")
	if ok, errs := v.ValidateHttpRequest(pay("/payments", "1").request(t)); !ok {
		t.Errorf("the request itself: %v", errs)
	}
	send(pay("/payments", "1"), 200, "") // a replay
	var status httpsettle.Status
	rig.OK(t, json.Unmarshal([]byte(paid.body), &status))
	at := "/payments/" + status.Operation
	send(look(at), 200, "")
	send(change(look(at), func(a *ask) { a.prefer = "wait=1" }), 200, "")
	send(change(look(at), func(a *ask) { a.user = "bob" }), 404, "not-found")
	send(change(look(at), func(a *ask) { a.user = "" }), 401, "unauthenticated")
	send(look("/payments/0192aaaa-0000-7000-8000-000000000000"), 404, "not-found")
	send(change(pay("/payments", "1"), func(a *ask) { a.key = "" }), 400, "key-missing")
	send(change(pay("/payments", "1"), func(a *ask) { a.key = "bare" }), 400, "key-malformed")
	send(change(pay("/payments", "1"), func(a *ask) { a.body = `{"amount":` }), 400, "malformed-body")
	send(change(pay("/payments", "1"), func(a *ask) { a.body = `{"amount":2999,"currency":"EUR"}` }), 422, "key-reused")
	send(change(pay("/payments", "1"), func(a *ask) { a.key = `"another"` }), 409, "operation-exists")
	send(change(pay("/payments", "1"), func(a *ask) { a.user = "" }), 401, "unauthenticated")
	send(change(pay("/payments", "1"), func(a *ask) { a.media = "text/plain" }), 415, "media-type")
	send(change(pay("/payments", "1"), func(a *ask) { a.body = `{"currency":"` + strings.Repeat("E", 1<<17) + `"}` }), 413, "body-too-large")

	s.Provider.Script(providertest.Decline("card_declined"))
	send(pay("/payments", "2"), 422, "failed")
	send(pay("/payments", "2"), 422, "failed")

	s.Provider.Script(providertest.DropReply())
	s.Provider.ScriptLookup(providertest.Status(503, ""))
	send(pay("/payments", "3"), 202, "unknown")

	s.Provider.Script(providertest.Processing())
	send(pay("/payments", "4"), 202, "processing")
	s.Provider.Script(providertest.ActionRequired())
	send(pay("/payments", "5"), 202, "action-required")
	s.Provider.Script(providertest.WrongAmount(19))
	send(pay("/payments", "6"), 202, "review")
	s.Provider.Script(providertest.RateLimit(0))
	send(pay("/payments", "7"), 202, "waiting")

	release := make(chan struct{})
	s.Provider.Script(providertest.HangBefore(release))
	first := send(pay("/payments", "8"), 202, "in-progress")
	send(pay("/payments", "8"), 409, "in-progress")
	rig.OK(t, json.Unmarshal([]byte(first.body), &status))
	send(change(look("/payments/"+status.Operation), func(a *ask) { a.prefer = "wait=0" }), 200, "in-progress")
	done := rig.Background(func() answered {
		return send(change(pay("/payments", "8"), func(a *ask) { a.prefer = "wait=20" }), 200, "")
	})
	close(release)
	if x := done(); x.head.Get("Preference-Applied") != "wait=20" {
		t.Errorf("%v", x.head)
	}

	s.p.Store.Cut()
	send(pay("/payments", "9"), 503, "no-verdict")
	send(look(at), 503, "no-verdict")
	s.p.Store.Mend()
	rig.OK(t, s.p.Drain(t.Context()))
	send(pay("/payments", "9"), 503, "unavailable")

	// A validator that takes anything shows nothing.
	for i, x := range all {
		for name, broken := range breakages(x) {
			if broken.check(t, v) == nil {
				t.Errorf("answer %d (%d), %s, was taken: %s", i, x.code, name, broken.body)
			}
		}
	}
}

// breakages are an answer, wrong in one way each.
func breakages(x answered) map[string]answered {
	out := map[string]answered{}
	with := func(name string, f func(m map[string]any)) {
		var m map[string]any
		if json.Unmarshal([]byte(x.body), &m) != nil {
			return
		}
		f(m)
		b, err := json.Marshal(m)
		if err != nil {
			return
		}
		y := x
		y.body = string(b)
		out[name] = y
	}
	required := "next"
	if x.code >= 400 {
		required = "title"
		with("with the status of another", func(m map[string]any) { m["status"] = 499 })
		with("with a type that is no type here", func(m map[string]any) { m["type"] = "about:blank" })
	} else {
		with("with a state that is none", func(m map[string]any) { m["state"] = "lost" })
		with("with a result that is none", func(m map[string]any) { m["result"] = "paid" })
	}
	with("without "+required, func(m map[string]any) { delete(m, required) })
	with("with a member more", func(m map[string]any) { m["request"] = "secret" })
	y := x
	y.code = 418
	out["with a status that is not documented"] = y
	y = x
	y.head = x.head.Clone()
	y.head.Set("Content-Type", "text/html")
	out["as another media type"] = y
	y = x
	y.body = "{"
	out["that is no JSON"] = y
	return out
}
