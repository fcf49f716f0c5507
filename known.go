package settle

import (
	"hash/maphash"
	"sync"
)

// maxKnown bounds each half of what intents remembers.
const maxKnown = 4096

// intents remembers which intents this process has seen settled lately, so that a repeat reads
// before it tries to create. It only chooses the shorter way: forgetting one, or taking one for
// another, costs a round trip and changes nothing (I13).
type intents struct {
	seed maphash.Seed

	mu       sync.Mutex
	now, old map[uint64]struct{}
}

func (s *intents) sum(r *Record) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, part := range [...]string{r.Scope, r.Kind, r.Subject, r.Purpose} {
		h.WriteString(part)
		h.WriteByte(0)
	}
	return h.Sum64()
}

// note remembers the intent of r.
func (s *intents) note(r *Record) {
	x := s.sum(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.now) >= maxKnown {
		s.now, s.old = nil, s.now
	}
	if s.now == nil {
		s.now = make(map[uint64]struct{})
	}
	s.now[x] = struct{}{}
}

// was reports whether the intent of r was seen lately.
func (s *intents) was(r *Record) bool {
	x := s.sum(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.now[x]; ok {
		return true
	}
	_, ok := s.old[x]
	return ok
}
