package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/settle-go/settle"
)

// ReadFunc says which event a verified delivery is. It asks nobody and has no effects. The handler
// fills in what it leaves empty: Account is the endpoint's, ID is Delivery.ID, and
// Payload is the body, for the adapter's EventReader.
//
// ErrIgnore says that the event is none of ours: it is answered 2xx and not kept. Any other error says that it is
// not what was expected. Sending it again would change nothing, so it is kept as it is, of type
// TypeUnreadable, and a person sees it after Options.OrphanAfter.
type ReadFunc func(d Delivery) (settle.Event, error)

// ErrIgnore is a ReadFunc's answer to an event that no operation can be interested in.
var ErrIgnore = errors.New("settle: webhook: event of no interest")

// TypeUnreadable is the type of an event that a ReadFunc could not read, or that has names
// which no store could keep. Its id is made of the hash of its body.
const TypeUnreadable = "settle.unreadable"

// HandlerOptions configure a Handler. The zero value and nil are right for most.
type HandlerOptions struct {
	// MaxBody bounds the body, in bytes. Defaults to settle.MaxEvent, and cannot be more.
	MaxBody int64
	// Report, if set, is told of each answer before it is given. It must be safe for concurrent use.
	Report func(r Report)
}

// Report is what a handler did with one request. It holds nothing of the body (I16).
type Report struct {
	Status   int             // the answer
	Reason   Reason          // why the signature was refused; else ""
	Secret   int             // which secret signed it, from 0; -1 if none
	Observed settle.Observed // what became of the event; zero if none was kept
	Err      error           // why the event was not kept, or not read
}

// Handler is an endpoint for the events of one provider account:
//
//	200  the event is durable, or of no interest
//	400  the signature is refused; the body says why in one word
//	405  not a POST
//	413  the body is over the limit
//	500  the ReadFunc panicked; nothing is kept
//	503  the event could not be kept, or nobody knows whether it was
//
// Providers send again what was not answered 2xx, and that is right for each of them: an event is taken once
// however often it comes. It is safe for concurrent use. A provider that hangs up takes
// nothing with it: the event is kept. How long keeping one may take is bounded by Options.StoreTimeout of the engine; make it
// shorter than the provider's patience.
type Handler struct {
	engine   *settle.Engine
	verifier *Verifier
	account  string
	read     ReadFunc
	opts     HandlerOptions
}

// NewHandler makes a handler. account is that of the adapters whose operations the events speak of
// (Contract.Account): events are matched within it only.
func NewHandler(e *settle.Engine, v *Verifier, account settle.AccountFacts, read ReadFunc, o *HandlerOptions) (*Handler, error) {
	if e == nil || v == nil || read == nil || account.Provider == "" {
		return nil, errors.New("settle: webhook: an engine, a verifier, an account and a ReadFunc are required")
	}
	h := &Handler{engine: e, verifier: v, account: account.String(), read: read}
	if o != nil {
		h.opts = *o
	}
	if h.opts.MaxBody < 0 || h.opts.MaxBody > settle.MaxEvent {
		return nil, fmt.Errorf("settle: webhook: MaxBody must be from 0 to %d", settle.MaxEvent)
	}
	if h.opts.MaxBody == 0 {
		h.opts.MaxBody = settle.MaxEvent
	}
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rep, body := h.serve(w, r)
	if h.opts.Report != nil {
		h.opts.Report(rep)
	}
	w.Header().Set("Cache-Control", "no-store")
	if body != "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	w.WriteHeader(rep.Status)
	_, _ = io.WriteString(w, body)
}

// serve decides on the answer and its body.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) (rep Report, text string) {
	rep.Secret = -1
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		rep.Status = http.StatusMethodNotAllowed
		return rep, "POST only\n"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			rep.Status, rep.Err = http.StatusRequestEntityTooLarge, errors.New("settle: webhook: the body is over the limit")
			return rep, "the body is over the limit\n"
		}
		rep.Status, rep.Err = http.StatusBadRequest, errors.New("settle: webhook: the body ended early")
		return rep, "the body ended early\n"
	}
	d, err := h.verifier.Verify(r.Header, body)
	if err != nil {
		rep.Status, rep.Err = http.StatusBadRequest, err
		var e *Error
		if errors.As(err, &e) {
			rep.Reason = e.Reason
		}
		return rep, "signature refused: " + string(rep.Reason) + "\n"
	}
	rep.Secret = d.Secret
	rep.Observed, rep.Err = h.take(r.Context(), d)
	var bug *panicked
	switch {
	case rep.Err == nil, errors.Is(rep.Err, ErrIgnore):
		rep.Status = http.StatusOK
	case errors.As(rep.Err, &bug):
		rep.Status, text = http.StatusInternalServerError, "not kept\n"
	case rep.Observed.Event != "":
		rep.Status = http.StatusOK // unreadable, and kept
	default:
		w.Header().Set("Retry-After", "5")
		rep.Status, text = http.StatusServiceUnavailable, "not kept\n"
	}
	return rep, text
}

// take has the event kept. Observed.Event is set exactly if it is durable.
func (h *Handler) take(ctx context.Context, d Delivery) (settle.Observed, error) {
	ev, err := h.event(d)
	var bug *panicked
	if errors.Is(err, ErrIgnore) || errors.As(err, &bug) {
		return settle.Observed{}, err
	}
	if err == nil {
		var out settle.Observed
		if out, err = h.engine.Observe(ctx, ev); !errors.Is(err, settle.ErrInvalid) {
			return out, err
		}
		// Names that no store could keep: as unreadable as the rest, and no reason to ask for it again (IC-34).
	}
	sum := sha256.Sum256(d.Body)
	out, fail := h.engine.Observe(ctx, settle.Event{
		Account: h.account, ID: "sha256:" + hex.EncodeToString(sum[:]), Type: TypeUnreadable, At: d.At, Payload: d.Body,
	})
	if fail != nil {
		return settle.Observed{}, fail
	}
	return out, err
}

// panicked is a ReadFunc that did.
type panicked struct{}

// Error quotes nothing: the value may hold what was read (I16).
func (*panicked) Error() string { return "settle: webhook: the ReadFunc panicked" }

func (h *Handler) event(d Delivery) (ev settle.Event, err error) {
	defer func() {
		if recover() != nil {
			err = &panicked{}
		}
	}()
	if ev, err = h.read(d); err != nil {
		return ev, err
	}
	if ev.Account == "" {
		ev.Account = h.account
	}
	if ev.ID == "" {
		ev.ID = d.ID
	}
	if ev.Payload == nil {
		ev.Payload = d.Body
	}
	return ev, nil
}
