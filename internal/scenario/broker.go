package scenario

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/settle-go/settle"
)

// broker takes messages, and is the inbox of a subscriber: what it applies is each message once.
type broker struct {
	t  *testing.T
	mu sync.Mutex
	// got is every message that was taken, in order.
	got []settle.Message
	// calls counts what was tried, by message.
	calls map[string]int
	// refuse says what is wrong with a message; nil: nothing.
	refuse func(ctx context.Context, m settle.Message) error
}

func newBroker(t *testing.T) *broker { return &broker{t: t, calls: map[string]int{}} }

func (b *broker) Publish(ctx context.Context, m settle.Message) error {
	b.mu.Lock()
	b.calls[m.ID]++
	refuse := b.refuse
	b.mu.Unlock()
	if refuse != nil {
		if err := refuse(ctx, m); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, m)
	return nil
}

func (b *broker) refuses(f func(ctx context.Context, m settle.Message) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = f
}

// of lists what was taken about one operation.
func (b *broker) of(id string) []settle.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.got), func(m settle.Message) bool { return m.Operation != id })
}

// tried is how often a message was handed over, and all of them together.
func (b *broker) tried(id string) (one, all int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.calls {
		all += n
	}
	return b.calls[id], all
}

// applied is what an inbox by message id makes of them: each once. It checks that each came after the one that it names
// as its previous.
func (b *broker) applied(id string) []settle.Message {
	b.t.Helper()
	seen := map[string]settle.Message{}
	var out []settle.Message
	var last int64
	for _, m := range b.of(id) {
		if was, ok := seen[m.ID]; ok {
			if was != m {
				b.t.Errorf("message %s came as %+v and as %+v", m.ID, was, m)
			}
			continue
		}
		seen[m.ID] = m
		if m.Previous != last || m.Sequence <= last {
			b.t.Errorf("message %+v came after %d", m, last)
		}
		last = m.Sequence
		out = append(out, m)
	}
	return out
}

// wantFed checks that every transition of an operation was taken: the states that its history went through.
func (l *Lab) wantFed(b *broker, id string) {
	l.T.Helper()
	var want []settle.State
	var last settle.State
	for _, x := range l.History(id) {
		if x.To != last {
			want, last = append(want, x.To), x.To
		}
	}
	got := b.applied(id)
	var states []settle.State
	for i, m := range got {
		states = append(states, m.To)
		if i > 0 && m.From != got[i-1].To {
			l.T.Errorf("message %+v follows %+v", m, got[i-1])
		}
	}
	if !slices.Equal(states, want) {
		l.T.Fatalf("the feed says %v, want %v; %+v; %s; %s", states, want, b.of(id), l.story(id), l.story("feed_"+id))
	}
	if r := l.Get(id); r.Feed.Pending() {
		l.T.Fatalf("all is delivered and the record says %+v", r.Feed)
	}
	if r := l.place(id); !r.State.Settled() || !r.Due.IsZero() {
		l.T.Fatalf("the place is %s, due %v; %s", r.State, r.Due, l.story(r.ID))
	}
}

// place is the record that keeps the place of an operation in the feed.
func (l *Lab) place(id string) settle.Record { return l.Get("feed_" + id) }

// publishing is a process with a publisher, whose worker runs.
func (l *Lab) publishing(b settle.Publisher) *Process {
	l.T.Helper()
	return l.Start(&Setup{Options: settle.Options{Publisher: b, PollInterval: l.poll()}}).Work()
}
