package sqltest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// TestTwoHandlesOneOperation (I2, I5): two handles on one server, as two processes are, and 16
// callers in each. One request is sent for each operation, whoever asks, and all get its result.
func TestTwoHandlesOneOperation(t *testing.T) {
	t.Parallel()
	my := mysqlDatabase(t).FormatDSN()
	pg := pgSchema(t)
	for name, handle := range map[string]func() *sqlstore.Store{
		"PostgreSQL": func() *sqlstore.Store { _, s := openPG(t, "pgx", pg, nil); return s },
		"MySQL":      func() *sqlstore.Store { _, s := openMySQL(t, my, nil); return s },
	} {
		t.Run(name, func(t *testing.T) {
			first := newTill(t, handle(), nil, nil)
			tills := []till{first, newTill(t, handle(), first.provider, nil)}
			const callers, keys = 16, 8
			race := func(subject func(caller int) string) (ids map[string]int) {
				var wg sync.WaitGroup
				var mu sync.Mutex
				ids = map[string]int{}
				begin := make(chan struct{})
				for i := range 2 * callers {
					wg.Go(func() {
						op := order("")
						op.Subject = subject(i)
						<-begin
						out, err := tills[i%2].Execute(t.Context(), op)
						for errors.Is(err, settle.ErrPending) {
							out, err = tills[i%2].Execute(t.Context(), op)
						}
						if !assert.NoError(t, err) {
							return
						}
						res, ok := out.Result()
						assert.True(t, ok)
						mu.Lock()
						defer mu.Unlock()
						ids[out.ID+" "+res.ID]++
					})
				}
				close(begin)
				wg.Wait()
				return ids
			}
			ids := race(func(int) string { return "one" })
			assert.Len(t, ids, 1)
			assert.Equal(t, 1, first.provider.Calls(providertest.OpCreate))
			ids = race(func(i int) string { return fmt.Sprint("many-", i/2%keys) })
			assert.Len(t, ids, keys)
			assert.Equal(t, 1+keys, first.provider.Calls(providertest.OpCreate))
			assert.Empty(t, first.provider.Duplicates())
		})
	}
}
