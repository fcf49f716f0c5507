package sim

import (
	"testing"

	"github.com/settle-go/settle"
)

// TestCrashLoop hits every call of every scenario with every fault.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	CrashLoop(t, sceneMemory)
}

// TestCrashLoopRemote does the same on a store whose reads cost a round trip: there a call
// writes before it looks.
func TestCrashLoopRemote(t *testing.T) {
	t.Parallel()
	CrashLoop(t, func(t testing.TB) settle.Store { return struct{ settle.Store }{sceneMemory(t)} })
}
