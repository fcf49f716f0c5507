// Package pipenet is a network inside a process, for tests with a clock of their own
// (testing/synctest): an HTTP server and its clients on net.Pipe instead of sockets.
package pipenet

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// Net is one listening address. It is a net.Listener for the server; Transport is for
// clients. It is safe for concurrent use.
type Net struct {
	conns  chan net.Conn
	closed chan struct{}
	once   *sync.Once
}

// Listen returns a network on which everything connects until Close.
func Listen() *Net {
	return &Net{conns: make(chan net.Conn), closed: make(chan struct{}), once: new(sync.Once)}
}

// Transport returns a transport that dials this network, whatever the address. Its
// defaults are those of net/http, keep-alive included.
func (n *Net) Transport() *http.Transport { return &http.Transport{DialContext: n.dial} }

// dial connects; after Close it is refused, as by a host on which nobody listens.
func (n *Net) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	err := error(syscall.ECONNREFUSED)
	select {
	case <-n.closed:
	default:
		select {
		case n.conns <- there:
			return here, nil
		case <-n.closed:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "pipe", Err: err}
}

// Accept implements net.Listener.
func (n *Net) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: from now on dialing is refused. Connections that exist live on.
func (n *Net) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (n *Net) Addr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "pipe" }
func (addr) String() string  { return "pipe" }
