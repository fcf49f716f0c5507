package main

import (
	"fmt"

	"github.com/settle-go/settle"
)

// legible is a text, or what there is to say about one that is sealed: the command has no keys.
func legible(s string) string {
	if settle.Payload(s).Sealed() {
		return fmt.Sprintf("sealed, %d bytes", len(s))
	}
	return s
}
