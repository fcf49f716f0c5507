package providertest

import (
	"fmt"

	"github.com/settle-go/settle"
)

const (
	htmlType  = "text/html; charset=utf-8"
	jsonType  = "application/json"
	errorPage = "<html><head><title>Error</title></head><body>upstream said no</body></html>"
)

// trouble is one way in which a request gets no answer.
type trouble struct {
	name  string
	serve func(*exchange)
	// mayNotApply: the status says that nothing was done, as far as a status can.
	mayNotApply bool
}

// lostReplies are troubles of the connection.
func lostReplies() []trouble {
	return []trouble{
		{name: "the reply is lost after the effect", serve: func(x *exchange) { x.perform(); x.cut() }},
		{name: "the connection breaks before the provider acts", serve: func(x *exchange) { x.cut() }},
		{name: "the connection breaks in the middle of the reply", serve: func(x *exchange) { x.cutShort(x.perform()) }},
	}
}

// serverErrors are 5xx, with the effect and without.
func serverErrors() []trouble {
	var out []trouble
	for _, status := range []int{500, 502, 503, 504} {
		out = append(out, trouble{name: fmt.Sprintf("%d after the effect", status), serve: func(x *exchange) {
			x.perform()
			x.answer(status, htmlType, errorPage)
		}}, trouble{name: fmt.Sprintf("%d without an effect", status), serve: func(x *exchange) {
			x.answer(status, jsonType, `{"error":{"message":"internal"}}`)
		}})
	}
	return out
}

// unreadable are successes by status that say nothing.
func unreadable() []trouble {
	var out []trouble
	for _, body := range []string{"", errorPage, "{}", "null", "[]", `""`, "0", `{"data":null}`, `{"data":[]}`, "{", "\x00\xff"} {
		contentType := jsonType
		if body == errorPage {
			contentType = htmlType
		}
		out = append(out, trouble{name: fmt.Sprintf("200 with the body %.20q", body), serve: func(x *exchange) {
			x.perform()
			x.answer(200, contentType, body)
		}})
	}
	return append(out, halfABody(), trouble{name: "204", serve: func(x *exchange) {
		x.perform()
		x.rw.WriteHeader(204)
	}})
}

func halfABody() trouble {
	return trouble{name: "200 with half of the body", serve: func(x *exchange) {
		a := x.perform()
		a.body = a.body[:len(a.body)/2]
		x.write(a)
	}}
}

// conflicts are 409 that do not say which of its meanings they have.
func conflicts() []trouble {
	var out []trouble
	for _, body := range []string{"", errorPage, "{}", "null"} {
		out = append(out, trouble{name: fmt.Sprintf("409 with the body %.20q", body), serve: func(x *exchange) {
			x.perform()
			x.answer(409, jsonType, body)
		}})
	}
	return out
}

// undocumented are statuses that somebody between the two may have made up.
func undocumented() []trouble {
	var out []trouble
	for _, status := range []int{400, 403, 404, 408, 410, 418, 422, 425, 451} {
		out = append(out, trouble{name: fmt.Sprintf("%d with a page of somebody else", status), mayNotApply: true, serve: func(x *exchange) {
			x.answer(status, htmlType, errorPage)
		}})
	}
	return out
}

// redirects point to another host, which would execute what arrives.
func redirects() []trouble {
	var out []trouble
	for _, status := range []int{301, 302, 303, 307, 308} {
		out = append(out, trouble{name: fmt.Sprintf("%d to another host", status), serve: func(x *exchange) {
			x.rw.Header().Set("Location", x.w.elsewhere().URL+x.sent.URL.String())
			x.rw.WriteHeader(status)
		}})
	}
	return out
}

// silences are the troubles of a keyless provider, one of each family.
func silences() []trouble {
	return append(lostReplies(), serverErrors()[0], serverErrors()[5], unreadable()[1], conflicts()[2],
		trouble{name: "429", mayNotApply: true, serve: func(x *exchange) { x.answer(429, jsonType, "{}") }})
}

// quiet reports whether r draws no conclusion from tr.
func (tr trouble) quiet(r result) bool {
	return r.noAnswer() || tr.mayNotApply && r.fact == settle.NotApplied
}
