package settle

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func canon(t testing.TB, doc string, volatile ...string) string {
	t.Helper()
	h, err := newHashRule(volatile)
	require.NoError(t, err)
	out, err := appendCanonical(nil, []byte(doc), h.paths)
	require.NoError(t, err, "%.200s", doc)
	return string(out)
}

func canonRefused(t testing.TB, doc string) *requestError {
	t.Helper()
	out, err := appendCanonical([]byte("kept"), []byte(doc), nil)
	var refused *requestError
	require.ErrorAs(t, err, &refused, "%.200s gave %.200s", doc, out)
	assert.Equal(t, "kept", string(out), "dst is unchanged on error")
	assert.NotEmpty(t, refused.Reason)
	return refused
}

// newTestRand prints its seed first, so that a failure can be run again.
func newTestRand(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestIC07_NoFloats(t *testing.T) {
	a, b := canon(t, `{"account":9007199254740992}`), canon(t, `{"account":9007199254740993}`)
	assert.NotEqual(t, a, b)
	assert.Equal(t, `{"account":1152921504606846977}`, canon(t, `{"account":1152921504606846977}`))
	assert.Equal(t, `[18446744073709551615,-9223372036854775808]`, canon(t, `[18446744073709551615,-9223372036854775808]`))
}

func TestIC08_NumberForms(t *testing.T) {
	for _, group := range []struct {
		want  string
		forms []string
	}{
		{"1e2", []string{"100", "1e2", "100.0", "1E+2", "1e+02", "10e1", "0.1e3", "10000e-2", "0.000100e6", "1e00000000002"}},
		{"0", []string{"0", "-0", "0.0", "-0.00e5", "0e-7", "0E+2000"}},
		{"-15e-1", []string{"-1.5", "-15e-1", "-1.50", "-0.15e1", "-150e-2"}},
		{"1999e-2", []string{"19.99", "19.990", "1999e-2"}},
		{"10203", []string{"10203", "10203.000", "1.0203e4"}},
		{"10203e-4", []string{"1.0203", "0.00010203e4"}},
		{"5e-324", []string{"5e-324"}},
		{"17976931348623157e292", []string{"1.7976931348623157e308"}},
		{"10000000000000000000000000000000001e-34", []string{"1.0000000000000000000000000000000001"}},
	} {
		for _, form := range group.forms {
			assert.Equal(t, group.want, canon(t, form), form)
			assert.Equal(t, group.want, canon(t, group.want), "the normal form is its own")
		}
	}
	assert.NotEqual(t, canon(t, "1.0101010101010101010101010101010108"), canon(t, "1.0101010101010102"))
	assert.NotEqual(t, canon(t, "1"), canon(t, "-1"))
	assert.NotEqual(t, canon(t, "1"), canon(t, `"1"`))
	assert.NotEqual(t, canon(t, "1e-2"), canon(t, "1e2"))
}

func TestIC08_NumberLimits(t *testing.T) {
	for _, ok := range []string{
		"9e308", "-9.99e308", "1e-324", "0." + strings.Repeat("0", 323) + "1", "1" + strings.Repeat("0", 308),
		strings.Repeat("7", 309), "0." + strings.Repeat("7", maxNumberDigits), "1" + strings.Repeat("0", 1000) + "e-1000",
	} {
		assert.Equal(t, canon(t, ok), canon(t, canon(t, ok)), ok)
	}
	for _, bad := range []string{
		"1e400", "1e309", "10e308", "1e-325", "0.1e-324", "1e1000000000", "1e-1000000000", "0e2001",
		"1e99999999999999999999999999", "1e18446744073709551618", "1e-18446744073709551618", "1e4294967298", "-1e400", strings.Repeat("7", 310), "0." + strings.Repeat("7", maxNumberDigits+1),
		"0." + strings.Repeat("0", maxNumberText), "1e" + strings.Repeat("0", maxNumberText) + "1",
	} {
		assert.Contains(t, canonRefused(t, bad).Reason, "number", "%.40s", bad)
	}
	for _, bad := range []string{"01", "-", "+1", "1.", ".5", "1e", "1e+", "--1", "-01", "00", "0x1", "1_0", "NaN", "Infinity", "1.e1", "1 2"} {
		assert.NotEmpty(t, canonRefused(t, bad).Reason)
	}
	assert.Equal(t, &requestError{Path: "/a/1", Reason: "the number's exponent is out of range"}, canonRefused(t, `{"a":[0,1e400]}`))
}

func TestIC08_HugeExponentCostsNothing(t *testing.T) {
	src := []byte(`{"v":1e1000000000}`)
	assert.Less(t, testing.AllocsPerRun(100, func() {
		_, _ = appendCanonical(nil, src, nil)
	}), 12.0)
}

func TestIC08_EveryFiniteFloatIsAccepted(t *testing.T) {
	rng := newTestRand(t)
	for range 20000 {
		f := math.Float64frombits(rng.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		data, err := encodeRequest(f)
		require.NoError(t, err)
		canon(t, string(data))
	}
}

func TestIC09_Escapes(t *testing.T) {
	for _, pair := range [][2]string{
		{`"Fish \u0026 Chips \u003cXL\u003e"`, `"Fish & Chips <XL>"`},
		{`"\u2028\u2029"`, "\"\u2028\u2029\""},
		{`"a\/b"`, `"a/b"`},
		{`"\ud83d\ude00"`, `"😀"`},
		{`"\uD83D\uDE00"`, `"😀"`},
		{`"\u0041\u00e9"`, `"Aé"`},
		{`"\u0022\u005c"`, `"\"\\"`},
		{`"\u0008\u0009\u000a\u000C\u000d"`, `"\b\t\n\f\r"`},
		{`"\u001F"`, `"\u001f"`},
		{`"\u007f"`, "\"\x7f\""},
		{`"\ufffd"`, "\"\ufffd\""},
		{`{"\u0061":1}`, `{"a":1}`},
		{`{"\u003c\n":1}`, `{"<\u000a":1}`},
		{`{"\u0062":{"\u0061":1,"z":0},"\u0061b":1}`, `{"ab":1,"b":{"a":1,"z":0}}`},
		{`{"x\ud83d\ude00y":1}`, `{"x😀y":1}`},
	} {
		assert.Equal(t, canon(t, pair[0]), canon(t, pair[1]), "%s", pair)
	}
	assert.Equal(t, `"\u0000\u001f\b"`, canon(t, `"\u0000\u001F\b"`))
	assert.NotEqual(t, canon(t, `"é"`), canon(t, "\"e\u0301\""), "no unicode normalisation")
	assert.NotEqual(t, canon(t, `"\\n"`), canon(t, `"\n"`))
	for _, bad := range []string{
		`"\ud800"`, `"\udc00"`, `"\ud800x"`, `"\ud800\u0041"`, `"\ud800\ud800"`, `"\ude00\ud83d"`, `"\ud83d\`, `"\ud83d\u`, `{"\ud800":1}`,
		`"\x41"`, `"\u12"`, `"\u12g4"`, `"\u"`, `"\`, `"`, `"a`, "\"\n\"", "\"\x00\"", `'a'`, `"\U0041"`,
	} {
		assert.NotEmpty(t, canonRefused(t, bad).Reason)
	}
}

func TestIC10_MemberOrderNullAbsent(t *testing.T) {
	assert.Equal(t, canon(t, `{"a":1,"b":{"c":[1,2],"d":null}}`), canon(t, " { \"b\" :\t{\"d\":null,\r\n\"c\":[1 , 2] } , \"a\":1 } "))
	assert.NotEqual(t, canon(t, `{"memo":null}`), canon(t, `{}`))
	assert.NotEqual(t, canon(t, `[1,2]`), canon(t, `[2,1]`), "the order of elements matters")
	assert.NotEqual(t, canon(t, `[]`), canon(t, `null`))
	assert.NotEqual(t, canon(t, `[]`), canon(t, `{}`))
	assert.NotEqual(t, canon(t, `{"a":{"b":1}}`), canon(t, `{"a":{},"b":1}`))
	// By bytes of the unescaped name: U+FFFF sorts before U+10000 (UTF-16
	// order would reverse them), and the escape `\"` sorts as a quote.
	assert.Equal(t, "{\"\":0,\"\\\"\":1,\"#\":2,\"a\":3,\"aa\":4,\"b\":5,\"\uffff\":6,\"\U00010000\":7}",
		canon(t, "{\"\U00010000\":7,\"\uffff\":6,\"b\":5,\"aa\":4,\"a\":3,\"#\":2,\"\\\"\":1,\"\":0}"))
}

func TestIC13_RepeatedMembers(t *testing.T) {
	for doc, path := range map[string]string{
		`{"amount":1,"amount":2}`:                            "/amount",
		`{"amount":1,"amount":1}`:                            "/amount",
		`{"a":1,"b":2,"a":3}`:                                "/a",
		`{"b":1,"a":2,"b":3}`:                                "/b",
		`{"x":[0,{"y":{"k":1,"z":0,"k":1}}]}`:                "/x/1/y/k",
		`{"amount":1,"\u0061mount":2}`:                       "/amount",
		`{"a/b":{"~":1,"~":2}}`:                              "/a~1b/~0",
		`{"":1,"":2}`:                                        "/",
		`{"amount":1,"Amount":2}`:                            "",
		`{"AMOUNT":1,"aMOUNT":2}`:                            "",
		"{\"key\":1,\"\u212aey\":2}":                         "", // KELVIN SIGN
		"{\"status\":1,\"\u017ftatus\":2}":                   "", // LATIN SMALL LETTER LONG S
		`{"S":1,"\u017f":2}`:                                 "",
		`{"é":1,"É":2}`:                                      "",
		"{\"σ\":1,\"ς\":2}":                                  "",
		`{"deep":[[{"Id":1,"id":2}]]}`:                       "",
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"B":1}`:        "",
		manyNames(50, `"N7":1`):                              "",
		manyNames(50, `"n7":1`):                              "/n7",
		manyNames(50, `"N3":0,"\u017f":1,"S":1`):             "",
		`{"volatile":{"a":1,"a":2}}`:                         "/volatile/a",
		"{\"memo\":\"x\",\"MEMO\":\"y\",\"memo\":\"first\"}": "/memo",
	} {
		refused := canonRefused(t, doc)
		assert.Contains(t, refused.Reason, "member name", doc)
		if path != "" {
			assert.Equal(t, path, refused.Path, doc)
		}
		h, err := newHashRule([]string{"/volatile", "/memo"})
		require.NoError(t, err)
		_, err = appendCanonical(nil, []byte(doc), h.paths)
		assert.Error(t, err, "refused inside volatile members too: %s", doc)
	}
	for _, fine := range []string{`{"a":{"a":{"a":1}}}`, `[{"a":1},{"a":1}]`, `{"ß":1,"ss":2}`, `{"a_b":1,"ab":2,"a-b":3}`, `{"A":1,"B":{"a":1}}`, manyNames(50, `"X":1`)} {
		canon(t, fine)
	}
}

func manyNames(n int, last string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, `"n%d":%d,`, n-1-i, i)
	}
	return b.String() + last + "}"
}

func TestIC13_Refused(t *testing.T) {
	for _, bad := range []string{
		"", " ", "\n", "\ufeff{}", "{", "}", "[", "]", "[1,]", "[,1]", "[1 2]", `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a" 1}`, `{a:1}`,
		`{1:2}`, "{}x", "{} {}", "nul", "nulll", "True", "// x\n{}", "[1]]", "\"\xff\"", "{\"\xc3\x28\":1}", "\"\xed\xa0\x80\"", "\"\xc0\x80\"",
		"\"\xf4\x90\x80\x80\"", "\"a\xc3", "\x00", `{"a":1 "b":2}`, "[\x0b1]", "\"a\\\xff\"", "tru", `{"a":"b`, `{"a`, `{"a":1`, "[\"a\"",
	} {
		assert.NotEmpty(t, canonRefused(t, bad).Reason)
	}
}

func TestIC13_ErrorsHoldNoValues(t *testing.T) {
	for _, doc := range []string{`{"pan":"4242\x"}`, `{"pan":[4242e999]}`, `{"pan":"4242` + "\xff" + `"}`, `{"pan":4242,"pan":4242}`, `{"x":{"pan":"4242" 1}}`} {
		refused := canonRefused(t, doc)
		assert.NotContains(t, refused.Error(), "4242")
		assert.NotEmpty(t, refused.Path)
		assert.Equal(t, strings.ToLower(refused.Error()), refused.Error())
	}
	long := canonRefused(t, `{"`+strings.Repeat("ü/", 5000)+`":1e999}`)
	assert.LessOrEqual(t, len(long.Path), maxPointerText)
	assert.True(t, strings.HasSuffix(long.Path, "…"))
	forged := canonRefused(t, `{"a\nlevel=info \u202e":x}`)
	assert.NotContains(t, forged.Path, "\n")
	assert.NotContains(t, forged.Path, "\u202e")
}

func TestIC13_Depth(t *testing.T) {
	nest := func(n int, open, inner, end string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	canon(t, nest(maxCanonDepth, "[", "1", "]"))
	canon(t, nest(maxCanonDepth, `{"a":`, "1", "}"))
	assert.Equal(t, "nested too deeply", canonRefused(t, nest(maxCanonDepth+1, "[", "1", "]")).Reason)
	assert.Equal(t, "nested too deeply", canonRefused(t, nest(maxCanonDepth+1, `{"a":`, "1", "}")).Reason)
	assert.Equal(t, "nested too deeply", canonRefused(t, strings.Repeat("[", 10<<20)).Reason)
	assert.Equal(t, "nested too deeply", canonRefused(t, strings.Repeat(`{"":`, 1<<20)).Reason)
}

func TestI3_VolatileMembersAreLeftOut(t *testing.T) {
	for _, c := range []struct {
		doc      string
		volatile []string
		want     string
	}{
		{`{"a":1,"b":2}`, []string{"/b"}, `{"a":1}`},
		{`{"b":2,"a":1}`, []string{"/b"}, `{"a":1}`},
		{`{"a":1}`, []string{"/a"}, `{}`},
		{`{"a":{"b":1,"c":2}}`, []string{"/a/b"}, `{"a":{"c":2}}`},
		{`{"a":{"b":1}}`, []string{"/a/b"}, `{"a":{}}`},
		{`{"a":{"b":1}}`, []string{"/b"}, `{"a":{"b":1}}`},
		{`{"A":1}`, []string{"/a"}, `{"A":1}`},
		{`{"\u0061":1}`, []string{"/a"}, `{}`},
		{`{"a/b":1,"~":2,"~1":3}`, []string{"/a~1b", "/~0"}, `{"~1":3}`},
		{`{"items":[{"id":1,"memo":"x"},{"memo":"y","id":2}]}`, []string{"/items/*/memo"}, `{"items":[{"id":1},{"id":2}]}`},
		{`{"items":[{"memo":"x"},{"memo":"y"}]}`, []string{"/items/1/memo"}, `{"items":[{"memo":"x"},{}]}`},
		{`[1,2,3]`, []string{"/1"}, `[1,3]`},
		{`[1,2,3]`, []string{"/*"}, `[]`},
		{`[1,2,3]`, []string{"/01", "/-1", "/3"}, `[1,2,3]`},
		{`{"1":0,"01":1}`, []string{"/1"}, `{"01":1}`},
		{`{"m":{"x":{"t":1,"u":2},"y":{"t":3}}}`, []string{"/m/*/t"}, `{"m":{"x":{"u":2},"y":{}}}`},
		{`{"a":{"x":1,"y":2,"z":3}}`, []string{"/*/x", "/a/y"}, `{"a":{"z":3}}`},
		{`{"*":1,"b":2}`, []string{"/*"}, `{}`},
		{`{"":1,"b":2}`, []string{"/"}, `{"b":2}`},
		{`5`, []string{"/a"}, `5`},
	} {
		assert.Equal(t, c.want, canon(t, c.doc, c.volatile...), "%v", c)
	}
}

func TestI3_VolatilePathsAreChecked(t *testing.T) {
	for _, bad := range []string{"", "a", "a/b", "#/a", "/a~", "/a~2", "/~~0", "/\xff", "/" + strings.Repeat("x", maxVolatilePath), strings.Repeat("/a", maxCanonDepth+1)} {
		_, err := newHashRule([]string{bad})
		assert.Error(t, err, "%q", bad)
	}
	var many []string
	for i := range maxVolatilePaths + 1 {
		many = append(many, fmt.Sprintf("/f%d", i))
	}
	_, err := newHashRule(many)
	assert.Error(t, err)
	_, err = newHashRule(many[1:])
	assert.NoError(t, err)
}

// TestI3_LargeBodies holds the cost to the input's size: 10 MB in the two most
// telling shapes and less in others, each in linear memory.
func TestI3_LargeBodies(t *testing.T) {
	const size, less = 10 << 20, 1 << 20
	fillTo := func(size int, open, end string, item func(i int) string) string {
		var b strings.Builder
		b.WriteString(open)
		for i := 0; b.Len() < size; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		return b.String() + end
	}
	fill := func(open, end string, item func(i int) string) string { return fillTo(less, open, end, item) }
	nested := strings.Repeat(`{"b":0,"a":`, maxCanonDepth-1)
	for name, doc := range map[string]string{
		"one string":     `"` + strings.Repeat("x", size) + `"`,
		"one name":       `{"` + strings.Repeat("x", size) + `":1}`,
		"numbers":        fill("[", "]", func(i int) string { return "1.5" }),
		"members":        fillTo(size, "{", "}", func(i int) string { return fmt.Sprintf(`"%d":0`, i) }),
		"reversed":       fill("{", "}", func(i int) string { return fmt.Sprintf(`"%08d":0`, 1<<26-i) }),
		"capitals":       fill("{", "}", func(i int) string { return fmt.Sprintf(`"K%d":0`, i) }),
		"escaped names":  fill("{", "}", func(i int) string { return fmt.Sprintf(`"\u004b\n%d":0`, i) }),
		"escapes":        `"` + strings.Repeat(`\u0001`, size/6) + `"`,
		"unsorted depth": nested + fill("[", "]", func(i int) string { return "0" }) + strings.Repeat("}", maxCanonDepth-1),
	} {
		t.Run(name, func(t *testing.T) {
			src := []byte(doc)
			h, err := newHashRule([]string{"/x/y", "/*/z"})
			require.NoError(t, err)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = h.sum(src)
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			ratio := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(src))
			t.Logf("%s: %.1f bytes allocated for each of the input", name, ratio)
			assert.Less(t, ratio, 40.0, "allocation, growth of slices included")
		})
	}
}

func TestI3_ConcurrentUse(t *testing.T) {
	h, err := newHashRule([]string{"/memo"})
	require.NoError(t, err)
	want := make([]Fingerprint, 8)
	docs := make([][]byte, len(want))
	for i := range want {
		docs[i] = fmt.Appendf(nil, `{"Z":%d,"\u0041":[%d,{"B":1,"a":2}],"memo":%d}`, i, i, i)
		want[i], err = h.sum(docs[i])
		require.NoError(t, err)
	}
	done := make(chan error, len(want))
	for i := range want {
		go func() {
			for range 300 {
				f, err := h.sum(docs[i])
				if err == nil && f.Sum != want[i].Sum {
					err = errors.New("another document's hash")
				}
				if err != nil {
					done <- err
					return
				}
				_, _ = h.sum([]byte(`{"A":{"B":[1,{"x":`)) // leaves every stack half full
			}
			done <- nil
		}()
	}
	for range want {
		assert.NoError(t, <-done)
	}
}
