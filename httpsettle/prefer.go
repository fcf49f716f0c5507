package httpsettle

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// parseWait finds the preference wait=n (RFC 7240, section 4.3) in the Prefer header: ok if it is
// there and readable. Preferences are hints, so what cannot be read is passed over, and of several
// the first counts (section 2).
func parseWait(h http.Header) (d time.Duration, ok bool) {
	for _, line := range h.Values("Prefer") {
		for _, pref := range splitQuoted(line, ',') {
			first := splitQuoted(pref, ';')[0] // parameters are not ours
			name, value, _ := strings.Cut(first, "=")
			if !strings.EqualFold(trim(name), "wait") {
				continue
			}
			return seconds(unquote(trim(value)))
		}
	}
	return 0, false
}

// maxSeconds is where delta-seconds stop growing: a year.
const maxSeconds = 365 * 24 * 3600

// seconds reads delta-seconds (RFC 9111, section 1.2.2): digits and nothing else. What is too large
// counts as a year.
func seconds(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > maxSeconds {
		n = maxSeconds
	}
	return time.Duration(n) * time.Second, true
}

// splitQuoted splits at sep, except inside quoted strings (RFC 9110, section 5.6.4). It returns
// at least one part.
func splitQuoted(s string, sep byte) []string {
	var out []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && c == sep:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// unquote takes a quoted string out of its quotes; anything else stays as it is.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	return strings.ReplaceAll(s[1:len(s)-1], `\`, "")
}

// trim removes optional white space (RFC 9110, section 5.6.3).
func trim(s string) string { return strings.Trim(s, " \t") }
