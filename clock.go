package settle

import "time"

// Clock tells an [Engine] the time of its own process. It never decides who
// wins: claims are judged by the store's clock alone (I13). The engine only
// measures with it how long ago it sent a claim, and ends its own work early
// when in doubt.
//
// Implementations must be safe for concurrent use. Times with a monotonic
// reading (as from [time.Now]) survive a clock that is set back; wall time is
// compared too, so that a machine that was suspended in mid-claim notices.
type Clock interface {
	// Now is the time of this process.
	Now() time.Time
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

// keepableTime reports whether t, as microseconds, is the same instant everywhere. Zero is none.
func keepableTime(t time.Time) bool { return t.IsZero() || t.Year() >= 1970 && t.Year() <= 9999 }

// micros cuts t to what every store keeps: whole microseconds, UTC, never
// rounded up (a time that was just written must not lie in the future).
func micros(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}
