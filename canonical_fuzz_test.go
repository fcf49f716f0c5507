package settle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The oracle is a second reading of the rules, slow and independent: it builds
// a tree with encoding/json's tokens and compares numbers as big.Rat.

type (
	oracleMember struct {
		name string
		item any
	}
	oracleObject []oracleMember
)

var loneSurrogate = regexp.MustCompile(`(?i)\\ud[89a-f][0-9a-f]{2}`)

// oracleParse returns the tree of doc, or false if the rules refuse it.
func oracleParse(doc []byte) (any, bool) {
	if !utf8.Valid(doc) || !json.Valid(doc) || oracleLone(string(doc)) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	return oracleRead(dec, 0)
}

// oracleLone finds half a surrogate pair among the escapes of valid JSON.
func oracleLone(doc string) bool {
	doc = strings.ReplaceAll(doc, `\\`, "__") // escapes of a backslash
	pair := regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}`)
	return loneSurrogate.MatchString(pair.ReplaceAllString(doc, "_"))
}

func oracleRead(dec *json.Decoder, depth int) (any, bool) {
	tok, err := dec.Token()
	if err != nil {
		return nil, false
	}
	switch tok := tok.(type) {
	case json.Number:
		return oracleNumber(string(tok))
	case json.Delim:
		if depth == maxCanonDepth {
			return nil, false
		}
		if tok == '[' {
			list := []any{}
			for dec.More() {
				item, ok := oracleRead(dec, depth+1)
				if !ok {
					return nil, false
				}
				list = append(list, item)
			}
			_, _ = dec.Token()
			return list, true
		}
		object := oracleObject{}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, false
			}
			for _, m := range object {
				if strings.EqualFold(m.name, name.(string)) {
					return nil, false
				}
			}
			item, ok := oracleRead(dec, depth+1)
			if !ok {
				return nil, false
			}
			object = append(object, oracleMember{name.(string), item})
		}
		_, _ = dec.Token()
		return object, true
	}
	return tok, true
}

func oracleNumber(text string) (any, bool) {
	if len(text) > maxNumberText {
		return nil, false
	}
	mantissa, exp, _ := strings.Cut(strings.ToLower(text), "e")
	if exp != "" {
		e, err := strconv.Atoi(exp)
		if err != nil || e > maxNumberExponent || e < -maxNumberExponent {
			return nil, false
		}
	}
	digits := strings.Trim(strings.Replace(strings.TrimPrefix(mantissa, "-"), ".", "", 1), "0")
	if len(digits) > maxNumberDigits {
		return nil, false
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, false
	}
	if r.Sign() != 0 {
		ten, size := big.NewInt(10), new(big.Rat).Abs(r)
		least := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(ten, big.NewInt(-minAdjustedExponent), nil))
		bound := new(big.Rat).SetInt(new(big.Int).Exp(ten, big.NewInt(maxAdjustedExponent+1), nil))
		if size.Cmp(least) < 0 || size.Cmp(bound) >= 0 {
			return nil, false
		}
	}
	return r, true
}

func oracleEqual(a, b any) bool {
	switch a := a.(type) {
	case *big.Rat:
		b, ok := b.(*big.Rat)
		return ok && a.Cmp(b) == 0
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, oracleEqual)
	case oracleObject:
		b, ok := b.(oracleObject)
		if !ok || len(a) != len(b) {
			return false
		}
		for _, m := range a {
			i := slices.IndexFunc(b, func(o oracleMember) bool { return o.name == m.name })
			if i < 0 || !oracleEqual(m.item, b[i].item) {
				return false
			}
		}
		return true
	}
	return a == b
}

// oracleWrite writes a tree in another spelling: other order, spaces, escapes
// and number forms.
func oracleWrite(rng *rand.Rand, v any) string {
	space := func() string { return []string{"", "", " ", "\n\t", "\r"}[rng.IntN(5)] }
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case *big.Rat:
		return oracleSpell(rng, v)
	case string:
		return oracleQuote(rng, v)
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = space() + oracleWrite(rng, item) + space()
		}
		return "[" + strings.Join(parts, ",") + "]"
	case oracleObject:
		parts := make([]string, len(v))
		for i, j := range rng.Perm(len(v)) {
			parts[i] = space() + oracleQuote(rng, v[j].name) + space() + ":" + space() + oracleWrite(rng, v[j].item) + space()
		}
		return "{" + strings.Join(parts, ",") + space() + "}"
	}
	panic(fmt.Sprintf("unexpected %T", v))
}

func oracleQuote(rng *rand.Rand, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r >= 0x10000 && rng.IntN(2) == 0:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r < 0x10000 && rng.IntN(3) == 0, r < 0x20, r == '"', r == '\\':
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == '/' && rng.IntN(2) == 0:
			b.WriteString(`\/`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// oracleSpell writes an exact decimal with its point moved by a random shift.
func oracleSpell(rng *rand.Rand, r *big.Rat) string {
	places := 0
	for scaled := new(big.Rat).Set(r); !scaled.IsInt(); places++ {
		scaled.Mul(scaled, big.NewRat(10, 1))
	}
	if places > 300 || r.Sign() == 0 {
		return r.FloatString(places)
	}
	shift := rng.IntN(7) - 3
	factor := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil))
	moved := new(big.Rat)
	if shift >= 0 {
		moved.Mul(r, factor)
	} else {
		moved.Quo(r, factor)
	}
	return moved.FloatString(places+3+rng.IntN(3)) + []string{"e", "E"}[rng.IntN(2)] + fmt.Sprintf("%+d", -shift)
}

var canonSeeds = []string{
	`{}`, `[]`, `null`, `true`, `"x"`, `0`, `-0`, `100`, `1e2`, `1.50`, `{"amount":1,"amount":2}`, `{"a":1,"A":2}`, `{"v":1e400}`,
	`{"b":[1,{"c":null}],"a":"\u003c\/\ud83d\ude00"}`, `"\ud800"`, "\"\xff\"", `[1e308,5e-324,1e-325]`, `{"k":1,"\u212a":2}`,
	`9007199254740993`, `9007199254740992`, `1.0101010101010101010101010101010108`, `{"":{"":""}}`, `[[[[]]]]`, `1e1000000000`,
	"{\"\u2028\":1}", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11,"l":12,"M":13,"n":14}`, ` [ 1 , 2 ] `, `0e2000`,
}

// checkCanonical holds one pair of documents against the oracle.
func checkCanonical(t *testing.T, a, b []byte) {
	t.Helper()
	treeA, okA := oracleParse(a)
	canonA, errA := appendCanonical(nil, a, nil)
	if errA == nil != okA {
		t.Fatalf("%q: error %v, oracle accepts: %v", a, errA, okA)
	}
	differingFields(Fingerprint{Rule: HashRuleJSON1, Volatile: []string{"/*/a", "/0"}}, a, b)
	if !okA {
		return
	}
	again, err := appendCanonical(nil, canonA, nil)
	if err != nil || !bytes.Equal(again, canonA) {
		t.Fatalf("%q: canonical %q again is %q, %v", a, canonA, again, err)
	}
	back, ok := oracleParse(canonA)
	if !ok || !oracleEqual(treeA, back) {
		t.Fatalf("%q: canonical %q means something else", a, canonA)
	}
	rng := rand.New(rand.NewPCG(uint64(len(a)), uint64(len(b))))
	other := oracleWrite(rng, treeA)
	if canonO, err := appendCanonical(nil, []byte(other), nil); err != nil || !bytes.Equal(canonO, canonA) {
		t.Fatalf("%q is %q, spelled %q it is %q, %v", a, canonA, other, canonO, err)
	}
	none := Fingerprint{Rule: HashRuleJSON1}
	if d := differingFields(none, a, []byte(other)); d != nil {
		t.Fatalf("%q and %q differ in %q", a, other, d)
	}
	treeB, okB := oracleParse(b)
	if !okB {
		return
	}
	canonB, err := appendCanonical(nil, b, nil)
	if err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	if oracleEqual(treeA, treeB) != bytes.Equal(canonA, canonB) {
		t.Fatalf("%q and %q: canonical %q and %q", a, b, canonA, canonB)
	}
	if d := differingFields(none, a, b); (d == nil) != bytes.Equal(canonA, canonB) || len(d) > maxDifferences {
		t.Fatalf("%q and %q differ in %q", a, b, d)
	}
}

func FuzzCanonical(f *testing.F) {
	for i, s := range canonSeeds {
		f.Add([]byte(s), []byte(canonSeeds[(i+1)%len(canonSeeds)]))
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(checkCanonical)
}

// TestI3_CanonicalAgainstOracle is the fuzz target's property on documents
// that are built to be valid and near each other.
func TestI3_CanonicalAgainstOracle(t *testing.T) {
	t.Parallel()
	rng := newTestRand(t)
	for range 3000 {
		a := oracleRandom(rng, 4)
		b := oracleRandom(rng, 1)
		checkCanonical(t, []byte(oracleWrite(rng, a)), []byte(oracleWrite(rng, b)))
	}
}

func oracleRandom(rng *rand.Rand, depth int) any {
	words := []string{"", "a", "b", "A", "é", "É", "K", "\u212a", "<&>", "\u2028", "😀", "\x00", "\\", "\"", "/", "~", "amount", "Amount"}
	kind := rng.IntN(7)
	if depth == 0 {
		kind = rng.IntN(5)
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return rng.IntN(2) == 0
	case 2:
		return words[rng.IntN(len(words))] + words[rng.IntN(len(words))]
	case 3:
		return big.NewRat(rng.Int64N(3)-1, 1)
	case 4:
		r, _ := oracleNumber(fmt.Sprintf("%d.%de%d", rng.Int64()-1<<62, rng.Int64N(100), rng.IntN(40)-20))
		return r
	case 5:
		list := []any{}
		for range rng.IntN(4) {
			list = append(list, oracleRandom(rng, depth-1))
		}
		return list
	}
	object := oracleObject{}
	for range rng.IntN(16) {
		name := words[rng.IntN(len(words))]
		if rng.IntN(2) == 0 {
			name += words[rng.IntN(len(words))]
		}
		if !slices.ContainsFunc(object, func(m oracleMember) bool { return strings.EqualFold(m.name, name) }) || rng.IntN(50) == 0 {
			object = append(object, oracleMember{name, oracleRandom(rng, depth-1)})
		}
	}
	return object
}

// The folding of a large object must be what encoding/json does.
func TestIC13_FoldingIsEqualFold(t *testing.T) {
	rng := newTestRand(t)
	interesting := []rune("kK\u212asS\u017fσςΣéÉßẞåÅ\u212bİıiIǅǆǄ\u1e9e\u0345ιͅ\u1fbe\u03b9")
	word := func() []byte {
		var w []byte
		for range rng.IntN(3) {
			w = utf8.AppendRune(w, interesting[rng.IntN(len(interesting))])
		}
		return w
	}
	for range 50000 {
		a, b := word(), word()
		if bytes.EqualFold(a, b) != bytes.Equal(appendFolded(nil, a), appendFolded(nil, b)) {
			t.Fatalf("%q and %q", a, b)
		}
		require.LessOrEqual(t, len(appendFolded(nil, a)), len(a))
	}
	var target struct{ Status int }
	require.NoError(t, json.Unmarshal([]byte("{\"\u017ftatus\":7}"), &target))
	assert.Equal(t, 7, target.Status, "the reason for all this")
}
