package settle

import (
	"hash/maphash"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKnownIntents(t *testing.T) {
	s := intents{seed: maphash.MakeSeed()}
	of := func(i int) *Record {
		return &Record{Scope: "shop", Kind: "charge", Subject: "order-" + strconv.Itoa(i), Purpose: "purchase"}
	}
	assert.False(t, s.was(of(0)))
	for i := range 3 * maxKnown {
		s.note(of(i))
		assert.True(t, s.was(of(i)))
		assert.True(t, s.was(of(max(0, i-maxKnown+1))), "the last ones are known")
	}
	assert.False(t, s.was(of(0)), "memory is bounded")
	assert.LessOrEqual(t, len(s.now)+len(s.old), 2*maxKnown)
	assert.NotEqual(t, s.sum(&Record{Scope: "a", Kind: "b"}), s.sum(&Record{Scope: "ab"}), "parts have borders")
}
