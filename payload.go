package settle

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
)

// Payload is a request or a result as bytes. It never prints: every formatting
// verb, slog and encoding/json show its length only (I16). Convert it to
// []byte to read it.
type Payload []byte

func (p Payload) redacted() string { return "[" + strconv.Itoa(len(p)) + " bytes]" }

// String implements [fmt.Stringer] without the content.
func (p Payload) String() string { return p.redacted() }

// GoString implements [fmt.GoStringer] without the content.
func (p Payload) GoString() string { return p.redacted() }

// Format implements [fmt.Formatter], so that no verb shows the content.
func (p Payload) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, p.redacted()) }

// LogValue implements [slog.LogValuer] without the content.
func (p Payload) LogValue() slog.Value { return slog.StringValue(p.redacted()) }

// MarshalJSON shows the length only; stores keep the bytes themselves.
func (p Payload) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(p.redacted())), nil }
