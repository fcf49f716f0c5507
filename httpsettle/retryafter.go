package httpsettle

import (
	"net/http"
	"time"
)

// RetryAfter reads the Retry-After header of an answer (RFC 9110, section 10.2.3): seconds, or an
// HTTP date, which is compared with the answer's own Date so that no clock of ours decides
// (I13), and with now only where there is none. Zero: there is none, it has passed, or it
// cannot be read. At most a year.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	v := trim(h.Get("Retry-After"))
	if d, ok := seconds(v); ok {
		return d
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(trim(h.Get("Date"))); err == nil {
		now = date
	}
	return min(max(0, at.Sub(now)), maxSeconds*time.Second)
}
