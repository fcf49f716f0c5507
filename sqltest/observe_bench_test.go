package sqltest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
)

// BenchmarkObserve is how many events a second Observe takes in: new ones, each of which confirms what an operation knows
// already, and the same ones again. One caller, and 16 at a time.
func BenchmarkObserve(b *testing.B) {
	for _, d := range []database{sqliteDatabase(), postgresDatabase()} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/callers=%d", d.name, callers), func(b *testing.B) { benchObserve(b, d, callers) })
		}
	}
}

func benchObserve(b *testing.B, d database, callers int) {
	b.Helper()
	_, s := d.open(b, d.fresh(b), nil)
	facts := settle.AccountFacts{Provider: "bench"}
	const operations = 2000
	ids := reportOperations(b, s, operations, facts.String())
	e, err := settle.Open(s, nil)
	must(b, err)
	_, err = settle.New(e, "charge", hears(facts), nil)
	must(b, err)
	event := func(n int64) settle.Event {
		op := int(n % operations)
		return settle.Event{
			Account: facts.String(), ID: fmt.Sprintf("evt_%d", n), Type: "charge.succeeded", Operation: ids(op), Ref: fmt.Sprintf("ch_%d", op),
			Payload: settle.Payload(fmt.Sprintf(`{"id":"evt_%d","type":"charge.succeeded","amount":1999,"currency":"EUR"}`, n)),
		}
	}
	var last int64
	again := func(b *testing.B, next func() int64, duplicate bool) {
		b.Helper()
		b.SetParallelism(max(1, callers/2)) // of two processors
		take := func() error {
			got, err := e.Observe(context.Background(), event(next()))
			if err == nil && (got.Duplicate != duplicate || got.Parked || got.Record.ID == "") {
				err = fmt.Errorf("it was taken in as %+v", got)
			}
			return err
		}
		if callers == 1 {
			for b.Loop() {
				must(b, take())
			}
		} else {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := take(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	}
	b.Run("new", func(b *testing.B) {
		again(b, func() int64 { return atomic.AddInt64(&last, 1) }, false)
	})
	if last == 0 { // only the duplicates were asked for
		last = 1
		_, err := e.Observe(b.Context(), event(1))
		must(b, err)
	}
	b.Run("duplicate", func(b *testing.B) {
		var n int64
		known := last
		again(b, func() int64 { return 1 + atomic.AddInt64(&n, 1)%known }, true)
	})
}

// hears is an adapter that reads events and is asked nothing else.
func hears(account settle.AccountFacts) settle.Adapter[json.RawMessage, json.RawMessage] {
	type said = settle.Observation[json.RawMessage]
	terms := settle.Terms{Amount: settle.Minor(1999, "EUR")}
	return settle.Adapter[json.RawMessage, json.RawMessage]{
		Promise:    settle.Contract{Account: account, Deadline: time.Second, SettleDelay: time.Second, Lookup: settle.Authoritative},
		TermsFunc:  func(settle.Operation[json.RawMessage]) settle.Terms { return terms },
		SubmitFunc: func(context.Context, *settle.Call[json.RawMessage]) (said, error) { return said{}, nil },
		LookupFunc: func(context.Context, *settle.Call[json.RawMessage]) (said, error) { return said{}, nil },
		EventFunc: func(_ context.Context, ev settle.Event) (said, error) {
			return said{Fact: settle.Applied, Ref: ev.Ref, Terms: terms}, nil
		},
	}
}
