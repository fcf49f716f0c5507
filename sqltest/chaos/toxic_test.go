package chaos

import (
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// link is one connection through the proxy. Toxiproxy gives each of its directions a pipe of its own,
// and closes what a pipe leads to when that has ended and all that it let through is written.
type link struct {
	p     *proxy
	gone  chan struct{} // closed when both shall end
	cut   func()
	pipes sync.WaitGroup

	mu      sync.Mutex
	asking  bool  // the client spoke last
	verdict fault // of the request under way
}

// requests is the toxic of a proxy's connections on the way to the server, answers that on the way to
// the client.
type (
	requests struct{ p *proxy }
	answers  struct{ p *proxy }
)

// NewState makes the link. Toxiproxy starts the two directions of a connection one after the other, this
// one first, and only then takes the next connection.
func (r *requests) NewState() any {
	l := &link{p: r.p, gone: make(chan struct{})}
	l.cut = sync.OnceFunc(func() { close(l.gone) })
	l.pipes.Add(2)
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.links = append(r.p.links, l)
	return l
}

// NewState finds the link that was made last.
func (a *answers) NewState() any {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	return a.p.links[len(a.p.links)-1]
}

// Pipe carries bytes to the server.
func (r *requests) Pipe(stub *toxics.ToxicStub) {
	l := stub.State.(*link)
	l.pipe(stub, func(c *stream.StreamChunk) bool {
		switch l.judge() {
		case cutBefore:
			return false
		case cutDuring:
			l.pass(stub, c)
			return false
		case stall:
			return true
		case pass, cutAfter, cutTorn, faults:
		}
		return l.pass(stub, c)
	})
}

// Pipe carries bytes to the client.
func (a *answers) Pipe(stub *toxics.ToxicStub) {
	l := stub.State.(*link)
	l.pipe(stub, func(c *stream.StreamChunk) bool {
		switch l.answered() {
		case cutBefore, cutDuring, cutAfter: // the answer may be quicker than the end
			return false
		case cutTorn:
			c.Data = c.Data[:len(c.Data)/2]
			l.pass(stub, c)
			return false
		case stall:
			return true
		case pass, faults:
		}
		return l.pass(stub, c)
	})
}

// pipe gives each chunk to do, until that or the connection ends, and then ends the other direction.
func (l *link) pipe(stub *toxics.ToxicStub, do func(*stream.StreamChunk) bool) {
	defer l.pipes.Done()
	for open := true; open; {
		select {
		case c := <-stub.Input:
			open = c != nil && do(c)
		case <-l.gone:
			open = false
		}
	}
	stub.Close()
	l.cut()
	for range stub.Input { // or what still comes would hold up for ever those who pass it on
	}
}

// pass lets c through, if there is still somebody to take it.
func (l *link) pass(stub *toxics.ToxicStub, c *stream.StreamChunk) bool {
	select {
	case stub.Output <- c:
		return true
	case <-l.gone:
		return false
	}
}

// judge says what happens to what the client said: a request that begins is given a verdict.
func (l *link) judge() fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asking && l.verdict != stall {
		l.asking, l.verdict = true, l.p.ask()
		if l.verdict == stall && l.p.quiet > 0 {
			time.AfterFunc(l.p.quiet, l.cut)
		}
	}
	return l.verdict
}

// answered says what happens to what the server said.
func (l *link) answered() fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking = false
	return l.verdict
}
