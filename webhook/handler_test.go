package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/storetest"
	"github.com/settle-go/settle/webhook"
)

const secret = "whsec_new"

// message is an event on the wire.
type message struct {
	ID        string      `json:"id"`
	Type      string      `json:"type"`
	Operation string      `json:"operation,omitempty"`
	Ref       string      `json:"ref,omitempty"`
	Fact      settle.Fact `json:"fact,omitempty"`
	Note      string      `json:"note,omitempty"`
}

func (m message) String() string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // of strings
	}
	return string(b)
}

func readMessage(d webhook.Delivery) (settle.Event, error) {
	var m message
	if err := json.Unmarshal(d.Body, &m); err != nil {
		return settle.Event{}, err
	}
	switch m.Type {
	case "ping":
		return settle.Event{}, webhook.ErrIgnore
	case "boom":
		panic(m.Note)
	}
	return settle.Event{ID: m.ID, Type: m.Type, Operation: m.Operation, Ref: m.Ref}, nil
}

// endpoint is a shop whose provider reports by events, in a bubble where time is free.
type endpoint struct {
	*rig.Rig
	p       *rig.Process
	h       http.Handler
	mu      sync.Mutex
	reports []webhook.Report
	hooks   int
	lost    atomic.Bool // commits happen, and their answers are lost
}

func bubble(t *testing.T, o *webhook.HandlerOptions, body func(t *testing.T, e *endpoint)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		e.Rig = rig.New(t, storetest.Wrap(memstore.New(nil), func(c storetest.Call) storetest.Fault {
			if c.Op == storetest.OpCommit && e.lost.Load() {
				return storetest.Fault{After: storetest.Fail(errors.New("connection reset"))}
			}
			return storetest.Fault{}
		}), nil)
		e.p = e.Bare(nil)
		a := pt.ChargeAdapter(e.p.API, e.Promise)
		a.EventFunc = func(_ context.Context, ev settle.Event) (settle.Observation[pt.Receipt], error) {
			var m message
			if err := json.Unmarshal(ev.Payload, &m); err != nil {
				return settle.Observation[pt.Receipt]{}, err
			}
			return settle.Observation[pt.Receipt]{Fact: m.Fact, Ref: m.Ref, Terms: settle.Terms{Account: "acct-1", Amount: settle.Minor(1999, "EUR")}}, nil
		}
		var err error
		e.p.Charges, err = settle.New(e.p.Engine, rig.KindCharge, a, &settle.ExecutorOptions[pt.Payment, pt.Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[pt.Receipt]) error {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.hooks++
				return nil
			},
		})
		rig.OK(t, err)
		v, err := webhook.New(webhook.Stripe(), &webhook.Options{Secrets: []webhook.Secret{
			{Value: secret}, {Value: "whsec_old", Until: time.Now().Add(24 * time.Hour)},
		}})
		rig.OK(t, err)
		opts := webhook.HandlerOptions{}
		if o != nil {
			opts = *o
		}
		opts.Report = func(r webhook.Report) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.reports = append(e.reports, r)
		}
		e.h, err = webhook.NewHandler(e.p.Engine, v, e.Promise.Account, readMessage, &opts)
		rig.OK(t, err)
		body(t, e)
	})
}

// post delivers body, signed now, and checks the status.
func (e *endpoint) post(status int, secret, body string) *httptest.ResponseRecorder {
	e.T.Helper()
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "%d.%s", time.Now().Unix(), body)
	return e.send(status, body, fmt.Sprintf("t=%d,v1=%s", time.Now().Unix(), hex.EncodeToString(mac.Sum(nil))))
}

func (e *endpoint) send(status int, body, signature string) *httptest.ResponseRecorder {
	e.T.Helper()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/webhooks", strings.NewReader(body))
	r.Header.Set(webhook.StripeHeader, signature)
	w := httptest.NewRecorder()
	e.h.ServeHTTP(w, r)
	if w.Code != status {
		e.T.Errorf("answered %d %q, want %d", w.Code, w.Body, status)
	}
	return w
}

func (e *endpoint) last() webhook.Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reports[len(e.reports)-1]
}

// kept counts the events in the store.
func (e *endpoint) kept(want int) {
	e.T.Helper()
	n := 0
	for r, err := range e.p.List(context.Background(), settle.Query{Kind: settle.EventKind}) {
		rig.OK(e.T, err)
		if r.ID != "" {
			n++
		}
	}
	if n != want {
		e.T.Errorf("%d events are kept, want %d", n, want)
	}
}

// charge makes an operation whose reply and lookups say nothing.
func (e *endpoint) charge() settle.Record {
	e.T.Helper()
	e.Provider.Script(pt.DropReply())
	e.Provider.ScriptLookup(pt.Status(503, ""))
	out, err := e.p.Charges.Execute(context.Background(), rig.Op("order-1", 1999, "EUR"))
	rig.Is(e.T, err, settle.ErrUnknown)
	return out.Record
}

// The event settles what no reply did, once, and only then is the answer 2xx.
func TestEventSettles(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *endpoint) {
		op := e.charge()
		e.post(200, secret, message{ID: "evt_1", Type: "charge.succeeded", Operation: op.ID, Ref: "ch_1", Fact: settle.Applied}.String())
		e.State(op.ID, settle.StateSucceeded)
		if r := e.last(); r.Observed.Parked || r.Observed.Duplicate || r.Observed.Record.ID != op.ID || r.Secret != 0 || r.Err != nil {
			t.Errorf("%+v", r)
		}
		e.kept(1)
	})
}

// IC-38: an event that comes before its operation is stored is kept before it is answered, and settles it without
// another delivery. The reply that comes late changes nothing.
func TestIC38_EventBeforeTheOperation(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *endpoint) {
		e.p.Work()
		release := make(chan struct{})
		e.Provider.Script(pt.HangAfter(release))
		var once sync.Once // of the first commit only
		e.p.Store.BeforeCommit(func(c settle.Change) error {
			if r := c.Writes[0].Record; r.Kind == rig.KindCharge {
				once.Do(func() { // the transaction that stores the order is still open
					e.post(200, secret, message{ID: "evt_1", Type: "charge.succeeded", Operation: r.ID, Ref: "ch_1", Fact: settle.Applied}.String())
					if !e.last().Observed.Parked {
						t.Error("it was not parked")
					}
				})
			}
			return nil
		})
		wait := rig.Execute(context.Background(), e.p.Charges, rig.Op("order-1", 1999, "EUR"))
		rig.After(5 * time.Second)
		recs := e.All()
		var op settle.Record
		for _, r := range recs {
			if r.Kind == rig.KindCharge {
				op = r
			}
		}
		if op.State != settle.StateSucceeded {
			t.Errorf("before the reply: %s", op.State)
		}
		close(release)
		if ans := wait(); ans.Err != nil {
			t.Error(ans.Err)
		}
		rig.After(time.Minute)
		e.State(op.ID, settle.StateSucceeded)
		if e.hooks != 1 {
			t.Errorf("the hook ran %d times", e.hooks)
		}
		e.Ledger(1, map[string]int{op.ID: 1})
	})
}

// IC-39: a decline that is delivered again an hour after the success, with a good signature, is kept and moves nothing.
func TestIC39_LateDecline(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *endpoint) {
		op := e.charge()
		e1 := message{ID: "evt_1", Type: "charge.failed", Operation: op.ID, Fact: settle.Declined}.String()
		e.p.Store.Cut()
		e.post(503, secret, e1)
		e.p.Store.Mend()
		e.post(200, secret, message{ID: "evt_2", Type: "charge.succeeded", Operation: op.ID, Ref: "ch_1", Fact: settle.Applied}.String())
		rig.After(time.Hour)
		e.post(200, secret, e1)
		e.State(op.ID, settle.StateSucceeded)
		e.kept(2)
		if e.hooks != 1 {
			t.Errorf("the hook ran %d times", e.hooks)
		}
		for _, x := range e.History(op.ID) {
			if x.Source == settle.SourceEvent && x.Fact == settle.Declined && x.Disposition == settle.DispositionSuperseded {
				return
			}
		}
		t.Error("the decline is not in the history as superseded")
	})
}

// IC-43: what a middleware encoded again is refused with a clear word, and so is everything that is not signed.
func TestIC43_EncodedAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *endpoint) {
		op := e.charge()
		body := fmt.Sprintf("{\"note\":\"\\u001B 💶\",  \"id\":\"evt_1\",\"operation\":%q,\"ref\":\"ch_1\",\"fact\":\"applied\",\"type\":\"charge.succeeded\"}", op.ID)
		good := e.h
		e.h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var v any
			rig.OK(t, json.NewDecoder(r.Body).Decode(&v))
			b, err := json.Marshal(v)
			rig.OK(t, err)
			r.Body = io.NopCloser(strings.NewReader(string(b)))
			good.ServeHTTP(w, r)
		})
		if w := e.post(400, secret, body); !strings.Contains(w.Body.String(), "mismatch") || strings.Contains(w.Body.String(), op.ID) {
			t.Errorf("%q", w.Body)
		}
		if r := e.last(); r.Reason != webhook.ReasonMismatch || r.Secret != -1 || !errors.Is(r.Err, webhook.ErrSignature) {
			t.Errorf("%+v", r)
		}
		e.h = good
		for _, sig := range []string{"", "t=1", "t=1,v1=" + strings.Repeat("0", 64)} {
			e.send(400, body, sig)
		}
		e.post(400, "whsec_third", body)
		e.kept(0)
		e.State(op.ID, settle.StateUnknown)
		e.post(200, secret, body)
		e.State(op.ID, settle.StateSucceeded)
		e.kept(1)
	})
}

// IC-44: who repeats a delivery as long as its signature can be accepted meets the event that is kept.
func TestIC44_ReplayWithinTheTolerance(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *endpoint) {
		op := e.charge()
		body := message{ID: "evt_1", Type: "charge.succeeded", Operation: op.ID, Ref: "ch_1", Fact: settle.Applied}.String()
		when := time.Now().Add(90 * time.Second) // the sender's clock is ahead
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = fmt.Fprintf(mac, "%d.%s", when.Unix(), body)
		sig := fmt.Sprintf("t=%d,v1=%s", when.Unix(), hex.EncodeToString(mac.Sum(nil)))
		e.send(200, body, sig)
		e.State(op.ID, settle.StateSucceeded)
		rig.After(389 * time.Second)
		e.send(200, body, sig)
		if !e.last().Observed.Duplicate {
			t.Error("the same delivery counted twice")
		}
		rig.After(2 * time.Second)
		e.send(400, body, sig)
		e.kept(1)
		if e.hooks != 1 {
			t.Errorf("the hook ran %d times", e.hooks)
		}
	})
}

// IC-45: one event that is signed with both secrets, in either order, is one event.
func TestIC45_OneEventUnderBothSecrets(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *endpoint) {
		op := e.charge()
		body := message{ID: "evt_1", Type: "charge.succeeded", Operation: op.ID, Ref: "ch_1", Fact: settle.Applied}.String()
		e.post(200, "whsec_old", body)
		if e.last().Secret != 1 {
			t.Error("the report does not say which secret it was")
		}
		rig.After(20 * time.Hour)
		e.post(200, "whsec_old", body)
		e.post(200, secret, body)
		if !e.last().Observed.Duplicate {
			t.Error("not a duplicate")
		}
		rig.After(4 * time.Hour)
		e.post(400, "whsec_old", body)
		e.kept(1)
		if e.hooks != 1 {
			t.Errorf("the hook ran %d times", e.hooks)
		}
	})
}

// IC-46: what could not be stored is never answered 2xx, before or after it reached the store or by a panic on the way; the
// redelivery applies it once.
func TestIC46_NotStoredIsNotAccepted(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *endpoint) {
		op := e.charge()
		body := message{ID: "evt_1", Type: "charge.succeeded", Operation: op.ID, Ref: "ch_1", Fact: settle.Applied}.String()
		e.p.Store.BeforeCommit(func(settle.Change) error { return errors.New("disk full: " + body) })
		w := e.post(503, secret, body)
		if w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "disk") {
			t.Errorf("%v %q", w.Header(), w.Body)
		}
		e.State(op.ID, settle.StateUnknown)
		e.kept(0)

		e.post(503, secret, "unreadable") // setting aside is keeping, too
		e.kept(0)

		// The commit happens, and its answer is lost for as long as the handler waits.
		e.p.Store.BeforeCommit(nil)
		e.lost.Store(true)
		e.post(503, secret, body)
		e.lost.Store(false)

		e.post(200, secret, body)
		e.State(op.ID, settle.StateSucceeded)
		e.kept(1)
		if e.hooks != 1 {
			t.Errorf("the hook ran %d times", e.hooks)
		}
	})
	t.Run("panic", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, e *endpoint) {
			w := e.post(500, secret, message{ID: "evt_1", Type: "boom", Note: "4111 1111"}.String())
			if strings.Contains(w.Body.String(), "4111") || strings.Contains(fmt.Sprint(e.last().Err), "4111") {
				t.Errorf("the answer quotes the event: %q %v", w.Body, e.last().Err)
			}
			e.kept(0)
		})
	})
}

// IC-34: an event with NULs and other oddities in its text is kept byte for byte; one whose names no store could keep, or that
// cannot be read, is set aside for a person. Each has a final answer.
func TestIC34_Oddities(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *endpoint) {
		e.p.Work()
		op := e.charge()
		body := fmt.Sprintf(`{"id":"evt_1","type":"charge.succeeded","operation":%q,"ref":"ch_1","fact":"applied","note":"a\u0000b"}`, op.ID)
		e.post(200, secret, body)
		e.State(op.ID, settle.StateSucceeded)
		rec := e.Get(e.last().Observed.Event)
		var kept struct{ Payload []byte }
		rig.OK(t, json.Unmarshal(rec.Request, &kept))
		if string(kept.Payload) != body {
			t.Errorf("kept as %q", kept.Payload)
		}
		var aside []string
		for _, body := range []string{
			`{"id":"evt\u0000_2","type":"x"}`, `{"id":"","type":"x"}`, `{"id":"evt_3","type":"a\u0000b"}`, `{"id":"evt_4","ref":"\u001b"}`,
			"not \x00 JSON", "", `{"id":5}`, `{"id":"` + strings.Repeat("e", 256) + `"}`,
		} {
			e.post(200, secret, body)
			if r := e.last(); r.Err == nil || !r.Observed.Parked || r.Observed.Event == "" {
				t.Errorf("%.40q: %+v", body, r)
			}
			aside = append(aside, e.last().Observed.Event)
			e.post(200, secret, body) // sent again it is the same one
			if !e.last().Observed.Duplicate {
				t.Errorf("%.40q is two events", body)
			}
		}
		e.kept(1 + len(aside))
		rig.After(settle.DefaultOrphanAfter + 2*time.Hour)
		for _, id := range aside {
			if r := e.Get(id); r.Review == nil || r.Review.Reason != settle.ReasonOrphan {
				t.Errorf("%s is not before a person: %+v", id, r.Review)
			}
		}
	})
}

func TestHandlerAnswers(t *testing.T) {
	bubble(t, &webhook.HandlerOptions{MaxBody: 100}, func(t *testing.T, e *endpoint) {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodHead} {
			w := httptest.NewRecorder()
			e.h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
			if w.Code != 405 || w.Header().Get("Allow") != "POST" {
				t.Errorf("%s: %d %v", method, w.Code, w.Header())
			}
		}
		e.post(200, secret, message{ID: "evt_1", Type: "ping"}.String())
		e.kept(0) // of no interest
		e.post(413, secret, message{ID: "evt_1", Type: "x", Note: strings.Repeat("x", 100)}.String())
		body := `{"id":"evt_1","note":"` + strings.Repeat("x", 76) + `"}`
		e.post(200, secret, body)
		if len(body) != 100 {
			t.Errorf("%d bytes, want those of the limit", len(body))
		}
		e.kept(1)

		// A body that ends early is not what was signed, whatever the signature.
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.MultiReader(strings.NewReader("{"), broken{}))
		w := httptest.NewRecorder()
		if e.h.ServeHTTP(w, r); w.Code != 400 {
			t.Errorf("%d", w.Code)
		}

		// The provider hangs up: the event is kept all the same.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		body = message{ID: "evt_9", Type: "x"}.String()
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = fmt.Fprintf(mac, "%d.%s", time.Now().Unix(), body)
		r = httptest.NewRequestWithContext(gone, http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set(webhook.StripeHeader, fmt.Sprintf("t=%d,v1=%x", time.Now().Unix(), mac.Sum(nil)))
		e.h.ServeHTTP(httptest.NewRecorder(), r)
		e.kept(2)

		rig.OK(t, e.p.Drain(t.Context()))
		e.post(503, secret, message{ID: "evt_2"}.String())
		e.kept(2)
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestNewHandlerRefuses(t *testing.T) {
	t.Parallel()
	e, err := settle.Open(memstore.New(nil), nil)
	rig.OK(t, err)
	v, err := webhook.New(webhook.Stripe(), &webhook.Options{Secrets: []webhook.Secret{{Value: secret}}})
	rig.OK(t, err)
	account := settle.AccountFacts{Provider: "p"}
	if _, err := webhook.NewHandler(e, v, account, readMessage, nil); err != nil {
		t.Error(err)
	}
	for i, make := range []func() (*webhook.Handler, error){
		func() (*webhook.Handler, error) { return webhook.NewHandler(nil, v, account, readMessage, nil) },
		func() (*webhook.Handler, error) { return webhook.NewHandler(e, nil, account, readMessage, nil) },
		func() (*webhook.Handler, error) {
			return webhook.NewHandler(e, v, settle.AccountFacts{}, readMessage, nil)
		},
		func() (*webhook.Handler, error) { return webhook.NewHandler(e, v, account, nil, nil) },
		func() (*webhook.Handler, error) {
			return webhook.NewHandler(e, v, account, readMessage, &webhook.HandlerOptions{MaxBody: settle.MaxEvent + 1})
		},
		func() (*webhook.Handler, error) {
			return webhook.NewHandler(e, v, account, readMessage, &webhook.HandlerOptions{MaxBody: -1})
		},
	} {
		if _, err := make(); err == nil {
			t.Errorf("%d was taken", i)
		}
	}
}
