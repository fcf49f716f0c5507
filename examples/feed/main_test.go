package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

func TestProgram(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "3 parcels for 3 orders") {
		t.Fatal(out.String())
	}
}

// tooLong is a kind whose messages the brokers of these tests refuse.
var tooLong = "charge-" + strings.Repeat("x", settle.MaxKind-len("charge-"))

// line is one topic at a real broker, as those see it who run it.
type line struct {
	topic string
	to    Publisher
	kept  func(t *testing.T) []settle.Message // what the broker has taken, in its order
	stop  func(t *testing.T)                  // it takes nothing more,
	start func(t *testing.T)                  // and takes it again
}

// brokers are the kinds of lines. window is for how long one remembers the ids that it has taken, if it can.
var brokers = map[string]func(t *testing.T, db *sql.DB, window time.Duration) *line{"NATS": natsLine, "PostgreSQL": tableLine}

func natsLine(t *testing.T, _ *sql.DB, window time.Duration) *line {
	conn, err := nats.Connect(natsURL())
	must(t, err)
	t.Cleanup(conn.Close)
	js, err := conn.JetStream()
	must(t, err)
	topic := "feed" + strings.ReplaceAll(uuid.NewString(), "-", "")
	config := &nats.StreamConfig{
		Name: topic, Subjects: []string{topic}, Storage: nats.MemoryStorage, Duplicates: window, Discard: nats.DiscardNew, MaxMsgSize: 500, MaxMsgs: -1,
	}
	_, err = js.AddStream(config)
	must(t, err)
	t.Cleanup(func() { must(t, js.DeleteStream(topic)) })
	to, err := toNATS(conn, topic)
	must(t, err)
	last := func(t *testing.T) uint64 {
		info, err := js.StreamInfo(topic)
		must(t, err)
		return info.State.LastSeq
	}
	return &line{topic, to, func(t *testing.T) (out []settle.Message) {
		for n := range last(t) {
			raw, err := js.GetMsg(topic, n+1)
			must(t, err)
			out = append(out, decode(t, raw.Data))
		}
		return out
	}, func(t *testing.T) {
		c := *config
		c.MaxMsgs = max(1, int64(last(t)))
		_, err := js.UpdateStream(&c)
		must(t, err)
	}, func(t *testing.T) {
		_, err := js.UpdateStream(config)
		must(t, err)
	}}
}

func tableLine(t *testing.T, db *sql.DB, _ time.Duration) *line {
	to, err := toTable(db, "feed")
	must(t, err)
	exec := func(t *testing.T, q string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), q)
		must(t, err)
	}
	// Watermill makes the table when it publishes first, and leaves it if it is there.
	exec(t, `CREATE TABLE watermill_feed ("offset" BIGSERIAL, uuid VARCHAR(36) NOT NULL, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
		payload JSON CHECK (length(payload->>'kind') < 20), metadata JSON, transaction_id xid8 NOT NULL, PRIMARY KEY (transaction_id, "offset"))`)
	return &line{"feed", to, func(t *testing.T) (out []settle.Message) {
		rows, err := db.QueryContext(t.Context(), `SELECT payload FROM watermill_feed ORDER BY "offset"`)
		must(t, err)
		defer func() { must(t, rows.Close()) }()
		for rows.Next() {
			var body []byte
			must(t, rows.Scan(&body))
			out = append(out, decode(t, body))
		}
		must(t, rows.Err())
		return out
	}, func(t *testing.T) { exec(t, `ALTER TABLE watermill_feed RENAME TO away`) }, func(t *testing.T) { exec(t, `ALTER TABLE away RENAME TO watermill_feed`) }}
}

func decode(t *testing.T, body []byte) (m settle.Message) {
	t.Helper()
	must(t, json.Unmarshal(body, &m))
	return m
}

// rig is a schema with a bank and a line.
type rig struct {
	t       *testing.T
	db      *sql.DB
	store   *sqlstore.Store
	bank    *providertest.Provider
	promise settle.Contract
	*line
}

func onEach(t *testing.T, window time.Duration, test func(t *testing.T, r *rig)) {
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, drop, err := schema(t.Context())
			must(t, err)
			t.Cleanup(func() { must(t, drop()) })
			store, err := sqlstore.New(db, sqlstore.PostgreSQL(), nil)
			must(t, err)
			o := &providertest.Options{KeyWindow: 24 * time.Hour}
			test(t, &rig{t: t, db: db, store: store, bank: providertest.New(o), promise: providertest.Promise(o), line: open(t, db, window)})
		})
	}
}

// shop opens one that publishes to p.
func (r *rig) shop(p settle.Publisher) *shop {
	r.t.Helper()
	s, err := openShop(r.store, r.bank, r.promise, p, "charge", tooLong)
	must(r.t, err)
	return s
}

// paid charges n orders without a relay, and returns their ids.
func (r *rig) paid(n int) (ids []string) {
	r.t.Helper()
	s := r.shop(settle.PublishedElsewhere{})
	for i := range n {
		id, err := s.pay(r.t.Context(), "charge", fmt.Sprint("order-", i))
		must(r.t, err)
		ids = append(ids, id)
	}
	must(r.t, s.close())
	return ids
}

// fed waits until the feed of an operation is as wanted.
func (r *rig) fed(s *shop, id string, wanted func(place settle.Record) bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		place, err := s.engine.Get(r.t.Context(), "feed_"+id)
		must(r.t, err)
		if wanted(place) {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("the feed of %s: %v, %d tries", id, place, place.Tries)
		}
		<-time.After(20 * time.Millisecond) // what is waited for is in a database
	}
}

func atRest(place settle.Record) bool { return place.State.Settled() }

// inOrder checks that what was taken about each operation begins with each message after its previous one.
func (r *rig) inOrder(ids []string) (repeated int) {
	r.t.Helper()
	last := map[string]int64{}
	seen := map[string]settle.Message{}
	for _, m := range r.kept(r.t) {
		if was, ok := seen[m.ID]; ok {
			repeated++
			if was != m {
				r.t.Errorf("message %s came as %+v and as %+v", m.ID, was, m)
			}
			continue
		}
		if m.Previous != last[m.Operation] {
			r.t.Errorf("message %+v came after %d", m, last[m.Operation])
		}
		seen[m.ID], last[m.Operation] = m, m.Sequence
	}
	for _, id := range ids {
		if last[id] == 0 {
			r.t.Errorf("nothing was published about %s", id)
		}
	}
	return repeated
}

// TestIC61_KilledBetweenPublishingAndMarking: a relay in a process of its own is killed (SIGKILL) when it has published and noted nothing. The
// next one publishes again, with the same ids, and an inbox applies each once.
func TestIC61_KilledBetweenPublishingAndMarking(t *testing.T) {
	t.Parallel()
	onEach(t, 100*time.Millisecond, func(t *testing.T, r *rig) {
		ids := r.paid(3)
		var path string
		must(t, r.db.QueryRowContext(t.Context(), `SHOW search_path`).Scan(&path))
		broker := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		relay := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRelay$")
		relay.Env = append(os.Environ(), "FEED_RELAY="+broker, "FEED_SCHEMA="+path, "FEED_TOPIC="+r.topic)
		out, err := relay.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the relay ended with %v: %s", err, out)
		}
		if n := len(r.kept(t)); n == 0 {
			t.Fatal("it was killed before it had published")
		}
		s := r.shop(r.to)
		for _, id := range ids {
			r.fed(s, id, atRest)
		}
		must(t, s.close())
		if r.inOrder(ids) == 0 {
			t.Fatal("nothing came twice")
		}
		r.applied(ids, r.kept(t))
	})
}

// TestRelay is the process that is killed: it kills itself after its second message.
func TestRelay(t *testing.T) {
	t.Parallel()
	broker := os.Getenv("FEED_RELAY")
	if broker == "" {
		return // it is no test of its own
	}
	db, err := sql.Open("pgx", inSchema(os.Getenv("FEED_SCHEMA")))
	must(t, err)
	store, err := sqlstore.New(db, sqlstore.PostgreSQL(), nil)
	must(t, err)
	var to Publisher
	if broker == "NATS" {
		conn, err := nats.Connect(natsURL())
		must(t, err)
		to, err = toNATS(conn, os.Getenv("FEED_TOPIC"))
		must(t, err)
	} else {
		to, err = toTable(db, os.Getenv("FEED_TOPIC"))
		must(t, err)
	}
	o := &providertest.Options{KeyWindow: time.Hour}
	_, err = openShop(store, providertest.New(o), providertest.Promise(o), &killed{to, 2}, "charge")
	must(t, err)
	<-t.Context().Done()
}

// killed kills its process when n messages of one operation were published.
type killed struct {
	settle.Publisher
	n int64
}

func (k *killed) Publish(ctx context.Context, m settle.Message) error {
	err := k.Publisher.Publish(ctx, m)
	if m.Sequence >= k.n {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return err
}

// applied takes messages into an inbox, those that are too early again as a broker would, and checks that each transition had its effect once.
func (r *rig) applied(ids []string, messages []settle.Message) {
	r.t.Helper()
	ctx := r.t.Context()
	for _, q := range []string{inboxTable, `CREATE TABLE IF NOT EXISTS applied (operation text, sequence bigint, state text)`} {
		_, err := r.db.ExecContext(ctx, q)
		must(r.t, err)
	}
	b := &Inbox{DB: r.db, Apply: func(ctx context.Context, tx *sql.Tx, m settle.Message) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO applied VALUES ($1, $2, $3)`, m.Operation, m.Sequence, string(m.To))
		return err
	}}
	for queue := messages; len(queue) > 0; {
		m := queue[0]
		queue = queue[1:]
		switch err := b.Take(ctx, m); {
		case errors.Is(err, errEarly):
			queue = append(queue, m)
		default:
			must(r.t, err)
		}
	}
	for _, id := range ids {
		var states string
		must(r.t, r.db.QueryRowContext(ctx, `SELECT coalesce(string_agg(state, ' ' ORDER BY ctid), '') FROM applied WHERE operation = $1`, id).Scan(&states))
		if states != "submitting succeeded" {
			r.t.Errorf("%s: applied %q", id, states)
		}
	}
}

// A broker that reorders and repeats: the inbox puts it right.
func TestReordered(t *testing.T) {
	t.Parallel()
	onEach(t, 2*time.Minute, func(t *testing.T, r *rig) {
		ids := r.paid(5)
		s := r.shop(r.to)
		for _, id := range ids {
			r.fed(s, id, atRest)
		}
		must(t, s.close())
		got := r.kept(t)
		got = slices.Concat(got, got, got)
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		r.applied(ids, got)
	})
}

// TestT32_PoisonHoldsUpItsOwnOperation: the broker itself refuses messages of one kind. Those of another go on, and what was set
// aside is delivered when the cause is gone.
func TestT32_PoisonHoldsUpItsOwnOperation(t *testing.T) {
	t.Parallel()
	onEach(t, 2*time.Minute, func(t *testing.T, r *rig) {
		tries := make(chan struct{}, 100)
		s := r.shop(publisher(func(ctx context.Context, m settle.Message) error {
			err := r.to.Publish(ctx, m)
			if errors.Is(err, settle.ErrPoison) {
				tries <- struct{}{}
			}
			return err
		}))
		bad, err := s.pay(t.Context(), tooLong, "order-0")
		must(t, err)
		for range 2 {
			<-tries
		}
		good, err := s.pay(t.Context(), "charge", "order-1")
		must(t, err)
		r.fed(s, good, atRest)
		r.fed(s, bad, func(place settle.Record) bool { return place.Tries >= 2 && !place.State.Settled() })
		for _, m := range r.kept(t) {
			if m.Operation == bad {
				t.Fatalf("the broker has %+v", m)
			}
		}
		must(t, s.close())
		s = r.shop(publisher(func(ctx context.Context, m settle.Message) error { // shorter, somehow
			m.Kind = "charge"
			return r.to.Publish(ctx, m)
		}))
		r.fed(s, bad, atRest)
		must(t, s.close())
		r.inOrder([]string{good, bad})
	})
}

// The broker takes nothing for a while: no try is counted, and everything comes afterwards.
func TestOutage(t *testing.T) {
	t.Parallel()
	onEach(t, 2*time.Minute, func(t *testing.T, r *rig) {
		ids := r.paid(3)
		failed := make(chan error, 100)
		s := r.shop(publisher(func(ctx context.Context, m settle.Message) error {
			err := r.to.Publish(ctx, m)
			if err != nil {
				failed <- err
			}
			return err
		}))
		for _, id := range ids {
			r.fed(s, id, atRest)
		}
		before := len(r.kept(t))
		r.stop(t)
		for i := range 3 {
			id, err := s.pay(t.Context(), "charge", fmt.Sprint("later-", i))
			must(t, err)
			ids = append(ids, id)
		}
		for range 2 {
			if err := <-failed; errors.Is(err, settle.ErrPoison) {
				t.Fatalf("an outage looks like poison: %v", err)
			}
		}
		for _, id := range ids[3:] {
			place, err := s.engine.Get(t.Context(), "feed_"+id)
			must(t, err)
			if place.Tries != 0 || place.State.Settled() {
				t.Fatalf("in an outage: %v, %d tries", place, place.Tries)
			}
		}
		r.start(t)
		for _, id := range ids[3:] {
			r.fed(s, id, atRest)
		}
		must(t, s.close())
		r.inOrder(ids)
		if n := len(r.kept(t)); n != before+6 {
			t.Fatalf("%d messages, %d of them from before; want 6 more", n, before)
		}
	})
}

// NATS drops by itself what it had a while ago.
func TestServerDropsDuplicates(t *testing.T) {
	t.Parallel()
	db, drop, err := schema(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, drop()) })
	l := natsLine(t, db, 2*time.Minute)
	m := settle.Message{ID: "op.1", Operation: "op", Kind: "charge", Sequence: 1, To: settle.StateCreated}
	for range 3 {
		must(t, l.to.Publish(t.Context(), m))
	}
	if got := l.kept(t); len(got) != 1 {
		t.Fatalf("the stream has %+v", got)
	}
}

type publisher func(context.Context, settle.Message) error

func (p publisher) Publish(ctx context.Context, m settle.Message) error { return p(ctx, m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
