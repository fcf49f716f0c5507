package sim

import "testing"

// TestCrashLoop hits every call of every scenario with every fault.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	CrashLoop(t, inMemory)
}
