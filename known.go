package settle

import (
	"context"
	"errors"
	"sync"
)

const (
	// maxKnown bounds each half of what intents remembers, and maxKept the bytes of the records in it.
	maxKnown = 4096
	maxKept  = 4 << 20
	// recordSize is about what a record takes beside its payloads, and partSize what each attempt, reference and the like does.
	recordSize, partSize = 2 << 10, 1 << 10
)

// intents remembers which intents this process has seen settled lately, and, where the store tells a
// record's version for less than the record (Versioner), their records: a repeat then reads before it tries to create, and
// reads little. It only chooses the shorter way: forgetting one costs a round trip and changes
// nothing, and no record is believed before the store has said that it is still so (I13).
type intents struct {
	mu       sync.Mutex
	now, old map[place]*Record // nil: only that it was settled
	kept     int               // bytes of the records in now
}

// place is an intent of a kind.
type place struct{ scope, kind, subject, purpose string }

func placeOf(r *Record) place { return place{r.Scope, r.Kind, r.Subject, r.Purpose} }

// note remembers the intent of r.
func (s *intents) note(r *Record) { s.put(r, nil) }

// keep remembers r, of which it takes a copy, if nothing will change it but a commit: it is settled, unclaimed, and never due.
func (s *intents) keep(r *Record) {
	if !r.State.Settled() || r.Token != "" || !r.Due.IsZero() || r.ReplacedBy != "" || sizeOf(r) > maxKept/64 {
		s.note(r)
		return
	}
	s.put(r, new(r.Clone()))
}

// sizeOf is about what a record takes in memory, rather more than less.
func sizeOf(r *Record) int {
	return recordSize + len(r.Request) + len(r.Result) + len(r.Message) +
		partSize*(len(r.Attempts)+len(r.References)+len(r.Ledger)+len(r.Terms.Other)+len(r.Fingerprint.Volatile))
}

func (s *intents) put(r, m *Record) {
	x := placeOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.now) >= maxKnown || s.kept >= maxKept {
		s.now, s.old, s.kept = nil, s.now, 0
	}
	if s.now == nil {
		s.now = make(map[place]*Record)
	}
	if had := s.now[x]; had != nil {
		s.kept -= sizeOf(had)
	}
	if m != nil {
		s.kept += sizeOf(m)
	}
	s.now[x] = m
}

// was reports whether the intent of r was seen lately, and returns its record as it was then, if that is kept. It is
// shared: whoever hands it on makes a copy.
func (s *intents) was(r *Record) (m *Record, ok bool) {
	x := placeOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok = s.now[x]; !ok {
		m, ok = s.old[x]
	}
	return m, ok
}

// still returns a copy of a record that is remembered, or nil if the store has another one: of another version, or, since a database
// that came back from a backup or a replica can make a version once more, of another write.
func (e *Engine) still(ctx context.Context, known *Record) (*Record, error) {
	now, err := e.versions.Version(ctx, known.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil //nolint:nilnil // there is no such record any more
	case err != nil:
		return nil, err
	case now.Version != known.Version || !now.UpdatedAt.Equal(known.UpdatedAt):
		return nil, nil //nolint:nilnil // another one
	}
	r := known.Clone()
	r.AsOf = now.AsOf
	return &r, nil
}

// versionsOf is store as a Versioner. A store that seals is none: what it keeps must not be in memory in the clear.
func versionsOf(store Store, o *Options) Versioner {
	if v, ok := store.(Versioner); ok && o.Sealer == nil {
		return v
	}
	return nil
}
