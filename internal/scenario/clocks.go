package scenario

import (
	"sync"
	"testing"
	"time"
	"unsafe"
)

// machine is the clock of a host that may be skewed, set or suspended. Its monotonic
// reading stands still while it is suspended and is not touched when it is set; its wall
// clock goes on, and jumps. (A bubble's own time.Now has no monotonic reading.)
type machine struct {
	t      testing.TB
	began  time.Time
	mu     sync.Mutex
	wall   time.Duration // wall clock against the bubble's
	asleep time.Duration // how long the monotonic clock stood still
}

func (l *Lab) machine(skew time.Duration) *machine {
	return &machine{t: l.T, began: l.Began, wall: skew}
}

// Now implements settle.Clock.
func (m *machine) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	return forge(m.t, now.Add(m.wall), now.Sub(m.began)-m.asleep+time.Hour)
}

// set moves the wall clock by d, as a person or a time daemon does.
func (m *machine) set(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall += d
}

// suspend lets d pass for everybody but this machine's monotonic clock.
func (m *machine) suspend(d time.Duration) {
	time.Sleep(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asleep += d
}

func (m *machine) slept() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asleep
}

// forge makes a time with the given wall and monotonic readings, as time.Now makes
// them outside of bubbles. Package time offers no way to do that: this writes time.Time's
// own layout, and the test fails if that ever changes.
func forge(t testing.TB, wall time.Time, mono time.Duration) time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	out := wall
	raw := (*layout)(unsafe.Pointer(&out))
	since1885 := wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	raw.wall = 1<<63 | uint64(since1885)<<30 | uint64(wall.Nanosecond())
	raw.ext = int64(mono)
	later := out.Add(time.Second) // moves both readings
	if !out.Round(0).Equal(wall) || later.Sub(out) != time.Second || raw.ext != int64(mono) {
		t.Fatal("time.Time is laid out in another way")
	}
	return out
}
