// Package hotel is a booking API without idempotency keys, for the keyless example: a second POST is a second
// booking, whatever it says. It keeps a ledger and misbehaves when a test says so.
//
//	POST /bookings                     {"reference", "room", "arrival", "nights", "price", "currency"}
//	GET  /bookings/{id}
//	GET  /bookings?reference=…&cursor= {"bookings": […], "next": "…"}
//
// Prices are decimal strings in the currency's main unit. A list shows a booking only some time
// after it was made, the oldest first. Its pages are cut before they are filtered, so that a page may be empty and not
// the last. Errors are {"error": "code"}: 422 room_unavailable or invalid, 401, 429.
package hotel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Booking is a booking, and with its first fields the request for one.
type Booking struct {
	Reference string `json:"reference"` // the guest's own; nothing makes it unique
	Room      string `json:"room"`
	Arrival   string `json:"arrival"`
	Nights    int    `json:"nights"`
	Price     string `json:"price"`
	Currency  string `json:"currency"`

	ID     string `json:"id,omitempty"`
	Status string `json:"status,omitempty"` // requested, confirmed, rejected, canceled

	at time.Time
}

// Fault is what goes wrong with one POST.
type Fault int

// The faults. Lost requests and replies end with the connection.
const (
	None Fault = iota
	LoseRequest
	LoseReply
	Unavailable // the room is taken
)

// Options configure a Hotel. The zero value works.
type Options struct {
	Now      func() time.Time // nil means time.Now
	Lag      time.Duration    // how long a booking stays invisible to lists
	PageSize int              // defaults to 20
	OnBooked func()           // called after each booking, before any reply
}

// Hotel is the API, an http.Handler. It is safe for concurrent use.
type Hotel struct {
	opts Options
	mux  *http.ServeMux

	mu     sync.Mutex
	books  []Booking
	posts  int
	faults []Fault
}

// New returns a hotel without bookings.
func New(o *Options) *Hotel {
	h := &Hotel{mux: http.NewServeMux()}
	if o != nil {
		h.opts = *o
	}
	if h.opts.Now == nil {
		h.opts.Now = time.Now
	}
	h.opts.PageSize = cmp.Or(h.opts.PageSize, 20)
	h.mux.HandleFunc("POST /bookings", h.book)
	h.mux.HandleFunc("GET /bookings", h.list)
	h.mux.HandleFunc("GET /bookings/{id}", h.show)
	return h
}

// ServeHTTP implements http.Handler.
func (h *Hotel) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Script sets what the next POSTs do, in order of arrival.
func (h *Hotel) Script(f ...Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, f...)
}

// Posts counts the POSTs that arrived, lost ones included.
func (h *Hotel) Posts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.posts
}

// Bookings returns the ledger.
func (h *Hotel) Bookings() []Booking {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.books)
}

// SetStatus changes a booking, as its guest or the reception may.
func (h *Hotel) SetStatus(id, status string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.books {
		if h.books[i].ID == id {
			h.books[i].Status = status
		}
	}
}

func (h *Hotel) book(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.posts++
	fault := None
	if len(h.faults) > 0 {
		fault, h.faults = h.faults[0], h.faults[1:]
	}
	h.mu.Unlock()
	var b Booking
	err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&b)
	switch {
	case fault == LoseRequest:
		hangUp(w)
		return
	case fault == Unavailable:
		fail(w, http.StatusUnprocessableEntity, "room_unavailable")
		return
	case err != nil, b.Room == "", b.Nights < 1, b.Price == "":
		fail(w, http.StatusUnprocessableEntity, "invalid")
		return
	}
	h.mu.Lock()
	b.ID, b.Status, b.at = fmt.Sprintf("bk_%d", len(h.books)+1), "confirmed", h.opts.Now()
	h.books = append(h.books, b)
	h.mu.Unlock()
	if h.opts.OnBooked != nil {
		h.opts.OnBooked()
	}
	if fault == LoseReply {
		hangUp(w)
		return
	}
	answer(w, http.StatusCreated, b)
}

func (h *Hotel) show(w http.ResponseWriter, r *http.Request) {
	for _, b := range h.Bookings() {
		if b.ID == r.PathValue("id") {
			answer(w, http.StatusOK, b)
			return
		}
	}
	fail(w, http.StatusNotFound, "not_found")
}

// Page is one page of a list. Next is the cursor of the next one, empty on the last.
type Page struct {
	Bookings []Booking `json:"bookings"`
	Next     string    `json:"next"`
}

func (h *Hotel) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	from, err := strconv.Atoi(cmp.Or(q.Get("cursor"), "0"))
	if err != nil || from < 0 {
		fail(w, http.StatusBadRequest, "invalid_cursor")
		return
	}
	all, next := h.Bookings(), ""
	all = all[min(from, len(all)):]
	if len(all) > h.opts.PageSize {
		all, next = all[:h.opts.PageSize], strconv.Itoa(from+h.opts.PageSize)
	}
	p := Page{Bookings: []Booking{}, Next: next}
	for _, b := range all {
		if b.Reference == q.Get("reference") && !b.at.Add(h.opts.Lag).After(h.opts.Now()) {
			p.Bookings = append(p.Bookings, b)
		}
	}
	answer(w, http.StatusOK, p)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, status int, code string) {
	answer(w, status, map[string]string{"error": code})
}

func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}
