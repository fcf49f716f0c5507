package settle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updateHash = flag.Bool("update-hash", false, "rewrite testdata/hash; a changed sum breaks every record out there")

// hashVector is one golden file.
type hashVector struct {
	Note      string   `json:"note"`
	Input     string   `json:"input"` // raw text: an input need not be valid
	Volatile  []string `json:"volatile"`
	Canonical string   `json:"canonical,omitempty"`
	Sum       string   `json:"sum,omitempty"`
	Path      string   `json:"path,omitempty"`
	Refused   string   `json:"refused,omitempty"`
}

// TestI3_GoldenHashes: these hashes are in databases. A failure here means a
// new rule word, never a new golden file.
func TestI3_GoldenHashes(t *testing.T) {
	files, err := filepath.Glob("testdata/hash/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var vectors []hashVector
			require.NoError(t, json.Unmarshal(data, &vectors))
			for i, want := range vectors {
				got := hashVector{Note: want.Note, Input: want.Input, Volatile: want.Volatile}
				h, err := newHashRule(want.Volatile)
				require.NoError(t, err)
				text, err := appendCanonical(nil, []byte(want.Input), h.paths)
				if err != nil {
					var refused *requestError
					require.ErrorAs(t, err, &refused)
					got.Path, got.Refused = refused.Path, refused.Reason
				} else {
					sum := sha256.Sum256(text)
					got.Canonical, got.Sum = string(text), hex.EncodeToString(sum[:])
					f, err := newFingerprint([]byte(want.Input), want.Volatile)
					require.NoError(t, err)
					assert.Equal(t, got.Sum, f.Sum)
				}
				if *updateHash {
					vectors[i] = got
					continue
				}
				assert.Equal(t, want, got)
			}
			if *updateHash {
				var b strings.Builder
				enc := json.NewEncoder(&b)
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				require.NoError(t, enc.Encode(vectors))
				require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
			}
		})
	}
}

func fingerprintOf(t testing.TB, v any, volatile ...string) Fingerprint {
	t.Helper()
	data, err := encodeRequest(v)
	require.NoError(t, err)
	f, err := newFingerprint(data, volatile)
	require.NoError(t, err)
	return f
}

type hashedCharge struct {
	Order    string          `json:"order"`
	Amount   decimal.Decimal `json:"amount"`
	Currency string          `json:"currency"`
	Lines    []string        `json:"lines"`
}

func TestI3_StructMapAndRawAgree(t *testing.T) {
	want := fingerprintOf(t, hashedCharge{Order: "a<b", Amount: decimal.RequireFromString("10.50"), Currency: "EUR"})
	assert.Equal(t, want, fingerprintOf(t, map[string]any{"lines": nil, "currency": "EUR", "order": "a<b", "amount": "10.5"}))
	assert.Equal(t, want, fingerprintOf(t, json.RawMessage(`{"order":"a\u003cb", "amount":"10.5", "currency":"EUR", "lines":null}`)))
	assert.Equal(t, "json-1", want.Rule)
	assert.Nil(t, want.Volatile)
	assert.Len(t, want.Sum, 64)
	assert.Equal(t, strings.ToLower(want.Sum), want.Sum)
}

func TestIC66_ValuesAreExact(t *testing.T) {
	assert.NotEqual(t, fingerprintOf(t, map[string]string{"amount": "10"}), fingerprintOf(t, map[string]string{"amount": "10.00"}))
	type money struct{ Amount decimal.Decimal }
	// What decimal.Decimal encodes to is its text. The library's own text
	// drops trailing zeros; either way it is the text that counts.
	for _, s := range []string{"10", "10.00", "0.1", "1e3", "12345678901234567890.123456789"} {
		d := decimal.RequireFromString(s)
		assert.Equal(t, fingerprintOf(t, map[string]string{"Amount": d.String()}), fingerprintOf(t, money{d}), s)
	}
}

func TestI3_TimesSlicesAndMarshallers(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5e8, time.UTC)
	assert.Equal(t, fingerprintOf(t, at), fingerprintOf(t, "2026-03-01T12:00:00.5Z"))
	assert.NotEqual(t, fingerprintOf(t, at), fingerprintOf(t, at.In(time.FixedZone("", 3600))))
	assert.NotEqual(t, fingerprintOf(t, []int(nil)), fingerprintOf(t, []int{}))
	assert.Equal(t, fingerprintOf(t, []int(nil)), fingerprintOf(t, nil))
	assert.NotEqual(t, fingerprintOf(t, map[string]int(nil)), fingerprintOf(t, map[string]int{}))
	type holder struct{ V any }
	assert.Equal(t, fingerprintOf(t, holder{json.RawMessage(` {"b":1.0, "a":2} `)}), fingerprintOf(t, holder{map[string]int{"a": 2, "b": 1}}))
	assert.Equal(t, fingerprintOf(t, holder{ownJSON(`{"n": 1e1}`)}), fingerprintOf(t, holder{map[string]int{"n": 10}}))
}

type ownJSON string

func (o ownJSON) MarshalJSON() ([]byte, error) { return []byte(o), nil }

func TestI3_OptionalFieldAddedLater(t *testing.T) {
	type before struct {
		Order string `json:"order"`
	}
	type after struct {
		Order string     `json:"order"`
		Note  string     `json:"note,omitempty"`
		At    time.Time  `json:"at,omitzero"`
		By    *time.Time `json:"by,omitempty"`
	}
	type careless struct {
		Order string  `json:"order"`
		Note  *string `json:"note"`
	}
	old := fingerprintOf(t, before{"o-1"})
	assert.Equal(t, old, fingerprintOf(t, after{Order: "o-1"}))
	assert.NotEqual(t, old, fingerprintOf(t, after{Order: "o-1", Note: "n"}))
	assert.NotEqual(t, old, fingerprintOf(t, careless{Order: "o-1"}), "the rule that the docs state")
}

func TestIC66_RuleIsStoredWithTheHash(t *testing.T) {
	body1 := []byte(`{"amount":"10","memo":"for task A"}`)
	body2 := []byte(`{"memo":"reworded","amount":"10"}`)
	body3 := []byte(`{"amount":"10.00","memo":"for task A"}`)
	strict, err := newFingerprint(body1, nil)
	require.NoError(t, err)
	loose, err := newFingerprint(body1, []string{"/memo"})
	require.NoError(t, err)
	for _, c := range []struct {
		f    Fingerprint
		body []byte
		want bool
	}{{strict, body1, true}, {strict, body2, false}, {strict, body3, false}, {loose, body1, true}, {loose, body2, true}, {loose, body3, false}} {
		// Whatever the configuration is today, the record's own rule decides.
		for _, today := range [][]string{nil, {"/memo"}, {"/amount"}} {
			h, err := newHashRule(today)
			require.NoError(t, err)
			got, err := h.covers(c.f, c.body)
			require.NoError(t, err)
			assert.Equal(t, c.want, got, "%v %s %v", c.f.Volatile, c.body, today)
		}
		got, err := c.f.covers(c.body)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
	assert.Equal(t, []string{"/memo"}, differingFields(strict, body1, body2))
	assert.Nil(t, differingFields(loose, body1, body2))
	assert.Equal(t, []string{"/amount"}, differingFields(loose, body1, body3))
}

func TestI3_CoversNeverGuesses(t *testing.T) {
	request := []byte(`{"a":1}`)
	good, err := newFingerprint(request, nil)
	require.NoError(t, err)
	h, err := newHashRule(nil)
	require.NoError(t, err)
	for name, f := range map[string]Fingerprint{
		"none":         {},
		"unknown rule": {Rule: "json-2", Sum: good.Sum},
		"no rule":      {Sum: good.Sum},
		"bad volatile": {Rule: good.Rule, Sum: good.Sum, Volatile: []string{"x"}},
		"everything":   {Rule: good.Rule, Sum: good.Sum, Volatile: []string{""}},
	} {
		for _, covers := range []func(Fingerprint, []byte) (bool, error){Fingerprint.covers, h.covers} {
			ok, err := covers(f, request)
			assert.Error(t, err, name)
			assert.False(t, ok, name)
		}
		assert.Nil(t, differingFields(f, request, []byte(`{}`)), name)
	}
	ok, err := Fingerprint{Rule: good.Rule}.covers(request)
	assert.NoError(t, err)
	assert.False(t, ok, "an empty sum covers nothing")
	for _, covers := range []func(Fingerprint, []byte) (bool, error){Fingerprint.covers, h.covers} {
		ok, err = covers(good, []byte(`{"a":1,"a":1}`))
		assert.Error(t, err)
		assert.False(t, ok)
	}
}

func TestI3_VolatileListIsNormal(t *testing.T) {
	list := []string{"/b", "/a", "/b"}
	f, err := newFingerprint([]byte(`{"a":1,"b":2,"c":3}`), list)
	require.NoError(t, err)
	assert.Equal(t, []string{"/a", "/b"}, f.Volatile)
	assert.Equal(t, []string{"/b", "/a", "/b"}, list, "the caller's list is untouched")
	h, err := newHashRule(list)
	require.NoError(t, err)
	first, err := h.sum([]byte(`{"c":3}`))
	require.NoError(t, err)
	assert.Equal(t, f, first)
	first.Volatile[0] = "/c"
	second, err := h.sum([]byte(`{"c":3}`))
	require.NoError(t, err)
	assert.Equal(t, f, second, "fingerprints do not share their lists")
	assert.True(t, Fingerprint{}.IsZero())
	assert.False(t, second.IsZero())
}

func TestIC11_VolatileExpiry(t *testing.T) {
	first := []byte(`{"sub":5,"expires_at":"10:30"}`)
	later := []byte(`{"sub":5,"expires_at":"10:40"}`)
	f, err := newFingerprint(first, []string{"/expires_at"})
	require.NoError(t, err)
	ok, err := f.covers(later)
	require.NoError(t, err)
	assert.True(t, ok)
	f, err = newFingerprint(first, nil)
	require.NoError(t, err)
	ok, err = f.covers(later)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Equal(t, []string{"/expires_at"}, differingFields(f, first, later))
}

func TestIC57_OtherCodeIsAMismatch(t *testing.T) {
	f, err := newFingerprint([]byte(`{"otp":"000000"}`), nil)
	require.NoError(t, err)
	ok, err := f.covers([]byte(`{"otp":"123456"}`))
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Equal(t, []string{"/otp"}, differingFields(f, []byte(`{"otp":"000000"}`), []byte(`{"otp":"123456"}`)))
}

func TestI3_DifferingFields(t *testing.T) {
	for _, c := range []struct {
		stored, given string
		volatile      []string
		want          []string
	}{
		{`{"a":1}`, `{"a":1.0}`, nil, nil},
		{`{"a":1,"b":2}`, `{"b":3,"a":1}`, nil, []string{"/b"}},
		{`{"a":1}`, `{}`, nil, []string{"/a"}},
		{`{}`, `{"a":null}`, nil, []string{"/a"}},
		{`{"z":1,"a":{"y":[1,{"x":2}]}}`, `{"a":{"y":[1,{"x":3}]},"zz":1}`, nil, []string{"/a/y/1/x", "/z", "/zz"}},
		{`[1,2,3]`, `[1,5]`, nil, []string{"/1", "/2"}},
		{`{"a":[1]}`, `{"a":{"0":1}}`, nil, []string{"/a"}},
		{`{"a":[]}`, `{"a":null}`, nil, []string{"/a"}},
		{`1`, `2`, nil, []string{""}},
		{`{}`, `[]`, nil, []string{""}},
		{`{"a/b~":1}`, `{"a/b~":2}`, nil, []string{"/a~1b~0"}},
		{`{"\"\\\u0001":"\"},["}`, `{"\"\\\u0001":"]"}`, nil, []string{"/\"\\\ufffd"}},
		{`{"b":1,"a!":1,"a":{"b":1}}`, `{"b":1,"a!":2,"a":{"b":2}}`, nil, []string{"/a!", "/a/b"}},
		{`{"a":1,"v":1}`, `{"a":2,"v":2}`, []string{"/v"}, []string{"/a"}},
		{`{"l":[{"v":1,"k":1},{"v":1,"k":2}]}`, `{"l":[{"v":2,"k":1},{"v":3,"k":3}]}`, []string{"/l/*/v"}, []string{"/l/1/k"}},
		{`[1,2,3,4]`, `[9,2,9,5]`, []string{"/0", "/2"}, []string{"/3"}},
		{`[1,2]`, `[1,2,3]`, []string{"/*"}, nil},
		{``, `{}`, nil, nil},
		{`{}`, `{"a":1,"a":2}`, nil, nil},
	} {
		f := Fingerprint{Rule: HashRuleJSON1, Volatile: c.volatile}
		assert.Equal(t, c.want, differingFields(f, []byte(c.stored), []byte(c.given)), "%s %s", c.stored, c.given)
		assert.Equal(t, c.want, differingFields(f, []byte(c.given), []byte(c.stored)), "%s %s", c.given, c.stored)
	}
}

func TestI3_DifferingFieldsAreBounded(t *testing.T) {
	f := Fingerprint{Rule: HashRuleJSON1}
	object := func(n int) []byte {
		m := map[string]int{}
		for i := range n {
			m[fmt.Sprintf("f%03d", i)] = i
		}
		data, err := json.Marshal(m)
		require.NoError(t, err)
		return data
	}
	exact := differingFields(f, object(maxDifferences), []byte(`{}`))
	assert.Len(t, exact, maxDifferences)
	assert.Equal(t, "/f015", exact[15])
	more := differingFields(f, object(500), []byte(`{}`))
	assert.Len(t, more, maxDifferences)
	assert.Equal(t, "/f014", more[14])
	assert.Equal(t, "…", more[15])
	long := differingFields(f, []byte(`{"`+strings.Repeat("é", 1<<20)+`":1}`), []byte(`{}`))
	require.Len(t, long, 1)
	assert.LessOrEqual(t, len(long[0]), maxPointerText)
	for _, name := range differingFields(f, []byte(`{"pan":"4242","cvc":[1,2]}`), []byte(`{"pan":"4243","cvc":[1,3]}`)) {
		assert.NotContains(t, name, "424")
	}
}
