package stripefake

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// saved is what is remembered of a key.
type saved struct {
	params string // endpoint and parameters of the first request
	first  time.Time
	answer *answer // nil while it runs
}

// execute is an endpoint in two steps: what check refuses never began to execute; what run answers
// is stored, whatever it is.
type execute struct {
	check func() *answer
	run   func() answer
}

// post serves a request that may have an effect.
func (s *Server) post(endpoint func(form url.Values, f Fault) execute) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f := s.next(&s.posts)
		if f.Lose == Before {
			hangUp(w)
			return
		}
		a := f.early()
		if a == nil {
			a = s.unauthorized(r)
		}
		if a == nil {
			b := s.idempotently(r, endpoint, f)
			a = &b
		}
		if f.Lose == After {
			hangUp(w)
			return
		}
		a.send(w, f.Garble)
	}
}

func (s *Server) idempotently(r *http.Request, endpoint func(url.Values, Fault) execute, f Fault) answer {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return refusal(http.StatusBadRequest, "invalid_request_error", "", "unreadable body")
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return refusal(http.StatusBadRequest, "invalid_request_error", "", "unreadable form")
	}
	key := r.Header.Get("Idempotency-Key")
	if len(key) > 255 {
		return refusal(http.StatusBadRequest, "invalid_request_error", "", "Idempotency-Key is too long")
	}
	params := r.URL.Path + "?" + form.Encode()

	s.mu.Lock()
	if old := s.keys[key]; key != "" && old != nil && s.opts.Now().Sub(old.first) < s.opts.KeyAge {
		defer s.mu.Unlock()
		switch {
		case old.params != params:
			return refusal(http.StatusBadRequest, "idempotency_error", "",
				"Keys for idempotent requests can only be used with the same parameters they were first used with.")
		case old.answer == nil:
			return refusal(http.StatusConflict, "invalid_request_error", "idempotency_key_in_use",
				"There is currently another in-progress request using this Idempotent Key.")
		}
		a := *old.answer
		a.header = maps.Clone(a.header)
		if a.header == nil {
			a.header = map[string]string{}
		}
		a.header["Idempotent-Replayed"] = "true"
		return a
	}
	ex := endpoint(form, f)
	if a := ex.check(); a != nil {
		s.mu.Unlock()
		return *a
	}
	now := &saved{params: params, first: s.opts.Now()}
	if key != "" {
		s.keys[key] = now
	}
	s.mu.Unlock()

	if f.Hold != nil {
		<-f.Hold
	}
	a := s.run(ex, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	now.answer = &a
	return a
}

// run executes the endpoint and tells of the money that it moved.
func (s *Server) run(ex execute, f Fault) answer {
	if f.Crash == Before {
		return f.crash()
	}
	s.mu.Lock()
	known := len(s.ledger)
	a := ex.run()
	moved := s.ledger[known:len(s.ledger):len(s.ledger)]
	s.mu.Unlock()
	for _, m := range moved {
		if s.opts.OnEffect != nil {
			s.opts.OnEffect(m)
		}
	}
	if f.Crash == After {
		return f.crash()
	}
	return a
}

func (s *Server) id(prefix string) string {
	s.serial++
	return fmt.Sprintf("%s_fake%06d", prefix, s.serial)
}
