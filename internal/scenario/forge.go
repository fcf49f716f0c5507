package scenario

import (
	"testing"
	"time"
)

// Forge makes a time with a wall and a monotonic reading, as the clock of a host has
// them; inside a bubble time.Now has no monotonic one. It fails the test if package time
// lays its values out in another way than this knows.
func Forge(t testing.TB, wall time.Time, mono time.Duration) time.Time { return forge(t, wall, mono) }
