package providertest

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Delivery says how one event reaches its reader. Make one with OnTime, Copies,
// Late, Behind or Lost, and combine several with And.
type Delivery struct {
	name   string
	lost   bool
	extra  int
	late   time.Duration
	behind int
}

// String names the delivery, for messages of tests.
func (d Delivery) String() string { return cmp.Or(d.name, "OnTime") }

// And adds what another delivery does.
func (d Delivery) And(other Delivery) Delivery {
	d.name = d.String() + "+" + other.String()
	d.lost = d.lost || other.lost
	d.extra += other.extra
	d.late += other.late
	d.behind += other.behind
	return d
}

// OnTime delivers the event once, when it happens.
func OnTime() Delivery { return Delivery{name: "OnTime"} }

// Copies delivers the event n times in a row.
func Copies(n int) Delivery {
	return Delivery{name: fmt.Sprintf("Copies(%d)", n), extra: max(n, 1) - 1}
}

// Late delivers the event that long after it happened, on the provider's clock.
func Late(d time.Duration) Delivery { return Delivery{name: fmt.Sprintf("Late(%v)", d), late: d} }

// Behind delivers the event after the next n events, which so overtake it.
func Behind(n int) Delivery { return Delivery{name: fmt.Sprintf("Behind(%d)", n), behind: n} }

// Lost never delivers the event.
func Lost() Delivery { return Delivery{name: "Lost", lost: true} }

// stream is the order in which events are delivered.
type stream struct {
	script    []Delivery
	waiting   []parcel
	delivered []Event
	happened  []time.Time // instants of all events, in their order
}

// parcel is an event on its way.
type parcel struct {
	event  Event
	at     time.Time // not before this
	behind int       // nor before so many events have happened
	copies int
}

// emit notes an event and sends it on its way.
func (p *Provider) emit(e Event) {
	p.events = append(p.events, e)
	s := &p.stream
	s.happened = append(s.happened, e.Created)
	d := OnTime()
	if len(s.script) > 0 {
		d, s.script = s.script[0], s.script[1:]
	}
	if !d.lost {
		s.waiting = append(s.waiting, parcel{event: e, at: e.Created.Add(d.late), behind: len(s.happened) + d.behind, copies: 1 + d.extra})
	}
}

// due reports whether the parcel has arrived by now, and when it did.
func (s *stream) due(x parcel, now time.Time) (time.Time, bool) {
	if x.behind > len(s.happened) {
		return time.Time{}, false
	}
	at := x.at
	if passed := s.happened[x.behind-1]; passed.After(at) {
		at = passed
	}
	return at, !at.After(now)
}

// Deliveries returns what has been delivered until now, from number after on, as a
// webhook or an event feed would bring it: late, twice and out of order where
// ScriptEvents says so. Without a script each event is there once, in order.
// The order of what was delivered never changes, however often it is read.
func (p *Provider) Deliveries(after int) []Event {
	p.lock()
	defer p.unlock()
	s, now := &p.stream, p.now()
	type arrival struct {
		parcel
		when time.Time
	}
	var arrived []arrival
	s.waiting = slices.DeleteFunc(s.waiting, func(x parcel) bool {
		when, ok := s.due(x, now)
		if ok {
			arrived = append(arrived, arrival{x, when})
		}
		return ok
	})
	slices.SortStableFunc(arrived, func(a, b arrival) int {
		return cmp.Or(a.when.Compare(b.when), cmp.Compare(a.behind, b.behind), -cmp.Compare(a.event.Sequence, b.event.Sequence))
	})
	for _, a := range arrived {
		s.delivered = append(s.delivered, slices.Repeat([]Event{a.event}, a.copies)...)
	}
	return slices.Clone(s.delivered[min(max(after, 0), len(s.delivered)):])
}
