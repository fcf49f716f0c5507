package webhook

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// Scheme is a provider's way of signing. It must be safe for concurrent use.
type Scheme interface {
	// Key makes the signing key of a secret, as the provider shows it. The error quotes nothing of it.
	Key(secret string) ([]byte, error)
	// Parse reads the headers of a delivery. What it returns is not believed before a key
	// has verified it. The error is one of Refuse; it quotes nothing of the headers.
	Parse(h http.Header) (Signature, error)
}

// Signature is what the headers of a delivery claim.
type Signature struct {
	// At is when the delivery was signed.
	At time.Time
	// ID is the event's id, if the scheme signs one.
	ID string
	// Verify reports whether one of the signatures is that of key over the body as it was sent. It
	// compares in constant time.
	Verify func(key, body []byte) bool
}

// Secret is what one signing secret is, and until when. It never prints its value (I16).
type Secret struct {
	// Value is the secret as the provider shows it, prefix included.
	Value string
	// Until ends it: from then on what it signed is refused. Zero: no end. After a rotation, give the former
	// secret as long as the provider may go on to sign with it (IC-45).
	Until time.Time
}

func (s Secret) redacted() string {
	if s.Until.IsZero() {
		return "[secret]"
	}
	return "[secret until " + s.Until.UTC().Format(time.RFC3339) + "]"
}

// String implements [fmt.Stringer] without the value.
func (s Secret) String() string { return s.redacted() }

// Format implements [fmt.Formatter], so that no verb shows the value.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.redacted()) }

// LogValue implements [slog.LogValuer] without the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.redacted()) }

// MarshalJSON shows the end only.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.redacted() + `"`), nil }

// DefaultTolerance is the default of Options.Tolerance.
const DefaultTolerance = 5 * time.Minute

// Options configure a Verifier. Secrets are required.
type Options struct {
	// Secrets are those that the provider may sign with now: one, or during a rotation several.
	Secrets []Secret
	// Tolerance is how far the time of signing may be from now, in the past and in the future: a
	// sender's clock may be ahead (IC-44). Defaults to DefaultTolerance; at most an hour.
	Tolerance time.Duration
	// Clock is this process's own time. Defaults to the system's.
	Clock settle.Clock
}

// Verifier checks deliveries of one endpoint. It is safe for concurrent use.
type Verifier struct {
	scheme    Scheme
	keys      []key
	tolerance time.Duration
	clock     settle.Clock
}

type key struct {
	bytes []byte
	until time.Time
}

// New makes a verifier. It refuses options without a secret, with one that cannot be a secret of the
// scheme, and a tolerance that is negative or over an hour.
func New(s Scheme, o *Options) (*Verifier, error) {
	if s == nil || o == nil || len(o.Secrets) == 0 {
		return nil, errors.New("settle: webhook: a scheme and a secret are required")
	}
	v := &Verifier{scheme: s, tolerance: o.Tolerance, clock: o.Clock}
	switch {
	case v.tolerance < 0 || v.tolerance > time.Hour:
		return nil, errors.New("settle: webhook: the tolerance is negative or over an hour")
	case v.tolerance == 0:
		v.tolerance = DefaultTolerance
	}
	if v.clock == nil {
		v.clock = system{}
	}
	for i, secret := range o.Secrets {
		if secret.Value != strings.TrimSpace(secret.Value) {
			return nil, fmt.Errorf("settle: webhook: secret %d begins or ends with space", i+1)
		}
		k, err := s.Key(secret.Value)
		if err != nil {
			return nil, fmt.Errorf("settle: webhook: secret %d: %w", i+1, err)
		}
		if len(k) == 0 {
			return nil, fmt.Errorf("settle: webhook: secret %d is empty", i+1) // anybody could sign with it
		}
		v.keys = append(v.keys, key{k, secret.Until})
	}
	return v, nil
}

type system struct{}

func (system) Now() time.Time { return time.Now() }

// Delivery is one request whose signature was verified.
type Delivery struct {
	Header http.Header // as it came; only what the scheme signs is verified
	Body   []byte      // as it was sent
	ID     string      // the event's id, if the scheme signs one
	At     time.Time   // when it was signed
	Secret int         // which of Options.Secrets signed it, from 0: when the former one falls silent, it can go
}

// Verify checks that body, the bytes as they were sent, comes from the provider, and recently. The error
// is an *Error: the delivery must not be believed in any part.
//
// A signature that is good is not proof that the event is new: whoever saw a delivery can repeat it
// within the tolerance. [settle.Engine.Observe] takes an event id once, for ever.
func (v *Verifier) Verify(h http.Header, body []byte) (Delivery, error) {
	sig, err := v.scheme.Parse(h)
	if err != nil {
		return Delivery{}, err
	}
	now := v.clock.Now()
	by := -1
	for i, k := range v.keys {
		if (k.until.IsZero() || now.Before(k.until)) && sig.Verify(k.bytes, body) {
			by = i
			break
		}
	}
	// Who cannot sign learns nothing about our clock.
	switch age := now.Sub(sig.At); {
	case by < 0:
		return Delivery{}, Refuse(ReasonMismatch)
	case age > v.tolerance:
		return Delivery{}, Refuse(ReasonTooOld)
	case age < -v.tolerance:
		return Delivery{}, Refuse(ReasonTooNew)
	}
	return Delivery{Header: h, Body: body, ID: sig.ID, At: sig.At, Secret: by}, nil
}

// ErrSignature matches every refusal of a delivery: it does not come from the provider, or not now.
var ErrSignature = errors.New("settle: webhook: signature refused")

// Reason is why a delivery was refused; a machine word that may be logged.
type Reason string

// The reasons.
const (
	ReasonMissing   Reason = "missing"   // a header that the scheme needs is not there
	ReasonMalformed Reason = "malformed" // a header is there twice, or cannot be read
	ReasonMismatch  Reason = "mismatch"  // no live secret signed these bytes: another secret, another body, or a body that was encoded again
	ReasonTooOld    Reason = "too_old"   // signed longer ago than the tolerance
	ReasonTooNew    Reason = "too_new"   // signed further in the future than the tolerance
)

// Error is the refusal of a delivery. It matches ErrSignature.
type Error struct{ Reason Reason }

// Refuse is an *Error, for a Scheme.
func Refuse(r Reason) error { return &Error{r} }

// Error implements error. It quotes nothing of the delivery (I16).
func (e *Error) Error() string { return ErrSignature.Error() + ": " + string(e.Reason) }

// Is matches ErrSignature.
func (e *Error) Is(target error) bool { return target == ErrSignature }
