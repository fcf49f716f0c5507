package settle_test

import (
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/publiccase"
	"github.com/settle-go/settle/memstore"
)

func TestPublicCases(t *testing.T) {
	t.Parallel()
	publiccase.Run(t, func(testing.TB) settle.Store { return memstore.New(nil) })
}
