package httpsettle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/settle-go/settle"
)

var errTooLong = errors.New("httpsettle: the answer's body is too long")

// ClientOptions configure a Client. The zero value and nil are a client for a provider that honors no keys and whose
// statuses say nothing but 2xx.
type ClientOptions struct {
	// Transport does the work, through a [Transport] of this package. Defaults to http.DefaultTransport.
	Transport http.RoundTripper
	// Keys: the provider honors idempotency keys, so that repeats by net/http are harmless (Transport.Resend).
	Keys bool
	// MaxBody bounds an answer's body, in bytes. Defaults to MaxAnswer.
	MaxBody int64
	// Timeout bounds a request and the reading of its answer, beside the request's context. Defaults to none.
	Timeout time.Duration
	// Statuses says what each status of this provider proves, as its documentation promises. What is
	// not listed proves nothing, except that 2xx is Applied: read the body.
	//
	//   - settle.Applied, Underway, NeedsAction: an answer to be read; the status alone confirms nothing.
	//   - settle.Declined: a final refusal.
	//   - settle.NotApplied: it did nothing and asking again is fine (401, 429).
	//   - settle.NotFound: of a lookup.
	//   - settle.Unclear: an answer that proves nothing (409).
	//
	// A 5xx can be listed as NotApplied or Unclear, where the provider documents that; a redirect as Unclear only.
	Statuses map[int]settle.Fact
	// Genuine reports whether the provider itself wrote an answer, as its error format shows, and not something on the
	// way: a firewall's 403 and a gateway's 422 prove nothing. An answer that is not genuine is no answer.
	// Defaults to taking every one for genuine; set it where refusals are listed.
	Genuine func(a *Answer) bool
}

// Client makes requests for an adapter that has no SDK: each is one attempt and is never redirected, and what comes back is
// read by a table. It is safe for concurrent use.
type Client struct {
	http     *http.Client
	statuses map[int]settle.Fact
	genuine  func(a *Answer) bool
}

// NewClient makes a client. It refuses a table of statuses that would take no answer for evidence.
func NewClient(opts *ClientOptions) (*Client, error) {
	var o ClientOptions
	if opts != nil {
		o = *opts
	}
	c := &Client{statuses: map[int]settle.Fact{}, genuine: o.Genuine}
	for status, fact := range o.Statuses {
		if !provable(status, fact) {
			return nil, fmt.Errorf("httpsettle: new client: status %d cannot prove %q", status, fact)
		}
		c.statuses[status] = fact
	}
	c.http = &http.Client{
		Transport: &Transport{Base: o.Transport, Resend: o.Keys, MaxBody: o.MaxBody},
		Timeout:   o.Timeout,
		// A lookup is not redirected either: its credentials are for this provider.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// provable reports whether an answer with the status can mean the fact at all (I4).
func provable(status int, fact settle.Fact) bool {
	switch fact {
	case settle.Applied, settle.Underway, settle.NeedsAction:
		return status >= 200 && status < 300 || status >= 400 && status < 500
	case settle.Declined, settle.NotFound:
		return status >= 400 && status < 500
	case settle.NotApplied:
		return status >= 400 && status < 600
	case settle.Unclear:
		return status >= 200 && status < 600
	case settle.NotSent, settle.Reversed: // an answer arrived; a status tells of no reversal
	}
	return false
}

// Answer is what the provider said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	// Fact is what the status proves by the table. With Applied, Underway and NeedsAction the body is still to be read.
	Fact settle.Fact
	// RetryAfter is the answer's Retry-After (see the function of that name).
	RetryAfter time.Duration
	// Copies is how many copies of the request may have left. They are one attempt.
	Copies int
}

// NoAnswer is the error of a request to which no answer came that says anything: a broken connection, a deadline, a 5xx,
// a body that is too long. Its text holds no URL, header or body, which may hold credentials (I16).
type NoAnswer struct {
	// NotSent: it is proven that no byte left. Then settle.NotSent is the fact; see Observe. In every other
	// case the effect may exist.
	NotSent bool
	// Class says what happened in a word: dial, dns, tls, deadline, canceled, connection, body (too long, or broken off), status (a 5xx), foreign (not the provider's).
	Class  string
	Status int           // of an answer that says nothing, else 0
	After  time.Duration // its Retry-After
	Copies int           // how many copies may have left
	cause  error
}

// Error implements error.
func (e *NoAnswer) Error() string {
	s := "httpsettle: no answer: " + e.Class
	if e.Status != 0 {
		s += fmt.Sprintf(" %d", e.Status)
	}
	if e.NotSent {
		s += " (not sent)"
	}
	return s
}

// Unwrap returns the cause, without the URL that [url.Error] would print.
func (e *NoAnswer) Unwrap() error { return e.cause }

// Do makes the request and reads the whole answer. Its error is always a *NoAnswer.
func (c *Client) Do(req *http.Request) (*Answer, error) {
	ctx, watched := Watch(req.Context())
	res, err := c.http.Do(req.WithContext(ctx))
	if err != nil {
		err = bare(err)
		return nil, &NoAnswer{NotSent: watched.NotSent(err) || errors.Is(err, errKeyed), Class: class(err), Copies: watched.Copies(), cause: err}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, &NoAnswer{Class: "body", Status: res.StatusCode, Copies: watched.Copies(), cause: bare(err)}
	}
	a := &Answer{
		Status: res.StatusCode, Header: res.Header, Body: body,
		RetryAfter: RetryAfter(res.Header, time.Now()), Copies: watched.Copies(),
	}
	fact, listed := c.statuses[a.Status]
	switch {
	case listed:
		a.Fact = fact
	case a.Status >= 200 && a.Status < 300:
		a.Fact = settle.Applied
	case a.Status >= 500:
		return nil, &NoAnswer{Class: "status", Status: a.Status, After: a.RetryAfter, Copies: a.Copies}
	default:
		a.Fact = settle.Unclear
	}
	if c.genuine != nil && !c.genuine(a) {
		return nil, &NoAnswer{Class: "foreign", Status: a.Status, After: a.RetryAfter, Copies: a.Copies}
	}
	return a, nil
}

// Observe makes the observation of what Do returned, except for what is in the body: NotSent where that is
// proven; an error where there was no answer; and the fact of the status with its Retry-After. done is false where the body is
// to be read: the fact is Applied, Underway or NeedsAction.
func Observe[Res any](a *Answer, err error) (obs settle.Observation[Res], done bool, _ error) {
	var none *NoAnswer
	switch {
	case errors.As(err, &none) && none.NotSent:
		return settle.Observation[Res]{Fact: settle.NotSent, Code: "not_sent:" + none.Class}, true, nil
	case err != nil:
		return obs, true, err
	}
	obs = settle.Observation[Res]{Fact: a.Fact, RetryAfter: a.RetryAfter, Code: fmt.Sprintf("http_%d", a.Status)}
	switch a.Fact {
	case settle.Applied, settle.Underway, settle.NeedsAction:
		return obs, false, nil
	case settle.Unclear, settle.Declined, settle.NotSent, settle.NotApplied, settle.NotFound, settle.Reversed:
	}
	return obs, true, nil
}

// bare takes an error out of the url.Error around it.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// class names what happened. It is for people and logs: what may be concluded is NotSent's business, because a second copy's
// refused dial says nothing about the first.
func class(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.As(err, &dns):
		return "dns"
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &record), errors.As(err, &alert):
		return "tls"
	case errors.As(err, &op) && op.Op == "dial":
		return "dial"
	}
	return "connection"
}
