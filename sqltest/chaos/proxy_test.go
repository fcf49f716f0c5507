package chaos

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
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

// proxy stands between a client and a server and knows nothing of their protocol: a
// request is what the client says after the server said something. It can hit an exact one of
// them on both sides, for which the toxics of a general proxy come too early or too late.
type proxy struct {
	ln net.Listener

	mu     sync.Mutex
	target string
	// plan decides about each request; it is called with mu held.
	plan  func() fault
	links map[*link]struct{}
	hits  map[fault]int
	down  bool          // connections are closed as they come
	quiet time.Duration // after which a stalled connection breaks; 0: never
}

// link is one connection through the proxy.
type link struct {
	p              *proxy
	client, server net.Conn

	mu      sync.Mutex
	asking  bool  // the client spoke last
	verdict fault // of the request under way
	once    sync.Once
}

func newProxy(tb testing.TB, target string) *proxy {
	tb.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, links: map[*link]struct{}{}, hits: map[fault]int{}}
	go p.serve()
	tb.Cleanup(func() {
		_ = ln.Close()
		p.cutAll()
	})
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) serve() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		go p.connect(c)
	}
}

func (p *proxy) connect(client net.Conn) {
	p.mu.Lock()
	target, down := p.target, p.down
	p.mu.Unlock()
	if down {
		hangUp(client)
		return
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	server, err := d.DialContext(context.Background(), "tcp", target)
	if err != nil {
		hangUp(client)
		return
	}
	l := &link{p: p, client: client, server: server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	go l.answers()
	l.requests()
}

// hangUp resets the connection: whatever was not delivered is lost.
func hangUp(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

func (l *link) cut() {
	l.once.Do(func() {
		hangUp(l.client)
		hangUp(l.server)
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		delete(l.p.links, l)
	})
}

// requests carries bytes to the server.
func (l *link) requests() {
	alone := false // answers ends the connection
	defer func() {
		if !alone {
			l.cut()
		}
	}()
	buf := make([]byte, 256<<10)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		if !l.asking && l.verdict != stall {
			l.asking, l.verdict = true, l.p.ask()
			if l.verdict == stall && l.p.quiet > 0 {
				time.AfterFunc(l.p.quiet, l.cut)
			}
		}
		v := l.verdict
		l.mu.Unlock()
		if v == cutBefore {
			return
		}
		if v == stall {
			continue
		}
		if v == cutDuring {
			hangUp(l.client) // first, or a quick answer would arrive
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
		if v == cutDuring {
			// The server's side ends in order: a reset would take away what was just sent.
			alone = true
			_ = l.server.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

// answers carries bytes to the client.
func (l *link) answers() {
	defer l.cut()
	buf := make([]byte, 256<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		v := l.verdict
		l.asking = false
		l.mu.Unlock()
		out := buf[:n]
		if v == cutAfter {
			return
		}
		if v == stall {
			continue
		}
		if v == cutTorn {
			_, _ = l.client.Write(out[:n/2])
			// Half an answer must arrive to be one: no reset overtakes it.
			_ = l.client.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, l.client)
			return
		}
		if _, err := l.client.Write(out); err != nil {
			return
		}
	}
}

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

// sever closes every connection, and refuses new ones while down.
func (p *proxy) sever(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	p.cutAll()
}

func (p *proxy) cutAll() {
	p.mu.Lock()
	all := make([]*link, 0, len(p.links))
	for l := range p.links {
		all = append(all, l)
	}
	p.mu.Unlock()
	for _, l := range all {
		l.cut()
	}
}

// TestProxy: each fault hits the request that it is meant for, on the side that it is meant for.
func TestProxy(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	served := make(chan string, 10)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 100)
				for {
					n, err := c.Read(buf)
					if err != nil {
						served <- "gone"
						return
					}
					served <- string(buf[:n])
					_, _ = c.Write([]byte("re:" + string(buf[:n])))
				}
			}()
		}
	}()
	for f, want := range map[fault]struct{ served, reply string }{
		cutBefore: {"one gone", ""}, cutDuring: {"one two", ""}, cutAfter: {"one two", ""}, cutTorn: {"one two", "re:"}, pass: {"one two", "re:two"},
	} {
		t.Run(f.String(), func(t *testing.T) {
			p := newProxy(t, ln.Addr().String())
			came := p.at(2, f)
			var d net.Dialer
			c, err := d.DialContext(t.Context(), "tcp", p.addr())
			if err != nil {
				t.Fatal(err)
			}
			say := func(s string) string {
				if _, err := fmt.Fprint(c, s); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 100)
				n, _ := c.Read(buf)
				return string(buf[:n])
			}
			if r := say("one"); r != "re:one" || closed(came) {
				t.Fatalf("the first request: %q", r)
			}
			if r := say("two"); r != want.reply || !closed(came) {
				t.Errorf("reply %q, want %q", r, want.reply)
			}
			if got := <-served + " " + <-served; got != want.served {
				t.Errorf("served %q, want %q", got, want.served)
			}
			_ = c.Close()
			if f != cutBefore {
				<-served
			}
		})
	}
}
