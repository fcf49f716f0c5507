package settle

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// Publisher takes the transitions of operations to whoever acts on them elsewhere: a broker, a queue, a
// table. An Engine with one has a feed: each transition, at least once, those of one operation
// in order.
type Publisher interface {
	// Publish hands over one message, and returns nil only when it is durable there. The same message may
	// come again, with the same ID. An error that matches ErrPoison says that this message can never be
	// delivered; any other, that nothing can be delivered now. Publish must honour ctx, and be safe for
	// concurrent use: messages of several operations come at once, those of one never.
	Publish(ctx context.Context, m Message) error
}

// ErrPoison is wrapped by the error of a Publisher that will never take this message: too large, refused by
// its schema. The message is tried a few times more and then set aside; only its own operation waits.
var ErrPoison error = &sentinel{text: "the message cannot be delivered"}

// Message is one transition of an operation, as names and numbers: no payload, no key, no text of a provider (I16).
// Who needs more reads the operation, as it is by then, with Engine.Get. Its JSON form is a contract: members are
// added, never changed.
type Message struct {
	ID        string `json:"id"`        // Operation and Sequence: the same whenever and by whomever it is sent
	Operation string `json:"operation"` // id
	Kind      string `json:"kind"`
	// Sequence is the operation's version that the transition made. It grows; there are gaps.
	Sequence int64 `json:"sequence"`
	// Previous is the Sequence of the message before this one about the same operation; 0: this is the first. A
	// receiver that has not seen it has not seen everything.
	Previous int64     `json:"previous"`
	From     State     `json:"from"` // that of the message before; empty: the operation is new
	To       State     `json:"to"`
	At       time.Time `json:"at"` // by the store's clock, in microseconds, UTC
}

// PublishedElsewhere is the Publisher of a process that publishes nothing itself, while others of the same store do: a
// web server beside its workers. What it writes is in the feed.
type PublishedElsewhere struct{}

// Publish is never called.
func (PublishedElsewhere) Publish(context.Context, Message) error {
	return errors.New("settle: this process publishes nothing")
}

// FeedKind is the kind of the records that say how far the feed has come, one for each operation in it. They are listed by
// naming it in Query.Kind: those in review are held back by a message that was set aside.
const FeedKind = "settle.feed"

// ReasonPoison is why the feed of an operation is in review: its next message cannot be delivered. Redrive tries it again.
const ReasonPoison = "poison_message"

// Feed is how far the transitions of an operation have been queued and delivered. The zero value: it is not in the feed.
type Feed struct {
	Done  int64 // sequence of the last message that was delivered
	Last  int64 // sequence of the last transition
	State State // after it
	From  int64 // transitions up to this version were before there was a feed, and are not in it
	Row   int64 // version of the record that keeps the place, while that is at rest
}

// Pending reports whether there are messages that nobody has delivered.
func (f Feed) Pending() bool { return f.Last > f.Done }

// feedLinger is how soon the first transitions of an unsettled operation are delivered: most operations settle
// before that, and all of their messages go out together.
const feedLinger = time.Second

// feedID is the id of the record that keeps the place of an operation.
func feedID(operation string) string { return "feed_" + operation }

func feedRecord(op *Record) Record {
	return Record{ID: feedID(op.ID), Scope: op.Scope, Kind: FeedKind, Subject: op.ID, Purpose: "feed", State: StateCreated}
}

// relays reports whether this process publishes.
func (e *Engine) relays() bool {
	_, elsewhere := e.opts.Publisher.(PublishedElsewhere)
	return e.opts.Publisher != nil && !elsewhere
}

// queue adds to c what puts its transitions into the feed, in the same step: each record says what it has queued, and
// the record that keeps its place becomes due, unless it is already. Without a Publisher, and without one when the operation
// was made, it does nothing. It returns where the writes that it added begin.
func (e *Engine) queue(c *Change) int {
	n := len(c.Writes)
	for i := range n {
		w := &c.Writes[i]
		r := &w.Record
		if own(r.Kind) || r.Feed == (Feed{}) && (e.opts.Publisher == nil || w.Entry.From == w.Entry.To) {
			continue
		}
		place, wakes := r.Feed.next(w.IfVersion, w.Entry.To)
		rested := r.Feed.Row
		r.Feed = place
		if !wakes {
			continue
		}
		p := Write{
			Record: feedRecord(r), IfVersion: rested, DueIn: feedLinger,
			Entry: Entry{From: StateSucceeded, To: StateCreated, Source: SourceWorker, Disposition: DispositionControl, Note: "queued"},
		}
		if w.Entry.To.Settled() {
			p.DueIn = 0
		}
		if rested == 0 {
			p.Entry.From = ""
		}
		c.Writes = append(c.Writes, p)
	}
	return n
}

// next is the feed after a write over version that leaves the operation in state to. wakes: nobody looks after it now.
func (f Feed) next(version int64, to State) (out Feed, wakes bool) {
	if f.State == to {
		return f, false // a claim, a lookup, a ledger line: no transition
	}
	if f == (Feed{}) {
		f.From = version // 0 if it is new
	}
	wakes = !f.Pending()
	f.Last, f.State = version+1, to
	return f, wakes
}

// mended corrects the version of a place that the record of its operation does not know: one of the two was
// restored or written by an older version of this package. Transitions must never fail because of the feed.
func (c *Change) mended(added int, conflict *ConflictError) bool {
	for i := added; i < len(c.Writes); i++ {
		if w := &c.Writes[i]; w.Record.ID == conflict.Existing.ID {
			w.IfVersion = conflict.Existing.Version
			c.ID = newToken()
			return true
		}
	}
	return false
}

// messages turns history into messages: an entry is one if its state is not that of the message before. It is a pure
// value; add takes the entries in order.
type messages struct {
	op    *Record
	prior int64 // sequence of the message before; 0: none
	state State // after it
}

// after is the sequence from which on add wants the history.
func (m *messages) after() int64 {
	if m.prior > 0 {
		return m.prior - 1 // the message before says what the next one comes from
	}
	return m.op.Feed.From
}

func (m *messages) add(x Entry) (Message, bool) {
	from := m.state
	if m.prior == 0 {
		from = x.From
	}
	switch {
	case x.Seq <= m.prior:
		m.state = x.To
		return Message{}, false
	case x.To == from:
		return Message{}, false
	}
	out := Message{
		ID: m.op.ID + "." + strconv.FormatInt(x.Seq, 10), Operation: m.op.ID, Kind: m.op.Kind,
		Sequence: x.Seq, Previous: m.prior, From: from, To: x.To, At: micros(x.At),
	}
	m.prior, m.state = x.Seq, x.To
	return out, true
}
