// Package wire tells whether an HTTP request can have left at all.
package wire

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
)

// Watch returns a context for one request, and whether that request ever had a connection.
// One that had none was certainly not sent: the name was not found, dialing was refused, TLS failed.
//
// The error does not tell. Go's transport repeats a POST with an Idempotency-Key by itself when a
// kept-alive connection dies under it, and if that second copy finds the door closed, the
// error says "dial refused" although the first copy may have arrived.
func Watch(ctx context.Context) (_ context.Context, connected func() bool) {
	had := new(atomic.Bool)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { had.Store(true) },
	})
	return ctx, had.Load
}
