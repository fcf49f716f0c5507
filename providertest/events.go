package providertest

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/settle-go/settle"
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

// Settle is the event as Engine.Observe takes it, received for account. The reference that a request
// gave its object is the operation's id.
func (e Event) Settle(account settle.AccountFacts) settle.Event {
	body, _ := json.Marshal(e) // strings, numbers and times
	return settle.Event{
		Account: account.String(), ID: e.ID, Type: e.Type, Operation: e.Object.Reference, Ref: e.Object.ID, Parent: e.Object.Parent,
		Sequence: e.Sequence, At: e.Created, Payload: body,
	}
}

// ReadEvent reads such events for operations that make objects of one kind, as an adapter's EventFunc.
func ReadEvent(kind string) func(context.Context, settle.Event) (settle.Observation[Receipt], error) {
	return func(_ context.Context, ev settle.Event) (settle.Observation[Receipt], error) {
		if !strings.HasPrefix(ev.Type, kind+".") {
			return settle.Observation[Receipt]{}, settle.ErrNotForKind
		}
		var e Event
		if err := json.Unmarshal(ev.Payload, &e); err != nil {
			return settle.Observation[Receipt]{}, err
		}
		o := observe(e.Object)
		o.Sequence = e.Sequence
		return o, nil
	}
}
