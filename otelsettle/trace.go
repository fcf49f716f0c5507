package otelsettle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// TraceID is the trace of an operation: its id without the hyphens. An id that is no UUID, as those of events are
// not, is hashed.
func TraceID(operation string) trace.TraceID {
	var id trace.TraceID
	raw, err := hex.DecodeString(strings.ReplaceAll(operation, "-", ""))
	if err == nil && len(raw) == len(id) {
		copy(id[:], raw)
	} else {
		sum := sha256.Sum256([]byte(operation))
		copy(id[:], sum[:])
	}
	return id
}

// inTrace is ctx with the operation's trace as its parent, and a link to the caller's span if there is one.
func inTrace(ctx context.Context, operation string) (context.Context, []trace.SpanStartOption) {
	var opts []trace.SpanStartOption
	if caller := trace.SpanContextFromContext(ctx); caller.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: caller}))
	}
	sum := sha256.Sum256([]byte("settle " + operation))
	parent := trace.SpanContextConfig{TraceID: TraceID(operation), TraceFlags: trace.FlagsSampled, Remote: true}
	copy(parent.SpanID[:], sum[:])
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(parent)), opts
}
