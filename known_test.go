package settle

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestKnownIntents(t *testing.T) {
	s := intents{}
	of := func(i int) *Record {
		return &Record{Scope: "shop", Kind: "charge", Subject: "order-" + strconv.Itoa(i), Purpose: "purchase"}
	}
	was := func(i int) bool { _, ok := s.was(of(i)); return ok }
	assert.False(t, was(0))
	for i := range 3 * maxKnown {
		s.note(of(i))
		assert.True(t, was(i))
		assert.True(t, was(max(0, i-maxKnown+1)), "the last ones are known")
	}
	assert.False(t, was(0), "memory is bounded")
	assert.LessOrEqual(t, len(s.now)+len(s.old), 2*maxKnown)
}

// TestKnownRecords: what is kept is bounded, whole, a copy, and nothing that could change without a commit.
func TestKnownRecords(t *testing.T) {
	s := intents{}
	of := func(i int) *Record {
		return &Record{
			ID: strconv.Itoa(i), Scope: "shop", Kind: "charge", Subject: "order-" + strconv.Itoa(i), Purpose: "purchase", State: StateSucceeded, Version: 2,
			Request: make(Payload, 10<<10),
		}
	}
	bytes := func() (n int) {
		for _, half := range []map[place]*Record{s.now, s.old} {
			for _, r := range half {
				if r != nil {
					n += sizeOf(r)
				}
			}
		}
		return n
	}
	for i := range 2000 {
		r := of(i)
		s.keep(r)
		s.keep(r) // once more counts once
		got, ok := s.was(r)
		assert.True(t, ok)
		assert.Equal(t, r, got)
		r.Request[0] = 'x'
		assert.NotEqual(t, r.Request, got.Request)
		assert.LessOrEqual(t, bytes(), 2*maxKept+sizeOf(r))
	}
	for name, spoil := range map[string]func(r *Record){
		"unsettled": func(r *Record) { r.State = StateUnknown },
		"claimed":   func(r *Record) { r.Token = "t" },
		"due":       func(r *Record) { r.Due = time.Unix(1, 0) },
		"replaced":  func(r *Record) { r.ReplacedBy = "2" },
		"large":     func(r *Record) { r.Result = make(Payload, maxKept/64) },
		"long":      func(r *Record) { r.Ledger = make([]Posting, 100) },
	} {
		r := of(1999)
		spoil(r)
		s.keep(r)
		got, ok := s.was(r)
		assert.True(t, ok, name)
		assert.Nil(t, got, name)
	}
}

// TestKnownSealed: nothing is kept in the clear of what is sealed in the store.
func TestKnownSealed(t *testing.T) {
	s := versioned{}
	assert.NotNil(t, versionsOf(s, &Options{}))
	assert.Nil(t, versionsOf(s, &Options{Sealer: struct{ Sealer }{}}))
	assert.Nil(t, versionsOf(struct{ Store }{s}, &Options{}))
}

type versioned struct{ Store }

func (versioned) Version(context.Context, string) (Record, error) { return Record{}, nil }
