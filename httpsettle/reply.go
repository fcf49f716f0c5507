package httpsettle

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

const (
	mediaJSON    = "application/json"
	mediaProblem = "application/problem+json" // RFC 9457, section 3
)

// key reads the header Idempotency-Key by the rule of the handler; problem is the type to refuse with.
func (h *Handler[Req, Res]) key(head http.Header) (key, problem string) {
	values := head.Values("Idempotency-Key")
	switch {
	case len(values) == 0 && h.opts.Keys == KeyRequired:
		return "", typeKeyMissing
	case len(values) == 0:
		return "", ""
	case h.opts.Keys == KeyUnused, len(values) > 1:
		return "", typeKeyMalformed
	}
	key, err := parseStringItem(values[0])
	if err != nil && h.opts.BareKeys && isBareKey(trim(values[0])) {
		key, err = trim(values[0]), nil
	}
	if err != nil || key == "" || len(key) > settle.MaxKey || key[0] == ' ' || key[len(key)-1] == ' ' {
		return "", typeKeyMalformed
	}
	return key, ""
}

func isBareKey(s string) bool {
	for i := range len(s) {
		if !isAlpha(s[i]) && !isDigit(s[i]) && s[i] != '_' && s[i] != '-' && s[i] != '.' && s[i] != ':' {
			return false
		}
	}
	return s != ""
}

// body reads the body within the limit; problem is the type to refuse with.
func (h *Handler[Req, Res]) body(w http.ResponseWriter, r *http.Request) (body []byte, problem string) {
	if ct := r.Header.Get("Content-Type"); ct != "" || r.ContentLength != 0 {
		media, _, err := mime.ParseMediaType(ct)
		if err != nil || !slices.Contains(h.opts.MediaTypes, media) {
			return nil, typeMediaType
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(trim(coding), "identity") {
		w.Header().Set("Accept-Encoding", "identity") // RFC 9110, section 12.5.3
		return nil, typeMediaType
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, typeBodyTooLarge
	case err != nil:
		return nil, typeMalformedBody
	}
	return body, ""
}

// refuse answers with a type of the endpoint's own.
func (h *Handler[Req, Res]) refuse(w http.ResponseWriter, slug string) {
	h.problem(w, bySlug(slug), nil)
}

// problem writes problem details; own, if set, is what settle says about it.
func (h *Handler[Req, Res]) problem(w http.ResponseWriter, e entry, own *settle.Error) {
	p := &Problem{Type: h.opts.TypeBase + e.slug, Title: e.title, Status: e.status, Detail: e.detail, Next: e.next}
	if own != nil {
		p.Operation, p.State, p.Code = own.ID, own.State, own.Code
		p.Fields = declared(h.names, own.Fields)
		if p.Next == "" {
			p.Next = own.Next()
		}
	}
	if p.Next == "" {
		p.Next = settle.NextFixRequest
	}
	if e.status == http.StatusServiceUnavailable || e.status == http.StatusInternalServerError {
		w.Header().Set("Retry-After", wholeSeconds(h.opts.RetryAfter))
	}
	h.show(w, p)
}

func (h *Handler[Req, Res]) show(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Language", "en")
	h.write(w, p.Status, mediaProblem, p)
}

// fail answers an error that came without an outcome.
func (h *Handler[Req, Res]) fail(w http.ResponseWriter, r *http.Request, scope, key string, err error) {
	var p *Problem
	var own *settle.Error
	e := entryOf(err)
	switch errors.As(err, &own); {
	case own == nil && errors.As(err, &p), own != nil && errors.Is(own.Err, settle.ErrRefused) && errors.As(own.Cause, &p):
		if p.Status >= 400 && p.Status < 600 {
			h.show(w, p.complete())
			return
		}
		h.refuse(w, typeInternal)
		return
	case own == nil:
		h.problem(w, bySlug(typeInternal), nil)
		return
	}
	if own.ID != "" {
		// What stood in the way: shown if it is the principal's, which it always is unless an OperationFunc
		// found another way to name one.
		rec, err := h.load(r.Context(), scope, own.ID)
		switch {
		case errors.Is(err, settle.ErrNotFound):
			h.refuse(w, typeNotFound)
			return
		case err != nil: // whose it is could not be found out
			h.problem(w, e, &settle.Error{Err: own.Err})
			return
		case errors.Is(own.Err, settle.ErrConflict) && key != "" && rec.Key == key:
			e = bySlug(typeKeyReused) // with another intent: the draft's case, section 2.7
		}
		w.Header().Set("Location", h.location(r, own.ID))
	}
	h.problem(w, e, own)
}

// complete fills in what RFC 9457 (section 3.1) makes optional.
func (p *Problem) complete() *Problem {
	c := *p
	if c.Type == "" {
		c.Type = "about:blank"
	}
	if c.Title == "" {
		c.Title = http.StatusText(c.Status)
	}
	return &c
}

// answer writes what became of a POST.
func (h *Handler[Req, Res]) answer(w http.ResponseWriter, r *http.Request, scope, key string, v verdict[Res]) {
	if v.out.ID == "" { // a refusal, or nothing known
		h.fail(w, r, scope, key, v.err)
		return
	}
	e := entry{status: http.StatusOK}
	if v.err != nil {
		e = entryOf(v.err)
	}
	if e.slug == typeInProgress && v.mine {
		e.status = http.StatusAccepted // no duplicate, but the first request, whose wait ended
	}
	w.Header().Set("Location", h.location(r, v.out.ID))
	switch open := e.status == http.StatusAccepted || e.slug == typeInProgress; {
	case open:
		w.Header().Set("Retry-After", h.retryAfter(v.out.Record))
	case v.out.Replayed:
		w.Header().Set("Idempotent-Replayed", "true")
	}
	if e.status == http.StatusOK || e.status == http.StatusAccepted {
		h.write(w, e.status, mediaJSON, h.resource(v.out, v.err))
		return
	}
	var own *settle.Error
	errors.As(v.err, &own)
	h.problem(w, e, own)
}

// retryAfter is how long to wait with the next question: until the next try, if that is known.
func (h *Handler[Req, Res]) retryAfter(rec settle.Record) string {
	d := h.opts.RetryAfter
	if rec.State == settle.StateReview || rec.State == settle.StateActionRequired {
		d = max(d, 10*time.Second) // people are slower
	}
	if pause := rec.RetryAt.Sub(rec.AsOf); !rec.RetryAt.IsZero() && pause > d {
		d = min(pause, time.Hour)
	}
	return wholeSeconds(d)
}

// wholeSeconds writes d in seconds, rounded up (RFC 9110, section 10.2.3).
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// preference writes wait=n for Preference-Applied (RFC 7240, section 3).
func preference(d time.Duration) string { return "wait=" + wholeSeconds(d) }

func (h *Handler[Req, Res]) write(w http.ResponseWriter, status int, media string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		// Only a Result function can make a value that does not encode. The effect is what it is: say the rest.
		if s, ok := v.(Status); ok {
			s.Result = nil
			b, err = json.Marshal(s)
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}
