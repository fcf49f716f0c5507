package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// StripeHeader is the header with Stripe's signatures.
const StripeHeader = "Stripe-Signature"

// maxSignatures bounds the work that an unverified header can ask for: one for each secret that the provider has.
const maxSignatures = 16

// Stripe is Stripe's scheme (docs.stripe.com/webhooks, "Verify webhook signatures manually"): the header
// Stripe-Signature has a time t and signatures v1, which are HMAC-SHA256 of t, a full stop and the body, in
// hexadecimal. Other versions are passed over: v0 is for test events and proves nothing. The
// key is the whole secret, whsec_ included.
func Stripe() Scheme { return stripe{} }

type stripe struct{}

func (stripe) Key(secret string) ([]byte, error) {
	if secret == "" {
		return nil, errors.New("empty")
	}
	return []byte(secret), nil
}

func (stripe) Parse(h http.Header) (Signature, error) {
	line, err := Only(h, StripeHeader)
	if err != nil {
		return Signature{}, err
	}
	var stamp string
	var at time.Time
	var sums [][]byte
	for element := range strings.SplitSeq(line, ",") {
		name, value, ok := strings.Cut(element, "=")
		if !ok {
			return Signature{}, Refuse(ReasonMalformed)
		}
		switch name {
		case "t":
			if stamp != "" { // which of them was signed would be a guess
				return Signature{}, Refuse(ReasonMalformed)
			}
			stamp = value
			if at, err = Seconds(value); err != nil {
				return Signature{}, err
			}
		case "v1":
			sum, err := hex.DecodeString(value)
			if err != nil || len(sum) != sha256.Size {
				continue // like a version that is not known: the next one may be right
			}
			if sums = append(sums, sum); len(sums) > maxSignatures {
				return Signature{}, Refuse(ReasonMalformed)
			}
		}
	}
	if stamp == "" || len(sums) == 0 {
		return Signature{}, Refuse(ReasonMalformed)
	}
	return Signature{At: at, Verify: func(key, body []byte) bool {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(stamp + "."))
		mac.Write(body)
		want, good := mac.Sum(nil), false
		for _, sum := range sums {
			good = hmac.Equal(sum, want) || good
		}
		return good
	}}, nil
}

// Only returns the one line of a header that a Scheme needs. No line is ReasonMissing; several are
// ReasonMalformed, since whatever came before us may have looked at another one.
func Only(h http.Header, name string) (string, error) {
	switch lines := h.Values(name); {
	case len(lines) == 0 || len(lines) == 1 && lines[0] == "":
		return "", Refuse(ReasonMissing)
	case len(lines) > 1:
		return "", Refuse(ReasonMalformed)
	default:
		return lines[0], nil
	}
}

// Seconds reads a time in whole seconds since 1970, as schemes sign it: one to twelve digits and nothing else.
func Seconds(s string) (time.Time, error) {
	if len(s) == 0 || len(s) > 12 || strings.Trim(s, "0123456789") != "" {
		return time.Time{}, Refuse(ReasonMalformed)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, Refuse(ReasonMalformed)
	}
	return time.Unix(n, 0), nil
}
