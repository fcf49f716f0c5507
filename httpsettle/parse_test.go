package httpsettle

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestStringItem(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		`"8e03978e-40d5-43e8-bc93-6894a57f9324"`: "8e03978e-40d5-43e8-bc93-6894a57f9324",
		`  "a b"  `:                              "a b",
		`""`:                                     "",
		`"a\"b\\c"`:                              `a"b\c`,
		`"a, b"`:                                 "a, b",
		`"k";a`:                                  "k",
		`"k"; a=1;b=-2.125;c=tok/en:x;d="s\"t"`:  "k",
		`"k";*a=:aGk=:;b=?0;c=@-1;d=%"f%c3%bc"`:  "k",
	}
	for in, want := range good {
		if got, err := parseStringItem(in); err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", in, got, err, want)
		}
	}
	bad := []string{
		``, ` `, `"`, `"a`, `a`, `"a"b`, `"a" "b"`, `"a", "b"`, `'a'`, `"a\x"`, `"a\`, "\"a\x00\"", "\"a\x7f\"", "\"ü\"", "\t\"a\"", "\"a\"\t",
		`"k";`, `"k";A`, `"k";1`, `"k";a=`, `"k" ;a`, `"k";a=1.`, `"k";a=1.1234`, `"k";a=1234567890123456`, `"k";a=1234567890123.1`,
		`"k";a=?2`, `"k";a=:a`, `"k";a=@1.5`, `"k";a=%"%C3"`, `"k";a=%"`, `"k";a=-`, `"k";a="`, `1`, `?1`, `:aGk=:`, `("a")`, `%"a"`, `@1`,
	}
	for _, in := range bad {
		if got, err := parseStringItem(in); err == nil {
			t.Errorf("%q was read as %q", in, got)
		} else if in != "" && len(in) > 3 && strings.Contains(err.Error(), in) {
			t.Errorf("the error quotes the key: %v", err)
		}
	}
}

func TestPreferWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines []string
		want  time.Duration
		ok    bool
	}{
		{nil, 0, false},
		{[]string{"wait=10"}, 10 * time.Second, true},
		{[]string{"respond-async, wait=10"}, 10 * time.Second, true},
		{[]string{"respond-async", `Wait = "7" ; strict`}, 7 * time.Second, true},
		{[]string{"wait=1, wait=2", "wait=3"}, time.Second, true}, // the first counts
		{[]string{`x="a, wait=5", wait=6`}, 6 * time.Second, true},
		{[]string{"foo; wait=5"}, 0, false}, // a parameter of another preference
		{[]string{"wait=0"}, 0, true},
		{[]string{"wait"}, 0, false},
		{[]string{"wait=-1"}, 0, false},
		{[]string{"wait=1.5"}, 0, false},
		{[]string{"wait=abc, wait=1"}, 0, false},
		{[]string{"waits=1"}, 0, false},
		{[]string{"wait=99999999999999999999999999"}, maxSeconds * time.Second, true},
	} {
		got, ok := parseWait(http.Header{"Prefer": c.lines})
		if got != c.want || ok != c.ok {
			t.Errorf("%q: %v %v, want %v %v", c.lines, got, ok, c.want, c.ok)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"120", "", 2 * time.Minute},
		{" 7 ", "", 7 * time.Second},
		{"-1", "", 0},
		{"1.5", "", 0},
		{"soon", "", 0},
		{"99999999999999999999", "", maxSeconds * time.Second},
		{"Sun, 01 Mar 2026 12:00:30 GMT", "", 30 * time.Second},
		{"Sunday, 01-Mar-26 12:00:30 GMT", "", 30 * time.Second},
		{"Sun Mar  1 12:00:30 2026", "", 30 * time.Second},
		{"Sun, 01 Mar 2026 11:59:30 GMT", "", 0},
		{"Fri, 01 Mar 2999 12:00:00 GMT", "", maxSeconds * time.Second},
		// The provider's clock is an hour ahead of ours: its own Date counts (I13).
		{"Sun, 01 Mar 2026 13:00:30 GMT", "Sun, 01 Mar 2026 13:00:00 GMT", 30 * time.Second},
	} {
		h := http.Header{"Retry-After": {c.value}}
		if c.date != "" {
			h.Set("Date", c.date)
		}
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%q at %q: %v, want %v", c.value, c.date, got, c.want)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	type body struct {
		Amount int64 `json:"amount"`
		Items  []struct {
			SKU string `json:"sku"`
		} `json:"items"`
	}
	var ok body
	if err := Decode([]byte(` {"amount":1,"items":[{"sku":"a"},{"sku":"a"}]} `), &ok); err != nil || ok.Amount != 1 || len(ok.Items) != 2 {
		t.Errorf("%+v %v", ok, err)
	}
	// IC-13 at this edge: what encoding/json would repair or drop.
	for _, in := range []string{
		``, `{`, `{"amount":1} {}`, `{"amount":1}x`, `{"amount":1,"amount":2}`, `{"amount":1,"Amount":2}`, `{"amount":1,"amoun\u0074":2}`,
		`{"items":[{"sku":"a","SKU":"b"}]}`, `{"items":[{"sku":"a","\u017fku":"b"}]}`, `{"nosuch":1}`, `{"amount":1.5}`, `{"amount":"1"}`, `[]`,
		"{\"items\":[{\"sku\":\"a\xff\"}]}", `{"amount":99999999999999999999}`,
	} {
		var b body
		err := Decode([]byte(in), &b)
		if err == nil {
			t.Errorf("%s was read as %+v", in, b)
		} else if p, is := err.(*Problem); !is || p.Status != http.StatusBadRequest { //nolint:errorlint // returned bare
			t.Errorf("%s: %v is no problem of the client", in, err)
		}
	}
}

func TestFieldsShowOnlyDeclaredNames(t *testing.T) {
	t.Parallel()
	type line struct {
		SKU string `json:"sku"`
	}
	type req struct {
		Amount int64             `json:"amount"`
		Lines  []line            `json:"lines"`
		Meta   map[string]string `json:"meta"`
		Plain  string
		hidden string
	}
	_ = req{hidden: ""}
	names := memberNames[req]()
	for in, want := range map[string]string{
		"/amount": "/amount", "/lines/12/sku": "/lines/12/sku", "/meta/4242424242424242": "/meta", "/secret": "Request", "/Plain": "/Plain",
		"Key": "Key", "/hidden": "Request", "/lines/0/x": "/lines/0",
	} {
		if got := declared(names, []string{in}); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, want %s", in, got, want)
		}
	}
}

func FuzzStringItem(f *testing.F) {
	for _, s := range []string{`"a"`, `"a\"\\b";x=1;y="z"`, `a`, ``, `"a";*=?1`, `"a";b=%"%20"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		v, err := parseStringItem(in)
		if err != nil {
			return
		}
		for i := range len(v) {
			if v[i] < 0x20 || v[i] > 0x7e {
				t.Fatalf("%q was read as %q", in, v)
			}
		}
		again := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
		if w, err := parseStringItem(again); err != nil || w != v {
			t.Fatalf("%q does not come back: %q %v", v, w, err)
		}
	})
}

func FuzzPrefer(f *testing.F) {
	for _, s := range []string{"wait=10", `a="b, c"; d, wait="5"`, `wait=`, `"`, `\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		d, ok := parseWait(http.Header{"Prefer": {in}})
		if d < 0 || d > maxSeconds*time.Second || !ok && d != 0 {
			t.Fatalf("%q: %v %v", in, d, ok)
		}
		if ok && !strings.Contains(strings.ToLower(in), "wait") {
			t.Fatalf("%q has no wait", in)
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"1", "Sun, 01 Mar 2026 12:00:30 GMT", "-1", "x"} {
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		d := RetryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, time.Unix(1_800_000_000, 0))
		if d < 0 || d > maxSeconds*time.Second {
			t.Fatalf("%q at %q: %v", value, date, d)
		}
	})
}
