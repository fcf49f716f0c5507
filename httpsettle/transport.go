package httpsettle

import (
	"errors"
	"io"
	"net/http"
)

// Transport is an [http.RoundTripper] for adapters, also below a vendor's SDK. Of requests with an effect (all but
// GET, HEAD, OPTIONS and TRACE) it sees to it that they go out once and to one place:
//
//   - A redirect is an answer and nothing more: its Location is removed, so that no http.Client above follows it.
//     net/http would send the request, and its key, to wherever a 307 or 308 points.
//   - Unless Resend is set, nothing below can repeat one: it has no GetBody. One without a body that carries a key is
//     refused, since its key alone makes it repeatable for net/http, and a key must not get lost on the way (IC-65).
//
// Bodies of answers are bounded, those of all methods. The zero value works and must not be copied after use; it is
// safe for concurrent use.
type Transport struct {
	// Base does the work. Defaults to http.DefaultTransport.
	Base http.RoundTripper
	// Resend lets net/http repeat a request when a kept-alive connection dies under it. Right for a provider that honors keys,
	// where it is one attempt: the copies have the same bytes and the same key. Never right for one that does not.
	Resend bool
	// MaxBody bounds an answer's body, in bytes; one that is longer fails to read, so that nobody takes a part for the whole.
	// Defaults to 1 MiB.
	MaxBody int64
}

// errKeyed: nothing was sent.
var errKeyed = errors.New("httpsettle: a request with an idempotency key and no body needs Transport.Resend")

// MaxAnswer is the default bound of an answer's body.
const MaxAnswer = 1 << 20

// RoundTrip implements [http.RoundTripper]. It leaves req as it is.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	out := req
	if hasEffect(req.Method) && !t.Resend {
		if (req.Body == nil || req.Body == http.NoBody) && (req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != "") {
			return nil, errKeyed
		}
		out = req.WithContext(req.Context()) // a copy
		out.GetBody = nil
	}
	res, err := base.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if hasEffect(req.Method) && isRedirect(res.StatusCode) {
		res.Header.Del("Location")
	}
	limit := t.MaxBody
	if limit <= 0 {
		limit = MaxAnswer
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		res.Body = &bounded{ReadCloser: res.Body, left: limit}
	}
	return res, nil
}

// CloseIdleConnections passes on to Base what [http.Client.CloseIdleConnections] asks for.
func (t *Transport) CloseIdleConnections() {
	type closer interface{ CloseIdleConnections() }
	if c, ok := t.Base.(closer); ok {
		c.CloseIdleConnections()
	}
}

// hasEffect reports whether a request of the method may have one (RFC 9110, section 9.2.1). The empty method is GET.
func hasEffect(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return true
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// bounded is a body of at most left bytes; a longer one ends in errTooLong.
type bounded struct {
	io.ReadCloser
	left int64
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), errTooLong
	}
	b.left -= int64(n)
	return n, err
}
