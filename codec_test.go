package settle

import (
	"encoding/json"
	"errors"
	"flag"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updateCodec = flag.Bool("update-codec", false, "write a new golden file of the codec")

// fill sets every field of v that a store keeps to a random value; with full, none stays zero.
func fill(rnd *rand.Rand, v reflect.Value, full bool) {
	if !full && rnd.IntN(4) == 0 {
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		// Far past and future too, in whole microseconds.
		v.Set(reflect.ValueOf(time.UnixMicro(rnd.Int64N(1<<58) - 1<<57 + 1).UTC()))
		return
	case decimal.Decimal:
		n := big.NewInt(rnd.Int64N(1<<40) + 1)
		if rnd.IntN(4) == 0 {
			n.Exp(n, big.NewInt(1+rnd.Int64N(4)), nil)
		}
		if rnd.IntN(3) == 0 {
			n.Neg(n)
		}
		v.Set(reflect.ValueOf(decimal.NewFromBigInt(n, int32(rnd.IntN(100)-80))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(randomText(rnd))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		n := rnd.Int64() >> rnd.IntN(64)
		if rnd.IntN(8) == 0 {
			n = int64(Forever)
		}
		if full && n == 0 {
			n = 1
		}
		v.SetInt(n)
	case reflect.Slice:
		n := rnd.IntN(4)
		if full {
			n++
		}
		if n == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(rnd, v.Index(i), full)
		}
	case reflect.Uint8:
		v.SetUint(uint64(rnd.IntN(256)))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + rnd.IntN(4) {
			v.SetMapIndex(reflect.ValueOf(randomText(rnd)), reflect.ValueOf(randomText(rnd)))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(rnd, v.Elem(), full)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(rnd, v.Field(i), full)
		}
	default:
		panic("no random " + v.Type().String() + ": teach fill and the codec")
	}
}

func randomText(rnd *rand.Rand) string {
	alphabet := []string{"a", "Z", "7", "-", "_", "/", `"`, `\`, "\x00", "\n", "\x1f", "\x7f", "é", "漢", "😀", "\u2028", "<", "\xff", "{", "}", ",", " "}
	var b strings.Builder
	for range 1 + rnd.IntN(20) {
		b.WriteString(alphabet[rnd.IntN(len(alphabet))])
	}
	return b.String()
}

// kept is r without what a store keeps in columns of its own.
func kept(r Record) Record {
	r.Version, r.Token, r.Due, r.AsOf = 0, "", time.Time{}, time.Time{}
	return r
}

func TestCodecRoundTrip(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range 3000 {
		var want Record
		fill(rnd, reflect.ValueOf(&want).Elem(), i%3 == 0)
		want = kept(want)
		body, err := EncodeRecord(want)
		require.NoError(t, err)
		got, err := DecodeRecord(body, want.Request, want.Result)
		require.NoErrorf(t, err, "%q", body)
		if !reflect.DeepEqual(want, got) {
			again, _ := EncodeRecord(got)
			t.Fatalf("round trip %d differs\nwant %q\ngot  %q", i, body, again)
		}
	}
}

func TestEntryRoundTrip(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	for i := range 2000 {
		var want Entry
		fill(rnd, reflect.ValueOf(&want).Elem(), i%3 == 0)
		want.Seq, want.Operation, want.Write, want.At = 0, "", "", time.Time{}
		body := EncodeEntry(want)
		require.True(t, json.Valid(body))
		got, err := DecodeEntry(body)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, body := range []string{``, `{`, `{}{}`, `[]`, `{"from":1}`, `{"alarms":["a",]}`} {
		_, err := DecodeEntry([]byte(body))
		require.ErrorIs(t, err, ErrCorrupt, body)
	}
	got, err := DecodeEntry([]byte(`{"new":{"a":[]},"to":"failed"}`))
	require.NoError(t, err)
	require.Equal(t, Entry{To: StateFailed}, got)
}

// TestCodecIsJSON: what is written is JSON for every other reader too.
func TestCodecIsJSON(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 500 {
		var r Record
		fill(rnd, reflect.ValueOf(&r).Elem(), false)
		body, err := EncodeRecord(r)
		require.NoError(t, err)
		require.Truef(t, json.Valid(body), "%q", body)
		var indented strings.Builder
		enc := json.NewEncoder(&indented)
		enc.SetIndent(" ", "\t")
		require.NoError(t, enc.Encode(json.RawMessage(strings.ToValidUTF8(string(body), "?"))))
		got, err := DecodeRecord([]byte(indented.String()), nil, nil)
		require.NoError(t, err)
		assert.Equal(t, strings.ToValidUTF8(r.ID, "?"), got.ID)
		assert.Equal(t, r.KeyWindow, got.KeyWindow)
	}
}

func TestCodecForeignWriters(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body string
		want Record
	}{
		"empty":         {` { "v" : 1 } `, Record{}},
		"any order":     {`{"id":"a","v":1}`, Record{ID: "a"}},
		"unknown":       {`{"v":1,"new":{"a":[1,-2.5e-7,null,true,"x\u00e9"],"b":{}},"id":"a","last":[]}`, Record{ID: "a"}},
		"escapes":       {`{"v":1,"id":"\u0041\n\/\ud83d\ude00\ud83d\\"}`, Record{ID: "A\n/😀�\\"}},
		"explicit zero": {`{"v":1,"wake":false,"gen":0,"tries":-3,"window":9223372036854775807}`, Record{Tries: -3, KeyWindow: Forever}},
		"epoch":         {`{"v":1,"before":0}`, Record{SendBefore: time.UnixMicro(0).UTC()}},
	} {
		got, err := DecodeRecord([]byte(tt.body), nil, nil)
		require.NoError(t, err, name)
		assert.Equal(t, kept(tt.want), got, name)
	}
}

func TestCodecRefusesDamage(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":            ``,
		"null":               `null`,
		"no version":         `{"id":"SECRET"}`,
		"later version":      `{"v":2,"id":"SECRET"}`,
		"version text":       `{"v":"SECRET"}`,
		"cut":                `{"v":1,"id":"SECRET`,
		"cut after member":   `{"v":1,"id":"SECRET"`,
		"trailing comma":     `{"v":1,"id":"SECRET",}`,
		"two records":        `{"v":1,"id":"SECRET"}{}`,
		"trailing zeros":     "{\"v\":1}\x00\x00",
		"zeros":              strings.Repeat("\x00", 40),
		"zeros inside":       "{\"v\":1,\"id\":\"SEC\x00\x00ET\"}",
		"text for a number":  `{"v":1,"gen":"SECRET"}`,
		"fraction":           `{"v":1,"gen":1.5}`,
		"out of range":       `{"v":1,"gen":99999999999999999999}`,
		"number for text":    `{"v":1,"id":5}`,
		"number for list":    `{"v":1,"attempts":5}`,
		"list for object":    `{"v":1,"terms":[]}`,
		"null for text":      `{"v":1,"id":null}`,
		"word":               `{"v":1,"wake":SECRET}`,
		"unknown word":       `{"v":1,"new":SECRET}`,
		"bad escape":         `{"v":1,"id":"\q"}`,
		"bad unicode escape": `{"v":1,"id":"\u00g0"}`,
		"bad amount":         `{"v":1,"terms":{"amount":"SECRET"}}`,
		"two points":         `{"v":1,"terms":{"amount":"1.2.3"}}`,
		"empty amount":       `{"v":1,"terms":{"amount":""}}`,
		"deep":               `{"v":1,"new":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
	} {
		_, err := DecodeRecord([]byte(body), nil, nil)
		require.ErrorIs(t, err, ErrCorrupt, name)
		assert.NotContains(t, err.Error(), "SECRET", name) // I16
		assert.NotContains(t, err.Error(), "1.2", name)
	}
}

// FuzzCodec: no input makes the decoder panic or hang, and what it accepts
// survives another round.
func FuzzCodec(f *testing.F) {
	files, err := filepath.Glob("testdata/codec/*.json")
	require.NoError(f, err)
	for _, name := range files {
		body, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeRecord(body, nil, nil)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		again, err := EncodeRecord(r)
		require.NoError(t, err)
		got, err := DecodeRecord(again, nil, nil)
		require.NoError(t, err)
		third, err := EncodeRecord(got)
		require.NoError(t, err)
		assert.Equal(t, string(again), string(third))
	})
}

// goldenRecord has every member; a change of its golden file is a change of
// what is stored in people's databases.
func goldenRecord() Record {
	at := func(s int) time.Time {
		return time.UnixMicro(1_700_000_000_000_000 + int64(s)*1_000_000 + 123_456).UTC()
	}
	amount := Amount{Value: decimal.RequireFromString("19.90"), Unit: "EUR/major"}
	return Record{
		ID: "0192b8f4-0000-7000-8000-000000000001", Scope: "tenant-1", Kind: "charge", Key: "k/1", Subject: "order-8472",
		Purpose: "purchase", Generation: 2, Replaces: "0192b8f4-0000-7000-8000-000000000000", Hold: "order-8472",
		Undoes: Undo{Operation: "op", Ref: "pi_0", Whole: true}, ProviderKey: "s1_abc", Account: "stripe/acct_1/eu/test",
		Fingerprint: Fingerprint{Rule: "1", Volatile: []string{"/card/cvc", "/trace"}, Sum: "sha256:00ff"},
		Request:     Payload(`{"amount":1990}`), Result: Payload(`{"id":"pi_1"}`),
		Terms:     Terms{Account: "acct_1", Amount: amount, Other: map[string]string{"customer": "c\"1", "a": ""}},
		KeyWindow: 24 * time.Hour, SendBefore: at(900),
		Approval:  &Approval{By: "ann", At: at(-60), Until: at(600), Fingerprint: "sha256:00ff", Note: "ticket 7"},
		CreatedAt: at(0),
		Attempts: []Attempt{
			{N: 1, Start: at(1), End: at(31), Fate: FateNotSent, Grace: 90 * time.Second, Code: "dial_refused"},
			{N: 2, Start: at(40), Grace: 90*time.Second + 1},
		},
		References: []Reference{
			{Ref: "pi_1", Rank: RankSucceeded, Terms: Terms{Amount: amount}},
			{Ref: "pi_2", Rank: RankDisputed, Mismatch: true, Accepted: true, Foreign: true, Owner: "op-3"},
		},
		Progress: &Progress{State: StateActionRequired, Action: "https://pay.example/3ds?a=1&b=<2>", Sequence: 9, FromLookup: true, Since: at(41)},
		Ledger:   []Posting{{Operation: "op-2", Kind: "refund", Ref: "pi_1", Amount: Minor(500, "eur"), Status: PostingDone, Reason: "ret", Whole: true, External: "re_1"}},
		Code:     "card_declined", Message: "Ihre Karte wurde abgelehnt\n漢字", Withdrawn: "customer", ReplacedBy: "op-9", HoldFree: true,
		Review:    &Review{Reason: "deadline", Owner: "payments", Since: at(900), Deadline: at(90000), Overdue: true},
		ResumedAt: at(1000), Tries: 3, Waits: 2, RetryAt: at(1100), Wake: true, Consequence: ConsequenceDue, HookTries: 4,
		Feed:  Feed{Done: 3, Last: 7, State: StateReview, From: 2, Row: 5},
		State: StateReview, UpdatedAt: at(1200), PrunedAt: at(1300),
	}
}

// TestCodecGolden: every file ever written stays readable, and the newest one is
// what is written today.
func TestCodecGolden(t *testing.T) {
	t.Parallel()
	want := goldenRecord()
	body, err := EncodeRecord(want)
	require.NoError(t, err)
	if *updateCodec {
		require.NoError(t, os.WriteFile("testdata/codec/v1.json", body, 0o644))
	}
	columns := Record{Version: 1, Token: "x", Due: time.Now(), AsOf: time.Now()}
	for i := range reflect.TypeFor[Record]().NumField() {
		if reflect.ValueOf(want).Field(i).IsZero() && reflect.ValueOf(columns).Field(i).IsZero() {
			t.Errorf("the golden record says nothing about %s", reflect.TypeFor[Record]().Field(i).Name)
		}
	}
	files, err := filepath.Glob("testdata/codec/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		stored, err := os.ReadFile(name)
		require.NoError(t, err)
		got, err := DecodeRecord(stored, want.Request, want.Result)
		require.NoError(t, err, name)
		if name == filepath.Join("testdata", "codec", "v1.json") {
			assert.Equal(t, string(stored), string(body))
			assert.True(t, reflect.DeepEqual(want, got))
		}
	}
}

func TestDecimalText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0": "0", "0.00": "0.00", "19.90": "19.90", "-0.05": "-0.05", "1e3": "1e3", "-12e2": "-12e2", "0.000001": "0.000001",
		"123456789012345678901234567890.10": "123456789012345678901234567890.10", "1e-70": "1e-70",
		"999999999999999999": "999999999999999999", "9223372036854775808": "9223372036854775808",
	} {
		d := decimal.RequireFromString(in)
		got := string(appendDecimal(nil, d))
		assert.Equal(t, want, got)
		p := parser{s: `"` + got + `"`}
		back := p.decimal()
		require.NoError(t, p.err)
		assert.True(t, back.Equal(d) && back.Exponent() == d.Exponent(), "%s came back as %s", in, back)
	}
}

func TestErrCorruptIsNoOther(t *testing.T) {
	t.Parallel()
	_, err := DecodeRecord([]byte("{"), nil, nil)
	assert.False(t, errors.Is(err, ErrStore) || errors.Is(err, ErrNotFound))
}

// typicalRecord is a settled charge: one attempt, one reference.
func typicalRecord() Record {
	r := goldenRecord()
	r.Replaces, r.Hold, r.Undoes, r.Generation, r.Approval, r.SendBefore = "", "", Undo{}, 0, nil, time.Time{}
	r.Fingerprint.Volatile, r.Progress, r.Ledger, r.Review = nil, nil, nil, nil
	r.Code, r.Message, r.Withdrawn, r.ReplacedBy, r.HoldFree, r.Wake = "", "", "", "", false, false
	r.ResumedAt, r.RetryAt, r.Tries, r.HookTries, r.Consequence = time.Time{}, time.Time{}, 0, 0, ConsequenceDone
	r.Terms.Other = nil
	r.Attempts, r.References = r.Attempts[:1], r.References[:1]
	return r
}

func BenchmarkEncodeRecord(b *testing.B) {
	r := typicalRecord()
	body, _ := EncodeRecord(r)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = EncodeRecord(r)
	}
}

func BenchmarkDecodeRecord(b *testing.B) {
	body, _ := EncodeRecord(typicalRecord())
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRecord(body, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeGeneric is what encoding/json costs for the same bytes.
func BenchmarkDecodeGeneric(b *testing.B) {
	body, _ := EncodeRecord(typicalRecord())
	type terms struct {
		Account, Amount, Unit string
		Other                 map[string]string
	}
	b.ReportAllocs()
	for b.Loop() {
		var v struct {
			V                                                                         int
			ID, Scope, Kind, Key, Subject, Purpose, ProviderKey, Account, Consequence string
			Fingerprint                                                               struct{ Rule, Sum string }
			Terms                                                                     terms
			Window, Created                                                           int64
			Attempts                                                                  []struct {
				N, Start, End, Grace int64
				Fate, Code           string
			}
			Refs []struct {
				Ref, Rank string
				Terms     terms
			}
		}
		if err := json.Unmarshal(body, &v); err != nil {
			b.Fatal(err)
		}
	}
}
