package settle_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
)

type deaf struct{}

// Notice implements settle.Observer.
func (deaf) Notice(context.Context, settle.Notice) {}

// BenchmarkObserver is what measures cost: a first Execute and a replay on the store in memory, without an observer, with
// one that does nothing, and with slog at the level info into nothing.
func BenchmarkObserver(b *testing.B) {
	for _, c := range []struct {
		name string
		o    settle.Options
	}{
		{"absent", settle.Options{}},
		{"idle", settle.Options{Observer: deaf{}}},
		{"slog", settle.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}},
	} {
		e, err := settle.Open(memstore.New(nil), &c.o)
		if err != nil {
			b.Fatal(err)
		}
		f := &fakeAd{submit: good("ch_"), lookup: func(context.Context, *acall, int) (aobs, error) { return aobs{Fact: settle.NotFound}, nil }}
		x, err := settle.New(e, "pay", f.adapter(regressContract(true, settle.Authoritative)), nil)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		pay := func(b *testing.B, subject string) {
			if _, err := x.Execute(context.Background(), settle.Operation[areq]{Scope: "s", Subject: subject, Purpose: "buy", Request: areq{N: 5}}); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(c.name+"/first", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n++
				pay(b, fmt.Sprint("order-", n))
			}
		})
		b.Run(c.name+"/replay", func(b *testing.B) {
			pay(b, "order-0")
			b.ReportAllocs()
			for b.Loop() {
				pay(b, "order-0")
			}
		})
	}
}
