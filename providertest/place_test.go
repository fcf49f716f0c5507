package providertest

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
)

func TestPlaces(t *testing.T) {
	header := http.Header{}
	header.Add("Idempotency-Key", "k1")
	header.Add("Idempotency-Key", "k2")
	form := Sent{Body: []byte("metadata%5Bid%5D=a%2Bb+c&metadata%5Bid%5D=d&bad")}
	body := Sent{Body: []byte(`{"a":{"b/c":[{"~d":"x"},{"n":12345678901234567890}]},"null":null,"obj":{}}`)}
	for _, c := range []struct {
		place Place
		sent  Sent
		want  []string
	}{
		{InHeader("idempotency-key"), Sent{Header: header}, []string{"k1", "k2"}},
		{InHeader("Other"), Sent{Header: header}, nil},
		{InQuery("key"), Sent{URL: &url.URL{RawQuery: "key=a%20b&key=c"}}, []string{"a b", "c"}},
		{InForm("metadata[id]"), form, []string{"a+b c", "d"}},
		{InForm("other"), form, nil},
		{InForm("x"), Sent{Body: []byte("%zz")}, nil},
		{InJSON("/a/b~1c/0/~0d"), body, []string{"x"}},
		{InJSON("/a/b~1c/1/n"), body, []string{"12345678901234567890"}},
		{InJSON("/a/b~1c/2"), body, nil},
		{InJSON("/a/b~1c/x"), body, nil},
		{InJSON("/null"), body, nil},
		{InJSON("/obj"), body, nil},
		{InJSON("/obj/deeper/still"), body, nil},
		{InJSON("/a"), Sent{Body: []byte("no json")}, nil},
		{InText("the path", func(s Sent) (string, bool) { return s.URL.Path, true }), Sent{URL: &url.URL{Path: "/x"}}, []string{"/x"}},
		{InText("nowhere", func(Sent) (string, bool) { return "x", false }), Sent{}, nil},
		{Place{}, Sent{}, nil},
	} {
		if got := c.place.readings(c.sent); !slices.Equal(got, c.want) {
			t.Errorf("%v in %s: %q, want %q", c.place, c.sent.Body, got, c.want)
		}
	}
}

func TestRewrite(t *testing.T) {
	e := Echo{}
	for _, c := range []struct {
		body  string
		names []string
		value string
		want  string
	}{
		{`{"amount":1,"x":[{"amount":2,"other":3}]}`, []string{"amount"}, "9", `{"amount":9,"x":[{"amount":9,"other":3}]}`},
		{`{"amount":"1.00"}`, []string{"amount"}, "12.34", `{"amount":"12.34"}`},
		{`{"currency":"eur","b":{"cur":"EUR"}}`, []string{"currency", "cur"}, "JPY", `{"b":{"cur":"JPY"},"currency":"jpy"}`},
		{`{"amount":null,"n":9007199254740993}`, []string{"amount"}, "9", `{"amount":null,"n":9007199254740993}`},
		{`<html>`, []string{"amount"}, "9", `<html>`},
	} {
		if got := string(e.rewrite([]byte(c.body), c.names, c.value)); got != c.want {
			t.Errorf("%s with %v = %s is %s, want %s", c.body, c.names, c.value, got, c.want)
		}
	}
	e.Rewrite = func(body []byte, names []string, value string) []byte {
		return append(body, (names[0] + value)...)
	}
	if got := string(e.rewrite([]byte("<x>"), []string{"a"}, "1")); got != "<x>a1" {
		t.Errorf("an own format: %s", got)
	}
}
