package providertest_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/settle-go/settle"
	pt "github.com/settle-go/settle/providertest"
)

// Go's transport repeats a POST with an Idempotency-Key by itself when a kept-alive connection dies under
// it (IC-04). If that second copy finds the door closed, the error says that dialing was
// refused, although the first copy arrived and had its effect: it proves nothing (I4).
func TestRefusedResendIsNotNotSent(t *testing.T) {
	var server *httptest.Server
	offer := &pt.Options{KeyWindow: 24 * time.Hour, OnApply: func(o pt.Object) {
		if o.Reference == "op-2" {
			_ = server.Listener.Close() // from now on dialing is refused
		}
	}}
	provider := pt.New(offer)
	server = httptest.NewServer(provider.Handler())
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	a := pt.ChargeAdapter(pt.NewClient(server.URL, &http.Client{Transport: transport}), pt.Promise(offer))
	submit := func(id string) (settle.Observation[pt.Receipt], error) {
		return a.Submit(t.Context(), settle.NewCall("key of "+id, settle.Call[pt.Payment]{
			ID: id, Attempt: 1, Request: pt.Payment{Amount: 1999, Currency: "EUR"},
		}))
	}
	if obs, err := submit("op-1"); err != nil || obs.Fact != settle.Applied { // leaves a connection behind
		t.Fatalf("%+v %v", obs, err)
	}
	provider.Script(pt.DropReply())
	obs, err := submit("op-2")
	if n := provider.Effects("op-2"); n != 1 {
		t.Fatalf("%d effects, want 1", n)
	}
	if err == nil {
		t.Errorf("the adapter reports %q, and the effect exists", obs.Fact)
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the case is gone: the error should be that of a refused dial, and is %v", err)
	}
}
