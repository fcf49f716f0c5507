// Command feed charges three orders and ships what was paid, in another service that hears of it through a broker:
//
//	go run . # in examples/feed; PostgreSQL on 127.0.0.1:5432 and a NATS server with JetStream on 127.0.0.1:4222
//
// settle's worker publishes each transition through Watermill to NATS, at least once and in order per order. The
// shipping service reads them with a subscriber of Watermill and applies each once (inbox.go), although the worker dies after it has
// published and before it has noted that. PG_URL and NATS_URL name other servers.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the database driver
	"github.com/nats-io/nats.go"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "feed: FAILED:", err)
		os.Exit(1)
	}
}

func pgURL() string {
	return cmp.Or(os.Getenv("PG_URL"), "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable")
}

func natsURL() string { return cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL) }

// dying is a publisher whose process dies after it has published what settles an operation. Messages of several operations
// are published side by side, so die is called from several goroutines.
type dying struct {
	settle.Publisher
	die func()
}

func (d dying) Publish(ctx context.Context, m settle.Message) error {
	err := d.Publisher.Publish(ctx, m)
	if m.To.Settled() {
		d.die()
		return errors.New("gone")
	}
	return err
}

func run(ctx context.Context, out io.Writer) (err error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	db, drop, err := schema(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if _, err := db.ExecContext(ctx, inboxTable+`; CREATE TABLE parcels (operation text NOT NULL)`); err != nil {
		return err
	}
	store, err := sqlstore.New(db, sqlstore.PostgreSQL(), nil)
	if err != nil {
		return err
	}
	conn, err := nats.Connect(natsURL())
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		return err
	}
	topic := "feed" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := js.AddStream(&nats.StreamConfig{Name: topic, Subjects: []string{topic}, Storage: nats.MemoryStorage}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, js.DeleteStream(topic)) }()
	to, err := toNATS(conn, topic)
	if err != nil {
		return err
	}

	o := &providertest.Options{KeyWindow: 24 * time.Hour}
	bank := providertest.New(o)
	first, err := openShop(store, bank, providertest.Promise(o), settle.PublishedElsewhere{}, "charge")
	if err != nil {
		return err
	}
	paid := map[string]string{}
	for _, order := range []string{"order-1", "order-2", "order-3"} {
		id, err := first.pay(ctx, "charge", order)
		if err != nil {
			return err
		}
		paid[id] = order
	}
	if err := first.close(); err != nil {
		return err
	}
	say("three orders are paid; nothing is published yet")

	// A worker that loses its store after it has published: what it has noted is nothing.
	dead := &mortal{Store: store}
	worker, err := openShop(dead, bank, providertest.Promise(o), dying{Publisher: to, die: dead.kill}, "charge")
	if err != nil {
		return err
	}
	select {
	case <-dead.died():
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := worker.close(); err != nil {
		return err
	}
	say("the worker died after publishing, before it noted that")
	worker, err = openShop(store, bank, providertest.Promise(o), to, "charge")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.close()) }()

	inbox := &Inbox{DB: db, Apply: func(ctx context.Context, tx *sql.Tx, m settle.Message) error {
		if m.To != settle.StateSucceeded {
			return nil
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO parcels VALUES ($1)`, m.Operation)
		return err
	}}
	from, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: natsURL(), Unmarshaler: &wmnats.NATSMarshaler{}, SubscribersCount: 1, AckWaitTimeout: time.Second, CloseTimeout: time.Second, SubscribeTimeout: time.Second,
		SubjectCalculator: wmnats.DefaultSubjectCalculator,
		JetStream:         wmnats.JetStreamConfig{SubscribeOptions: []nats.SubOpt{nats.DeliverAll(), nats.AckExplicit()}},
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	messages, err := from.Subscribe(ctx, topic)
	if err != nil {
		return err
	}
	for shipped := 0; shipped < len(paid); {
		select {
		case msg := <-messages:
			var m settle.Message
			if err := json.Unmarshal(msg.Payload, &m); err != nil {
				return err
			}
			switch err := inbox.Take(ctx, m); {
			case errors.Is(err, errEarly):
				msg.Nack() // it comes again
				continue
			case err != nil:
				return err
			}
			msg.Ack()
			say("  %s: %s → %s", paid[m.Operation], m.From, m.To)
			if err := db.QueryRowContext(ctx, `SELECT count(*) FROM parcels`).Scan(&shipped); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var parcels, orders int
	if err := db.QueryRowContext(ctx, `SELECT count(*), count(DISTINCT operation) FROM parcels`).Scan(&parcels, &orders); err != nil {
		return err
	}
	say("%d parcels for %d orders", parcels, orders)
	if parcels != len(paid) || orders != len(paid) {
		return errors.New("not one parcel for each order")
	}
	return nil
}

// schema makes an empty schema on the server, with settle's tables, and says how to drop it.
func schema(ctx context.Context) (*sql.DB, func() error, error) {
	admin, err := sql.Open("pgx", pgURL())
	if err != nil {
		return nil, nil, err
	}
	name := "feed_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := admin.ExecContext(ctx, "CREATE SCHEMA "+name); err != nil {
		return nil, nil, errors.Join(err, admin.Close())
	}
	db, err := sql.Open("pgx", inSchema(name))
	if err == nil {
		err = sqlstore.EnsureSchema(ctx, db, sqlstore.PostgreSQL())
	}
	drop := func() error {
		_, err := admin.ExecContext(context.WithoutCancel(ctx), "DROP SCHEMA "+name+" CASCADE")
		return errors.Join(db.Close(), err, admin.Close())
	}
	if err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	return db, drop, nil
}

// inSchema is the server's URL with the schema in which everything is.
func inSchema(name string) string {
	mark := "?"
	if strings.Contains(pgURL(), "?") {
		mark = "&"
	}
	return pgURL() + mark + "search_path=" + name
}
