package settle

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The keyed fingerprint is HMAC-SHA-256 over the canonical text, whose spelling never matters; the one without a key
// is what it always was. Neither vector is ever rewritten.
func TestI3_KeyedFingerprint(t *testing.T) {
	secret := []byte(strings.Repeat("k", 32))
	keys := fingerprintKeys{{ID: "2026-11", Secret: secret}}
	h, err := newHashRule([]string{"/token"})
	require.NoError(t, err)
	for _, spelling := range []string{`{"amount":1999,"currency":"EUR","token":"a"}`, `{ "currency":"\u0045UR", "amount":1.999e3 }`} {
		plain, err := h.sum([]byte(spelling))
		require.NoError(t, err)
		canonical := `{"amount":1999,"currency":"EUR"}`
		sum := sha256.Sum256([]byte(canonical))
		assert.Equal(t, Fingerprint{Rule: "json-1", Volatile: []string{"/token"}, Sum: hex.EncodeToString(sum[:])}, plain)
		keyed, err := h.under(keys).sum([]byte(spelling))
		require.NoError(t, err)
		m := hmac.New(sha256.New, secret)
		m.Write([]byte(canonical))
		assert.Equal(t, Fingerprint{Rule: "json-1+hmac:2026-11", Volatile: []string{"/token"}, Sum: hex.EncodeToString(m.Sum(nil))}, keyed)
		for name, f := range map[string]Fingerprint{"plain": plain, "keyed": keyed} {
			ok, err := h.under(keys).covers(f, []byte(spelling))
			assert.NoError(t, err, name)
			assert.True(t, ok, name)
			ok, err = h.under(keys).covers(f, []byte(`{"amount":2000,"currency":"EUR"}`))
			assert.NoError(t, err, name)
			assert.False(t, ok, name)
		}
		for _, others := range []fingerprintKeys{nil, {{ID: "2026-12", Secret: secret}}} {
			ok, err := h.under(others).covers(keyed, []byte(spelling))
			assert.ErrorIs(t, err, ErrSealed)
			assert.False(t, ok)
		}
		ok, err := keyed.coversUnder([]byte(spelling), fingerprintKeys{{ID: "2026-11", Secret: []byte(strings.Repeat("x", 32))}})
		assert.NoError(t, err)
		assert.False(t, ok, "another secret under the same id")
	}
}

func TestFingerprintKeysAreChecked(t *testing.T) {
	good := []byte(strings.Repeat("k", 32))
	assert.Empty(t, fingerprintKeys{{"2026-11", good}, {"b.c_D", good}}.problem())
	assert.Empty(t, fingerprintKeys(nil).problem())
	for name, ks := range map[string]fingerprintKeys{
		"no id":        {{"", good}},
		"an odd id":    {{"a b", good}},
		"a long id":    {{strings.Repeat("a", 33), good}},
		"a short key":  {{"a", good[:31]}},
		"an id twice":  {{"a", good}, {"a", good}},
		"a plus in it": {{"a+hmac:b", good}},
	} {
		assert.NotEmpty(t, ks.problem(), name)
	}
	mine := FingerprintKey{"a", append([]byte(nil), good...)}
	kept := fingerprintKeys{mine}.clone()
	mine.Secret[0] ^= 1
	assert.Equal(t, good, kept[0].Secret, "the caller changes its own copy only")
}
