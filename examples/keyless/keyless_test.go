package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/pipenet"
	"github.com/settle-go/settle/examples/internal/stagetest"
	"github.com/settle-go/settle/examples/keyless/hotel"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

// world is a hotel, a network and a database in a bubble with a clock of its own.
type world struct {
	t         *testing.T
	hotel     *hotel.Hotel
	net       *pipenet.Net
	store     *memstore.Store
	transport *http.Transport // kept-alive connections, as by default
}

func inBubble(t *testing.T, o hotel.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, hotel: hotel.New(&o), net: pipenet.Listen(), store: memstore.New(nil)}
		w.transport = w.net.Transport()
		w.serve()
		t.Cleanup(w.transport.CloseIdleConnections)
		f(t, w)
	})
}

// serve opens the hotel's door.
func (w *world) serve() {
	stagetest.ServeOn(w.t, w.net, w.hotel)
}

// process is one process of the travel agency, with a worker.
type process struct {
	engine *settle.Engine
	rooms  *settle.Executor[Stay, Confirmation]
	stop   func()
}

func (w *world) start() *process {
	w.t.Helper()
	engine, err := settle.Open(w.store, &settle.Options{Scope: "travel"})
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{engine: engine}
	p.rooms, err = settle.New(engine, "booking", newBookings("http://hotel.example", w.transport, contract()), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	p.stop = stagetest.Work(w.t, engine)
	return p
}

func stay(subject string) settle.Operation[Stay] {
	return settle.Operation[Stay]{Subject: subject, Purpose: "room", Request: Stay{
		Room: "sea view", Arrival: "2026-12-24", Nights: 2, Price: decimal.RequireFromString("340.50"), Currency: "EUR",
	}}
}

// finish repeats the same call for at most a virtual day.
func (w *world) finish(p *process, op settle.Operation[Stay]) (settle.Outcome[Confirmation], error) {
	w.t.Helper()
	for range 24 * 60 {
		out, err := p.rooms.Execute(w.t.Context(), op)
		if !errors.Is(err, settle.ErrPending) {
			return out, err
		}
		time.Sleep(time.Minute) // the bubble's
	}
	w.t.Fatal("not settled within a day")
	return settle.Outcome[Confirmation]{}, nil
}

func (w *world) booked(posts, bookings int) {
	w.t.Helper()
	if got := w.hotel.Posts(); got != posts {
		w.t.Errorf("%d requests, want %d", got, posts)
	}
	if got := len(w.hotel.Bookings()); got != bookings {
		w.t.Errorf("%d bookings, want %d", got, bookings)
	}
}

// The reply is lost and the process ends. The booking is invisible for minutes; once the list shows it, the
// lookup by the own reference settles the operation. One request was sent (I4, I6, I10).
func TestLostReplyIsFoundByReference(t *testing.T) {
	inBubble(t, hotel.Options{Lag: 4 * time.Minute}, func(t *testing.T, w *world) {
		w.hotel.Script(hotel.LoseReply)
		a := w.start()
		out, err := a.rooms.Execute(t.Context(), stay("trip-17"))
		if !errors.Is(err, settle.ErrPending) || out.State != settle.StateUnknown {
			t.Fatalf("%s %v: nobody can know yet", out.State, err)
		}
		a.stop()
		b := w.start()
		out, err = w.finish(b, stay("trip-17"))
		if got, ok := out.Result(); err != nil || !ok || got.ID != "bk_1" {
			t.Errorf("%+v %v", got, err)
		}
		w.booked(1, 1)
	})
}

// The request never arrived, which looks the same from here. Nothing shows it when everything has settled, and
// nothing is sent again: a person is asked, says that the hotel knows of no booking, and then it is made (I6).
func TestWhatNobodyCanKnowIsForAPerson(t *testing.T) {
	inBubble(t, hotel.Options{Lag: time.Minute}, func(t *testing.T, w *world) {
		w.hotel.Script(hotel.LoseRequest)
		p := w.start()
		begun := time.Now()
		out, err := w.finish(p, stay("trip-17"))
		if !errors.Is(err, settle.ErrReview) || out.Review == nil || out.Review.Reason != settle.ReasonNoKeys {
			t.Fatalf("%s %+v %v, want a review for want of keys", out.State, out.Review, err)
		}
		c := contract()
		if waited := time.Since(begun); waited < c.SettleDelay+c.LookupLag {
			t.Errorf("a person was asked after %v, when the booking could still have appeared", waited)
		}
		w.booked(1, 0)
		_, err = p.engine.Resolve(t.Context(), out.ID, settle.Decision{
			Actor: "ada", Reason: "asked the hotel", Evidence: "call with the reception, 24 Dec", Fact: settle.NotApplied,
		})
		if err != nil {
			t.Fatal(err)
		}
		if out, err = w.finish(p, stay("trip-17")); err != nil {
			t.Errorf("%s %v", out.State, err)
		}
		w.booked(2, 1)
	})
}

// IC-04, the opposite: the kept-alive connection dies without a reply, and nothing repeats the request behind
// settle's back. A silent second POST would be a second booking.
func TestIC04_NoHiddenResendWithoutKeys(t *testing.T) {
	inBubble(t, hotel.Options{}, func(t *testing.T, w *world) {
		p := w.start()
		if _, err := w.finish(p, stay("trip-1")); err != nil { // leaves a connection behind
			t.Fatal(err)
		}
		w.hotel.Script(hotel.LoseReply)
		out, err := w.finish(p, stay("trip-17"))
		if err != nil || len(out.Attempts) != 1 {
			t.Errorf("%d attempts, %v", len(out.Attempts), err)
		}
		w.booked(2, 2) // trip-1 and this one
	})
}

// Nobody listens: the attempt was not sent, so it may be made when the hotel is back, without a person.
func TestDialRefusedIsSentLater(t *testing.T) {
	inBubble(t, hotel.Options{}, func(t *testing.T, w *world) {
		_ = w.net.Close()
		p := w.start()
		out, err := p.rooms.Execute(t.Context(), stay("trip-17"))
		if !errors.Is(err, settle.ErrPending) || out.State != settle.StateCreated || len(out.Attempts) != 1 || out.Attempts[0].Fate != settle.FateNotSent {
			t.Fatalf("%s %+v %v, want an attempt that was not sent", out.State, out.Attempts, err)
		}
		w.booked(0, 0)
		p.stop()

		w.net = pipenet.Listen()
		w.transport = w.net.Transport()
		w.serve()
		t.Cleanup(w.transport.CloseIdleConnections)
		if _, err := w.finish(w.start(), stay("trip-17")); err != nil {
			t.Error(err)
		}
		w.booked(1, 1)
	})
}

// A refusal is final.
func TestRefusals(t *testing.T) {
	inBubble(t, hotel.Options{}, func(t *testing.T, w *world) {
		p := w.start()
		w.hotel.Script(hotel.Unavailable)
		if out, err := w.finish(p, stay("trip-17")); !errors.Is(err, settle.ErrFailed) || out.Code != "room_unavailable" {
			t.Errorf("%s %s %v", out.State, out.Code, err)
		}
		w.booked(1, 0)
	})
}

func TestAdapterTellsTheTruth(t *testing.T) {
	promise := contract()
	providertest.Run(t, providertest.Harness[Stay, Confirmation]{
		Local: func(testing.TB) providertest.Local {
			h := hotel.New(&hotel.Options{PageSize: 3})
			return providertest.Local{Handler: h, Effects: func(reference string) int {
				n := 0
				for _, b := range h.Bookings() {
					if b.Reference == reference {
						n++
					}
				}
				return n
			}}
		},
		Adapter: func(_ testing.TB, w providertest.Wire) settle.ProviderAdapter[Stay, Confirmation] {
			return newBookings(w.URL, w.Transport, promise)
		},
		Request: func(n int) Stay {
			s := stay("").Request
			s.Nights, s.Price = n, decimal.New(int64(12345+n), -2)
			return s
		},
		Key: providertest.InHeader("Idempotency-Key"), Reference: providertest.InJSON("/reference"),
		Echo: providertest.Echo{
			Amount: []string{"price"}, Currency: []string{"currency"},
			Other: map[string][]string{"room": {"room"}, "arrival": {"arrival"}}, // nights is a number, which the suite cannot replace
		},
		PageSize: 3,
		Answers: []providertest.Answer{
			{Name: "no room", Status: 422, Body: `{"error":"room_unavailable"}`, Want: settle.Declined},
			{Name: "conflict", Status: 409, Body: `{"error":"busy"}`},
			{Name: "credential", Status: 401, Body: `{"error":"unauthorized"}`, Want: settle.NotApplied},
			{Name: "slow down", Status: 429, Header: map[string]string{"Retry-After": "3"}, Body: `{"error":"rate"}`, Want: settle.NotApplied, RetryAfter: 3 * time.Second},
			{Name: "failure", Status: 500, Body: `{"error":"internal"}`},
		},
	})
}

// What a booking says, and which of several with one reference counts.
func TestStatus(t *testing.T) {
	inBubble(t, hotel.Options{PageSize: 1}, func(t *testing.T, w *world) {
		a := newBookings("http://hotel.example", w.transport, contract())
		call := settle.Call[Stay]{ID: "op", Request: stay("").Request}
		for range 3 {
			if obs, err := a.Submit(t.Context(), settle.NewCall("", call)); err != nil || obs.Fact != settle.Applied {
				t.Fatalf("%+v %v", obs, err)
			}
		}
		for status, want := range map[string]settle.Fact{
			"requested": settle.Underway, "confirmed": settle.Applied, "rejected": settle.Declined,
			"canceled": settle.Reversed, "something new": settle.Unclear,
		} {
			w.hotel.SetStatus("bk_1", status)
			w.hotel.SetStatus("bk_2", status)
			w.hotel.SetStatus("bk_3", status)
			for _, call.Ref = range []string{"", "bk_1"} {
				if obs, err := a.Lookup(t.Context(), settle.NewCall("", call)); err != nil || obs.Fact != want || obs.Ref != "bk_1" {
					t.Errorf("%s by %q: %+v %v", status, call.Ref, obs, err)
				}
			}
		}
		w.hotel.SetStatus("bk_1", "rejected")
		w.hotel.SetStatus("bk_2", "confirmed")
		w.hotel.SetStatus("bk_3", "canceled")
		call.Ref = ""
		if obs, err := a.Lookup(t.Context(), settle.NewCall("", call)); err != nil || obs.Ref != "bk_2" {
			t.Errorf("the one that stands is not reported: %+v %v", obs, err)
		}
	})
}

// What is no page of the list is not "not found".
func TestUnreadablePages(t *testing.T) {
	t.Parallel()
	for body, status := range map[string]int{
		"{}": 200, "null": 200, `{"bookings":[]}`: 200, `{"bookings":null,"next":""}`: 200, `{"bookings":[{}],"next":""}`: 200,
		`{"bookings":[],"next":""}`: 404, `{"bookings":[`: 200,
	} {
		transport := roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		})
		a := newBookings("http://hotel.example", transport, contract())
		if obs, err := a.Lookup(t.Context(), settle.NewCall("", settle.Call[Stay]{ID: "op"})); err == nil {
			t.Errorf("%d %s: %+v", status, body, obs)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestProgram(t *testing.T) {
	t.Parallel()
	stagetest.Says(t, run, "=> unknown", "=> succeeded: booking bk_1", "1 request and has 1 booking")
}
