package main

import (
	"database/sql"
	"errors"
	"strings"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"
)

// toNATS publishes to a stream of JetStream. TrackMsgId sends the id along, and the server drops what it has had
// within the stream's window for duplicates.
func toNATS(conn *nats.Conn, subject string) (Publisher, error) {
	to, err := wmnats.NewPublisherWithNatsConn(conn, wmnats.PublisherPublishConfig{
		Marshaler: &wmnats.NATSMarshaler{}, SubjectCalculator: wmnats.DefaultSubjectCalculator,
		JetStream: wmnats.JetStreamConfig{TrackMsgId: true},
	}, nil)
	return Publisher{To: to, Topic: subject, Poison: func(err error) bool {
		var refused *nats.APIError
		return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &refused) && strings.Contains(refused.Description, "message size exceeds")
	}}, err
}

// toTable publishes to a table of PostgreSQL.
func toTable(db *sql.DB, topic string) (Publisher, error) {
	to, err := wmsql.NewPublisher(wmsql.BeginnerFromStdSQL(db), wmsql.PublisherConfig{SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true}, nil)
	return Publisher{To: to, Topic: topic, Poison: func(err error) bool {
		var refused *pgconn.PgError
		return errors.As(err, &refused) && (strings.HasPrefix(refused.Code, "22") || strings.HasPrefix(refused.Code, "23")) // the data, a constraint
	}}, err
}
