package stdwebhook_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/stdwebhook"
	"github.com/settle-go/settle/webhook"
)

// The test vector that the standard's libraries share.
const (
	secret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	id        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	stamp     = 1614265330
	body      = `{"test": 2432232314}`
	signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

type at int64

func (a at) Now() time.Time { return time.Unix(int64(a), 0) }

func headers(id, stamp, signature string) http.Header {
	h := http.Header{}
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", stamp)
	h.Set("Webhook-Signature", signature)
	return h
}

func sign(t testing.TB, secret, id string, when int64, body string) string {
	t.Helper()
	w, err := standard.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Sign(id, time.Unix(when, 0), []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func verifier(t testing.TB, now int64, secrets ...webhook.Secret) *webhook.Verifier {
	t.Helper()
	v, err := webhook.New(stdwebhook.Scheme(), &webhook.Options{Secrets: secrets, Clock: at(now)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func reason(err error) webhook.Reason {
	var e *webhook.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Reason
	}
	return webhook.Reason(err.Error())
}

func TestVector(t *testing.T) {
	t.Parallel()
	for _, s := range []string{secret, strings.TrimPrefix(secret, "whsec_")} {
		d, err := verifier(t, stamp, webhook.Secret{Value: s}).Verify(headers(id, fmt.Sprint(stamp), signature), []byte(body))
		if err != nil || d.ID != id || d.At.Unix() != stamp || string(d.Body) != body {
			t.Errorf("%s: %+v %v", s, d, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	v := verifier(t, stamp, webhook.Secret{Value: secret})
	s := fmt.Sprint(stamp)
	const fake = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
	dotted := sign(t, secret, "a.1", stamp, body)
	shifted := sign(t, secret, "a", stamp, "1.x") // signs a.<time>.1.x
	for name, c := range map[string]struct {
		h    http.Header
		want webhook.Reason
	}{
		"good":                          {headers(id, s, signature), ""},
		"among others":                  {headers(id, s, fake+" v2,x v1a,"+signature[3:]+" "+signature+" "+fake), ""},
		"another id":                    {headers(id+"x", s, signature), webhook.ReasonMismatch},
		"another time":                  {headers(id, fmt.Sprint(stamp+1), signature), webhook.ReasonMismatch},
		"fake":                          {headers(id, s, fake), webhook.ReasonMismatch},
		"empty signature":               {headers(id, s, "v1,"), webhook.ReasonMismatch},
		"no version":                    {headers(id, s, signature[3:]), webhook.ReasonMismatch},
		"another version":               {headers(id, s, "v2"+signature[2:]), webhook.ReasonMismatch},
		"asymmetric":                    {headers(id, s, "v1a"+signature[2:]), webhook.ReasonMismatch},
		"no id":                         {headers("", s, signature), webhook.ReasonMissing},
		"no time":                       {headers(id, "", signature), webhook.ReasonMissing},
		"no signature":                  {headers(id, s, ""), webhook.ReasonMissing},
		"nothing":                       {http.Header{}, webhook.ReasonMissing},
		"a signed time":                 {headers(id, "+"+s, signature), webhook.ReasonMalformed},
		"not a time":                    {headers(id, "soon", signature), webhook.ReasonMalformed},
		"a full stop in the id":         {headers("a.1", s, dotted), webhook.ReasonMalformed},
		"a delivery cut somewhere else": {headers("a."+s, "1", shifted), webhook.ReasonMalformed},
		"many signatures":               {headers(id, s, strings.Repeat(fake+" ", 16)+signature), webhook.ReasonMalformed},
	} {
		if _, err := v.Verify(c.h, []byte(body)); reason(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
		h := headers(id, s, signature)
		h.Add(name, h.Get(name))
		if _, err := v.Verify(h, []byte(body)); reason(err) != webhook.ReasonMalformed {
			t.Errorf("two lines of %s: %v", name, err)
		}
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, n := range []int{24, 32, 64} {
		if _, err := webhook.New(stdwebhook.Scheme(), &webhook.Options{Secrets: []webhook.Secret{{Value: "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n))}}}); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, s := range []string{
		"", "whsec_", "whsec_!!", "whpk_" + secret[6:], "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)),
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)), secret + "\n",
	} {
		_, err := webhook.New(stdwebhook.Scheme(), &webhook.Options{Secrets: []webhook.Secret{{Value: s}}})
		if err == nil {
			t.Errorf("%q was taken", s)
		} else if len(s) > 6 && strings.Contains(err.Error(), s[6:]) {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
}

// IC-43: raw bytes, and no other form of them.
func TestIC43_RawBytes(t *testing.T) {
	t.Parallel()
	v := verifier(t, stamp, webhook.Secret{Value: secret})
	const raw, again = "{ \"note\":\"\\u001B 💶\" }", `{"note":"\u001b 💶"}`
	h := headers(id, fmt.Sprint(stamp), sign(t, secret, id, stamp, raw))
	if _, err := v.Verify(h, []byte(raw)); err != nil {
		t.Error(err)
	}
	if _, err := v.Verify(h, []byte(again)); reason(err) != webhook.ReasonMismatch {
		t.Error(err)
	}
}

// IC-44: both directions, by the verifier's clock and not the library's.
func TestIC44_ToleranceBothWays(t *testing.T) {
	t.Parallel()
	v := verifier(t, stamp, webhook.Secret{Value: secret})
	for off, want := range map[int64]webhook.Reason{90: "", 301: webhook.ReasonTooNew, -299: "", -301: webhook.ReasonTooOld} {
		h := headers(id, fmt.Sprint(stamp+off), sign(t, secret, id, stamp+off, body))
		if _, err := v.Verify(h, []byte(body)); reason(err) != want {
			t.Errorf("%d s: %v, want %q", off, err, want)
		}
	}
}

// IC-45: the former secret counts until its end; one event under both is one event.
func TestIC45_Rotation(t *testing.T) {
	t.Parallel()
	const other = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	engine, err := settle.Open(memstore.New(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	deliver := func(now int64, by string) (int, settle.Observed) {
		var got settle.Observed
		v := verifier(t, now, webhook.Secret{Value: other}, webhook.Secret{Value: secret, Until: time.Unix(stamp, 0).Add(24 * time.Hour)})
		h, err := webhook.NewHandler(engine, v, settle.AccountFacts{Provider: "p"}, func(webhook.Delivery) (settle.Event, error) {
			return settle.Event{Type: "x", Ref: "pay_1"}, nil // the id is that of the header
		}, &webhook.HandlerOptions{Report: func(r webhook.Report) { got = r.Observed }})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		r.Header = headers(id, fmt.Sprint(now), sign(t, by, id, now, body))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, got
	}
	if code, got := deliver(stamp, secret); code != 200 || got.Duplicate || got.Event == "" {
		t.Errorf("%d %+v", code, got)
	}
	for _, by := range []string{secret, other} {
		if code, got := deliver(stamp+20*3600, by); code != 200 || !got.Duplicate {
			t.Errorf("%s: %d %+v", by, code, got)
		}
	}
	if code, _ := deliver(stamp+24*3600, secret); code != 400 {
		t.Errorf("after its end the former secret is answered %d", code)
	}
	now := int64(stamp + 20*3600)
	both := sign(t, "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24)), id, now, body) + " " + sign(t, secret, id, now, body)
	v := verifier(t, now, webhook.Secret{Value: other}, webhook.Secret{Value: secret})
	if d, err := v.Verify(headers(id, fmt.Sprint(now), both), []byte(body)); err != nil || d.Secret != 1 {
		t.Errorf("one bad and one good signature: %v", err)
	}
}

// FuzzHeaders: no header makes the parser fail otherwise than by a *webhook.Error, and only what the library signs
// like that is verified.
func FuzzHeaders(f *testing.F) {
	f.Add(id, fmt.Sprint(stamp), signature, []byte(body))
	f.Add("", "", "v1", []byte{})
	f.Add("a.b", "0001", "v1,, ,v1", []byte("."))
	v := verifier(f, stamp, webhook.Secret{Value: secret})
	f.Fuzz(func(t *testing.T, id, stamp, sig string, body []byte) {
		d, err := v.Verify(headers(id, stamp, sig), body)
		if err != nil {
			if !errors.Is(err, webhook.ErrSignature) {
				t.Fatal(err)
			}
			return
		}
		if want := sign(t, secret, d.ID, d.At.Unix(), string(body)); !strings.Contains(sig, want) || strings.Contains(d.ID, ".") {
			t.Fatalf("verified without the signature: %q %q %q", id, stamp, sig)
		}
	})
}
