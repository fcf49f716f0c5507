package settle_test

import (
	"strings"
	"testing"

	"github.com/settle-go/settle"
)

// A store that failed says nothing about the effect, so the advice must not either.
func TestAdviceAfterAStoreErrorClaimsNothing(t *testing.T) {
	for _, sentinel := range []error{settle.ErrStore, settle.ErrUncommitted, settle.ErrDraining} {
		advice := (&settle.Error{Err: sentinel}).Next().Advice()
		if strings.Contains(advice, "Nothing had an effect") {
			t.Errorf("%v: %q", sentinel, advice)
		}
	}
}
