package settle

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestT12_OneLeaseFromTheDecision: a process stands still between the decision to send again and the commit
// of the attempt, and again before the request. The window was found open for one lease, not for two (I6, T-12).
func TestT12_OneLeaseFromTheDecision(t *testing.T) {
	m := newModel(setting{lease: 4, window: 8, safe: true, attempts: 2, stumbles: 1, stalls: 8}, sound)
	w := m.initial()
	for n, x := range []move{
		{do: executes},
		{do: turns},
		{do: givesUp},
		{do: turns}, // waits
		{do: ticks},
		{do: claims},
		{do: turns}, // decides to send: the window closes in one tick
		{do: ticks},
		{do: ticks},
		{do: ticks},
		{do: commits},
		{do: ticks},
		{do: ticks},
		{do: ticks},
		{do: turns}, // three ticks of four after the commit, six after the decision
	} {
		require.Contains(t, m.moves(w), x, "step %d", n)
		w = m.do(w, x)
		m.check(w)
		require.Nil(t, m.bad, "step %d", n)
	}
	r := m.row(w, charge)
	require.Len(t, r.Attempts, 2)
	assert.Equal(t, FateNotSent, r.Attempts[1].Fate)
}
