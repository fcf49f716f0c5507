package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// bound is how long a step may take before it counts as hanging. Its own bounds are far below;
// this one only has to be met on a machine that does a lot else.
const bound = 60 * time.Second

// bench is one database seen directly, and through a proxy.
type bench struct {
	testing.TB
	f      family
	p      *proxy
	db     *sql.DB         // through the proxy
	store  *sqlstore.Store // on db
	trueDB *sql.DB
	truth  *sqlstore.Store
	pay    *settle.Executor[payment, receipt] // on store
}

type (
	payment struct {
		Amount int64 `json:"amount"`
	}
	receipt struct{}
)

var serial atomic.Int64

// step is one thing that the store does in its life.
type step struct {
	name string
	// extra goes to the DSN of a MySQL handle.
	extra string
	// start prepares a fresh record without faults and returns what to do with it, which may run
	// twice, and what became of it. Of an error check concludes what it may.
	start func(b *bench) (do func(ctx context.Context) error, check func(err error, again bool))
}

func steps() []step {
	return []step{
		{"create", "", func(b *bench) (func(context.Context) error, func(error, bool)) {
			return b.change(settle.Change{Writes: []settle.Write{{Record: b.created(), DueIn: time.Hour}}})
		}},
		{"outcome with reference", "", func(b *bench) (func(context.Context) error, func(error, bool)) {
			r := b.stored(time.Hour)
			return b.change(settle.Change{Writes: []settle.Write{{Record: succeeded(r), IfVersion: 1, IfToken: r.Token, DueIn: settle.Never}}})
		}},
		{"outcome of a second attempt", "", func(b *bench) (func(context.Context) error, func(error, bool)) {
			r := b.again(b.stored(time.Hour))
			return b.change(settle.Change{Writes: []settle.Write{{Record: succeeded(r), IfVersion: r.Version, IfToken: r.Token, DueIn: settle.Never}}})
		}},
		{"merge without token", "", func(b *bench) (func(context.Context) error, func(error, bool)) {
			r := b.stored(time.Hour)
			return b.change(settle.Change{Writes: []settle.Write{{Record: succeeded(r), IfVersion: 1, DueIn: settle.Keep}}})
		}},
		{"two records", "", func(b *bench) (func(context.Context) error, func(error, bool)) {
			r := b.stored(time.Hour)
			return b.change(settle.Change{Writes: []settle.Write{
				{Record: succeeded(r), IfVersion: 1, DueIn: settle.Never}, {Record: b.created(), DueIn: 0},
			}})
		}},
		{"hook transaction", "", hookStep},
		{"claim", "", claimStep},
		{"renew", "", renewStep},
		{"list", "", listStep},
		// The COMMIT is the application's, and its driver sends that without a deadline.
		{"RegisterTx", "&readTimeout=1s", registerStep},
	}
}

func (b *bench) created() settle.Record {
	n := fmt.Sprint(serial.Add(1))
	return settle.Record{
		ID: "op-" + n, Scope: "tenant-1", Kind: "charge-" + n, Subject: "order-" + n, Purpose: "purchase", ProviderKey: "key-" + n,
		Account: "bank/acct_1//test", Fingerprint: settle.Fingerprint{Rule: "1", Sum: "sha256:00"}, Request: settle.Payload(`{"amount":1}`),
		Terms: settle.Terms{Account: "acct_1", Amount: settle.Minor(1990, "EUR")}, KeyWindow: time.Hour,
		Attempts: []settle.Attempt{{N: 1, Grace: time.Minute}}, State: settle.StateSubmitting, Token: "token-" + n,
	}
}

// stored is a record that was created without faults.
func (b *bench) stored(due time.Duration) settle.Record {
	out, err := b.truth.Commit(b.Context(), settle.Change{ID: newID(), Writes: []settle.Write{{Record: b.created(), DueIn: due}}})
	must(b, err)
	return out[0]
}

// again has had a second write: from then on entries have rows of their own.
func (b *bench) again(r settle.Record) settle.Record {
	out, err := b.truth.Commit(b.Context(), settle.Change{ID: newID(), Writes: []settle.Write{{Record: r, IfVersion: r.Version, DueIn: settle.Keep}}})
	must(b, err)
	return out[0]
}

func succeeded(r settle.Record) settle.Record {
	r = r.Clone()
	r.References = []settle.Reference{{Ref: "ref-" + r.ID, Rank: settle.RankSucceeded, Terms: r.Terms}}
	r.State, r.Token, r.Result = settle.StateSucceeded, "", settle.Payload(`{}`)
	return r
}

func newID() string { return fmt.Sprint("change-", serial.Add(1)) }

// change is a Commit: applied once or not at all, and once when it is repeated (S26).
func (b *bench) change(c settle.Change) (do func(context.Context) error, check func(error, bool)) {
	c.ID = newID()
	do = func(ctx context.Context) error {
		out, err := b.store.Commit(ctx, c)
		if err != nil {
			return err
		}
		for i, w := range c.Writes {
			if out[i].ID != w.Record.ID || out[i].Version != w.IfVersion+1 {
				b.Errorf("Commit returned %s version %d, want %s version %d", out[i].ID, out[i].Version, w.Record.ID, w.IfVersion+1)
			}
		}
		return nil
	}
	check = func(err error, again bool) {
		if errors.Is(err, settle.ErrConflict) || errors.Is(err, settle.ErrNotFound) || errors.Is(err, settle.ErrUncommitted) {
			b.Errorf("nobody else was there: %v", err)
		}
		var done int
		var wrong []string
		// The server may still be at a request that was cut off: what is read must all be of one moment.
		for was := b.versions(c); ; {
			done, wrong = b.became(c, was)
			now := b.versions(c)
			if slices.Equal(was, now) {
				break
			}
			was = now
		}
		for _, w := range wrong {
			b.Error(w)
		}
		if done != 0 && done != len(c.Writes) {
			b.Errorf("%d of %d writes were applied", done, len(c.Writes))
		}
		if err == nil && done == 0 {
			b.Error("Commit said that it was applied, and it was not")
		}
		if again && err != nil {
			b.Errorf("repeated: %v", err)
		}
	}
	return do, check
}

// versions are those of the records that c writes.
func (b *bench) versions(c settle.Change) (out []int64) {
	for _, w := range c.Writes {
		out = append(out, b.version(w.Record.ID))
	}
	return out
}

// became is how many of c's writes were applied, and what is wrong, where the records have these versions.
func (b *bench) became(c settle.Change, versions []int64) (done int, wrong []string) {
	for i, w := range c.Writes {
		v := versions[i]
		switch v {
		case w.IfVersion:
		case w.IfVersion + 1:
			done++
		default:
			wrong = append(wrong, fmt.Sprintf("%s has version %d, want %d or %d", w.Record.ID, v, w.IfVersion, w.IfVersion+1))
		}
		if v == 0 {
			continue
		}
		h, err := b.truth.History(b.Context(), w.Record.ID, 0, 0)
		must(b, err)
		if int64(len(h)) != v || v == w.IfVersion+1 && h[v-1].Write != c.ID {
			wrong = append(wrong, fmt.Sprintf("%s has version %d and %d entries", w.Record.ID, v, len(h)))
		}
		for _, ref := range w.Record.OwnedRefs() {
			got, err := b.truth.Get(b.Context(), settle.ByRef(w.Record.Account, w.Record.Kind, ref))
			if there := err == nil && got.ID == w.Record.ID; there != (v == w.IfVersion+1) {
				wrong = append(wrong, fmt.Sprintf("reference %s of %s: %v", ref, w.Record.ID, err))
			}
		}
	}
	return done, wrong
}

func (b *bench) version(id string) int64 {
	r, err := b.truth.Get(b.Context(), settle.ByID(id))
	if !errors.Is(err, settle.ErrNotFound) {
		must(b, err)
	}
	return r.Version
}

// hookStep: what a hook writes is there exactly if the change is (S27, I11).
func hookStep(b *bench) (func(context.Context) error, func(error, bool)) {
	r := b.stored(time.Hour)
	c := settle.Change{Writes: []settle.Write{{Record: succeeded(r), IfVersion: 1, IfToken: r.Token, DueIn: settle.Never}}}
	c.Hook = func(ctx context.Context, tx settle.Tx) error {
		_, err := sqlstore.Tx(tx).ExecContext(ctx, b.f.insertShipment(), []byte(r.Subject))
		return err
	}
	do, check := b.change(c)
	return do, func(err error, again bool) {
		var hook *settle.HookError
		if again || !errors.As(err, &hook) { // the hook's own statement may have been hit
			check(err, again)
		}
		// In one statement: a COMMIT whose connection was cut may come in between.
		var ships, version int
		must(b, b.trueDB.QueryRowContext(b.Context(), "SELECT (SELECT count(*) FROM chaos_shipment WHERE subject = "+b.f.mark(1)+
			"), (SELECT version FROM settle_operation WHERE id = "+b.f.mark(2)+")", []byte(r.Subject), []byte(r.ID)).Scan(&ships, &version))
		if ships != version-1 {
			b.Errorf("%d shipments of version %d", ships, version)
		}
	}
}

// claimStep: whoever is told that a record is theirs has it, and nobody is told the opposite
// of a claim that stands (I15). A claim that nobody knows of ends with its lease.
func claimStep(b *bench) (func(context.Context) error, func(error, bool)) {
	r := b.stored(0)
	var got []settle.Record
	token := ""
	do := func(ctx context.Context) (err error) {
		token = newID()
		// A transaction of which only the server knows has the row until the server hears of the cut:
		// to be claimed then is all that is asked.
		for until := time.Now().Add(bound / 2); ; {
			got, err = b.store.Claim(ctx, settle.Claim{Kinds: []string{r.Kind}, Token: token, Lease: time.Hour, Limit: 5})
			if err != nil || len(got) > 0 || b.version(r.ID) > 1 || time.Now().After(until) {
				return err
			}
			runtime.Gosched()
		}
	}
	return do, func(err error, again bool) {
		now, gerr := b.truth.Get(b.Context(), settle.ByID(r.ID))
		must(b, gerr)
		switch mine := now.Token == token; {
		case err == nil && mine && (len(got) != 1 || got[0].Version != now.Version || !got[0].Due.Equal(now.Due)):
			b.Errorf("claimed, and told of %d records", len(got))
		case err == nil && !mine && len(got) != 0:
			b.Errorf("told of a claim that is not there")
		case again && err == nil && !mine && now.Version == 1:
			b.Error("due, and not claimed")
		}
		if now.Version > 2 {
			b.Errorf("version %d: claimed twice", now.Version)
		}
		if again && err != nil {
			b.Errorf("repeated: %v", err)
		}
	}
}

func renewStep(b *bench) (func(context.Context) error, func(error, bool)) {
	r := b.stored(time.Hour)
	do := func(ctx context.Context) error { return renew(ctx, b.store, r.ID, r.Token, 5*time.Hour) }
	return do, func(err error, again bool) {
		now, gerr := b.truth.Get(b.Context(), settle.ByID(r.ID))
		must(b, gerr)
		switch longer := now.Due.Sub(r.Due) > time.Hour; {
		case err == nil && !longer:
			b.Error("told of a renewal that is not there")
		case errors.Is(err, settle.ErrClaimLost):
			b.Error("nobody took it")
		case !longer && !now.Due.Equal(r.Due), now.Version != 1, now.Token != r.Token:
			b.Errorf("the record became %v", now)
		}
		if again && err != nil {
			b.Errorf("repeated: %v", err)
		}
	}
}

func listStep(b *bench) (func(context.Context) error, func(error, bool)) {
	r := b.again(b.again(b.stored(time.Hour)))
	var got []settle.Record
	var entries []settle.Entry
	do := func(ctx context.Context) (err error) {
		if got, err = b.store.List(ctx, settle.Query{Kind: r.Kind, Subject: r.Subject}); err != nil {
			return err
		}
		entries, err = b.store.History(ctx, r.ID, 0, 0)
		return err
	}
	return do, func(err error, again bool) {
		if err == nil && (len(got) != 1 || got[0].ID != r.ID || len(entries) != 3) {
			b.Errorf("listed %d records and %d entries, want 1 and 3", len(got), len(entries))
		}
		if again && err != nil {
			b.Errorf("repeated: %v", err)
		}
	}
}

// registerStep: the application's row is there exactly if the operation is.
func registerStep(b *bench) (func(context.Context) error, func(error, bool)) {
	subject := fmt.Sprint("order-", serial.Add(1))
	do := func(ctx context.Context) error {
		tx, err := b.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, b.f.insertOrder(), []byte(subject)); err != nil {
			return err
		}
		op := settle.Operation[payment]{Scope: "tenant-1", Subject: subject, Purpose: "purchase", Request: payment{Amount: 5}}
		if _, err := b.pay.RegisterTx(ctx, b.store.In(tx), op); err != nil {
			return err
		}
		return tx.Commit()
	}
	return do, func(err error, again bool) {
		// In one statement: a COMMIT whose connection was cut may still be under way at the server.
		var orders, operations int
		must(b, b.trueDB.QueryRowContext(b.Context(), "SELECT (SELECT count(*) FROM chaos_order WHERE subject = "+b.f.mark(1)+
			"), (SELECT count(*) FROM settle_operation WHERE subject = "+b.f.mark(2)+")", []byte(subject), []byte(subject)).Scan(&orders, &operations))
		if orders != operations || orders > 1 {
			b.Errorf("%d orders and %d operations", orders, operations)
		}
		if err == nil && orders == 0 {
			b.Error("committed, and nothing is there")
		}
		if again && err != nil {
			b.Errorf("repeated: %v", err)
		}
	}
}

// run calls do and finds out whether it hangs.
func (b *bench) run(ctx context.Context, do func(context.Context) error) error {
	b.Helper()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	over := time.NewTimer(bound)
	defer over.Stop()
	select {
	case err := <-done:
		return err
	case <-over.C:
		buf := make([]byte, 1<<20)
		b.Fatalf("it hangs\n%s", buf[:runtime.Stack(buf, true)])
		return nil
	}
}

// TestI15_EveryRoundTrip cuts the connection at every round trip of everything that a store
// does, before the request reaches the server, while the server works, after it has answered,
// and in the middle of the answer; on a connection that was in use, and on a pool whose
// connections have all died. Afterwards the store, by the same way, tells the truth: the change
// was applied exactly once or not at all, and exactly once when it is repeated (S6, S26).
func TestI15_EveryRoundTrip(t *testing.T) {
	t.Parallel()
	for _, f := range []family{postgres, mariadb} {
		addr := f.sharedAddr(t)
		schema := f.schema(t, addr)
		trueDB := f.open(t, addr, schema)
		truth := f.store(t, trueDB, nil)
		for _, s := range steps() {
			for i, w := range []struct{ stale, resets bool }{{false, false}, {true, true}, {true, false}, {false, true}} {
				stale, resets := w.stale, w.resets
				if *opsFlag == 0 && i > 1 {
					continue
				}
				if stale && *opsFlag == 0 && !slices.Contains([]string{"create", "claim", "hook transaction"}, s.name) {
					continue // a new connection for each case: the long run has the patience
				}
				t.Run(fmt.Sprintf("%s/%s/stale %v, resets %v", f.name, s.name, stale, resets), func(t *testing.T) {
					t.Parallel()
					b := newBench(t, f, addr, schema, s.extra, resets, trueDB, truth)
					for kind := cutBefore; kind < faults; kind++ {
						if stale && kind != cutBefore && kind != cutAfter {
							continue // as on a connection in use
						}
						n := 1
						for b.hit(s, n, kind, stale) {
							if n++; n > 60 {
								t.Fatal("round trips without end")
							}
						}
						t.Logf("%s: %d round trips", kind, n-1)
					}
				})
			}
		}
	}
}

func newBench(t *testing.T, f family, addr, schema, extra string, resets bool, trueDB *sql.DB, truth *sqlstore.Store) *bench {
	b := &bench{TB: t, f: f, p: newProxy(t, addr, resets), trueDB: trueDB, truth: truth}
	if f.name != mariadb.name {
		extra = ""
	}
	b.db = f.openWith(t, b.p.addr(), schema, extra)
	b.store = f.store(t, b.db, nil)
	engine, err := settle.Open(b.store, nil)
	must(t, err)
	b.pay, err = settle.New(engine, "charge", settle.Adapter[payment, receipt]{
		Promise: settle.Contract{
			Account: settle.AccountFacts{Provider: "bank"}, Deadline: time.Second, SettleDelay: time.Second, Keys: settle.Keys{Window: time.Hour},
		},
		TermsFunc: func(op settle.Operation[payment]) settle.Terms {
			return settle.Terms{Amount: settle.Minor(op.Request.Amount, "EUR")}
		},
		SubmitFunc: func(context.Context, *settle.Call[payment]) (settle.Observation[receipt], error) {
			return settle.Observation[receipt]{}, errors.New("not in this test")
		},
	}, nil)
	must(t, err)
	return b
}

// hit runs s with a fault at its nth round trip and reports whether it has one.
func (b *bench) hit(s step, n int, kind fault, stale bool) bool {
	b.Helper()
	ctx := b.Context()
	// Once without fault, so that the connection is there and all is prepared on it.
	b.p.set(nil)
	do, check := s.start(b)
	check(b.run(ctx, do), true)
	if stale {
		b.p.sever()
	}
	do, check = s.start(b)
	came := b.p.at(n, kind)
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	if kind == stall {
		// Nobody but the caller's own patience ends this.
		go func() {
			select {
			case <-came:
				cancel()
			case <-call.Done():
			}
		}()
	}
	err := b.run(call, do)
	hit := closed(came)
	b.p.set(nil)
	failed := b.Failed()
	check(err, false)
	if kind == stall && hit {
		b.p.sever()                        // it ends only now
		for b.db.PingContext(ctx) != nil { // until the pool has none left that died
			runtime.Gosched()
		}
	}
	// The server may still be at what was cut off, and the pool may have another dead connection:
	// what matters is that repeating it ends well.
	again := b.run(ctx, do)
	for try := 0; again != nil && try < 20; try++ {
		for b.db.PingContext(ctx) != nil {
			runtime.Gosched()
		}
		again = b.run(ctx, do)
	}
	check(again, true)
	if b.Failed() && !failed {
		b.Errorf("that was %s, %s at round trip %d, which said: %v", s.name, kind, n, err)
	}
	return hit
}

// renew renews one claim.
func renew(ctx context.Context, s settle.Store, id, token string, lease time.Duration) error {
	said, err := s.Renew(ctx, []settle.Held{{ID: id, Token: token}}, lease)
	if err != nil {
		return err
	}
	return said[0]
}
