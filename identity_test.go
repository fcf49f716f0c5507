package settle

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIC36_LimitsAreBytes(t *testing.T) {
	runes := strings.Repeat("😀", 63) // 252 bytes
	assert.NoError(t, checkName("key", runes+"abc", MaxKey))
	err := checkName("key", runes+"😀", MaxKey)
	assert.EqualError(t, err, "key: must not be longer than 255 bytes")
	assert.NoError(t, checkName("key", strings.Repeat("k", 43), MaxKey))
	assert.NoError(t, checkName("key", strings.Repeat("k", MaxKey), MaxKey))
	assert.Error(t, checkName("key", strings.Repeat("k", MaxKey+1), MaxKey))
	assert.NoError(t, checkSize("request", MaxRequest, MaxRequest))
	assert.EqualError(t, checkSize("request", MaxRequest+1, MaxRequest), "request: must not be longer than 1048576 bytes")
}

func TestIC36_Names(t *testing.T) {
	for _, ok := range []string{"a", "order-8472", "a b", "Ünïcødé", "日本語", "user@example.com", "~!#$%", "a\u00a0b", "\ufffd", "{}\"'\\"} {
		assert.NoError(t, checkName("key", ok, MaxKey), "%q", ok)
	}
	for s, rule := range map[string]string{
		"":             "empty",
		" a":           "space",
		"a ":           "space",
		" ":            "space",
		"\u00a0a":      "space",
		"a\u3000":      "space",
		"a\u2003":      "space",
		"a\tb":         "control",
		"a\n":          "control",
		"\x00":         "control",
		"a\x7f":        "control",
		"a\u0085b":     "control",
		"a\u200bb":     "control",
		"a\u200d":      "control",
		"\ufeffa":      "control",
		"a\u202eb":     "control",
		"a\u00adb":     "control",
		"a\u2028b":     "control",
		"a\u2029":      "control",
		"e\u0301":      "combining",
		"\u0301":       "combining",
		"a\u20dd":      "combining",
		"ा":            "combining",
		"a\ufe0f":      "combining",
		"\xff":         "utf-8",
		"a\xc3":        "utf-8",
		"\xed\xa0\x80": "utf-8",
	} {
		err := checkName("subject", s, MaxSubject)
		var refused *nameError
		require.ErrorAs(t, err, &refused, "%q", s)
		assert.Equal(t, "subject", refused.Field)
		assert.Contains(t, refused.Rule, rule, "%q", s)
	}
}

func TestI16_NameErrorsHoldNoValue(t *testing.T) {
	for _, s := range []string{"secret\n", "secret ", "secret\xff", strings.Repeat("secret", 100), "secret\u0301"} {
		assert.NotContains(t, checkName("scope", s, MaxScope).Error(), "secret")
	}
	assert.NotContains(t, checkKind("Secret").Error(), "ecret")
	assert.NotContains(t, checkKind("secret!").Error(), "secret")
}

func TestIC14_Kinds(t *testing.T) {
	for _, ok := range []string{"a", "charge", "payments.charge-2_b", "a1", strings.Repeat("k", MaxKind)} {
		assert.NoError(t, checkKind(ok), ok)
	}
	for _, bad := range []string{"", "1a", "-a", ".a", "_a", "Charge", "chargE", "a b", "a/b", "ä", "aä", "a\n", "a:b", strings.Repeat("k", MaxKind+1)} {
		assert.Error(t, checkKind(bad), "%q", bad)
	}
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"", "a", " a", "é", "e\u0301", "a\u200bb", "\xff", "日本語", "a\u2028", "\u00a0", "a\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// The rules once more, each on its own and without the short cut.
		bad := s == "" || len(s) > MaxSubject || !utf8.ValidString(s) || strings.TrimSpace(s) != s
		for _, r := range s {
			bad = bad || unicode.IsControl(r) || unicode.IsMark(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
		}
		err := checkName("subject", s, MaxSubject)
		if (err != nil) != bad {
			t.Fatalf("%q: %v", s, err)
		}
		if err != nil && len(s) > 12 && strings.Contains(err.Error(), s) {
			t.Fatalf("%q is in the message", s)
		}
		if checkKind(s) == nil && (bad || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "") {
			t.Fatalf("%q is no kind", s)
		}
	})
}
