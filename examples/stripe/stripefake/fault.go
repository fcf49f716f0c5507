package stripefake

import (
	"net/http"
	"strconv"
)

// When says at which point a fault strikes.
type When int

// The points of a request: before it was looked at, and after its effect.
const (
	Never When = iota
	Before
	After
)

// Fault is what goes wrong with one request. The zero value is a request that goes well.
type Fault struct {
	// Lose closes the connection without a reply.
	Lose When
	// Crash answers 500 while the endpoint executes, before or after its effect. As any other result, it is
	// stored under the key.
	Crash When
	// Status, if set, is answered in front of everything else: nothing is executed or stored.
	// Type and Code fill the error's fields, RetryAfter (seconds) the header; an empty Type makes it a proxy's
	// page instead of Stripe's JSON.
	Status     int
	Type, Code string
	RetryAfter int
	// Hold keeps the endpoint executing until the channel is closed.
	Hold <-chan struct{}
	// Amount, if set, is received instead of what was asked for.
	Amount int64
	// Garble cuts the body of the reply in half.
	Garble bool
}

// Script sets what the next POST requests do, one fault each, in order of arrival.
func (s *Server) Script(f ...Fault) { s.script(&s.posts, f) }

// ScriptGet sets what the next GET requests do.
func (s *Server) ScriptGet(f ...Fault) { s.script(&s.gets, f) }

func (s *Server) script(queue *[]Fault, f []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*queue = append(*queue, f...)
}

func (s *Server) next(queue *[]Fault) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(*queue) == 0 {
		return Fault{}
	}
	f := (*queue)[0]
	*queue = (*queue)[1:]
	return f
}

// early is the answer that comes in front of everything else, if any.
func (f Fault) early() *answer {
	if f.Status == 0 {
		return nil
	}
	a := refusal(f.Status, f.Type, f.Code, http.StatusText(f.Status))
	if f.Type == "" {
		a.body = []byte("<html>" + http.StatusText(f.Status) + "</html>")
	}
	if f.RetryAfter > 0 {
		a.header = map[string]string{"Retry-After": strconv.Itoa(f.RetryAfter)}
	}
	return &a
}

func (f Fault) crash() answer {
	a := refusal(http.StatusInternalServerError, "api_error", "", "An unknown error occurred")
	a.header = map[string]string{"Stripe-Should-Retry": "false"}
	return a
}

// hangUp ends the connection without a byte of a reply.
func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}
