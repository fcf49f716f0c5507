package settle

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The JSON form of a message is what subscribers rely on.
func TestFeedMessageGolden(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("testdata/feed/message.json")
	require.NoError(t, err)
	op := Record{ID: "0192b8f4-0000-7000-8000-000000000001", Scope: "tenant-1", Kind: "charge", Key: "k/1", Subject: "order-8472", Request: Payload(`{"card":"4111"}`)}
	m := messages{op: &op}
	history := []Entry{
		{Seq: 1, To: StateSubmitting, Note: "attempt"},
		{Seq: 2, From: StateSubmitting, To: StateSubmitting, Fact: NotFound},
		{Seq: 4, From: StateSubmitting, To: StateSucceeded, At: time.UnixMicro(1_700_000_000_123_456), Ref: "pi_1", Code: "ok", Actor: "ann", Note: "why"},
	}
	var last Message
	for _, x := range history {
		if msg, ok := m.add(x); ok {
			last = msg
		}
	}
	body, err := json.Marshal(last)
	require.NoError(t, err)
	assert.Equal(t, string(golden), string(body)+"\n")
	var back Message
	require.NoError(t, json.Unmarshal(body, &back))
	assert.Equal(t, last, back)
}

// A transition is where the state differs from that of the message before: what a claim does to it in between is none.
func TestFeedMessages(t *testing.T) {
	t.Parallel()
	history := []Entry{
		{Seq: 1, To: StateSubmitting},
		{Seq: 2, From: StateSubmitting, To: StateUnknown},
		{Seq: 4, From: StateSubmitting, To: StateUnknown}, // claimed by Store.Claim, which leaves no entry
		{Seq: 6, From: StateSubmitting, To: StateUnknown},
		{Seq: 7, From: StateUnknown, To: StateSucceeded},
		{Seq: 8, From: StateSucceeded, To: StateSucceeded},
	}
	read := func(f Feed) (out []Message) {
		m := messages{op: &Record{ID: "op", Feed: f}, prior: f.Done}
		after := m.after()
		for _, x := range history {
			if x.Seq > after {
				if msg, ok := m.add(x); ok {
					out = append(out, msg)
				}
			}
		}
		return out
	}
	all := read(Feed{})
	require.Len(t, all, 3)
	assert.Equal(t, "op.7", all[2].ID)
	for done, want := range map[int64]int{1: 1, 2: 2, 7: 3} {
		assert.Equal(t, all[want:], append([]Message{}, read(Feed{Done: done})...), "the same again, whatever was delivered")
	}
	late := read(Feed{From: 6})
	require.Len(t, late, 1)
	assert.Equal(t, Message{ID: "op.7", Operation: "op", Sequence: 7, From: StateUnknown, To: StateSucceeded}, late[0])
}

// What is queued by a write, and whether it has to wake somebody.
func TestFeedNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		was     Feed
		version int64
		to      State
		want    Feed
		wakes   bool
	}{
		{"new", Feed{}, 0, StateCreated, Feed{Last: 1, State: StateCreated}, true},
		{"from before", Feed{}, 5, StateSucceeded, Feed{Last: 6, State: StateSucceeded, From: 5}, true},
		{"somebody looks after it", Feed{Done: 1, Last: 3, State: StateUnknown}, 3, StateSucceeded, Feed{Done: 1, Last: 4, State: StateSucceeded}, false},
		{"at rest", Feed{Done: 3, Last: 3, State: StateUnknown, Row: 4}, 8, StateSucceeded, Feed{Done: 3, Last: 9, State: StateSucceeded, Row: 4}, true},
		{"no transition", Feed{Done: 3, Last: 3, State: StateUnknown, Row: 4}, 8, StateUnknown, Feed{Done: 3, Last: 3, State: StateUnknown, Row: 4}, false},
	} {
		got, wakes := c.was.next(c.version, c.to)
		assert.Equal(t, c.want, got, c.name)
		assert.Equal(t, c.wakes, wakes, c.name)
	}
}

// While nothing can be delivered the pauses grow, to a minute at most; those that were under way together count once.
func TestFeedOutage(t *testing.T) {
	t.Parallel()
	var o outage
	now := time.Unix(1_700_000_000, 0)
	var last time.Duration
	for range 20 {
		o.failed(now)
		o.failed(now)
		pause, probing := o.left(now)
		assert.True(t, probing)
		assert.LessOrEqual(t, pause, pauseMost)
		assert.Greater(t, pause, last/2)
		last = pause
		now = now.Add(pause)
	}
	assert.Equal(t, pauseMost, last)
	o.over()
	_, probing := o.left(now)
	assert.False(t, probing)
}
