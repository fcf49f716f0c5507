package providertest

import (
	"slices"
	"time"
)

// turn is what the clock makes of an object.
type turn struct {
	At     time.Time    `json:"at"`
	Status ObjectStatus `json:"status"`
	Code   string       `json:"code,omitempty"`
}

// turnAfter is a turn before it is known when the request is executed.
type turnAfter struct {
	after time.Duration
	turn  turn
}

func turnsFrom(at time.Time, steps []turnAfter) []turn {
	var out []turn
	for _, s := range steps {
		s.turn.At = at.Add(s.after)
		out = append(out, s.turn)
	}
	slices.SortStableFunc(out, func(a, b turn) int { return a.At.Compare(b.At) })
	return out
}

// nextTurn is the object that the clock changes next, and when; the empty id if there is none.
func (p *Provider) nextTurn() (id string, at time.Time) {
	if len(p.turning) == 0 {
		return "", time.Time{}
	}
	for _, candidate := range p.order {
		if when, ok := p.turning[candidate]; ok && (id == "" || when.Before(at)) {
			id, at = candidate, when
		}
	}
	return id, at
}

// takeTurn lets the clock do what it has come to. What was ended by hand meanwhile
// stays as it is.
func (p *Provider) takeTurn(id string) {
	r := p.records[id]
	now := r.Turns[0]
	r.Turns = slices.Clone(r.Turns[1:])
	switch {
	case now.Status == StatusSucceeded && r.open():
		r.Status, r.Effect = StatusSucceeded, true
	case now.Status == StatusFailed && r.open():
		r.Status, r.FailureCode = StatusFailed, now.Code
	case now.Status == StatusReversed && r.Status == StatusSucceeded && r.Kind != KindVoid:
		r.Status = StatusReversed
	default:
		p.put(r)
		return
	}
	if err := p.commit(now.At, nil, p.withParent(r)...); err != nil {
		delete(p.turning, id) // nothing can be written any more; requests say so
	}
}
