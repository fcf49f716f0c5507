package settle

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"strings"
)

// FingerprintKey makes fingerprints keyed: HMAC-SHA-256 instead of SHA-256. Without one whoever reads the database can
// try out what a request of few possibilities was (an amount, a card number's digits), encrypted or not.
type FingerprintKey struct {
	// ID names the key in the rule of each fingerprint that it makes: 1 to 32 of a-z, A-Z, 0-9, dot, underscore and hyphen.
	// An id must never get another secret: repeats of operations that have it would be mismatches.
	ID string
	// Secret is at least 32 random bytes.
	Secret []byte
}

// minSecret is the least length of a secret: that of the hash.
const minSecret = 32

// keyedRule stands between a rule and the id of the key in Fingerprint.Rule.
const keyedRule = "+hmac:"

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

// fingerprintKeys are those of an engine: the first makes new fingerprints, all verify.
type fingerprintKeys []FingerprintKey

func (ks fingerprintKeys) problem() string {
	seen := map[string]bool{}
	for _, k := range ks {
		switch {
		case !keyID.MatchString(k.ID):
			return "an id is 1 to 32 of a-z, A-Z, 0-9, dot, underscore and hyphen"
		case len(k.Secret) < minSecret:
			return "a secret is at least 32 random bytes"
		case seen[k.ID]:
			return "an id is there twice"
		}
		seen[k.ID] = true
	}
	return ""
}

// clone returns keys that the caller cannot change.
func (ks fingerprintKeys) clone() fingerprintKeys {
	out := make(fingerprintKeys, len(ks))
	for i, k := range ks {
		out[i] = FingerprintKey{k.ID, append([]byte(nil), k.Secret...)}
	}
	return out
}

// errNoKey says that a fingerprint's key is not here: nothing can be told by it.
var errNoKey = &noKeyError{}

type noKeyError struct{}

func (*noKeyError) Error() string        { return "settle: the fingerprint's key is not here" }
func (*noKeyError) Is(target error) bool { return target == ErrSealed }
func (*noKeyError) Explain() string      { return "the fingerprint's key is not here" }

// primary is the key of new fingerprints; nil: they are not keyed.
func (ks fingerprintKeys) primary() *FingerprintKey {
	if len(ks) == 0 {
		return nil
	}
	return &ks[0]
}

// of splits the rule of a fingerprint and finds its key; nil: it is not keyed.
func (ks fingerprintKeys) of(rule string) (base string, key *FingerprintKey, err error) {
	base, id, keyed := strings.Cut(rule, keyedRule)
	if !keyed {
		return rule, nil, nil
	}
	for i := range ks {
		if ks[i].ID == id {
			return base, &ks[i], nil
		}
	}
	return base, nil, errNoKey
}

// rule is the word of base under k.
func (k *FingerprintKey) rule(base string) string {
	if k == nil {
		return base
	}
	return base + keyedRule + k.ID
}

// sum hashes text.
func (k *FingerprintKey) sum(text []byte) [sha256.Size]byte {
	if k == nil {
		return sha256.Sum256(text)
	}
	m := hmac.New(sha256.New, k.Secret)
	m.Write(text)
	return [sha256.Size]byte(m.Sum(nil))
}

// hashRuleEvent is the rule of the fingerprint of an event: that of its raw bytes.
const hashRuleEvent = "sha256"

func (k *FingerprintKey) event(payload []byte) Fingerprint {
	sum := k.sum(payload)
	return Fingerprint{Rule: k.rule(hashRuleEvent), Sum: hex.EncodeToString(sum[:])}
}

// sameEvent reports whether payload is what the kept event was made of. If nobody can tell it is taken for the same: the first
// is kept in any case.
func (ks fingerprintKeys) sameEvent(was *Record, payload []byte) bool {
	base, key, err := ks.of(was.Fingerprint.Rule)
	if err == nil && base == hashRuleEvent {
		return key.event(payload).Sum == was.Fingerprint.Sum
	}
	ev, err := was.event()
	return err != nil || !was.PrunedAt.IsZero() || string(ev.Payload) == string(payload)
}

// mayBe reports that f and g may be of one request: they are, or were made by rules that say nothing about each other.
func (f Fingerprint) mayBe(g Fingerprint) bool {
	return !f.IsZero() && (f.Rule != g.Rule || f.Sum == g.Sum)
}

// sameRequest reports whether d asks for what cur was made of, by the rule of cur (I3). If the key of its fingerprint is gone
// the requests themselves are compared. An error says that it cannot be told, which is never a match.
func sameRequest(k kind, cur *Record, request []byte) (bool, error) {
	ok, err := k.covers(cur.Fingerprint, request)
	if !errors.Is(err, ErrSealed) || cur.Request == nil || cur.Request.Sealed() {
		return ok, err
	}
	h, bad := newHashRule(cur.Fingerprint.Volatile)
	if base, _, _ := strings.Cut(cur.Fingerprint.Rule, keyedRule); base != HashRuleJSON1 || bad != nil {
		return false, err
	}
	f, bad := h.sum(cur.Request)
	if bad != nil {
		return false, err
	}
	return h.covers(f, request)
}
