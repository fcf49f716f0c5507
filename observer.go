package settle

import (
	"context"
	"log/slog"
	"time"
)

// Observer is told what an Engine does, for measures and alarms. It is called
// after the fact, from many goroutines, and must be quick; what it panics is its
// own. Without one Options.Logger gets the notices, and without that nobody does.
type Observer interface {
	// Notice is told of n once, after what it is about was stored or failed.
	Notice(ctx context.Context, n Notice)
}

// Notice is one thing that happened. It holds ids and words only: no payload, no
// message, no key, scope, subject or purpose (I16).
type Notice struct {
	Event       NoticeEvent
	Kind        string
	Operation   string // id
	From, To    State
	Fact        Fact
	Source      Source
	Disposition Disposition
	Attempt     int // the attempt that it is about
	Attempts    int // how many attempts the operation has had
	Version     int64
	Code        string        // a provider's word (cleaned), a review reason, a class of error, or why a call was prevented
	Alarms      []string      // for EventAlarm
	Age         time.Duration // since the operation's creation; for EventOverdue since it was due, for EventTally of the oldest
	Count       int64         // for EventTally: how many there are
	Overdue     int64         // for EventTally: how many of them are due, and nobody claims them
}

// NoticeEvent says what kind of thing happened.
type NoticeEvent string

// The events.
const (
	EventTransition   NoticeEvent = "transition"    // a write changed the state
	EventEvidence     NoticeEvent = "evidence"      // an observation was merged and the state stayed
	EventSchedule     NoticeEvent = "schedule"      // a control write that left the state
	EventAlarm        NoticeEvent = "alarm"         // an anomaly, or a person is needed
	EventNoAnswer     NoticeEvent = "no_answer"     // a provider call ended without an answer
	EventClaimLost    NoticeEvent = "claim_lost"    // a holder noticed that it is none any more
	EventStoreError   NoticeEvent = "store_error"   // a store call failed
	EventHookError    NoticeEvent = "hook_error"    // the application's hook failed
	EventPublishError NoticeEvent = "publish_error" // a message of the feed was not delivered: its Code is poison or outage
	EventOverdue      NoticeEvent = "overdue"       // a due operation that nobody claims, or whose kind this process lacks
	EventPrevented    NoticeEvent = "prevented"     // a call or event that was none of its own: Code says why; see PreventedReplay
	EventRecovery     NoticeEvent = "recovery"      // a pass over an operation whose effect may exist ended: From and To say how
	EventTally        NoticeEvent = "tally"         // how many operations of Kind are in the state To, see Options.TallyEvery
)

// LogObserver writes every notice to l: alarms as errors, trouble as warnings,
// transitions at info level, the rest at debug level.
func LogObserver(l *slog.Logger) Observer { return logObserver{l} }

type logObserver struct{ log *slog.Logger }

func (o logObserver) Notice(ctx context.Context, n Notice) {
	level := slog.LevelWarn
	switch n.Event {
	case EventTransition:
		level = slog.LevelInfo
	case EventEvidence, EventSchedule, EventPrevented, EventRecovery, EventTally:
		level = slog.LevelDebug
	case EventAlarm:
		level = slog.LevelError
	case EventNoAnswer, EventClaimLost, EventStoreError, EventHookError, EventPublishError, EventOverdue:
	}
	if !o.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 14)
	add := func(k, v string) {
		if v != "" {
			attrs = append(attrs, slog.String(k, v))
		}
	}
	add("kind", n.Kind)
	add("operation", n.Operation)
	add("from", string(n.From))
	add("to", string(n.To))
	add("fact", string(n.Fact))
	add("source", string(n.Source))
	add("disposition", string(n.Disposition))
	add("code", n.Code)
	if n.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", n.Attempt))
	}
	if n.Attempts > 0 {
		attrs = append(attrs, slog.Int("attempts", n.Attempts))
	}
	if n.Event == EventTally {
		attrs = append(attrs, slog.Int64("count", n.Count), slog.Int64("overdue", n.Overdue))
	}
	if n.Version > 0 {
		attrs = append(attrs, slog.Int64("version", n.Version))
	}
	if len(n.Alarms) > 0 {
		attrs = append(attrs, slog.Any("alarms", n.Alarms))
	}
	if n.Age > 0 {
		attrs = append(attrs, slog.Duration("age", n.Age))
	}
	o.log.LogAttrs(ctx, level, "settle "+string(n.Event), attrs...)
}

type discard struct{}

func (discard) Notice(context.Context, Notice) {}

// cleanCode keeps a provider's code only if it looks like one: it goes to logs and
// measures, where an adapter must not leak a payload by mistake (I16).
func cleanCode(s string) string {
	if len(s) > 64 {
		return "other"
	}
	for i := range len(s) {
		c := s[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == ':' || c == '-'
		if !ok {
			return "other"
		}
	}
	return s
}
