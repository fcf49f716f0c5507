package chaos

import (
	"testing"
	"time"

	"github.com/settle-go/settle"
)

// TestI15_PoolOfOne: a claim whose answer is lost is read back with a pool that allows one
// connection, or whose others are all in the same situation, as after a restart of the server.
func TestI15_PoolOfOne(t *testing.T) {
	t.Parallel()
	addr := postgres.sharedAddr(t)
	schema := postgres.schema(t, addr)
	trueDB := postgres.open(t, addr, schema)
	b := newBench(t, postgres, addr, schema, "", false, trueDB, postgres.store(t, trueDB, nil))
	b.db.SetMaxOpenConns(1)
	claim := func(kind string) ([]settle.Record, error) {
		return b.store.Claim(t.Context(), settle.Claim{Kinds: []string{kind}, Token: newID(), Lease: time.Hour, Limit: 5})
	}
	_, err := claim("none") // all is prepared on the connection
	must(t, err)
	r := b.stored(0)
	came := b.p.at(1, cutAfter)
	got, err := claim(r.Kind)
	if !closed(came) || err != nil || len(got) != 1 || got[0].ID != r.ID {
		t.Errorf("hit %v: %d records, %v", closed(came), len(got), err)
	}
}
