package settle_test

import (
	"context"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
)

// What the orders of events need; internal/scenario has the traces with one event.

type said = settle.Observation[struct{}]

func event(t *testing.T, p *scenario.Process, id string, o said) settle.Record {
	t.Helper()
	r, err := settle.MergeEvent(context.Background(), p.Engine, id, o)
	if err != nil {
		t.Fatalf("event %s: %v", o.Fact, err)
	}
	return r
}

func charged(ref string) said {
	return said{Fact: settle.Applied, Ref: ref, Terms: settle.Terms{Amount: settle.Minor(1999, "EUR")}}
}

func silent(l *scenario.Lab) *settle.Contract {
	c := l.Promise
	c.Lookup = settle.NoLookup
	return &c
}

// executes runs the order in the background and returns when its request has arrived.
func executes(t *testing.T, l *scenario.Lab, p *scenario.Process) (id string, done <-chan error) {
	t.Helper()
	answer := make(chan error, 1)
	go func() {
		_, err := p.Charge.Execute(context.Background(), scenario.Order())
		answer <- err
	}()
	l.Elapse(time.Second)
	l.Requests(1)
	return l.Only().ID, answer
}
