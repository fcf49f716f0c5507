package chaos

import (
	"context"
	"errors"
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

// TestS5_SilentRollback: when the caller gives up between two statements, database/sql rolls back by itself, with this driver
// without a deadline. On a network that has gone silent a step does not wait for that.
func TestS5_SilentRollback(t *testing.T) {
	t.Parallel()
	addr := mariadb.sharedAddr(t)
	schema := mariadb.schema(t, addr)
	trueDB := mariadb.open(t, addr, schema)
	b := newBench(t, mariadb, addr, schema, "", false, trueDB, mariadb.store(t, trueDB, nil))
	r := b.stored(time.Hour)
	for range 200 { // which of the two rolls back first, and is noticed first, is chance
		ctx, cancel := context.WithCancel(t.Context())
		c := settle.Change{ID: newID(), Writes: []settle.Write{{Record: succeeded(r), IfVersion: 1, IfToken: r.Token, DueIn: settle.Never}}}
		c.Hook = func(context.Context, settle.Tx) error {
			came := b.p.at(1, stall)
			cancel()
			<-came
			return errors.New("given up")
		}
		err := b.run(ctx, func(context.Context) error {
			_, err := b.store.Commit(ctx, c)
			return err
		})
		var hook *settle.HookError
		if !errors.As(err, &hook) {
			t.Errorf("Commit returned %v", err)
		}
		b.p.set(nil)
		b.p.sever()
	}
}
