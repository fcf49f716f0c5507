package settle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
)

// Event is what a provider reported by itself: a webhook, a message. Its
// signature has been verified, over the raw bytes, before it comes here.
type Event struct {
	// Account is the provider account that the event speaks of, as AccountFacts.String makes it:
	// that of the endpoint which received it. Required.
	Account string
	// ID is the provider's id of the event, at most 255 bytes; with Account it makes the event
	// unique. Required.
	ID string
	// Type is the provider's word for what happened, at most 255 bytes.
	Type string
	// Operation is the id of the operation, where the provider hands back what the
	// request gave it (metadata, own reference).
	Operation string
	// Ref is the provider's reference of the effect as a whole: that of the payment, not of one
	// try of it.
	Ref string
	// Parent is the provider's reference of the effect that this one undoes: of the payment, for a
	// refund. With it an effect that no operation has, a refund made in the provider's dashboard,
	// is counted in the ledger of the operation that has that payment, see Foreign.
	Parent string
	// Sequence orders the provider's own non-final reports; 0 if it has none.
	Sequence int64
	// At is when the provider says that it happened. It decides nothing (I13).
	At time.Time
	// Payload is the raw event, at most MaxEvent bytes, as the kind's EventReader wants it.
	Payload Payload
}

// MaxEvent bounds Event.Payload.
const MaxEvent = 512 << 10

// EventKind is the kind of the records that keep events. They are listed by naming it in
// Query.Kind; a kind of an application cannot begin with "settle.".
const EventKind = "settle.event"

// ReasonOrphan is why an event is in review: no operation of any process has its names.
const ReasonOrphan = "orphan_event"

// ReasonUnreadable is why an event is in review: what is stored of it cannot be decoded.
const ReasonUnreadable = "unreadable_event"

// AlarmEventChanged says that the provider sent an event id again with other content. The first is kept.
const AlarmEventChanged = "event_changed"

// Observed says what became of an event. An event is in the store in each case.
type Observed struct {
	// Record is the operation as it is now; zero if none is known yet.
	Record Record
	// Event is the id of the record that keeps the event.
	Event string
	// Parked: no operation has its names yet, or nobody could read it. Workers try again.
	Parked bool
	// Duplicate: the event was here before, and nothing was done.
	Duplicate bool
}

// EventReader is an optional interface of a ProviderAdapter: it says what an event means for the
// operations of its kind.
type EventReader[Res any] interface {
	// ReadEvent turns an event into an observation, without asking anybody. Terms are as
	// the event states them. Unclear means that the event proves nothing, and asks for a
	// lookup. An event of a type that does not speak for this kind is ErrNotForKind. Any
	// other error says that it cannot be read now: it is kept, and tried again.
	ReadEvent(ctx context.Context, ev Event) (Observation[Res], error)
}

// ErrNotForKind is an EventReader's answer to an event that says nothing about operations of
// its kind, although it has their names: Stripe's charge.succeeded carries the metadata of the
// payment intent, and would look like a second effect.
var ErrNotForKind = errors.New("settle: the event does not speak for this kind")

// keptEvent is the stored form of an event.
type keptEvent struct {
	Type      string `json:"type,omitempty"`
	Operation string `json:"operation,omitempty"`
	Ref       string `json:"ref,omitempty"`
	Parent    string `json:"parent,omitempty"`
	Sequence  int64  `json:"sequence,omitempty"`
	At        int64  `json:"at,omitempty"` // microseconds
	Payload   []byte `json:"payload,omitempty"`
}

func (ev *Event) problem() (field string, err error) {
	if ev.Account == "" {
		return "Account", errors.New("required")
	}
	if !keepable(ev.Account) {
		return "Account", errors.New("not a text, or too long")
	}
	if err := checkName("ID", ev.ID, MaxSubject); err != nil {
		return "ID", err
	}
	for field, v := range map[string]string{"Type": ev.Type, "Operation": ev.Operation, "Ref": ev.Ref, "Parent": ev.Parent} {
		if v != "" {
			if err := checkName(field, v, MaxRef); err != nil {
				return field, err
			}
		}
	}
	return "Payload", checkSize("Payload", len(ev.Payload), MaxEvent)
}

// record makes the record that keeps ev. An event is an operation of its own kind, whose effect
// is that it was merged: so the inbox needs nothing of a store that operations do not need, and
// what is parked is due, claimed, retried and reviewed like everything else (I10).
func (ev *Event) record(key *FingerprintKey) (Record, error) {
	body, err := json.Marshal(keptEvent{
		Type: ev.Type, Operation: ev.Operation, Ref: ev.Ref, Parent: ev.Parent, Sequence: ev.Sequence, At: stamp(ev.At), Payload: ev.Payload,
	})
	if err != nil {
		return Record{}, err
	}
	return Record{
		ID: eventID(ev.Account, ev.ID), Scope: eventScope(ev.Account), Kind: EventKind, Subject: ev.ID, Purpose: "event", Account: ev.Account,
		Fingerprint: key.event(ev.Payload), Request: body, State: StateCreated,
	}, nil
}

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// eventID is the same for the same event in every process.
func eventID(account, id string) string {
	h := sha256.New()
	h.Write([]byte(account))
	h.Write([]byte{0})
	h.Write([]byte(id))
	return "ev_" + hex.EncodeToString(h.Sum(nil)[:16])
}

// eventScope keeps events of two accounts apart whatever the length of their names.
func eventScope(account string) string {
	if len(account) <= MaxScope {
		return account
	}
	sum := sha256.Sum256([]byte(account))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// event is the inverse of record.
func (r *Record) event() (Event, error) {
	var k keptEvent
	if r.Request.Sealed() {
		return Event{}, ErrSealed
	}
	if err := json.Unmarshal(r.Request, &k); err != nil {
		return Event{}, ErrCorrupt
	}
	ev := Event{
		Account: r.Account, ID: r.Subject, Type: k.Type, Operation: k.Operation, Ref: k.Ref, Parent: k.Parent, Sequence: k.Sequence,
		Payload: k.Payload,
	}
	if k.At != 0 {
		ev.At = time.UnixMicro(k.At).UTC()
	}
	return ev, nil
}

// applied marks the record of an event as merged, or as nothing to merge.
func (r *Record) applied() {
	r.References = []Reference{{Rank: RankSucceeded}}
	r.Review, r.RetryAt, r.Tries, r.Waits = nil, time.Time{}, 0, 0
	r.State = r.compute(false)
}
