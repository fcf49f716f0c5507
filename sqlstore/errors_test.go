package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/settle-go/settle"
)

// TestI16_DriversWords: what a driver says around the end of a context is not quoted.
func TestI16_DriversWords(t *testing.T) {
	t.Parallel()
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		err := failed("read back", fmt.Errorf("failed to connect to `user=alice database=payments`: %w", end))
		var ex settle.Explainer
		if !errors.As(err, &ex) {
			t.Fatalf("%v explains nothing", err)
		}
		if got := ex.Explain(); strings.Contains(got, "alice") || !strings.Contains(got, end.Error()) {
			t.Errorf("explained as %q", got)
		}
	}
}
