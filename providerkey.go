package settle

import (
	"crypto/sha256"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Alphabets for a provider's contract. An alphabet is the list of the ASCII
// characters that the provider accepts in a key; "" stands for all printable
// ones without the space. A provider that compares keys without regard to case
// must be given an alphabet with one case only.
const (
	// AlphabetUUID says that the key must be an RFC 9562 UUID. It is a word,
	// not a list of its four letters.
	AlphabetUUID = "uuid"
	// AlphabetURL is A-Z, a-z, 0-9, underscore and hyphen.
	AlphabetURL = AlphabetAlnum + "_-"
	// AlphabetAlnum is A-Z, a-z and 0-9.
	AlphabetAlnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + alphabetLower + "0123456789"
	// AlphabetHex is 0-9 and a-f.
	AlphabetHex = "0123456789abcdef"

	alphabetLower = "abcdefghijklmnopqrstuvwxyz"
)

// MaxProviderKey bounds a provider key, whatever longer a contract allows: the
// key is stored, and a longer one would be no safer.
const MaxProviderKey = 255

const (
	// minKeyBits is what must remain of the hash when a key is hashed. At 2^40
	// operations of one account it leaves a collision chance below 2^-40.
	minKeyBits = 120

	// keyDomain separates these hashes from every other use of SHA-256. It is
	// part of the derivation and never changes; keys are stored (I2), so a new
	// derivation would be a new constant beside it.
	keyDomain = "settle-key-1\n"

	// uuidTextLen is the length of a UUID in its hyphenated form.
	uuidTextLen = 36
)

// deriveProviderKey makes the key that is sent to the provider from the parts
// of an operation's identity: scope, kind, what follows, and so on. It is a
// pure function, called once, before the first attempt; the result is stored
// and every request carries the stored bytes (I2).
//
// Different tuples of parts give different keys, so a refund can never be
// answered with a charge's result (IC-14, T-01):
//
//   - the literal form is every part preceded by its length and a separator,
//     "4:acme6:charge1:k8:order-17". It can be read back unambiguously, and it
//     always begins with a digit;
//   - where that is too long or has a character outside the alphabet, the form
//     is a letter and as much of a SHA-256 as fits (IC-36). No literal begins
//     with a letter, so a caller who types another's hash as a key gets a
//     literal that holds it, which is another string;
//   - a provider that wants UUIDs gets one of version 8 made of the same hash.
//
// maxLen 0 means [MaxProviderKey]. A contract that leaves fewer than
// minKeyBits of hash is refused for every tuple, also for one that would fit
// literally: it must fail when it is made, not at the first long key.
func deriveProviderKey(maxLen int, alphabet string, parts ...string) (string, error) {
	if len(parts) == 0 {
		return "", errors.New("provider key: no parts")
	}
	shape, err := newKeyShape(maxLen, alphabet)
	if err != nil {
		return "", err
	}
	return shape.key(parts...), nil
}

// keyShape is a contract's length and alphabet, made ready once: New refuses what
// cannot be served, and the derivation is on the path of every call.
type keyShape struct {
	maxLen    int
	uuid      bool
	allowed   asciiSet
	separator byte // 0: no literal form
	prefix    byte // of the hash form
	digits    string
}

func newKeyShape(maxLen int, alphabet string) (*keyShape, error) {
	if maxLen < 0 {
		return nil, errors.New("provider key: negative length")
	}
	if maxLen == 0 || maxLen > MaxProviderKey {
		maxLen = MaxProviderKey
	}
	k := &keyShape{maxLen: maxLen}
	if alphabet == AlphabetUUID {
		if maxLen < uuidTextLen {
			return nil, errors.New("provider key: a uuid needs 36 characters")
		}
		k.uuid = true
		return k, nil
	}
	if alphabet == "" {
		for b := byte('!'); b <= '~'; b++ {
			k.allowed[b] = true
		}
	}
	for i := range len(alphabet) {
		if b := alphabet[i]; b <= ' ' || b > '~' {
			return nil, errors.New("provider key: the alphabet must be printable ascii without space")
		}
		k.allowed[alphabet[i]] = true
	}
	k.prefix, k.digits = k.allowed.hashForm(maxLen - 1)
	if k.digits == "" {
		return nil, errors.New("provider key: length and alphabet leave too few bits of hash")
	}
	// Any character but a digit ends a length; which one it is depends on the
	// alphabet alone. Two literals with different separators differ at the
	// first of them.
	if separators := k.allowed.only(":._-~x"); separators != "" && k.allowed.only("0123456789") == "0123456789" {
		k.separator = separators[0]
	}
	return k, nil
}

// key derives the key of one tuple of parts.
func (k *keyShape) key(parts ...string) string {
	if k.uuid {
		return uuidKey(parts)
	}
	if key, ok := k.literal(parts); ok {
		return key
	}
	return hashKey(k.prefix, k.digits, k.maxLen, parts)
}

// asciiSet is the set of characters that a provider accepts.
type asciiSet [128]bool

// only returns the characters of list that are in the set.
func (a *asciiSet) only(list string) string {
	var b strings.Builder
	for i := range len(list) {
		if a[list[i]] {
			b.WriteByte(list[i])
		}
	}
	return b.String()
}

// literal returns the length-delimited form of parts, if it is allowed.
func (k *keyShape) literal(parts []string) (string, bool) {
	if k.separator == 0 {
		return "", false
	}
	size := 0
	for _, p := range parts {
		if size += len(p) + 2; size > k.maxLen {
			return "", false
		}
		for i := range len(p) {
			if p[i] >= 0x80 || !k.allowed[p[i]] {
				return "", false
			}
		}
	}
	key := appendDelimited(make([]byte, 0, k.maxLen), k.separator, parts)
	return string(key), len(key) <= k.maxLen
}

// appendDelimited appends an injective encoding of parts. The number of parts
// needs no field of its own: each announces its length, so the end of the text
// is the end of the last.
func appendDelimited(dst []byte, separator byte, parts []string) []byte {
	for _, p := range parts {
		dst = strconv.AppendInt(dst, int64(len(p)), 10)
		dst = append(dst, separator)
		dst = append(dst, p...)
	}
	return dst
}

// hashForm picks the prefix and the digits of hashed keys, from the narrowest
// set that leaves enough bits in n characters. One case is preferred, for a
// provider's database may compare without regard to case and not say so;
// punctuation comes last, for keys end up in URLs and spreadsheets. No digits
// means that the contract cannot be served.
func (a *asciiSet) hashForm(n int) (prefix byte, digits string) {
	const (
		decimal = "0123456789"
		upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	)
	var all strings.Builder
	for b := range a {
		if a[b] {
			all.WriteByte(byte(b))
		}
	}
	letters := a.only("h" + alphabetLower + upper + all.String())
	letters = strings.TrimLeft(letters, decimal)
	if letters == "" {
		return 0, "" // digits alone: nothing would set a hash apart from a literal
	}
	lists := []string{decimal + alphabetLower, decimal + upper, decimal + upper + alphabetLower, all.String()}
	if a.only(alphabetLower) == "" {
		lists = lists[1:] // or ten digits alone might do, and waste bits
	}
	for _, list := range lists {
		set := a.only(list)
		if len(set) > 1 && float64(n)*math.Log2(float64(len(set))) >= minKeyBits {
			return letters[0], set
		}
	}
	return 0, ""
}

// keyHash is the hash that every derived form is made of.
func keyHash(parts []string) [sha256.Size]byte {
	return sha256.Sum256(appendDelimited([]byte(keyDomain), ':', parts))
}

// hashKey writes the hash as a number in base len(digits), lowest digit first,
// cut to what fits: the cut loses high digits, so every character kept counts.
func hashKey(prefix byte, digits string, maxLen int, parts []string) string {
	sum := keyHash(parts)
	rest, base, digit := new(big.Int).SetBytes(sum[:]), big.NewInt(int64(len(digits))), new(big.Int)
	// The number of digits depends on the base, never on the hash, so a hash
	// with leading zeros is as long as any other.
	n := min(maxLen-1, int(math.Ceil(8*sha256.Size/math.Log2(float64(len(digits))))))
	key := make([]byte, 1, n+1)
	key[0] = prefix
	for range n {
		rest.DivMod(rest, base, digit)
		key = append(key, digits[digit.Int64()])
	}
	return string(key)
}

// uuidKey makes a version 8 UUID: 122 bits of the hash. The version bits are
// set, so it is never the all-zero UUID that some providers refuse.
func uuidKey(parts []string) string {
	sum := keyHash(parts)
	var id uuid.UUID
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x80 // version 8
	id[8] = id[8]&0x3f | 0x80 // the RFC's variant
	return id.String()
}
