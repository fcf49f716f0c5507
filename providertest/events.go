package providertest

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Event is the provider's notice that an object has changed.
type Event struct {
	ID       string    `json:"id"`
	Sequence int64     `json:"sequence"` // grows with every event of the provider
	Type     string    `json:"type"`     // kind and status: "charge.succeeded"
	Created  time.Time `json:"created"`
	Object   Object    `json:"object"` // as reported at that time
}

// Events returns every event since the provider was made, in order.
func (p *Provider) Events() []Event {
	p.lock()
	defer p.unlock()
	return slices.Clone(p.events)
}

// Shuffle returns the events in an order that depends on seed alone, each of
// them the given number of times.
func Shuffle(events []Event, seed uint64, copies int) []Event {
	var out []Event
	for range copies {
		out = append(out, events...)
	}
	rand.New(rand.NewPCG(seed, seed)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
