package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// fault is what happens to one round trip.
type fault int

const (
	pass      fault = iota
	cutBefore       // the request never reaches the server
	cutDuring       // it does, and the connection is gone before the server is done
	cutAfter        // the server has answered, and the answer is lost
	cutTorn         // half of the answer arrives
	stall           // nothing arrives any more, either way, and nobody says so
	faults
)

// String names f.
func (f fault) String() string {
	return [...]string{"pass", "cut before", "cut during", "cut after", "torn", "stall"}[f]
}

// proxy stands between a client and a server: toxiproxy, with a toxic of ours for each direction that
// knows nothing of their protocol. A request is what the client says after the server said
// something. Toxiproxy's own toxics know no requests, and would come too early or too late.
type proxy struct {
	toxi *toxiproxy.Proxy

	mu sync.Mutex
	// plan decides about each request; it is called with mu held.
	plan  func() fault
	links []*link // all that there were
	hits  map[fault]int
	quiet time.Duration // after which a stalled connection breaks; 0: never
}

// newProxy listens for connections to target. Where it cuts them they end in order, or are reset:
// then a client may hear of it when it speaks, and half of an answer may be lost too.
func newProxy(tb testing.TB, target string, resets bool) *proxy {
	tb.Helper()
	toxics.Register("requests", new(requests))
	toxics.Register("answers", new(answers))
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{toxi: toxiproxy.NewProxy(server, tb.Name(), "127.0.0.1:0", target), hits: map[fault]int{}}
	if resets {
		// The toxic makes every end of a connection a reset by being there; of toxicity 0 it does nothing else.
		p.add(tb, `{"type": "reset_peer", "stream": "upstream", "toxicity": 0}`)
	}
	// The last of their direction: what is before them never waits for one who is gone.
	p.add(tb, `{"type": "requests", "stream": "upstream"}`).(*requests).p = p
	p.add(tb, `{"type": "answers", "stream": "downstream"}`).(*answers).p = p
	must(tb, p.toxi.Start())
	tb.Cleanup(func() {
		p.toxi.Stop()
		p.sever()
	})
	return p
}

func (p *proxy) add(tb testing.TB, toxic string) toxics.Toxic {
	tb.Helper()
	w, err := p.toxi.Toxics.AddToxicJson(strings.NewReader(toxic))
	must(tb, err)
	return w.Toxic
}

func (p *proxy) addr() string { return p.toxi.Listen }

func (p *proxy) ask() fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plan == nil {
		return pass
	}
	f := p.plan()
	p.hits[f]++
	return f
}

// at hits the nth request from now, once. came is closed when that request comes.
func (p *proxy) at(n int, f fault) (came <-chan struct{}) {
	c := make(chan struct{})
	i := 0
	p.set(func() fault {
		if i++; i == n {
			close(c)
			return f
		}
		return pass
	})
	return c
}

// closed reports whether c is.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (p *proxy) set(plan func() fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

// sever closes every connection and returns when both ends and all that served it are gone.
func (p *proxy) sever() {
	p.mu.Lock()
	all := slices.Clone(p.links)
	p.mu.Unlock()
	for _, l := range all {
		l.cut()
		l.pipes.Wait()
	}
}

// TestProxy: each fault hits the request that it is meant for, on the side that it is meant for.
func TestProxy(t *testing.T) {
	t.Parallel()
	for f, want := range map[fault]struct {
		served, reply string
		answered      bool // before the client's wait is over
	}{
		pass:      {"one, two, gone", "re:two", true},
		cutBefore: {"one, gone", "", false},
		cutDuring: {"one, two, gone", "", false},
		cutAfter:  {"one, two, gone", "", true},
		cutTorn:   {"one, two, gone", "re:", true},
		stall:     {"one, gone", "", false},
	} {
		for _, resets := range []bool{false, true} {
			if f == cutTorn && resets {
				continue // which half arrives is the network's choice
			}
			t.Run(fmt.Sprintf("%s, resets %v", f, resets), func(t *testing.T) {
				t.Parallel()
				over := make(chan struct{}) // the client's wait is
				s := serve(t, func(request string) {
					if f == cutDuring && request == "two" {
						<-over
					}
				})
				p := newProxy(t, s.addr, resets)
				came := p.at(2, f)
				var d net.Dialer
				c, err := d.DialContext(t.Context(), "tcp", p.addr())
				must(t, err)
				t.Cleanup(func() { _ = c.Close() })
				say := func(text string) (string, error) {
					_, err := fmt.Fprint(c, text)
					must(t, err)
					buf := make([]byte, 100)
					n, err := c.Read(buf)
					return string(buf[:n]), err
				}
				if r, err := say("one"); r != "re:one" || closed(came) {
					t.Fatalf("the first request: %q, %v", r, err)
				}
				patience := 10 * time.Second
				if f == stall {
					patience = 50 * time.Millisecond
				}
				must(t, c.SetReadDeadline(time.Now().Add(patience)))
				r, err := say("two")
				if r != want.reply || !closed(came) || closed(s.answered) != want.answered {
					t.Errorf("reply %q, want %q; answered: %v, want %v", r, want.reply, closed(s.answered), want.answered)
				}
				if cut := f != stall && r == ""; cut && errors.Is(err, syscall.ECONNRESET) != resets || errors.Is(err, os.ErrDeadlineExceeded) != (f == stall) {
					t.Errorf("the end was: %v", err)
				}
				close(over)
				if f == stall || f == pass || t.Failed() {
					p.sever() // what ends by itself otherwise
				}
				if got := <-s.served; got != want.served {
					t.Errorf("served %q, want %q", got, want.served)
				}
			})
		}
	}
}

// echo is a server of one connection.
type echo struct {
	addr     string
	answered chan struct{} // closed before it answers the second request
	served   chan string   // all that it heard, when the connection has ended
}

func serve(tb testing.TB, before func(request string)) *echo {
	tb.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	must(tb, err)
	tb.Cleanup(func() { _ = ln.Close() })
	s := &echo{ln.Addr().String(), make(chan struct{}), make(chan string, 1)}
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		var all []string
		buf := make([]byte, 100)
		for {
			n, err := c.Read(buf)
			if err != nil {
				s.served <- strings.Join(append(all, "gone"), ", ")
				return
			}
			all = append(all, string(buf[:n]))
			before(string(buf[:n]))
			if len(all) == 2 {
				close(s.answered)
			}
			_, _ = fmt.Fprintf(c, "re:%s", buf[:n])
		}
	}()
	return s
}
