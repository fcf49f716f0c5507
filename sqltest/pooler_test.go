package sqltest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// pooler speaks PostgreSQL's protocol between clients and a few server sessions, as pgbouncer
// does in transaction mode: a client has a session for as long as a transaction is open
// (ReadyForQuery says so), and another one for the next. It keeps no prepared statements for
// clients and resets nothing between transactions, so what one client leaves in a session
// the next one finds: pgbouncer with max_prepared_statements = 0. It is not pgbouncer.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
type pooler struct {
	dsn      string // of the server
	free     chan *pgconn.HijackedConn
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex
	clients map[net.Conn]struct{}
}

// pooled starts a pooler with so many sessions and returns a DSN that leads through it.
func pooled(tb testing.TB, dsn string, sessions int) string {
	tb.Helper()
	_, through := newPooler(tb, dsn, sessions)
	return through
}

func newPooler(tb testing.TB, dsn string, sessions int) (*pooler, string) {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	must(tb, err)
	p := &pooler{dsn: dsn, free: make(chan *pgconn.HijackedConn, 8), listener: l, clients: map[net.Conn]struct{}{}}
	p.more(tb, sessions)
	p.work.Go(p.accept)
	tb.Cleanup(p.stop)
	u, err := url.Parse(dsn)
	must(tb, err)
	q := url.Values{"sslmode": {"disable"}}
	u.Host, u.RawQuery = l.Addr().String(), q.Encode() // the schema is the session's, as in pgbouncer
	return p, u.String()
}

// more adds sessions.
func (p *pooler) more(tb testing.TB, sessions int) {
	tb.Helper()
	for range sessions {
		s, err := p.session()
		must(tb, err)
		p.free <- s
	}
}

func (p *pooler) session() (*pgconn.HijackedConn, error) {
	c, err := pgconn.Connect(context.Background(), p.dsn)
	if err != nil {
		return nil, err
	}
	return c.Hijack()
}

func (p *pooler) stop() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.clients {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
	for range cap(p.free) {
		select {
		case s := <-p.free:
			_ = s.Conn.Close()
		default: // a session could not be replaced
		}
	}
}

func (p *pooler) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.clients[c] = struct{}{}
		p.mu.Unlock()
		p.work.Go(func() {
			_ = p.serve(c) // a client that goes away is no fault
			_ = c.Close()
			p.mu.Lock()
			delete(p.clients, c)
			p.mu.Unlock()
		})
	}
}

// message is one with its type and length in front; of a start-up message kind is 0.
type message struct {
	kind byte
	raw  []byte
}

func readMessage(r *bufio.Reader, start bool) (m message, err error) {
	head := 5
	if start {
		head = 4
	}
	m.raw = make([]byte, head)
	if _, err := io.ReadFull(r, m.raw); err != nil {
		return m, err
	}
	if !start {
		m.kind = m.raw[0]
	}
	n := int(binary.BigEndian.Uint32(m.raw[head-4:])) - 4
	if n < 0 || n > 64<<20 {
		return m, errors.New("pooler: bad length")
	}
	m.raw = append(m.raw, make([]byte, n)...)
	_, err = io.ReadFull(r, m.raw[head:])
	return m, err
}

func written(kind byte, body []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))
	return append(out, body...)
}

// serve is the life of one client.
func (p *pooler) serve(c net.Conn) error {
	in := bufio.NewReader(c)
	if err := p.greet(c, in); err != nil {
		return err
	}
	for {
		m, err := readMessage(in, false)
		if err != nil || m.kind == 'X' {
			return err
		}
		s := <-p.free
		idle, err := p.transaction(c, in, s, m)
		if idle {
			p.free <- s
		} else {
			_ = s.Conn.Close()
			fresh, dialErr := p.session()
			if dialErr != nil {
				return dialErr
			}
			p.free <- fresh
		}
		if err != nil {
			return err
		}
	}
}

// greet answers the start-up of a client, whose settings it ignores.
func (p *pooler) greet(c net.Conn, in *bufio.Reader) error {
	for {
		m, err := readMessage(in, true)
		if err != nil {
			return err
		}
		switch binary.BigEndian.Uint32(m.raw[4:]) {
		case 80877103, 80877104: // TLS and GSSAPI: no
			if _, err := c.Write([]byte{'N'}); err != nil {
				return err
			}
			continue
		case 80877102:
			return errors.New("pooler: a cancel request is not forwarded")
		}
		break
	}
	s := <-p.free
	out := written('R', []byte{0, 0, 0, 0})
	for name, value := range s.ParameterStatuses {
		out = append(out, written('S', []byte(name+"\x00"+value+"\x00"))...)
	}
	p.free <- s
	out = append(out, written('K', make([]byte, 8))...)
	out = append(out, written('Z', []byte{'I'})...)
	_, err := c.Write(out)
	return err
}

// transaction passes messages on until the session is idle again. idle is false if the client
// went away in the middle: such a session is closed.
func (p *pooler) transaction(c net.Conn, in *bufio.Reader, s *pgconn.HijackedConn, m message) (idle bool, err error) {
	answers := bufio.NewReader(s.Conn)
	for {
		if _, err := s.Conn.Write(m.raw); err != nil {
			return false, err
		}
		if m.kind == 'Q' || m.kind == 'S' { // a query, or the end of a batch: it will be ready again
			for {
				a, err := readMessage(answers, false)
				if err != nil {
					return false, err
				}
				if _, err := c.Write(a.raw); err != nil {
					return false, err
				}
				if a.kind == 'Z' {
					idle = a.raw[5] == 'I'
					break
				}
			}
			if idle {
				return true, nil
			}
		}
		if m, err = readMessage(in, false); err != nil {
			return false, err
		}
	}
}
