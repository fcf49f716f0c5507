package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

// at is a clock that stands still.
type at time.Time

func (a at) Now() time.Time { return time.Time(a) }

const t0 = 1_492_774_577

func stripeHeader(line ...string) http.Header { return http.Header{StripeHeader: line} }

// signed makes Stripe's header.
func signed(secret string, when int64, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "%d.%s", when, body)
	return fmt.Sprintf("t=%d,v1=%s", when, hex.EncodeToString(mac.Sum(nil)))
}

func verifier(t testing.TB, now time.Time, secrets ...Secret) *Verifier {
	t.Helper()
	v, err := New(Stripe(), &Options{Secrets: secrets, Clock: at(now)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func reason(err error) Reason {
	var e *Error
	if errors.As(err, &e) && errors.Is(err, ErrSignature) {
		return e.Reason
	}
	return Reason(fmt.Sprint("no *Error: ", err))
}

// The signatures were computed by another implementation (Python's hmac). examples/stripe checks this package
// against Stripe's own SDK.
func TestStripeVectors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		secret string
		at     int64
		body   string
		sum    string
	}{
		{"whsec_test_secret", t0, "{\n  \"id\": \"evt_test_webhook\",\n  \"object\": \"event\"\n}", "c2f890decbc5ede7c5060bb9a6d31e0626a4342bacb9aeae2adb1bcea72f9812"},
		{"whsec_test_secret", t0, "", "0b143541b2e58bb8a2681ed7577ec944676988d66733d6a9d9cd6ccce1022353"},
		{"whsec_other", 253402300799, `{"note":"\u001B  café 💶","n":1}`, "13e5790cc672df7a68c7b66ed36e54f38f8efc6ffae7a3391322f42eebea7b96"},
	} {
		v := verifier(t, time.Unix(c.at, 0), Secret{Value: c.secret})
		d, err := v.Verify(stripeHeader(fmt.Sprintf("t=%d,v1=%s", c.at, c.sum)), []byte(c.body))
		if err != nil || d.At.Unix() != c.at || string(d.Body) != c.body {
			t.Errorf("%q: %v %v", c.body, d.At, err)
		}
		for i := range c.sum { // no signature that differs in one digit
			bad := []byte(c.sum)
			bad[i] = "1023456789abcdef"[strings.IndexByte("0123456789abcdef", bad[i])^1]
			if string(bad) == c.sum {
				bad[i] ^= 2
			}
			if _, err := v.Verify(stripeHeader(fmt.Sprintf("t=%d,v1=%s", c.at, bad)), []byte(c.body)); reason(err) != ReasonMismatch {
				t.Fatalf("digit %d: %v", i, err)
			}
		}
	}
}

func TestStripeHeader(t *testing.T) {
	t.Parallel()
	const secret, body = "whsec_a", `{"id":"evt_1"}`
	good := signed(secret, t0, body)
	sum := good[strings.Index(good, "v1=")+3:]
	fake := strings.Repeat("00", 32)
	stamp := fmt.Sprintf("t=%d", t0)
	for line, want := range map[string]Reason{
		good:                                        "",
		"v1=" + sum + "," + stamp:                   "", // in any order
		stamp + ",v1=" + fake + ",v1=" + sum:        "", // one good one is enough (IC-45)
		stamp + ",v1=" + sum + ",v1=" + fake:        "",
		stamp + ",v0=" + fake + ",v1=" + sum:        "", // other versions are passed over
		stamp + ",v1=zz,v1=,v1=" + sum:              "",
		stamp + ",v1=" + strings.ToUpper(sum):       "",
		stamp + ",v0=" + sum:                        ReasonMalformed, // v0 proves nothing
		stamp + ",v2=" + sum:                        ReasonMalformed,
		stamp + ",v1=" + sum[:62]:                   ReasonMalformed,
		stamp + ",v1=" + fake:                       ReasonMismatch,
		"t=1" + ",v1=" + sum:                        ReasonMismatch,
		"":                                          ReasonMissing,
		"v1=" + sum:                                 ReasonMalformed,
		stamp:                                       ReasonMalformed,
		stamp + "," + stamp + ",v1=" + sum:          ReasonMalformed,
		stamp + ",t=1,v1=" + sum:                    ReasonMalformed,
		"t=,v1=" + sum:                              ReasonMalformed,
		"t=-5,v1=" + sum:                            ReasonMalformed,
		"t=+" + fmt.Sprint(t0) + ",v1=" + sum:       ReasonMalformed,
		"t=1e9,v1=" + sum:                           ReasonMalformed,
		"t=9999999999999,v1=" + sum:                 ReasonMalformed,
		"t=99999999999999999999,v1=" + sum:          ReasonMalformed,
		stamp + ",,v1=" + sum:                       ReasonMalformed,
		"v1":                                        ReasonMalformed,
		stamp + strings.Repeat(",v1="+fake, 17):     ReasonMalformed,
		stamp + strings.Repeat(",v1="+fake, 16):     ReasonMismatch,
		stamp + ",v1=" + sum + "\x00":               ReasonMalformed,
		strings.Repeat("t", 100_000) + ",v1=" + sum: ReasonMalformed,
	} {
		_, err := verifier(t, time.Unix(t0, 0), Secret{Value: secret}).Verify(stripeHeader(line), []byte(body))
		if want == "" && err != nil || want != "" && reason(err) != want {
			t.Errorf("%.120q: %v, want %q", line, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), sum) || strings.Contains(err.Error(), "evt_1")) {
			t.Errorf("the error quotes the delivery: %v", err)
		}
	}
	v := verifier(t, time.Unix(t0, 0), Secret{Value: secret})
	if _, err := v.Verify(stripeHeader(good, good), []byte(body)); reason(err) != ReasonMalformed {
		t.Errorf("two headers: %v", err)
	}
	if _, err := v.Verify(http.Header{}, []byte(body)); reason(err) != ReasonMissing {
		t.Errorf("no header: %v", err)
	}
}

// IC-43: the signature is over the bytes as they were sent. A body that was decoded and encoded again is
// refused, and nothing else than the bytes is tried.
func TestIC43_RawBytes(t *testing.T) {
	t.Parallel()
	const secret = "whsec_a"
	v := verifier(t, time.Unix(t0, 0), Secret{Value: secret})
	for _, body := range []string{
		"{\"note\" :\t\"\\u001B\", \"b\":1,\r\n \"a\":2, \"emoji\":\"💶\"}", `{"n":1.0,"n":2}`, "\xef\xbb\xbf{}", "\xff\x00", "[ ]\n", `{"h":"<&>"}`, "",
	} {
		h := stripeHeader(signed(secret, t0, body))
		if d, err := v.Verify(h, []byte(body)); err != nil || string(d.Body) != body {
			t.Errorf("%q: %v", body, err)
		}
		var value map[string]any
		if json.Unmarshal([]byte(body), &value) != nil {
			continue
		}
		again, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(h, again); reason(err) != ReasonMismatch {
			t.Errorf("%q, encoded again as %q: %v", body, again, err)
		}
	}
}

// IC-44: a sender's clock may be ahead of ours as well as behind.
func TestIC44_ToleranceBothWays(t *testing.T) {
	t.Parallel()
	const secret, body = "whsec_a", "{}"
	now := time.Unix(t0, 0)
	for _, c := range []struct {
		off       time.Duration
		tolerance time.Duration
		want      Reason
	}{
		{90 * time.Second, 0, ""},
		{301 * time.Second, 0, ReasonTooNew},
		{-299 * time.Second, 0, ""},
		{-301 * time.Second, 0, ReasonTooOld},
		{300 * time.Second, 0, ""},
		{-300 * time.Second, 0, ""},
		{2 * time.Second, time.Second, ReasonTooNew},
		{-2 * time.Second, time.Second, ReasonTooOld},
		{-time.Hour, time.Hour, ""},
		{200 * 365 * 24 * time.Hour, time.Hour, ReasonTooNew},
		{-t0 * time.Second, time.Hour, ReasonTooOld},
	} {
		v, err := New(Stripe(), &Options{Secrets: []Secret{{Value: secret}}, Tolerance: c.tolerance, Clock: at(now)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = v.Verify(stripeHeader(signed(secret, now.Add(c.off).Unix(), body)), []byte(body))
		if c.want == "" && err != nil || c.want != "" && reason(err) != c.want {
			t.Errorf("%v: %v, want %q", c.off, err, c.want)
		}
		// Who cannot sign learns nothing about our clock.
		if _, err := v.Verify(stripeHeader(signed("whsec_b", now.Add(c.off).Unix(), body)), []byte(body)); reason(err) != ReasonMismatch {
			t.Errorf("%v, forged: %v", c.off, err)
		}
	}
}

// IC-45: after a rotation the former secret goes on to count until its end, and not longer.
func TestIC45_Rotation(t *testing.T) {
	t.Parallel()
	const body = `{"id":"evt_1"}`
	rotated := time.Unix(t0, 0)
	secrets := []Secret{{Value: "whsec_new"}, {Value: "whsec_old", Until: rotated.Add(24 * time.Hour)}}
	for _, c := range []struct {
		after  time.Duration
		secret string
		want   Reason
		by     int
	}{
		{0, "whsec_old", "", 1},
		{20 * time.Hour, "whsec_old", "", 1},
		{20 * time.Hour, "whsec_new", "", 0},
		{24*time.Hour - time.Second, "whsec_old", "", 1},
		{24 * time.Hour, "whsec_old", ReasonMismatch, 0},
		{1000 * time.Hour, "whsec_old", ReasonMismatch, 0},
		{1000 * time.Hour, "whsec_new", "", 0},
		{0, "whsec_third", ReasonMismatch, 0},
	} {
		now := rotated.Add(c.after)
		v := verifier(t, now, secrets...)
		d, err := v.Verify(stripeHeader(signed(c.secret, now.Unix(), body)), []byte(body)) // each try is signed anew
		if c.want == "" && (err != nil || d.Secret != c.by) || c.want != "" && reason(err) != c.want {
			t.Errorf("%v after the rotation, %s: by %d, %v, want %q", c.after, c.secret, d.Secret, err, c.want)
		}
		// Of a header with one bad and one good signature the good one counts.
		good := signed("whsec_new", now.Unix(), body)
		both := signed("whsec_third", now.Unix(), body) + good[strings.Index(good, ",v1="):]
		if _, err := v.Verify(stripeHeader(both), []byte(body)); err != nil {
			t.Errorf("one bad and one good signature: %v", err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	one := []Secret{{Value: "whsec_a"}}
	for name, o := range map[string]*Options{
		"nothing":            nil,
		"no secret":          {},
		"an empty secret":    {Secrets: []Secret{{}}},
		"a second empty one": {Secrets: []Secret{{Value: "whsec_a"}, {Until: time.Now()}}},
		"a line end":         {Secrets: []Secret{{Value: "whsec_a\n"}}},
		"negative tolerance": {Secrets: one, Tolerance: -1},
		"a day of tolerance": {Secrets: one, Tolerance: 24 * time.Hour},
	} {
		if _, err := New(Stripe(), o); err == nil {
			t.Errorf("%s was taken", name)
		} else if strings.Contains(err.Error(), "whsec") {
			t.Errorf("%s: the error quotes the secret: %v", name, err)
		}
	}
	if _, err := New(nil, &Options{Secrets: one}); err == nil {
		t.Error("no scheme was taken")
	}
	v, err := New(Stripe(), &Options{Secrets: one}) // the system's clock
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(stripeHeader(signed("whsec_a", time.Now().Unix(), "x")), []byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := v.Verify(stripeHeader(signed("whsec_a", 1, "x")), []byte("x")); reason(err) != ReasonTooOld {
		t.Error(err)
	}
}

// No verb, logger or encoder shows a secret (I16).
func TestI16_SecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	s := Secret{Value: "whsec_hidden", Until: time.Unix(t0, 0)}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s, "in", Options{Secrets: []Secret{s}})
	out, err := json.Marshal(Options{Secrets: []Secret{s}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		log.String(), string(out), s.String(), fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, s), fmt.Sprintf("%+v %#v", []Secret{s}, &s),
	} {
		if strings.Contains(text, "hidden") || strings.Contains(text, hex.EncodeToString([]byte("hidden"))) {
			t.Errorf("%s", text)
		}
	}
}

// FuzzStripe: no header makes the parser fail otherwise than by an *Error, and only what was signed over these
// bytes at this time is ever verified.
func FuzzStripe(f *testing.F) {
	const secret = "whsec_a"
	f.Add(signed(secret, t0, "{}"), []byte("{}"))
	f.Add("t=1,v1=00,v0=,t=", []byte{})
	f.Add(",=,t==1,v1", []byte("x"))
	v := verifier(f, time.Unix(t0, 0), Secret{Value: secret})
	f.Fuzz(func(t *testing.T, line string, body []byte) {
		d, err := v.Verify(stripeHeader(line), body)
		if err != nil {
			if r := reason(err); r != ReasonMissing && r != ReasonMalformed && r != ReasonMismatch && r != ReasonTooOld && r != ReasonTooNew {
				t.Fatalf("%q: %v", line, err)
			}
		} else if _, sum, _ := strings.Cut(signed(secret, d.At.Unix(), string(body)), "v1="); !strings.Contains(strings.ToLower(line), sum) {
			t.Fatalf("verified without the signature: %q", line)
		}
		// A good signature beside anything that can be read counts.
		good := signed(secret, t0, string(body))
		_, sum, _ := strings.Cut(good, ",v1=")
		if sig, err := (stripe{}).Parse(stripeHeader(line)); err == nil && sig.At.Unix() == t0 && strings.Contains(line, fmt.Sprintf("t=%d,", t0)) &&
			strings.Count(line, "v1=") < maxSignatures {
			if _, err := v.Verify(stripeHeader(line+",v1="+sum), body); err != nil {
				t.Fatalf("%q with a good signature: %v", line, err)
			}
		}
	})
}
