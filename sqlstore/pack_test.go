package sqlstore

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// TestPackWords: every word has a code of its own, which fits.
func TestPackWords(t *testing.T) {
	seen := map[string]bool{}
	for _, word := range packWords {
		assert.False(t, seen[word], "twice: %s", word)
		seen[word] = true
		p := newPacker().pack([]byte(word))
		assert.LessOrEqual(t, len(p), 2, word)
		assert.Equal(t, word, string(newPacker().unpack(nil, p)))
	}
	assert.LessOrEqual(t, len(packWords)-packOnes, 0x100-0x20)
}

// TestPackCodes: what is stored stays readable, so a code never changes. Words are only added.
func TestPackCodes(t *testing.T) {
	const text = `{"v":1,"attempts":[{"n":1,"start":1,"fate":"applied","grace":2}],"refs":[{"ref":"0192b8f4-7a6c-7000-8000-00000000000a",` +
		`"x":"00112233445566778899aabbccddeeff"},{"from":"review","to":"failed"}}`
	const packed = "\x011\x022}],\"refs\":[{\"ref\":\""
	got := newPacker().pack([]byte(text))
	assert.Equal(t, text, string(newPacker().unpack(nil, got)))
	assert.Contains(t, string(got), "\x1c\x01\x92\xb8\xf4\x7a\x6c\x70\x00\x80\x00\x00\x00\x00\x00\x00\x0a", packed)
	assert.Contains(t, string(got), "\x1d\x10\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff")
	for code, word := range map[string]string{
		"\x01": `{"v":1,"attempts":[{"n":1,"start":`, "\x0b": `{"v":1,"provider_key":"`, "\x11": packWords[13], "\x1a": `,"attempt":`,
		"\x1b\x06\x0a\x24\x18\x1e\x40\x00": "1700000000000000",
		"\x1f\x20":                         `{"from":"`, "\x1f\x2a": `"submitting"`, "\x1f\x71": `/minor"`, "\x1f\x75": `}}`,
	} {
		assert.Equal(t, word, string(newPacker().unpack(nil, []byte(code))))
	}
}

// TestUnpackDamaged: what is no packed text is no JSON afterwards, and nothing panics.
func TestUnpackDamaged(t *testing.T) {
	for _, b := range []string{"\x1f", "\x1f\xff", "\x1d", "\x1d\x02a", "\x1c", "\x1cabc", "\x1b", "\x1b123456", "\x00", "\x09"} {
		_, err := settle.DecodeRecord(newPacker().unpack(nil, []byte(`{"v":1`+b+`}`)), nil, nil)
		require.ErrorIs(t, err, settle.ErrCorrupt, "%q", b)
	}
}

func TestShortIDs(t *testing.T) {
	d := PostgreSQL()
	seen := map[string]string{}
	for _, id := range []string{
		"", "c1", "0192b8f4-7a6c-7000-8000-00000000000a", "0192B8F4-7a6c-7000-8000-00000000000a", "0192b8f4-7a6c-7000-8000+00000000000a",
		strings.Repeat("x", 15), strings.Repeat("x", 16), strings.Repeat("x", 17), strings.Repeat("x", 16) + "\x00", strings.Repeat("x", 15) + "\x00",
		strings.Repeat("x", 16) + "\x00\x00", "\x01\x92\xb8\xf4\x7a\x6c\x70\x00\x80\x00\x00\x00\x00\x00\x00\x0a", "\x00",
	} {
		b := shortID(id)
		assert.Equal(t, id, d.text(b))
		assert.Empty(t, seen[string(b)])
		seen[string(b)] = id + "."
	}
	assert.Len(t, shortID("0192b8f4-7a6c-7000-8000-00000000000a"), 16)
}

func FuzzPack(f *testing.F) {
	for _, word := range packWords {
		f.Add([]byte(word + "x" + word))
	}
	f.Add([]byte("\x00\x1d\x1e\x1f\x1c 0192b8f4-7a6c-7000-8000-00000000000a 000000000000000000000000000000000000000000000000"))
	f.Add([]byte("9999999999999999,1000000000000000,0000000000000001,10000000000000000,123456789012345f"))
	f.Add(bytes.Repeat([]byte("a"), 1100))
	k := newPacker()
	f.Fuzz(func(t *testing.T, text []byte) {
		if got := k.unpack(nil, k.pack(text)); !bytes.Equal(got, text) {
			t.Fatalf("%q became %q", text, got)
		}
		k.unpack(nil, text)
	})
}
