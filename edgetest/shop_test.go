package edgetest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

// shop is an endpoint with a provider behind it.
type shop struct {
	*rig.Rig
	p *rig.Process
	h http.Handler
}

func newShop(t *testing.T, o *httpsettle.HandlerOptions[providertest.Receipt]) *shop {
	t.Helper()
	s := &shop{Rig: rig.New(t, memstore.New(nil), nil)}
	s.p = s.Start(nil)
	h, err := httpsettle.NewHandler(s.p.Engine, s.p.Charges,
		func(r *http.Request) (string, error) {
			if r.Header.Get("Authorization") == "" {
				return "", errors.New("nobody")
			}
			return r.Header.Get("Authorization"), nil
		},
		func(r *http.Request, body []byte) (settle.Operation[providertest.Payment], error) {
			op := settle.Operation[providertest.Payment]{Subject: "order-" + r.Header.Get("X-Order"), Purpose: "purchase"}
			return op, httpsettle.Decode(body, &op.Request)
		}, o)
	rig.OK(t, err)
	s.h = h
	return s
}

// ask is one request.
type ask struct {
	method, path, user, order, key, prefer, media, body string
}

// pay is Ann's request for an order, under the key of that order.
func pay(path, order string) ask {
	return ask{"POST", path, "ann", order, `"key-` + order + `"`, "", "application/json", `{"amount":1999,"currency":"EUR"}`}
}

func look(path string) ask { return ask{method: "GET", path: path, user: "ann"} }

func (a ask) request(t testing.TB) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), a.method, a.path, strings.NewReader(a.body))
	for name, v := range map[string]string{
		"Authorization": a.user, "X-Order": a.order, "Idempotency-Key": a.key, "Prefer": a.prefer, "Content-Type": a.media,
	} {
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	return r
}

const patience = 50 * time.Millisecond // of requests to which nobody answers in time
