package httpsettle

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
)

// Watched is what is known about the way of one request. It is safe for concurrent use.
type Watched struct{ asked, given atomic.Int64 }

// Watch returns a context for one request and what becomes known about its way. One that never had a connection was
// certainly not sent: the name was not found, dialing was refused, TLS failed, the deadline came first.
//
// The error does not tell. Go's transport repeats a request by itself when a kept-alive connection dies under it, if it
// carries an Idempotency-Key, and if that second copy finds the door closed, the error says that dialing was refused
// although the first copy may have arrived (IC-04). Copies that a retrying transport makes under the same context
// count too, so use one Watch for one attempt.
func Watch(ctx context.Context) (context.Context, *Watched) {
	w := new(Watched)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { w.asked.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { w.given.Add(1) },
	}), w
}

// NotSent reports whether it is proven that no byte of the request left: it failed with err, a transport was asked
// for a connection, and none was ever had. A transport that tells [httptrace] nothing proves nothing.
func (w *Watched) NotSent(err error) bool {
	return err != nil && w.asked.Load() > 0 && w.given.Load() == 0
}

// Copies is how often the request had a connection: how many copies may have left. More than one are the
// transport's own repeats, which are one attempt where the provider honors keys.
func (w *Watched) Copies() int { return int(w.given.Load()) }
