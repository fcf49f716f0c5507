package httpsettle

import (
	"errors"
	"net/http"

	"github.com/settle-go/settle"
)

// Problem is a problem details object (RFC 9457). It holds nothing of the request (I16): fixed
// texts, machine words, and names of members that differ.
//
// An [OperationFunc] returns a *Problem of its own to refuse a request before anything is stored;
// the key stays free then. Status is required; Type defaults to about:blank and Title to the
// status text, as the RFC says.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	// Operation is the id of the operation that decided. Its status is at Location.
	Operation string       `json:"operation,omitempty"`
	State     settle.State `json:"state,omitempty"` // its state, when known
	Next      settle.Next  `json:"next,omitempty"`  // what is safe to do now
	Code      string       `json:"code,omitempty"`  // a provider's decline code
	Fields    []string     `json:"fields,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string { return "httpsettle: " + p.Title }

// A kind of answer that is no confirmation. The table below is the one place that says which
// error of settle becomes what.
type entry struct {
	slug   string // the last part of the type URI; stable for ever
	status int
	title  string
	detail string
	next   settle.Next // "": the error's own
	errs   []error     // the sentinels of settle that it answers
}

// open entries tell of an operation that goes on: 202, not a problem.
var openTable = []entry{
	{
		slug: "in-progress", status: http.StatusConflict, title: "A request for this operation is in progress",
		detail: "The first request for this operation is being worked on. Ask at Location for its status, or send the same request again later.",
		errs:   []error{settle.ErrInProgress},
	},
	{
		slug: "unknown", status: http.StatusAccepted, title: "The outcome is not known yet",
		detail: "A request may have had its effect and no answer says so. It is being found out. Ask at Location.",
		errs:   []error{settle.ErrUnknown},
	},
	{
		slug: "processing", status: http.StatusAccepted, title: "Accepted, not decided",
		detail: "The provider works on it. Ask at Location.",
		errs:   []error{settle.ErrProcessing},
	},
	{
		slug: "waiting", status: http.StatusAccepted, title: "Stored, to be sent",
		detail: "Nothing was sent that may have an effect. It goes on by itself. Ask at Location, or send the same request again.",
		errs:   []error{settle.ErrWaiting},
	},
	{
		slug: "action-required", status: http.StatusAccepted, title: "The customer must act",
		detail: "The member action says how. Then ask at Location.",
		errs:   []error{settle.ErrActionRequired},
	},
	{
		slug: "review", status: http.StatusAccepted, title: "A person is deciding",
		detail: "The effect may exist. Do not send it under another key. Ask at Location.",
		errs:   []error{settle.ErrReview},
	},
	{
		slug: "confirmed-unfinished", status: http.StatusAccepted, title: "Confirmed, to be finished here",
		detail: "The effect exists. What this service does about it is still due and is tried again by itself. Ask at Location.",
		errs:   []error{settle.ErrConsequence},
	},
	{ // after those that it matches too
		slug: "pending", status: http.StatusAccepted, title: "Not settled yet",
		detail: "The effect may exist. It goes on by itself. Ask at Location, or send the same request again under the same key.",
		errs:   []error{settle.ErrPending},
	},
}

// closed entries are problems.
var closedTable = []entry{
	{
		slug: "failed", status: http.StatusUnprocessableEntity, title: "Confirmed that there is no effect",
		detail: "It was refused for good, or was done and came undone; next tells which. A new try names it as the one that it replaces, if this service offers that.",
		errs:   []error{settle.ErrFailed},
	},
	{
		slug: "canceled", status: http.StatusGone, title: "Canceled",
		detail: "It was withdrawn before anything had an effect.",
		errs:   []error{settle.ErrCanceled},
	},
	{
		slug: "compensated", status: http.StatusGone, title: "Undone",
		detail: "The effect existed and is being undone, or was.",
		errs:   []error{settle.ErrCompensated},
	},
	{
		slug: "key-reused", status: http.StatusUnprocessableEntity, title: "The key is used for another request",
		detail: "The operation is known with another request, which stands as it is; fields names what differs. Nothing was sent for this one.",
		errs:   []error{settle.ErrMismatch},
	},
	{
		slug: "operation-exists", status: http.StatusConflict, title: "The operation is known under another key",
		detail: "What this request asks for is known already. Do not send it under a new key: ask at Location what became of it.",
		errs:   []error{settle.ErrConflict},
	},
	{
		slug: "held", status: http.StatusConflict, title: "Another operation is under way",
		detail: "Only one of them may be live at a time. Ask at Location what became of the other.",
		errs:   []error{settle.ErrHeld},
	},
	{
		slug: "refused", status: http.StatusForbidden, title: "Refused before anything was stored",
		detail: "Nothing was stored or sent, and the key is still free.",
		errs:   []error{settle.ErrRefused},
	},
	{
		slug: "invalid", status: http.StatusBadRequest, title: "The request is malformed",
		detail: "Nothing was stored or sent, and the key is still free.",
		errs:   []error{settle.ErrInvalid},
	},
	{
		slug: "not-found", status: http.StatusNotFound, title: "No such operation",
		detail: "Nothing of the kind is known here.",
		errs:   []error{settle.ErrNotFound},
	},
	{
		slug: "exceeds", status: http.StatusUnprocessableEntity, title: "More than was done",
		detail: "It would undo more than was confirmed. Nothing was sent.",
		errs:   []error{settle.ErrExceeds},
	},
	{
		slug: "no-effect", status: http.StatusUnprocessableEntity, title: "There is nothing to undo",
		detail: "The operation has no confirmed effect. Nothing was sent.", next: settle.NextStop,
		errs: []error{settle.ErrNoEffect},
	},
	{
		slug: "unavailable", status: http.StatusServiceUnavailable, title: "Not now",
		detail: "Nothing was sent for this request. Send the same request again under the same key.",
		errs:   []error{settle.ErrUncommitted, settle.ErrDraining},
	},
	{
		slug: "no-verdict", status: http.StatusServiceUnavailable, title: "Nothing can be said at the moment",
		detail: "Whether the effect exists could not be found out. Send the same request again under the same key, and under no other.",
		next:   settle.NextRetry, errs: []error{settle.ErrStore, settle.ErrCorrupt, settle.ErrSealed},
	},
}

// own entries are those of the endpoint itself. Nothing of settle was called before one of them.
var ownTable = []entry{
	{
		slug: "key-missing", status: http.StatusBadRequest, title: "Idempotency-Key is missing", next: settle.NextFixRequest,
		detail: "This request needs the header Idempotency-Key: one key for one intended effect, the same on every try.",
	},
	{
		slug: "key-malformed", status: http.StatusBadRequest, title: "Idempotency-Key is malformed", next: settle.NextFixRequest,
		detail: `The header is one quoted string of 1 to 255 printable ASCII characters without a space at either end, e.g. "8e03978e-40d5-43e8-bc93-6894a57f9324".`,
	},
	{
		slug: "malformed-body", status: http.StatusBadRequest, title: "The body is malformed", next: settle.NextFixRequest,
		detail: "The body is not what this request takes. Nothing was stored or sent, and the key is still free.",
	},
	{
		slug: "unauthenticated", status: http.StatusUnauthorized, title: "Not authenticated", next: settle.NextFixRequest,
		detail: "Nothing was stored or sent.",
	},
	{
		slug: "body-too-large", status: http.StatusRequestEntityTooLarge, title: "The body is too large", next: settle.NextFixRequest,
		detail: "Nothing was stored or sent, and the key is still free.",
	},
	{
		slug: "media-type", status: http.StatusUnsupportedMediaType, title: "The media type is not supported", next: settle.NextFixRequest,
		detail: "Nothing was stored or sent, and the key is still free.",
	},
	{
		slug: "method", status: http.StatusMethodNotAllowed, title: "The method is not supported", next: settle.NextFixRequest,
		detail: "POST does the operation, GET asks for its status.",
	},
	{
		slug: "internal", status: http.StatusInternalServerError, title: "The service failed", next: settle.NextRetry,
		detail: "Nothing is known. Send the same request again under the same key, and under no other.",
	},
}

// The types that the code names.
const (
	typeKeyMissing      = "key-missing"
	typeKeyMalformed    = "key-malformed"
	typeKeyReused       = "key-reused"
	typeMalformedBody   = "malformed-body"
	typeUnauthenticated = "unauthenticated"
	typeBodyTooLarge    = "body-too-large"
	typeMediaType       = "media-type"
	typeMethod          = "method"
	typeInternal        = "internal"
	typeNotFound        = "not-found"
	typeInProgress      = "in-progress"
	typeNoVerdict       = "no-verdict"
	typeFailed          = "failed"
)

// entries lists all three tables.
func entries() []entry {
	all := append([]entry(nil), openTable...)
	return append(append(all, closedTable...), ownTable...)
}

// bySlug finds an entry that is known to exist.
func bySlug(slug string) entry {
	for _, e := range entries() {
		if e.slug == slug {
			return e
		}
	}
	return entry{slug: typeInternal, status: http.StatusInternalServerError, title: "The service failed"}
}

// entryOf finds what an error of settle becomes: the first entry that it matches, outcomes
// before refusals. What is no error of settle is internal.
func entryOf(err error) entry {
	var own *settle.Error
	if errors.As(err, &own) {
		err = own.Err // not its cause, which may be anybody's
	}
	for _, table := range [][]entry{openTable, closedTable} {
		for _, e := range table {
			for _, s := range e.errs {
				if errors.Is(err, s) {
					return e
				}
			}
		}
	}
	return bySlug(typeInternal)
}

// DefaultTypeBase is the beginning of the type URIs: each leads to its section of the
// documentation. What follows it is stable: types are added, never renamed or given
// another meaning.
const DefaultTypeBase = "https://github.com/settle-go/settle/blob/main/docs/web-handlers.md#"

// TypeInfo is one problem type, for an application's own documentation.
type TypeInfo struct {
	Slug   string // the end of the type URI
	Status int    // of the answer to a POST
	Title  string
}

// Types lists every type that a [Handler] answers with, except those of the application's own
// [Problem] values.
func Types() []TypeInfo {
	var out []TypeInfo
	for _, e := range entries() {
		out = append(out, TypeInfo{Slug: e.slug, Status: e.status, Title: e.title})
	}
	return out
}
