package settle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keyContracts are the real contracts of the provider table (docs/providers.md).
var keyContracts = []struct {
	name     string
	maxLen   int
	alphabet string
}{
	{"amazon pay", 32, AlphabetURL},
	{"moov", 36, ""},
	{"google aip-155", 36, AlphabetUUID},
	{"azure", 0, AlphabetUUID},
	{"worldline", 40, ""},
	{"square", 45, ""},
	{"adyen", 64, ""},
	{"ec2", 64, AlphabetURL},
	{"paypal", 108, ""},
	{"stripe", 255, ""},
	{"telnyx", 255, AlphabetAlnum + "_:-"},
	{"unstated", 0, ""},
	{"hex 32", 32, AlphabetHex},
	{"hex 64", 64, AlphabetHex},
	{"lower 36", 36, "abcdefghijklmnopqrstuvwxyz0123456789-"},
	{"alnum 32", 32, AlphabetAlnum},
	{"upper 40", 40, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"},
	{"no digits", 64, "abcdefghijklmnop"},
}

// checkKey holds a key against its contract.
func checkKey(t testing.TB, maxLen int, alphabet, key string) {
	t.Helper()
	if maxLen == 0 {
		maxLen = 255
	}
	require.NotEmpty(t, key)
	require.LessOrEqual(t, len(key), maxLen)
	if alphabet == AlphabetUUID {
		id, err := uuid.Parse(key)
		require.NoError(t, err)
		require.Equal(t, uuid.Version(8), id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
		require.Equal(t, id.String(), key)
		require.NotEqual(t, uuid.Nil, id)
		return
	}
	for _, r := range key {
		require.True(t, r > ' ' && r <= '~' && (alphabet == "" || strings.ContainsRune(alphabet, r)), "%q in %q", r, key)
	}
}

// adversarialTuples have every part that could make two tuples run together.
func adversarialTuples() [][]string {
	tuples := [][]string{
		{""},
		{"", ""},
		{"", "", ""},
		{"a"},
		{"a", ""},
		{"", "a"},
		{"a", "b"},
		{"ab"},
		{"a:b"},
		{"1:a"},
		{"1:a1:b"},
		{"1", "a"},
		{"1:", "a"},
		{"a1:b"},
		{"a1", "b"},
		{"a", "1:b"},
		{"0:"},
		{"0"},
		{"00"},
		{"1xa"},
		{"1_a", "1-a"},
		{"1.a"},
		{"t", "charge", "k", "123"},
		{"t", "refund", "k", "123"},
		{"u", "charge", "k", "123"}, // T-01
		{"acme", "charge", "k", "order-17"},
		{"beta", "charge", "k", "order-17"},
		{"acme", "charge", "i", "order-17", "purchase"},
		{"acme", "charge", "k", "order-17purchase"},
		{"acme", "charge", "k", "order-17", "1"},
		{"acme", "charge", "k", "order-17", "2"},
		{"acme", "charge", "k", "order-171"},
		{"Acme", "charge", "k", "order-17"},
		{"é"},
		{"e\u0301"},
		{"\xff"},
		{"\xfe"},
		{"\x00"},
		{"a b"},
		{"a", " b"},
		{strings.Repeat("a", 255)},
		{strings.Repeat("a", 254), "a"},
		{strings.Repeat("a", 256)},
		{strings.Repeat("9", 300)},
	}
	// A part equal to another tuple's key, in every form (T-01).
	base := slices.Clone(tuples)
	for _, c := range keyContracts {
		for _, parts := range base {
			if len(parts) > 2 {
				key, err := deriveProviderKey(c.maxLen, c.alphabet, parts...)
				if err == nil {
					tuples = append(tuples, []string{key}, []string{"acme", "charge", "k", key})
				}
			}
		}
	}
	return tuples
}

func distinctTuples(tuples [][]string) map[string][]string {
	distinct := map[string][]string{}
	for _, parts := range tuples {
		distinct[fmt.Sprintf("%q", parts)] = parts
	}
	return distinct
}

func TestIC36_ProviderKeys(t *testing.T) {
	for _, c := range keyContracts {
		t.Run(c.name, func(t *testing.T) {
			seen := map[string]string{}
			for id, parts := range distinctTuples(adversarialTuples()) {
				key, err := deriveProviderKey(c.maxLen, c.alphabet, parts...)
				require.NoError(t, err)
				checkKey(t, c.maxLen, c.alphabet, key)
				again, err := deriveProviderKey(c.maxLen, c.alphabet, parts...)
				require.NoError(t, err)
				require.Equal(t, key, again)
				require.Empty(t, seen[key], "%s and %s share %q", seen[key], id, key)
				seen[key] = id
			}
		})
	}
}

// TestT01_KeysOfAllContractsAreDistinct: a contract may change its length or
// alphabet while keys made under the former one are still remembered.
func TestT01_KeysOfAllContractsAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for id, parts := range distinctTuples(adversarialTuples()) {
		for _, c := range keyContracts {
			key, err := deriveProviderKey(c.maxLen, c.alphabet, parts...)
			require.NoError(t, err)
			if other, ok := seen[key]; ok {
				require.Equal(t, id, other, "%q", key)
			}
			seen[key] = id
		}
	}
}

func TestT01_KeyEqualToAnothersHashForm(t *testing.T) {
	long := []string{"acme", "charge", "k", strings.Repeat("x", 255)}
	hashed, err := deriveProviderKey(64, "", long...)
	require.NoError(t, err)
	assert.Equal(t, byte('h'), hashed[0])
	typed, err := deriveProviderKey(64, "", "acme", "charge", "k", hashed)
	require.NoError(t, err)
	alone, err := deriveProviderKey(64, "", hashed)
	require.NoError(t, err)
	assert.NotEqual(t, hashed, typed)
	assert.NotEqual(t, hashed, alone)
	assert.True(t, isDigit(alone[0]), "a literal begins with a digit")
	assert.Contains(t, alone, hashed)
}

// TestIC36_GoldenProviderKeys must never change: restarted registrations and
// restored backups derive the key anew and must meet the provider's memory.
func TestIC36_GoldenProviderKeys(t *testing.T) {
	short := []string{"acme", "charge", "k", "order-17", "0"}
	long := []string{"acme", "charge", "i", "order-" + strings.Repeat("8", 60), "purchase", "0"}
	for _, c := range []struct {
		maxLen   int
		alphabet string
		parts    []string
		want     string
	}{
		{255, "", short, "4:acme6:charge1:k8:order-171:0"},
		{108, AlphabetURL, short, "4_acme6_charge1_k8_order-171_0"},
		{64, AlphabetAlnum + "-", short, "4-acme6-charge1-k8-order-171-0"},
		{64, "", long, "h01nfwsubd42p785d6jv0umfwodl9kcjvatsnw5uq7cbzcjghx0"},
		{32, "", long, "h01nfwsubd42p785d6jv0umfwodl9kcj"},
		{32, AlphabetURL, long, "h01nfwsubd42p785d6jv0umfwodl9kcj"},
		{36, AlphabetUUID, long, "2551b0b7-2db9-8d6e-bb90-33de3cfa0b1f"},
		{36, AlphabetUUID, short, "45d7beda-3d24-8981-ac01-6900a745ade8"},
		{32, AlphabetHex, short, "a606de2fda17d1b3ec96f8474706d22c"},
		{40, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", short, "AARZCUINZCRYZU387QGOPM83482YA499PWB3AZD6"},
		{24, AlphabetAlnum, short, "hASZn7KJrYv0svvW1yznqVuO"},
		{20, "", short, "h=P7{3MaFkWvF<~[\\S3y"},
	} {
		got, err := deriveProviderKey(c.maxLen, c.alphabet, c.parts...)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%d %q", c.maxLen, c.alphabet)
	}
}

func TestIC36_ContractsRefused(t *testing.T) {
	for _, c := range []struct {
		maxLen   int
		alphabet string
	}{
		{-1, ""},
		{1, ""},
		{19, ""},
		{21, AlphabetAlnum},
		{30, AlphabetHex},
		{35, AlphabetUUID},
		{255, "0123456789"},
		{255, "a"},
		{255, "aaaa"},
		{120, "ab"},
		{255, "abc "},
		{255, "abcé"},
		{255, "abc\n"},
	} {
		_, err := deriveProviderKey(c.maxLen, c.alphabet, "a")
		assert.Error(t, err, "%v: also for a tuple that would fit literally", c)
	}
	for _, c := range []struct {
		maxLen   int
		alphabet string
	}{{20, ""}, {22, AlphabetAlnum}, {31, AlphabetHex}, {36, AlphabetUUID}, {121, "ab"}, {1000, ""}} {
		key, err := deriveProviderKey(c.maxLen, c.alphabet, strings.Repeat("é", 200))
		require.NoError(t, err, "%v", c)
		checkKey(t, c.maxLen, c.alphabet, key)
	}
	_, err := deriveProviderKey(64, "")
	assert.Error(t, err, "no parts")
	// The order and repetition of the alphabet's characters say nothing.
	a, err := deriveProviderKey(40, "0123456789abcdef", "é")
	require.NoError(t, err)
	b, err := deriveProviderKey(40, "fedcba98765432100123", "é")
	require.NoError(t, err)
	assert.Equal(t, a, b)
}

func TestT01_RandomTuplesAreInjective(t *testing.T) {
	rng := newTestRand(t)
	pieces := []string{"", "a", "b", "1", "0", ":", "_", "-", "1:", "1_a", "h", "k", "é", " ", "2:ab"}
	part := func(rng *rand.Rand) string {
		var b strings.Builder
		for range rng.IntN(4) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		return b.String()
	}
	for _, c := range keyContracts {
		seen := map[string]string{}
		for range 2000 {
			parts := make([]string, 1+rng.IntN(4))
			for i := range parts {
				parts[i] = part(rng)
			}
			key, err := deriveProviderKey(c.maxLen, c.alphabet, parts...)
			require.NoError(t, err)
			id := fmt.Sprintf("%q", parts)
			if other, ok := seen[key]; ok {
				require.Equal(t, other, id, "%s: %q", c.name, key)
			}
			seen[key] = id
		}
	}
}

// parseLiteral reads a literal key back: the proof that it is injective.
func parseLiteral(key string) (parts []string, ok bool) {
	for key != "" {
		n := 0
		for n < len(key) && isDigit(key[n]) {
			n++
		}
		size, err := strconv.Atoi(key[:n])
		if err != nil || n == len(key) || len(key) < n+1+size {
			return nil, false
		}
		parts = append(parts, key[n+1:n+1+size])
		key = key[n+1+size:]
	}
	return parts, true
}

func FuzzProviderKey(f *testing.F) {
	for i, parts := range adversarialTuples()[:40] {
		var four [4]string
		copy(four[:], parts)
		f.Add(uint8(i), four[0], four[1], four[2], four[3])
	}
	f.Fuzz(func(t *testing.T, which uint8, a, b, c, d string) {
		contract := keyContracts[int(which)%len(keyContracts)]
		tuples := map[string][]string{}
		for _, parts := range [][]string{{a, b, c, d}, {b, a, c, d}, {a + b, c, d}, {a, b + c, d}, {a, b, c + d}, {a, b, c}, {a}, {a + b + c + d}, {a, "", b, c, d}} {
			tuples[fmt.Sprintf("%q", parts)] = parts
		}
		seen := map[string]string{}
		for id, parts := range tuples {
			key, err := deriveProviderKey(contract.maxLen, contract.alphabet, parts...)
			if err != nil {
				t.Fatal(err)
			}
			checkKey(t, contract.maxLen, contract.alphabet, key)
			if other, ok := seen[key]; ok {
				t.Fatalf("%s and %s share %q", other, id, key)
			}
			seen[key] = id
			if contract.alphabet != AlphabetUUID && isDigit(key[0]) {
				back, ok := parseLiteral(key)
				if !ok || fmt.Sprintf("%q", back) != id {
					t.Fatalf("literal %q of %s reads back as %q", key, id, back)
				}
			}
		}
	})
}
