package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/settle-go/settle"
)

// Publisher hands the feed to any publisher of Watermill: NATS, a table, Kafka, AMQP.
type Publisher struct {
	To    message.Publisher
	Topic string
	// Poison says which errors of To mean that it will never take this message. Nil: none. When in doubt it is
	// an outage: an operation that waits is better than one that is set aside.
	Poison func(error) bool
}

// ids make the id of a message a UUID, the same each time: some of Watermill's tables have room for no more.
var ids = uuid.MustParse("5f1a3c52-3c0e-4f5e-9a6d-0d6f4e1f7a10")

// Publish implements settle.Publisher.
func (p Publisher) Publish(ctx context.Context, m settle.Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("%w: %w", settle.ErrPoison, err)
	}
	msg := message.NewMessage(uuid.NewSHA1(ids, []byte(m.ID)).String(), body)
	msg.Metadata.Set("settle_kind", m.Kind)
	msg.Metadata.Set("settle_operation", m.Operation) // to partition by: order is kept per operation
	msg.SetContext(ctx)
	if err = p.To.Publish(p.Topic, msg); err != nil && p.Poison != nil && p.Poison(err) {
		return fmt.Errorf("%w: %w", settle.ErrPoison, err)
	}
	return err
}
