package edgetest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
)

// TestRouters: below each router, at the top and under a prefix, one request does one charge however often it comes, Location leads
// to its status, and nobody else finds it.
func TestRouters(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for name, mount := range map[string]func(h http.Handler) http.Handler{
		"chi": func(h http.Handler) http.Handler {
			r := chi.NewRouter()
			r.Method(http.MethodPost, "/payments", h)
			r.Method(http.MethodGet, "/payments/{id}", h)
			r.Route("/v1", func(r chi.Router) {
				r.Method(http.MethodPost, "/payments", h)
				r.Method(http.MethodGet, "/payments/{id}", h)
			})
			r.Mount("/all/payments", h)
			return r
		},
		"gin": func(h http.Handler) http.Handler {
			r := gin.New()
			for _, g := range []gin.IRoutes{r, r.Group("/v1"), r.Group("/all")} {
				g.POST("/payments", gin.WrapH(h))
				g.GET("/payments/:id", gin.WrapH(h))
			}
			return r
		},
		"echo": func(h http.Handler) http.Handler {
			e := echo.New()
			e.POST("/payments", echo.WrapHandler(h))
			e.GET("/payments/:id", echo.WrapHandler(h))
			for _, prefix := range []string{"/v1", "/all"} {
				g := e.Group(prefix)
				g.POST("/payments", echo.WrapHandler(h))
				g.GET("/payments/:id", echo.WrapHandler(h))
			}
			return e
		},
		"net/http": func(h http.Handler) http.Handler {
			m := http.NewServeMux()
			for _, prefix := range []string{"", "/v1", "/all"} {
				m.Handle("POST "+prefix+"/payments", h)
				m.Handle("GET "+prefix+"/payments/{id}", h)
			}
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, nil)
			server := httptest.NewServer(mount(s.h))
			t.Cleanup(server.Close)
			for i, path := range []string{"/payments", "/v1/payments", "/all/payments"} {
				order := string(rune('a' + i))
				first, h := do(t, server, pay(path, order), 200)
				if h.Get("Idempotent-Replayed") != "" || first.State != settle.StateSucceeded {
					t.Errorf("%s: %+v %v", path, first, h)
				}
				again, h := do(t, server, pay(path, order), 200)
				if h.Get("Idempotent-Replayed") != "true" || again.Operation != first.Operation {
					t.Errorf("%s: the replay is %+v %v", path, again, h)
				}
				at, err := url.Parse(path)
				if err != nil {
					t.Fatal(err)
				}
				if at, err = at.Parse(h.Get("Location")); err != nil || at.Path != path+"/"+first.Operation {
					t.Errorf("%s: Location %q leads to %v, %v", path, h.Get("Location"), at, err)
					continue
				}
				if seen, _ := do(t, server, look(at.Path), 200); seen.Operation != first.Operation {
					t.Errorf("%s: the status is of %+v", path, seen)
				}
				bob := look(at.Path)
				bob.user = "bob"
				do(t, server, bob, 404)
				bare := pay(path, order)
				bare.key = ""
				do(t, server, bare, 400)
				other := pay(path, order)
				other.body = `{"amount":2999,"currency":"EUR"}`
				do(t, server, other, 422)
			}
			s.Ledger(3, nil)
		})
	}
}

func do(t *testing.T, server *httptest.Server, a ask, code int) (httpsettle.Status, http.Header) {
	t.Helper()
	r := a.request(t)
	u, err := url.Parse(server.URL + a.path)
	if err != nil {
		t.Fatal(err)
	}
	r.URL, r.RequestURI = u, ""
	res, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var out httpsettle.Status
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil || res.StatusCode != code {
		t.Errorf("%s %s: %d, want %d (%v)", a.method, a.path, res.StatusCode, code, err)
	}
	return out, res.Header
}
